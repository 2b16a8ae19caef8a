/* httpout.h: bytes that wait for a client to take them. */
#ifndef SERVE_HTTPOUT_H
#define SERVE_HTTPOUT_H

#include "base/bytes.h"

struct httpout {
    struct buffer bytes; /* appended to by whoever writes */
    size_t at;           /* taken so far */
};
void httpout_init(struct httpout *o);
size_t httpout_pending(const struct httpout *o);
const uint8_t *httpout_data(const struct httpout *o);
void httpout_taken(struct httpout *o, size_t size);
/* Memory that an idle connection does not need. */
void httpout_trim(struct httpout *o);
void httpout_free(struct httpout *o);

#endif

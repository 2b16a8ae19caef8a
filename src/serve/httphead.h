/* httphead.h: the bytes of a request's head, accepted one by one or refused with a reason. */
#ifndef SERVE_HTTPHEAD_H
#define SERVE_HTTPHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "http.h"

/* Zero-initialise for each head. Offsets count from the head's first byte. */
struct httphead {
    uint8_t state, version_at;
    char version[9];       /* "HTTP/1.1" */
    bool blank_line;       /* one in front of the request line is overlooked */
    bool done;
    size_t size, n_headers;
    size_t method_at, method_size, target_at, target_size;
};
/* Takes bytes up to the end of the head, which h->done tells. Returns how many it took; *fault says
 * why it refused the byte behind them, or HTTP_FAULT_NONE. limits: complete, no 0 in it. */
size_t httphead_feed(struct httphead *h, const struct http_limits *limits, const uint8_t *data,
                     size_t size, enum http_fault *fault);
/* A character of a method or of a header's name. */
bool httphead_is_token_char(uint8_t c);

#endif

/* httpout.c: one buffer whose front is taken; what is taken leaves it before it is half of a large
 * one, so that a stream that always has something waiting does not grow without end. */
#include "httpout.h"

#include <assert.h>
#include <string.h>

#define COMPACT_FROM ((size_t)64 << 10)

void httpout_init(struct httpout *o)
{
    *o = (struct httpout){ .bytes = buffer_with_max(MEM_SERVE, SIZE_MAX / 4) };
}

size_t httpout_pending(const struct httpout *o)
{
    return o->bytes.size - o->at;
}

const uint8_t *httpout_data(const struct httpout *o)
{
    return o->bytes.data + o->at;
}

void httpout_taken(struct httpout *o, size_t size)
{
    assert(size <= httpout_pending(o));
    o->at += size;
    size_t left = httpout_pending(o);
    if (left != 0 && (o->at < COMPACT_FROM || o->at < left)) return;
    if (left != 0) memmove(o->bytes.data, o->bytes.data + o->at, left);
    o->bytes.size = left;
    o->at = 0;
}

void httpout_trim(struct httpout *o)
{
    if (httpout_pending(o) == 0) httpout_free(o);
}

void httpout_free(struct httpout *o)
{
    buffer_free(&o->bytes);
    o->at = 0;
}

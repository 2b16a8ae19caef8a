/* json_write.c: jansson's dump into our buffer.
 * The first failure is kept beside the buffer: jansson 2.14 ignores what the callback returns for
 * the name of a member, and would report success for a text with a hole. */
#include "model/json_write.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

json_t *json_of_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *json_of_text(const char *text)
{
    size_t left = strlen(text), bad, used = 0;
    if (utf8_is_valid(text, left, &bad)) return json_string(text);
    char *clean = mem_array(MEM_META, left, 3);
    if (clean == NULL) return NULL;
    while (left > 0 && !utf8_is_valid(text, left, &bad)) {
        memcpy(clean + used, text, bad);
        memcpy(clean + used + bad, "\xef\xbf\xbd", 3);
        used += bad + 3;
        text += bad + 1;
        left -= bad + 1;
    }
    memcpy(clean + used, text, left);
    json_t *value = json_stringn(clean, used + left);
    mem_free(clean);
    return value;
}

struct sink {
    struct buffer *out;
    zp_status status;
    zp_err *err;
};

static int append_piece(const char *text, size_t size, void *arg)
{
    struct sink *sink = arg;
    if (sink->status == ZP_OK) sink->status = buffer_append(sink->out, text, size, sink->err);
    return sink->status == ZP_OK ? 0 : -1;
}

zp_status json_write_text(const json_t *value, size_t flags, struct buffer *out, zp_err *err)
{
    struct sink sink = { .out = out, .err = err };
    int failed = json_dump_callback(value, append_piece, &sink, flags);
    ZP_TRY(sink.status);
    ZP_FAIL_IF(failed != 0, err, ZP_NO_MEMORY, "not enough memory to write JSON");
    return ZP_OK;
}

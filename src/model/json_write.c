/* json_write.c: jansson's dump into our buffer.
 * The first failure is kept beside the buffer: jansson 2.14 ignores what the callback returns for
 * the name of a member, and would report success for a text with a hole. */
#include "model/json_write.h"

#include "base/numtext.h"
#include "base/status.h"

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
    locale_t had = numtext_enter(); /* jansson mends a point of one byte only */
    int failed = json_dump_callback(value, append_piece, &sink, flags);
    numtext_leave(had);
    ZP_TRY(sink.status);
    ZP_FAIL_IF(failed != 0, err, ZP_NO_MEMORY, "not enough memory to write JSON");
    return ZP_OK;
}

/* service_absent.c: zerope/serve.h in a library that was built without the server. */
#include <zerope/serve.h>

#include "base/status.h"

zp_status zp_serve_open(zp_serve **out, const zp_serve_options *options, zp_err *err)
{
    ZP_UNUSED(options);
    *out = NULL;
    ZP_FAIL(err, ZP_UNSUPPORTED,
            "this build has no server: it needs libuv, llhttp and OpenSSL (scripts/setup)");
}

zp_status zp_serve_run(zp_serve *s, zp_err *err)
{
    ZP_UNUSED(s);
    ZP_FAIL(err, ZP_UNSUPPORTED, "this build has no server");
}

void zp_serve_stop(zp_serve *s)
{
    ZP_UNUSED(s);
}

void zp_serve_reload(zp_serve *s)
{
    ZP_UNUSED(s);
}

void zp_serve_close(zp_serve *s)
{
    ZP_UNUSED(s);
}

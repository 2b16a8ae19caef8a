/* client.h (client): where requests go. Public calls are in include/zerope/client.h. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/bytes.h"

/* Appends the URL of chat completions to `out`. */
zp_status client_read_url(const char *url, struct buffer *out, zp_err *err);

#endif

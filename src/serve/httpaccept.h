/* httpaccept.h: a server's listeners. */
#ifndef SERVE_HTTPACCEPT_H
#define SERVE_HTTPACCEPT_H

#include "httpserver.h"
#include "listen.h"

/* Takes connections of a socket; takes the socket, also on failure. */
zp_status httpaccept_open(struct http_server *s, const struct listen_socket *socket, bool tls,
                          zp_err *err);
/* A pause ends. */
void httpaccept_resume(struct http_server *s);
void httpaccept_close_all(struct http_server *s);

#endif

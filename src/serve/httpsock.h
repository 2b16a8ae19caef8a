/* httpsock.h: connections with their sockets, in the server's list. */
#ifndef SERVE_HTTPSOCK_H
#define SERVE_HTTPSOCK_H

#include "httpserver.h"

/* A new connection; takes the descriptor, also on failure. refused: it gets a 503 and is closed. */
void httpsock_open(struct http_server *s, int fd, const char *peer, bool tls, bool refused);
/* Sends, reads on, closes: what there is to do after something has happened to its connection. */
void httpsock_settle(struct httpsock *k);
/* The same for all that is due. */
void httpsock_settle_due(struct http_server *s);
/* Cuts it. */
void httpsock_close(struct httpsock *k, enum http_gone why);
struct httpsock *httpsock_next(struct httpsock *k);
struct httpconn *httpsock_conn(struct httpsock *k);

#endif

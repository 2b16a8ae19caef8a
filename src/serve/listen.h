/* listen.h: sockets that listen: TCP, unix, and those that systemd opened. */
#ifndef SERVE_LISTEN_H
#define SERVE_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "base/status.h"

struct listen_socket {
    int fd;          /* does not block, is not inherited */
    char name[128];  /* "127.0.0.1:8080", "unix:/run/zerope.sock" */
    char *path;      /* of a socket file of ours, NULL: none */
    dev_t dev;
    ino_t ino;
};
enum { LISTEN_MOST = 16 }; /* addresses of one name, sockets of systemd */

/* All addresses of the host; *n of them, each to be closed. port 0: a free one, the same for all.
 * An address family that the machine does not have is passed over if another one works. */
zp_status listen_tcp(const char *host, uint16_t port, struct listen_socket out[LISTEN_MOST],
                     size_t *n, zp_err *err);
/* mode: rights of the file, 0: as the process makes files. See http_listen_unix. */
zp_status listen_unix(const char *path, unsigned mode, struct listen_socket *out, zp_err *err);
/* Values of LISTEN_PID and LISTEN_FDS, NULL where not set. *n = 0: they are meant for nobody or for
 * another process. Each must be a stream socket that listens. */
zp_status listen_systemd(const char *pid, const char *fds, struct listen_socket out[LISTEN_MOST],
                         size_t *n, zp_err *err);
/* Closes it and removes its file, if that is still the one it made. */
void listen_close(struct listen_socket *s);
uint16_t listen_port(const struct listen_socket *s); /* 0: not TCP */

/* "127.0.0.1:50312", "[::1]:50312", "unix". */
void listen_name_address(const struct sockaddr_storage *a, char *out, size_t room);

#endif

/* tls.h: TLS 1.2 and later over calls: encrypted bytes in and out, plain bytes in and out. No
 * socket, no loop. */
#ifndef SERVE_TLS_H
#define SERVE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* A server's certificate and key. */
struct tls;
/* PEM files; the certificate's may hold its chain. */
zp_status tls_open(struct tls **out, const char *certificate, const char *key, zp_err *err);
/* Reads both again: sessions opened later use them; on failure the old ones stay. */
zp_status tls_reload(struct tls *t, zp_err *err);
void tls_close(struct tls *t); /* sessions may live on; NULL is fine */

/* One connection. */
struct tls_session;
struct tls_session *tls_session_open(struct tls *t); /* NULL: no memory */
/* Encrypted bytes that came. False: no memory. */
bool tls_session_take(struct tls_session *s, const uint8_t *data, size_t size);
enum tls_read {
    TLS_MORE,   /* nothing to read until more is taken */
    TLS_DATA,
    TLS_END,    /* the other side will send no more, and said so */
    TLS_BROKEN, /* not TLS, or none we speak; what is left to send tells the other side */
};
enum tls_read tls_session_read(struct tls_session *s, uint8_t *out, size_t room, size_t *size);
/* Encrypts; returns how many bytes, 0 while the handshake is not complete. */
size_t tls_session_write(struct tls_session *s, const uint8_t *data, size_t size);
void tls_session_end(struct tls_session *s); /* says that nothing more comes */
/* Encrypted bytes to be sent, SIZE_MAX: no memory for them; so many of them were. */
size_t tls_session_pending(struct tls_session *s, const uint8_t **data);
void tls_session_sent(struct tls_session *s, size_t size);
void tls_session_close(struct tls_session *s); /* NULL is fine */

#endif

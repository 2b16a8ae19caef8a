/* tls.c: OpenSSL between two memory BIOs.
 * T1 sessions hold their own reference to the context they began with: a reload does not touch
 *    them.
 * T2 OpenSSL's error queue belongs to the thread: it is empty before each call that is judged by
 *    it. */
#include "tls.h"

#include <limits.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "httpout.h"

struct tls {
    SSL_CTX *context;
    char *certificate, *key; /* paths */
};

struct tls_session {
    SSL *ssl; /* has both BIOs */
    BIO *in, *out;
    struct httpout sealed;
};

/* ---- certificate and key ---- */

static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text == NULL ? "unknown reason" : text;
}

/* HTTP/1.1 is what is spoken here; a client that offers others alone is told so. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *size,
                           const unsigned char *offered, unsigned int offered_size, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl, (void)arg;
    int code = SSL_select_next_proto(&chosen, size, ours, sizeof ours - 1, offered, offered_size);
    *out = chosen;
    return code == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* OpenSSL would ask at the terminal. */
static int no_passphrase(char *out, int room, int writing, void *arg)
{
    (void)out, (void)room, (void)writing, (void)arg;
    return -1;
}

static zp_status fill(SSL_CTX *c, const char *certificate, const char *key, zp_err *err)
{
    ERR_clear_error(); // T2
    ZP_FAIL_IF(SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1, err, ZP_UNSUPPORTED,
               "TLS 1.2 is not available: %s", reason());
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF); /* clients keep their tickets */
    SSL_CTX_set_default_passwd_cb(c, no_passphrase);
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
    ZP_FAIL_IF(SSL_CTX_use_certificate_chain_file(c, certificate) != 1, err, ZP_BAD_INPUT,
               "%s: not a PEM certificate that can be read: %s", certificate, reason());
    ZP_FAIL_IF(SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1, err, ZP_BAD_INPUT,
               "%s: not a PEM key that can be read, or not that of the certificate %s: %s", key,
               certificate, reason());
    ZP_FAIL_IF(SSL_CTX_check_private_key(c) != 1, err, ZP_BAD_INPUT,
               "%s: not the key of the certificate %s: %s", key, certificate, reason());
    return ZP_OK;
}

zp_status tls_reload(struct tls *t, zp_err *err)
{
    SSL_CTX *fresh = SSL_CTX_new(TLS_server_method());
    ZP_FAIL_IF(fresh == NULL, err, ZP_NO_MEMORY, "TLS cannot start: %s", reason());
    zp_status status = fill(fresh, t->certificate, t->key, err);
    ERR_clear_error();
    SSL_CTX *unused = status == ZP_OK ? t->context : fresh;
    if (status == ZP_OK) t->context = fresh;
    SSL_CTX_free(unused); // T1
    return status;
}

zp_status tls_open(struct tls **out, const char *certificate, const char *key, zp_err *err)
{
    *out = NULL;
    struct tls *t = mem_zalloc(MEM_SERVE, sizeof *t);
    ZP_FAIL_IF(t == NULL, err, ZP_NO_MEMORY, "not enough memory for TLS");
    t->certificate = mem_strdup(MEM_SERVE, certificate);
    t->key = mem_strdup(MEM_SERVE, key);
    zp_status status = ZP_NO_MEMORY;
    if (t->certificate != NULL && t->key != NULL) status = tls_reload(t, err);
    else status_fail(err, status, __FILE__, __LINE__, "not enough memory for paths of TLS");
    if (status == ZP_OK) *out = t;
    else tls_close(t);
    return status;
}

void tls_close(struct tls *t)
{
    if (t == NULL) return;
    SSL_CTX_free(t->context);
    mem_free(t->certificate);
    mem_free(t->key);
    mem_free(t);
}

/* ---- sessions ---- */

struct tls_session *tls_session_open(struct tls *t)
{
    struct tls_session *s = mem_zalloc(MEM_SERVE, sizeof *s);
    if (s == NULL) return NULL;
    httpout_init(&s->sealed);
    s->ssl = SSL_new(t->context);
    s->in = BIO_new(BIO_s_mem());
    s->out = BIO_new(BIO_s_mem());
    if (s->ssl == NULL || s->in == NULL || s->out == NULL) {
        BIO_free(s->in);
        BIO_free(s->out);
        s->in = s->out = NULL;
        tls_session_close(s);
        return NULL;
    }
    BIO_set_mem_eof_return(s->in, -1); /* empty is "later", not the end */
    BIO_set_mem_eof_return(s->out, -1);
    SSL_set_bio(s->ssl, s->in, s->out);
    SSL_set_accept_state(s->ssl);
    return s;
}

bool tls_session_take(struct tls_session *s, const uint8_t *data, size_t size)
{
    return size <= INT_MAX && BIO_write(s->in, data, (int)size) == (int)size;
}

enum tls_read tls_session_read(struct tls_session *s, uint8_t *out, size_t room, size_t *size)
{
    ERR_clear_error(); // T2
    *size = 0;
    if (SSL_read_ex(s->ssl, out, room, size) == 1) return TLS_DATA;
    int code = SSL_get_error(s->ssl, 0);
    ERR_clear_error();
    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE) return TLS_MORE;
    return code == SSL_ERROR_ZERO_RETURN ? TLS_END : TLS_BROKEN;
}

size_t tls_session_write(struct tls_session *s, const uint8_t *data, size_t size)
{
    size_t taken = 0;
    if (SSL_is_init_finished(s->ssl) == 0) return 0;
    (void)SSL_write_ex(s->ssl, data, size, &taken);
    ERR_clear_error(); // T2
    return taken;
}

void tls_session_end(struct tls_session *s)
{
    (void)SSL_shutdown(s->ssl);
    ERR_clear_error(); // T2
}

size_t tls_session_pending(struct tls_session *s, const uint8_t **data)
{
    uint8_t piece[4096];
    int n;
    while (BIO_pending(s->out) > 0 && (n = BIO_read(s->out, piece, sizeof piece)) > 0)
        if (buffer_append(&s->sealed.bytes, piece, (size_t)n, NULL) != ZP_OK) return SIZE_MAX;
    *data = httpout_data(&s->sealed);
    return httpout_pending(&s->sealed);
}

void tls_session_sent(struct tls_session *s, size_t size)
{
    httpout_taken(&s->sealed, size);
    httpout_trim(&s->sealed);
}

void tls_session_close(struct tls_session *s)
{
    if (s == NULL) return;
    SSL_free(s->ssl);
    httpout_free(&s->sealed);
    mem_free(s);
}

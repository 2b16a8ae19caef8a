/* test_tls.c: the server behind TLS: versions, bodies both ways, certificates read anew, clients
 * that speak something else or leave. Certificates are made in the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/mem.h"
#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "serve/serving.h"
#include "serve/tls.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* ---- certificates ---- */

static void write_pem(const char *path, int (*put)(BIO *out, void *what), void *what)
{
    BIO *out = BIO_new_file(path, "w");
    assert_non_null(out);
    assert_int_equal(put(out, what), 1);
    BIO_free(out);
}

static int put_key(BIO *out, void *what)
{
    return PEM_write_bio_PrivateKey(out, what, NULL, NULL, 0, NULL, NULL);
}

static int put_locked_key(BIO *out, void *what)
{
    return PEM_write_bio_PrivateKey(out, what, EVP_aes_128_cbc(), NULL, 0, NULL, "secret");
}

static int put_certificate(BIO *out, void *what)
{
    return PEM_write_bio_X509(out, what);
}

/* A certificate that signs itself. */
static void make_certificate(const char *name, const char *certificate, const char *key)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    assert_non_null(pair);
    assert_non_null(x);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -1000);
    X509_gmtime_adj(X509_getm_notAfter(x), 100000);
    X509_set_pubkey(x, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, pair, EVP_sha256()) > 0);
    write_pem(key, put_key, pair);
    write_pem(in_folder("locked.pem"), put_locked_key, pair);
    write_pem(certificate, put_certificate, x);
    X509_free(x);
    EVP_PKEY_free(pair);
}

/* ---- server and client ---- */

struct house {
    struct serving s;
    struct http_route routes[6];
    struct http_options o;
    uint64_t live;
};

static struct house h;
static char certificate[128], key[128];

static void begin(void)
{
    const struct http_route routes[] = SERVING_ROUTES(&h.s);
    snprintf(certificate, sizeof certificate, "%s", in_folder("cert.pem"));
    snprintf(key, sizeof key, "%s", in_folder("key.pem"));
    make_certificate("first", certificate, key);
    h.live = live_bytes();
    memcpy(h.routes, routes, sizeof routes);
    h.o = (struct http_options){ .routes = h.routes, .n_routes = 6, .certificate = certificate,
                                 .key = key };
    serving_begin(&h.s, &h.o, true);
}

static void end(void)
{
    serving_end(&h.s);
    assert_int_equal(live_bytes(), h.live);
}

struct client {
    int fd;
    SSL_CTX *context;
    SSL *ssl;
};

/* version: the highest it speaks; 0: any. False: no handshake. */
static bool dial(struct client *c, int version, const char *protocols)
{
    c->fd = client_dial(h.s.port);
    c->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(c->context, 0); /* old versions are the server's to refuse */
    SSL_CTX_set_min_proto_version(c->context, 0);
    if (version != 0) SSL_CTX_set_max_proto_version(c->context, version);
    c->ssl = SSL_new(c->context);
    if (protocols != NULL)
        assert_int_equal(SSL_set_alpn_protos(c->ssl, (const unsigned char *)protocols,
                                             (unsigned)strlen(protocols)), 0);
    SSL_set_fd(c->ssl, c->fd);
    ERR_clear_error();
    return SSL_connect(c->ssl) == 1;
}

static void hang_up(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    close(c->fd);
    ERR_clear_error();
}

static void say(struct client *c, const char *text)
{
    assert_int_equal(SSL_write(c->ssl, text, (int)strlen(text)), strlen(text));
}

static const char *hear(struct client *c, const char *mark)
{
    static char text[CLIENT_TEXT];
    size_t size = 0;
    text[0] = '\0';
    while (mark == NULL || strstr(text, mark) == NULL) {
        int n = SSL_read(c->ssl, text + size, (int)(sizeof text - 1 - size));
        if (n <= 0 && mark != NULL) fail_msg("the end came before %s: %s", mark, text);
        if (n <= 0) break;
        size += (size_t)n;
        text[size] = '\0';
    }
    return text;
}

static const char *name_of_peer(struct client *c)
{
    static char name[64];
    X509 *x = SSL_get1_peer_certificate(c->ssl);
    assert_non_null(x);
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, name, sizeof name);
    X509_free(x);
    return name;
}

/* ---- tests ---- */

static void test_versions(void **state)
{
    (void)state;
    begin();
    struct client c;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        assert_true(dial(&c, version, "\x08http/1.1"));
        assert_int_equal(SSL_version(c.ssl), version);
        const unsigned char *chosen;
        unsigned size;
        SSL_get0_alpn_selected(c.ssl, &chosen, &size);
        assert_int_equal(size, 8);
        say(&c, GET("/peer"));
        hear(&c, "\r\n\r\n127.0.0.1:");
        hang_up(&c);
    }
    assert_false(dial(&c, TLS1_1_VERSION, NULL));
    hang_up(&c);
    assert_false(dial(&c, 0, "\x02h2"));
    hang_up(&c);
    assert_true(dial(&c, 0, "\x02h2\x08http/1.1"));
    hang_up(&c);
    int fd = client_dial(h.s.port);
    client_say(fd, GET("/echo"));
    (void)client_read(fd, NULL);
    close(fd);
    while (serving_counts(&h.s).tls_errors < 3) {
    }
    end();
}

static void test_large_bodies_both_ways(void **state)
{
    (void)state;
    enum { SIZE = 3000000 };
    begin();
    struct client c;
    assert_true(dial(&c, 0, NULL));
    char *body = malloc(SIZE), *back = malloc(SIZE), head[128];
    for (size_t i = 0; i < SIZE; i++) body[i] = (char)(i * 2654435761u >> 13);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
             SIZE);
    say(&c, head);
    assert_int_equal(SSL_write(c.ssl, body, SIZE), SIZE);
    size_t got = 0; /* head byte by byte, so that what is left is the body */
    char last[5] = "";
    while (strcmp(last, "\r\n\r\n") != 0) {
        memmove(last, last + 1, 3);
        assert_int_equal(SSL_read(c.ssl, last + 3, 1), 1);
    }
    while (got < SIZE) {
        int n = SSL_read(c.ssl, back + got, (int)(SIZE - got));
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_memory_equal(body, back, SIZE);
    free(body);
    free(back);
    say(&c, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    hear(&c, NULL);
    assert_int_equal(SSL_get_shutdown(c.ssl), SSL_RECEIVED_SHUTDOWN); /* the end was said */
    hang_up(&c);
    end();
}

struct reload {
    zp_status status;
    zp_err err;
};

static void reload(void *arg)
{
    struct reload *r = arg;
    r->err = (zp_err){ 0 };
    r->status = http_reload_tls(h.s.server, &r->err);
}

static void test_certificates_are_read_anew(void **state)
{
    (void)state;
    begin();
    struct client old, fresh;
    struct reload r;
    assert_true(dial(&old, 0, NULL));
    assert_string_equal(name_of_peer(&old), "first");
    say(&old, GET("/events"));
    serving_wait(&h.s.arrived);
    make_certificate("second", certificate, key);
    serving_do(&h.s, reload, &r);
    assert_int_equal(r.status, ZP_OK);
    assert_true(dial(&fresh, 0, NULL));
    assert_string_equal(name_of_peer(&fresh), "second");
    hang_up(&fresh);

    /* What cannot be read changes nothing. */
    assert_int_equal(os_write_file(key, "no key", 6, NULL), ZP_OK);
    serving_do(&h.s, reload, &r);
    assert_int_equal(r.status, ZP_BAD_INPUT);
    assert_non_null(strstr(r.err.message, "key.pem"));
    assert_true(dial(&fresh, 0, NULL));
    assert_string_equal(name_of_peer(&fresh), "second");
    hang_up(&fresh);

    /* The old connection never noticed. */
    assert_int_equal(SSL_shutdown(old.ssl), 0);
    serving_wait(&h.s.gone); /* and its saying that it ends is the end of its stream */
    assert_int_equal(h.s.why, HTTP_GONE_CLIENT);
    hang_up(&old);
    end();
}

static void write_much(void *arg)
{
    static const char data[1 << 14];
    (void)arg;
    if (h.s.n_kept != 0) http_stream_write(h.s.kept[0], data, sizeof data);
}

static void test_leaving_and_slow_reading(void **state)
{
    (void)state;
    begin();
    struct client c;
    assert_true(dial(&c, 0, NULL));
    say(&c, "POST /later HTTP/1.1\r\nHost: a\r\n\r\n");
    serving_wait(&h.s.arrived);
    hang_up(&c); /* without saying so in TLS */
    serving_wait(&h.s.gone);
    assert_int_equal(h.s.why, HTTP_GONE_CLIENT);
    assert_true(dial(&c, 0, NULL));
    say(&c, GET("/events"));
    serving_wait(&h.s.arrived);
    size_t written = 0;
    while (sem_trywait(&h.s.gone) != 0 && written < ((size_t)1 << 30)) {
        serving_do(&h.s, write_much, NULL);
        written += 1 << 14;
    }
    assert_int_equal(h.s.why, HTTP_GONE_SLOW);
    hang_up(&c);
    end();
}

static void test_memory_that_runs_out(void **state)
{
    (void)state;
    begin();
    uint64_t failed = 1, n;
    struct client c;
    for (n = 1; failed != 0; n++) {
        mem_fail_at(n, false);
        if (dial(&c, 0, NULL)) {
            (void)SSL_write(c.ssl, GET("/echo"), (int)strlen(GET("/echo")));
            char text[512];
            (void)SSL_read(c.ssl, text, sizeof text);
        }
        hang_up(&c);
        while (serving_counts(&h.s).open != 0) {
        }
        failed = mem_fail_count();
        mem_fail_at(0, false);
    }
    assert_true(n > 10);
    assert_true(dial(&c, 0, NULL));
    say(&c, GET("/echo"));
    hear(&c, "HTTP/1.1 200 ");
    hang_up(&c);
    end();
}

static void expect_no_tls(const char *cert_path, const char *key_path, const char *words)
{
    struct tls *t;
    zp_err err = { 0 };
    assert_int_not_equal(tls_open(&t, cert_path, key_path, &err), ZP_OK);
    assert_null(t);
    if (strstr(err.message, words) == NULL) fail_msg("not \"%s\": %s", words, err.message);
}

static void test_files_that_do_not_serve(void **state)
{
    (void)state;
    char other[128];
    snprintf(certificate, sizeof certificate, "%s", in_folder("cert.pem"));
    snprintf(key, sizeof key, "%s", in_folder("key.pem"));
    make_certificate("first", certificate, key);
    snprintf(other, sizeof other, "%s", in_folder("other.pem"));
    make_certificate("other", in_folder("other-cert.pem"), other);
    uint64_t live = live_bytes();
    expect_no_tls("/nowhere.pem", key, "/nowhere.pem: not a PEM certificate");
    expect_no_tls(key, key, "not a PEM certificate");
    expect_no_tls(certificate, "/nowhere.pem", "/nowhere.pem: not a PEM key");
    expect_no_tls(certificate, other, "not that of the certificate");
    expect_no_tls(certificate, in_folder("locked.pem"), "not a PEM key"); /* and does not ask */
    assert_int_equal(live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_large_bodies_both_ways),
        cmocka_unit_test(test_certificates_are_read_anew),
        cmocka_unit_test(test_leaving_and_slow_reading),
        cmocka_unit_test(test_memory_that_runs_out),
        cmocka_unit_test(test_files_that_do_not_serve),
    };
    signal(SIGPIPE, SIG_IGN); /* OpenSSL's clients write to sockets that are closed */
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* serve.h: a model behind OpenAI's and Anthropic's HTTP APIs: docs/SERVER.md.
 *
 *     zp_serve *s;
 *     if (zp_serve_open(&s, &options, &err) == ZP_OK) zp_serve_run(s, &err);
 *     zp_serve_close(s);
 *
 * Strings and lists of the options must live until zp_serve_close; 0 and NULL mean the default. */
#ifndef ZEROPE_SERVE_H
#define ZEROPE_SERVE_H

#include <zerope/zerope.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zp_serve zp_serve;

typedef struct zp_serve_list {
    const char *const *at; /* (n) */
    size_t n;
} zp_serve_list;

typedef struct zp_serve_options {
    /* what is served */
    const char *model, *candidate; /* paths; candidate NULL: none */
    const char *alias;             /* name in answers; default: the file's name without its end */
    zp_model_options model_options; /* of both; pointers live as long as the options */
    zp_engine_options engine; /* of both; n_ctx default: as long as the model is known to be good,
                               * n_seq default 16, prefix_cache is always on */
    uint64_t kv_tokens;       /* of the pool of each model; default: what n_ctx and n_seq need, but
                               * no more than a quarter of the memory that is available */
    zp_mode mode;             /* of requests that do not say */
    zp_pooling pooling;       /* of embeddings that do not say; default: the model's */
    bool anchors;             /* marks of positions in prompts are read; of those, too */
    uint32_t most_tokens;     /* of an answer; default: until the context ends */
    /* where */
    const char *host; /* default 127.0.0.1; "": no TCP */
    uint16_t port;    /* 0: a free one */
    const char *unix_path;
    unsigned unix_mode;                   /* rights of the socket file; 0: as files are made */
    const char *listen_pid, *listen_fds;  /* values of LISTEN_PID and LISTEN_FDS: sockets of systemd
                                           * in place of host and port */
    const char *tls_certificate, *tls_key; /* PEM files */
    const char *prefix;                   /* "/llm" */
    zp_serve_list origins;
    /* who */
    const char *api_keys, *admin_keys; /* files; read again by zp_serve_reload */
    bool admin_open; /* without admin keys, /admin is open to loopback and unix sockets */
    /* roll-out */
    const char *canary_salt;
    const char *canary_stages; /* "1,5,20,100" in percent */
    bool canary_manual;        /* shares change by hand alone */
    bool canary_sticky;        /* by user, where a request names one */
    double breaker_std;
    /* Each "short:300:2000": class of prompts, milliseconds to the first token (p95) and to the
     * whole answer (p90); either may be empty. */
    zp_serve_list sla;
    /* limits */
    uint32_t most_waiting;
    uint64_t most_waiting_tokens;
    double timeout, drain_timeout; /* seconds; default none, 30 */
    uint64_t most_body;            /* bytes; default 32 MiB */
    uint32_t most_connections;
    /* what is told */
    bool log_json, log_content;
    int log_level; /* 0: the default (info); 1 error, 2 warn, 3 info, 4 debug */
    /* One line, its end included; from any thread. NULL: no log */
    void (*log)(void *arg, int level, const char *line, size_t size);
    /* The same of decisions (docs/SERVER.md, Audit), without its end; from the loop. */
    void (*audit)(void *arg, const char *line, size_t size);
    void *log_arg;
    const char *otlp;           /* "http://host:4318": traces go there; NULL: none */
    const char *metrics_compat; /* "vllm,llamacpp" */
    const char *notify_socket, *watchdog_usec; /* values of NOTIFY_SOCKET and WATCHDOG_USEC */
    /* When it answers: "http://127.0.0.1:8080". From the loop. */
    void (*ready)(void *arg, const char *url);
    void *ready_arg;
} zp_serve_options;

/* Listens; nothing is answered before zp_serve_run. */
ZP_API zp_status zp_serve_open(zp_serve **out, const zp_serve_options *options, zp_err *err);
/* Loads the models and serves until it is stopped and drained: ZP_OK. Fails if the model cannot be
 * loaded. Once. */
ZP_API zp_status zp_serve_run(zp_serve *s, zp_err *err);
/* Both from any thread and from signal handlers, between open and close. Stop: no new requests;
 * those under way are finished, for at most drain_timeout. A second time: they are cut at once. */
ZP_API void zp_serve_stop(zp_serve *s);
/* Certificates, keys and limits are read again; what cannot be read stays as it was. */
ZP_API void zp_serve_reload(zp_serve *s);
ZP_API void zp_serve_close(zp_serve *s); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif

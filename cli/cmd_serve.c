/* cmd_serve.c: serve: options into those of the library, signals, log files. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zerope/serve.h>

struct sinks {
    int log, audit; /* descriptors; -1: none */
};

/* ---- signals ----------------------------------------------------------------------------- */
static zp_serve *serving;

static void on_signal(int number)
{
    int code = errno;
    if (number == SIGHUP)
        zp_serve_reload(serving);
    else
        zp_serve_stop(serving);
    errno = code;
}

static void watch_signals(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CLI_COUNT(numbers); i++)
        sigaction(numbers[i], &action, NULL);
}

/* ---- logs -------------------------------------------------------------------------------- */
/* A line in one write, so that lines of several processes do not mix. */
static void write_line(int fd, const char *line, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, line, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        line += n;
        size -= (size_t)n;
    }
}

static void log_line(void *arg, int level, const char *line, size_t size)
{
    const struct sinks *sinks = arg;
    (void)level;
    write_line(sinks->log, line, size);
}

static void audit_line(void *arg, const char *line, size_t size)
{
    const struct sinks *sinks = arg;
    if (sinks->audit < 0)
        return;
    write_line(sinks->audit, line, size);
    write_line(sinks->audit, "\n", 1);
}

static zp_status open_file(struct cli *c, const char *option, int *fd)
{
    const char *path = cli_text(c, option);
    if (path == NULL)
        return ZP_OK;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (*fd < 0)
        return cli_fail(c, ZP_IO, "--%s: cannot open %s: %s", option, path, strerror(errno));
    return ZP_OK;
}

/* ---- options ----------------------------------------------------------------------------- */
static zp_mode mode_of(const char *text)
{
    static const char *const modes[] = { "full", "zero", "half", "auto" };
    zp_mode mode = ZP_MODE_FULL;
    for (size_t i = 0; i < CLI_COUNT(modes); i++) {
        if (strcmp(text, modes[i]) == 0)
            mode = (zp_mode)i;
    }
    return mode;
}

static int level_of(const char *text)
{
    static const char *const levels[] = { "error", "warn", "info", "debug" };
    int level = 0;
    for (size_t i = 0; i < CLI_COUNT(levels); i++) {
        if (strcmp(text, levels[i]) == 0)
            level = (int)i + 1;
    }
    return level;
}

static zp_serve_list list_of(const struct cli *c, const char *option)
{
    const struct cli_value *v = cli_value(c, option);
    return (zp_serve_list){ (const char *const *)v->texts, v->n };
}

static void read_place(struct cli *c, zp_serve_options *o)
{
    o->host = cli_text(c, "host");
    o->port = (uint16_t)cli_u32(c, "port");
    o->unix_path = cli_text(c, "unix");
    if (o->unix_path != NULL && !cli_given(c, "host") && !cli_given(c, "port"))
        o->host = "";
    o->tls_certificate = cli_text(c, "tls-cert");
    o->tls_key = cli_text(c, "tls-key");
    o->prefix = cli_text(c, "prefix");
    o->origins = list_of(c, "origin");
    o->listen_pid = getenv("LISTEN_PID");
    o->listen_fds = getenv("LISTEN_FDS");
    o->notify_socket = getenv("NOTIFY_SOCKET");
    o->watchdog_usec = getenv("WATCHDOG_USEC");
}

static void read_rollout(struct cli *c, zp_serve_options *o)
{
    o->candidate = cli_text(c, "candidate");
    o->canary_salt = cli_text(c, "canary-salt");
    o->canary_stages = cli_text(c, "canary-stages");
    o->canary_manual = cli_flag(c, "canary-manual");
    o->canary_sticky = cli_flag(c, "canary-sticky");
    o->breaker_std = cli_real(c, "breaker-std");
    o->sla = list_of(c, "sla");
}

static void read_limits(struct cli *c, zp_serve_options *o)
{
    o->most_tokens = cli_u32(c, "max-tokens");
    o->most_waiting = cli_u32(c, "max-queue");
    o->most_waiting_tokens = (uint64_t)cli_int(c, "max-queue-tokens");
    o->timeout = cli_real(c, "timeout");
    o->drain_timeout = cli_real(c, "drain-timeout");
    o->most_body = (uint64_t)cli_int(c, "max-body") << 20;
    o->most_connections = cli_u32(c, "max-connections");
}

static zp_status read_options(struct cli *c, zp_serve_options *o)
{
    CLI_TRY(cli_engine_options(c, &o->engine));
    o->model = cli_text(c, "model");
    o->alias = cli_text(c, "alias");
    o->kv_tokens = (uint64_t)cli_int(c, "kv-tokens");
    o->mode = mode_of(cli_text(c, "position-mode"));
    o->pooling = cli_pooling(c);
    o->anchors = cli_flag(c, "anchors");
    o->model_options.pre = cli_text(c, "pre");
    o->api_keys = cli_text(c, "api-key-file");
    o->admin_keys = cli_text(c, "admin-key-file");
    o->admin_open = cli_flag(c, "admin-open");
    o->log_json = strcmp(cli_text(c, "log-format"), "json") == 0;
    o->log_level = level_of(cli_text(c, "log-level"));
    o->log_content = cli_flag(c, "log-content");
    o->otlp = cli_text(c, "otlp");
    o->metrics_compat = cli_text(c, "metrics-compat");
    read_place(c, o);
    read_rollout(c, o);
    read_limits(c, o);
    if ((o->tls_certificate == NULL) != (o->tls_key == NULL))
        return cli_usage(c, "--tls-cert and --tls-key belong together");
    if (o->kv_tokens != 0 && o->engine.kv_bytes != 0)
        return cli_usage(c, "--kv-tokens and --kv-memory say the same: give one of them");
    return ZP_OK;
}

static zp_status read_template(struct cli *c, struct text *out, zp_serve_options *o)
{
    const char *path = cli_text(c, "chat-template");
    if (path == NULL)
        return ZP_OK;
    CLI_TRY(cli_read_file(c, path, 16 << 20, out));
    o->model_options.chat_template = out->data;
    return ZP_OK;
}

static zp_status serve(struct cli *c, const zp_serve_options *o)
{
    zp_status st = zp_serve_open(&serving, o, &c->err);
    if (st == ZP_OK) {
        watch_signals();
        st = zp_serve_run(serving, &c->err);
    }
    signal(SIGHUP, SIG_IGN); /* what they would reach is going */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    zp_serve_close(serving);
    return st;
}

zp_status cmd_serve(struct cli *c)
{
    struct sinks sinks = { STDERR_FILENO, -1 };
    struct text template = { 0 };
    zp_serve_options o = { .log = log_line, .audit = audit_line, .log_arg = &sinks };
    CLI_TRY(read_options(c, &o));
    CLI_TRY(read_template(c, &template, &o));
    zp_status st = open_file(c, "log-file", &sinks.log);
    if (st == ZP_OK)
        st = open_file(c, "audit-file", &sinks.audit);
    if (st == ZP_OK)
        st = serve(c, &o);
    if (sinks.log > STDERR_FILENO)
        close(sinks.log);
    if (sinks.audit >= 0)
        close(sinks.audit);
    text_free(&template);
    return st;
}

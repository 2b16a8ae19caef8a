/* apifault.c: faults of requests: records, what they are made from, bodies.
 * F1 the first fault is the one told.  F2 what a client is told of the server's own failures holds
 * nothing of the server: no paths, no internals. */
#include "serve/apifault.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"
#include "base/json_build.h"

#define MOST_RETRY 3600.0
#define SHOWN 40 /* bytes of a text that are shown */

/* ---- records --------------------------------------------------------------------------------- */

/* Cuts a text that snprintf may have cut back to whole characters. */
static void mend(char *text)
{
    text[utf8_complete_prefix(text, strlen(text))] = '\0';
}

static void fill(struct apifault *f, int status, const char *code, const char *param)
{
    f->status = status;
    f->code = code;
    (void)snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    mend(f->param);
}

zp_status apifault_set(struct apifault *f, int status, const char *code, const char *param,
                       const char *fmt, ...)
{
    if (f->status != 0) return ZP_BAD_INPUT; // F1
    fill(f, status, code, param);
    va_list args;
    va_start(args, fmt);
    (void)numtext_vprintf(f->message, sizeof f->message, fmt, args);
    va_end(args);
    mend(f->message);
    return ZP_BAD_INPUT;
}

zp_status apifault_no_memory(struct apifault *f)
{
    (void)apifault_set(f, 503, "out_of_memory", NULL,
                       "the server has no memory left for this request; try again later");
    return ZP_NO_MEMORY;
}

/* A value in few words. */
static void show(const json_t *value, char *out, size_t room)
{
    static const char *const names[] = { "an object", "a list", "a text", "an integer", "a number",
                                         "true", "false", "null" };
    const char *name = value == NULL ? "nothing" : names[json_typeof(value)];
    if (json_is_integer(value))
        (void)snprintf(out, room, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)numtext_printf(out, room, "%g", json_real_value(value));
    else if (json_is_string(value) && json_string_length(value) <= SHOWN)
        (void)snprintf(out, room, "\"%s\"", json_string_value(value));
    else (void)snprintf(out, room, "%s", name);
}

zp_status apifault_expected(struct apifault *f, const char *param, const json_t *value,
                            const char *fmt, ...)
{
    char expected[APIFAULT_MESSAGE / 2], found[SHOWN + 8];
    va_list args;
    va_start(args, fmt);
    (void)numtext_vprintf(expected, sizeof expected, fmt, args);
    va_end(args);
    show(value, found, sizeof found);
    return apifault_set(f, 400, value == NULL ? "missing_required_parameter" : "invalid_value",
                        param, "'%s': expected %s, found %s", param, expected, found);
}

zp_status apifault_unsupported(struct apifault *f, const char *param, const char *fmt, ...)
{
    char what[APIFAULT_MESSAGE / 2];
    va_list args;
    va_start(args, fmt);
    (void)numtext_vprintf(what, sizeof what, fmt, args);
    va_end(args);
    return apifault_set(f, 400, "unsupported_value", param, "'%s': %s", param, what);
}

/* ---- what they are made from ----------------------------------------------------------------- */

static bool is_clients(zp_status code)
{
    return code == ZP_BAD_INPUT || code == ZP_USAGE || code == ZP_UNSUPPORTED;
}

/* F2 */
static zp_status broken(struct apifault *f)
{
    return apifault_set(f, 500, "internal_error", NULL,
                        "the request failed inside the server; its log says more");
}

zp_status apifault_of_err(struct apifault *f, const char *param, const zp_err *err)
{
    if (err->code == ZP_NO_MEMORY) return apifault_no_memory(f);
    if (is_clients(err->code)) return apifault_set(f, 400, "invalid_value", param, "%s",
                                                   err->message);
    return broken(f);
}

zp_status apifault_of_template(struct apifault *f, const zp_err *err)
{
    if (is_clients(err->code))
        return apifault_set(f, 400, "template_error", "messages", "%s", err->message);
    return apifault_of_err(f, "messages", err);
}

static zp_status too_long(struct apifault *f, const char *param, uint64_t found, uint64_t most)
{
    zp_status status = apifault_set(
        f, 400, "context_length_exceeded", param,
        "request (%llu tokens) exceeds the available context size (%llu tokens), try increasing it",
        (unsigned long long)found, (unsigned long long)most);
    f->n_prompt = found;
    f->n_ctx = most;
    return status;
}

static zp_status of_refusal(struct apifault *f, const char *param, const struct sched_event *e)
{
    zp_status status;
    switch (e->why) {
    case SCHED_TOO_LONG: return too_long(f, param, e->refusal.found, e->refusal.most);
    case SCHED_QUEUE_FULL:
        status = apifault_set(f, 429, "queue_full", NULL,
                              "too many requests are waiting; try again later");
        f->retry_seconds = e->refusal.retry_seconds > 1 ? e->refusal.retry_seconds : 1;
        return status;
    case SCHED_DRAINING:
        status = apifault_set(f, 503, "draining", NULL,
                              "the server is shutting down and takes no new requests");
        f->retry_seconds = 1;
        return status;
    case SCHED_NO_ENGINE:
        return apifault_set(f, 503, "model_not_loaded", NULL, "the model is not loaded");
    default: return apifault_of_err(f, param, e->err);
    }
}

zp_status apifault_of_job(struct apifault *f, const char *param, const struct sched_event *e)
{
    if (f->status != 0) return ZP_BAD_INPUT; // F1
    if (e->kind == SCHED_REFUSED) return of_refusal(f, param, e);
    if (e->why == SCHED_BY_CALLER)
        return apifault_set(f, 499, "cancelled", NULL, "the client cancelled the request");
    if (e->why == SCHED_BY_DRAIN || e->why == SCHED_BY_CLOSE)
        return apifault_set(f, 503, "draining", NULL,
                            "the server shut down before the request was finished");
    if (e->why == SCHED_LATE)
        return apifault_set(f, 504, "deadline_exceeded", NULL,
                            "the request was not finished before its deadline");
    return e->why == SCHED_NONFINITE ? broken(f) : apifault_of_err(f, param, e->err);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static const struct row {
    int from, to; /* status */
    const char *openai, *anthropic;
} rows[] = {
    { 401, 401, "authentication_error", "authentication_error" },
    { 403, 403, "permission_error", "permission_error" },
    { 404, 404, "not_found_error", "not_found_error" },
    { 413, 413, "invalid_request_error", "request_too_large" },
    { 429, 429, "rate_limit_error", "rate_limit_error" },
    { 503, 503, "server_error", "overloaded_error" },
    { 504, 504, "server_error", "timeout_error" },
    { 500, 599, "server_error", "api_error" },
    { 0, 999, "invalid_request_error", "invalid_request_error" },
};

static const char *type_of(const struct apifault *f, enum api api)
{
    const struct row *r = rows;
    while (f->status < r->from || f->status > r->to) r++;
    return api == API_OPENAI ? r->openai : r->anthropic;
}

int apifault_status(const struct apifault *f, enum api api)
{
    return api == API_ANTHROPIC && f->status == 503 ? 529 : f->status;
}

uint32_t apifault_retry_after(const struct apifault *f)
{
    if (!(f->retry_seconds > 0)) return 0;
    return (uint32_t)ceil(fmin(f->retry_seconds, MOST_RETRY));
}

static void write_openai(const struct apifault *f, struct json_build *w)
{
    json_build_text(w, "message", f->message);
    json_build_text(w, "type", type_of(f, API_OPENAI));
    json_build_text(w, "param", *f->param ? f->param : NULL);
    json_build_text(w, "code", f->code);
    if (f->n_ctx == 0) return;
    json_build_uint(w, "n_prompt_tokens", f->n_prompt);
    json_build_uint(w, "n_ctx", f->n_ctx);
}

/* Clients of Anthropic's API look for the first of these two sentences, those of llama.cpp's for
 * the second. */
static void write_anthropic(const struct apifault *f, struct json_build *w)
{
    char message[APIFAULT_MESSAGE + 96] = "";
    int n = 0;
    if (f->n_ctx != 0)
        n = snprintf(message, sizeof message, "prompt is too long: %llu tokens > %llu maximum; ",
                     (unsigned long long)f->n_prompt, (unsigned long long)f->n_ctx);
    (void)snprintf(message + n, sizeof message - (size_t)n, "%s", f->message);
    json_build_text(w, "type", type_of(f, API_ANTHROPIC));
    json_build_text(w, "message", message);
}

zp_status apifault_write(const struct apifault *f, enum api api, const char *request_id,
                         struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    if (api == API_ANTHROPIC) json_build_text(&w, "type", "error");
    json_build_object(&w, "error");
    if (api == API_ANTHROPIC) write_anthropic(f, &w);
    else write_openai(f, &w);
    json_build_object_end(&w);
    if (api == API_ANTHROPIC && request_id != NULL)
        json_build_text(&w, "request_id", request_id);
    json_build_object_end(&w);
    return w.status;
}

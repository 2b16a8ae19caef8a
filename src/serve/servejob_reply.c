/* servejob_reply.c: what the client of a request gets: headers with what was computed how, events of
 * streams, whole answers. */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "serve/servejob.h"

#define MOST_ANSWER ((size_t)1 << 30)

/* ---- headers --------------------------------------------------------------------------------- */

struct headers {
    struct http_header at[8];
    size_t n;
    struct servemodel_share zeroed;
    char ms[24];
};

static void add(struct headers *h, const char *name, const char *value)
{
    h->at[h->n++] = (struct http_header){ name, value };
}

/* What is known once it was accepted. */
static void evidence(const struct servejob *j, struct headers *h)
{
    const struct servemodel *m = j->runs_on;
    *h = (struct headers){ 0 };
    (void)snprintf(h->ms, sizeof h->ms, "%.0f", (os_now() - j->arrived) * 1e3);
    if (j->endpoint == SERVE_MESSAGES) add(h, "request-id", http_id(j->x));
    else add(h, "openai-processing-ms", h->ms);
    if (!j->accepted || m == NULL) return;
    add(h, "x-model-arch", m->info.arch);
    add(h, "x-layer-zeroed", servemodel_zeroed(m, j->mode, &h->zeroed));
    add(h, "x-rope-theta", j->mode == ZP_MODE_ZERO ? "none" : m->theta);
    add(h, "x-variant", variant_name(j->ticket.variant));
    add(h, "x-position-mode", position_mode_name(j->mode));
}

/* ---- streams --------------------------------------------------------------------------------- */

void servejob_begin_stream(struct servejob *j)
{
    struct headers h;
    evidence(j, &h);
    j->begun = j->reply.begun = true;
    http_sse_begin(j->x, &(struct http_reply){ .status = 200, .headers = h.at, .n_headers = h.n });
}

static void emit(void *arg, const char *event, const char *data, size_t size)
{
    struct servejob *j = arg;
    if (j->x == NULL) return;
    if (!j->begun) servejob_begin_stream(j);
    http_sse_event(j->x, event, data, size);
}

/* ---- the reply ------------------------------------------------------------------------------- */

static zp_status fill_echo(struct servejob *j)
{
    if (!j->r.echo) return ZP_OK;
    j->echo = mem_array(MEM_SERVE, j->n_prompts, sizeof *j->echo);
    if (j->echo == NULL) return apifault_no_memory(&j->fault);
    for (uint32_t i = 0; i < j->n_prompts; i++) j->echo[i] = j->prompts[i].p.echo;
    return ZP_OK;
}

zp_status servejob_open_reply(struct servejob *j)
{
    static const char *const prefixes[] = { [SERVE_CHAT] = "chatcmpl-",
                                            [SERVE_COMPLETIONS] = "cmpl-",
                                            [SERVE_MESSAGES] = "msg_" };
    const struct apiprompt *p = &j->prompts[0].p;
    zp_err err = { 0 };
    struct apireply_options o = {
        .r = &j->r,
        .who = { .id = api_make_id(&j->id, prefixes[j->endpoint], j->seed, 0), .seed = j->seed,
                 .created = os_unix_now() / 1000000000, .model = j->s->name,
                 .fingerprint = j->runs_on->fingerprint },
        .emit = { emit, j },
        .style = p->style,
        .in_reasoning = p->in_reasoning,
        .form = p->has_form ? &p->form : NULL,
        .start = { .n_prompt = p->ids.count },
    };
    ZP_TRY(fill_echo(j));
    o.echo = j->echo;
    if (apireply_open(&j->reply, &o, &err) != ZP_OK) {
        apireply_free(&j->reply);
        return apifault_of_err(&j->fault, NULL, &err);
    }
    j->has_reply = true;
    return ZP_OK;
}

static void set_usage(struct servejob *j)
{
    struct api_usage *u = &j->reply.usage;
    u->layer_zeroed = j->runs_on->zeroed[j->mode];
    u->moved = j->moved;
}

static void send_whole(struct servejob *j, struct http_exchange *x, const struct buffer *body)
{
    struct headers h;
    evidence(j, &h);
    j->x = NULL;
    http_reply(x, &(struct http_reply){ .status = 200, .type = "application/json",
                                        .body = body->data, .size = body->size,
                                        .headers = h.at, .n_headers = h.n });
}

void servejob_finish_reply(struct servejob *j)
{
    struct http_exchange *x = j->x;
    struct buffer body = buffer_with_max(MEM_SERVE, MOST_ANSWER);
    zp_err err = { 0 };
    if (x == NULL) return;
    set_usage(j);
    zp_status status = apireply_finish(&j->reply, &body, &err);
    if (status != ZP_OK) {
        (void)apifault_of_err(&j->reply.fault, NULL, &err);
        servejob_fail_reply(j);
    } else if (j->r.stream) {
        if (!j->begun) servejob_begin_stream(j);
        j->x = NULL;
        http_stream_end(x);
    } else send_whole(j, x, &body);
    buffer_free(&body);
}

void servejob_fail_reply(struct servejob *j)
{
    struct http_exchange *x = j->x;
    zp_err err = { 0 };
    if (x == NULL) return;
    if (!j->begun) {
        j->x = NULL;
        serve_reply_fault(x, servejob_api(j), &j->reply.fault);
        return;
    }
    (void)apireply_fail(&j->reply, &err); /* without memory the stream just ends */
    j->x = NULL;
    http_stream_end(x);
}

/* servejob_reply.c: what the client of a request gets: headers with what was computed how, events
 * of streams, whole answers. */
#include "serve/servejob.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numtext.h"
#include "base/os.h"
#include "serve/servereply.h"
#include "serve/servestatus.h"

#define MOST_ANSWER ((size_t)1 << 30)

/* ---- headers --------------------------------------------------------------------------------- */

struct headers {
    struct http_header at[16];
    size_t n;
    struct servemodel_share zeroed;
    char ms[24], limits[2][3][24];
};

static void add(struct headers *h, const char *name, const char *value)
{
    h->at[h->n++] = (struct http_header){ name, value };
}

/* What a key has left. OpenAI's clients read when all is there again as a duration. */
static void add_limit(struct headers *h, const struct servejob *j, int i,
                      struct servekeys_limit *l)
{
    static const char *const names[2][2][3] = {
        { { "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests" },
          { "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens" } },
        { { "anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", NULL },
          { "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", NULL } },
    };
    if (l->most == 0) return;
    double left = servekeys_left(l, os_now());
    const double values[] = { l->most, floor(left), (l->most - left) * 60 / l->most };
    for (int k = 0; k < 3; k++) {
        const char *name = names[servejob_api(j)][i][k];
        (void)numtext_printf(h->limits[i][k], sizeof h->limits[i][k], k == 2 ? "%.0fs" : "%.0f",
                       values[k]);
        if (name != NULL) add(h, name, h->limits[i][k]);
    }
}

/* What is known once it was accepted. */
static void evidence(const struct servejob *j, struct headers *h)
{
    const struct servemodel *m = j->runs_on;
    *h = (struct headers){ 0 };
    (void)numtext_printf(h->ms, sizeof h->ms, "%.0f", (os_now() - j->arrived) * 1e3);
    if (j->endpoint == SERVE_MESSAGES) add(h, "request-id", http_id(j->x));
    else add(h, "openai-processing-ms", h->ms);
    if (j->key != NULL) {
        add_limit(h, j, 0, &j->key->requests);
        add_limit(h, j, 1, &j->key->tokens);
    }
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
    if (j->endpoint == SERVE_EMBEDDINGS) return servejob_open_vectors(j);
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

/* Asked for by a beta header. Without memory for it, the usage does without. */
static const char *architecture(struct servejob *j)
{
    struct sched_figures f;
    struct json_build w;
    if (!j->wants_architecture) return NULL;
    sched_read_figures(j->s->sched, &f);
    json_build_append(&w, &j->architecture, NULL);
    servestatus_write_architecture(j->runs_on, j->mode, &f.slots[j->s->slots[j->ticket.variant]],
                                   &w);
    return w.status == ZP_OK ? (const char *)j->architecture.data : NULL;
}

static void set_usage(struct servejob *j)
{
    struct api_usage *u = &j->reply.usage;
    u->n_anchors = servejob_anchors(j);
    u->anchors_ignored =
        u->n_anchors != 0 && !zp_model_has_position_gate(j->runs_on->model);
    u->layer_zeroed = j->runs_on->zeroed[j->mode];
    u->moved = j->moved;
    u->n_truncated = j->n_truncated;
    u->approximate = j->n_truncated != 0;
    u->architecture = architecture(j);
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
    zp_status status = j->endpoint == SERVE_EMBEDDINGS
                           ? servejob_write_vectors(j, &body, &err)
                           : apireply_finish(&j->reply, &body, &err);
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
        servereply_fault(x, servejob_api(j), &j->reply.fault);
        return;
    }
    (void)apireply_fail(&j->reply, &err); /* without memory the stream just ends */
    j->x = NULL;
    http_stream_end(x);
}

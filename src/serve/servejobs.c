/* servejobs.c: requests for answers from beginning to end: the table of those under way.
 * Owns: all memory of a request. Does not know: tokens.
 * J1 a request is in the table from its arrival until nothing of it is under way: no exchange, no
 *    reading, no job of the scheduler.
 * J2 an exchange is ended once: x is NULL from then on.
 * J3 a stream begins with its first event, so that what goes wrong before has a status of its own;
 *    or after BEGIN_SECONDS, for clients and proxies that give up on silence. */
#include "serve/servejobs.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "serve/serveguard.h"
#include "serve/servejob.h"
#include "serve/servemodels.h"
#include "serve/servereply.h"
#include "serve/servetrace.h"

enum { MOST_ARCHITECTURE = 1 << 20 }; /* bytes of usage.architecture_details */
#define BEGIN_SECONDS 10.0

/* ---- memory ---------------------------------------------------------------------------------- */

static void leave_table(struct servejob *j)
{
    zp_serve *s = j->s;
    if (j->before != NULL) j->before->next = j->next;
    else s->jobs = j->next;
    if (j->next != NULL) j->next->before = j->before;
    s->n_jobs--;
}

static void free_job(struct servejob *j)
{
    if (j->has_reply) apireply_free(&j->reply);
    zp_grammar_close(j->grammar);
    for (uint32_t i = 0; i < j->n_prompts; i++) apiprompt_free(&j->prompts[i].p);
    for (uint32_t i = 0; j->choices != NULL && i < j->n_prompts * j->r.job.n_choices; i++)
        mem_free(j->choices[i].ids);
    for (struct serverun *run = j->runs, *next; run != NULL; run = next) {
        next = run->next;
        mem_free(run);
    }
    mem_free(j->choices);
    mem_free(j->vectors);
    mem_free(j->prompts);
    mem_free(j->echo);
    apirequest_free(&j->r);
    plain_free(&j->plain);
    buffer_free(&j->architecture);
    mem_free(j->body);
    mem_free(j);
}

static void let_go(zp_serve *s, struct servemodel *m)
{
    if (m == NULL) return;
    m->n_jobs--;
    servemodels_settle(s, m);
}

void servejob_settle(struct servejob *j)
{
    zp_serve *s = j->s;
    struct servemodel *reads = j->reads, *runs_on = j->runs_on;
    if (j->x != NULL || j->reading || j->n_live != 0) return; // J1
    leave_table(j);
    free_job(j);
    let_go(s, reads);
    let_go(s, runs_on);
    if (s->jobs == NULL) service_jobs_ended(s);
}

void servejobs_close(zp_serve *s)
{
    while (s->jobs != NULL) {
        struct servejob *j = s->jobs;
        leave_table(j);
        free_job(j);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

void servejob_fail(struct servejob *j)
{
    struct http_exchange *x = j->x;
    j->x = NULL; // J2
    servereply_fault(x, servejob_api(j), &j->fault);
}

static void on_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    struct servejob *j = arg;
    ZP_UNUSED(why);
    j->gone = true;
    j->x = NULL; // J2
    http_abort(x);
    servejob_cancel(j);
    servejob_settle(j);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void read_job(struct servetask *t)
{
    servejob_read((struct servejob *)((char *)t - offsetof(struct servejob, task)));
}

/* The baseline it was read for has gone, and the new one has other tokens. */
static bool is_outdated(const struct servejob *j)
{
    const struct servemodel *now = j->s->variants[VARIANT_BASELINE];
    return j->reads != now && j->reads->model->vocabulary != now->model->vocabulary;
}

static void forget_reading(struct servejob *j)
{
    zp_grammar_close(j->grammar);
    for (uint32_t i = 0; i < j->n_prompts; i++) apiprompt_free(&j->prompts[i].p);
    mem_free(j->prompts);
    apirequest_free(&j->r);
    plain_free(&j->plain);
    j->grammar = NULL;
    j->prompts = NULL;
    j->n_prompts = 0;
    j->fault = (struct apifault){ 0 };
}

static void read_again(struct servejob *j)
{
    zp_serve *s = j->s;
    forget_reading(j);
    let_go(s, j->reads);
    j->reads = s->variants[VARIANT_BASELINE];
    j->reads->n_jobs++;
    j->limits = s->api_limits;
    j->reading = true;
    servework_give(s->readers, &j->task);
}

static void go_on(struct servejob *j)
{
    j->reading = false;
    if (!j->gone && is_outdated(j)) {
        read_again(j);
        return;
    }
    if (!j->gone) {
        if (j->fault.status == 0) (void)service_is_ready(j->s, &j->fault);
        if (j->fault.status == 0) servejob_launch(j);
        else {
            servejob_refused(j);
            servejob_fail(j);
        }
    }
    servejob_settle(j);
}

static void was_read(struct servetask *t)
{
    go_on((struct servejob *)((char *)t - offsetof(struct servejob, task)));
}

static bool asks_for_architecture(const struct http_request *r)
{
    static const char *const names[] = { "zerope-beta", "anthropic-beta", "openai-beta" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        const char *value = http_header(r, names[i]);
        if (value != NULL && strstr(value, "architecture-details") != NULL) return true;
    }
    return false;
}

/* NULL: no memory. */
static struct servejob *open_job(const struct servecall *call, enum serve_endpoint endpoint)
{
    zp_serve *s = call->s;
    const struct http_request *r = call->r;
    struct servejob *j = mem_zalloc(MEM_SERVE, sizeof *j);
    char *body = mem_alloc(MEM_SERVE, r->body_size + 1);
    if (j == NULL || body == NULL) {
        mem_free(j);
        mem_free(body);
        return NULL;
    }
    memcpy(body, r->body, r->body_size);
    body[r->body_size] = '\0';
    *j = (struct servejob){ .s = s, .endpoint = endpoint, .body = body,
                            .body_size = r->body_size, .limits = s->api_limits,
                            .reads = s->variants[VARIANT_BASELINE], .arrived = os_now(),
                            .key = call->key,
                            .listed = strncmp(r->path, "/v1/", 4) != 0,
                            .wants_architecture = asks_for_architecture(r),
                            .architecture = buffer_with_max(MEM_SERVE, MOST_ARCHITECTURE),
                            .salt = call->key != NULL ? call->key->salt : 0,
                            .task = { .run = read_job, .done = was_read }, .next = s->jobs };
    (void)snprintf(j->request_id, sizeof j->request_id, "%s", r->id);
    (void)snprintf(j->seed, sizeof j->seed, "%.40s/%016llx", r->id,
                   (unsigned long long)service_random(s));
    servetrace_begin(s->trace, j, http_header(r, "traceparent"));
    if (s->jobs != NULL) s->jobs->before = j;
    s->jobs = j;
    s->n_jobs++;
    j->reads->n_jobs++;
    return j;
}

/* Forms need an automaton of the whole vocabulary. */
static bool is_small(const struct servejob *j)
{
    return j->body_size <= SERVICE_SMALL_BODY && strstr(j->body, "schema") == NULL &&
           strstr(j->body, "grammar") == NULL && strstr(j->body, "json_object") == NULL &&
           strstr(j->body, "tool_choice") == NULL;
}

void servejobs_begin(const struct servecall *c, enum serve_endpoint endpoint)
{
    struct apifault fault = { 0 };
    struct servejob *j = NULL;
    if (serveguard_take_request(c, &fault) && (j = open_job(c, endpoint)) == NULL)
        (void)apifault_no_memory(&fault);
    if (j == NULL) {
        servejob_count_refusal(c->s, endpoint, &fault);
        servereply_fault(c->x, endpoint == SERVE_MESSAGES ? API_ANTHROPIC : API_OPENAI, &fault);
        return;
    }
    j->x = c->x;
    j->reading = true;
    http_on_gone(j->x, on_gone, j);
    if (!is_small(j)) {
        servework_give(c->s->readers, &j->task);
        return;
    }
    servejob_read(j);
    go_on(j);
}

/* ---- time ------------------------------------------------------------------------------------ */

void servejobs_tick(zp_serve *s, double now)
{
    for (struct servejob *j = s->jobs, *next; j != NULL; j = next) {
        next = j->next;
        if (j->x != NULL && j->accepted && j->r.stream && !j->begun &&
            now - j->arrived > BEGIN_SECONDS)
            servejob_begin_stream(j); // J3
        servejob_go_on(j);
    }
}

void servejobs_move_cut(zp_serve *s)
{
    while (s->cuts) {
        s->cuts = false; /* what moves may open the breaker */
        for (struct servejob *j = s->jobs, *next; j != NULL && s->n_at_candidate != 0; j = next) {
            next = j->next;
            if (servejob_may_move(j) && rollout_is_cut(s->rollout, &j->ticket))
                servejob_move(j, NULL);
        }
    }
}

/* ---- for admins ------------------------------------------------------------------------------ */

static const char *phase_of(const struct servejob *j)
{
    return j->reading ? "reading" : !j->accepted ? "submitted" : j->first != 0 ? "decode" : "queue";
}

void servejobs_write(const zp_serve *s, const char *key, struct json_build *w)
{
    static const char *const endpoints[] = { "chat_completions", "completions", "messages",
                                             "embeddings" };
    double now = os_now();
    json_build_array(w, key);
    for (const struct servejob *j = s->jobs; j != NULL; j = j->next) {
        uint64_t n_prompt = 0;
        for (uint32_t i = 0; i < j->n_prompts && !j->reading; i++)
            n_prompt += j->prompts[i].p.ids.count;
        json_build_object(w, NULL);
        json_build_text(w, "id", j->request_id);
        json_build_text(w, "endpoint", endpoints[j->endpoint]);
        json_build_text(w, "key", j->key != NULL ? j->key->name : NULL);
        json_build_text(w, "phase", phase_of(j));
        json_build_text(w, "variant", j->runs_on != NULL ? variant_name(j->ticket.variant) : NULL);
        json_build_text(w, "mode", j->accepted ? position_mode_name(j->mode) : NULL);
        json_build_bool(w, "stream", !j->reading && j->r.stream);
        json_build_bool(w, "moved", j->moved);
        json_build_uint(w, "prompt_tokens", n_prompt);
        json_build_uint(w, "tokens", j->n_drawn);
        json_build_real(w, "age_seconds", now - j->arrived, 6);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

/* The client is told; its jobs end as cancelled. */
static void cancel_job(struct servejob *j)
{
    (void)apifault_set(&j->fault, 499, "cancelled", NULL, "the request was cancelled");
    j->gone = true;
    if (j->has_reply) {
        j->reply.fault = j->fault;
        servejob_fail_reply(j);
    } else servejob_fail(j);
    servejob_cancel(j);
    servejob_settle(j);
}

uint32_t servejobs_cancel(zp_serve *s, const char *id)
{
    uint32_t n = 0;
    for (struct servejob *j = s->jobs, *next; j != NULL; j = next) {
        next = j->next;
        if (j->x == NULL || strcmp(j->request_id, id) != 0) continue;
        cancel_job(j);
        n++;
    }
    return n;
}

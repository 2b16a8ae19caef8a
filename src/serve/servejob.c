/* servejob.c: requests for answers from beginning to end: the table of those under way.
 * Owns: all memory of a request. Does not know: tokens.
 * J1 a request is in the table from its arrival until nothing of it is under way: no exchange, no
 *    reading, no job of the scheduler.
 * J2 an exchange is ended once: x is NULL from then on.
 * J3 a stream begins with its first event, so that what goes wrong before has a status of its own;
 *    or after BEGIN_SECONDS, for clients and proxies that give up on silence. */
#include "serve/servejob.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"

enum { SMALL_BODY = 8 << 10 }; /* bytes that are read on the loop's thread */
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
    mem_free(j->prompts);
    mem_free(j->echo);
    apirequest_free(&j->r);
    mem_free(j->body);
    mem_free(j);
}

static void let_go(zp_serve *s, struct servemodel *m)
{
    if (m == NULL) return;
    m->n_jobs--;
    service_settle_model(s, m);
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

void servejob_close_all(zp_serve *s)
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
    serve_reply_fault(x, servejob_api(j), &j->fault);
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

static void go_on(struct servejob *j)
{
    j->reading = false;
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

/* NULL: no memory. */
static struct servejob *open_job(zp_serve *s, enum serve_endpoint endpoint,
                                 const struct http_request *r)
{
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
                            .task = { .run = read_job, .done = was_read }, .next = s->jobs };
    (void)snprintf(j->request_id, sizeof j->request_id, "%s", r->id);
    (void)snprintf(j->seed, sizeof j->seed, "%.40s/%016llx", r->id,
                   (unsigned long long)service_random(s));
    if (s->jobs != NULL) s->jobs->before = j;
    s->jobs = j;
    s->n_jobs++;
    j->reads->n_jobs++;
    return j;
}

/* Forms need an automaton of the whole vocabulary. */
static bool is_small(const struct servejob *j)
{
    return j->body_size <= SMALL_BODY && strstr(j->body, "schema") == NULL &&
           strstr(j->body, "grammar") == NULL && strstr(j->body, "json_object") == NULL &&
           strstr(j->body, "tool_choice") == NULL;
}

void servejob_begin(zp_serve *s, enum serve_endpoint endpoint, const struct http_request *r,
                    struct http_exchange *x)
{
    struct servejob *j = open_job(s, endpoint, r);
    struct apifault fault = { 0 };
    if (j == NULL) {
        (void)apifault_no_memory(&fault);
        serve_reply_fault(x, endpoint == SERVE_MESSAGES ? API_ANTHROPIC : API_OPENAI, &fault);
        return;
    }
    j->x = x;
    j->reading = true;
    http_on_gone(x, on_gone, j);
    if (!is_small(j)) {
        servework_give(s->readers, &j->task);
        return;
    }
    servejob_read(j);
    go_on(j);
}

/* ---- time ------------------------------------------------------------------------------------ */

void servejob_tick(zp_serve *s, double now)
{
    for (struct servejob *j = s->jobs; j != NULL; j = j->next)
        if (j->x != NULL && j->accepted && j->r.stream && !j->begun &&
            now - j->arrived > BEGIN_SECONDS)
            servejob_begin_stream(j); // J3
}

void servejob_move_cut(zp_serve *s)
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

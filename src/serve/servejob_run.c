/* servejob_run.c: a request's jobs in the scheduler, their events, and the way from the candidate
 * to the baseline.
 * G1 each run that is live has one last event to come; a run that was abandoned tells nothing
 *    else.
 * G2 a request that moves is computed on from the tokens that were told: what the client has stays
 *    true, and no token comes twice.
 * G3 a prompt has ended when its runs have: one, or after a move one for each choice that was not
 *    over. */
#include "serve/servejob.h"

#include <string.h>

#include "base/os.h"
#include "model/engine.h"
#include "serve/serveguard.h"
#include "serve/servejobs.h"
#include "serve/servemodels.h"

static struct servechoice *choice_of(const struct servejob *j, uint32_t prompt, uint32_t choice)
{
    return &j->choices[prompt * j->r.job.n_choices + choice];
}

static struct serverun *add_run(struct servejob *j)
{
    struct serverun *run = mem_zalloc(MEM_SERVE, sizeof *run);
    if (run == NULL) return NULL;
    run->job = j;
    run->next = j->runs;
    j->runs = run;
    return run;
}

/* ---- submitting ------------------------------------------------------------------------------ */

static void set_job(const struct servejob *j, struct sched_job *job)
{
    *job = j->r.job;
    job->slot = j->s->slots[j->ticket.variant];
    job->salt = j->salt;
    job->goes_on = j->accepted;
    job->arrived = j->arrived;
    job->deadline = j->deadline;
    job->sampler.grammar = j->grammar;
    if (j->ticket.half && !j->r.has_mode) job->mode = ZP_MODE_HALF;
}

/* Of the model that it runs on: one without a position gate has nothing that they would set, and
 * the usage says so. */
static void set_anchors(const struct servejob *j, uint32_t prompt, struct sched_job *job)
{
    const struct anchor_list *a = &j->prompts[prompt].p.anchors;
    if (!zp_model_has_position_gate(j->runs_on->model)) return;
    job->anchors = a->at;
    job->n_anchors = a->n;
}

static zp_status submit(struct servejob *j, struct serverun *run, struct sched_job *job)
{
    zp_err err = { 0 };
    job->arg = run;
    if (sched_submit(j->s->sched, job, &run->id, &err) != ZP_OK)
        return apifault_of_err(&j->fault, NULL, &err);
    run->live = true;
    j->n_live++;
    j->prompts[run->prompt].n_runs++;
    return ZP_OK;
}

static zp_status submit_prompt(struct servejob *j, uint32_t prompt)
{
    const struct token_list *ids = &j->prompts[prompt].p.ids;
    struct serverun *run = add_run(j);
    struct sched_job job;
    if (run == NULL) return apifault_no_memory(&j->fault);
    run->prompt = prompt;
    j->prompts[prompt].submitted = true;
    set_job(j, &job);
    job.prompt = ids->ids;
    job.n_prompt = ids->count;
    set_anchors(j, prompt, &job);
    return submit(j, run, &job);
}

/* All its prompts; of texts to embed, as many as may be under way at a time (V2 of
 * servejob_embed.c). */
static zp_status submit_prompts(struct servejob *j)
{
    bool embeds = j->endpoint == SERVE_EMBEDDINGS;
    uint32_t most = embeds ? j->runs_on->engine->options.n_seq : UINT32_MAX;
    for (; j->n_submitted < j->n_prompts && j->n_live < most; j->n_submitted++) {
        if (j->prompts[j->n_submitted].submitted) continue;
        ZP_TRY(servejob_check_space(j));
        ZP_TRY(submit_prompt(j, j->n_submitted));
    }
    return ZP_OK;
}

/* The queue is full, but others of its prompts are under way, or have been: this one comes again
 * (V3 of servejob_embed.c). */
static bool put_back(struct servejob *j, const struct serverun *run, const struct sched_event *e)
{
    bool waits = j->endpoint == SERVE_EMBEDDINGS && e->why == SCHED_QUEUE_FULL &&
                 (j->accepted || j->n_live != 0);
    if (!waits) return false;
    j->prompts[run->prompt].submitted = false;
    j->prompts[run->prompt].n_runs--;
    if (run->prompt < j->n_submitted) j->n_submitted = run->prompt;
    return true;
}

/* ---- launching ------------------------------------------------------------------------------- */

static zp_status ask_rollout(struct servejob *j)
{
    zp_serve *s = j->s;
    uint64_t n = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++)
        if (j->prompts[i].p.ids.count > n) n = j->prompts[i].p.ids.count;
    bool embeds = j->endpoint == SERVE_EMBEDDINGS;
    const struct rollout_ask ask = { .request_id = http_id(j->x), .user = j->r.user,
                                     .n_prompt = n,
                                     .mode_is_open = !j->r.has_mode ||
                                                     j->r.job.mode == ZP_MODE_AUTO };
    if (!embeds) j->has_ticket = rollout_begin(s->rollout, &ask, os_now(), &j->ticket);
    if (embeds ? rollout_admits(s->rollout, n, &j->ticket) : j->has_ticket) return ZP_OK;
    zp_status status = apifault_set(&j->fault, 429, "overloaded", NULL,
                                    "the server is slower than it promises; try again later");
    j->fault.retry_seconds = sla_retry_seconds(&s->rollout->sla);
    return status;
}

/* Of the key: prompts now, answers when they have ended. */
static zp_status take_tokens(struct servejob *j)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++) n += j->prompts[i].p.ids.count;
    return serveguard_take_tokens(j->key, n, &j->fault) ? ZP_OK : ZP_RUN;
}

static void hold_model(struct servejob *j)
{
    j->first_variant = j->ticket.variant;
    j->runs_on = j->s->variants[j->ticket.variant];
    j->runs_on->n_jobs++;
    j->s->n_at_candidate += j->ticket.variant == VARIANT_CANDIDATE;
}

static zp_status prepare(struct servejob *j)
{
    size_t n = (size_t)j->n_prompts * j->r.job.n_choices;
    double timeout = j->s->o.timeout;
    j->choices = mem_array(MEM_SERVE, n, sizeof *j->choices);
    if (j->choices == NULL) return apifault_no_memory(&j->fault);
    memset(j->choices, 0, n * sizeof *j->choices);
    if (j->r.timeout != 0 && (timeout == 0 || j->r.timeout < timeout)) timeout = j->r.timeout;
    if (timeout != 0) j->deadline = j->arrived + timeout;
    if (!j->r.has_seed) j->r.job.sampler.seed = service_random(j->s);
    ZP_TRY(take_tokens(j));
    ZP_TRY(ask_rollout(j));
    hold_model(j);
    return servejob_open_reply(j);
}

static zp_status launch(struct servejob *j)
{
    ZP_TRY(prepare(j));
    return submit_prompts(j);
}

/* Nobody else tells a client that its field means nothing here. */
static void log_unknown(const struct servejob *j)
{
    for (size_t i = 0; i < j->r.n_unknown && i < API_MOST_UNKNOWN; i++)
        LOGLINE(&j->s->log, LOG_INFO, "unknown_field", j->request_id,
                logline_text("field", j->r.unknown[i]));
}

static void log_anchors(const struct servejob *j)
{
    uint64_t n = servejob_anchors(j);
    if (n != 0 && !zp_model_has_position_gate(j->reads->model))
        LOGLINE(&j->s->log, LOG_WARN, "anchors_ignored", j->request_id, logline_uint("anchors", n),
                logline_text("why", "the model has no position gate"));
}

void servejob_launch(struct servejob *j)
{
    log_unknown(j);
    log_anchors(j);
    if (launch(j) == ZP_OK) return;
    servejob_refused(j);
    servejob_cancel(j);
    servejob_fail(j);
}

void servejob_cancel(struct servejob *j)
{
    for (struct serverun *run = j->runs; run != NULL; run = run->next)
        if (run->live) sched_cancel(j->s->sched, run->id);
}

/* ---- moving ---------------------------------------------------------------------------------- */

bool servejob_may_move(const struct servejob *j)
{
    return j->has_ticket && j->ticket.variant == VARIANT_CANDIDATE && !j->booked && !j->gone &&
           !j->stays;
}

/* What its runs drew counts with the rests (G2). */
static void abandon(struct servejob *j)
{
    for (uint32_t p = 0; p < j->n_prompts; p++)
        for (uint32_t c = 0; c < j->r.job.n_choices && !j->prompts[p].ended; c++)
            j->prompts[p].n_before += choice_of(j, p, c)->n;
    for (struct serverun *run = j->runs; run != NULL; run = run->next) {
        if (!run->live || run->abandoned) continue;
        run->abandoned = true;
        j->prompts[run->prompt].n_runs--;
        sched_cancel(j->s->sched, run->id);
    }
}

/* The rest of a choice: its prompt and what it has drawn are the new prompt (G2). */
static zp_status submit_rest(struct servejob *j, uint32_t prompt, uint32_t choice)
{
    const struct token_list *ids = &j->prompts[prompt].p.ids;
    const struct servechoice *c = choice_of(j, prompt, choice);
    struct serverun *run = add_run(j);
    size_t n = ids->count + c->n;
    int32_t *all = mem_array(MEM_SERVE, n, sizeof *all);
    struct sched_job job;
    zp_status status = ZP_NO_MEMORY;
    if (run != NULL && all != NULL) {
        *run = (struct serverun){ .job = j, .prompt = prompt, .choice = choice, .rest = true,
                                  .next = run->next };
        set_job(j, &job);
        memcpy(all, ids->ids, ids->count * sizeof *all);
        if (c->n != 0) memcpy(all + ids->count, c->ids, c->n * sizeof *all);
        job.prompt = all;
        job.n_prompt = n;
        job.n_begun = c->n;
        set_anchors(j, prompt, &job);
        job.arrived = os_now(); /* here: its queue is that of the baseline */
        job.n_choices = 1;
        job.sampler.seed += choice;
        job.prompt_logprobs = job.prompt_logprobs && c->n == 0 && choice == 0;
        if (job.n_predict != 0) job.n_predict -= (uint32_t)c->n;
        status = submit(j, run, &job);
    } else (void)apifault_no_memory(&j->fault);
    mem_free(all);
    return status;
}

static void end_prompt(struct servejob *j, uint32_t prompt);

static zp_status submit_rests(struct servejob *j)
{
    for (uint32_t p = 0; p < j->n_prompts; p++) {
        for (uint32_t c = 0; c < j->r.job.n_choices && !j->prompts[p].ended; c++)
            if (!choice_of(j, p, c)->over) ZP_TRY(submit_rest(j, p, c));
    }
    return ZP_OK;
}

static void change_model(struct servejob *j)
{
    zp_serve *s = j->s;
    struct servemodel *before = j->runs_on;
    j->runs_on = s->variants[VARIANT_BASELINE];
    j->runs_on->n_jobs++;
    before->n_jobs--;
    servemodels_settle(s, before);
    s->n_at_candidate--;
    j->moved = true;
    metrics_add(s->metrics, METRIC_MOVED, METRIC_AT(0), 1);
}

/* What it goes on with could not be submitted. */
static void fail(struct servejob *j)
{
    j->reply.fault = j->fault;
    servejob_book(j, SERVEJOB_FAILED, NULL);
    servejob_cancel(j);
    servejob_fail_reply(j);
}

void servejob_move(struct servejob *j, const struct sched_event *failed)
{
    servejob_book_move(j, failed);
    abandon(j);
    change_model(j);
    rollout_move(j->s->rollout, &j->ticket);
    if (submit_rests(j) != ZP_OK) {
        fail(j);
        servejob_settle(j);
        return;
    }
    for (uint32_t p = 0; p < j->n_prompts; p++)
        if (!j->prompts[p].ended && j->prompts[p].n_runs == 0) end_prompt(j, p); // G3
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool keep_id(struct servechoice *c, int32_t id)
{
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        int32_t *ids = mem_resize(MEM_SERVE, c->ids, room * sizeof *ids);
        if (ids == NULL) return false;
        c->ids = ids;
        c->room = room;
    }
    c->ids[c->n++] = id;
    return true;
}

/* What the reply makes of an event, and what follows from that. */
static void tell(struct servejob *j, uint32_t prompt, const struct sched_event *e)
{
    enum apireply_state state = j->endpoint == SERVE_EMBEDDINGS
                                    ? servejob_embed_event(j, e)
                                    : apireply_event(&j->reply, prompt, e);
    switch (state) {
    case REPLY_RUNS: return;
    case REPLY_FULL: servejob_cancel(j); return;
    case REPLY_ENDED:
        servejob_book(j, SERVEJOB_COMPLETED, e);
        servejob_finish_reply(j);
        return;
    case REPLY_FAILED:
        servejob_book(j, e->kind == SCHED_CANCELLED ? SERVEJOB_CANCELLED : SERVEJOB_FAILED, e);
        servejob_cancel(j);
        servejob_fail_reply(j);
    }
}

static void take_token(struct servejob *j, struct serverun *run, struct sched_event *e)
{
    struct servechoice *c = choice_of(j, run->prompt, e->token.choice);
    if (e->token.id >= 0) {
        if (j->ticket.variant == VARIANT_CANDIDATE && !keep_id(c, e->token.id)) j->stays = true;
        servejob_token(j, c);
    }
    tell(j, run->prompt, e);
}

static void take_row(struct servejob *j, const struct serverun *run, const struct sched_event *e)
{
    struct serveprompt *p = &j->prompts[run->prompt];
    if (e->token.index <= p->n_rows) return; /* told before it moved */
    p->n_rows = e->token.index;
    tell(j, run->prompt, e);
}

/* Of several runs the first tells of the prompt. */
static void add_usage(struct serveprompt *p, const struct sched_usage *u)
{
    struct sched_usage *sum = &p->usage;
    if (sum->n_prompt == 0) {
        *sum = *u;
        sum->n_prompt = p->p.ids.count;
        return;
    }
    sum->n_drawn += u->n_drawn;
    sum->draw_seconds += u->draw_seconds;
    sum->total_seconds = u->total_seconds;
    if (u->loop > sum->loop) sum->loop = u->loop;
}

static void end_prompt(struct servejob *j, uint32_t prompt)
{
    struct serveprompt *p = &j->prompts[prompt];
    struct sched_event e = { .kind = SCHED_DONE, .usage = p->usage };
    p->ended = true;
    e.usage.n_prompt = p->p.ids.count;
    e.usage.n_drawn += p->n_before;
    tell(j, prompt, &e);
}

static void take_end(struct servejob *j, const struct serverun *run, const struct sched_event *e)
{
    struct serveprompt *p = &j->prompts[run->prompt];
    add_usage(p, &e->usage);
    p->n_runs--;
    if (e->embedding != NULL) servejob_keep_vector(j, run->prompt, e->embedding);
    if (e->kind != SCHED_DONE) tell(j, run->prompt, e);
    else if (p->n_runs == 0) end_prompt(j, run->prompt); // G3
    if (!j->booked && submit_prompts(j) != ZP_OK) fail(j);
}

static bool must_move(const struct servejob *j, const struct sched_event *e)
{
    return e->kind == SCHED_FAILED && servejob_may_move(j) &&
           rollout_may_move(&j->ticket, servejob_end_of(e));
}

/* Not taken; or one prompt of several was not. */
static void take_refusal(struct servejob *j, const struct sched_event *e)
{
    (void)apifault_of_job(&j->fault, servejob_param(j), e);
    j->reply.fault = j->fault;
    if (j->accepted) servejob_book(j, SERVEJOB_FAILED, NULL);
    else servejob_refused(j);
    servejob_cancel(j);
    servejob_fail_reply(j);
}

/* The last event of a run. */
static void take_last(struct servejob *j, struct serverun *run, const struct sched_event *e)
{
    bool counts = !run->abandoned && !j->booked;
    run->live = false;
    j->n_live--;
    if (!counts) return;
    if (j->gone) servejob_book(j, SERVEJOB_CANCELLED, e);
    else if (e->kind == SCHED_REFUSED && put_back(j, run, e)) return;
    else if (e->kind == SCHED_REFUSED) take_refusal(j, e);
    else if (must_move(j, e)) {
        j->prompts[run->prompt].n_runs--;
        servejob_move(j, e);
    } else take_end(j, run, e);
}

void servejob_go_on(struct servejob *j)
{
    if (!j->accepted || j->booked || j->gone || j->n_submitted == j->n_prompts) return;
    if (submit_prompts(j) != ZP_OK) fail(j);
    servejob_settle(j);
}

static void take(struct servejob *j, struct serverun *run, struct sched_event *e)
{
    switch (e->kind) {
    case SCHED_ACCEPTED:
        j->mode = e->usage.mode;
        servejob_accepted(j);
        if (!run->rest) tell(j, run->prompt, e);
        break;
    case SCHED_PROGRESS:
        if (!run->rest) tell(j, run->prompt, e);
        break;
    case SCHED_PROMPT_TOKEN: take_row(j, run, e); break;
    case SCHED_TOKEN:
        if (run->rest) e->token.choice = run->choice;
        take_token(j, run, e);
        break;
    case SCHED_ENDED:
        if (run->rest) e->ended.choice = run->choice;
        choice_of(j, run->prompt, e->ended.choice)->over = true;
        tell(j, run->prompt, e);
        break;
    default: break;
    }
}

void servejobs_take(const struct sched_event *event)
{
    struct serverun *run = event->arg;
    struct servejob *j = run->job;
    struct sched_event e = *event;
    if (e.kind >= SCHED_DONE) take_last(j, run, &e);
    else if (!run->abandoned && !j->booked && !j->gone) take(j, run, &e);
    zp_serve *s = j->s;
    servejob_settle(j);
    servejobs_move_cut(s);
}

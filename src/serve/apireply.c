/* apireply.c: the scheduler's events, put through the splitter of each choice into the shape that
 * the request wants.
 * Owns: splitters and shapes. Does not know: sockets, models.
 * P1 choice c of job j has the index j * n_choices + c.
 * P2 a choice is over once: by its end, or when its splitter is full. What comes later is not
 *    shown.
 * P3 a job whose choices are all over has ended well, however it ends: a full one is cancelled.
 * P4 log-probabilities of the prompt, and the prompt itself, stand before what was drawn. */
#include "serve/apireply.h"

#include <string.h>

static const struct api_request *request(const struct apireply *a)
{
    return a->o.r;
}

static bool is_anthropic(const struct apireply *a)
{
    return request(a)->set == SET_MESSAGES;
}

static uint32_t index_of(const struct apireply_choice *c)
{
    return (uint32_t)(c - c->reply->choices);
}

/* ---- where things go ------------------------------------------------------------------------- */

static void pass_event(void *arg, const char *event, const char *data, size_t size)
{
    struct apireply *a = arg;
    a->begun = true;
    a->o.emit.call(a->o.emit.arg, event, data, size);
}

static zp_status give_part(void *arg, const struct api_part *part, zp_err *err)
{
    struct apireply_choice *c = arg;
    struct apireply *a = c->reply;
    if (!request(a)->stream) return api_answer_part(&a->whole, index_of(c), part, err);
    if (is_anthropic(a)) return anthropic_stream_part(&a->anthropic, part, err);
    return openai_stream_part(&a->openai, index_of(c), part, err);
}

static zp_status give_token(struct apireply_choice *c, const struct sched_token *t, zp_err *err)
{
    struct apireply *a = c->reply;
    if (!request(a)->stream) return api_answer_token(&a->whole, index_of(c), t, err);
    if (is_anthropic(a)) return ZP_OK;
    return openai_stream_token(&a->openai, index_of(c), t, err);
}

static zp_status give_finish(struct apireply_choice *c, zp_err *err)
{
    struct apireply *a = c->reply;
    if (!request(a)->stream) {
        struct api_choice *to = &a->whole.choices[index_of(c)];
        to->finish = c->finish;
        to->stop = c->stop;
        return ZP_OK;
    }
    if (is_anthropic(a)) return ZP_OK; /* with the usage */
    return openai_stream_finish(&a->openai, index_of(c), c->finish, err);
}

static zp_status give_progress(struct apireply *a, const struct sched_progress *p, zp_err *err)
{
    if (!request(a)->stream) return ZP_OK;
    if (is_anthropic(a)) return anthropic_stream_progress(&a->anthropic, p, err);
    return openai_stream_progress(&a->openai, p, err);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* Completions are what the model wrote, whatever it looks like. */
static void open_split(struct apireply_choice *c)
{
    const struct apireply_options *o = &c->reply->o;
    bool plain = o->r->set == SET_COMPLETIONS;
    const struct toolcalls_options split = {
        .style = o->style,
        .tools = plain ? NULL : o->r->tools,
        .most_calls = o->r->one_call ? 1 : 0,
        .reasoning = plain ? REASONING_INLINE : o->r->reasoning,
        .in_reasoning = o->in_reasoning && o->form == NULL,
        .part = give_part,
        .arg = c,
    };
    toolcalls_open(&c->split, &split);
}

static zp_status open_shape(struct apireply *a, zp_err *err)
{
    const struct api_request *r = request(a);
    const struct api_emit emit = { pass_event, a };
    if (!r->stream) return api_answer_open(&a->whole, r, &a->o.who, a->n_choices, err);
    if (!is_anthropic(a))
        return openai_stream_open(&a->openai, r, &a->o.who, a->n_choices, emit, err);
    anthropic_stream_open(&a->anthropic, r, &a->o.who, emit);
    return ZP_OK;
}

zp_status apireply_open(struct apireply *a, const struct apireply_options *o, zp_err *err)
{
    *a = (struct apireply){ .o = *o, .usage = o->start };
    a->usage.n_prompt = a->usage.n_cached = 0; /* the jobs tell */
    a->n_jobs = o->r->set == SET_COMPLETIONS ? (uint32_t)o->r->n_prompts : 1;
    a->n_choices = a->n_jobs * o->r->job.n_choices;
    ZP_ALLOC(a->choices, MEM_SERVE, a->n_choices, err, "the choices of an answer");
    for (uint32_t i = 0; i < a->n_choices; i++) {
        a->choices[i] = (struct apireply_choice){ .reply = a };
        open_split(&a->choices[i]);
    }
    ZP_TRY(open_shape(a, err));
    for (uint32_t i = 0; i < a->n_choices && o->form != NULL; i++)
        ZP_TRY(toolcalls_push(&a->choices[i].split, o->form->before, strlen(o->form->before), err));
    return ZP_OK;
}

void apireply_free(struct apireply *a)
{
    for (uint32_t i = 0; a->choices != NULL && i < a->n_choices; i++)
        toolcalls_free(&a->choices[i].split);
    mem_free(a->choices);
    api_answer_free(&a->whole);
    openai_stream_free(&a->openai);
    anthropic_stream_free(&a->anthropic);
    *a = (struct apireply){ 0 };
}

zp_status apireply_ping(struct apireply *a, zp_err *err)
{
    return is_anthropic(a) && a->begun ? anthropic_stream_ping(&a->anthropic, err) : ZP_OK;
}

zp_status apireply_finish(struct apireply *a, struct buffer *out, zp_err *err)
{
    const struct api_request *r = request(a);
    const struct apireply_choice *c = &a->choices[0];
    if (!r->stream)
        return (is_anthropic(a) ? anthropic_write_answer
                                : openai_write_answer)(r, &a->whole, &a->usage, out, err);
    if (!is_anthropic(a)) return openai_stream_end(&a->openai, &a->usage, err);
    return anthropic_stream_end(&a->anthropic, c->finish, c->stop, &a->usage, err);
}

zp_status apireply_fail(struct apireply *a, zp_err *err)
{
    if (!a->begun) return ZP_OK;
    return is_anthropic(a) ? anthropic_stream_fail(&a->anthropic, &a->fault, err)
                           : openai_stream_fail(&a->openai, &a->fault, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct apireply_choice *choice_of(struct apireply *a, uint32_t job, uint32_t choice)
{
    return &a->choices[job * request(a)->job.n_choices + choice]; // P1
}

static const struct apireply_echo *echo_of(const struct apireply_choice *c)
{
    const struct apireply *a = c->reply;
    return a->o.echo == NULL ? NULL : &a->o.echo[index_of(c) / request(a)->job.n_choices];
}

/* The prompt's first token, which the scheduler tells nothing of. */
static zp_status begin_echo(struct apireply_choice *c, zp_err *err)
{
    const struct apireply_echo *e = echo_of(c);
    if (c->begun || e == NULL || e->first.bytes == NULL) return ZP_OK;
    c->begun = true;
    const struct sched_token first = { .id = e->first.id, .own = e->first };
    return request(c->reply)->job.prompt_logprobs ? give_token(c, &first, err) : ZP_OK;
}

/* P4 */
static zp_status end_echo(struct apireply_choice *c, zp_err *err)
{
    const struct apireply_echo *e = echo_of(c);
    if (c->echoed || e == NULL) return ZP_OK;
    ZP_TRY(begin_echo(c, err));
    c->echoed = true;
    return give_part(c, &(struct api_part){ PART_CONTENT, e->text, e->size }, err);
}

static zp_status take_prompt_token(struct apireply *a, uint32_t job, const struct sched_token *t,
                                   zp_err *err)
{
    for (uint32_t i = 0; i < request(a)->job.n_choices; i++) {
        struct apireply_choice *c = choice_of(a, job, i);
        ZP_TRY(begin_echo(c, err));
        ZP_TRY(give_token(c, t, err));
    }
    return ZP_OK;
}

static zp_status end_choice(struct apireply_choice *c, enum api_finish finish, zp_err *err)
{
    c->over = true; // P2
    c->finish = finish;
    c->reply->n_over++;
    return give_finish(c, err);
}

static zp_status take_text(struct apireply_choice *c, const char *text, size_t size, zp_err *err)
{
    ZP_TRY(toolcalls_push(&c->split, text, size, err));
    if (c->over || !toolcalls_is_full(&c->split)) return ZP_OK;
    c->reply->full = true;
    return end_choice(c, FINISH_END, err);
}

static zp_status take_token(struct apireply_choice *c, const struct sched_token *t, zp_err *err)
{
    if (c->over || request(c->reply)->prompt_only) return ZP_OK;
    ZP_TRY(end_echo(c, err));
    if (t->has_logprob) ZP_TRY(give_token(c, t, err));
    return take_text(c, t->text, t->size, err);
}

static zp_status take_end(struct apireply_choice *c, const struct sched_event *e, zp_err *err)
{
    const struct api_request *r = request(c->reply);
    const struct toolform *form = c->reply->o.form;
    enum api_finish finish = r->prompt_only ? FINISH_LENGTH : api_finish_of(e->ended.reason);
    if (c->over) return ZP_OK;
    ZP_TRY(end_echo(c, err));
    if (form != NULL && finish == FINISH_END)
        ZP_TRY(take_text(c, form->after, strlen(form->after), err));
    ZP_TRY(toolcalls_finish(&c->split, err));
    if (finish == FINISH_STOP && e->ended.stop < r->job.n_stop)
        c->stop = r->job.stop[e->ended.stop];
    return c->over ? ZP_OK : end_choice(c, finish, err);
}

static zp_status take_job_end(struct apireply *a, uint32_t job, const struct sched_event *e)
{
    bool over = e->kind != SCHED_REFUSED;
    for (uint32_t i = 0; i < request(a)->job.n_choices; i++)
        over = over && choice_of(a, job, i)->over;
    if (!over) // P3
        return apifault_of_job(&a->fault, request(a)->set == SET_COMPLETIONS ? "prompt"
                                                                              : "messages", e);
    api_usage_add(&a->usage, &e->usage);
    if (request(a)->prompt_only) a->usage.n_answer = 0;
    if (++a->n_ended == a->n_jobs) a->state = REPLY_ENDED;
    return ZP_OK;
}

static zp_status take(struct apireply *a, uint32_t job, const struct sched_event *e, zp_err *err)
{
    bool begins = request(a)->stream && is_anthropic(a) && !a->begun;
    switch (e->kind) {
    case SCHED_ACCEPTED:
        return begins ? anthropic_stream_begin(&a->anthropic, &a->o.start, err) : ZP_OK;
    case SCHED_PROGRESS: return give_progress(a, &e->progress, err);
    case SCHED_PROMPT_TOKEN: return take_prompt_token(a, job, &e->token, err);
    case SCHED_TOKEN: return take_token(choice_of(a, job, e->token.choice), &e->token, err);
    case SCHED_ENDED: return take_end(choice_of(a, job, e->ended.choice), e, err);
    default: return take_job_end(a, job, e);
    }
}

enum apireply_state apireply_event(struct apireply *a, uint32_t job, const struct sched_event *e)
{
    if (a->state == REPLY_FAILED || a->state == REPLY_ENDED) return a->state;
    if (take(a, job, e, &a->err) != ZP_OK) {
        if (a->fault.status == 0) (void)apifault_of_err(&a->fault, NULL, &a->err);
        else if (e->err != NULL) a->err = *e->err;
        a->state = REPLY_FAILED;
    } else if (a->full && a->state == REPLY_RUNS && a->n_over == a->n_choices) {
        a->state = REPLY_FULL;
    }
    return a->state;
}

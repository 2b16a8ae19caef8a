/* servetexts.c: endpoints that read texts, and draw nothing.
 * Owns: a call from its body to its answer. Does not know: jobs of the scheduler.
 * X1 a call is computed on one of the readers' threads, of a small body at once on the loop's; it
 *    reads only what never changes of the model, which it holds.
 * X2 it ends on the loop's thread, once; x is NULL where the client went away meanwhile. */
#include "serve/servetexts.h"

#include <string.h>

#include "model/text.h"
#include "serve/api_anthropic.h"
#include "serve/apiprompt.h"
#include "serve/servejobs.h"
#include "serve/servemodels.h"
#include "serve/servereply.h"

struct textcall {
    struct servetask task;
    zp_status (*compute)(struct textcall *t); /* the fault tells what is wrong with the request */
    zp_serve *s;
    struct http_exchange *x;
    struct servemodel *m;
    enum api api;
    char *body;
    size_t size;
    struct api_limits limits;
    struct apifault fault;
    struct buffer out;
    zp_status status;
    zp_err err;
};

/* ---- tokens ---------------------------------------------------------------------------------- */

static zp_status write_ids(const struct zp_model *m, const struct token_list *ids, bool pieces,
                           struct buffer *out, zp_err *err)
{
    const char **texts = NULL;
    size_t *sizes = NULL;
    if (!pieces) return plain_write_tokens(ids->ids, ids->count, NULL, NULL, out, err);
    texts = mem_array(MEM_SERVE, ids->count + 1, sizeof *texts);
    sizes = mem_array(MEM_SERVE, ids->count + 1, sizeof *sizes);
    zp_status status = ZP_NO_MEMORY;
    if (texts == NULL || sizes == NULL)
        (void)status_fail(err, status, __FILE__, __LINE__, "not enough memory for the tokens");
    else {
        for (size_t i = 0; i < ids->count; i++)
            texts[i] = (const char *)tokenizer_token_bytes(m->tokenizer, ids->ids[i], &sizes[i]);
        status = plain_write_tokens(ids->ids, ids->count, texts, sizes, out, err);
    }
    mem_free(texts);
    mem_free(sizes);
    return status;
}

static zp_status tokenize_text(const struct zp_model *m, const struct plain_request *p,
                               struct buffer *out, zp_err *err)
{
    struct token_list ids = { 0 };
    const struct api_prompt *text = &p->prompts[0];
    zp_status status = tokenizer_encode(m->tokenizer, text->text, text->size,
                                        p->parse_special ? TOKENIZE_SPECIAL : 0, &ids, err);
    if (status == ZP_OK && p->add_special) status = text_add_bos(m, &ids, err);
    if (status == ZP_OK) status = write_ids(m, &ids, p->with_pieces, out, err);
    token_list_free(&ids);
    return status;
}

static zp_status tokenize(struct textcall *t)
{
    struct plain_request p;
    zp_status status = plain_read_tokenize(&p, t->body, t->size, &t->limits, &t->fault);
    if (status == ZP_OK) status = tokenize_text(t->m->model, &p, &t->out, &t->err);
    plain_free(&p);
    return status;
}

static zp_status detokenize_ids(const struct zp_model *m, const struct plain_request *p,
                                struct buffer *out, zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    zp_status status = buffer_append(&text, "", 0, err);
    if (status == ZP_OK && p->n_prompts != 0)
        status = tokenizer_decode(m->tokenizer, p->prompts[0].ids, p->prompts[0].n_ids,
                                  DETOKENIZE_SPECIAL, &text, err);
    if (status == ZP_OK)
        status = plain_write_text("content", (const char *)text.data, text.size, out, err);
    buffer_free(&text);
    return status;
}

static zp_status detokenize(struct textcall *t)
{
    struct plain_request p;
    zp_status status = plain_read_detokenize(&p, t->body, t->size, &t->limits, &t->fault);
    if (status == ZP_OK) status = detokenize_ids(t->m->model, &p, &t->out, &t->err);
    plain_free(&p);
    return status;
}

/* ---- chats ----------------------------------------------------------------------------------- */

static zp_status write_prompt(struct textcall *t, const struct apiprompt *p)
{
    if (t->api == API_ANTHROPIC) return anthropic_write_count(p->ids.count, &t->out, &t->err);
    return plain_write_text("prompt", (const char *)p->text.data, p->text.size, &t->out, &t->err);
}

/* What a chat's prompt is, without an answer to it. */
static zp_status show_prompt(struct textcall *t)
{
    struct apiprompt p = { 0 };
    struct api_request r;
    zp_status status = t->api == API_ANTHROPIC
                           ? anthropic_read_messages(&r, t->body, t->size, &t->limits, &t->fault)
                           : openai_read_chat(&r, t->body, t->size, &t->limits, &t->fault);
    if (status == ZP_OK) status = apiprompt_open_chat(&p, t->m->model, &r, &t->fault);
    if (status == ZP_OK) status = write_prompt(t, &p);
    apiprompt_free(&p);
    apirequest_free(&r);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void run(struct servetask *task)
{
    struct textcall *t = (struct textcall *)task;
    t->status = t->compute(t);
}

static void done(struct servetask *task)
{
    struct textcall *t = (struct textcall *)task;
    t->m->n_jobs--;
    servemodels_settle(t->s, t->m);
    if (t->x != NULL && t->fault.status != 0) servereply_fault(t->x, t->api, &t->fault);
    else if (t->x != NULL) servereply_json(t->x, t->api, t->status, &t->out, &t->err);
    buffer_free(&t->out);
    mem_free(t->body);
    mem_free(t);
}

static void on_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    ZP_UNUSED(why);
    ((struct textcall *)arg)->x = NULL; // X2
    http_abort(x);
}

static void begin(const struct servecall *c, enum api api, zp_status (*compute)(struct textcall *t))
{
    zp_serve *s = c->s;
    size_t size = c->r->body_size;
    struct textcall *t = mem_zalloc(MEM_SERVE, sizeof *t);
    char *body = mem_alloc(MEM_SERVE, size + 1);
    if (t == NULL || body == NULL) {
        struct apifault fault = { 0 };
        (void)apifault_no_memory(&fault);
        servereply_fault(c->x, api, &fault);
        mem_free(t);
        mem_free(body);
        return;
    }
    memcpy(body, c->r->body, size);
    *t = (struct textcall){ .task = { .run = run, .done = done }, .compute = compute, .s = s,
                            .x = c->x, .m = s->variants[VARIANT_BASELINE], .api = api,
                            .body = body, .size = size, .limits = s->api_limits,
                            .out = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST) };
    t->m->n_jobs++;
    if (size > SERVICE_SMALL_BODY) {
        http_on_gone(t->x, on_gone, t);
        servework_give(s->readers, &t->task);
        return;
    }
    run(&t->task); // X1
    done(&t->task);
}

void servetexts_tokenize(const struct servecall *c)
{
    begin(c, API_OPENAI, tokenize);
}

void servetexts_detokenize(const struct servecall *c)
{
    begin(c, API_OPENAI, detokenize);
}

void servetexts_template(const struct servecall *c)
{
    begin(c, API_OPENAI, show_prompt);
}

void servetexts_count(const struct servecall *c)
{
    begin(c, API_ANTHROPIC, show_prompt);
}

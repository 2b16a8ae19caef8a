/* servejob_embed.c: requests for embeddings: from the body to prompts, from vectors to the answer.
 * V1 vectors of two models cannot be compared: all of a request are of one model, the baseline, and
 *    no promise of the SLA changes their position mode.
 * V2 a request has no more prompts under way than the engine has seats: long lists of texts leave
 *    the queue to others.
 * V3 what is under way is not lost because the queue is full: what has no room comes again, with
 *    the next end of one of its own, and with the clock. */
#include <string.h>

#include "serve/servejob.h"

/* ---- requests -------------------------------------------------------------------------------- */

zp_status servejob_read_inputs(struct servejob *j)
{
    struct plain_request *p = &j->plain;
    struct api_request *r = &j->r;
    ZP_TRY(plain_read_embeddings(p, j->body, j->body_size, &j->limits, &j->fault));
    r->model = p->model;
    r->user = p->user;
    r->prompts = p->prompts;
    r->n_prompts = p->n_prompts;
    r->has_mode = p->mode >= 0;
    r->job = (struct sched_job){ .n_choices = 1, .embeds = true, .raw = p->raw,
                                 .pooling = p->pooling ? p->pooling : j->s->o.pooling,
                                 .mode = r->has_mode ? (zp_mode)p->mode : j->limits.mode };
    return ZP_OK;
}

/* ---- vectors --------------------------------------------------------------------------------- */

zp_status servejob_open_vectors(struct servejob *j)
{
    uint32_t width = j->runs_on->info.d_model, asked = j->plain.dimensions;
    if (asked != 0 && asked != width)
        return apifault_unsupported(&j->fault, "dimensions",
                                    "embeddings of this model have %u dimensions, found %u", width,
                                    asked);
    j->vectors = mem_array(MEM_SERVE, (size_t)j->n_prompts * width, sizeof *j->vectors);
    return j->vectors != NULL ? ZP_OK : apifault_no_memory(&j->fault);
}

zp_status servejob_check_space(struct servejob *j)
{
    if (j->endpoint != SERVE_EMBEDDINGS || j->s->variants[VARIANT_BASELINE] == j->runs_on)
        return ZP_OK;
    zp_status status = apifault_set(&j->fault, 503, "model_changed", NULL,
                                    "the model was replaced before all embeddings were made; try "
                                    "again");
    j->fault.retry_seconds = 1;
    return status; // V1
}

void servejob_keep_vector(struct servejob *j, uint32_t prompt, const float *vector)
{
    size_t width = j->runs_on->info.d_model;
    memcpy(j->vectors + prompt * width, vector, width * sizeof *vector);
    j->n_vectors++;
}

enum apireply_state servejob_embed_event(struct servejob *j, const struct sched_event *e)
{
    if (e->kind < SCHED_DONE) return REPLY_RUNS;
    if (e->kind == SCHED_DONE) return j->n_vectors == j->n_prompts ? REPLY_ENDED : REPLY_RUNS;
    (void)apifault_of_job(&j->reply.fault, servejob_param(j), e);
    if (e->err != NULL) j->reply.err = *e->err;
    return REPLY_FAILED;
}

zp_status servejob_write_vectors(const struct servejob *j, struct buffer *out, zp_err *err)
{
    struct api_usage usage = j->reply.usage;
    const struct plain_vectors v = { .model = j->s->name, .rows = j->vectors, .n = j->n_prompts,
                                     .width = j->runs_on->info.d_model,
                                     .encoding = j->plain.encoding, .usage = &usage };
    usage.n_prompt = 0;
    for (uint32_t i = 0; i < j->n_prompts; i++) usage.n_prompt += j->prompts[i].p.ids.count;
    return j->listed ? plain_write_embedding_list(&v, out, err)
                     : plain_write_embeddings(&v, out, err);
}

/* embed.c: hidden rows become one vector: pooled, and scaled to length 1.
 * Owns: nothing; the caller has the memory. Does not know: how rows are computed.
 * M1 sums are taken in double precision, token after token: the vector depends on the rows alone,
 *    whatever the runs they came from (I1).
 * M2 a pool that wants rows of the beginning reuses nothing: the prefix cache holds keys and
 *    values, no rows. */
#include "model/embed.h"

#include <math.h>

#include "model/engine.h"
#include "model/seq.h"

zp_status embed_resolve(const zp_model *m, zp_pooling asked, zp_pooling *pooling, zp_err *err)
{
    ZP_FAIL_IF((int)asked < 0 || (int)asked > ZP_POOL_FIRST, err, ZP_USAGE, "pooling %d is unknown",
               (int)asked);
    *pooling = asked != ZP_POOL_DEFAULT ? asked : m->h.pooling;
    return ZP_OK;
}

zp_status embed_check(const zp_engine *e, const int32_t *ids, size_t n, zp_err *err)
{
    size_t n_ctx = e->options.n_ctx, n_vocab = e->model->h.n_vocab;
    ZP_FAIL_IF(n == 0, err, ZP_BAD_INPUT, "nothing to embed: at least one token is needed");
    ZP_FAIL_IF(!ids, err, ZP_USAGE, "the ids to embed are missing");
    ZP_FAIL_IF(n > n_ctx, err, ZP_BAD_INPUT,
               "the text of %zu tokens does not fit into the context of %zu positions; raise "
               "--ctx-size",
               n, n_ctx);
    for (size_t i = 0; i < n; i++)
        ZP_FAIL_IF(ids[i] < 0 || (size_t)ids[i] >= n_vocab, err, ZP_BAD_INPUT,
                   "id %d at %zu of the text is outside the vocabulary of %zu", ids[i], i, n_vocab);
    return ZP_OK;
}

bool embed_may_reuse(zp_pooling pooling)
{
    return pooling == ZP_POOL_LAST; // M2
}

zp_want embed_want(const struct embed *m, bool last)
{
    if (m->pooling == ZP_POOL_MEAN) return ZP_WANT_ALL;
    if (m->pooling == ZP_POOL_FIRST) return m->n == 0 ? ZP_WANT_ALL : ZP_WANT_NONE;
    return last ? ZP_WANT_LAST : ZP_WANT_NONE;
}

void embed_add(struct embed *m, const float *row)
{
    bool first = m->n++ == 0;
    if (!first && m->pooling != ZP_POOL_MEAN) return;
    for (size_t i = 0; i < m->width; i++) m->sum[i] = (first ? 0 : m->sum[i]) + (double)row[i];
}

zp_status embed_finish(const struct embed *m, float *out, zp_err *err)
{
    double n = m->pooling == ZP_POOL_MEAN ? (double)m->n : 1, squares = 0;
    for (size_t i = 0; i < m->width; i++) squares += (m->sum[i] / n) * (m->sum[i] / n);
    double length = sqrt(squares), scale = m->raw || length == 0 ? n : n * length;
    for (size_t i = 0; i < m->width; i++) out[i] = (float)(m->sum[i] / scale);
    ZP_FAIL_IF(!isfinite(length), err, ZP_RUN,
               "the hidden states are not finite: the model's weights or the computation are "
               "damaged; `zerope doctor` checks the kernels");
    return ZP_OK;
}

/* ---- one text -------------------------------------------------------------------------------- */

static zp_status run(zp_seq *s, const int32_t *ids, size_t n, struct embed *m,
                     const zp_progress *progress, zp_err *err)
{
    size_t reused = 0;
    if (embed_may_reuse(m->pooling)) ZP_TRY(zp_seq_reuse(s, ids, n, &reused, err));
    const zp_item item = { s, ids + reused, n - reused, embed_want(m, true) };
    const struct engine_job job = { .items = &item, .n_items = 1, .embeds = &m,
                                    .progress = progress };
    return engine_run(s->engine, &job, err);
}

zp_status zp_embed(zp_engine *e, const int32_t *ids, size_t n, const zp_embed_options *options,
                   float *out, zp_err *err)
{
    const zp_embed_options o = options ? *options : (zp_embed_options){ 0 };
    struct embed m = { .raw = o.raw, .width = e->model->h.d_model };
    zp_seq *s = NULL;
    ZP_TRY(embed_resolve(e->model, o.pooling, &m.pooling, err));
    ZP_TRY(embed_check(e, ids, n, err));
    ZP_TRY(zp_seq_open(&s, e, &o.seq, err));
    zp_status status = ZP_OK;
    m.sum = mem_array(MEM_SCRATCH, m.width, sizeof *m.sum);
    if (!m.sum)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for an embedding");
    if (status == ZP_OK) status = run(s, ids, n, &m, &o.progress, err);
    if (status == ZP_OK) status = embed_finish(&m, out, err);
    mem_free(m.sum);
    zp_seq_close(s);
    return status;
}

/* optimiser.c: AdamW (Loshchilov, Hutter: Decoupled weight decay regularization, 2019) over a flat
 * array, with clipping of the global norm.
 * Owns: m, v, the list of blocks. Does not know: what the parameters are, other processes.
 * Threads: one caller; the work is shared over its pool.
 * A1 blocks are fixed when it is opened: sums are made in lanes of a block, then over lanes, then
 *    over blocks, always as the same tree. The bits do not depend on the number of threads.
 * A2 a step either changes all segments that are not frozen or nothing. */
#include "train/optimiser.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

/* BLOCK floats of four arrays are 64 KiB: what the norm has read is gone from the first-level cache
 * in any case. */
enum { BLOCK = 4096, LANES = 8 };
/* A mean that fades away ends at zero: rounded to the nearest, 0.9 of the smallest denormal is the
 * smallest denormal, and each step would compute with it at a tenth of the speed for ever. */
#define FADED 1e-30f

struct opt_block {
    size_t begin, size;
    size_t segment;
};

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status check_segments(size_t n, const struct opt_segment *s, size_t n_segments,
                                zp_err *err)
{
    size_t at = 0;
    for (size_t i = 0; i < n_segments; i++) {
        ZP_FAIL_IF(s[i].offset < at || s[i].offset > n || s[i].size > n - s[i].offset, err,
                   ZP_USAGE,
                   "segment %zu of the optimiser is [%zu, +%zu), expected inside [%zu, %zu)", i,
                   s[i].offset, s[i].size, at, n);
        ZP_FAIL_IF(!(s[i].rate_factor >= 0) || !isfinite(s[i].rate_factor), err, ZP_USAGE,
                   "segment %zu of the optimiser has learning-rate factor %g, expected 0 or more",
                   i, (double)s[i].rate_factor);
        at = s[i].offset + s[i].size;
    }
    return ZP_OK;
}

static zp_status check_options(const struct opt_options *o, zp_err *err)
{
    ZP_FAIL_IF(!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1), err, ZP_USAGE,
               "beta1 is %g and beta2 %g, expected in [0, 1)", o->beta1, o->beta2);
    ZP_FAIL_IF(!(o->eps > 0 && isfinite(o->eps)), err, ZP_USAGE,
               "eps of the optimiser is %g, expected above 0", o->eps);
    ZP_FAIL_IF(!(o->weight_decay >= 0 && isfinite(o->weight_decay)), err, ZP_USAGE,
               "weight decay is %g, expected 0 or more", o->weight_decay);
    ZP_FAIL_IF(!(o->clip_norm >= 0 && isfinite(o->clip_norm)), err, ZP_USAGE,
               "the limit of the gradient's norm is %g, expected 0 (none) or more", o->clip_norm);
    return ZP_OK;
}

static void set_defaults(struct opt_options *o)
{
    if (o->beta1 == 0) o->beta1 = 0.9;
    if (o->beta2 == 0) o->beta2 = 0.95;
    if (o->eps == 0) o->eps = 1e-8;
}

static void list_blocks(struct optimiser *o)
{
    size_t b = 0;
    for (size_t i = 0; i < o->n_segments; i++)
        for (size_t at = 0; at < o->segments[i].size; at += BLOCK) {
            size_t left = o->segments[i].size - at;
            o->blocks[b++] = (struct opt_block){ .begin = o->segments[i].offset + at,
                                                 .size = left < BLOCK ? left : BLOCK,
                                                 .segment = i };
        }
    assert(b == o->n_blocks);
}

static size_t count_blocks(const struct opt_segment *segments, size_t n)
{
    size_t blocks = 0;
    for (size_t i = 0; i < n; i++)
        blocks += segments[i].size / BLOCK + (segments[i].size % BLOCK != 0);
    return blocks;
}

uint64_t opt_bytes(size_t n, const struct opt_segment *segments, size_t n_segments)
{
    const struct optimiser o = { 0 };
    return n_segments * sizeof *o.segments +
           count_blocks(segments, n_segments) * (sizeof *o.blocks + sizeof *o.sums) +
           n * (sizeof *o.m + sizeof *o.v);
}

static zp_status fill(struct optimiser *o, const struct opt_segment *segments, zp_err *err)
{
    o->n_blocks = count_blocks(segments, o->n_segments);
    ZP_ALLOC(o->segments, MEM_OPTIMISER, o->n_segments, err, "the optimiser's segments");
    if (o->n_segments) memcpy(o->segments, segments, o->n_segments * sizeof *segments);
    ZP_ALLOC(o->blocks, MEM_OPTIMISER, o->n_blocks, err, "the optimiser's blocks");
    ZP_ALLOC(o->sums, MEM_OPTIMISER, o->n_blocks, err, "the optimiser's sums");
    o->m = mem_alloc_huge(MEM_OPTIMISER, o->n * sizeof *o->m); /* zero-filled */
    o->v = mem_alloc_huge(MEM_OPTIMISER, o->n * sizeof *o->v);
    ZP_FAIL_IF(!o->m || !o->v, err, ZP_NO_MEMORY,
               "not enough memory for the optimiser's state (2 x %zu x %zu bytes)", o->n,
               sizeof *o->m);
    list_blocks(o);
    return ZP_OK;
}

zp_status opt_open(struct optimiser *o, size_t n, const struct opt_segment *segments,
                   size_t n_segments, const struct opt_options *options, zp_err *err)
{
    *o = (struct optimiser){ .n = n, .n_segments = n_segments, .options = *options };
    set_defaults(&o->options);
    ZP_FAIL_IF(n > SIZE_MAX / 2 / sizeof(float), err, ZP_NO_MEMORY,
               "%zu parameters are more than memory can hold", n);
    ZP_TRY(check_options(&o->options, err));
    ZP_TRY(check_segments(n, segments, n_segments, err));
    zp_status status = fill(o, segments, err);
    if (status != ZP_OK) opt_free(o);
    return status;
}

void opt_free(struct optimiser *o)
{
    mem_free_huge(MEM_OPTIMISER, o->m, o->n * sizeof *o->m);
    mem_free_huge(MEM_OPTIMISER, o->v, o->n * sizeof *o->v);
    mem_free(o->segments);
    mem_free(o->blocks);
    mem_free(o->sums);
    *o = (struct optimiser){ 0 };
}

/* ---- the norm -------------------------------------------------------------------------------- */

/* Sum of x[0..n), n > 0, as a tree of halves. */
static double sum_tree(const double *x, size_t n)
{
    if (n == 1) return x[0];
    return sum_tree(x, n - n / 2) + sum_tree(x + (n - n / 2), n / 2);
}

static double sum_squares(const float *dx, size_t n)
{
    double lane[LANES] = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += (double)dx[i + l] * dx[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += (double)dx[i] * dx[i];
    return sum_tree(lane, LANES);
}

/* ---- the step -------------------------------------------------------------------------------- */

struct step {
    struct optimiser *o;
    float *x;
    const float *dx;
    double rate;
    float scale;           /* of the gradient */
    float unbias1, unbias2; /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
};

static void sum_blocks(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct step *s = arg;
    size_t b, end;
    pool_share(s->o->n_blocks, 1, thread, n_threads, &b, &end);
    for (; b < end; b++) {
        const struct opt_block *block = &s->o->blocks[b];
        bool frozen = s->o->segments[block->segment].frozen;
        s->o->sums[b] = frozen ? 0 : sum_squares(s->dx + block->begin, block->size);
    }
}

static float without_fading(float x)
{
    return x < FADED && x > -FADED ? 0 : x;
}

/* Memory sets the pace: 16 bytes read and 12 written a parameter. */
static void move_block(const struct step *s, const struct opt_block *block)
{
    const struct opt_options *p = &s->o->options;
    const struct opt_segment *segment = &s->o->segments[block->segment];
    double rate = s->rate * segment->rate_factor;
    const float b1 = (float)p->beta1, a1 = (float)(1 - p->beta1), b2 = (float)p->beta2,
                a2 = (float)(1 - p->beta2), eps = (float)p->eps, scale = s->scale,
                move = (float)(rate * s->unbias1), unbias2 = s->unbias2,
                keep = (float)(1 - (segment->decays ? rate * p->weight_decay : 0));
    float *ZP_RESTRICT x = s->x + block->begin, *ZP_RESTRICT m = s->o->m + block->begin,
          *ZP_RESTRICT v = s->o->v + block->begin;
    const float *ZP_RESTRICT dx = s->dx + block->begin;
    for (size_t i = 0; i < block->size; i++) {
        float g = dx[i] * scale;
        float mean = without_fading(b1 * m[i] + a1 * g);
        float square = without_fading(b2 * v[i] + a2 * g * g);
        m[i] = mean;
        v[i] = square;
        x[i] = keep * x[i] - move * mean / (sqrtf(square) * unbias2 + eps);
    }
}

static void move_blocks(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct step *s = arg;
    size_t b, end;
    pool_share(s->o->n_blocks, 1, thread, n_threads, &b, &end);
    for (; b < end; b++)
        if (!s->o->segments[s->o->blocks[b].segment].frozen) move_block(s, &s->o->blocks[b]);
}

static void run(struct pool *pool, pool_fn fn, struct step *s)
{
    if (pool == NULL) fn(s, 0, 1);
    else pool_run(pool, fn, s);
}

/* Squares of floats do not overflow a double: a sum is finite where all gradients are. */
static size_t find_bad(const struct optimiser *o)
{
    for (size_t b = 0; b < o->n_blocks; b++)
        if (!isfinite(o->sums[b])) return o->blocks[b].segment;
    return o->n_segments;
}

void opt_step(struct optimiser *o, struct pool *pool, float *x, const float *dx, double rate,
              double scale, struct opt_report *out)
{
    struct step s = { .o = o, .x = x, .dx = dx, .rate = rate };
    run(pool, sum_blocks, &s);
    double norm = o->n_blocks ? sqrt(sum_tree(o->sums, o->n_blocks)) * fabs(scale) : 0; // A1
    double most = o->options.clip_norm;
    *out = (struct opt_report){ .grad_norm = norm,
                                .clip_factor = most > 0 && norm > most ? most / norm : 1,
                                .bad_segment = find_bad(o) };
    out->skipped = !isfinite(norm) || !isfinite(rate);
    if (out->skipped) return; // A2
    o->steps++;
    s.scale = (float)(scale * out->clip_factor);
    s.unbias1 = (float)(1 / (1 - pow(o->options.beta1, (double)o->steps)));
    s.unbias2 = (float)(1 / sqrt(1 - pow(o->options.beta2, (double)o->steps)));
    run(pool, move_blocks, &s);
}

void opt_freeze(struct optimiser *o, size_t segment)
{
    assert(segment < o->n_segments);
    struct opt_segment *s = &o->segments[segment];
    s->frozen = true;
    memset(o->m + s->offset, 0, s->size * sizeof *o->m);
    memset(o->v + s->offset, 0, s->size * sizeof *o->v);
}

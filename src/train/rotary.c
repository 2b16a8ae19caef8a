/* rotary.c: rotation of queries and keys by row, and its gradients.
 * Owns: nothing; tables and scratch are the caller's.
 * Y1 sums over rows for dgate: blocks of ROWS rows, then blocks in ascending order. */
#include "train/rotary.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { ROWS = 64 };

struct table_job {
    size_t n_rows, n_pair;
    const int32_t *position;
    const double *angle;
    float *cs;
};

static void table_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct table_job *j = arg;
    size_t begin, end;
    pool_share(j->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t i = 0; i < j->n_pair; i++) {
            double at = j->position[r] * j->angle[i];
            j->cs[(r * j->n_pair + i) * 2] = (float)cos(at);
            j->cs[(r * j->n_pair + i) * 2 + 1] = (float)sin(at);
        }
}

void rotary_table(struct pool *pool, size_t n_rows, const int32_t *position, size_t n_pair,
                  const double *angle, float *cs)
{
    struct table_job j = { n_rows, n_pair, position, angle, cs };
    pool_run(pool, table_share, &j);
}

/* ---- hard form ------------------------------------------------------------------------------- */

struct turn_job {
    const struct kern_table *t;
    const struct rotary *a;
    size_t n_heads;
    const uint8_t *open;
    bool back;
    float *x;
};

/* Closed pairs turn by (1, 0), which keeps their bits. */
static void choose_angles(const float *cs, const uint8_t *open, bool back, size_t n_pair,
                          float *out)
{
    for (size_t i = 0; i < n_pair; i++) {
        bool turns = !open || open[i];
        float sine = back ? -cs[2 * i + 1] : cs[2 * i + 1];
        out[2 * i] = turns ? cs[2 * i] : 1.0f;
        out[2 * i + 1] = turns ? sine : 0.0f;
    }
}

static void turn_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct turn_job *j = arg;
    const struct rotary *a = j->a;
    float cs[2 * ROTARY_MOST_PAIRS];
    size_t begin, end, group = j->n_heads / a->n_kv;
    pool_share(a->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t kv = 0; kv < a->n_kv; kv++) {
            float *x = j->x + (r * j->n_heads + kv * group) * a->d_head;
            choose_angles(a->cs + r * a->n_pair * 2, j->open ? j->open + kv * a->n_pair : NULL,
                          j->back, a->n_pair, cs);
            for (size_t h = 0; h < group; h++) j->t->rotate(x + h * a->d_head, cs, a->n_pair);
        }
}

void rotary_turn(struct pool *pool, const struct kern_table *t, const struct rotary *a,
                 size_t n_heads, const uint8_t *open, bool back, float *x)
{
    assert(a->n_pair <= ROTARY_MOST_PAIRS && n_heads % a->n_kv == 0);
    struct turn_job j = { t, a, n_heads, open, back, x };
    pool_run(pool, turn_share, &j);
}

/* ---- score mix ------------------------------------------------------------------------------- */

struct mix_job {
    struct pool *pool;
    const struct rotary *a;
    const float *gate, *q, *k;
    float *wide_q, *wide_k;
    const float *dwide_q, *dwide_k;
    float *dq, *dk, *dgate, *partial; /* partial (blocks, n_kv, n_pair) */
};

/* gate NULL: a key, which both halves hold whole. */
static void mix_head(const struct rotary *a, const float *cs, const float *gate, const float *x,
                     float *wide)
{
    float *turned = wide, *plain = wide + a->d_head;
    for (size_t i = 0; i < a->n_pair; i++) {
        float g = gate ? gate[i] : 1.0f, rest = gate ? 1.0f - g : 1.0f;
        float even = x[2 * i], odd = x[2 * i + 1], c = cs[2 * i], s = cs[2 * i + 1];
        turned[2 * i] = g * (even * c - odd * s);
        turned[2 * i + 1] = g * (odd * c + even * s);
        plain[2 * i] = rest * even;
        plain[2 * i + 1] = rest * odd;
    }
    for (size_t i = 2 * a->n_pair; i < a->d_head; i++) {
        turned[i] = x[i];
        plain[i] = gate ? 0.0f : x[i];
    }
}

static void mix_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct mix_job *j = arg;
    const struct rotary *a = j->a;
    size_t begin, end, group = a->n_head / a->n_kv, d = a->d_head;
    pool_share(a->n_rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *cs = a->cs + r * a->n_pair * 2;
        for (size_t h = 0; h < a->n_head; h++) {
            size_t at = r * a->n_head + h;
            mix_head(a, cs, j->gate + h / group * a->n_pair, j->q + at * d, j->wide_q + at * 2 * d);
        }
        for (size_t kv = 0; kv < a->n_kv; kv++) {
            size_t at = r * a->n_kv + kv;
            mix_head(a, cs, NULL, j->k + at * d, j->wide_k + at * 2 * d);
        }
    }
}

void rotary_mix(struct pool *pool, const struct rotary *a, const float *gate, const float *q,
                const float *k, float *wide_q, float *wide_k)
{
    struct mix_job j = { .pool = pool, .a = a, .gate = gate, .q = q, .k = k, .wide_q = wide_q,
                         .wide_k = wide_k };
    pool_run(pool, mix_share, &j);
}

static size_t blocks_of(const struct rotary *a)
{
    return (a->n_rows + ROWS - 1) / ROWS;
}

size_t rotary_mix_scratch(const struct rotary *a)
{
    return blocks_of(a) * a->n_kv * a->n_pair;
}

/* dx = R^T (g d1) + (1 - g) d2. */
static void unmix_head(const struct rotary *a, const float *cs, const float *gate,
                       const float *dwide, float *dx)
{
    const float *turned = dwide, *plain = dwide + a->d_head;
    for (size_t i = 0; i < a->n_pair; i++) {
        float g = gate ? gate[i] : 1.0f, rest = gate ? 1.0f - g : 1.0f;
        float even = turned[2 * i], odd = turned[2 * i + 1], c = cs[2 * i], s = cs[2 * i + 1];
        dx[2 * i] = g * (even * c + odd * s) + rest * plain[2 * i];
        dx[2 * i + 1] = g * (odd * c - even * s) + rest * plain[2 * i + 1];
    }
    for (size_t i = 2 * a->n_pair; i < a->d_head; i++)
        dx[i] = gate ? turned[i] : turned[i] + plain[i];
}

/* dgate += d1 . R q - d2 . q, pair by pair. */
static void add_gate_head(const struct rotary *a, const float *cs, const float *q,
                          const float *dwide, float *dgate)
{
    const float *turned = dwide, *plain = dwide + a->d_head;
    for (size_t i = 0; i < a->n_pair; i++) {
        float even = q[2 * i], odd = q[2 * i + 1], c = cs[2 * i], s = cs[2 * i + 1];
        dgate[i] += turned[2 * i] * (even * c - odd * s) +
                    turned[2 * i + 1] * (odd * c + even * s) -
                    (plain[2 * i] * even + plain[2 * i + 1] * odd);
    }
}

static void unmix_row(const struct mix_job *j, size_t r, float *partial)
{
    const struct rotary *a = j->a;
    size_t group = a->n_head / a->n_kv, d = a->d_head;
    const float *cs = a->cs + r * a->n_pair * 2;
    for (size_t h = 0; h < a->n_head; h++) {
        size_t at = r * a->n_head + h, gate_at = h / group * a->n_pair;
        const float *dwide = j->dwide_q + at * 2 * d;
        if (partial) add_gate_head(a, cs, j->q + at * d, dwide, partial + gate_at);
        unmix_head(a, cs, j->gate + gate_at, dwide, j->dq + at * d);
    }
    for (size_t kv = 0; kv < a->n_kv; kv++) {
        size_t at = r * a->n_kv + kv;
        unmix_head(a, cs, NULL, j->dwide_k + at * 2 * d, j->dk + at * d);
    }
}

static void unmix_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct mix_job *j = arg;
    const struct rotary *a = j->a;
    size_t n_blocks = blocks_of(a), n_gate = a->n_kv * a->n_pair, begin, end;
    pool_share(n_blocks, 1, thread, n_threads, &begin, &end);
    for (size_t b = begin; b < end; b++) {
        float *partial = j->dgate ? j->partial + b * n_gate : NULL;
        if (partial) memset(partial, 0, n_gate * sizeof *partial);
        for (size_t r = b * ROWS; r < a->n_rows && r < (b + 1) * ROWS; r++)
            unmix_row(j, r, partial);
    }
    if (!j->dgate) return;
    pool_barrier(j->pool, thread);
    pool_share(n_gate, 16, thread, n_threads, &begin, &end);
    for (size_t b = 0; b < n_blocks; b++) // Y1
        for (size_t i = begin; i < end; i++) j->dgate[i] += j->partial[b * n_gate + i];
}

void rotary_mix_back(struct pool *pool, const struct rotary *a, const float *gate, const float *q,
                     const float *dwide_q, const float *dwide_k, float *dq, float *dk, float *dgate,
                     float *scratch)
{
    struct mix_job j = { .pool = pool, .a = a, .gate = gate, .q = q, .dwide_q = dwide_q,
                         .dwide_k = dwide_k, .dq = dq, .dk = dk, .dgate = dgate,
                         .partial = scratch };
    pool_run(pool, unmix_share, &j);
}

/* loss.c: output layer and loss in one, in chunks of rows, by panels of the output matrix.
 * Owns: logits of one chunk, of the student and of the teacher, what each row came to, and a panel
 * of an output matrix that is not there as a whole.
 * With p = softmax(logits), t the teacher's: dlogits = ce (p - onehot) + kl (p - t), written over
 * the logits.
 * L1 sums over rows are taken in ascending order, after each chunk, by one thread.
 * L2 the size of chunks depends on n_vocab only: dw_out is a sum over chunks; that of panels on the
 *    matrix's width only: dhidden is a sum over panels.
 * L3 a drawn label depends on its row's logits and number alone. */
#include "train/loss.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/rng.h"

enum { CHUNK_FLOATS = 16 << 20, CHUNK_UNIT = 16, CHUNK_MOST = 512, DRAW_STEP = 64 };
enum { PANEL_FLOATS = 4 << 20 };

/* What one row came to. */
struct row_sums {
    double ce, kl;
    bool same_top;
};

struct loss {
    struct gemm *g;
    struct kern_table kern;
    size_t n_vocab, chunk;
    float *logits, *teacher; /* (chunk, n_vocab) */
    struct row_sums *rows;   /* (chunk) */
    float *room;             /* (panel, d) */
};

static size_t chunk_rows(size_t n_vocab)
{
    size_t rows = CHUNK_FLOATS / n_vocab / CHUNK_UNIT * CHUNK_UNIT; // L2
    if (rows < CHUNK_UNIT) return CHUNK_UNIT;
    return rows < CHUNK_MOST ? rows : CHUNK_MOST;
}

/* Rows of an output matrix at a time. */
static size_t panel_rows(size_t n_vocab, size_t d)
{
    size_t rows = PANEL_FLOATS / d / CHUNK_UNIT * CHUNK_UNIT; // L2
    if (rows < CHUNK_UNIT) rows = CHUNK_UNIT;
    return rows < n_vocab ? rows : n_vocab;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t room_floats(const struct loss_shape *s)
{
    size_t mine = panel_rows(s->n_vocab, s->d) * s->d;
    size_t other = s->teacher_d ? panel_rows(s->n_vocab, s->teacher_d) * s->teacher_d : 0;
    return s->in_pieces ? largest(mine, other) : 0;
}

uint64_t loss_bytes(const struct loss_shape *s)
{
    uint64_t chunk = chunk_rows(s->n_vocab), logits = chunk * s->n_vocab * sizeof(float);
    return sizeof(struct loss) + (s->teacher_d ? 2 : 1) * logits +
           chunk * sizeof(struct row_sums) + room_floats(s) * sizeof(float);
}

size_t loss_operands(const struct loss_shape *s)
{
    size_t chunk = chunk_rows(s->n_vocab), panel = panel_rows(s->n_vocab, s->d), other = 0;
    if (s->teacher_d) other = (chunk + panel_rows(s->n_vocab, s->teacher_d)) * s->teacher_d;
    return largest(other, chunk * s->d + panel * largest(chunk, s->d));
}

static zp_status fill(struct loss *l, const struct loss_shape *s, zp_err *err)
{
    size_t n = l->chunk * l->n_vocab;
    ZP_ALLOC(l->logits, MEM_PRODUCT, n, err, "logits");
    if (s->teacher_d) ZP_ALLOC(l->teacher, MEM_PRODUCT, n, err, "the teacher's logits");
    ZP_ALLOC(l->rows, MEM_PRODUCT, l->chunk, err, "losses of rows");
    ZP_ALLOC(l->room, MEM_PRODUCT, room_floats(s), err, "an output matrix");
    return gemm_reserve(l->g, loss_operands(s), err);
}

zp_status loss_open(struct loss **out, struct gemm *g, const struct loss_shape *shape, zp_err *err)
{
    *out = NULL;
    ZP_FAIL_IF(shape->n_vocab == 0 || shape->d == 0, err, ZP_USAGE, "no tokens to choose from");
    struct loss *l = mem_zalloc(MEM_PRODUCT, sizeof *l);
    ZP_FAIL_IF(!l, err, ZP_NO_MEMORY, "not enough memory for a loss");
    l->g = g;
    l->n_vocab = shape->n_vocab;
    l->chunk = chunk_rows(shape->n_vocab);
    kern_table_init(&l->kern, KERN_LEVEL_COUNT - 1);
    zp_status status = fill(l, shape, err);
    if (status == ZP_OK) *out = l;
    else loss_close(l);
    return status;
}

void loss_close(struct loss *l)
{
    if (!l) return;
    mem_free(l->logits);
    mem_free(l->teacher);
    mem_free(l->rows);
    mem_free(l->room);
    mem_free(l);
}

struct job {
    struct loss *l;
    const struct loss_batch *b;
    size_t first, n; /* rows of the chunk */
};

static size_t find_top(const float *x, size_t n, float max)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] == max) return i;
    return n; /* NaN */
}

static bool counts(const struct loss_batch *b, size_t row)
{
    return b->target[row] >= 0 && (!b->weight || b->weight[row] != 0.0f);
}

/* x becomes its softmax times factor. */
static void soften(const struct loss *l, float *x, float max, double sum, float factor)
{
    l->kern.exp_row(x, l->n_vocab, max, (float)((double)factor / sum));
}

/* The first token at which the running sum of exp(x - max) passes point. */
static size_t find_drawn(const struct loss *l, const float *x, float max, double point)
{
    float e[DRAW_STEP];
    size_t last = 0; /* with a probability: rounding may end the sum before the point */
    double sum = 0;
    for (size_t i = 0; i < l->n_vocab; i += DRAW_STEP) {
        size_t n = l->n_vocab - i < DRAW_STEP ? l->n_vocab - i : DRAW_STEP;
        memcpy(e, x + i, n * sizeof *e);
        l->kern.exp_row(e, n, max, 1);
        for (size_t k = 0; k < n; k++) {
            if (e[k] > 0) last = i + k;
            sum += (double)e[k];
            if (sum > point) return i + k;
        }
    }
    return last;
}

static size_t draw_label(const struct loss *l, const struct loss_draw *d, size_t row,
                         const float *x, float max, double sum)
{
    size_t label = find_drawn(l, x, max, rng_unit_at(d->seed, d->stream, row) * sum);
    if (d->label) d->label[row] = (int32_t)label;
    return label;
}

static void run_row(const struct job *j, size_t i)
{
    const struct loss_batch *b = j->b;
    size_t n = j->l->n_vocab, row = j->first + i, target = (size_t)b->target[row];
    float *x = j->l->logits + i * n, *t = b->teacher_hidden ? j->l->teacher + i * n : NULL;
    struct row_sums *out = &j->l->rows[i];
    assert(target < n);
    float max, teacher_max = 0;
    double sum, teacher_sum = 0;
    j->l->kern.expsum(x, n, &max, &sum);
    if (b->draw) target = draw_label(j->l, b->draw, row, x, max, sum);
    out->ce = log(sum) - ((double)x[target] - (double)max);
    out->kl = 0;
    out->same_top = false;
    if (t) {
        j->l->kern.expsum(t, n, &teacher_max, &teacher_sum);
        out->kl = j->l->kern.kl_row(t, teacher_max, teacher_sum, x, max, sum, n);
        size_t top = find_top(x, n, max);
        out->same_top = top < n && top == find_top(t, n, teacher_max);
    }
    if (!b->dhidden) return;
    float scale = b->grad_scale * (b->weight ? b->weight[row] : 1.0f);
    float ce = scale * b->ce_weight, kl = t ? scale * b->kl_weight : 0;
    soften(j->l, x, max, sum, ce + kl);
    x[target] -= ce;
    if (kl == 0.0f) return;
    soften(j->l, t, teacher_max, teacher_sum, kl);
    j->l->kern.add_scaled(x, t, -1, x, n);
}

static void skip_row(const struct job *j, size_t i)
{
    const struct loss_draw *d = j->b->draw;
    memset(j->l->logits + i * j->l->n_vocab, 0, j->l->n_vocab * sizeof(float));
    if (d && d->label) d->label[j->first + i] = -1;
}

static void run_rows(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        if (counts(j->b, j->first + i)) run_row(j, i);
        else skip_row(j, i);
    }
}

static void add_rows(const struct job *j, struct loss_sums *out)
{
    for (size_t i = 0; i < j->n; i++) { // L1
        if (!counts(j->b, j->first + i)) continue;
        const struct row_sums *row = &j->l->rows[i];
        double weight = j->b->weight ? (double)j->b->weight[j->first + i] : 1.0;
        out->ce += weight * row->ce;
        out->kl += weight * row->kl;
        out->weight += weight;
        out->n_rows++;
        out->same_top += row->same_top;
    }
}

static const float *rows_of(const struct loss *l, const struct loss_matrix *w, size_t d, size_t at,
                            size_t m)
{
    return w->w ? w->w + at * d : w->rows(w->arg, at, m, l->room);
}

/* logits (j->n, n_vocab) = hidden w^T, a panel at a time. */
static void multiply(const struct job *j, const struct loss_matrix *w, size_t d,
                     const float *hidden, float *logits)
{
    struct loss *l = j->l;
    size_t n_vocab = l->n_vocab, panel = panel_rows(n_vocab, d);
    for (size_t at = 0, m; at < n_vocab; at += m) {
        m = n_vocab - at < panel ? n_vocab - at : panel;
        gemm_nt(l->g, j->n, m, d, hidden + j->first * d, d, rows_of(l, w, d, at, m), d,
                logits + at, n_vocab, false);
    }
}

/* From the gradients of logits to those of hidden rows and the output matrix. */
static void multiply_back(const struct job *j)
{
    const struct loss_batch *b = j->b;
    struct loss *l = j->l;
    size_t n_vocab = l->n_vocab, d = b->d, panel = panel_rows(n_vocab, d), from = j->first * d;
    for (size_t at = 0, m; at < n_vocab; at += m) {
        m = n_vocab - at < panel ? n_vocab - at : panel;
        gemm_nn(l->g, j->n, d, m, l->logits + at, n_vocab, rows_of(l, &b->w_out, d, at, m), d,
                b->dhidden + from, d, at > 0);
        if (b->dw_out)
            gemm_tn(l->g, m, d, j->n, l->logits + at, n_vocab, b->hidden + from, d,
                    b->dw_out + at * d, d, true);
    }
}

static void run_chunk(struct job *j, struct loss_sums *out)
{
    const struct loss_batch *b = j->b;
    multiply(j, &b->w_out, b->d, b->hidden, j->l->logits);
    if (b->teacher_hidden)
        multiply(j, &b->teacher_w_out, b->teacher_d, b->teacher_hidden, j->l->teacher);
    pool_run(gemm_pool(j->l->g), run_rows, j);
    add_rows(j, out);
    if (b->dhidden) multiply_back(j);
}

void loss_run(struct loss *l, const struct loss_batch *b, struct loss_sums *out)
{
    *out = (struct loss_sums){ 0 };
    struct job j = { .l = l, .b = b };
    for (j.first = 0; j.first < b->n_rows; j.first += j.n) {
        j.n = b->n_rows - j.first < l->chunk ? b->n_rows - j.first : l->chunk;
        run_chunk(&j, out);
    }
}

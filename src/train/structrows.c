/* structrows.c: a structure head on rows of training.
 * Owns: nothing. Threads share rows where nothing is summed over them, else what is summed: every
 * sum has one order. */
#include "train/structrows.h"

#include <math.h>

enum { GRAIN = 64, COLUMNS = 16 };

struct job {
    struct pool *pool;
    const struct kern_table *t;
    const struct structrows *a;
    size_t n_head, n_rows;
    const float *bias, *in, *dout;
    float *p, *heard, *out, *dweight, *dgate, *dx;
    double *scratch;
};

/* ln(1 + exp(z)) */
static double softplus(double z)
{
    return (z > 0 ? z : 0) + log1p(exp(-fabs(z)));
}

static double sigmoid(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

static bool counts(const struct structrows *a, size_t row)
{
    return a->tags && a->target[row] >= 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* 1 - p of a detector's logit z and the gate's, without cancellation; above 0. */
static double rest_of(double z, double gate)
{
    double rest = sigmoid(-z) + sigmoid(z) * sigmoid(-gate);
    return rest > 1e-300 ? rest : 1e-300;
}

/* -ln p = softplus(-z) + softplus(-gate). */
static double loss_of(const struct structrows *a, size_t row, const double *z)
{
    double gate = z[STRUCT_TYPES], sum = 0;
    for (size_t k = 0; k < STRUCT_TYPES; k++)
        sum += a->tags[row] >> k & 1 ? softplus(-z[k]) + softplus(-gate)
                                     : -log(rest_of(z[k], gate));
    return sum;
}

static void detect_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    const struct structrows *a = j->a;
    size_t begin, end, n = a->n_rows;
    pool_share(n, GRAIN, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        double z[STRUCT_LOGITS];
        (void)structhead_logits(a->weight, a->gate, a->eps, a->x + r * a->d, a->d, z);
        structhead_detect(z, j->p + r, n);
        for (size_t k = 0; k < STRUCT_TYPES; k++) {
            bool heard = !a->keep || a->keep[r] >> k & 1;
            j->heard[k * n + r] = heard ? j->p[k * n + r] * (a->keep ? a->kept : 1.0f) : 0.0f;
        }
        j->scratch[r] = counts(a, r) ? loss_of(a, r, z) : 0;
    }
}

double structrows_detect(struct pool *pool, const struct structrows *a, float *p, float *heard,
                         double *scratch)
{
    struct job j = { .a = a, .p = p, .heard = heard, .scratch = scratch };
    double sum = 0;
    pool_run(pool, detect_share, &j);
    for (size_t r = 0; r < a->n_rows; r++) sum += scratch[r];
    return sum;
}

static void bias_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end, n = j->n_rows;
    pool_share(n, GRAIN, thread, n_threads, &begin, &end);
    for (size_t h = 0; h < j->n_head; h++)
        j->t->weigh_lists(j->in + begin, n, j->bias + h * STRUCT_TYPES, STRUCT_TYPES,
                          j->out + h * n + begin, end - begin);
}

void structrows_bias(struct pool *pool, const struct kern_table *t, size_t n_head, size_t n_rows,
                     const float *bias, const float *heard, float *out)
{
    struct job j = { .t = t, .n_head = n_head, .n_rows = n_rows, .bias = bias, .in = heard,
                     .out = out };
    pool_run(pool, bias_share, &j);
}

/* ---- backward -------------------------------------------------------------------------------- */

static void bias_back_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end, n = j->n_rows;
    pool_share(n, GRAIN, thread, n_threads, &begin, &end);
    for (size_t k = 0; k < STRUCT_TYPES; k++)
        for (size_t h = 0; h < j->n_head; h++)
            for (size_t r = begin; r < end; r++)
                j->out[k * n + r] += j->bias[h * STRUCT_TYPES + k] * j->dout[h * n + r];
    pool_share(j->dweight ? j->n_head * STRUCT_TYPES : 0, 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *dout = j->dout + i / STRUCT_TYPES * n, *in = j->in + i % STRUCT_TYPES * n;
        double sum = 0;
        for (size_t r = 0; r < n; r++) sum += (double)dout[r] * (double)in[r];
        j->dweight[i] += (float)sum;
    }
}

void structrows_bias_back(struct pool *pool, size_t n_head, size_t n_rows, const float *bias,
                          const float *heard, const float *dout, float *dbias, float *dheard)
{
    struct job j = { .n_head = n_head, .n_rows = n_rows, .bias = bias, .in = heard, .dout = dout,
                     .dweight = dbias, .out = dheard };
    pool_run(pool, bias_back_share, &j);
}

/* dz (STRUCT_LOGITS): the gradient by a row's logits z. */
static void slopes_of(const struct job *j, size_t row, const double *z, double *dz)
{
    const struct structrows *a = j->a;
    double gate = sigmoid(z[STRUCT_TYPES]), shut = sigmoid(-z[STRUCT_TYPES]);
    dz[STRUCT_TYPES] = 0;
    for (size_t k = 0; k < STRUCT_TYPES; k++) {
        double s = sigmoid(z[k]), off = sigmoid(-z[k]), dp = 0;
        if (!a->keep) dp = (double)j->in[k * a->n_rows + row];
        else if (a->keep[row] >> k & 1)
            dp = (double)j->in[k * a->n_rows + row] * (double)a->kept;
        dz[k] = dp * gate * s * off;
        dz[STRUCT_TYPES] += dp * s * gate * shut;
        if (!counts(a, row)) continue;
        double p_over_rest = s * gate / rest_of(z[k], z[STRUCT_TYPES]);
        double slope = (double)a->tag_weight * (a->tags[row] >> k & 1 ? -1 : p_over_rest);
        dz[k] += slope * off;
        dz[STRUCT_TYPES] += slope * shut;
    }
}

/* dx of the norm: (du - u mean(u . du)) / rms, with du = sum over logits of dz times their
 * weights. */
static void add_inward(const struct job *j, size_t row, double inverse, const double *dz)
{
    const struct structrows *a = j->a;
    const float *x = a->x + row * a->d;
    float *dx = j->dx + row * a->d;
    double dot = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < a->d; i++) {
            double du = dz[STRUCT_TYPES] * (double)a->gate[i], u = (double)x[i] * inverse;
            for (size_t k = 0; k < STRUCT_TYPES; k++)
                du += dz[k] * (double)a->weight[k * a->d + i];
            if (pass == 0) dot += u * du;
            else dx[i] += (float)((du - u * dot / (double)a->d) * inverse);
        }
}

static void add_weights(const struct job *j, size_t begin, size_t end)
{
    const struct structrows *a = j->a;
    for (size_t r = 0; r < a->n_rows; r++) {
        const double *dz = j->scratch + r * (STRUCT_LOGITS + 1);
        const float *x = a->x + r * a->d;
        double inverse = dz[STRUCT_LOGITS];
        for (size_t k = 0; k < STRUCT_LOGITS; k++) {
            float *to = k == STRUCT_TYPES ? j->dgate : j->dweight ? j->dweight + k * a->d : NULL;
            float scale = (float)(dz[k] * inverse);
            for (size_t i = begin; to && i < end; i++) to[i] += scale * x[i];
        }
    }
}

static void back_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    const struct structrows *a = j->a;
    size_t begin, end;
    pool_share(a->n_rows, GRAIN, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        double z[STRUCT_LOGITS], *dz = j->scratch + r * (STRUCT_LOGITS + 1);
        dz[STRUCT_LOGITS] =
            structhead_logits(a->weight, a->gate, a->eps, a->x + r * a->d, a->d, z);
        slopes_of(j, r, z, dz);
        add_inward(j, r, dz[STRUCT_LOGITS], dz);
    }
    pool_barrier(j->pool, thread);
    pool_share(a->d, COLUMNS, thread, n_threads, &begin, &end);
    add_weights(j, begin, end);
}

void structrows_back(struct pool *pool, const struct structrows *a, const float *dheard,
                     float *dweight, float *dgate, float *dx, double *scratch)
{
    struct job j = { .pool = pool, .a = a, .in = dheard, .dweight = dweight, .dgate = dgate,
                     .dx = dx, .scratch = scratch };
    pool_run(pool, back_share, &j);
}

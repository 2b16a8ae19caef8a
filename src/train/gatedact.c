/* gatedact.c: gated activations and their gradients.
 * Owns: nothing. With s = 1 / (1 + exp(-u)), u = gate for SiLU and sqrt(8 / pi) (x + 0.044715 x^3)
 * for GELU: act = x s, act' = s + x s (1 - s) u'. */
#include "train/gatedact.h"

#include "train/softexp.h"

enum { GRAIN = 1024 };

struct job {
    const struct kern_table *t;
    enum gatedact_kind kind;
    size_t n;
    const float *gate, *up, *dy;
    float *y, *dgate, *dup;
};

static void forward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, GRAIN, thread, n_threads, &begin, &end);
    kern_gated_act_fn act = j->kind == GATEDACT_SILU ? j->t->silu_mul : j->t->gelu_mul;
    act(j->gate + begin, j->up + begin, j->y + begin, end - begin);
}

void gatedact_forward(struct pool *pool, const struct kern_table *t, enum gatedact_kind kind,
                      size_t n, const float *gate, const float *up, float *y)
{
    struct job j = { .t = t, .kind = kind, .n = n, .gate = gate, .up = up, .y = y };
    pool_run(pool, forward_share, &j);
}

struct slopes {
    softexp_lanes act, slope;
};

static struct slopes derive(enum gatedact_kind kind, softexp_lanes x)
{
    const float root = 1.5957691216057308f, cube = 0.044715f;
    softexp_lanes u = x, du = { 1, 1, 1, 1 };
    if (kind == GATEDACT_GELU) {
        softexp_lanes square = x * x;
        u = root * (x + cube * square * x);
        du = root * (1.0f + 3 * cube * square);
    }
    softexp_lanes s = 1.0f / (1.0f + softexp(-u)), act = x * s;
    /* far out du overflows before 1 - s is 0 */
    softexp_lanes bend = softexp_choose((s == 0.0f) | (s == 1.0f), x * 0.0f, act * (1.0f - s) * du);
    return (struct slopes){ act, s + bend };
}

static void backward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, GRAIN, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i += SOFTEXP_LANES) {
        size_t n = end - i;
        softexp_lanes dy = softexp_load(j->dy + i, n), up = softexp_load(j->up + i, n);
        struct slopes s = derive(j->kind, softexp_load(j->gate + i, n));
        softexp_store(j->dgate + i, n, dy * up * s.slope);
        softexp_store(j->dup + i, n, dy * s.act);
    }
}

void gatedact_backward(struct pool *pool, enum gatedact_kind kind, size_t n, const float *gate,
                       const float *up, const float *dy, float *dgate, float *dup)
{
    struct job j = { .kind = kind, .n = n, .gate = gate, .up = up, .dy = dy, .dgate = dgate,
                     .dup = dup };
    pool_run(pool, backward_share, &j);
}

/* gatedact.c: gated activations and their gradients: the table's kernels on all threads.
 * Owns: nothing. */
#include "train/gatedact.h"

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

static void backward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    pool_share(j->n, GRAIN, thread, n_threads, &begin, &end);
    kern_gated_back_fn back = j->kind == GATEDACT_SILU ? j->t->silu_back : j->t->gelu_back;
    back(j->gate + begin, j->up + begin, j->dy + begin, j->dgate + begin, j->dup + begin,
         end - begin);
}

void gatedact_backward(struct pool *pool, const struct kern_table *t, enum gatedact_kind kind,
                       size_t n, const float *gate, const float *up, const float *dy,
                       float *dgate, float *dup)
{
    struct job j = { .t = t, .kind = kind, .n = n, .gate = gate, .up = up, .dy = dy,
                     .dgate = dgate, .dup = dup };
    pool_run(pool, backward_share, &j);
}

/* gatedact.c: gated activations and their gradients.
 * Owns: nothing. With s = 1 / (1 + exp(-u)), u = gate for SiLU and sqrt(8 / pi) (x + 0.044715 x^3)
 * for GELU: act = x s, act' = s + x s (1 - s) u'. */
#include "train/gatedact.h"

#include "train/softexp.h"

enum { GRAIN = 1024, PIECE = 256 };

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

/* act and act' of a piece. */
static void derive(enum gatedact_kind kind, const float *x, size_t n, float *ZP_RESTRICT act,
                   float *ZP_RESTRICT slope)
{
    const float root = 1.5957691216057308f, cube = 0.044715f;
    if (kind == GATEDACT_SILU) {
        for (size_t i = 0; i < n; i++) {
            float s = 1.0f / (1.0f + softexp(-x[i]));
            act[i] = x[i] * s;
            slope[i] = s + act[i] * (1.0f - s);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            float square = x[i] * x[i];
            float u = root * (x[i] + cube * square * x[i]), du = root * (1.0f + 3 * cube * square);
            float s = 1.0f / (1.0f + softexp(-u));
            act[i] = x[i] * s;
            /* far out du overflows before 1 - s is 0 */
            slope[i] = s + (s == 0.0f || s == 1.0f ? 0.0f : act[i] * (1.0f - s) * du);
        }
    }
}

static void backward_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    size_t begin, end;
    float act[PIECE], slope[PIECE];
    pool_share(j->n, GRAIN, thread, n_threads, &begin, &end);
    for (size_t at = begin; at < end; at += PIECE) {
        size_t n = end - at < PIECE ? end - at : PIECE;
        derive(j->kind, j->gate + at, n, act, slope);
        for (size_t i = 0; i < n; i++) {
            float dy = j->dy[at + i], up = j->up[at + i];
            slope[i] *= dy * up;
            act[i] *= dy;
        }
        memcpy(j->dgate + at, slope, n * sizeof *slope);
        memcpy(j->dup + at, act, n * sizeof *act);
    }
}

void gatedact_backward(struct pool *pool, enum gatedact_kind kind, size_t n, const float *gate,
                       const float *up, const float *dy, float *dgate, float *dup)
{
    struct job j = { .kind = kind, .n = n, .gate = gate, .up = up, .dy = dy, .dgate = dgate,
                     .dup = dup };
    pool_run(pool, backward_share, &j);
}

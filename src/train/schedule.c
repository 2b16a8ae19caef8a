/* schedule.c: what changes with the step, each a function of nothing else.
 * Owns: nothing. Threads: any. */
#include "train/schedule.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

#define PI 3.14159265358979323846

static const char *const names[SCHEDULE_KINDS] = { "constant", "cosine", "wsd" };

zp_status schedule_find(const char *name, enum schedule_kind *out, zp_err *err)
{
    for (int k = 0; k < SCHEDULE_KINDS; k++)
        if (strcmp(name, names[k]) == 0) {
            *out = (enum schedule_kind)k;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_USAGE, "learning-rate schedule '%s' is unknown, expected constant, cosine or "
            "wsd", name);
}

const char *schedule_name(enum schedule_kind kind)
{
    return (unsigned)kind < SCHEDULE_KINDS ? names[kind] : "unknown";
}

static bool is_share(double x)
{
    return x >= 0 && x <= 1;
}

static uint64_t decay_steps(const struct schedule *s)
{
    return (uint64_t)llround(s->decay_share * (double)s->steps);
}

zp_status schedule_check(const struct schedule *s, zp_err *err)
{
    ZP_FAIL_IF((unsigned)s->kind >= SCHEDULE_KINDS, err, ZP_USAGE,
               "learning-rate schedule %d is unknown", (int)s->kind);
    ZP_FAIL_IF(!(s->peak >= 0) || !isfinite(s->peak), err, ZP_USAGE,
               "the learning rate is %g, expected 0 or more", s->peak);
    ZP_FAIL_IF(!is_share(s->floor), err, ZP_USAGE,
               "the learning rate's floor is %g of the peak, expected 0 to 1", s->floor);
    ZP_FAIL_IF(!is_share(s->decay_share), err, ZP_USAGE,
               "the decay takes %g of the steps, expected 0 to 1", s->decay_share);
    ZP_FAIL_IF(s->steps == 0 || s->steps > (uint64_t)1 << 48, err, ZP_USAGE,
               "%llu steps of training, expected 1 to 2^48", (unsigned long long)s->steps);
    uint64_t decay = s->kind == SCHEDULE_WSD ? decay_steps(s) : 0;
    ZP_FAIL_IF(s->warmup > s->steps - decay, err, ZP_USAGE,
               "a warmup of %llu steps and a decay of %llu do not fit into %llu steps",
               (unsigned long long)s->warmup, (unsigned long long)decay,
               (unsigned long long)s->steps);
    return ZP_OK;
}

/* Share of the way from the step before `first` (0) to the last one (1). */
static double progress(uint64_t first, uint64_t steps, uint64_t step)
{
    return step < first ? 0 : (double)(step - first + 1) / (double)(steps - first);
}

/* 1 to 0. The root: Haegele et al., Scaling laws and compute-optimal training beyond fixed training
 * durations, 2024, who find it better than a line. */
static double height(const struct schedule *s, uint64_t step)
{
    if (s->kind == SCHEDULE_COSINE)
        return 0.5 + 0.5 * cos(PI * progress(s->warmup, s->steps, step));
    if (s->kind == SCHEDULE_WSD)
        return 1 - sqrt(progress(s->steps - decay_steps(s), s->steps, step));
    return 1;
}

double schedule_rate(const struct schedule *s, uint64_t step)
{
    if (step < s->warmup) return s->peak * (double)(step + 1) / (double)s->warmup;
    if (step >= s->steps) step = s->steps - 1;
    if (step < s->warmup) return s->peak; /* nothing but a warmup */
    double floor = s->kind == SCHEDULE_CONSTANT ? 1 : s->floor;
    return s->peak * (floor + (1 - floor) * height(s, step));
}

/* ---- gates ----------------------------------------------------------------------------------- */

zp_status gate_ramp_make(struct gate_ramp *r, uint64_t begin, uint64_t steps, double share_of_steps,
                         size_t n, double share_of_gates, double overlap, zp_err *err)
{
    *r = (struct gate_ramp){ .begin = begin, .overlap = overlap };
    ZP_FAIL_IF(!is_share(share_of_steps), err, ZP_USAGE,
               "gates close over %g of the steps, expected 0 to 1", share_of_steps);
    ZP_FAIL_IF(!is_share(share_of_gates), err, ZP_USAGE, "%g of the gates close, expected 0 to 1",
               share_of_gates);
    ZP_FAIL_IF(!is_share(overlap), err, ZP_USAGE,
               "each gate takes %g of the ramp, expected 0 to 1", overlap);
    r->steps = (uint64_t)llround(share_of_steps * (double)steps);
    r->n_close = (size_t)llround(share_of_gates * (double)n);
    return ZP_OK;
}

/* The gate at place i falls while the ramp's progress passes from a to a + length, a growing evenly
 * from 0 to 1 - length. Counts of steps are compared, not their quotients: the last gate is exactly
 * 0 at the last step. */
double gate_ramp_value(const struct gate_ramp *r, size_t place, uint64_t step)
{
    if (place >= r->n_close || step < r->begin) return 1;
    if (step - r->begin >= r->steps) return 0;
    double least = 1 / (double)r->n_close, length = r->overlap > least ? r->overlap : least;
    double a = r->n_close > 1 ? (1 - length) * (double)place / (double)(r->n_close - 1) : 0;
    double fallen = ((double)(step - r->begin) / (double)r->steps - a) / length;
    return fallen <= 0 ? 1 : fallen >= 1 - 1e-12 ? 0 : 1 - fallen;
}

size_t gate_ramp_closed(const struct gate_ramp *r, uint64_t step)
{
    size_t low = 0, high = r->n_close; /* values do not fall with the place */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gate_ramp_value(r, middle, step) == 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

double schedule_geometric(double from, double to, uint64_t steps, uint64_t step)
{
    if (step >= steps) return to;
    return from * pow(to / from, (double)step / (double)steps);
}

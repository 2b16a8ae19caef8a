/* gates.c: what the policies do to gates.
 *   abrupt   all close before the first step
 *   staged   group by group, evenly over the ramp
 *   dropout  one after the other on a ramp; on its way a unit of value g counts with probability g
 *   l1, l0   learned: gates_learned.c
 * Owns: values, moments, the order. Does not know: losses, nets, files. */
#include "train/gates.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "train/gates_learned.h"
#include "train/schedule.h"

#define DRAW_STREAM 0x6761746573000000u

static const char *const names[GATES_POLICIES] = { "keep", "abrupt", "staged", "dropout", "l1",
                                                   "l0" };

zp_status gates_find(const char *name, enum gates_policy *out, zp_err *err)
{
    for (int i = 0; i < GATES_POLICIES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum gates_policy)i;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_USAGE, "no policy '%s'; there are keep, abrupt, staged, dropout, l1, l0", name);
}

const char *gates_policy_name(enum gates_policy policy)
{
    return names[policy];
}

struct gates_place gates_place_of(const struct gates *g, size_t unit)
{
    const struct position *p = g->position;
    if (unit >= g->n_pairs) {
        uint32_t at = (uint32_t)(unit - g->n_pairs);
        return (struct gates_place){ at / p->n_head, at % p->n_head, 0, true };
    }
    uint32_t at = (uint32_t)unit, head = at / p->n_pair;
    return (struct gates_place){ head / p->n_kv, head % p->n_kv, at % p->n_pair, false };
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status check_options(struct gates_options *o, zp_err *err)
{
    if (o->share == 0) o->share = 1;
    if (o->ramp == 0) o->ramp = 0.6;
    if (o->overlap == 0) o->overlap = 0.5;
    if (o->stages == 0) o->stages = 8;
    if (o->lambda == 0) o->lambda = 3;
    if (o->eps_first == 0) o->eps_first = 0.02;
    if (o->eps_rest == 0) o->eps_rest = 0.004;
    if (o->t_cool == 0) o->t_cool = 5;
    if (o->tolerance == 0) o->tolerance = 0.05;
    ZP_FAIL_IF(o->steps == 0, err, ZP_USAGE, "a run of no steps");
    ZP_FAIL_IF(
        o->begin >= o->steps, err, ZP_USAGE,
        "gates begin to close at step %llu of %llu (--begin, --pic-steps): they never would; "
        "more --tokens make more steps",
        (unsigned long long)o->begin, (unsigned long long)o->steps);
    ZP_FAIL_IF(!(o->share > 0 && o->share <= 1), err, ZP_USAGE,
               "%g of the gates close, expected more than 0, at most 1", o->share);
    ZP_FAIL_IF(!(o->ramp > 0 && o->ramp <= 1), err, ZP_USAGE,
               "gates close over %g of the steps, expected more than 0, at most 1", o->ramp);
    ZP_FAIL_IF(!(o->overlap > 0 && o->overlap <= 1), err, ZP_USAGE,
               "each gate takes %g of the ramp, expected more than 0, at most 1", o->overlap);
    ZP_FAIL_IF(!(o->rate >= 0 && o->rate < 1), err, ZP_USAGE,
               "%g of the pairs are left out, expected 0 to less than 1", o->rate);
    ZP_FAIL_IF(!(o->lambda > 0 && o->eps_first > 0 && o->eps_rest > 0 && o->tolerance > 0), err,
               ZP_USAGE, "lambda, eps and the tolerance must be above 0");
    return ZP_OK;
}

static void mark_units(struct gates *g)
{
    const struct position *p = g->position;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        bool bias = position_layer_has_bias(p, l);
        for (uint32_t h = 0; bias && h < p->n_head; h++) {
            size_t at = (size_t)l * p->n_head + h;
            g->exists[g->n_pairs + at] = !p->bias_gate || p->bias_gate[at] != 0.0f;
        }
        for (uint32_t kv = 0; !bias && kv < p->n_kv; kv++) {
            const struct position_head *head = &p->heads[(size_t)l * p->n_kv + kv];
            for (uint32_t s = 0; s < head->n_open; s++)
                g->exists[((size_t)l * p->n_kv + kv) * p->n_pair + head->pair[s]] = 1;
        }
    }
    for (size_t i = 0; i < g->n; i++) g->n_open += g->exists[i];
}

/* The default order: slow pairs first; among those of an angle the middle layers first, for what
 * stands at either end carries the most. Biases: by the layer alone. */
struct rank {
    double key;
    uint32_t unit;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static double key_of(const struct gates *g, size_t unit)
{
    const struct position *p = g->position;
    struct gates_place at = gates_place_of(g, unit);
    double middle = (p->n_layer - 1) / 2.0, outward = fabs(at.layer - middle) / (p->n_layer + 1.0);
    return at.is_bias ? outward : outward + p->n_pair - at.pair;
}

static zp_status take_order(struct gates *g, zp_err *err)
{
    const struct gates_options *o = &g->options;
    for (size_t i = 0; i < o->n_order; i++) {
        uint32_t unit = o->order[i];
        ZP_FAIL_IF(unit >= g->n || !g->exists[unit] || g->n_order == g->n, err, ZP_BAD_INPUT,
                   "the order of closing names unit %u, which the model does not have open", unit);
        g->order[g->n_order++] = unit;
    }
    return ZP_OK;
}

static zp_status fill_order(struct gates *g, zp_err *err)
{
    struct rank *ranks;
    size_t n = 0;
    if (g->options.order) return take_order(g, err);
    ZP_ALLOC(ranks, MEM_TRAIN, g->n_open, err, "an order of gates");
    for (size_t i = 0; i < g->n; i++)
        if (g->exists[i]) ranks[n++] = (struct rank){ key_of(g, i), (uint32_t)i };
    if (n > 1) qsort(ranks, n, sizeof *ranks, compare_ranks);
    for (size_t i = 0; i < n; i++) g->order[i] = ranks[i].unit;
    g->n_order = n;
    mem_free(ranks);
    return ZP_OK;
}

static zp_status allocate(struct gates *g, zp_err *err)
{
    size_t n = g->n;
    g->order = mem_array(MEM_TRAIN, n, sizeof *g->order);
    g->exists = mem_zalloc(MEM_TRAIN, n);
    g->may = mem_zalloc(MEM_TRAIN, n);
    g->closed = mem_zalloc(MEM_TRAIN, n);
    g->value = mem_array(MEM_TRAIN, n, sizeof *g->value);
    g->open = mem_zalloc(MEM_TRAIN, g->n_pairs);
    g->d = mem_array(MEM_TRAIN, n, sizeof *g->d);
    g->learned = mem_array(MEM_TRAIN, n, sizeof *g->learned);
    g->mean = mem_array(MEM_TRAIN, n, sizeof *g->mean);
    g->square = mem_array(MEM_TRAIN, n, sizeof *g->square);
    g->idle = mem_array(MEM_TRAIN, n, sizeof *g->idle);
    g->closed_at = mem_array(MEM_TRAIN, n, sizeof *g->closed_at);
    g->reopened = mem_zalloc(MEM_TRAIN, n);
    g->scale = mem_zalloc(MEM_TRAIN, 2 * sizeof *g->scale);
    g->closings = mem_array(MEM_TRAIN, n, sizeof *g->closings);
    ZP_FAIL_IF(!g->order || !g->exists || !g->may || !g->closed || !g->value || !g->open || !g->d ||
                   !g->learned || !g->mean || !g->square || !g->idle ||
                   !g->closed_at || !g->reopened || !g->scale || !g->closings,
               err, ZP_NO_MEMORY, "not enough memory for %zu gates", n);
    for (size_t i = 0; i < n; i++) {
        g->value[i] = 1.0f;
        g->learned[i] = gates_learned_start(g->options.policy);
        g->d[i] = g->mean[i] = g->square[i] = 0.0f;
        g->idle[i] = g->closed_at[i] = 0;
    }
    return ZP_OK;
}

static zp_status fill(struct gates *g, zp_err *err)
{
    ZP_TRY(check_options(&g->options, err));
    ZP_TRY(allocate(g, err));
    mark_units(g);
    ZP_FAIL_IF(
        g->n_open == 0 && g->options.policy != GATES_KEEP, err, ZP_BAD_INPUT,
        "the model has no open gate: there is nothing to take out; train goes on with it as it is");
    ZP_TRY(fill_order(g, err));
    for (size_t i = 0; i < g->n_order; i++) g->may[g->order[i]] = 1;
    g->n_close = (size_t)llround(g->options.share * (double)g->n_order);
    if (g->options.policy == GATES_KEEP) g->n_close = 0;
    return ZP_OK;
}

zp_status gates_open(struct gates *g, const struct position *p, const struct gates_options *o,
                     zp_err *err)
{
    *g = (struct gates){ .position = p, .options = *o };
    g->n_pairs = (size_t)p->n_layer * p->n_kv * p->n_pair;
    g->n = g->n_pairs + (size_t)p->n_layer * p->n_head;
    zp_status status = fill(g, err);
    if (status != ZP_OK) gates_free(g);
    return status;
}

void gates_free(struct gates *g)
{
    mem_free(g->order);
    mem_free(g->exists);
    mem_free(g->may);
    mem_free(g->closed);
    mem_free(g->value);
    mem_free(g->open);
    mem_free(g->d);
    mem_free(g->learned);
    mem_free(g->mean);
    mem_free(g->square);
    mem_free(g->idle);
    mem_free(g->closed_at);
    mem_free(g->reopened);
    mem_free(g->scale);
    mem_free(g->closings);
    *g = (struct gates){ 0 };
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Steps before this one may move gates. */
static uint64_t ramp_end(const struct gates_options *o)
{
    uint64_t steps = (uint64_t)llround(o->ramp * (double)(o->steps - o->begin));
    return o->begin + (steps ? steps : 1);
}

bool gates_need_mix(const struct gates_options *o)
{
    return o->policy == GATES_L1 || o->policy == GATES_L0;
}

bool gates_learn(const struct gates *g, uint64_t step)
{
    const struct gates_options *o = &g->options;
    return gates_need_mix(o) && o->begin <= step && step < ramp_end(o);
}

double gates_draw(const struct gates *g, uint64_t step, size_t unit)
{
    return rng_unit_at(g->options.seed, DRAW_STREAM + step, unit);
}

static struct gate_ramp ramp_of(const struct gates *g)
{
    const struct gates_options *o = &g->options;
    return (struct gate_ramp){ .begin = o->begin, .steps = ramp_end(o) - o->begin,
                               .n_close = g->n_close, .overlap = o->overlap };
}

/* How many of the order have closed for good at a step, by the policies that know beforehand. */
static size_t n_scheduled(const struct gates *g, uint64_t step)
{
    const struct gates_options *o = &g->options;
    struct gate_ramp ramp = ramp_of(g);
    if (step < o->begin) return 0;
    uint64_t stage = (step - o->begin) * o->stages / ramp.steps + 1;
    if (o->policy == GATES_ABRUPT) return g->n_close;
    if (o->policy == GATES_DROPOUT) return gate_ramp_closed(&ramp, step);
    if (o->policy != GATES_STAGED) return 0;
    return stage >= o->stages ? g->n_close : (size_t)(g->n_close * stage / o->stages);
}

/* What the policies' schedules say, A2. */
static void follow_schedule(struct gates *g, uint64_t step)
{
    const struct gates_options *o = &g->options;
    struct gate_ramp ramp = ramp_of(g);
    size_t n = n_scheduled(g, step);
    for (size_t i = 0; i < g->n_close; i++) {
        uint32_t unit = g->order[i];
        if (i < n) g->value[unit] = 0;
        else if (o->policy == GATES_DROPOUT)
            g->value[unit] = gates_draw(g, step, unit) < gate_ramp_value(&ramp, i, step);
    }
    for (size_t i = 0; o->policy == GATES_KEEP && o->rate > 0 && i < g->n; i++)
        if (g->value[i] != 0.0f) g->value[i] = gates_draw(g, step, i) < 1 - o->rate;
}

static void fill_state(struct gates *g)
{
    for (size_t i = 0; i < g->n; i++) g->value[i] = g->exists[i] && !g->closed[i] ? 1.0f : 0.0f;
}

static const struct net_gates *show(struct gates *g, uint64_t step)
{
    for (size_t i = 0; i < g->n_pairs; i++) g->open[i] = g->value[i] != 0.0f;
    g->view = (struct net_gates){ .bias = g->value + g->n_pairs, .window = g->options.window,
                                  .n_sink = g->options.n_sink };
    if (gates_learn(g, step)) g->view.mix = g->value;
    else g->view.open = g->open;
    return &g->view;
}

const struct net_gates *gates_now(struct gates *g, uint64_t step)
{
    fill_state(g);
    for (size_t i = 0; gates_learn(g, step) && i < g->n; i++)
        if (g->may[i] && !g->closed[i]) g->value[i] = gates_learned_mean(g, i);
    return show(g, step);
}

const struct net_gates *gates_begin(struct gates *g, uint64_t step)
{
    fill_state(g);
    follow_schedule(g, step);
    for (size_t i = 0; gates_learn(g, step) && i < g->n; i++)
        if (g->may[i] && !g->closed[i]) g->value[i] = gates_learned_value(g, step, i);
    memset(g->d, 0, g->n * sizeof *g->d);
    return show(g, step);
}

void gates_close_unit(struct gates *g, uint64_t step, size_t unit, const char *reason)
{
    if (g->closed[unit] || !g->exists[unit]) return;
    g->closed[unit] = 1;
    g->closed_at[unit] = (uint32_t)step;
    g->mean[unit] = g->square[unit] = 0.0f;
    g->n_closed++;
    g->closings[g->n_closings++] = (struct gates_closing){ (uint32_t)unit, reason };
}

size_t gates_open_again(struct gates *g, uint64_t since)
{
    size_t n = 0;
    g->n_closings = 0;
    for (size_t i = 0; gates_need_mix(&g->options) && i < g->n; i++) {
        if (!g->closed[i] || g->closed_at[i] < since) continue;
        g->closings[n] = (struct gates_closing){ (uint32_t)i, "held-out loss rose" };
        g->closed[i] = 0;
        g->learned[i] = gates_learned_start(g->options.policy);
        g->idle[i] = 0;
        if (g->reopened[i] < UINT8_MAX) g->reopened[i]++;
        n++;
    }
    g->n_closed -= n;
    g->n_closings = n;
    return n;
}

/* The smallest of those that are left close, up to the number wanted. */
static void finish(struct gates *g, uint64_t step)
{
    for (size_t n = g->n_closed; n < g->n_close; n++) {
        size_t least = g->n;
        for (size_t i = 0; i < g->n_order; i++) {
            uint32_t unit = g->order[i]; /* of equals the first in the order */
            if (g->closed[unit]) continue;
            if (least == g->n || g->learned[unit] < g->learned[least]) least = unit;
        }
        gates_close_unit(g, step, least, "end of the ramp");
    }
}

void gates_end(struct gates *g, uint64_t step, double d_scale)
{
    const struct gates_options *o = &g->options;
    g->n_closings = 0;
    g->pace = GATES_PACE_FINE;
    size_t n = n_scheduled(g, step);
    for (size_t i = 0; i < n; i++) gates_close_unit(g, step, g->order[i], "on schedule");
    if (!gates_learn(g, step)) return;
    uint64_t ramp = ramp_end(o) - o->begin, fast = gates_learned_fastest(o);
    bool all = g->n_closed == g->n_close;
    gates_learned_step(g, step - o->begin, ramp, d_scale);
    if (fast < ramp / 10) fast = ramp / 10;
    if (!all && g->n_closed == g->n_close && step - o->begin < fast) g->pace = GATES_PACE_FAST;
    if (step + 1 != ramp_end(o)) return;
    g->n_self = g->n_closed;
    if (10 * g->n_self < g->n_close) g->pace = GATES_PACE_SLOW;
    finish(g, step); // A3
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

void gates_parts(const struct gates *g, struct checkpoint_part out[GATES_PARTS])
{
    const struct checkpoint_part parts[GATES_PARTS] = {
        { "gates.closed", CHECKPOINT_U8, g->closed, g->n },
        { "gates.value", CHECKPOINT_F32, g->learned, g->n },
        { "gates.mean", CHECKPOINT_F32, g->mean, g->n },
        { "gates.square", CHECKPOINT_F32, g->square, g->n },
        { "gates.idle", CHECKPOINT_U32, g->idle, g->n },
        { "gates.scale", CHECKPOINT_F64, g->scale, 2 },
        { "gates.closed_at", CHECKPOINT_U32, g->closed_at, g->n },
        { "gates.reopened", CHECKPOINT_U8, g->reopened, g->n },
    };
    memcpy(out, parts, sizeof parts);
}

zp_status gates_restore(struct gates *g, const struct checkpoint *c, zp_err *err)
{
    ZP_TRY(checkpoint_read(c, "gates.closed", CHECKPOINT_U8, g->closed, g->n, err));
    ZP_TRY(checkpoint_read(c, "gates.value", CHECKPOINT_F32, g->learned, g->n, err));
    ZP_TRY(checkpoint_read(c, "gates.mean", CHECKPOINT_F32, g->mean, g->n, err));
    ZP_TRY(checkpoint_read(c, "gates.square", CHECKPOINT_F32, g->square, g->n, err));
    ZP_TRY(checkpoint_read(c, "gates.idle", CHECKPOINT_U32, g->idle, g->n, err));
    ZP_TRY(checkpoint_read(c, "gates.scale", CHECKPOINT_F64, g->scale, 2, err));
    ZP_TRY(checkpoint_read(c, "gates.closed_at", CHECKPOINT_U32, g->closed_at, g->n, err));
    ZP_TRY(checkpoint_read(c, "gates.reopened", CHECKPOINT_U8, g->reopened, g->n, err));
    g->n_closed = 0;
    for (size_t i = 0; i < g->n; i++) {
        ZP_FAIL_IF(g->closed[i] > g->exists[i], err, ZP_BAD_FILE,
                   "%s: closes a gate that the model does not have", c->name);
        g->n_closed += g->closed[i];
    }
    return ZP_OK;
}

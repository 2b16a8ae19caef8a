/* plan.c: greedy closing in the order of importance, measured again and again, never summed.
 * Owns: the order of units and how far it is followed. Does not know: files, held-out text.
 * N1 a plan's KL is measured on the whole model with everything in it closed at once, at the plan's
 *    own length.
 * N2 local heads cost retrieval that prose does not show: prompts other than those that ranked the
 *    heads are asked of every prefix, and gates that close on top of local heads count too.
 * N3 after part of the order of gates or local heads stands, the rest is ranked anew, given that
 *    (errors interact). Pairs and layers keep the scan's order. */
#include "evap/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rises below this are noise of a few prompts. */
static const double rise_noise = 0.01;
/* Nats of prose KL that a nat of lost retrieval is worth. SmolLM2 at 1024 tokens, 60 heads with a
 * reach of 256: with 0.05 answers to other prompts lose 0.034 nats a token, with 0.2 0.010; prose
 * KL of the heads alone adds up to 0.0142 and 0.0151, with 0.5 to 0.0269. */
static const double retrieval_weight = 0.2;
/* With local heads: rise in NLL of retrieval answers that a whole plan may cost, nats a token. */
static const double most_rise = 0.03;

static zp_status init(struct plan *p, const struct scan *s, const zp_plan_options *o,
                      const struct position *position, zp_err *err)
{
    memset(p, 0, sizeof *p);
    p->arena.tag = MEM_EVAP;
    p->n_ctx = s->n_ctx;
    p->budget_kl = o->budget_kl;
    p->local_window = o->local_window;
    p->uniform = o->uniform, p->uniform_slow = o->uniform_slow, p->layers = o->layers;
    p->folds = !o->no_fold;
    ZP_TRY(gaterank_find(o->rank, &p->rank, err));
    size_t heads = (size_t)s->n_layer * s->n_kv;
    p->units = arena_array(&p->arena, heads * s->n_pair + heads + s->n_layer + s->n_pair,
                           sizeof *p->units);
    p->model_sha256 = arena_strndup(&p->arena, s->model_sha256, strlen(s->model_sha256));
    ZP_FAIL_IF(!p->units || !p->model_sha256, err, ZP_NO_MEMORY, "not enough memory for the plan");
    return gateset_open(&p->set, position, err);
}

zp_status plan_check_options(const zp_plan_options *o, uint32_t n_ctx, zp_err *err)
{
    int choices = o->uniform + o->uniform_slow + o->layers + (o->local_window != 0);
    ZP_FAIL_IF(choices > 1, err, ZP_USAGE,
               "--uniform, --uniform-slow, --layers and --local exclude each other");
    ZP_FAIL_IF(o->local_window >= n_ctx, err, ZP_USAGE,
               "--local %u shortens no head at %u tokens: it must be below -c", o->local_window,
               n_ctx);
    enum gaterank rank;
    ZP_TRY(gaterank_find(o->rank, &rank, err));
    ZP_FAIL_IF(rank != GATERANK_LOCAL && (o->uniform || o->uniform_slow), err, ZP_USAGE,
               "--rank %s orders single gates, and --uniform%s closes none: leave one out", o->rank,
               o->uniform_slow ? "-slow" : "");
    return ZP_OK;
}

void plan_free(struct plan *p)
{
    probes_free(&p->probes);
    gateset_free(&p->set);
    arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}

/* ---- units ----------------------------------------------------------------------------------- */

static int by_cost(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    uint64_t i = (uint64_t)x->layer << 32 | (uint64_t)x->kv << 16 | x->pair;
    uint64_t j = (uint64_t)y->layer << 32 | (uint64_t)y->kv << 16 | y->pair;
    return (i > j) - (i < j); /* ties: same order everywhere */
}

static void use_unit(const struct plan *p, struct gateset *g, const struct unit *u)
{
    if (u->kind == UNIT_GATE) g->open[gateset_at(g, u->layer, u->kv, u->pair)] = 0;
    if (u->kind == UNIT_PAIR)
        for (uint32_t h = 0; h < g->n_layer * g->n_kv; h++)
            g->open[(size_t)h * g->n_pair + u->pair] = 0;
    if (u->kind == UNIT_LAYER)
        memset(g->open + gateset_at(g, u->layer, 0, 0), 0, (size_t)g->n_kv * g->n_pair);
    if (u->kind == UNIT_LOCAL) {
        uint32_t *w = &g->window[u->layer * g->n_kv + u->kv];
        if (*w == 0 || *w > p->local_window) *w = p->local_window; /* never wider */
        g->n_sink = SCAN_SINKS;
    }
}

zp_status plan_set(const struct plan *p, const struct position *position, size_t n,
                   struct gateset *g, zp_err *err)
{
    ZP_TRY(gateset_open(g, position, err));
    for (size_t i = 0; i < n; i++) use_unit(p, g, &p->units[i]);
    return ZP_OK;
}

/* Gates that are still open after the first `kept` units, cheapest first, replace the rest of the
 * order. */
static void rank_gates(struct plan *p, const struct gateset *now, const double *cost, size_t kept)
{
    p->n_units = kept;
    for (uint16_t l = 0; l < now->n_layer; l++)
        for (uint16_t k = 0; k < now->n_kv; k++)
            for (uint16_t i = 0; i < now->n_pair; i++) {
                size_t at = gateset_at(now, l, k, i);
                if (now->open[at])
                    p->units[p->n_units++] = (struct unit){ UNIT_GATE, l, k, i, cost[at] };
            }
    qsort(p->units + kept, p->n_units - kept, sizeof *p->units, by_cost);
}

static void rank_pairs(struct plan *p, const struct scan *s, bool slow_first)
{
    for (uint16_t i = 0; i < s->n_pair; i++)
        if (s->kl_pair[i] >= 0.0)
            p->units[p->n_units++] =
                (struct unit){ UNIT_PAIR, 0, 0, i, slow_first ? -(double)i : s->kl_pair[i] };
    qsort(p->units, p->n_units, sizeof *p->units, by_cost);
}

static void rank_layers(struct plan *p, const struct scan *s)
{
    for (uint16_t l = 0; l < s->n_layer; l++)
        if (s->kl_layer[l] >= 0.0)
            p->units[p->n_units++] = (struct unit){ UNIT_LAYER, l, 0, 0, s->kl_layer[l] };
    qsort(p->units, p->n_units, sizeof *p->units, by_cost);
}

/* What making a head local costs: prose KL does not see retrieval, so its loss is added. */
static double local_cost(const struct scan *s, size_t head, double kl)
{
    return kl + retrieval_weight * fmax(0.0, s->nll_rise[head] - rise_noise);
}

static void rank_local(struct plan *p, const struct scan *s)
{
    for (uint16_t l = 0; l < s->n_layer; l++)
        for (uint16_t k = 0; k < s->n_kv; k++) {
            size_t h = (size_t)l * s->n_kv + k;
            if (s->kl_local[h] < 0.0) continue;
            p->units[p->n_units++] =
                (struct unit){ UNIT_LOCAL, l, k, 0, local_cost(s, h, s->kl_local[h]) };
        }
    qsort(p->units, p->n_units, sizeof *p->units, by_cost);
}

/* ---- search ---------------------------------------------------------------------------------- */

static zp_status close_first(struct plan *p, struct calib *c, struct fold *fold, size_t n,
                             zp_err *err)
{
    struct gateset g;
    ZP_TRY(plan_set(p, &c->model->position, n, &g, err));
    gateset_free(&p->set);
    p->set = g;
    p->n_used = n;
    if (!fold) return ZP_OK;
    ZP_TRY(fold_fit(fold, c, &p->set, c->n_restart, 64, err));
    fold_install(fold, c);
    p->folded = fold_is_used(fold);
    return ZP_OK;
}

zp_status plan_use(struct plan *p, struct calib *c, struct fold *fold, size_t n, zp_err *err)
{
    ZP_TRY(close_first(p, c, fold, n, err));
    return calib_kl(c, &p->set, 0, (uint32_t)c->windows.n, &p->kl_mean, err);
}

zp_status plan_fits(struct plan *p, struct calib *c, double target, bool *fits, zp_err *err)
{
    double rise;
    *fits = p->kl_mean <= target;
    if (!*fits || !p->probes.n) return ZP_OK;
    ZP_TRY(probes_rise(&p->probes, c, &p->set, 0, -INFINITY, &rise, err));
    *fits = rise <= most_rise;
    return ZP_OK;
}

/* Halvings until `range` units are no more than the grain. */
static uint64_t steps_of(size_t range, size_t grain)
{
    uint64_t n = 0;
    for (; range > grain; range /= 2) n++;
    return n;
}

zp_status plan_search(struct plan *p, struct calib *c, struct fold *fold, size_t lo, size_t hi,
                      size_t grain, double target, zp_err *err)
{
    double kl_lo = NAN; /* lo is not measured yet */
    for (uint64_t step = 1; hi - lo > grain; step++) {
        size_t mid = lo + (hi - lo + 1) / 2; /* above lo: the range shrinks each time */
        uint64_t more = steps_of(hi - mid, grain);
        bool fits;
        ZP_TRY(plan_use(p, c, fold, mid, err));
        ZP_TRY(plan_fits(p, c, target, &fits, err));
        ZP_TRY(calib_step(c, "how far the order fits", step, step + more, err));
        if (fits) lo = mid, kl_lo = p->kl_mean;
        else hi = mid - 1;
    }
    if (isnan(kl_lo)) return plan_use(p, c, fold, lo, err);
    if (p->n_used != lo) ZP_TRY(close_first(p, c, fold, lo, err));
    p->kl_mean = kl_lo;
    return ZP_OK;
}

/* Orders the gates that p->set leaves open, behind the first `kept` units. importance: of each, on
 * top of the set. */
static zp_status order_gates(struct plan *p, const struct scan *s, const double *importance,
                             size_t kept, zp_err *err)
{
    double *cost;
    size_t n = gateset_total(&p->set);
    ZP_ALLOC(cost, MEM_EVAP, n + 1, err, "the order of gates");
    zp_status status = gaterank_costs(p->rank, n, p->set.open, importance, s->fisher, cost, err);
    if (status == ZP_OK) rank_gates(p, &p->set, cost, kept);
    mem_free(cost);
    return status;
}

/* Local errors again, given the first `kept` units, and the gates behind them in their new order.
 * Fisher information alone is the original's and stays. */
static zp_status rank_again(struct plan *p, struct calib *c, const struct scan *s, size_t kept,
                            zp_err *err)
{
    struct local_errors now = { 0 };
    struct scanlocal *local = NULL;
    ZP_TRY(close_first(p, c, NULL, kept, err));
    if (p->rank == GATERANK_FISHER) return ZP_OK;
    double *importance = mem_array(MEM_EVAP, gateset_total(&p->set), sizeof *importance);
    ZP_FAIL_IF(!importance, err, ZP_NO_MEMORY, "not enough memory for the plan");
    zp_status status = local_errors_open(&now, s->n_layer, s->n_kv, s->n_pair, err);
    if (status == ZP_OK) status = scanlocal_open(&local, c, err);
    if (status == ZP_OK) status = scanlocal_run(local, &p->set, s->n_windows_local, &now, err);
    if (status == ZP_OK) {
        scan_importance(s, &now, &p->set, importance);
        status = order_gates(p, s, importance, kept, err);
    }
    scanlocal_close(local);
    local_errors_free(&now);
    mem_free(importance);
    return status;
}

/* Gates after the first `kept` units: follow the scan's order, rank the last part anew, then fold
 * and go on. */
static zp_status plan_gates(struct plan *p, struct calib *c, const struct scan *s,
                            struct fold *fold, size_t kept, double target, zp_err *err)
{
    size_t total = gateset_total(&p->set), grain = total / 64 + 1;
    ZP_TRY(close_first(p, c, NULL, kept, err));
    ZP_TRY(order_gates(p, s, s->importance, kept, err));
    if (isinf(target)) return plan_use(p, c, fold, p->n_units, err);
    ZP_TRY(plan_search(p, c, NULL, kept, p->n_units, grain * 2, target, err));
    size_t used = p->n_used - kept;
    ZP_TRY(rank_again(p, c, s, kept + used * 3 / 4, err));
    size_t hi = p->n_used + used / 2 + grain * 2;
    ZP_TRY(plan_search(p, c, fold, p->n_used, hi < p->n_units ? hi : p->n_units, grain / 2 + 1,
                       target, err));
    return ZP_OK;
}

/* The heads behind the first `kept` by the KL of each on top of those; the rise of lost retrieval
 * is the scan's, of each head alone. */
static zp_status rank_local_again(struct plan *p, struct calib *c, const struct scan *s,
                                  size_t kept, zp_err *err)
{
    double kl_kept;
    ZP_TRY(close_first(p, c, NULL, kept, err));
    ZP_TRY(calib_restart_at(c, &p->set, err));
    ZP_TRY(calib_kl(c, &p->set, 0, c->n_restart, &kl_kept, err));
    for (size_t i = kept; i < p->n_units; i++) {
        struct unit *u = &p->units[i];
        size_t head = (size_t)u->layer * s->n_kv + u->kv;
        struct gateset g;
        double kl;
        ZP_TRY(gateset_copy(&g, &p->set, err));
        use_unit(p, &g, u);
        zp_status status = calib_kl(c, &g, u->layer, c->n_restart, &kl, err);
        gateset_free(&g);
        ZP_TRY(status);
        u->cost = local_cost(s, head, kl - kl_kept);
        ZP_TRY(calib_step(c, "local heads on top of others", i + 1 - kept, p->n_units - kept, err));
    }
    qsort(p->units + kept, p->n_units - kept, sizeof *p->units, by_cost);
    return ZP_OK;
}

static zp_status plan_local(struct plan *p, struct calib *c, const struct scan *s, double target,
                            zp_err *err)
{
    rank_local(p, s);
    ZP_TRY(plan_search(p, c, NULL, 0, p->n_units, 0, target, err));
    for (int round = 0; round < 2; round++) { /* half, then three quarters of the order stand */
        size_t kept = p->n_used * (2 + (size_t)round) / 4;
        ZP_TRY(rank_local_again(p, c, s, kept, err));
        ZP_TRY(plan_search(p, c, NULL, kept, p->n_units, 0, target, err));
    }
    return calib_restart_at(c, NULL, err);
}

static zp_status plan_fill(struct plan *p, struct calib *c, const struct scan *s,
                           const zp_plan_options *o, struct fold *fold, double target, zp_err *err)
{
    ZP_TRY(init(p, s, o, &c->model->position, err));
    if (fold) fold_remove(fold, c);
    if (o->uniform || o->uniform_slow) {
        rank_pairs(p, s, o->uniform_slow);
        return plan_search(p, c, fold, 0, p->n_units, 0, target, err);
    }
    if (o->local_window) {
        if (!isinf(target))
            ZP_TRY(probes_open(&p->probes, c, SCAN_PROBES, PLAN_SEED, false, err));
        ZP_TRY(plan_local(p, c, s, target, err));
    } else if (o->layers) {
        rank_layers(p, s);
        ZP_TRY(plan_search(p, c, NULL, 0, p->n_units, 0, target, err));
    }
    return plan_gates(p, c, s, fold, p->n_used, target, err);
}

zp_status plan_make(struct plan *p, struct calib *c, const struct scan *s, const zp_plan_options *o,
                    struct fold *fold, double target, zp_err *err)
{
    zp_status status = plan_fill(p, c, s, o, fold, target, err);
    if (status == ZP_OK) status = docs_seen(&c->docs, &p->arena, &p->seen, &p->n_seen, err);
    if (status != ZP_OK) plan_free(p);
    return status;
}

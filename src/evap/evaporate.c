/* evaporate.c: scan, plan, snap and check in one.
 * Owns: the loop that keeps the promise. Does not know: how importance or KL are measured.
 * P1 a written file's upper bound on held-out text is within the budget, or the file is not
 *    written.
 * P2 the length of the promise stands in the file and in every report. */
#include "evap/evaporate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/os.h"
#include "evap/apply.h"
#include "evap/check.h"
#include "evap/evapfile.h"
#include "evap/recipe.h"
#include "model/gguf_write.h"
#include "model/json_write.h"
#include "model/outputs.h"

static const double first_share = 0.85; /* of the budget aimed at on planning windows */

enum { LEAST_WINDOWS = 32, MOST_CHECKS = 6 };

static zp_scan_options scan_options(const zp_scan_options *o)
{
    zp_scan_options out = o ? *o : (zp_scan_options){ 0 };
    if (out.n_ctx == 0) out.n_ctx = 2048;
    if (out.n_windows_local == 0) out.n_windows_local = 8;
    if (out.n_windows_kl == 0) out.n_windows_kl = 2;
    if (out.seed == 0) out.seed = 1;
    return out;
}

/* Opens model and documents; what the file's own making has seen is not held out. */
static zp_status open_bench(struct calib *c, const char *model, const char *text,
                            const zp_scan_options *o, zp_err *err)
{
    struct recipe r;
    ZP_TRY(calib_open(c, model, text, o->n_ctx, err));
    c->progress = o->progress;
    c->n_restart = o->local_window ? 8 : 4; /* heads are ranked on these */
    c->n_probes = o->local_window ? 2 * SCAN_PROBES : 0;
    zp_status status = recipe_read(&r, c->model, err);
    if (status == ZP_OK) status = docs_exclude(&c->docs, r.seen, r.n_seen, err);
    recipe_free(&r);
    return status;
}

zp_status zp_scan_run(const char *model, const char *text, const zp_scan_options *options,
                      const char *out, zp_err *err)
{
    ZP_TRY(outputs_check(&out, 1, (const char *const[]){ model, text }, 2, err));
    zp_scan_options o = scan_options(options);
    struct calib c = { 0 };
    struct scan s;
    zp_plan_options wish = { .local_window = o.local_window };
    ZP_TRY(plan_check_options(&wish, o.n_ctx, err));
    zp_status status = open_bench(&c, model, text, &o, err);
    if (status == ZP_OK) status = calib_start(&c, o.n_windows_local, o.n_threads, err);
    if (status == ZP_OK) status = scan_measure(&s, &c, &o, err);
    if (status == ZP_OK) {
        status = evapfile_write_scan(&s, (struct evapfile_paths){ model, text }, out, err);
        scan_free(&s);
    }
    calib_close(&c);
    return status;
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* Of options that were checked. */
static bool needs_fisher(const zp_plan_options *o)
{
    enum gaterank rank;
    return gaterank_find(o->rank, &rank, NULL) == ZP_OK && rank != GATERANK_LOCAL;
}

/* A scan serves its own model, length and reach. */
static zp_status check_scan(const struct scan *s, const struct calib *c, const zp_plan_options *o,
                            zp_err *err)
{
    ZP_FAIL_IF(strcmp(s->model_sha256, zp_model_sha256(c->model)) != 0, err, ZP_BAD_INPUT,
               "the scan was made of another model (hash %.12s, this file has %.12s)",
               s->model_sha256, zp_model_sha256(c->model));
    ZP_FAIL_IF(
        s->n_ctx != c->n_ctx, err, ZP_BAD_INPUT,
        "the scan was measured at %u tokens, -c asks for %u: a scan holds for its own length "
        "only",
        s->n_ctx, c->n_ctx);
    ZP_FAIL_IF(o->local_window && s->local_window != o->local_window, err, ZP_BAD_INPUT,
               "the scan measured local heads for a reach of %u; the plan wants %u: scan again "
               "with --local %u", s->local_window, o->local_window, o->local_window);
    ZP_FAIL_IF(needs_fisher(o) && !s->fisher, err, ZP_BAD_INPUT,
               "the scan has no Fisher information, which --rank %s needs: scan again with "
               "--fisher", o->rank);
    return ZP_OK;
}

static zp_status plan_on(struct calib *c, const struct scan *s, const zp_plan_options *o,
                         struct evapfile_paths paths, const char *out, zp_err *err)
{
    struct fold fold = { 0 };
    struct plan p;
    bool folds = !o->no_fold && fold_is_possible(c);
    if (folds) ZP_TRY(fold_open(&fold, c, err));
    zp_status status =
        plan_make(&p, c, s, o, folds ? &fold : NULL, first_share * o->budget_kl, err);
    if (status == ZP_OK) {
        status = evapfile_write_plan(&p, &c->model->position, paths, out, err);
        plan_free(&p);
    }
    fold_free(&fold);
    return status;
}

/* NaN compares false with everything. */
static zp_status check_budget(double kl, zp_err *err)
{
    ZP_FAIL_IF(!(kl > 0.0) || isinf(kl), err, ZP_USAGE,
               "a finite KL budget above 0 is needed (--budget-kl); found %g", kl);
    return ZP_OK;
}

static zp_status plan_from(struct calib *c, const struct scan *s, const zp_plan_options *o,
                           struct evapfile_paths paths, const char *out, zp_err *err)
{
    zp_scan_options so = { .n_ctx = s->n_ctx,
                           .local_window = o->local_window,
                           .progress = o->progress };
    ZP_TRY(plan_check_options(o, s->n_ctx, err));
    ZP_TRY(open_bench(c, paths.model, paths.text, &so, err));
    ZP_TRY(check_scan(s, c, o, err));
    ZP_TRY(docs_exclude(&c->docs, s->seen, s->n_seen, err));
    ZP_TRY(calib_start(c, s->n_windows_local, o->n_threads, err));
    return plan_on(c, s, o, paths, out, err);
}

zp_status zp_plan_run(const char *scan, const zp_plan_options *options, const char *out,
                      zp_err *err)
{
    static const zp_plan_options none = { 0 };
    const zp_plan_options *o = options ? options : &none;
    struct scan s;
    struct calib c = { 0 };
    json_t *root;
    struct evapfile_paths paths;
    ZP_TRY(check_budget(o->budget_kl, err));
    ZP_TRY(evapfile_read_scan(&s, scan, &root, &paths, err));
    if (o->model) paths.model = o->model;
    if (o->text) paths.text = o->text;
    const char *const inputs[] = { scan, paths.model, paths.text };
    zp_status status = outputs_check(&out, 1, inputs, ZP_COUNT(inputs), err);
    if (status == ZP_OK) status = plan_from(&c, &s, o, paths, out, err);
    calib_close(&c);
    scan_free(&s);
    json_decref(root);
    return status;
}

/* ---- evaporate ------------------------------------------------------------------------------- */

struct job {
    const char *model, *text, *out;
    const zp_evaporate_options *o;
    zp_scan_options scan_options;
    double budget;
    struct calib c;
    struct scan s;
    struct plan p;
    struct fold fold_memory, *fold; /* fold = NULL: not possible or not wanted */
    struct zp_model *base;          /* the original of a file made before; or NULL */
    struct zp_engine *base_engine;
    struct check check;
    struct check_result result;
    bool has_scan, has_plan;
    /* each second belongs to one of them: that of the phase since `since` */
    double seconds_scan, seconds_plan, seconds_check, *phase, since;
    uint32_t n_checks;
};

static void enter(struct job *j, double *phase)
{
    double now = os_now();
    if (j->phase) *j->phase += now - j->since;
    j->phase = phase;
    j->since = now;
}

/* A bad scan or plan costs no measuring. */
static zp_status read_given(struct job *j, zp_err *err)
{
    const zp_evaporate_options *o = j->o;
    json_t *root;
    struct evapfile_paths paths;
    if (o->plan_in) {
        ZP_TRY(evapfile_read_plan(&j->p, o->plan_in, j->c.model, &root, err));
        json_decref(root);
        j->has_plan = true;
        ZP_FAIL_IF(
            j->p.n_ctx != j->c.n_ctx, err, ZP_BAD_INPUT,
            "%s was made for %u tokens, -c asks for %u: a plan holds for its own length only",
            o->plan_in, j->p.n_ctx, j->c.n_ctx);
        /* the fold is fitted on as many as when it was made */
        if (j->p.local_window) j->c.n_restart = 8;
        return docs_exclude(&j->c.docs, j->p.seen, j->p.n_seen, err);
    }
    if (!o->scan_in) return ZP_OK;
    ZP_TRY(evapfile_read_scan(&j->s, o->scan_in, &root, &paths, err));
    json_decref(root);
    j->has_scan = true;
    ZP_TRY(check_scan(&j->s, &j->c, &o->plan, err));
    return docs_exclude(&j->c.docs, j->s.seen, j->s.n_seen, err);
}

static zp_status get_scan(struct job *j, zp_err *err)
{
    enter(j, &j->seconds_scan);
    if (!j->has_scan) ZP_TRY(scan_measure(&j->s, &j->c, &j->scan_options, err));
    j->has_scan = true;
    if (j->o->scan_out)
        ZP_TRY(evapfile_write_scan(&j->s, (struct evapfile_paths){ j->model, j->text },
                                   j->o->scan_out, err));
    return ZP_OK;
}

/* A plan that was given is followed as far as it goes and no further. */
static zp_status get_plan(struct job *j, zp_err *err)
{
    if (!j->has_plan) ZP_TRY(get_scan(j, err));
    enter(j, &j->seconds_plan);
    if (j->has_plan) {
        j->p.budget_kl = j->budget;
        j->p.n_units = j->p.n_used;
        ZP_TRY(plan_use(&j->p, &j->c, j->fold, j->p.n_used, err));
    } else {
        double share = j->o->close_all ? INFINITY : first_share * j->budget;
        ZP_TRY(plan_make(&j->p, &j->c, &j->s, &j->o->plan, j->fold, share, err));
        j->has_plan = true;
    }
    return ZP_OK;
}

static zp_status try_once(struct job *j, zp_err *err)
{
    struct apply_info info = { .n_ctx_validated = 0 };
    char *trial;
    enter(j, &j->seconds_check);
    ZP_TRY(os_reserve_beside(j->out, &trial, err));
    zp_status status = apply_write(j->c.model, &j->p.set, j->fold, &info, trial, err);
    if (status == ZP_OK) status = check_file(&j->check, trial, &j->result, err);
    remove(trial);
    mem_free(trial);
    j->n_checks++;
    enter(j, &j->seconds_plan);
    return status;
}

/* A prefix of the order and its bound on held-out text. */
struct tried {
    size_t n;
    double kl_hi;
    bool known;
};

/* Between the longest that fits and the shortest that does not, where a straight line meets the
 * budget. */
static size_t between(const struct tried *fits, const struct tried *fails, double budget)
{
    double share = (0.97 * budget - fits->kl_hi) / fmax(fails->kl_hi - fits->kl_hi, 1e-12);
    size_t step = (size_t)(fmin(fmax(share, 0.0), 1.0) * (double)(fails->n - fits->n));
    size_t most = fails->n - fits->n - 1;
    return fits->n + (step < 1 ? 1 : step > most ? most : step);
}

/* Heads, layers and pairs are few and weigh much: to the last one. */
static size_t grain_at(const struct plan *p, size_t n)
{
    bool gates = n < p->n_units && p->units[n].kind == UNIT_GATE;
    return gates ? p->n_units / 128 : 0;
}

/* The next prefix to try: further after one that fits, shorter after one that does not. */
static zp_status next_try(struct job *j, const struct tried *fits, const struct tried *fails,
                          zp_err *err)
{
    double aim = 0.97 * j->p.kl_mean * j->budget / fmax(j->result.kl_hi, 1e-12);
    size_t n = j->p.n_used, grain = grain_at(&j->p, n), hi = n + n / 4 + grain + 1;
    if (fits->known && fails->known)
        return plan_use(&j->p, &j->c, j->fold, between(fits, fails, j->budget), err);
    if (fits->known)
        return plan_search(&j->p, &j->c, j->fold, n, hi < j->p.n_units ? hi : j->p.n_units, grain,
                           aim, err);
    ZP_FAIL_IF(n == 0, err, ZP_BAD_INPUT,
               "no budget is left: the file as it is costs up to %.3g already, more than %g",
               j->result.kl_hi, j->budget);
    if (j->n_checks > MOST_CHECKS) aim *= 0.5; /* close in faster */
    return plan_search(&j->p, &j->c, j->fold, 0, n - 1, grain, aim, err);
}

/* Follows the order further or cuts it back until the held-out bound fits (P1) and little of the
 * budget is left. The longest prefix that fitted is kept. */
static zp_status keep_promise(struct job *j, zp_err *err)
{
    struct tried fits = { 0 }, fails = { 0 };
    struct check_result best = { 0 };
    for (;;) {
        ZP_TRY(try_once(j, err));
        if (j->o->close_all) return ZP_OK;
        struct tried now = { j->p.n_used, j->result.kl_hi, true };
        size_t grain = grain_at(&j->p, now.n);
        double enough = (grain ? 0.9 : 0.97) * j->budget;
        bool holds = now.kl_hi <= j->budget;
        if (holds) ZP_TRY(plan_fits(&j->p, &j->c, INFINITY, &holds, err));
        if (holds) fits = now, best = j->result;
        else fails = now;
        bool all = fits.known && fits.n == j->p.n_units,
             near = fits.known && fails.known && fails.n <= fits.n + 1 + grain;
        if (fits.known && (all || near || fits.kl_hi >= enough || j->n_checks >= MOST_CHECKS))
            break;
        ZP_TRY(next_try(j, &fits, &fails, err));
        if (fits.known && j->p.n_used == fits.n) break;
    }
    j->result = best;
    return j->p.n_used == fits.n ? ZP_OK : plan_use(&j->p, &j->c, j->fold, fits.n, err);
}

/* Made before from another file, which was not given. */
static bool lacks_original(const struct job *j)
{
    return !j->base && gguf_find_key(&j->c.model->gguf, "zerope.source.sha256");
}

/* Fewer windows than LEAST_WINDOWS measure, but vouch for no length (P2); neither does a KL against
 * a file that is no original. */
static bool is_promise(const struct job *j)
{
    return !j->o->close_all && j->result.n_windows >= LEAST_WINDOWS && !lacks_original(j);
}

/* What holds, and for which length, in words. */
static json_t *add_words(const struct job *j, json_t *o)
{
    const struct check_result *r = &j->result;
    if (is_promise(j))
        o = json_tree_put(
            o, "promise",
            json_tree_printf("mean KL(original || new) <= %g nats a token at %u tokens "
                             "(95 %% upper bound %.3g, %u held-out windows, positions >= %u)",
                             j->budget, j->c.n_ctx, r->kl_hi, r->n_windows, j->c.n_ctx / 2));
    else if (!j->o->close_all && lacks_original(j))
        o = json_tree_put(o, "no_promise",
                          json_string("the model was evaporated before: the KL is against it, not "
                                      "against its original; give that with --base"));
    else if (!j->o->close_all)
        o = json_tree_put(o, "no_promise",
                          json_tree_printf("%u held-out windows measure, but fewer than %d vouch "
                                           "for no length", r->n_windows, LEAST_WINDOWS));
    if (j->c.docs.single_file)
        o = json_tree_put(
            o, "note", json_string("one text file was given: its parts stand in for documents"));
    return o;
}

static json_t *figures(const struct job *j)
{
    const struct check_result *r = &j->result;
    const struct gateset *g = &j->p.set;
    const struct gate_counts *n = &r->gates;
    return json_pack(
        "{ss so si so sI sI so so so so so so so so si si si sI si sI sb sf sf sf si si si si}",
        "format", "zerope-evaporate", "file", json_tree_text(j->out), "ctx", (int)j->c.n_ctx,
        "budget_kl", json_tree_real(j->budget), "closed", (json_int_t)n->closed,
        "total", (json_int_t)n->total, "kl_mean", json_tree_real(r->kl_mean), "kl_hi",
        json_tree_real(r->kl_hi), "kl_last200", json_tree_real(r->kl_last200), "kl_p99",
        json_tree_real(r->kl_p99), "kl_max", json_tree_real(r->kl_max), "ppl_before",
        json_tree_real(exp(r->nll_before)), "ppl_after", json_tree_real(exp(r->nll_after)),
        "top1_agree", json_tree_real(r->top1), "heads_none", (int)n->heads_none,
        "heads_local", (int)n->heads_local, "layers_none", (int)n->layers_none,
        "kv_bytes_per_token", (json_int_t)r->kv_bytes_per_token, "windows_check", (int)r->n_windows,
        "positions_check", (json_int_t)r->n_positions, "folded", fold_is_used(j->fold),
        "seconds_scan", j->seconds_scan, "seconds_plan", j->seconds_plan, "seconds_check",
        j->seconds_check, "checks", (int)j->n_checks, "n_layer", (int)g->n_layer, "n_kv",
        (int)g->n_kv, "n_pair", (int)g->n_pair);
}

static zp_status report(const struct job *j, char **json, zp_err *err)
{
    json_t *set, *o = figures(j);
    zp_status status = gateset_to_json(&j->p.set, &j->c.model->position, &set, err);
    bool good = status == ZP_OK && json_object_update(o, set) == 0;
    o = add_words(j, o);
    if (status == ZP_OK && !(good && o))
        status =
            status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "not enough memory for the report");
    if (status == ZP_OK) status = evapfile_text(o, json, err);
    json_decref(o);
    json_decref(set);
    return status;
}

/* All that takes memory comes before the file's name changes hands: a failed call leaves the old
 * file. The plan is a result of its own, as the scan is, and of use where the file cannot be
 * written. */
static zp_status write_final(struct job *j, zp_err *err)
{
    char *recipe;
    struct recipe_facts facts = { .plan = &j->p,
                                  .docs = &j->c.docs,
                                  .result = &j->result,
                                  .against = zp_model_sha256(j->base ? j->base : j->c.model),
                                  .budget_kl = j->budget,
                                  .close_all = j->o->close_all,
                                  .folded = fold_is_used(j->fold) };
    if (j->o->plan_out)
        ZP_TRY(evapfile_write_plan(&j->p, &j->c.model->position,
                                   (struct evapfile_paths){ j->model, j->text }, j->o->plan_out,
                                   err));
    ZP_TRY(recipe_text(&facts, &recipe, err));
    struct apply_info info = { .n_ctx_validated = is_promise(j) ? j->c.n_ctx : 0,
                               .recipe = recipe };
    zp_status status = apply_write(j->c.model, &j->p.set, j->fold, &info, j->out, err);
    mem_free(recipe);
    return status;
}

/* The original of a file that was made before, as the file names it. */
static zp_status open_base(struct job *j, zp_err *err)
{
    struct gguf_str named;
    zp_engine_options engine = { .n_ctx = j->c.n_ctx,
                                 .n_threads = j->scan_options.n_threads,
                                 .micro_batch = j->c.n_ctx,
                                 .exact = true };
    if (!j->o->base) return ZP_OK;
    ZP_TRY(zp_model_open(&j->base, j->o->base, NULL, err));
    ZP_TRY(gguf_get_str_or_null(&j->c.model->gguf, "zerope.source.sha256", &named, err));
    ZP_FAIL_IF(!named.data, err, ZP_BAD_INPUT,
               "%s is an original itself: it names no other, so --base has no meaning", j->model);
    const char *own = zp_model_sha256(j->base);
    ZP_FAIL_IF(!gguf_str_is(named, own), err, ZP_BAD_INPUT,
               "%s is not the original that %s names (hash %.12s, named %.12s)", j->o->base,
               j->model, own, named.size >= 12 ? named.data : "(short)");
    return zp_engine_open(&j->base_engine, j->base, &engine, err);
}

/* Everything that can be refused without measuring. */
static zp_status prepare(struct job *j, zp_err *err)
{
    const zp_evaporate_options *o = j->o;
    const char *outputs[] = { j->out, o->scan_out, o->plan_out };
    const char *inputs[] = { j->model, j->text, o->scan_in, o->plan_in, o->base };
    ZP_TRY(outputs_check(outputs, ZP_COUNT(outputs), inputs, ZP_COUNT(inputs), err));
    ZP_TRY(gguf_check_output(j->out, err));
    if (!o->plan_in) ZP_TRY(plan_check_options(&o->plan, j->scan_options.n_ctx, err));
    ZP_TRY(open_bench(&j->c, j->model, j->text, &j->scan_options, err));
    ZP_TRY(read_given(j, err));
    j->budget = o->plan.budget_kl == 0.0 && j->has_plan ? j->p.budget_kl : o->plan.budget_kl;
    if (!o->close_all) ZP_TRY(check_budget(j->budget, err));
    return open_base(j, err);
}

static zp_status run(struct job *j, char **json, zp_err *err)
{
    const zp_evaporate_options *o = j->o;
    bool folds = !o->plan.no_fold && (!j->has_plan || j->p.folds);
    ZP_TRY(calib_start(&j->c, j->scan_options.n_windows_local, j->scan_options.n_threads, err));
    if (folds && fold_is_possible(&j->c)) {
        ZP_TRY(fold_open(&j->fold_memory, &j->c, err));
        j->fold = &j->fold_memory;
    }
    uint32_t n = o->n_windows_check ? o->n_windows_check : LEAST_WINDOWS;
    enter(j, &j->seconds_check);
    ZP_TRY(check_open(&j->check, j->base ? j->base_engine : j->c.engine, &j->c.docs, j->c.n_ctx, n,
                      n < LEAST_WINDOWS ? n : LEAST_WINDOWS, j->c.progress, err));
    ZP_TRY(get_plan(j, err));
    ZP_TRY(keep_promise(j, err));
    enter(j, NULL);
    ZP_TRY(report(j, json, err));
    return write_final(j, err);
}

static void close_job(struct job *j)
{
    if (j->has_plan) plan_free(&j->p);
    if (j->has_scan) scan_free(&j->s);
    check_close(&j->check);
    zp_engine_close(j->base_engine);
    zp_model_close(j->base);
    fold_free(&j->fold_memory);
    calib_close(&j->c);
    mem_free(j);
}

zp_status zp_evaporate_run(const char *model, const char *text, const zp_evaporate_options *options,
                           const char *out, char **json, zp_err *err)
{
    static const zp_evaporate_options none = { 0 };
    char *unwanted = NULL;
    if (!json) json = &unwanted;
    if (!options) options = &none;
    *json = NULL;
    struct job *j = mem_zalloc(MEM_EVAP, sizeof *j);
    ZP_FAIL_IF(!j, err, ZP_NO_MEMORY, "not enough memory");
    j->model = model, j->text = text, j->out = out, j->o = options;
    j->scan_options = scan_options(&options->scan);
    j->scan_options.local_window = options->plan.local_window;
    j->scan_options.fisher |= needs_fisher(&options->plan);
    enter(j, &j->seconds_scan);
    zp_status status = prepare(j, err);
    if (status == ZP_OK) status = run(j, json, err);
    close_job(j);
    if (status != ZP_OK) {
        mem_free(*json);
        *json = NULL;
    }
    mem_free(unwanted);
    return status;
}

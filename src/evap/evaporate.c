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
#include "model/gguf_write.h"
#include "model/json_write.h"
#include "model/outputs.h"

static const double first_share = 0.85; /* of the budget aimed at on planning windows */

enum { LEAST_WINDOWS = 32, MOST_CHECKS = 6 };

static struct calib_options bench_options(const char *model, const char *text,
                                          const zp_scan_options *o)
{
    return (struct calib_options){ .model = model,
                                   .text = text,
                                   .n_ctx = o->n_ctx ? o->n_ctx : 2048,
                                   .n_windows = o->n_windows_local ? o->n_windows_local : 8,
                                   /* heads are ranked on these */
                                   .n_restart = o->local_window ? 8 : 4,
                                   .n_threads = o->n_threads,
                                   .progress = o->progress };
}

static zp_scan_options scan_options(const zp_scan_options *o)
{
    zp_scan_options out = o ? *o : (zp_scan_options){ 0 };
    if (out.n_windows_kl == 0) out.n_windows_kl = 2;
    if (out.seed == 0) out.seed = 1;
    return out;
}

zp_status zp_scan_run(const char *model, const char *text, const zp_scan_options *options,
                      const char *out, zp_err *err)
{
    ZP_TRY(outputs_check(&out, 1, (const char *const[]){ model, text }, 2, err));
    zp_scan_options o = scan_options(options);
    struct calib_options co = bench_options(model, text, &o);
    struct calib c;
    struct scan s;
    ZP_TRY(calib_open(&c, &co, err));
    zp_status status = scan_measure(&s, &c, &o, err);
    if (status == ZP_OK) {
        status = evapfile_write_scan(&s, (struct evapfile_paths){ model, text }, out, err);
        scan_free(&s);
    }
    calib_close(&c);
    return status;
}

/* ---- plan ------------------------------------------------------------------------------------ */

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
        status = evapfile_write_plan(&p, paths, out, err);
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

zp_status zp_plan_run(const char *scan, const zp_plan_options *options, const char *out,
                      zp_err *err)
{
    static const zp_plan_options none = { 0 };
    const zp_plan_options *o = options ? options : &none;
    struct scan s;
    struct calib c;
    json_t *root;
    struct evapfile_paths paths;
    ZP_TRY(check_budget(o->budget_kl, err));
    ZP_TRY(evapfile_read_scan(&s, scan, &root, &paths, err));
    if (o->model) paths.model = o->model;
    if (o->text) paths.text = o->text;
    zp_scan_options so = { .n_ctx = s.n_ctx,
                           .n_windows_local = s.n_windows_local,
                           .local_window = o->local_window,
                           .n_threads = o->n_threads,
                           .progress = o->progress };
    struct calib_options co = bench_options(paths.model, paths.text, &so);
    zp_status status =
        outputs_check(&out, 1, (const char *const[]){ scan, paths.model, paths.text }, 3, err);
    if (status == ZP_OK) status = calib_open(&c, &co, err);
    if (status == ZP_OK) {
        status = plan_on(&c, &s, o, paths, out, err);
        calib_close(&c);
    }
    scan_free(&s);
    json_decref(root);
    return status;
}

/* ---- evaporate ------------------------------------------------------------------------------- */

struct job {
    const char *model, *text, *out;
    const zp_evaporate_options *o;
    zp_scan_options scan_options;
    struct calib c;
    struct scan s;
    struct plan p;
    struct fold fold_memory, *fold; /* fold = NULL: not possible or not wanted */
    struct check check;
    struct check_result result;
    bool has_scan, has_plan;
    double seconds_scan, seconds_plan, seconds_check;
    uint32_t n_checks;
};

static zp_status get_scan(struct job *j, zp_err *err)
{
    double begin = os_now();
    if (j->o->scan_in) {
        json_t *root;
        struct evapfile_paths paths;
        ZP_TRY(evapfile_read_scan(&j->s, j->o->scan_in, &root, &paths, err));
        json_decref(root);
        j->has_scan = true;
        ZP_FAIL_IF(
            j->s.n_ctx != j->c.n_ctx, err, ZP_BAD_INPUT,
            "%s was measured at %u tokens, -c asks for %u: a scan holds for its own length only",
            j->o->scan_in, j->s.n_ctx, j->c.n_ctx);
    } else {
        ZP_TRY(scan_measure(&j->s, &j->c, &j->scan_options, err));
        j->has_scan = true;
    }
    j->seconds_scan = os_now() - begin;
    if (j->o->scan_out)
        ZP_TRY(evapfile_write_scan(&j->s, (struct evapfile_paths){ j->model, j->text },
                                   j->o->scan_out, err));
    return ZP_OK;
}

static zp_status get_plan(struct job *j, zp_err *err)
{
    double begin = os_now();
    if (j->o->plan_in) {
        json_t *root;
        ZP_TRY(evapfile_read_plan(&j->p, j->o->plan_in, j->c.model, &root, err));
        json_decref(root);
        j->has_plan = true;
        ZP_FAIL_IF(
            j->p.n_ctx != j->c.n_ctx, err, ZP_BAD_INPUT,
            "%s was made for %u tokens, -c asks for %u: a plan holds for its own length only",
            j->o->plan_in, j->p.n_ctx, j->c.n_ctx);
        ZP_TRY(plan_use(&j->p, &j->c, j->fold, j->p.n_used, err));
    } else {
        if (!j->has_scan) ZP_TRY(get_scan(j, err));
        double share = j->o->close_all ? INFINITY : first_share * j->o->plan.budget_kl;
        ZP_TRY(plan_make(&j->p, &j->c, &j->s, &j->o->plan, j->fold, share, err));
        j->has_plan = true;
    }
    j->seconds_plan = os_now() - begin - j->seconds_scan;
    return ZP_OK;
}

static zp_status recipe_text(const struct job *j, char **out, zp_err *err)
{
    const zp_plan_options *o = &j->o->plan;
    json_t *r = json_pack("{ss ss si so sb sb sb sb si sb si so so}", "command", "evaporate",
                          "method", "snap", "ctx", (int)j->c.n_ctx, "budget_kl",
                          json_tree_real(o->budget_kl), "uniform", o->uniform, "uniform_slow",
                          o->uniform_slow, "layers", o->layers, "close_all", j->o->close_all,
                          "local_window", (int)o->local_window, "folded", fold_is_used(j->fold),
                          "windows_check", (int)j->result.n_windows, "kl_mean",
                          json_tree_real(j->result.kl_mean), "kl_hi",
                          json_tree_real(j->result.kl_hi));
    ZP_FAIL_IF(!r, err, ZP_NO_MEMORY, "not enough memory for the recipe");
    zp_status status = evapfile_text(r, out, err);
    json_decref(r);
    return status;
}

static zp_status try_once(struct job *j, zp_err *err)
{
    double begin = os_now();
    struct apply_info info = { .n_ctx_validated = 0 };
    char *trial;
    ZP_TRY(os_reserve_beside(j->out, &trial, err));
    zp_status status = apply_write(j->c.model, &j->p.set, j->fold, &info, trial, err);
    if (status == ZP_OK) status = check_file(&j->check, trial, &j->result, err);
    remove(trial);
    mem_free(trial);
    j->n_checks++;
    j->seconds_check += os_now() - begin;
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

/* The next prefix to try: further after one that fits, shorter after one that does not. */
static zp_status next_try(struct job *j, const struct tried *fits, const struct tried *fails,
                          size_t grain, zp_err *err)
{
    double budget = j->o->plan.budget_kl,
           aim = 0.97 * j->p.kl_mean * budget / fmax(j->result.kl_hi, 1e-12);
    size_t n = j->p.n_used, hi = n + n / 4 + grain;
    if (fits->known && fails->known)
        return plan_use(&j->p, &j->c, j->fold, between(fits, fails, budget), err);
    if (fits->known)
        return plan_search(&j->p, &j->c, j->fold, n, hi < j->p.n_units ? hi : j->p.n_units, grain,
                           aim, err);
    if (j->n_checks > MOST_CHECKS) aim *= 0.5; /* close in faster */
    return plan_search(&j->p, &j->c, j->fold, 0, n ? n - 1 : 0, grain, aim, err);
}

/* Follows the order further or cuts it back until the held-out bound fits (P1) and little of the
 * budget is left. The longest prefix that fitted is kept. */
static zp_status keep_promise(struct job *j, zp_err *err)
{
    double budget = j->o->plan.budget_kl;
    /* heads, layers and pairs are few and weigh much: to the last one */
    bool few = j->p.units[0].kind != UNIT_GATE;
    size_t grain = few ? 0 : j->p.n_units / 128;
    double enough = (few ? 0.97 : 0.9) * budget;
    struct tried fits = { 0 }, fails = { 0 };
    struct check_result best = { 0 };
    for (;;) {
        ZP_TRY(try_once(j, err));
        if (j->o->close_all) return ZP_OK;
        struct tried now = { j->p.n_used, j->result.kl_hi, true };
        if (now.kl_hi <= budget) fits = now, best = j->result;
        else fails = now;
        bool all = fits.known && fits.n == j->p.n_units,
             near = fits.known && fails.known && fails.n <= fits.n + 1 + grain;
        if (fits.known && (all || near || fits.kl_hi >= enough || j->n_checks >= MOST_CHECKS))
            break;
        ZP_TRY(next_try(j, &fits, &fails, grain, err));
        if (fits.known && j->p.n_used == fits.n) break;
    }
    j->result = best;
    return j->p.n_used == fits.n ? ZP_OK : plan_use(&j->p, &j->c, j->fold, fits.n, err);
}

/* Fewer windows than LEAST_WINDOWS measure, but vouch for no length (P2). */
static bool is_promise(const struct job *j)
{
    return !j->o->close_all && j->result.n_windows >= LEAST_WINDOWS;
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
                             j->o->plan.budget_kl, j->c.n_ctx, r->kl_hi, r->n_windows,
                             j->c.n_ctx / 2));
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
    return json_pack(
        "{ss so si so sI sI so so so so so so so so si si si sI si sI sb sf sf sf si si si si}",
        "format", "zerope-evaporate", "file", json_tree_text(j->out), "ctx", (int)j->c.n_ctx,
        "budget_kl", json_tree_real(j->o->plan.budget_kl), "closed", (json_int_t)gateset_closed(g),
        "total", (json_int_t)gateset_total(g), "kl_mean", json_tree_real(r->kl_mean), "kl_hi",
        json_tree_real(r->kl_hi), "kl_last200", json_tree_real(r->kl_last200), "kl_p99",
        json_tree_real(r->kl_p99), "kl_max", json_tree_real(r->kl_max), "ppl_before",
        json_tree_real(exp(r->nll_before)), "ppl_after", json_tree_real(exp(r->nll_after)),
        "top1_agree", json_tree_real(r->top1), "heads_none", (int)gateset_heads_none(g),
        "heads_local", (int)gateset_heads_local(g), "layers_none", (int)gateset_layers_none(g),
        "kv_bytes_per_token", (json_int_t)r->kv_bytes_per_token, "windows_check", (int)r->n_windows,
        "positions_check", (json_int_t)r->n_positions, "folded", fold_is_used(j->fold),
        "seconds_scan", j->seconds_scan, "seconds_plan", j->seconds_plan, "seconds_check",
        j->seconds_check, "checks", (int)j->n_checks, "n_layer", (int)g->n_layer, "n_kv",
        (int)g->n_kv, "n_pair", (int)g->n_pair);
}

static zp_status report(const struct job *j, char **json, zp_err *err)
{
    json_t *set, *o = figures(j);
    zp_status status = gateset_to_json(&j->p.set, &set, err);
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
    if (j->o->plan_out)
        ZP_TRY(evapfile_write_plan(&j->p, (struct evapfile_paths){ j->model, j->text },
                                   j->o->plan_out, err));
    ZP_TRY(recipe_text(j, &recipe, err));
    struct apply_info info = { .n_ctx_validated = is_promise(j) ? j->c.n_ctx : 0,
                               .recipe = recipe };
    zp_status status = apply_write(j->c.model, &j->p.set, j->fold, &info, j->out, err);
    mem_free(recipe);
    return status;
}

static zp_status run(struct job *j, char **json, zp_err *err)
{
    const zp_evaporate_options *o = j->o;
    if (!o->close_all) ZP_TRY(check_budget(o->plan.budget_kl, err));
    const char *outputs[] = { j->out, o->scan_out, o->plan_out };
    const char *inputs[] = { j->model, j->text, o->scan_in, o->plan_in };
    ZP_TRY(outputs_check(outputs, ZP_COUNT(outputs), inputs, ZP_COUNT(inputs), err));
    ZP_TRY(gguf_check_output(j->out, err));
    struct calib_options co = bench_options(j->model, j->text, &j->scan_options);
    ZP_TRY(calib_open(&j->c, &co, err));
    if (!o->plan.no_fold && fold_is_possible(&j->c)) {
        ZP_TRY(fold_open(&j->fold_memory, &j->c, err));
        j->fold = &j->fold_memory;
    }
    if (o->scan_in && !o->plan_in) ZP_TRY(get_scan(j, err)); /* a bad file costs no measuring */
    uint32_t n = o->n_windows_check ? o->n_windows_check : LEAST_WINDOWS;
    ZP_TRY(check_open(&j->check, j->c.engine, &j->c.docs, j->c.n_ctx, n,
                      n < LEAST_WINDOWS ? n : LEAST_WINDOWS, j->c.progress, err));
    ZP_TRY(get_plan(j, err));
    ZP_TRY(keep_promise(j, err));
    ZP_TRY(report(j, json, err));
    return write_final(j, err);
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
    zp_evaporate_options own = *options;
    j->model = model, j->text = text, j->out = out, j->o = &own;
    j->scan_options = scan_options(&options->scan);
    j->scan_options.local_window = options->plan.local_window;
    zp_status status = ZP_OK;
    if (own.plan_in && !own.close_all && own.plan.budget_kl == 0.0)
        status = evapfile_read_budget(own.plan_in, &own.plan.budget_kl, err);
    if (status == ZP_OK) status = run(j, json, err);
    if (j->has_plan) plan_free(&j->p);
    if (j->has_scan) scan_free(&j->s);
    check_close(&j->check);
    fold_free(&j->fold_memory);
    if (j->c.model) calib_close(&j->c);
    mem_free(j);
    if (status != ZP_OK) {
        mem_free(*json);
        *json = NULL;
    }
    mem_free(unwanted);
    return status;
}

/* anneal.c: positions taken out by training: a run whose gates close, and the file without them.
 * Owns: the trained model's file on its way, beside the output. Does not know: steps, policies.
 * E1 a unit that the run closed is absent from the file (I2), one that it did not is as before. */
#include "evap/anneal.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "evap/apply.h"
#include "evap/evapfile.h"
#include "kern/quant.h"
#include "model/gguf_write.h"

/* ---- the file -------------------------------------------------------------------------------- */

static zp_status recipe_of(const struct trainjob *j, char **out, zp_err *err)
{
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "by", "training");
    for (size_t i = 0; i < j->n_asked; i++)
        json_build_text(&w, j->asked[i].name, j->asked[i].value);
    json_build_uint(&w, "closed", j->trainer.gates.n_closed);
    json_build_uint(&w, "total", j->trainer.gates.n_open);
    json_build_text(&w, "source_sha256", zp_model_sha256(j->model));
    json_build_object_end(&w);
    return json_build_finish(&w, out);
}

/* The trained model `plain`, which has all its gates, without those that closed. */
static zp_status write_closed(const struct trainjob *j, const struct zp_model *plain,
                              const char *recipe, const char *out, zp_err *err)
{
    const struct gates *g = &j->trainer.gates;
    struct gateset set;
    uint8_t *bias_open;
    ZP_ALLOC(bias_open, MEM_EVAP, g->n - g->n_pairs, err, "the biases");
    for (size_t i = g->n_pairs; i < g->n; i++)
        bias_open[i - g->n_pairs] = g->exists[i] && !g->closed[i];
    struct apply_info info = { .recipe = recipe, .bias_open = bias_open };
    zp_status status = gateset_open(&set, &plain->position, err);
    if (status == ZP_OK) {
        for (size_t i = 0; i < g->n_pairs; i++)
            if (g->closed[i]) set.open[i] = 0;
        const uint32_t *window = g->options.window;
        for (size_t i = 0; window && i < (size_t)set.n_layer * set.n_kv; i++)
            set.window[i] = window[i];
        if (window) set.n_sink = g->options.n_sink;
        status = apply_write(plain, &set, NULL, &info, out, err);
        gateset_free(&set);
    }
    mem_free(bias_open);
    return status;
}

static zp_status close_file(const struct trainjob *j, const char *part, const char *out,
                            zp_err *err)
{
    struct zp_model *plain;
    char *recipe;
    ZP_TRY(zp_model_open(&plain, part, NULL, err));
    zp_status status = recipe_of(j, &recipe, err);
    if (status == ZP_OK) {
        status = write_closed(j, plain, recipe, out, err);
        mem_free(recipe);
    }
    zp_model_close(plain);
    return status;
}

zp_status anneal_write(const struct trainjob *j, const char *out, zp_err *err)
{
    const struct trainer *t = &j->trainer;
    char *part;
    ZP_TRY(os_reserve_beside(out, &part, err));
    zp_status status =
        trainer_write(t, quant_traits_by_name(j->options.type)->type, NULL, part, err);
    if (status == ZP_OK) status = close_file(j, part, out, err);
    (void)remove(part);
    mem_free(part);
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* What a plan asks of gates: its units' pairs in their order, and its local heads. */
struct wishes {
    uint32_t *order;
    size_t n;
    struct gateset set;
};

/* Pairs that are open in `before` and not in `after`. */
static void note_closed(struct wishes *w, const struct gateset *before,
                        const struct gateset *after)
{
    for (size_t i = 0; i < gateset_total(before); i++)
        if (before->open[i] && !after->open[i]) w->order[w->n++] = (uint32_t)i;
}

static zp_status order_units(struct wishes *w, const struct plan *p,
                             const struct position *position, zp_err *err)
{
    ZP_TRY(plan_set(p, position, 0, &w->set, err));
    for (size_t i = 0; i < p->n_used; i++) {
        struct gateset next;
        ZP_TRY(plan_set(p, position, i + 1, &next, err));
        note_closed(w, &w->set, &next);
        gateset_free(&w->set);
        w->set = next;
    }
    return ZP_OK;
}

static zp_status read_plan(struct wishes *w, const char *path, const char *model, zp_err *err)
{
    struct zp_model *m;
    struct plan p;
    json_t *root;
    ZP_TRY(zp_model_open(&m, model, NULL, err));
    zp_status status = evapfile_read_plan(&p, path, m, &root, err);
    if (status == ZP_OK) {
        w->order = mem_array(MEM_EVAP, gateset_total(&p.set), sizeof *w->order);
        if (w->order) status = order_units(w, &p, &m->position, err);
        else status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "not enough memory");
        plan_free(&p);
        json_decref(root);
    }
    zp_model_close(m);
    return status;
}

/* ---- the report ------------------------------------------------------------------------------ */

static zp_status report(const struct trainjob *j, const char *out, char **json, zp_err *err)
{
    const struct gates *g = &j->trainer.gates;
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "file", out);
    json_build_text(&w, "policy", gates_policy_name(g->options.policy));
    json_build_uint(&w, "closed", g->n_closed);
    json_build_uint(&w, "total", g->n_open);
    json_build_uint(&w, "reopened", j->result.reopened);
    json_build_array(&w, "closed_by_layer");
    for (uint32_t l = 0; l < g->position->n_layer; l++) {
        uint64_t n = 0;
        for (size_t i = 0; i < g->n; i++) n += g->closed[i] && gates_place_of(g, i).layer == l;
        json_build_uint(&w, NULL, n);
    }
    json_build_array_end(&w);
    trainjob_report(j, &w);
    json_build_object_end(&w);
    return json_build_finish(&w, json);
}

/* ---- the call -------------------------------------------------------------------------------- */

static zp_status run(struct trainjob *j, const char *out, char **json, zp_err *err)
{
    if (j->options.memory_plan) return json ? trainjob_plan(j, json, err) : ZP_OK;
    ZP_TRY(gguf_check_output(out, err));
    ZP_TRY(trainjob_run(j, err));
    if (!trainjob_leads(j)) return ZP_OK;
    ZP_TRY(anneal_write(j, out, err));
    ZP_TRY(trainjob_write_adapter(j, err));
    return json ? report(j, out, json, err) : ZP_OK;
}

static zp_status anneal(const char *model, const char *corpus, const char *out,
                        const zp_anneal_options *o, const struct gates_options *gates, char **json,
                        zp_err *err)
{
    struct trainjob *j = mem_alloc(MEM_EVAP, sizeof *j);
    ZP_FAIL_IF(!j, err, ZP_NO_MEMORY, "not enough memory to train");
    zp_status status = trainjob_open(j, model, corpus, &o->train, gates, o->pic_steps, err);
    if (status == ZP_OK) {
        status = run(j, out, json, err);
        trainjob_close(j);
    }
    mem_free(j);
    return status;
}

zp_status zp_anneal_run(const char *model, const char *corpus, const char *out,
                        const zp_anneal_options *options, char **json, zp_err *err)
{
    static const zp_anneal_options defaults = { 0 };
    const zp_anneal_options *o = options ? options : &defaults;
    struct gates_options gates = { .begin = o->begin,
                                   .share = o->share,
                                   .ramp = o->ramp,
                                   .overlap = o->overlap,
                                   .stages = o->stages,
                                   .lambda = o->lambda,
                                   .eps_first = o->eps_first,
                                   .eps_rest = o->eps_rest,
                                   .t_cool = o->t_cool,
                                   .tolerance = o->tolerance };
    struct wishes wishes = { 0 };
    if (json) *json = NULL;
    ZP_TRY(gates_find(o->policy ? o->policy : "abrupt", &gates.policy, err));
    ZP_FAIL_IF(gates.policy == GATES_KEEP, err, ZP_USAGE, "a policy that keeps all is training");
    zp_status status = o->plan ? read_plan(&wishes, o->plan, model, err) : ZP_OK;
    if (o->plan) {
        gates.order = wishes.order, gates.n_order = wishes.n;
        gates.window = wishes.set.window, gates.n_sink = wishes.set.n_sink;
    }
    if (status == ZP_OK) status = anneal(model, corpus, out, o, &gates, json, err);
    gateset_free(&wishes.set);
    mem_free(wishes.order);
    return status;
}

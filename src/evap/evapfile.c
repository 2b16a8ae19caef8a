/* evapfile.c: SCAN.json and PLAN.json.
 * Owns: field names and their checks. Does not know: how values were measured.
 * V1 a document is refused when a count, a type or a range does not fit; never silently cut. */
#include "evap/evapfile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/os.h"
#include "evap/recipe.h"
#include "model/json_write.h"

static const double MOST_BUDGET = 100.0; /* nats: more than any budget means */

zp_status evapfile_text(const json_t *j, char **out, zp_err *err)
{
    struct buffer b = buffer_with_max(MEM_EVAP, (size_t)1 << 30);
    *out = NULL;
    zp_status status = json_write_text(
        j, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9), &b, err);
    if (status == ZP_OK) *out = (char *)b.data; /* NUL-terminated; the caller frees it */
    else buffer_free(&b);
    return status;
}

zp_status evapfile_dump(const json_t *j, const char *path, zp_err *err)
{
    char *text;
    ZP_TRY(evapfile_text(j, &text, err));
    zp_status status = os_write_file(path, text, strlen(text), err);
    mem_free(text);
    return status;
}

static json_t *numbers_f64(const double *x, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) a = json_tree_add(a, json_tree_real(x[i]));
    return a;
}

static json_t *numbers_f32(const float *x, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) a = json_tree_add(a, json_tree_real((double)x[i]));
    return a;
}

static json_t *scan_to_json(const struct scan *s, struct evapfile_paths paths)
{
    size_t heads = (size_t)s->n_layer * s->n_kv;
    json_t *j = json_pack(
        "{ss si so so ss si si si si si si si so so so so so so so so so so so}", "format",
        "zerope-scan", "version", 1, "model", json_tree_text(paths.model), "text",
        json_tree_text(paths.text), "model_sha256",
        s->model_sha256, "n_layer", (int)s->n_layer, "n_kv", (int)s->n_kv, "n_pair", (int)s->n_pair,
        "ctx", (int)s->n_ctx, "windows_local", (int)s->n_windows_local, "windows_kl",
        (int)s->n_windows_kl, "local_window", (int)s->local_window, "gates",
        numbers_f64(s->importance, heads * s->n_pair), "kl_head", numbers_f64(s->kl_head, heads),
        "kl_layer", numbers_f64(s->kl_layer, s->n_layer), "kl_pair",
        numbers_f64(s->kl_pair, s->n_pair), "kl_local", numbers_f64(s->kl_local, heads), "nll_rise",
        numbers_f64(s->nll_rise, heads), "error_gate",
        numbers_f32(s->local.gate, heads * s->n_pair), "error_all",
        numbers_f32(s->local.all, heads), "error_now", numbers_f32(s->local.now, heads),
        "output", numbers_f32(s->local.output, s->n_layer), "planning_documents",
        recipe_hashes_to_json(s->seen, s->n_seen));
    if (!s->fisher) return j;
    j = json_tree_put(j, "fisher", numbers_f64(s->fisher, heads * s->n_pair));
    return json_tree_put(j, "first_order", numbers_f64(s->first_order, heads * s->n_pair));
}

zp_status evapfile_write_scan(const struct scan *s, struct evapfile_paths paths, const char *out,
                              zp_err *err)
{
    json_t *j = scan_to_json(s, paths);
    ZP_FAIL_IF(!j, err, ZP_NO_MEMORY, "not enough memory for the scan document");
    zp_status status = evapfile_dump(j, out, err);
    json_decref(j);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static zp_status read_count(const json_t *j, const char *key, uint32_t most, uint32_t *out,
                            zp_err *err)
{
    const json_t *v = json_object_get(j, key);
    ZP_FAIL_IF(!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > most,
               err, ZP_BAD_INPUT, "field %s must be a whole number in 0..%u", key, most);
    *out = (uint32_t)json_integer_value(v);
    return ZP_OK;
}

static zp_status read_text(const json_t *j, const char *key, const char **out, zp_err *err)
{
    *out = json_string_value(json_object_get(j, key));
    ZP_FAIL_IF(!*out, err, ZP_BAD_INPUT, "field %s must be a string", key);
    return ZP_OK;
}

static zp_status read_numbers(const json_t *j, const char *key, size_t n, double *f64, float *f32,
                              zp_err *err)
{
    const json_t *a = json_object_get(j, key);
    ZP_FAIL_IF(!json_is_array(a) || json_array_size(a) != n, err, ZP_BAD_INPUT,
               "field %s must be a list of %zu numbers; found %zu", key, n, json_array_size(a));
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        ZP_FAIL_IF(!json_is_number(v) || !isfinite(json_number_value(v)), err, ZP_BAD_INPUT,
                   "%s[%zu] is not a number", key, i);
        if (f64) f64[i] = json_number_value(v);
        else f32[i] = (float)json_number_value(v);
    }
    return ZP_OK;
}

static zp_status check_head(const json_t *root, const char *path, const char *format, zp_err *err)
{
    const char *found = json_string_value(json_object_get(root, "format"));
    ZP_FAIL_IF(!found || strcmp(found, format) != 0, err, ZP_BAD_INPUT,
               "%s: not a %s document (format is %.40s)", path, format, found ? found : "missing");
    const json_t *version = json_object_get(root, "version");
    ZP_FAIL_IF(!json_is_integer(version) || json_integer_value(version) != 1, err, ZP_BAD_INPUT,
               "%s: version of the %s document must be 1%s", path, format,
               json_is_integer(version) ? ": it was written by a newer zerope" : "");
    return ZP_OK;
}

static zp_status load(const char *path, const char *format, json_t **root, zp_err *err)
{
    struct buffer b = buffer_with_max(MEM_EVAP, (size_t)1 << 30);
    *root = NULL;
    zp_status status = os_read_file(path, &b, err);
    if (status == ZP_OK)
        status = json_tree_read((const char *)b.data, b.size, path, ZP_BAD_INPUT, root, err);
    buffer_free(&b);
    ZP_TRY(status);
    status = check_head(*root, path, format, err);
    if (status == ZP_OK) return ZP_OK;
    json_decref(*root);
    *root = NULL;
    return status;
}

static zp_status read_seen(const json_t *j, struct arena *arena, uint64_t **seen, size_t *n,
                           zp_err *err)
{
    const json_t *list = json_object_get(j, "planning_documents");
    ZP_FAIL_IF(!json_is_array(list), err, ZP_BAD_INPUT, "field planning_documents must be a list");
    return recipe_hashes_from_json(list, arena, seen, n, err);
}

/* Both or none of them. */
static zp_status read_gradients(struct scan *s, const json_t *j, zp_err *err)
{
    size_t n = (size_t)s->n_layer * s->n_kv * s->n_pair;
    if (!json_object_get(j, "fisher") && !json_object_get(j, "first_order")) return ZP_OK;
    ZP_TRY(scan_place_gradients(s, err));
    ZP_TRY(read_numbers(j, "fisher", n, s->fisher, NULL, err));
    ZP_TRY(read_numbers(j, "first_order", n, s->first_order, NULL, err));
    for (size_t i = 0; i < n; i++)
        ZP_FAIL_IF(s->fisher[i] < 0.0 || s->first_order[i] < 0.0, err, ZP_BAD_INPUT,
                   "%s[%zu] is below 0", s->fisher[i] < 0.0 ? "fisher" : "first_order", i);
    return ZP_OK;
}

static zp_status fill_scan(struct scan *s, const json_t *j, struct evapfile_paths *paths,
                           zp_err *err)
{
    uint32_t n_layer, n_kv, n_pair;
    const char *sha;
    ZP_TRY(read_text(j, "model", &paths->model, err));
    ZP_TRY(read_text(j, "text", &paths->text, err));
    ZP_TRY(read_text(j, "model_sha256", &sha, err));
    ZP_TRY(read_count(j, "n_layer", 1024, &n_layer, err));
    ZP_TRY(read_count(j, "n_kv", 1024, &n_kv, err));
    ZP_TRY(read_count(j, "n_pair", 512, &n_pair, err));
    ZP_TRY(scan_place(s, n_layer, n_kv, n_pair, err));
    ZP_TRY(read_count(j, "ctx", 1u << 24, &s->n_ctx, err));
    ZP_TRY(read_count(j, "windows_local", 4096, &s->n_windows_local, err));
    ZP_TRY(read_count(j, "windows_kl", 4096, &s->n_windows_kl, err));
    ZP_TRY(read_count(j, "local_window", 1u << 24, &s->local_window, err));
    s->model_sha256 = arena_strndup(&s->arena, sha, strlen(sha));
    ZP_FAIL_IF(!s->model_sha256, err, ZP_NO_MEMORY, "not enough memory for the scan");
    size_t heads = (size_t)n_layer * n_kv;
    ZP_TRY(read_numbers(j, "gates", heads * n_pair, s->importance, NULL, err));
    ZP_TRY(read_numbers(j, "kl_head", heads, s->kl_head, NULL, err));
    ZP_TRY(read_numbers(j, "kl_layer", n_layer, s->kl_layer, NULL, err));
    ZP_TRY(read_numbers(j, "kl_pair", n_pair, s->kl_pair, NULL, err));
    ZP_TRY(read_numbers(j, "kl_local", heads, s->kl_local, NULL, err));
    ZP_TRY(read_numbers(j, "nll_rise", heads, s->nll_rise, NULL, err));
    ZP_TRY(read_numbers(j, "error_gate", heads * n_pair, NULL, s->local.gate, err));
    ZP_TRY(read_numbers(j, "error_all", heads, NULL, s->local.all, err));
    ZP_TRY(read_numbers(j, "error_now", heads, NULL, s->local.now, err));
    ZP_TRY(read_numbers(j, "output", n_layer, NULL, s->local.output, err));
    ZP_TRY(read_gradients(s, j, err));
    return read_seen(j, &s->arena, &s->seen, &s->n_seen, err);
}

zp_status evapfile_read_scan(struct scan *s, const char *path, json_t **root,
                             struct evapfile_paths *paths, zp_err *err)
{
    memset(s, 0, sizeof *s);
    ZP_TRY(load(path, "zerope-scan", root, err));
    zp_status status = fill_scan(s, *root, paths, err);
    if (status == ZP_OK) return ZP_OK;
    if (status != ZP_NO_MEMORY) status_add_path(err, path);
    scan_free(s);
    json_decref(*root);
    *root = NULL;
    return status;
}

/* ---- plan ------------------------------------------------------------------------------------ */

static const char *const kind_names[] = { "gate", "pair", "layer", "local" };

static json_t *order_to_json(const struct plan *p)
{
    json_t *a = json_array();
    for (size_t i = 0; i < p->n_units; i++) {
        const struct unit *u = &p->units[i];
        a = json_tree_add(a,
                          json_pack("[s i i i]", kind_names[u->kind], u->layer, u->kv, u->pair));
    }
    return a;
}

static json_t *plan_to_json(const struct plan *p, const struct position *position,
                            struct evapfile_paths paths)
{
    struct gate_counts n = gateset_count(&p->set, position);
    json_t *j = json_pack(
        "{ss si so so ss si so so sb sb sb ss sb sb si so}", "format", "zerope-plan", "version", 1,
        "model", json_tree_text(paths.model), "text", json_tree_text(paths.text), "model_sha256",
        p->model_sha256, "ctx", (int)p->n_ctx, "budget_kl", json_tree_real(p->budget_kl), "kl_mean",
        json_tree_real(p->kl_mean), "uniform", p->uniform, "uniform_slow", p->uniform_slow,
        "layers", p->layers, "rank", gaterank_name(p->rank), "folds", p->folds, "folded", p->folded,
        "local_window", (int)p->local_window, "planning_documents",
        recipe_hashes_to_json(p->seen, p->n_seen));
    json_t *outcome =
        json_pack("{si si si si si si si so si}", "n_layer", (int)p->set.n_layer, "n_kv",
                  (int)p->set.n_kv, "n_pair", (int)p->set.n_pair, "closed", (int)n.closed, "total",
                  (int)n.total, "layers_none", (int)n.layers_none, "heads_none", (int)n.heads_none,
                  "order", order_to_json(p), "used", (int)p->n_used);
    if (j && (!outcome || json_object_update(j, outcome) != 0)) {
        json_decref(j);
        j = NULL;
    }
    json_decref(outcome);
    return j;
}

zp_status evapfile_write_plan(const struct plan *p, const struct position *position,
                              struct evapfile_paths paths, const char *out, zp_err *err)
{
    json_t *set;
    ZP_TRY(gateset_to_json(&p->set, position, &set, err));
    json_t *j = plan_to_json(p, position, paths);
    zp_status status = ZP_OK;
    if (!j || json_object_update(j, set) != 0)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for the plan document");
    if (status == ZP_OK) status = evapfile_dump(j, out, err);
    json_decref(j);
    json_decref(set);
    return status;
}

static zp_status read_flag(const json_t *j, const char *key, bool *out, zp_err *err)
{
    const json_t *v = json_object_get(j, key);
    ZP_FAIL_IF(!json_is_boolean(v), err, ZP_BAD_INPUT, "field %s must be true or false", key);
    *out = json_is_true(v);
    return ZP_OK;
}

static zp_status read_real(const json_t *j, const char *key, double most, double *out, zp_err *err)
{
    const json_t *v = json_object_get(j, key);
    *out = json_number_value(v);
    ZP_FAIL_IF(!json_is_number(v) || !(*out >= 0.0 && *out <= most), err, ZP_BAD_INPUT,
               "field %s must be a number in 0..%g", key, most);
    return ZP_OK;
}

/* Plans of old say nothing: there was one order. */
static zp_status read_rank(const json_t *j, enum gaterank *out, zp_err *err)
{
    const json_t *v = json_object_get(j, "rank");
    *out = GATERANK_LOCAL;
    ZP_FAIL_IF(v && !json_is_string(v), err, ZP_BAD_INPUT, "field rank must be a string");
    if (gaterank_find(json_string_value(v), out, NULL) == ZP_OK) return ZP_OK;
    ZP_FAIL(err, ZP_BAD_INPUT, "field rank is '%.40s'; known: local fisher sum",
            json_string_value(v));
}

/* A count that follows from the rest: another value says that one of them was edited. May be left
 * out. */
static zp_status check_count(const json_t *j, const char *key, uint32_t expected, zp_err *err)
{
    uint32_t told;
    if (!json_object_get(j, key)) return ZP_OK;
    ZP_TRY(read_count(j, key, UINT32_MAX, &told, err));
    ZP_FAIL_IF(told != expected, err, ZP_BAD_INPUT, "field %s is %u; the rest of the plan gives %u",
               key, told, expected);
    return ZP_OK;
}

static zp_status read_unit(struct unit *u, const json_t *item, const struct gateset *g, size_t at,
                           zp_err *err)
{
    const char *kind = json_string_value(json_array_get(item, 0));
    int k = 0;
    while (k < 4 && (!kind || strcmp(kind, kind_names[k]) != 0)) k++;
    ZP_FAIL_IF(k == 4, err, ZP_BAD_INPUT, "order[%zu]: unknown kind; known: gate pair layer local",
               at);
    ZP_FAIL_IF(json_array_size(item) != 4, err, ZP_BAD_INPUT,
               "order[%zu]: expected kind, layer, KV head, pair", at);
    json_int_t n[3];
    const json_int_t most[3] = { g->n_layer, g->n_kv, g->n_pair };
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(item, i + 1);
        n[i] = json_is_integer(v) ? json_integer_value(v) : -1;
        ZP_FAIL_IF(n[i] < 0 || n[i] >= most[i], err, ZP_BAD_INPUT,
                   "order[%zu]: item %zu is out of range", at, i + 1);
    }
    *u = (struct unit){ (enum unit_kind)k, (uint16_t)n[0], (uint16_t)n[1], (uint16_t)n[2],
                        (double)at };
    return ZP_OK;
}

/* What the document says is closed must be what its order closes: one of them was edited. */
static zp_status check_closed(const struct gateset *told, const struct gateset *does, zp_err *err)
{
    uint32_t n_kv = does->n_kv, n_pair = does->n_pair;
    for (uint32_t h = 0; h < does->n_layer * n_kv; h++) {
        ZP_FAIL_IF(told->window[h] != does->window[h], err, ZP_BAD_INPUT,
                   "local_heads contradicts order and used at layer %u, KV head %u", h / n_kv,
                   h % n_kv);
        for (uint32_t i = 0; i < n_pair; i++)
            ZP_FAIL_IF(told->open[h * n_pair + i] != does->open[h * n_pair + i], err, ZP_BAD_INPUT,
                       "closed_gates contradicts order and used at gate [%u, %u, %u]", h / n_kv,
                       h % n_kv, i);
    }
    return ZP_OK;
}

static zp_status read_closed(struct plan *p, const json_t *j, const struct zp_model *m, zp_err *err)
{
    struct gateset told;
    const json_t *closed = json_object_get(j, "closed_gates"),
                 *local = json_object_get(j, "local_heads");
    ZP_FAIL_IF(!json_is_array(closed) || !json_is_array(local), err, ZP_BAD_INPUT,
               "fields closed_gates and local_heads must be lists");
    ZP_TRY(gateset_open(&told, &m->position, err));
    zp_status status = gateset_from_json(&told, closed, local, err);
    gateset_free(&p->set);
    if (status == ZP_OK) status = plan_set(p, &m->position, p->n_used, &p->set, err);
    if (status == ZP_OK) status = check_closed(&told, &p->set, err);
    gateset_free(&told);
    return status;
}

static zp_status check_counts(const struct plan *p, const json_t *j, const struct zp_model *m,
                              zp_err *err)
{
    struct gate_counts n = gateset_count(&p->set, &m->position);
    ZP_TRY(check_count(j, "n_layer", p->set.n_layer, err));
    ZP_TRY(check_count(j, "n_kv", p->set.n_kv, err));
    ZP_TRY(check_count(j, "n_pair", p->set.n_pair, err));
    ZP_TRY(check_count(j, "closed", n.closed, err));
    ZP_TRY(check_count(j, "total", n.total, err));
    ZP_TRY(check_count(j, "layers_none", n.layers_none, err));
    ZP_TRY(check_count(j, "heads_none", n.heads_none, err));
    return check_count(j, "sinks", p->set.n_sink, err);
}

static zp_status fill_plan(struct plan *p, const json_t *j, const struct zp_model *m, zp_err *err)
{
    const char *sha, *own = zp_model_sha256(m);
    uint32_t used;
    p->arena.tag = MEM_EVAP;
    ZP_TRY(read_text(j, "model_sha256", &sha, err));
    ZP_FAIL_IF(strcmp(sha, own) != 0, err, ZP_BAD_INPUT,
               "the plan was made for another model (hash %.12s, this file has %.12s)", sha,
               own);
    ZP_TRY(read_count(j, "ctx", 1u << 24, &p->n_ctx, err));
    ZP_TRY(read_count(j, "local_window", 1u << 24, &p->local_window, err));
    ZP_TRY(read_real(j, "budget_kl", MOST_BUDGET, &p->budget_kl, err));
    ZP_TRY(read_real(j, "kl_mean", INFINITY, &p->kl_mean, err));
    ZP_TRY(read_flag(j, "uniform", &p->uniform, err));
    ZP_TRY(read_flag(j, "uniform_slow", &p->uniform_slow, err));
    ZP_TRY(read_flag(j, "layers", &p->layers, err));
    ZP_TRY(read_rank(j, &p->rank, err));
    ZP_TRY(read_flag(j, "folds", &p->folds, err));
    ZP_TRY(read_seen(j, &p->arena, &p->seen, &p->n_seen, err));
    p->model_sha256 = arena_strndup(&p->arena, sha, strlen(sha));
    const json_t *order = json_object_get(j, "order");
    ZP_FAIL_IF(!json_is_array(order), err, ZP_BAD_INPUT, "field order must be a list");
    p->n_units = json_array_size(order);
    p->units = arena_array(&p->arena, p->n_units + 1, sizeof *p->units);
    ZP_FAIL_IF(!p->units || !p->model_sha256, err, ZP_NO_MEMORY, "not enough memory for the plan");
    ZP_TRY(gateset_open(&p->set, &m->position, err));
    for (size_t i = 0; i < p->n_units; i++)
        ZP_TRY(read_unit(&p->units[i], json_array_get(order, i), &p->set, i, err));
    ZP_TRY(read_count(j, "used", (uint32_t)p->n_units, &used, err));
    p->n_used = used;
    ZP_TRY(read_closed(p, j, m, err));
    return check_counts(p, j, m, err);
}

zp_status evapfile_read_plan(struct plan *p, const char *path, const struct zp_model *m,
                             json_t **root, zp_err *err)
{
    memset(p, 0, sizeof *p);
    ZP_TRY(load(path, "zerope-plan", root, err));
    zp_status status = fill_plan(p, *root, m, err);
    if (status == ZP_OK) return ZP_OK;
    if (status != ZP_NO_MEMORY) status_add_path(err, path);
    plan_free(p);
    json_decref(*root);
    *root = NULL;
    return status;
}

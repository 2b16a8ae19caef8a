/* recipe.c: the recipe of an evaporated file.
 * Owns: its field names and their ranges. Does not know: how a plan is found or checked. */
#include "evap/recipe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "evap/evapfile.h"
#include "model/json_read.h"

enum { HASH_DIGITS = 16, MOST_CTX = 1 << 24 };
static const double most_budget = 1e6;

/* ---- hashes of documents --------------------------------------------------------------------- */

json_t *recipe_hashes_to_json(const uint64_t *hashes, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) {
        char text[HASH_DIGITS + 1];
        snprintf(text, sizeof text, "%016" PRIx64, hashes[i]);
        a = json_tree_add(a, json_tree_text(text));
    }
    return a;
}

zp_status recipe_hashes_from_json(const json_t *list, struct arena *arena, uint64_t **hashes,
                                  size_t *n, zp_err *err)
{
    size_t count = json_array_size(list);
    *n = 0;
    ZP_TAKE(*hashes, arena, count + 1, err, "the list of documents seen");
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        ZP_FAIL_IF(!text || strlen(text) != HASH_DIGITS ||
                       strspn(text, "0123456789abcdef") != HASH_DIGITS,
                   err, ZP_BAD_INPUT, "planning_documents[%zu] must be %d hexadecimal digits", i,
                   HASH_DIGITS);
        (*hashes)[(*n)++] = strtoull(text, NULL, 16);
    }
    return ZP_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static zp_status fill(struct recipe *r, const json_t *j, const char *path, zp_err *err)
{
    const json_t *ctx = json_object_get(j, "ctx"), *budget = json_object_get(j, "budget_kl");
    double n = json_is_integer(ctx) ? (double)json_integer_value(ctx) : ctx ? -1.0 : 0.0;
    ZP_FAIL_IF(!(n >= 0.0 && n <= MOST_CTX), err, ZP_BAD_FILE,
               "%s: zerope.recipe: ctx must be a whole number in 0..%d", path, MOST_CTX);
    r->n_ctx = (uint32_t)n;
    if (budget && !json_is_null(budget)) {
        r->budget_kl = json_number_value(budget);
        ZP_FAIL_IF(!json_is_number(budget) || !(r->budget_kl >= 0.0 && r->budget_kl <= most_budget),
                   err, ZP_BAD_FILE, "%s: zerope.recipe: budget_kl must be a number in 0..%g", path,
                   most_budget);
    }
    return recipe_hashes_from_json(json_object_get(j, "planning_documents"), &r->arena, &r->seen,
                                   &r->n_seen, err);
}

zp_status recipe_read(struct recipe *r, const struct zp_model *m, zp_err *err)
{
    struct gguf_str text;
    json_t *j;
    *r = (struct recipe){ .arena.tag = MEM_EVAP };
    ZP_TRY(gguf_get_str_or_null(&m->gguf, "zerope.recipe", &text, err));
    ZP_TRY(json_read_or_null(text.data, text.size, &j, err));
    zp_status status = fill(r, j, m->gguf.path, err);
    json_decref(j);
    if (status != ZP_OK) recipe_free(r);
    return status;
}

void recipe_free(struct recipe *r)
{
    arena_free(&r->arena);
    *r = (struct recipe){ 0 };
}

/* ---- writing --------------------------------------------------------------------------------- */

zp_status recipe_text(const struct recipe_facts *f, char **out, zp_err *err)
{
    const struct plan *p = f->plan;
    struct arena arena = { .tag = MEM_EVAP };
    uint64_t *seen;
    size_t n;
    zp_status status = docs_seen(f->docs, &arena, &seen, &n, err);
    json_t *j = status != ZP_OK
                    ? NULL
                    : json_pack("{ss ss si ss so sb sb sb sb si sb si so so so}", "command",
                                "evaporate", "method", "snap", "ctx", (int)p->n_ctx, "against",
                                f->against, "budget_kl", json_tree_real(f->budget_kl), "uniform",
                                p->uniform, "uniform_slow", p->uniform_slow, "layers", p->layers,
                                "close_all", f->close_all, "local_window", (int)p->local_window,
                                "folded", f->folded, "windows_check", (int)f->result->n_windows,
                                "kl_mean", json_tree_real(f->result->kl_mean), "kl_hi",
                                json_tree_real(f->result->kl_hi), "planning_documents",
                                recipe_hashes_to_json(seen, n));
    if (status == ZP_OK && !j)
        status =
            status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "not enough memory for the recipe");
    if (status == ZP_OK) status = evapfile_text(j, out, err);
    json_decref(j);
    arena_free(&arena);
    return status;
}

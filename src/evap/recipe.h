/* recipe.h: what a file of ours says about its making: key zerope.recipe, a JSON text. */
#ifndef EVAP_RECIPE_H
#define EVAP_RECIPE_H

#include "evap/check.h"
#include "evap/plan.h"

struct recipe {
    uint32_t n_ctx;   /* 0: not told */
    double budget_kl; /* 0: none */
    uint64_t *seen;   /* (n_seen) documents planned with */
    size_t n_seen;
    struct arena arena;
};

/* A file without the key: all zero. ZP_BAD_FILE names the field that is out of range. */
zp_status recipe_read(struct recipe *r, const struct zp_model *m, zp_err *err);
void recipe_free(struct recipe *r);

/* Facts of one evaporation. against: hash of the model that the KL was measured against. */
struct recipe_facts {
    const struct plan *plan;
    const struct docs *docs;
    const struct check_result *result;
    const char *against;
    double budget_kl;
    bool close_all, folded;
};
/* Text for apply_info; released with mem_free. */
zp_status recipe_text(const struct recipe_facts *f, char **out, zp_err *err);

/* Hashes of documents as 16 hexadecimal digits each. */
json_t *recipe_hashes_to_json(const uint64_t *hashes, size_t n);
zp_status recipe_hashes_from_json(const json_t *list, struct arena *arena, uint64_t **hashes,
                                  size_t *n, zp_err *err);

#endif

/* half_plan.h: a small model with a plan of position mode half. */
#ifndef TESTS_HALF_PLAN_H
#define TESTS_HALF_PLAN_H

#include "golden.h"

#include "model/gguf_write.h"
#include "model/model.h"

/* Every third pair of each head. mode: the default one; verified: a mode with evidence, or two,
 * `zero","half`; threshold: of mode auto, or 0. The file is written to path. */
static inline zp_model *half_plan_model(const char *path, const char *mode, const char *verified,
                                        uint32_t threshold)
{
    enum { MOST = 64 };
    struct gguf g;
    struct gguf_edit e;
    char evidence[64];
    zp_model *m = golden_small("zerope-partial");
    uint32_t pairs[MOST * MOST], offsets[MOST + 1] = { 0 }, n = 0,
                                                n_heads = m->position.n_layer * m->position.n_kv,
                                                n_pair = m->position.n_pair;
    assert_true(n_heads <= MOST && n_pair <= MOST);
    for (uint32_t h = 0; h < n_heads; h++) {
        for (uint32_t i = h % 3; i < n_pair; i += 3) pairs[n++] = i;
        offsets[h + 1] = n;
    }
    zp_model_close(m);
    snprintf(evidence, sizeof evidence, "{\"verified_modes\":[\"%s\"]}", verified);
    GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/zerope-partial.gguf", err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(gguf_edit_set_array(&e, "zerope.position.half_pairs", GGUF_U32, pairs, n, err));
    GOLDEN_OK(gguf_edit_set_array(&e, "zerope.position.half_pairs_offset", GGUF_U32, offsets,
                                  n_heads + 1, err));
    GOLDEN_OK(gguf_edit_set_str(&e, "zerope.position.mode_default", mode, err));
    GOLDEN_OK(gguf_edit_set_str(&e, "zerope.evidence", evidence, err));
    if (threshold)
        GOLDEN_OK(gguf_edit_set_u32(&e, "zerope.position.auto_threshold", threshold, err));
    GOLDEN_OK(gguf_edit_write(&e, path, err));
    gguf_edit_free(&e);
    gguf_close(&g);
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    return m;
}

#endif

/* test_ownkeys.c: keys and tensors of zerope's own are refused where they contradict the
 * architecture or each other, and what records the origin of a file is not. */
#include "golden.h"

#include "model/gguf_write.h"
#include "in_folder.h"

/* ---- a small model with a few keys more ------------------------------------------------------ */

struct change {
    const char *key; /* NULL: end */
    enum gguf_type type;
    uint64_t n; /* 0: a scalar */
    double value[20];
    const char *text; /* of GGUF_STR */
};

static void put_array(struct gguf_edit *e, const struct change *c)
{
    float f[20];
    uint32_t u[20];
    for (uint64_t i = 0; i < c->n; i++) {
        f[i] = (float)c->value[i];
        u[i] = c->type == GGUF_I32 ? (uint32_t)(int32_t)c->value[i] : (uint32_t)c->value[i];
    }
    const void *items = c->type == GGUF_F32 ? (const void *)f : (const void *)u;
    GOLDEN_OK(gguf_edit_set_array(e, c->key, c->type, items, c->n, err));
}

static void put_change(struct gguf_edit *e, const struct change *c)
{
    if (c->n && c->type == GGUF_STR) {
        struct gguf_str items[] = { { c->text, strlen(c->text) }, { c->text, strlen(c->text) } };
        GOLDEN_OK(gguf_edit_set_strs(e, c->key, items, 2, err));
    } else if (c->n) put_array(e, c);
    else if (c->type == GGUF_STR) GOLDEN_OK(gguf_edit_set_str(e, c->key, c->text, err));
    else GOLDEN_OK(gguf_edit_set_u32(e, c->key, (uint32_t)c->value[0], err));
}

static zp_status open_with(const char *model, const struct change *changes, const char *tensor,
                           zp_err *failure)
{
    static const float zeros[4];
    char path[1024];
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", model);
    GOLDEN_OK(gguf_open(&g, path, err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    for (const struct change *c = changes; c && c->key; c++) put_change(&e, c);
    if (tensor)
        GOLDEN_OK(gguf_edit_set_tensor_f32(&e, tensor, 1, (const uint64_t[]){ 4 }, zeros, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("model.gguf"), err));
    gguf_edit_free(&e);
    gguf_close(&g);
    zp_status status = zp_model_open(&m, in_folder("model.gguf"), NULL, failure);
    zp_model_close(m);
    return status;
}

static void refuses(const char *model, const struct change *changes, const char *tensor,
                    const char *named)
{
    zp_err err = { 0 };
    zp_status status = open_with(model, changes, tensor, &err);
    if (status != ZP_BAD_FILE || !strstr(err.message, named))
        fail_msg("%s: %s: %s", named, zp_status_name(status), err.message);
}

/* ---- files of a stock architecture ----------------------------------------------------------- */

static void stock_files_have_none_of_ours(void **state)
{
    static const struct change all[][3] = {
        { { "zerope.format_version", GGUF_U32, 0, { 1 }, NULL } },
        { { "zerope.position.kind", GGUF_STR, 2, { 0 }, "rope" } },
        { { "zerope.position.pairs_open", GGUF_I32, 1, { 0 }, NULL },
          { "zerope.position.pairs_open_offset", GGUF_U32, 5, { 0, 1, 1, 1, 1 }, NULL } },
        { { "zerope.position.half_pairs", GGUF_I32, 1, { 0 }, NULL },
          { "zerope.position.half_pairs_offset", GGUF_U32, 5, { 0, 1, 1, 1, 1 }, NULL } },
        { { "zerope.position.mode_default", GGUF_STR, 0, { 0 }, "zero" },
          { "zerope.evidence", GGUF_STR, 0, { 0 }, "{\"verified_modes\": [\"zero\"]}" } },
        { { "zerope.position.auto_threshold", GGUF_U32, 0, { 9 }, NULL } },
        { { "zerope.position.bias_gate", GGUF_F32, 8, { 0 }, NULL } },
        { { "zerope.position.t5_buckets", GGUF_U32, 0, { 32 }, NULL } },
        { { "zerope.position.t5_max", GGUF_U32, 0, { 128 }, NULL } },
        { { "zerope.attention.head_window", GGUF_U32, 4, { 4, 4, 4, 4 }, NULL },
          { "zerope.attention.sinks", GGUF_U32, 0, { 1 }, NULL } },
        { { "zerope.attention.sinks", GGUF_U32, 0, { 1 }, NULL } },
        { { "zerope.attention.scale_c", GGUF_F32, 2, { 1, 1 }, NULL },
          { "zerope.attention.scale_len", GGUF_U32, 0, { 4 }, NULL } },
        { { "zerope.attention.scale_len", GGUF_U32, 0, { 4 }, NULL } },
        { { "zerope.of.a.later.version", GGUF_U32, 0, { 1 }, NULL } },
    };
    static const char *const tensors[] = {
        "blk.0.attn_head_scale", "blk.1.attn_head_scale",  "blk.0.pos_alibi.slope",
        "blk.0.pos_t5.weight",   "blk.0.pos_mlp.0.weight", "blk.1.pos_mlp.1.bias",
        "blk.0.pos_gate.weight", "struct_head.weight",     "struct_head.gate",
        "blk.1.struct_bias",
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(all); i++)
        refuses("gguf-llama-yarn", all[i], NULL, all[i][0].key);
    for (size_t i = 0; i < ZP_COUNT(tensors); i++)
        refuses("gguf-llama-yarn", NULL, tensors[i], tensors[i]);
}

static void records_of_the_origin_are_no_contradiction(void **state)
{
    static const struct change records[] = {
        { "zerope.source.sha256", GGUF_STR, 0, { 0 }, "0" },
        { "zerope.recipe", GGUF_STR, 0, { 0 }, "{}" },
        { "zerope.evidence", GGUF_STR, 0, { 0 }, "{}" },
        { "zerope.context.validated", GGUF_U32, 0, { 64 }, NULL },
        { "zerope.tokenizer.config", GGUF_STR, 0, { 0 }, "{}" },
        { "zerope.tokenizer.eos_ids", GGUF_I32, 2, { 1, 2 }, NULL },
        { NULL, GGUF_U32, 0, { 0 }, NULL },
    };
    (void)state;
    GOLDEN_OK(open_with("gguf-llama-yarn", records, NULL, err));
    GOLDEN_OK(open_with("zerope-local", records, NULL, err));
}

/* ---- files of ours --------------------------------------------------------------------------- */

static void values_without_use_are_refused(void **state)
{
    static const double values[] = { NAN, INFINITY, -INFINITY, 3e38, -2e6 };
    struct change gate[] = { { "zerope.position.bias_gate", GGUF_F32, 20, { 1 }, NULL }, { 0 } };
    struct change c[] = { { "zerope.attention.scale_c", GGUF_F32, 2, { 0.5 }, NULL },
                          { "zerope.attention.scale_len", GGUF_U32, 0, { 16 }, NULL },
                          { 0 } };
    (void)state;
    GOLDEN_OK(open_with("zerope-mixed", gate, NULL, err));
    GOLDEN_OK(open_with("zerope-local", c, NULL, err));
    for (size_t i = 0; i < ZP_COUNT(values); i++) {
        gate[0].value[7] = c[0].value[1] = values[i];
        refuses("zerope-mixed", gate, NULL, "zerope.position.bias_gate[7] is ");
        refuses("zerope-local", c, NULL, "zerope.attention.scale_c[1] is ");
    }
}

static void lists_end_where_their_offsets_do(void **state)
{
    struct change lists[] = {
        { "zerope.position.pairs_open", GGUF_I32, 17,
          { 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0 }, NULL },
        { "zerope.position.pairs_open_offset", GGUF_U32, 5, { 0, 4, 8, 12, 16 }, NULL },
        { 0 },
    };
    (void)state;
    refuses("zerope-local", lists, NULL, "pairs_open_offset ends at 16, but "
                                         "zerope.position.pairs_open has 17 items");
    lists[0].n = 16;
    GOLDEN_OK(open_with("zerope-local", lists, NULL, err));
    lists[0].key = "zerope.position.half_pairs", lists[0].n = 3;
    lists[1] = (struct change){ "zerope.position.half_pairs_offset", GGUF_U32, 5,
                                { 0, 0, 1, 1, 2 }, NULL };
    refuses("zerope-local", lists, NULL, "half_pairs_offset ends at 2");
}

static void end_tokens_are_tokens(void **state)
{
    struct change ids[] = { { "zerope.tokenizer.eos_ids", GGUF_I32, 2, { 0, 1 }, NULL }, { 0 } };
    static const char *const models[] = { "zerope-local", "gguf-llama-yarn" };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        ids[0].value[0] = -1, ids[0].value[1] = 1;
        refuses(models[i], ids, NULL, "zerope.tokenizer.eos_ids[0] is -1; expected");
        ids[0].value[0] = 0, ids[0].value[1] = 999999;
        refuses(models[i], ids, NULL, "zerope.tokenizer.eos_ids[1] is 999999; expected");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stock_files_have_none_of_ours),
        cmocka_unit_test(records_of_the_origin_are_no_contradiction),
        cmocka_unit_test(values_without_use_are_refused),
        cmocka_unit_test(lists_end_where_their_offsets_do),
        cmocka_unit_test(end_tokens_are_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

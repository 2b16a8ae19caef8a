/* test_memory_plan.c: what inspect and engine_plan promise is what the counters of base/mem count,
 * byte by byte and tag by tag; a running sequence takes no memory (I5). */
#include "golden.h"

#include "in_folder.h"

#include "base/mem.h"
#include "model/engine.h"
#include "model/packfile.h"

static const char *const models[] = { "gguf-llama-yarn",     "gguf-granite",  "gguf-gemma3",
                                      "gguf-qwen2",          "gguf-qwen3",    "gguf-llama-closed",
                                      "zerope-local-scaled", "zerope-mixed",  "zerope-mlp",
                                      "zerope-qwen3",        "zerope-partial", "zerope-gate",
                                      "zerope-struct" };

static const zp_engine_options options[] = {
    { .n_ctx = 300, .n_threads = 2 },
    { .n_ctx = 300, .n_threads = 2, .exact = true },
    { .n_ctx = 1500, .n_threads = 3, .n_seq = 3, .micro_batch = 33 },
    { .n_ctx = 70, .n_threads = 1, .kv_type = ZP_KV_F32, .micro_batch = 1 },
    { .n_ctx = 128, .n_threads = 2, .kv_bytes = 5000000 },
    { .n_ctx = 300, .n_threads = 2, .n_seq = 2, .prefix_cache = true },
    { .n_ctx = 300, .n_threads = 2, .kv_type = ZP_KV_Q8, .prefix_cache = true },
};

static void check_plan_once(const char *name, const zp_model *m, zp_engine_options o)
{
    struct mem_stats before, after;
    struct engine_plan plan;
    zp_engine_stats stats;
    zp_engine_options planned = o;
    GOLDEN_OK(engine_plan(m, &planned, &plan, err));
    mem_stats_read(&before);
    zp_engine *e = golden_engine(m, o);
    mem_stats_read(&after);
    zp_engine_describe(e, &stats);
    const struct {
        const char *what;
        enum mem_tag tag;
        uint64_t planned, told;
    } rows[] = { { "weights", MEM_WEIGHTS, plan.weights, stats.weights_bytes },
                 { "KV", MEM_KV, plan.kv, stats.kv_bytes },
                 { "scratch", MEM_SCRATCH, plan.scratch, stats.scratch_bytes },
                 { "position", MEM_POSITION, plan.position, stats.position_bytes } };
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        uint64_t counted = after.live[rows[i].tag] - before.live[rows[i].tag];
        if (counted != rows[i].planned || counted != rows[i].told)
            fail_msg("%s, %s: %llu bytes counted, %llu planned, %llu told", name, rows[i].what,
                     (unsigned long long)counted, (unsigned long long)rows[i].planned,
                     (unsigned long long)rows[i].told);
    }
    zp_engine_close(e);
    mem_stats_read(&after);
    for (int t = 0; t < MEM_TAG_COUNT; t++) assert_int_equal(after.live[t], before.live[t]);
}

/* Weights that are packed, packed and kept, mapped from the cache folder, and copied from there. */
static void check_plan(const char *name, const zp_model *m, zp_engine_options o)
{
    check_plan_once(name, m, o);
    o.pack_cache = in_folder("cache");
    for (int i = 0; i < 3; i++) {
        packfile_pretend_small_pages(i == 2);
        check_plan_once(name, m, o);
    }
    packfile_pretend_small_pages(false);
}

static void test_planned_bytes_are_counted_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_model *m = golden_small(models[i]);
        for (size_t k = 0; k < ZP_COUNT(options); k++) check_plan(models[i], m, options[k]);
        zp_model_close(m);
    }
}

static void test_plan_of_a_folder(void **state)
{
    (void)state;
    zp_model *m = golden_small("llama");
    for (size_t k = 0; k < ZP_COUNT(options); k++) check_plan("llama folder", m, options[k]);
    zp_model_close(m);
}

static void check_member(const json_t *doc, const char *key, uint64_t told)
{
    const json_t *v = json_object_get(json_object_get(doc, "memory"), key);
    assert_true(json_is_integer(v));
    if ((uint64_t)json_integer_value(v) != told)
        fail_msg("%s: %lld shown, %llu told", key, (long long)json_integer_value(v),
                 (unsigned long long)told);
}

/* Whatever options engines have, inspect takes them too. */
static void check_inspect(const zp_model *m, const zp_engine_options *o)
{
    static const char *const kv_names[] = { "f32", "bf16", "q8" };
    char *json = NULL;
    zp_engine_stats stats;
    GOLDEN_OK(zp_inspect_json(m, &(zp_inspect_options){ .engine = *o }, &json, err));
    json_t *doc = json_loads(json, 0, NULL);
    assert_non_null(doc);
    zp_engine *e = golden_engine(m, *o);
    zp_engine_describe(e, &stats);
    check_member(doc, "weights_bytes", stats.weights_bytes);
    check_member(doc, "kv_bytes", stats.kv_bytes);
    check_member(doc, "scratch_bytes", stats.scratch_bytes);
    check_member(doc, "position_bytes", stats.position_bytes);
    check_member(doc, "kv_bytes_per_token", stats.kv_bytes_per_token);
    check_member(doc, "n_ctx", stats.n_ctx);
    check_member(doc, "micro_batch", stats.micro_batch);
    const json_t *memory = json_object_get(doc, "memory");
    assert_string_equal(json_string_value(json_object_get(memory, "kv_type")),
                        kv_names[e->kv.form]);
    assert_int_equal(json_is_true(json_object_get(memory, "exact")), o->exact);
    assert_int_equal(json_is_true(json_object_get(memory, "prefix_cache")), o->prefix_cache);
    zp_engine_close(e);
    json_decref(doc);
    zp_free(json);
}

static void test_inspect_shows_the_plan(void **state)
{
    (void)state;
    static const char *const names[] = { "zerope-mixed", "gguf-gemma3" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        zp_model *m = golden_small(names[i]);
        for (size_t k = 0; k < ZP_COUNT(options); k++) check_inspect(m, &options[k]);
        zp_model_close(m);
    }
}

/* I2: a model whose pairs are all closed holds no angle. */
static void test_closed_model_takes_no_position_memory(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-granite-none");
    struct engine_plan plan;
    zp_engine_options o = { .n_ctx = 512 };
    GOLDEN_OK(engine_plan(m, &o, &plan, err));
    assert_int_equal(plan.position, 0);
    zp_model_close(m);
}

static uint64_t planned_scratch(const zp_model *m, zp_engine_options o)
{
    struct engine_plan plan;
    GOLDEN_OK(engine_plan(m, &o, &plan, err));
    return plan.scratch;
}

/* In long batches a thread holds the states of blocks of 192 rows, twice. */
static void test_small_batches_take_no_room_for_long_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++)
        for (zp_kv_type kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++) {
            zp_model *m = golden_small(models[i]);
            zp_engine_options o = { .n_ctx = 2048, .micro_batch = 1, .kv_type = kv }, two = o;
            o.n_threads = 1, two.n_threads = 2;
            uint64_t thread = planned_scratch(m, two) - planned_scratch(m, o);
            uint64_t states = 2 * 192 * (m->h.d_head + 2) * sizeof(float);
            uint64_t heard = m->h.n_head / m->h.n_kv * KERN_SEGMENT * sizeof(float);
            assert_true(thread < states + (m->structure.weight ? heard : 0));
            zp_model_close(m);
        }
}

static void test_running_takes_no_memory(void **state)
{
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        zp_model *m = golden_small(k % 2 ? "zerope-local-scaled" : "gguf-gemma3");
        zp_engine *e = golden_engine(
            m, (zp_engine_options){ .n_ctx = 900, .n_seq = 2, .prefix_cache = k >= 2 });
        float *logits = malloc(2 * m->h.n_vocab * sizeof *logits);
        int32_t ids[300];
        zp_seq *s[2] = { NULL };
        struct mem_stats before, after;
        assert_non_null(logits);
        for (int i = 0; i < 300; i++) ids[i] = i % 200;
        for (int i = 0; i < 2; i++) GOLDEN_OK(zp_seq_open(&s[i], e, NULL, err));
        mem_stats_read(&before);
        for (int step = 0; step < 200; step++) { /* a prompt, then a batch of two, token by token */
            zp_item items[2] = { { s[0], ids, step ? 1 : 300, ZP_WANT_LAST },
                                 { s[1], ids, step ? 1 : 150, ZP_WANT_LAST } };
            GOLDEN_OK(zp_engine_run(e, items, 2, logits, 2, NULL, err));
        }
        mem_stats_read(&after);
        assert_int_equal(after.allocations, before.allocations);
        for (int i = 0; i < 2; i++) zp_seq_close(s[i]);
        free(logits);
        zp_engine_close(e);
        zp_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_bytes_are_counted_bytes),
        cmocka_unit_test(test_plan_of_a_folder),
        cmocka_unit_test(test_inspect_shows_the_plan),
        cmocka_unit_test(test_closed_model_takes_no_position_memory),
        cmocka_unit_test(test_small_batches_take_no_room_for_long_blocks),
        cmocka_unit_test(test_running_takes_no_memory),
    };
    engine_allow_any_threads(true);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

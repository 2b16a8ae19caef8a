/* test_embed.c: embeddings have the same bits whatever the company, the runs, the threads and what
 * is reused (I1), and leave the logits beside them as they are; what is refused. Seeds are fixed;
 * what they should be: test_embed_golden.c. */
#include "golden.h"

#include "base/rng.h"
#include "in_folder.h"
#include "model/engine.h"
#include "model/gguf_write.h"

enum { N = 1180, SEED = 41, WIDEST = 128 };

static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3", "gguf-qwen3",
                                      "zerope-struct", "zerope-local" };
static const zp_pooling poolings[] = { ZP_POOL_LAST, ZP_POOL_MEAN, ZP_POOL_FIRST };
static int32_t ids[2 * N];

static void make_ids(const zp_model *m)
{
    struct rng r = rng_stream(SEED, 1);
    for (size_t i = 0; i < 2 * N; i++) ids[i] = (int32_t)rng_below(&r, m->h.n_vocab);
}

static zp_engine *open_engine(const zp_model *m, zp_kv_type kv, uint32_t threads, uint32_t batch,
                              bool cached)
{
    engine_allow_any_threads(true);
    return golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_seq = 4, .n_threads = threads,
                                                 .micro_batch = batch, .kv_type = kv,
                                                 .prefix_cache = cached });
}

static void embed(zp_engine *e, zp_pooling pooling, const int32_t *text, size_t n, float *out)
{
    const zp_embed_options o = { .pooling = pooling };
    GOLDEN_OK(zp_embed(e, text, n, &o, out, err));
}

/* ---- runs and threads ------------------------------------------------------------------------ */

static void check_engines(const zp_model *m, zp_kv_type kv, zp_pooling pooling, const float *want)
{
    static const uint32_t batches[] = { 1, 3, 7, 64, 500 };
    float got[WIDEST];
    for (uint32_t i = 0; i < ZP_COUNT(batches); i++) {
        size_t n = i < 2 ? 100 : N;
        zp_engine *e = open_engine(m, kv, 1 + i % 3, batches[i], false);
        embed(e, pooling, ids, n, got);
        zp_engine_close(e);
        assert_memory_equal(got, want + (i < 2 ? WIDEST : 0), m->h.d_model * sizeof *got);
    }
}

static void test_same_bits_for_all_micro_batches_and_threads(void **state)
{
    static const zp_kv_type kinds[] = { ZP_KV_BF16, ZP_KV_Q8 };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_model *m = golden_small(models[i]);
        make_ids(m);
        zp_engine *e = open_engine(m, kinds[i % 2], 2, 512, false);
        for (size_t p = 0; p < ZP_COUNT(poolings); p++) {
            float want[2 * WIDEST];
            embed(e, poolings[p], ids, N, want);
            embed(e, poolings[p], ids, 100, want + WIDEST);
            assert_true(memcmp(want, want + WIDEST, m->h.d_model * sizeof *want) != 0 ||
                        poolings[p] == ZP_POOL_FIRST);
            check_engines(m, kinds[i % 2], poolings[p], want);
        }
        zp_engine_close(e);
        zp_model_close(m);
    }
}

/* ---- company --------------------------------------------------------------------------------- */

enum { ITEMS = 4, TEXT = 300 };

struct company {
    zp_engine *e;
    zp_item items[ITEMS];
    struct embed pools[ITEMS];
    struct embed *embeds[ITEMS];
    double sums[ITEMS][WIDEST];
    float *logits; /* (TEXT, n_vocab) */
};

/* Three embeddings of one text and, among them, a sequence whose logits are wanted. */
static void company_open(struct company *c, const zp_model *m)
{
    *c = (struct company){ .e = open_engine(m, ZP_KV_BF16, 2, 64, false) };
    c->logits = malloc((size_t)TEXT * m->h.n_vocab * sizeof *c->logits);
    assert_non_null(c->logits);
    for (size_t i = 0; i < ITEMS; i++) {
        GOLDEN_OK(zp_seq_open(&c->items[i].seq, c->e, NULL, err));
        if (i == 1) continue;
        c->pools[i] = (struct embed){ .pooling = poolings[i ? i - 1 : 0],
                                      .width = m->h.d_model, .sum = c->sums[i] };
        c->embeds[i] = &c->pools[i];
    }
}

/* Runs of `chunk` tokens each; the sequence of logits wants all, or the last of each. */
static size_t company_run(struct company *c, size_t chunk, bool all)
{
    size_t n_vocab = c->e->model->h.n_vocab, rows = 0;
    for (size_t at = 0; at < TEXT; at += chunk) {
        size_t n = TEXT - at < chunk ? TEXT - at : chunk, n_rows = all ? n : 1;
        for (size_t i = 0; i < ITEMS; i++) {
            c->items[i].ids = ids + (i == 1 ? N : 0) + at;
            c->items[i].n = n;
            c->items[i].want = i == 1 ? (all ? ZP_WANT_ALL : ZP_WANT_LAST)
                                      : embed_want(&c->pools[i], at + n == TEXT);
        }
        struct engine_job job = { .items = c->items, .n_items = ITEMS, .embeds = c->embeds,
                                  .logits = c->logits + rows * n_vocab, .rows_room = n_rows };
        GOLDEN_OK(engine_run(c->e, &job, err));
        rows += n_rows;
    }
    return rows;
}

static void company_close(struct company *c)
{
    for (size_t i = 0; i < ITEMS; i++) zp_seq_close(c->items[i].seq);
    zp_engine_close(c->e);
    free(c->logits);
}

static void check_company(const zp_model *m, size_t chunk, bool all)
{
    struct company c;
    float want[WIDEST], got[WIDEST];
    size_t n_vocab = m->h.n_vocab;
    zp_engine *alone = open_engine(m, ZP_KV_BF16, 1, 512, false);
    float *logits = golden_logits(alone, m, ids + N, TEXT);
    company_open(&c, m);
    size_t rows = company_run(&c, chunk, all);
    for (size_t i = 0; i < ITEMS; i++) {
        if (i == 1) continue;
        embed(alone, c.pools[i].pooling, ids, TEXT, want);
        GOLDEN_OK(embed_finish(&c.pools[i], got, err));
        assert_memory_equal(got, want, m->h.d_model * sizeof *got);
    }
    for (size_t r = 0; r < rows; r++) {
        size_t end = (r + 1) * chunk < TEXT ? (r + 1) * chunk : TEXT, at = all ? r : end - 1;
        assert_memory_equal(c.logits + r * n_vocab, logits + at * n_vocab,
                            n_vocab * sizeof *logits);
    }
    company_close(&c);
    zp_engine_close(alone);
    free(logits);
}

static void test_same_bits_in_company_and_by_chunks(void **state)
{
    static const size_t chunks[] = { 1, 17, 64, TEXT };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_model *m = golden_small(models[i]);
        make_ids(m);
        for (size_t k = 0; k < ZP_COUNT(chunks); k++) check_company(m, chunks[k], k % 2 == i % 2);
        zp_model_close(m);
    }
}

/* ---- reuse ----------------------------------------------------------------------------------- */

static void test_same_bits_after_prefix_reuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        zp_model *m = golden_small(models[i]);
        zp_engine *cached = open_engine(m, ZP_KV_BF16, 2, 64, true),
                  *fresh = open_engine(m, ZP_KV_BF16, 2, 512, false);
        float want[WIDEST], got[WIDEST];
        zp_engine_stats before, after;
        make_ids(m);
        for (size_t n = 700; n <= N; n += 240)
            for (size_t p = 0; p < ZP_COUNT(poolings); p++) {
                zp_engine_describe(cached, &before);
                embed(cached, poolings[p], ids, n, got);
                embed(fresh, poolings[p], ids, n, want);
                zp_engine_describe(cached, &after);
                assert_memory_equal(got, want, m->h.d_model * sizeof *got);
                if (p != 0 || n == 700) assert_int_equal(after.tokens_reused, before.tokens_reused);
                else assert_true(after.tokens_reused >= before.tokens_reused + 640);
            }
        zp_engine_close(cached);
        zp_engine_close(fresh);
        zp_model_close(m);
    }
}

/* ---- what is refused, and what stops --------------------------------------------------------- */

static void refuse(zp_engine *e, const int32_t *text, size_t n, zp_embed_options o, zp_status code,
                   const char *words)
{
    float out[WIDEST];
    zp_err err = { 0 };
    assert_int_equal(zp_embed(e, text, n, &o, out, &err), code);
    if (strstr(err.message, words) == NULL) fail_msg("%s: no %s", err.message, words);
}

static bool stop(void *arg, const char *what, uint64_t done, uint64_t total)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(what);
    ZP_UNUSED(total);
    return done < 128;
}

static void test_what_is_refused(void **state)
{
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine *e = open_engine(m, ZP_KV_BF16, 2, 64, false);
    const int32_t bad[] = { 5, (int32_t)m->h.n_vocab };
    const zp_embed_options plain = { 0 };
    float got[WIDEST], want[WIDEST];
    size_t n_free = e->kv.pages.n_free;
    (void)state;
    make_ids(m);
    refuse(e, ids, 0, plain, ZP_BAD_INPUT, "at least one token");
    refuse(e, NULL, 1, plain, ZP_USAGE, "missing");
    refuse(e, ids, N + 1, plain, ZP_BAD_INPUT, "1181 tokens does not fit into the context of 1180");
    refuse(e, bad, 2, plain, ZP_BAD_INPUT, "at 1 of the text");
    refuse(e, ids, 9, (zp_embed_options){ .pooling = (zp_pooling)4 }, ZP_USAGE, "pooling 4");
    refuse(e, ids, N, (zp_embed_options){ .progress = { stop, NULL } }, ZP_INTERRUPTED, "128");
    assert_int_equal(e->kv.pages.n_free, n_free);
    embed(e, ZP_POOL_MEAN, ids, N, got);
    zp_engine *other = open_engine(m, ZP_KV_BF16, 2, 512, false);
    embed(other, ZP_POOL_MEAN, ids, N, want);
    assert_memory_equal(got, want, m->h.d_model * sizeof *got);
    zp_engine_close(other);
    zp_engine_close(e);
    zp_model_close(m);
}

/* Numbers of llama.cpp: none, mean, cls, last, rank. */
static void test_file_names_its_pooling(void **state)
{
    static const zp_pooling want[] = { ZP_POOL_LAST, ZP_POOL_MEAN, ZP_POOL_FIRST, ZP_POOL_LAST,
                                       ZP_POOL_LAST };
    (void)state;
    for (uint32_t type = 0; type < ZP_COUNT(want); type++) {
        float got[WIDEST], named[WIDEST];
        zp_model_info info;
        struct gguf g;
        struct gguf_edit edit;
        zp_model *m = NULL;
        GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/gguf-llama-yarn.gguf", err));
        GOLDEN_OK(gguf_edit_init(&edit, &g, err));
        GOLDEN_OK(gguf_edit_set_u32(&edit, "%.pooling_type", type, err));
        GOLDEN_OK(gguf_edit_write(&edit, in_folder("pooling.gguf"), err));
        gguf_edit_free(&edit);
        gguf_close(&g);
        GOLDEN_OK(zp_model_open(&m, in_folder("pooling.gguf"), NULL, err));
        zp_model_describe(m, &info);
        assert_int_equal(info.pooling, want[type]);
        make_ids(m);
        zp_engine *e = open_engine(m, ZP_KV_BF16, 1, 64, false);
        embed(e, ZP_POOL_DEFAULT, ids, 70, got);
        embed(e, want[type], ids, 70, named);
        assert_memory_equal(got, named, info.d_model * sizeof *got);
        zp_engine_close(e);
        zp_model_close(m);
    }
}

static void test_vectors_that_are_not_finite_are_refused(void **state)
{
    double sum[2] = { 1, NAN };
    struct embed m = { .pooling = ZP_POOL_LAST, .width = 2, .n = 1, .sum = sum };
    float out[2];
    zp_err failure = { 0 };
    (void)state;
    assert_int_equal(embed_finish(&m, out, &failure), ZP_RUN);
    sum[0] = sum[1] = 0; /* no direction: zeros, not a division by zero */
    GOLDEN_OK(embed_finish(&m, out, err));
    assert_true(out[0] == 0 && out[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_for_all_micro_batches_and_threads),
        cmocka_unit_test(test_same_bits_in_company_and_by_chunks),
        cmocka_unit_test(test_same_bits_after_prefix_reuse),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_file_names_its_pooling),
        cmocka_unit_test(test_vectors_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_start_models.c: the memory of an engine of a real model when it is open, and the same logits
 * whether its weights were packed, or came from the cache folder. */
#include "golden.h"

#include "base/os.h"
#include "in_folder.h"
#include "model/engine.h"
#include "model/packfile.h"

enum { MIB = 1 << 20, N_IDS = 8 };

/* Opens an engine and computes a prompt: (n_vocab), released with free(). */
static float *start_once(const zp_model *m, const char *cache, bool from)
{
    static const int32_t ids[N_IDS] = { 504, 3575, 282, 4649, 314, 260, 2240, 282 };
    zp_engine_stats s;
    zp_seq *seq = NULL;
    float *logits = malloc(m->h.n_vocab * sizeof *logits);
    uint64_t before = os_rss_bytes();
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = 4096, .n_threads = 2, .pack_cache = cache });
    uint64_t taken = os_rss_bytes() - before;
    zp_engine_describe(e, &s);
    assert_int_equal(s.from_pack_cache, from);
    /* Of the KV pages nothing is there yet, of scratch little; the file is not there twice. */
    uint64_t most = s.weights_bytes / 20 * 21 + s.scratch_bytes + 2 * MIB;
    if (taken > most)
        fail_msg("%llu bytes taken for weights of %llu", (unsigned long long)taken,
                 (unsigned long long)s.weights_bytes);
    assert_non_null(logits);
    GOLDEN_OK(zp_seq_open(&seq, e, NULL, err));
    zp_item item = { seq, ids, N_IDS, ZP_WANT_LAST };
    GOLDEN_OK(zp_engine_run(e, &item, 1, logits, 1, NULL, err));
    zp_seq_close(seq);
    zp_engine_close(e);
    return logits;
}

static void check_model(const char *file)
{
    zp_model *m = golden_model(file);
    float *first = NULL;
    for (int i = 0; i < 4; i++) { /* packed, packed and kept, mapped from there, copied */
        packfile_pretend_small_pages(i == 3);
        float *logits = start_once(m, i == 0 ? NULL : in_folder("cache"), i >= 2);
        if (first) assert_memory_equal(logits, first, m->h.n_vocab * sizeof *first);
        if (first) free(logits);
        else first = logits;
    }
    packfile_pretend_small_pages(false);
    free(first);
    zp_model_close(m);
}

static void test_smollm2(void **state)
{
    (void)state;
    uint64_t before = os_peak_rss_bytes();
    check_model(SMOLLM2_FILE);
    /* Not even while packing or copying are file and packed weights there together: 97 MB each. */
    assert_true(os_peak_rss_bytes() - before < (uint64_t)150 * MIB);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_model(GEMMA3_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_gemma3),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_mem.c: alignment, counters, injection, arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

static uint64_t live_of(enum mem_tag tag)
{
    struct mem_stats stats;
    mem_stats_read(&stats);
    return stats.live[tag];
}

static void test_blocks_are_aligned_and_separate(void **state)
{
    (void)state;
    uint8_t *blocks[200];
    for (size_t size = 0; size < 200; size++) {
        blocks[size] = mem_alloc(MEM_SCRATCH, size);
        assert_non_null(blocks[size]);
        assert_int_equal((uintptr_t)blocks[size] % 64, 0);
        memset(blocks[size], (int)size, size);
    }
    for (size_t size = 0; size < 200; size++)
        for (size_t i = 0; i < size; i++) assert_int_equal(blocks[size][i], size);
    for (size_t size = 0; size < 200; size++) mem_free(blocks[size]);
}

static void test_counters_follow_tag_and_size(void **state)
{
    (void)state;
    uint64_t kv = live_of(MEM_KV), meta = live_of(MEM_META);
    void *a = mem_alloc(MEM_KV, 1000), *b = mem_zalloc(MEM_KV, 24), *c = mem_alloc(MEM_META, 7);
    assert_int_equal(live_of(MEM_KV), kv + 1024);
    assert_int_equal(live_of(MEM_META), meta + 7);
    a = mem_resize(MEM_KV, a, 10);
    assert_int_equal(live_of(MEM_KV), kv + 34);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(NULL);
    assert_int_equal(live_of(MEM_KV), kv);
    assert_int_equal(live_of(MEM_META), meta);
    struct mem_stats stats;
    mem_stats_read(&stats);
    assert_true(stats.peak[MEM_KV] >= kv + 1024);
    assert_true(stats.allocations >= 4);
}

/* The total's peak is that of a moment, not a sum of peaks; both begin anew. */
static void test_peaks_begin_anew(void **state)
{
    (void)state;
    struct mem_stats before, stats;
    void *a = mem_alloc(MEM_KV, 5000);
    mem_free(a);
    mem_stats_restart();
    mem_stats_read(&before);
    assert_int_equal(before.peak[MEM_KV], before.live[MEM_KV]);
    a = mem_alloc(MEM_KV, 1000);
    mem_free(a);
    a = mem_alloc(MEM_META, 600);
    mem_free(a);
    mem_stats_read(&stats);
    assert_int_equal(stats.peak[MEM_KV] - before.live[MEM_KV], 1000);
    assert_int_equal(stats.peak[MEM_META] - before.live[MEM_META], 600);
    assert_int_equal(stats.peak_total - before.peak_total, 1000);
}

static void test_resize_keeps_contents(void **state)
{
    (void)state;
    char *p = mem_resize(MEM_SCRATCH, NULL, 4);
    memcpy(p, "abcd", 4);
    p = mem_resize(MEM_SCRATCH, p, 100000);
    assert_memory_equal(p, "abcd", 4);
    mem_fail_at(1, false);
    assert_null(mem_resize(MEM_SCRATCH, p, 200000));
    assert_memory_equal(p, "abcd", 4);
    p = mem_resize(MEM_SCRATCH, p, 2);
    assert_memory_equal(p, "ab", 2);
    mem_free(p);
}

static void test_impossible_sizes_are_refused(void **state)
{
    (void)state;
    uint64_t before = live_of(MEM_SCRATCH);
    assert_null(mem_array(MEM_SCRATCH, SIZE_MAX / 2, 3));
    assert_null(mem_array(MEM_SCRATCH, SIZE_MAX, SIZE_MAX));
    assert_null(mem_alloc(MEM_SCRATCH, SIZE_MAX));
    assert_null(mem_alloc(MEM_SCRATCH, SIZE_MAX - 64));
    assert_null(mem_alloc_huge(MEM_SCRATCH, SIZE_MAX));
    assert_null(mem_alloc_huge(MEM_SCRATCH, SIZE_MAX / 4));
    assert_int_equal(live_of(MEM_SCRATCH), before);
}

static void test_zeroed_memory_is_zero(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        uint8_t *p = mem_zalloc(MEM_SCRATCH, 5000);
        for (size_t i = 0; i < 5000; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, 5000);
        mem_free(p);
    }
}

static void test_huge_blocks_start_on_huge_pages(void **state)
{
    (void)state;
    const size_t sizes[] = { 0, 1, 4096, 4097, 2 << 20, (2 << 20) + 1, 5000000 };
    uint64_t before = live_of(MEM_WEIGHTS);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *p = mem_alloc_huge(MEM_WEIGHTS, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] >= 2 << 20 ? 2 << 20 : 4096), 0);
        assert_int_equal(live_of(MEM_WEIGHTS), before + sizes[i]);
        for (size_t at = 0; at < sizes[i]; at += 1000) assert_int_equal(p[at], 0);
        if (sizes[i] != 0) p[sizes[i] - 1] = 1;
        mem_free_huge(MEM_WEIGHTS, p, sizes[i]);
    }
    assert_int_equal(live_of(MEM_WEIGHTS), before);
}

static void test_injected_failure_comes_at_its_number(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 4; n++) {
        mem_fail_at(n, false);
        for (uint64_t i = 1; i <= 6; i++) {
            void *p = i % 2 ? mem_alloc(MEM_SCRATCH, 8) : mem_alloc_huge(MEM_SCRATCH, 8);
            assert_int_equal(p == NULL, i == n);
            if (i % 2) mem_free(p);
            else mem_free_huge(MEM_SCRATCH, p, 8);
        }
        assert_int_equal(mem_fail_count(), 1);
    }
    mem_fail_at(3, true);
    for (uint64_t i = 1; i <= 6; i++) {
        void *p = mem_alloc(MEM_SCRATCH, 8);
        assert_int_equal(p == NULL, i >= 3);
        mem_free(p);
    }
    assert_int_equal(mem_fail_count(), 4);
    mem_fail_at(0, false);
    void *p = mem_alloc(MEM_SCRATCH, 8);
    assert_non_null(p);
    mem_free(p);
}

static void test_strings_are_copied_to_their_end(void **state)
{
    (void)state;
    char *a = mem_strdup(MEM_META, "hello"), *b = mem_strndup(MEM_META, "hello", 3);
    char *c = mem_strndup(MEM_META, "hi", 100);
    assert_string_equal(a, "hello");
    assert_string_equal(b, "hel");
    assert_string_equal(c, "hi");
    mem_free(a);
    mem_free(b);
    mem_free(c);
}

static void test_arena_gives_zeroed_aligned_pieces(void **state)
{
    (void)state;
    uint64_t before = live_of(MEM_TOKENIZER);
    struct arena a = { .tag = MEM_TOKENIZER };
    uint8_t *small[1000];
    for (size_t i = 0; i < 1000; i++) {
        size_t size = i % 7 == 0 ? 40000 : i % 301;
        small[i] = arena_alloc(&a, size);
        assert_non_null(small[i]);
        assert_int_equal((uintptr_t)small[i] % 16, 0);
        for (size_t k = 0; k < size; k += 97) assert_int_equal(small[i][k], 0);
        memset(small[i], (int)(i % 251) + 1, size);
    }
    for (size_t i = 1; i < 1000; i++)
        if (i % 7 != 0 && i % 301 != 0) assert_int_equal(small[i][0], i % 251 + 1);
    assert_string_equal(arena_strndup(&a, "abcdef", 4), "abcd");
    assert_null(arena_array(&a, SIZE_MAX / 2, 4));
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_free(&a);
    assert_int_equal(live_of(MEM_TOKENIZER), before);
    mem_fail_at(1, false);
    assert_null(arena_alloc(&a, 10));
    assert_non_null(arena_alloc(&a, 10));
    arena_free(&a);
}

static void churn(void *arg, uint32_t thread, uint32_t n_threads)
{
    (void)arg;
    (void)n_threads;
    for (size_t i = 0; i < 2000; i++) {
        void *p = mem_alloc(MEM_TRAIN, i % 100 + thread);
        p = mem_resize(MEM_TRAIN, p, i % 50);
        mem_free(p);
    }
}

static void test_counters_agree_under_threads(void **state)
{
    (void)state;
    struct pool *pool;
    assert_int_equal(pool_open(&pool, 4, NULL), ZP_OK);
    uint64_t before = live_of(MEM_TRAIN);
    pool_run(pool, churn, NULL);
    assert_int_equal(live_of(MEM_TRAIN), before);
    pool_close(pool);
}

static void test_mapped_bytes_count_like_memory(void **state)
{
    (void)state;
    uint64_t before = live_of(MEM_WEIGHTS);
    mem_count_mapped(MEM_WEIGHTS, 12345);
    assert_int_equal(live_of(MEM_WEIGHTS), before + 12345);
    mem_count_unmapped(MEM_WEIGHTS, 12345);
    assert_int_equal(live_of(MEM_WEIGHTS), before);
}

static void test_tags_have_names(void **state)
{
    (void)state;
    assert_string_equal(mem_tag_name(MEM_META), "meta");
    assert_string_equal(mem_tag_name(MEM_SERVE), "serve");
    assert_string_equal(mem_tag_name(MEM_TAG_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_aligned_and_separate),
        cmocka_unit_test(test_counters_follow_tag_and_size),
        cmocka_unit_test(test_peaks_begin_anew),
        cmocka_unit_test(test_resize_keeps_contents),
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_zeroed_memory_is_zero),
        cmocka_unit_test(test_huge_blocks_start_on_huge_pages),
        cmocka_unit_test(test_injected_failure_comes_at_its_number),
        cmocka_unit_test(test_strings_are_copied_to_their_end),
        cmocka_unit_test(test_arena_gives_zeroed_aligned_pieces),
        cmocka_unit_test(test_counters_agree_under_threads),
        cmocka_unit_test(test_mapped_bytes_count_like_memory),
        cmocka_unit_test(test_tags_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

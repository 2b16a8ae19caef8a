/* test_bpetrain.c: tokenizers made from text: the pairs that a plain count finds, in any order of
 * texts, and the engine's own tokenizer takes them and gives every text back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "base/rng.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "model/bpe.h"
#include "train/bpetrain.h"

#define FINE(call)                                                          \
    do {                                                                    \
        zp_err fine_err_ = { 0 }, *err = &fine_err_;                        \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, fine_err_.message);  \
    } while (0)

static char *prose; /* tests/data/prose.txt */
static size_t prose_size;

static int start(void **state)
{
    struct buffer b = buffer_with_max(MEM_META, 16 << 20);
    if (make_folder(state) != 0 || os_read_file(ZP_TEST_DATA "/prose.txt", &b, NULL) != ZP_OK)
        return -1;
    prose = (char *)b.data;
    prose_size = b.size;
    return 0;
}

static int stop(void **state)
{
    mem_free(prose);
    return remove_folder(state);
}

static void train(struct bpetrain *b, uint32_t n_vocab, const char *pre, const char *text,
                  size_t size)
{
    FINE(bpetrain_open(b, &(struct bpetrain_options){ .n_vocab = n_vocab, .pre = pre }, err));
    FINE(bpetrain_add(b, text, size, err));
    FINE(bpetrain_run(b, err));
}

static struct tokenizer *open_saved(const struct bpetrain *b)
{
    struct tokenizer *t;
    struct gguf g;
    const char *path = in_folder("tokenizer.gguf");
    FINE(bpetrain_save(b, path, err));
    FINE(gguf_open(&g, path, err));
    FINE(tokenizer_open_gguf(&t, &g, NULL, err));
    gguf_close(&g);
    return t;
}

static void check_round_trip(const struct tokenizer *t, const char *text, size_t size)
{
    struct token_list list = { 0 };
    struct buffer back = buffer_with_max(MEM_META, 16 << 20);
    FINE(tokenizer_encode(t, text, size, 0, &list, err));
    FINE(buffer_append(&back, "", 0, err));
    FINE(tokenizer_decode(t, list.ids, list.count, 0, &back, err));
    assert_int_equal(back.size, size);
    assert_memory_equal(back.data, text, size);
    token_list_free(&list);
    buffer_free(&back);
}

static const char odd[] = "Zürich \t 12345\n\n  <|endoftext|> \xF0\x9F\xA6\x80 \xE6\x97\xA5\xE6\x9C"
                          "\xAC don't 'S --- ======\r\n\x01\x7F";

static void test_engine_gives_texts_back(void **state)
{
    (void)state;
    static const char *const pres[] = { "smollm", "gpt-2", "llama-bpe" };
    for (size_t i = 0; i < 3; i++) {
        struct bpetrain b;
        train(&b, 700, pres[i], prose, prose_size);
        assert_int_equal(b.vocab.n, 700);
        struct tokenizer *t = open_saved(&b);
        const struct tokenizer_info *info = tokenizer_get_info(t);
        assert_int_equal(info->n_vocab, 700);
        assert_int_equal(info->bos, 0);
        assert_int_equal(info->eos, 0);
        assert_true(info->add_bos && !info->add_eos);
        assert_string_equal(info->pre, pres[i]);
        assert_true(tokenizer_is_eog(t, 0) && tokenizer_is_special(t, 7));
        check_round_trip(t, prose, prose_size);
        check_round_trip(t, odd, sizeof odd - 1);
        check_round_trip(t, "", 0);
        tokenizer_close(t);
        bpetrain_free(&b);
    }
}

static void test_bytes_alone_are_a_vocabulary(void **state)
{
    (void)state;
    struct bpetrain b;
    struct token_list list = { 0 };
    train(&b, 264, NULL, prose, prose_size);
    assert_int_equal(b.n_merges, 0);
    struct tokenizer *t = open_saved(&b);
    check_round_trip(t, odd, sizeof odd - 1);
    FINE(tokenizer_encode(t, odd, sizeof odd - 1, 0, &list, err));
    assert_int_equal(list.count, sizeof odd - 1);
    for (size_t i = 0; i < list.count; i++) assert_int_equal(list.ids[i], 8 + (uint8_t)odd[i]);
    token_list_free(&list);
    tokenizer_close(t);
    bpetrain_free(&b);
}

static void test_a_text_too_small_gives_fewer_tokens(void **state)
{
    (void)state;
    struct bpetrain b;
    train(&b, 1000, NULL, "hello hello", 11);
    /* "hello" and " hello": he, hel, ... as far as a pair stands twice */
    assert_int_equal(b.vocab.n, 264 + 4);
    struct tokenizer *t = open_saved(&b);
    check_round_trip(t, "hello hello jello", 17);
    tokenizer_close(t);
    bpetrain_free(&b);
    train(&b, 1000, NULL, "", 0);
    assert_int_equal(b.vocab.n, 264);
    bpetrain_free(&b);
}

/* ---- plain counting, the definition ---- */

enum { MOST_IDS = 20000 };
struct naive {
    struct pretok_pieces words;
    int32_t ids[MOST_IDS], begin[MOST_IDS]; /* begin: word number */
    size_t n;
};

static void naive_start(struct naive *v, const char *text, size_t size)
{
    struct pretok p = { 0 };
    struct pretok_scratch scratch = { 0 };
    const struct pretok_pieces *pieces;
    FINE(pretok_open_row(&p, pretok_find("smollm", 6), "smollm", err));
    FINE(pretok_split(&p, &scratch, (const uint8_t *)text, size, &pieces, err));
    v->n = 0;
    for (size_t w = 0; w < pieces->count; w++)
        for (uint32_t i = pieces->items[w].begin; i < pieces->items[w].end; i++) {
            assert_true(v->n < MOST_IDS);
            v->ids[v->n] = 8 + (uint8_t)text[i];
            v->begin[v->n++] = (int32_t)w;
        }
    pretok_scratch_free(&scratch);
    pretok_close(&p);
}

static bool naive_best(const struct naive *v, uint32_t n_ids, int32_t *left, int32_t *right)
{
    uint32_t *counts = calloc((size_t)n_ids * n_ids, sizeof *counts), best = 1;
    assert_non_null(counts);
    for (size_t i = 0; i + 1 < v->n; i++)
        if (v->begin[i] == v->begin[i + 1])
            counts[(size_t)v->ids[i] * n_ids + (size_t)v->ids[i + 1]]++;
    for (size_t k = 0; k < (size_t)n_ids * n_ids; k++)
        if (counts[k] > best) {
            best = counts[k];
            *left = (int32_t)(k / n_ids), *right = (int32_t)(k % n_ids);
        }
    free(counts);
    return best > 1;
}

static void naive_join(struct naive *v, int32_t left, int32_t right, int32_t joined)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; n++) {
        bool join = i + 1 < v->n && v->begin[i] == v->begin[i + 1] && v->ids[i] == left &&
                    v->ids[i + 1] == right;
        v->begin[n] = v->begin[i];
        v->ids[n] = join ? joined : v->ids[i];
        i += join ? 2 : 1;
    }
    v->n = n;
}

/* The merge written on the line of b, as ids. */
static const char *read_merge(const struct bpetrain *b, const char *line, int32_t *left,
                              int32_t *right, int32_t *joined)
{
    const char *space = strchr(line, ' '), *end = strchr(line, '\n');
    char text[128];
    size_t n = (size_t)(space - line), m = (size_t)(end - space) - 1;
    memcpy(text, line, n);
    memcpy(text + n, space + 1, m);
    *left = vocab_find(&b->vocab, line, n);
    *right = vocab_find(&b->vocab, space + 1, m);
    *joined = vocab_find(&b->vocab, text, n + m);
    return end + 1;
}

static void check_against_naive(const char *text, size_t size, uint32_t n_vocab)
{
    static struct naive v;
    struct bpetrain b;
    struct token_list list = { 0 };
    train(&b, n_vocab, "smollm", text, size);
    naive_start(&v, text, size);
    const char *line = (const char *)b.merges.data;
    for (uint32_t i = 0; i < b.n_merges; i++) {
        int32_t left = 0, right = 0, l, r, joined;
        assert_true(naive_best(&v, n_vocab, &left, &right));
        line = read_merge(&b, line, &l, &r, &joined);
        if (l != left || r != right)
            fail_msg("merge %u joins %d and %d, counting says %d and %d", i, l, r, left, right);
        naive_join(&v, left, right, joined);
    }
    /* Joining in the order of the merges is what the engine must do by rank. */
    struct tokenizer *t = open_saved(&b);
    FINE(tokenizer_encode(t, text, size, 0, &list, err));
    assert_int_equal(list.count, v.n);
    assert_memory_equal(list.ids, v.ids, v.n * sizeof *list.ids);
    token_list_free(&list);
    tokenizer_close(t);
    bpetrain_free(&b);
}

static void test_pairs_and_ids_are_those_of_plain_counting(void **state)
{
    (void)state;
    check_against_naive(prose, 9000, 500);
    static const uint64_t seed = 7;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t k = 0; k < 40; k++) { /* few letters: runs, ties and equal texts of two merges */
        struct rng r = rng_stream(seed, k);
        char text[600];
        size_t n = 50 + rng_below(&r, sizeof text - 50), letters = 1 + rng_below(&r, 4);
        for (size_t i = 0; i < n; i++)
            text[i] = rng_below(&r, 9) ? (char)('a' + rng_below(&r, letters)) : ' ';
        check_against_naive(text, n, 330);
    }
}

static void test_order_of_texts_does_not_matter(void **state)
{
    (void)state;
    struct bpetrain a, b;
    enum { PARTS = 7 };
    FINE(bpetrain_open(&a, NULL, err));
    FINE(bpetrain_open(&b, NULL, err));
    size_t ends[PARTS + 1] = { 0 };
    for (size_t i = 1; i <= PARTS; i++) {
        ends[i] = prose_size * i / PARTS;
        while (ends[i] < prose_size && prose[ends[i]] != '\n') ends[i]++;
    }
    for (size_t i = 0; i < PARTS; i++) {
        size_t k = PARTS - 1 - i;
        FINE(bpetrain_add(&a, prose + ends[i], ends[i + 1] - ends[i], err));
        FINE(bpetrain_add(&b, prose + ends[k], ends[k + 1] - ends[k], err));
    }
    FINE(bpetrain_run(&a, err));
    FINE(bpetrain_run(&b, err));
    assert_true(a.n_merges > 400);
    assert_int_equal(a.merges.size, b.merges.size);
    assert_memory_equal(a.merges.data, b.merges.data, a.merges.size);
    bpetrain_free(&a);
    bpetrain_free(&b);
}

static void test_long_words_cost_no_more(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);
    struct bpetrain b;
    for (size_t i = 0; i < SIZE; i++) text[i] = (char)('a' + (i * i >> 7) % 23);
    train(&b, 600, NULL, text, SIZE);
    assert_int_equal(b.vocab.n, 600);
    struct tokenizer *t = open_saved(&b);
    check_round_trip(t, text, 4096);
    tokenizer_close(t);
    bpetrain_free(&b);
    free(text);
}

static void test_wrong_orders_are_refused(void **state)
{
    (void)state;
    struct bpetrain b;
    uint64_t before = live_bytes();
    zp_err e = { 0 };
    assert_int_equal(bpetrain_open(&b, &(struct bpetrain_options){ .n_vocab = 263 }, &e), ZP_USAGE);
    assert_non_null(strstr(e.message, "264"));
    e.code = ZP_OK;
    assert_int_equal(bpetrain_open(&b, &(struct bpetrain_options){ .pre = "no" }, &e),
                     ZP_UNSUPPORTED);
    FINE(bpetrain_open(&b, NULL, err));
    e.code = ZP_OK;
    assert_int_equal(bpetrain_add(&b, "ab\xFF", 3, &e), ZP_BAD_INPUT);
    assert_non_null(strstr(e.message, "byte 2"));
    bpetrain_free(&b);
    assert_int_equal(live_bytes(), before);
}

static void test_memory_that_runs_out_leaks_nothing(void **state)
{
    (void)state;
    uint64_t before = live_bytes();
    for (uint64_t n = 1;; n++) {
        struct bpetrain b;
        zp_err e = { 0 };
        mem_fail_at(n, false);
        zp_status status = bpetrain_open(&b, NULL, &e);
        bool open = status == ZP_OK;
        if (status == ZP_OK) status = bpetrain_add(&b, prose, 3000, &e);
        if (status == ZP_OK) status = bpetrain_run(&b, &e);
        if (status == ZP_OK) status = bpetrain_save(&b, in_folder("no.gguf"), &e);
        if (open) bpetrain_free(&b);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        if (status != ZP_OK) assert_int_equal(status, ZP_NO_MEMORY);
        if (live_bytes() != before) fail_msg("allocation %llu leaks", (unsigned long long)n);
        if (!failed) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_gives_texts_back),
        cmocka_unit_test(test_bytes_alone_are_a_vocabulary),
        cmocka_unit_test(test_a_text_too_small_gives_fewer_tokens),
        cmocka_unit_test(test_pairs_and_ids_are_those_of_plain_counting),
        cmocka_unit_test(test_order_of_texts_does_not_matter),
        cmocka_unit_test(test_long_words_cost_no_more),
        cmocka_unit_test(test_wrong_orders_are_refused),
        cmocka_unit_test(test_memory_that_runs_out_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

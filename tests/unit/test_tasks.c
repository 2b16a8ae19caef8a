/* test_tasks.c: made-up documents: each kind's answer is right and can be known, the same index
 * gives the same case, probes share neither wordings nor documents with training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "train/tasks.h"
#include "train_fixture.h"

enum { N_DOCS = 9, ROOM = 255, CASES = 400 };

static struct train_fixture f;
static struct tasks training[TASK_KINDS], probes[TASK_KINDS], mixed;
static struct task c;

static int start(void **state)
{
    static const size_t n_words[N_DOCS] = { 500, 3, 200, 1000, 40, 7, 100, 300, 900 };
    if (make_folder(state) != 0) return -1;
    fixture_open(&f, 400, n_words, N_DOCS);
    for (int k = 0; k < TASK_KINDS; k++) {
        struct tasks_options o = { 0 };
        o.share[k] = 1;
        FINE(tasks_open(&training[k], &f.shards, f.tokenizer, &o, err));
        o.probes = true;
        FINE(tasks_open(&probes[k], &f.shards, f.tokenizer, &o, err));
    }
    FINE(tasks_open(&mixed, &f.shards, f.tokenizer, NULL, err));
    FINE(task_open(&c, 4096, err));
    return 0;
}

static int stop(void **state)
{
    for (int k = 0; k < TASK_KINDS; k++) {
        tasks_close(&training[k]);
        tasks_close(&probes[k]);
    }
    tasks_close(&mixed);
    task_close(&c);
    fixture_close(&f);
    return remove_folder(state);
}

static void make(const struct tasks *t, uint64_t index, uint32_t room, double level)
{
    FINE(tasks_make(t, 5, index, room, level, &c, err));
    assert_in_range(c.n, 1, room);
    assert_true(c.n_answer > 0 && c.answer + c.n_answer <= c.n);
    assert_true(c.distance > 0 && c.distance <= c.answer);
    for (uint32_t i = 0; i < c.n; i++)
        assert_in_range(c.ids[i], 0, f.shards.head.n_vocab - 1);
    for (uint32_t i = 0; i < c.n_answer; i++) assert_int_equal(c.learn[c.answer + i], 1);
}

/* Text of ids [from, to). */
static const char *text_of(uint32_t from, uint32_t to)
{
    static char text[1 << 16];
    struct buffer b = buffer_with_max(MEM_META, sizeof text - 1);
    FINE(buffer_append(&b, "", 0, err));
    FINE(tokenizer_decode(f.tokenizer, c.ids + from, to - from, DETOKENIZE_CONTINUES, &b, err));
    memcpy(text, b.data, b.size + 1);
    buffer_free(&b);
    return text;
}

static void check_repeat(void)
{
    for (uint32_t i = 0; i < c.n_answer; i++)
        assert_int_equal(c.ids[c.answer + i], c.ids[c.answer + i - c.distance]);
}

static void test_copies_are_copies(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++)
        for (uint64_t i = 0; i < CASES; i++) {
            make(p ? &probes[TASK_COPY] : &training[TASK_COPY], i, ROOM, 1);
            assert_int_equal(c.kind, TASK_COPY);
            assert_in_range(c.n_answer, 2, 31);
            assert_int_equal(c.answer + c.n_answer, c.n);
            assert_int_equal(c.ids[c.answer - 1], c.ids[c.answer - 1 - c.distance]);
            assert_int_equal(c.learn[c.answer - 1], p); /* the first of the copy, or a later one */
            check_repeat();
        }
}

static void test_seconds_of_pairs_are_known(void **state)
{
    (void)state;
    size_t one_place = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        make(&training[TASK_INDUCTION], i, ROOM, 1);
        check_repeat();
        assert_int_equal(c.ids[c.answer - 1], c.ids[c.answer - 1 - c.distance]);
        make(&probes[TASK_INDUCTION], i, ROOM, 0);
        check_repeat();
        assert_int_equal(c.answer, c.n - 1);
        size_t places = 0;
        for (uint32_t k = 0; k + 1 < c.answer; k++) places += c.ids[k] == c.ids[c.answer - 1];
        one_place += places == 1;
    }
    /* The fixture's prose has few words, so not all of them. */
    print_message("one place tells the answer: %d of %d\n", (int)one_place, CASES);
    assert_true(one_place > CASES * 3 / 5);
}

static void test_keys_are_said_before_they_are_asked(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++)
        for (int kind = TASK_PASSKEY; kind <= TASK_MULTIKEY; kind++)
            for (uint64_t i = 0; i < CASES; i++) {
                make(p ? &probes[kind] : &training[kind], i, 1024, 1);
                assert_int_equal(c.kind, kind);
                assert_int_equal(c.n_answer, 5);
                check_repeat();
                for (uint32_t k = 0; k < 5; k++)
                    assert_int_equal(c.learn[c.answer - c.distance + k], 0);
                const char *digits = text_of(c.answer, c.answer + 5);
                assert_int_equal(strspn(digits, "0123456789"), 5);
                if (p) assert_int_equal(c.answer + 5, c.n);
            }
}

static void test_order_names_the_first(void **state)
{
    (void)state;
    size_t seen = 0, listed_first = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        make(&probes[TASK_ORDER], i, ROOM, 1);
        char answer[64];
        snprintf(answer, sizeof answer, "%s", text_of(c.answer, c.answer + c.n_answer));
        const char *word = answer[0] == ' ' ? answer + 1 : answer;
        char text[8192], *question = text;
        snprintf(text, sizeof text, "%s", text_of(0, c.n));
        question = strstr(text, " Which came first, the ");
        assert_non_null(question);
        char one[32], two[32];
        assert_int_equal(sscanf(question, " Which came first, the %31s or the %31[a-z]", one, two),
                         2);
        *question = 0;
        char *a = strstr(text, one), *b = strstr(text, two);
        assert_true(a && b);
        assert_string_equal(word, a < b ? one : two);
        listed_first += strcmp(word, one) == 0;
        seen++;
    }
    assert_in_range(listed_first, seen / 3, seen * 2 / 3); /* the question does not tell */
}

static void test_counts_are_right(void **state)
{
    (void)state;
    size_t had[10] = { 0 };
    for (uint64_t i = 0; i < CASES; i++) {
        make(&probes[TASK_COUNT], i, 1024, 1);
        char text[8192], word[32];
        snprintf(text, sizeof text, "%s", text_of(0, c.n));
        char *list = strstr(text, " Look at these:"), *asked = strstr(text, " How often does ");
        int said = -1;
        assert_true(list && asked);
        assert_int_equal(sscanf(asked, " How often does %31s stand in this list? %d", word, &said),
                         2);
        *asked = 0;
        int count = 0;
        for (char *at = list; (at = strstr(at, word)); at++) count++;
        assert_int_equal(count, said);
        assert_in_range(said, 1, 9);
        had[said]++;
    }
    for (int k = 1; k <= 9; k++) assert_true(had[k] > 0);
}

static void test_brackets_close_what_is_open(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < CASES; i++) {
        make(&training[TASK_BRACKETS], i, ROOM, 1);
        char open[64];
        size_t depth = 0;
        const char *text = text_of(0, c.n);
        assert_int_equal(c.answer + c.n_answer, c.n);
        for (const char *at = text; *at; at++) {
            const char *opening = strchr("([{<", *at), *closing = strchr(")]}>", *at);
            if (*at == ':') assert_true(depth > 0);
            if (opening) open[depth++] = ")]}>"[opening - "([{<"];
            else if (closing) assert_true(depth > 0 && open[--depth] == *at);
        }
        assert_int_equal(depth, 0);
    }
}

static void test_same_index_same_case(void **state)
{
    (void)state;
    static int32_t first[CASES][ROOM];
    uint32_t n[CASES];
    size_t differ = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        make(&mixed, i, ROOM, 0.5);
        memcpy(first[i], c.ids, c.n * sizeof *c.ids);
        n[i] = c.n;
    }
    for (uint64_t k = CASES; k-- > 0;) { /* in another order, in memory that held other cases */
        make(&mixed, k, ROOM, 0.5);
        assert_int_equal(c.n, n[k]);
        assert_memory_equal(first[k], c.ids, c.n * sizeof *c.ids);
        if (k > 0) differ += n[k] != n[k - 1] || memcmp(first[k], first[k - 1], n[k] * 4) != 0;
    }
    assert_int_equal(differ, CASES - 1);
}

static void check_mix(double level, const uint32_t share[TASK_KINDS])
{
    enum { N = 6000 };
    size_t had[TASK_KINDS] = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        make(&mixed, i, 2048, level);
        had[c.kind]++;
    }
    for (int k = 0; k < TASK_KINDS; k++)
        assert_in_range(had[k], N * share[k] / 36 * 8 / 10, N * share[k] / 36 * 12 / 10);
}

static void test_mix_follows_its_shares_and_copies_come_first(void **state)
{
    (void)state;
    check_mix(0, (uint32_t[TASK_KINDS]){ [TASK_COPY] = 30, [TASK_INDUCTION] = 6 });
    check_mix(0.5, (uint32_t[TASK_KINDS]){ 21, 6, 3, 2, 1, 1, 2 });
    check_mix(1, (uint32_t[TASK_KINDS]){ 12, 6, 6, 4, 2, 2, 4 });
}

static void test_level_brings_distance(void **state)
{
    (void)state;
    double mean[2] = { 0 };
    uint32_t longest[2] = { 0 };
    for (int high = 0; high < 2; high++)
        for (uint64_t i = 0; i < CASES; i++) {
            make(&training[TASK_COPY], i, ROOM, high);
            mean[high] += c.distance / (double)CASES;
            if (c.distance > longest[high]) longest[high] = c.distance;
        }
    print_message("copy distance: mean %.1f and %.1f, longest %u and %u\n", mean[0], mean[1],
                  longest[0], longest[1]);
    assert_true(longest[0] <= 4 + 8 && longest[1] > 128 && mean[1] > 2 * mean[0]);
}

static void test_every_room_is_kept(void **state)
{
    (void)state;
    for (uint32_t room = TASKS_LEAST_ROOM; room < 140; room++)
        for (uint64_t i = 0; i < 60; i++) make(&mixed, i, room, 1);
    zp_err e = { 0 };
    assert_int_equal(tasks_make(&probes[TASK_PASSKEY], 5, 0, 20, 1, &c, &e), ZP_BAD_INPUT);
    assert_non_null(strstr(e.message, "passkey"));
}

static bool stands_in(uint32_t doc, const int32_t *ids, uint32_t n)
{
    const struct shards_doc *d = &f.shards.docs[doc];
    for (uint64_t at = 0; at + n <= d->n; at++) {
        uint32_t same = 0;
        while (same < n && shards_id(&f.shards, d->at + at + same) == ids[same]) same++;
        if (same == n) return true;
    }
    return false;
}

static void test_probes_share_nothing_with_training(void **state)
{
    (void)state;
    static const char *const reserved[] = { "pass key", "magic number", "vault", "hotel", "Maria",
                                            "Peter", "candle", "wolf", "Remember it", "came first",
                                            "How often", "Keep in mind" };
    for (uint64_t i = 0; i < 2000; i++) {
        make(&mixed, i, 512, 1);
        const char *text = text_of(0, c.n);
        for (size_t k = 0; k < sizeof reserved / sizeof reserved[0]; k++)
            if (strstr(text, reserved[k])) fail_msg("case %d: %s", (int)i, text);
    }
    for (uint64_t i = 0; i < 100; i++) { /* nor digits */
        char said[8];
        make(&training[TASK_PASSKEY], i, 1024, 1);
        snprintf(said, sizeof said, "%s", text_of(c.answer, c.answer + 5));
        make(&probes[TASK_PASSKEY], i, 1024, 1);
        assert_string_not_equal(said, text_of(c.answer, c.answer + 5));
    }
    enum { PROSE = 24 };
    size_t found[2] = { 0 };
    for (int p = 0; p < 2; p++) /* of passkey cases, where prose is the most */
        for (uint64_t i = 0; i < 100; i++) {
            make(p ? &probes[TASK_PASSKEY] : &training[TASK_PASSKEY], i, 512, 1);
            for (uint32_t at = 0; at + PROSE <= c.n; at++)
                for (uint32_t d = 0; d < N_DOCS; d++) {
                    if (!stands_in(d, c.ids + at, PROSE)) continue;
                    assert_int_equal(f.shards.docs[d].held, p);
                    found[p]++;
                }
        }
    assert_true(found[0] > 100 && found[1] > 100);
}

static void test_wrong_orders_are_refused(void **state)
{
    (void)state;
    static const size_t n_words[2] = { 50, 60 }; /* none held out */
    struct train_fixture other;
    struct tasks t;
    zp_err e = { 0 };
    uint64_t before = live_bytes();
    fixture_open(&other, 300, n_words, 2);
    assert_int_equal(tasks_open(&t, &other.shards, other.tokenizer,
                                &(struct tasks_options){ .probes = true }, &e), ZP_BAD_INPUT);
    assert_non_null(strstr(e.message, "held-out"));
    e.code = ZP_OK;
    assert_int_equal(tasks_open(&t, &f.shards, other.tokenizer, NULL, &e), ZP_BAD_INPUT);
    fixture_close(&other);
    assert_int_equal(live_bytes(), before);
}

static void test_speed_is_told(void **state)
{
    (void)state;
    for (int k = 0; k < TASK_KINDS; k++) {
        double begin = os_now();
        uint64_t tokens = 0;
        for (uint64_t i = 0; i < 2000; i++) {
            FINE(tasks_make(&training[k], 1, i, ROOM, 1, &c, err));
            tokens += c.n;
        }
        print_message("%-9s %.2f million tokens a second\n", task_kind_name((enum task_kind)k),
                      (double)tokens / 1e6 / (os_now() - begin));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_are_copies),
        cmocka_unit_test(test_seconds_of_pairs_are_known),
        cmocka_unit_test(test_keys_are_said_before_they_are_asked),
        cmocka_unit_test(test_order_names_the_first),
        cmocka_unit_test(test_counts_are_right),
        cmocka_unit_test(test_brackets_close_what_is_open),
        cmocka_unit_test(test_same_index_same_case),
        cmocka_unit_test(test_mix_follows_its_shares_and_copies_come_first),
        cmocka_unit_test(test_level_brings_distance),
        cmocka_unit_test(test_every_room_is_kept),
        cmocka_unit_test(test_probes_share_nothing_with_training),
        cmocka_unit_test(test_wrong_orders_are_refused),
        cmocka_unit_test(test_speed_is_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

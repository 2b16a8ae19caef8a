/* test_packer.c: rows for training: pure functions of their number, each token of training once an
 * epoch, none that is held out, borders between documents, fixed windows of the held-out part. */
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
#include "train/packer.h"
#include "train_fixture.h"

/* A corpus in which every token is another: id i is token i - 1 of the whole, 0 the separator. */
enum { N_DOCS = 40, CTX = 64, ROWS = 8, MICRO = 4 };

static struct train_fixture f;
static uint32_t doc_of_id[70000];
static uint64_t sizes[N_DOCS];

static void write_unique(const char *path)
{
    struct shards_writer w;
    struct rng r = rng_stream(3, 1);
    int32_t next = 1, ids[600];
    FINE(shards_writer_open(&w, f.tokenizer, err));
    w.head.n_vocab = 70000, w.head.id_bytes = 4, w.head.separator = 0;
    for (uint32_t d = 0; d < N_DOCS; d++) {
        /* shorter than a row, about as long, much longer; and of one token */
        uint64_t n = d % 10 == 9 ? 1 : 1 + rng_below(&r, d % 3 ? 130 : 600);
        for (uint64_t i = 0; i < n; i++) doc_of_id[next] = d, ids[i] = next++;
        sizes[d] = n;
        FINE(shards_writer_add(&w, "x", d, n, ids, n, d % 4 == 1, err));
    }
    FINE(shards_writer_save(&w, path, err));
    shards_writer_free(&w);
}

static int start(void **state)
{
    if (make_folder(state) != 0) return -1;
    fixture_tokenizer(&f, 400);
    const char *path = in_folder("unique.zpt");
    write_unique(path);
    FINE(shards_open(&f.shards, path, err));
    return 0;
}

static int stop(void **state)
{
    fixture_close(&f);
    return remove_folder(state);
}

static struct packer_options usual(void)
{
    return (struct packer_options){ .n_ctx = CTX, .n_rows = ROWS, .n_micro = MICRO, .seed = 11 };
}

/* One row: documents from their beginnings, each token followed by its target. */
static void check_row(const struct packed *b, uint32_t r, bool held)
{
    const int32_t *ids = b->ids + (size_t)r * CTX, *targets = b->targets + (size_t)r * CTX;
    const uint32_t *begin = b->start + (size_t)r * CTX, *at = b->position + (size_t)r * CTX;
    for (uint32_t i = 0; i < CTX; i++) {
        assert_true(begin[i] <= i);
        assert_int_equal(at[i], i - begin[i]);
        assert_int_equal(ids[begin[i]], 0);
        bool first = begin[i] == i;
        assert_int_equal(ids[i] == 0, first); /* a separator begins, and nothing else is one */
        if (i > 0 && !first) assert_int_equal(begin[i], begin[i - 1]);
        if (targets[i] < 0) {
            assert_true(first); /* only what fills up */
            continue;
        }
        uint32_t doc = doc_of_id[first ? targets[i] : ids[i]];
        assert_int_equal(f.shards.docs[doc].held, held);
        if (!first) { /* the next token of the document, or the separator at its end */
            bool ends = doc_of_id[ids[i] + 1] != doc || ids[i] == (int32_t)f.shards.head.n_tokens;
            assert_int_equal(targets[i], ends ? 0 : ids[i] + 1);
        }
        if (i + 1 < CTX && begin[i + 1] == begin[i]) assert_int_equal(targets[i], ids[i + 1]);
        else if (i + 1 < CTX && !first) assert_int_equal(targets[i], 0); /* it was whole */
    }
}

static void test_borders_between_documents(void **state)
{
    (void)state;
    struct packer p;
    struct packed b;
    struct packer_options o = usual();
    FINE(packer_open(&p, &f.shards, &o, err));
    FINE(packed_open(&b, ROWS / MICRO, CTX, err));
    for (uint64_t batch = 0; batch < 100; batch++)
        for (uint32_t m = 0; m < MICRO; m++) {
            FINE(packer_micro(&p, batch, m, &b, err));
            for (uint32_t r = 0; r < b.n_rows; r++) check_row(&b, r, false);
            assert_int_equal(b.n_targets, b.n_rows * CTX); /* rows of text are full */
        }
    packed_close(&b);
    packer_close(&p);
}

static void test_each_token_once_an_epoch(void **state)
{
    (void)state;
    struct packer p;
    struct packed b;
    struct packer_options o = { .n_ctx = CTX, .n_rows = 1, .seed = 2 };
    static uint32_t first_of_row[2][2000];
    size_t same = 0;
    FINE(packer_open(&p, &f.shards, &o, err));
    FINE(packed_open(&b, 1, CTX, err));
    assert_in_range(p.n_rows, 20, 1999);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint8_t *had = calloc(70000, 1);
        uint64_t n = 0;
        for (uint64_t row = 0; row < p.n_rows; row++) {
            FINE(packer_micro(&p, epoch * p.n_rows + row, 0, &b, err));
            for (uint32_t i = 0; i < CTX; i++) {
                if (b.ids[i] == 0) continue;
                if (had[b.ids[i]]++) fail_msg("token %d twice", b.ids[i]);
                n++;
            }
            first_of_row[epoch][row] = (uint32_t)b.ids[1];
        }
        print_message("epoch %d: %d of %d tokens\n", (int)epoch, (int)n, (int)p.n_tokens);
        assert_true(n + CTX + N_DOCS + p.n_rows >= p.n_tokens);
        free(had);
    }
    for (uint64_t row = 0; row < p.n_rows; row++)
        same += first_of_row[0][row] == first_of_row[1][row];
    assert_true(same < p.n_rows / 4); /* another order */
    packed_close(&b);
    packer_close(&p);
}

static void test_batches_are_functions_of_their_number(void **state)
{
    (void)state;
    enum { BATCHES = 60 };
    struct packer p, q;
    struct packed a, b;
    struct packer_options o = usual();
    FINE(packer_open(&p, &f.shards, &o, err));
    FINE(packed_open(&a, ROWS / MICRO, CTX, err));
    FINE(packed_open(&b, ROWS / MICRO, CTX, err));
    size_t bytes = (size_t)a.n_rows * CTX * 4;
    for (uint64_t k = BATCHES; k-- > 0;) { /* backwards; another packer begins at batch k */
        FINE(packer_open(&q, &f.shards, &o, err));
        FINE(packer_micro(&p, k, (uint32_t)(k % MICRO), &a, err));
        FINE(packer_micro(&q, k, (uint32_t)(k % MICRO), &b, err));
        assert_memory_equal(a.ids, b.ids, bytes);
        assert_memory_equal(a.targets, b.targets, bytes);
        assert_memory_equal(a.start, b.start, bytes);
        packer_close(&q);
    }
    o.seed++;
    FINE(packer_open(&q, &f.shards, &o, err));
    FINE(packer_micro(&q, 0, 0, &b, err));
    assert_memory_not_equal(a.ids, b.ids, bytes);
    packer_close(&q);
    packer_close(&p);
    packed_close(&a);
    packed_close(&b);
}

/* Whatever the number of ranks and micro-batches, the rows of a batch are the same. */
static void test_ranks_share_one_batch(void **state)
{
    (void)state;
    static const uint32_t micros[] = { 1, 2, 4, 8 }, ranks[] = { 1, 2, 3, 4 };
    int32_t whole[ROWS * CTX];
    for (size_t k = 0; k < 4; k++) {
        struct packer p;
        struct packed b;
        struct packer_options o = usual();
        o.n_micro = micros[k];
        FINE(packer_open(&p, &f.shards, &o, err));
        FINE(packed_open(&b, p.micro_rows, CTX, err));
        for (uint32_t m = 0; m < o.n_micro; m++) {
            int32_t *part = whole + (size_t)m * p.micro_rows * CTX;
            FINE(packer_micro(&p, 5, m, &b, err));
            if (k == 0) memcpy(part, b.ids, sizeof whole);
            assert_memory_equal(part, b.ids, (size_t)p.micro_rows * CTX * 4);
        }
        for (size_t n = 0; n < 4; n++) {
            uint32_t next = 0, begin, end;
            for (uint32_t rank = 0; rank < ranks[n]; rank++) {
                packer_rank(&p, rank, ranks[n], &begin, &end);
                assert_int_equal(begin, next); /* disjoint, nothing left out */
                next = end;
            }
            assert_int_equal(next, o.n_micro);
        }
        packed_close(&b);
        packer_close(&p);
    }
}

static void test_held_windows_are_all_of_the_held_part(void **state)
{
    (void)state;
    struct packer p;
    struct packed b;
    struct packer_options o = usual();
    uint64_t n = 0, most = 0, docs[N_DOCS] = { 0 };
    FINE(packer_open(&p, &f.shards, &o, err));
    FINE(packed_open(&b, 3, CTX, err));
    for (uint32_t first = 0; first < p.n_held; first += 3) {
        packer_held(&p, first, &b);
        for (uint32_t r = 0; r < 3; r++) {
            const int32_t *ids = b.ids + (size_t)r * CTX;
            check_row(&b, r, true);
            if (first + r >= p.n_held) {
                for (uint32_t i = 0; i < CTX; i++)
                    assert_int_equal(b.targets[(size_t)r * CTX + i], -1);
                continue;
            }
            uint32_t doc = doc_of_id[ids[1]];
            if (first + r < 10) assert_int_equal(docs[doc], 0); /* ten documents are held out */
            docs[doc]++;
            for (uint32_t i = 0; i < CTX; i++) n += ids[i] != 0;
        }
    }
    for (uint32_t d = 0; d < N_DOCS; d++) {
        if (f.shards.docs[d].held) most += sizes[d];
        assert_int_equal(docs[d] > 0, f.shards.docs[d].held);
    }
    assert_true(n <= most && n + 10 * 32 >= most);
    packed_close(&b);
    packer_close(&p);
}

static void test_permutation_is_one(void **state)
{
    (void)state;
    static const uint64_t sizes_of[] = { 1, 2, 3, 5, 64, 1000, 4097 };
    for (size_t k = 0; k < sizeof sizes_of / sizeof *sizes_of; k++) {
        uint64_t n = sizes_of[k], moved = 0;
        uint8_t *had = calloc(n, 1);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = packer_permute(1, 2, n, i);
            assert_true(to < n && !had[to]++);
            moved += to != i;
        }
        if (n > 5) assert_true(moved > n / 2);
        free(had);
    }
}

/* ---- tasks ---- */

enum { SPLIT = 300 };

/* Training documents have ids below SPLIT only, held-out ones from there on. */
static void open_split(struct train_fixture *x)
{
    struct shards_writer w;
    struct rng r = rng_stream(4, 4);
    int32_t ids[300];
    fixture_tokenizer(x, 400);
    FINE(shards_writer_open(&w, x->tokenizer, err));
    for (int d = 0; d < 12; d++) {
        for (int i = 0; i < 300; i++)
            ids[i] = d % 3 ? 8 + (int32_t)rng_below(&r, SPLIT - 8)
                           : SPLIT + (int32_t)rng_below(&r, 400 - SPLIT);
        FINE(shards_writer_add(&w, "x", (uint64_t)d, 1, ids, 300, d % 3 == 0, err));
    }
    const char *path = in_folder("split.zpt");
    FINE(shards_writer_save(&w, path, err));
    shards_writer_free(&w);
    FINE(shards_open(&x->shards, path, err));
}

static void test_tasks_have_their_share_and_nothing_held_out(void **state)
{
    (void)state;
    struct train_fixture x;
    struct tasks tasks;
    struct packer p;
    struct packed b;
    /* Kinds in words have tokens of any id. */
    struct tasks_options t = { .share = { [TASK_COPY] = 2, [TASK_INDUCTION] = 1,
                                          [TASK_BRACKETS] = 1 } };
    open_split(&x);
    FINE(tasks_open(&tasks, &x.shards, x.tokenizer, &t, err));
    struct packer_options o = { .n_ctx = 128, .n_rows = 16, .n_micro = 2, .seed = 1,
                                .tasks = &tasks, .task_share = 0.25, .ramp = 20 };
    FINE(packer_open(&p, &x.shards, &o, err));
    FINE(packed_open(&b, 8, 128, err));
    size_t unlearned = 0, total = 0;
    for (uint64_t batch = 0; batch < 50; batch++) {
        size_t n_tasks = 0;
        for (uint32_t m = 0; m < 2; m++) {
            FINE(packer_micro(&p, batch, m, &b, err));
            for (uint32_t r = 0; r < 8; r++) {
                n_tasks += b.is_task[r];
                for (size_t i = r * 128u; i < (r + 1) * 128u; i++) {
                    assert_in_range(b.ids[i], 0, SPLIT - 1);
                    assert_in_range(b.targets[i] + 1, 0, SPLIT);
                    unlearned += b.is_task[r] && b.targets[i] < 0;
                    total += b.is_task[r];
                    if (!b.is_task[r]) assert_true(b.targets[i] >= 0);
                    if (b.targets[i] > 0 && (i + 1) % 128 && b.start[i] == b.start[i + 1])
                        assert_int_equal(b.targets[i], b.ids[i + 1]);
                }
            }
        }
        assert_int_equal(n_tasks, 4);
    }
    print_message("nothing to learn: %.0f %% of task tokens\n",
                  100.0 * (double)unlearned / (double)total);
    assert_true(unlearned > 0 && unlearned < total * 9 / 10);
    packed_close(&b);
    packer_close(&p);
    tasks_close(&tasks);
    fixture_close(&x);
}

static void test_wrong_orders_are_refused(void **state)
{
    (void)state;
    uint64_t before = live_bytes();
    struct train_fixture x;
    struct tasks probes;
    struct packer p;
    open_split(&x);
    FINE(tasks_open(&probes, &x.shards, x.tokenizer, &(struct tasks_options){ .probes = true },
                    err));
    const struct packer_options wrong[] = {
        { .n_ctx = 31, .n_rows = 1 },
        { .n_ctx = 64, .n_rows = 0 },
        { .n_ctx = 64, .n_rows = 6, .n_micro = 4 },
        { .n_ctx = 64, .n_rows = 6, .task_share = 1.5 },
        { .n_ctx = 64, .n_rows = 6, .tasks = &probes },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        zp_err e = { 0 };
        assert_int_equal(packer_open(&p, &x.shards, &wrong[i], &e), ZP_USAGE);
    }
    tasks_close(&probes);
    fixture_close(&x);
    assert_int_equal(live_bytes(), before);
}

static void test_a_corpus_smaller_than_a_row_is_filled_up(void **state)
{
    (void)state;
    struct packer p;
    struct packed b;
    struct packer_options o = { .n_ctx = 65536, .n_rows = 2 };
    FINE(packer_open(&p, &f.shards, &o, err));
    FINE(packed_open(&b, 2, 65536, err));
    FINE(packer_micro(&p, 3, 0, &b, err));
    assert_int_equal(b.n_targets, 2 * (p.n_tokens + p.n_docs));
    packed_close(&b);
    packer_close(&p);
}

static void test_speed_is_told(void **state)
{
    (void)state;
    struct packer p;
    struct packed b;
    struct packer_options o = { .n_ctx = 256, .n_rows = 16, .seed = 1 };
    FINE(packer_open(&p, &f.shards, &o, err));
    FINE(packed_open(&b, 16, 256, err));
    double begin = os_now();
    for (uint64_t k = 0; k < 200; k++) FINE(packer_micro(&p, k, 0, &b, err));
    print_message("%.1f million tokens a second\n", 200 * 16 * 256 / 1e6 / (os_now() - begin));
    packed_close(&b);
    packer_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders_between_documents),
        cmocka_unit_test(test_each_token_once_an_epoch),
        cmocka_unit_test(test_batches_are_functions_of_their_number),
        cmocka_unit_test(test_ranks_share_one_batch),
        cmocka_unit_test(test_held_windows_are_all_of_the_held_part),
        cmocka_unit_test(test_permutation_is_one),
        cmocka_unit_test(test_tasks_have_their_share_and_nothing_held_out),
        cmocka_unit_test(test_wrong_orders_are_refused),
        cmocka_unit_test(test_a_corpus_smaller_than_a_row_is_filled_up),
        cmocka_unit_test(test_speed_is_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

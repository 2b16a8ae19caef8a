/* test_tagger.c: structure marks of a corpus's tokens against those of its documents' bytes, and
 * the tags of training's rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "in_folder.h"
#include "live_bytes.h"
#include "train_fixture.h"

#include "train/packer.h"
#include "train/tagger.h"

enum { N_DOCS = 12, CTX = 48, ROWS = 6 };

static struct train_fixture f;

static int start(void **state)
{
    static const size_t n_words[] = { 30, 30, 30 };
    make_folder(state);
    fixture_open(&f, 300, n_words, 3);
    shards_close(&f.shards);
    fixture_structured_corpus(in_folder("structured.zpt"), f.tokenizer, N_DOCS);
    FINE(shards_open(&f.shards, in_folder("structured.zpt"), err));
    return 0;
}

static int stop(void **state)
{
    fixture_close(&f);
    return remove_folder(state);
}

/* Tokens of this tokenizer are bytes of the text, one behind the other. */
static void test_tokens_have_the_marks_of_their_bytes(void **state)
{
    (void)state;
    struct tagger part[2];
    struct buffer text = buffer_with_max(MEM_META, 1 << 20), token = text;
    uint64_t count = 0, plain = 0, live = live_bytes();
    for (int held = 0; held < 2; held++)
        FINE(tagger_open(&part[held], &f.shards, f.tokenizer, held, err));
    for (uint32_t d = 0; d < N_DOCS; d++) {
        fixture_structured(&text, d);
        const struct shards_doc *doc = &f.shards.docs[d];
        uint16_t *marks = malloc(text.size * sizeof *marks);
        size_t at = 0;
        bool any = false;
        assert_non_null(marks);
        doctags_mark((const char *)text.data, text.size, marks);
        for (uint64_t i = 0; i < doc->n; i++) {
            uint16_t want = 0;
            buffer_clear(&token);
            FINE(tokenizer_decode_token(f.tokenizer, shards_id(&f.shards, doc->at + i), 0, &token,
                                        err));
            assert_memory_equal(token.data, text.data + at, token.size);
            for (size_t b = 0; b < token.size; b++) want |= marks[at++];
            assert_int_equal(tagger_tag(&part[doc->held], &f.shards, d, i), want);
            assert_int_equal(tagger_tag(&part[!doc->held], &f.shards, d, i), 0);
            any |= want % DOCTAGS_BEGINS != 0;
            count += want >> STRUCT_LIST & 1;
        }
        assert_int_equal(at, text.size);
        assert_int_equal(any, d % 4 != 3);
        if (!any) plain += doc->n;
        free(marks);
    }
    assert_true(count > 10 && part[0].count[STRUCT_LIST] + part[1].count[STRUCT_LIST] == count);
    assert_int_equal(part[0].n_plain + part[1].n_plain, plain);
    assert_int_equal(part[0].n_tokens + part[1].n_tokens, f.shards.head.n_tokens);
    buffer_free(&text);
    buffer_free(&token);
    for (int held = 0; held < 2; held++) tagger_close(&part[held]);
    assert_int_equal(live_bytes(), live);
}

/* The place in the corpus of `n` ids. */
static uint64_t find(const int32_t *ids, size_t n)
{
    for (uint64_t at = 0; at + n <= f.shards.head.n_tokens; at++) {
        size_t same = 0;
        while (same < n && shards_id(&f.shards, at + same) == ids[same]) same++;
        if (same == n) return at;
    }
    fail_msg("a row's tokens are nowhere in the corpus");
    return 0;
}

static void check_row(const struct packed *b, const struct tagger *t, uint32_t row, size_t *tagged)
{
    for (uint32_t i = 0, n; i < CTX; i += n) {
        const int32_t *ids = b->ids + (size_t)row * CTX + i;
        const uint8_t *tags = b->tags + (size_t)row * CTX + i;
        for (n = 1; i + n < CTX && b->position[(size_t)row * CTX + i + n] != 0;) n++;
        assert_int_equal(tags[0], 0); /* the separator */
        if (n < 8) continue;          /* too short to be found */
        uint64_t at = find(ids + 1, n - 1);
        for (uint32_t k = 1; k < n; k++) {
            assert_int_equal(tags[k], t->tags[at + k - 1] & 255);
            *tagged += tags[k] != 0;
        }
    }
}

static void test_rows_have_the_tags_of_their_documents(void **state)
{
    (void)state;
    struct tagger t;
    struct tasks tasks;
    struct packer p;
    struct packed b;
    size_t tagged = 0, n_tasks = 0;
    FINE(tagger_open(&t, &f.shards, f.tokenizer, false, err));
    FINE(tasks_open(&tasks, &f.shards, f.tokenizer, &(struct tasks_options){ 0 }, err));
    FINE(packer_open(&p, &f.shards, &(struct packer_options){ .n_ctx = CTX, .n_rows = ROWS,
                     .seed = 4, .tagger = &t, .tasks = &tasks, .task_share = 0.3 }, err));
    FINE(packed_open(&b, ROWS, CTX, err));
    FINE(packed_add_tags(&b, err));
    for (uint64_t batch = 0; batch < 20; batch++) {
        FINE(packer_micro(&p, batch, 0, &b, err));
        for (uint32_t row = 0; row < ROWS; row++) {
            n_tasks += b.is_task[row];
            if (!b.is_task[row]) check_row(&b, &t, row, &tagged);
            for (size_t i = 0; b.is_task[row] && i < CTX; i++)
                assert_int_equal(b.tags[row * CTX + i], 0); /* examples of no structure */
        }
    }
    assert_true(tagged > 100 && n_tasks > 10);
    packer_held(&p, 0, &b);
    for (size_t i = 0; i < ROWS * CTX; i++) assert_int_equal(b.tags[i], 0);
    packed_close(&b);
    packer_close(&p);
    tasks_close(&tasks);
    tagger_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_have_the_marks_of_their_bytes),
        cmocka_unit_test(test_rows_have_the_tags_of_their_documents),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

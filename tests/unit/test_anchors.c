/* test_anchors.c: marks of positions in prompts: what is one and what is text, where the positions
 * stand among the tokens, and what a model with position gates makes of them: the same bits alone,
 * in pieces and in company. */
#include "golden.h"

#include "base/compiler.h"
#include "in_folder.h"
#include "model/anchors.h"
#include "model/model.h"

#include "gate_model.h"

enum { N_IDS = 150, N_CTX = 200 };

/* ---- marks ----------------------------------------------------------------------------------- */

static zp_model *words; /* with a tokenizer */

struct taken {
    struct token_list ids;
    struct anchor_list anchors;
    struct buffer text;
    zp_status status;
    zp_err err;
};

static struct taken take(const struct text_segment *pieces, size_t n)
{
    struct taken t = { .text = buffer_with_max(MEM_META, 1 << 20) };
    t.status = anchors_encode(words->tokenizer, pieces, n, &t.ids, &t.anchors, &t.text, &t.err);
    return t;
}

static struct taken take_text(const char *text)
{
    const struct text_segment piece = { text, strlen(text), false };
    return take(&piece, 1);
}

static void forget(struct taken *t)
{
    token_list_free(&t->ids);
    anchor_list_free(&t->anchors);
    buffer_free(&t->text);
}

static size_t count_tokens(const char *text)
{
    struct token_list ids = { 0 };
    GOLDEN_OK(tokenizer_encode(words->tokenizer, text, strlen(text), 0, &ids, err));
    size_t n = ids.count;
    token_list_free(&ids);
    return n;
}

static void expect_text(const char *text, const char *rest, size_t n)
{
    struct taken t = take_text(text);
    assert_int_equal(t.status, ZP_OK);
    const char *found = t.text.size != 0 ? (const char *)t.text.data : "";
    if (strcmp(found, rest) != 0) fail_msg("%s: \"%s\" instead of \"%s\"", text, found, rest);
    if (t.anchors.n_marks != n) fail_msg("%s: %zu marks", text, (size_t)t.anchors.n_marks);
    forget(&t);
}

static void test_what_is_a_mark(void **state)
{
    (void)state;
    expect_text("one <|pos:7|>two", "one two", 1);
    expect_text("[POS:0]one[POS:4294967295]", "one", 2);
    expect_text("<|pos:000000000000000000000000000012|>x", "x", 1);
    expect_text("<|pos:1|><|pos:2|>[POS:3]", "", 3);
    expect_text("<TIME>now<TIME>", "now", 0);
    static const char *const texts[] = {
        "", "no mark", "<|pos:|>", "<|pos:-1|>", "<|pos:1 |>", "<|pos:1", "<|pos:1|", "[POS:1",
        "[POS:]", "[pos:1]", "[POS:1|>", "<|pos:1]", "<|POS:1|>", "<time>", "<TIME", "[SECTION:1]",
        "<|pos:1\t|>", "[POS:0x10]", "<|im_start|>",
    };
    for (size_t i = 0; i < ZP_COUNT(texts); i++) expect_text(texts[i], texts[i], 0);
}

static void test_where_they_stand(void **state)
{
    (void)state;
    struct taken t = take_text("one two<|pos:50|> three[POS:9]<|pos:8|> four five<|pos:7|>");
    assert_int_equal(t.status, ZP_OK);
    size_t a = count_tokens("one two"), b = count_tokens(" three"), c = count_tokens(" four five");
    assert_int_equal(t.ids.count, a + b + c);
    assert_int_equal(t.anchors.n_marks, 4);
    assert_int_equal(t.anchors.n, 3); /* the one that no token follows is replaced */
    const zp_anchor good[] = { { (uint32_t)a, 50 }, { (uint32_t)(a + b), 8 },
                               { (uint32_t)(a + b + c), 7 } };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(t.anchors.at[i].token, good[i].token);
        assert_int_equal(t.anchors.at[i].position, good[i].position);
    }
    assert_false(t.anchors.time);
    anchors_shift(&t.anchors);
    assert_int_equal(t.anchors.at[0].token, a + 1);
    forget(&t);
}

/* Without marks it is what it was: words cross the borders of pieces, and of <TIME>. */
static void test_text_without_positions_stays_one(void **state)
{
    const struct text_segment pieces[] = { { "<TI", 3, true }, { "ME> wo", 6, false },
                                           { "<TIME>", 6, false }, { "rds", 3, false } };
    const struct text_segment plain[] = { { "<TI", 3, true }, { "ME> wo", 6, false },
                                          { "rds", 3, false } };
    struct token_list ids = { 0 };
    (void)state;
    struct taken t = take(pieces, ZP_COUNT(pieces));
    assert_int_equal(t.status, ZP_OK);
    assert_true(t.anchors.time); /* that within one piece; not the one across two */
    GOLDEN_OK(tokenizer_encode_segments(words->tokenizer, plain, ZP_COUNT(plain), 0, &ids, err));
    assert_int_equal(t.ids.count, ids.count);
    assert_memory_equal(t.ids.ids, ids.ids, ids.count * sizeof *ids.ids);
    token_list_free(&ids);
    forget(&t);
}

static void test_numbers_are_bounded(void **state)
{
    static const char *const far[] = { "<|pos:4294967296|>", "x[POS:99999999999999999999999999]",
                                       "<|pos:18446744073709551616|>" };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(far); i++) {
        struct taken t = take_text(far[i]);
        assert_int_equal(t.status, ZP_BAD_INPUT);
        assert_non_null(strstr(t.err.message, "beyond position 4294967295"));
        assert_int_equal(t.ids.count, 0);
        forget(&t);
    }
}

/* ---- a model with gates ---------------------------------------------------------------------- */

static zp_model *gated;
static int32_t ids[N_IDS];

/* Logits (n, n_vocab) of tokens [0, n) in runs of `step`; beside: another sequence in each run. */
static float *logits_of(const zp_seq_options *o, size_t n, size_t step, bool beside)
{
    size_t n_vocab = gated->h.n_vocab;
    zp_engine *e = golden_engine(gated, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 2,
                                                             .n_threads = 2,
                                                             .prefix_cache = true });
    zp_seq *s, *other;
    float *out = malloc(n * n_vocab * sizeof *out);
    assert_non_null(out);
    GOLDEN_OK(zp_seq_open(&s, e, o, err));
    GOLDEN_OK(zp_seq_open(&other, e, NULL, err));
    for (size_t at = 0; at < n; at += step) {
        size_t now = n - at < step ? n - at : step;
        const zp_item items[] = { { s, ids + at, now, ZP_WANT_ALL },
                                  { other, ids + at, now, ZP_WANT_NONE } };
        GOLDEN_OK(zp_engine_run(e, items, beside ? 2 : 1, out + at * n_vocab, now, NULL, err));
    }
    zp_seq_close(other);
    zp_seq_close(s);
    zp_engine_close(e);
    return out;
}

static bool same(const float *a, const float *b, size_t from, size_t to)
{
    size_t n_vocab = gated->h.n_vocab;
    return memcmp(a + from * n_vocab, b + from * n_vocab,
                  (to - from) * n_vocab * sizeof *a) == 0;
}

/* This model has no angles, so its gates are all that an offset moves: an anchor at the first
 * token is that offset, and later ones count on from themselves. */
static void test_anchors_set_what_gates_see(void **state)
{
    const zp_anchor first[] = { { 0, 5000 } }, own[] = { { 0, 0 }, { 70, 70 } },
                    later[] = { { 70, 5070 } }, back[] = { { 40, 3 }, { 70, 5070 } };
    (void)state;
    float *none = logits_of(NULL, N_IDS, N_IDS, false),
          *offset = logits_of(&(zp_seq_options){ .position_offset = 5000 }, N_IDS, N_IDS, false),
          *a = logits_of(&(zp_seq_options){ .anchors = first, .n_anchors = 1 }, N_IDS, N_IDS,
                         false),
          *b = logits_of(&(zp_seq_options){ .anchors = own, .n_anchors = 2 }, N_IDS, N_IDS, false),
          *c = logits_of(&(zp_seq_options){ .anchors = later, .n_anchors = 1 }, N_IDS, N_IDS,
                         false),
          *d = logits_of(&(zp_seq_options){ .anchors = back, .n_anchors = 2 }, N_IDS, N_IDS,
                         false);
    assert_false(same(none, offset, 1, N_IDS)); /* the gates do something */
    assert_true(same(offset, a, 0, N_IDS));
    assert_true(same(none, b, 0, N_IDS));
    assert_true(same(none, c, 0, 70));
    assert_false(same(none, c, 70, N_IDS));
    assert_true(same(none, d, 0, 40));
    assert_false(same(none, d, 40, 70));
    assert_false(same(c, d, 70, N_IDS)); /* what came before is another history */
    free(none), free(offset), free(a), free(b), free(c), free(d);
}

static void test_the_same_bits_in_pieces_and_in_company(void **state)
{
    const zp_anchor anchors[] = { { 3, 900 }, { 64, 1 }, { 65, 4294967295 }, { 149, 0 } };
    const zp_seq_options o = { .anchors = anchors, .n_anchors = 4 };
    (void)state;
    float *alone = logits_of(&o, N_IDS, N_IDS, false);
    for (size_t step = 1; step < N_IDS; step += 31) {
        float *pieces = logits_of(&o, N_IDS, step, step % 2 == 0);
        assert_true(same(alone, pieces, 0, N_IDS));
        free(pieces);
    }
    free(alone);
}

/* Nothing of it reaches a sequence without them, through the cache or otherwise. */
static void test_no_prefix_is_shared(void **state)
{
    const zp_anchor anchors[] = { { 0, 900 } };
    const zp_seq_options o = { .anchors = anchors, .n_anchors = 1 };
    size_t reused;
    zp_seq *s, *fork;
    (void)state;
    zp_engine *e = golden_engine(gated, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 3,
                                                             .n_threads = 1,
                                                             .prefix_cache = true });
    /* then a plain one, whose tiles the next may not have */
    for (int with = 1; with >= 0; with--) {
        GOLDEN_OK(zp_seq_open(&s, e, with ? &o : NULL, err));
        GOLDEN_OK(zp_seq_reuse(s, ids, N_IDS, &reused, err));
        assert_int_equal(reused, 0);
        const zp_item item = { s, ids, N_IDS, ZP_WANT_NONE };
        GOLDEN_OK(zp_engine_run(e, &item, 1, NULL, 0, NULL, err));
        zp_seq_close(s);
    }
    GOLDEN_OK(zp_seq_open(&s, e, &o, err));
    GOLDEN_OK(zp_seq_reuse(s, ids, N_IDS, &reused, err));
    assert_int_equal(reused, 0);
    zp_err why = { 0 };
    assert_int_equal(zp_seq_save(s, in_folder("seq"), &why), ZP_UNSUPPORTED);
    assert_non_null(strstr(why.message, "anchors"));
    GOLDEN_OK(zp_seq_fork(&fork, s, 0, err)); /* has them, too */
    why = (zp_err){ 0 };
    assert_int_equal(zp_seq_save(fork, in_folder("seq"), &why), ZP_UNSUPPORTED);
    zp_seq_close(fork);
    zp_seq_close(s);
    zp_engine_close(e);
}

static void test_what_cannot_be_is_refused(void **state)
{
    const zp_anchor far[] = { { 0, ZP_ANCHOR_MOST + 1 } }, still[] = { { 5, 1 }, { 5, 2 } };
    zp_err why = { 0 };
    zp_seq *s;
    (void)state;
    zp_engine *e = golden_engine(gated, (zp_engine_options){ .n_ctx = N_CTX, .n_threads = 1 });
    assert_true(zp_model_has_position_gate(gated));
    assert_int_equal(zp_seq_open(&s, e, &(zp_seq_options){ .anchors = far, .n_anchors = 1 }, &why),
                     ZP_BAD_INPUT);
    assert_int_equal(zp_seq_open(&s, e, &(zp_seq_options){ .anchors = still, .n_anchors = 2 },
                                 NULL), ZP_BAD_INPUT);
    zp_engine_close(e);
    zp_model *plain = golden_small("llama");
    assert_false(zp_model_has_position_gate(plain));
    e = golden_engine(plain, (zp_engine_options){ .n_ctx = N_CTX, .n_threads = 1 });
    why = (zp_err){ 0 };
    assert_int_equal(zp_seq_open(&s, e, &(zp_seq_options){ .anchors = still, .n_anchors = 1 },
                                 &why), ZP_UNSUPPORTED);
    assert_non_null(strstr(why.message, "no position gate"));
    zp_engine_close(e);
    zp_model_close(plain);
}

static int begin(void **state)
{
    if (make_folder(state) != 0) return -1;
    GOLDEN_OK(zp_model_open(&words, ZP_TEST_DATA "/arch/llama", NULL, err));
    gate_model_write(ZP_TEST_DATA "/arch/gguf/gguf-granite-none.gguf", in_folder("gate.gguf"));
    GOLDEN_OK(zp_model_open(&gated, in_folder("gate.gguf"), NULL, err));
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)(i * 37 % gated->h.n_vocab);
    return 0;
}

static int end(void **state)
{
    zp_model_close(words);
    zp_model_close(gated);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_a_mark),
        cmocka_unit_test(test_where_they_stand),
        cmocka_unit_test(test_text_without_positions_stays_one),
        cmocka_unit_test(test_numbers_are_bounded),
        cmocka_unit_test(test_anchors_set_what_gates_see),
        cmocka_unit_test(test_the_same_bits_in_pieces_and_in_company),
        cmocka_unit_test(test_no_prefix_is_shared),
        cmocka_unit_test(test_what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

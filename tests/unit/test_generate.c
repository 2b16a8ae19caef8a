/* test_generate.c: zp_generate on a small model: what ends it, what is shown, what is refused. */
#include "golden.h"

#include "base/bytes.h"
#include "model/generate.h"

enum { N_CTX = 120 };

struct fixture {
    zp_model *m;
    zp_engine *e;
    zp_seq *s;
    struct buffer shown; /* all pieces joined */
    size_t pieces, most; /* most: false is returned from here on; 0 = never */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    GOLDEN_OK(zp_model_open(&f->m, ZP_TEST_DATA "/arch/llama", NULL, err));
    f->e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 2, .exact = true });
    GOLDEN_OK(zp_seq_open(&f->s, f->e, NULL, err));
    f->shown = buffer_with_max(MEM_META, 1 << 20);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    buffer_free(&f->shown);
    zp_seq_close(f->s);
    zp_engine_close(f->e);
    zp_model_close(f->m);
    free(f);
    return 0;
}

static bool on_text(void *arg, const char *text, size_t size)
{
    struct fixture *f = arg;
    assert_true(utf8_is_valid(text, size, NULL)); /* whole characters only */
    assert_int_equal(buffer_append(&f->shown, text, size, NULL), ZP_OK);
    return ++f->pieces != f->most;
}

static const int32_t prompt[] = { 40, 80, 120, 60, 90 };
enum { N_PROMPT = 5 };

static void free_result(zp_generated *out)
{
    zp_free(out->ids);
    zp_free(out->text);
}

/* A fresh sequence, the prompt above. */
static void generate(struct fixture *f, const zp_generate_options *given, zp_generated *out)
{
    zp_generate_options o = *given;
    o.on_text = on_text;
    o.arg = f;
    buffer_clear(&f->shown);
    f->pieces = 0;
    GOLDEN_OK(zp_seq_truncate(f->s, 0, err));
    GOLDEN_OK(zp_generate(f->e, f->s, prompt, N_PROMPT, &o, out, err));
    assert_int_equal(out->n_prompt, N_PROMPT);
    assert_int_equal(out->n_reused, 0);
    assert_string_equal(out->text, f->shown.data ? (const char *)f->shown.data : "");
}

static void test_greedy_text_is_the_text_of_its_ids(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    char *text = NULL;
    size_t size;
    generate(f, &(zp_generate_options){ .n_predict = 40, .ignore_end = true }, &out);
    assert_string_equal(out.reason, "length");
    assert_int_equal(out.n_ids, 40);
    assert_true(out.prefill_seconds > 0 && out.decode_seconds > 0);
    GOLDEN_OK(zp_detokenize(f->m, out.ids, out.n_ids, false, &text, &size, err));
    if (utf8_is_valid(text, size, NULL)) assert_string_equal(out.text, text);
    assert_int_equal(zp_seq_length(f->s), N_PROMPT + 39); /* all but the last are computed */
    zp_free(text);
    free_result(&out);
}

static void test_context_ends_generation(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    generate(f, &(zp_generate_options){ .ignore_end = true }, &out);
    assert_string_equal(out.reason, "length");
    assert_int_equal(zp_seq_length(f->s), N_CTX);
    assert_int_equal(out.n_ids, N_CTX - N_PROMPT + 1);
    free_result(&out);
}

/* Every stop string cut from the plain text, at every place, ends it there and is never shown. */
static void test_stop_strings_are_held_back(void **state)
{
    struct fixture *f = *state;
    zp_generated plain, out;
    generate(f, &(zp_generate_options){ .n_predict = 30, .ignore_end = true }, &plain);
    size_t size = strlen(plain.text), tried = 0;
    assert_true(size >= 20);
    for (size_t at = 0; at + 4 <= size; at += 3) {
        char stop[8] = { 0 };
        memcpy(stop, plain.text + at, 4);
        if (!utf8_is_valid(stop, 4, NULL)) continue;
        const char *const stops[] = { "never there", stop };
        generate(f,
                 &(zp_generate_options){
                     .n_predict = 30, .ignore_end = true, .stop = stops, .n_stop = 2 },
                 &out);
        size_t first = (size_t)(strstr(plain.text, stop) - plain.text);
        assert_string_equal(out.reason, "stop");
        assert_int_equal(strlen(out.text), first);
        assert_memory_equal(out.text, plain.text, first);
        free_result(&out);
        tried++;
    }
    assert_true(tried >= 3);
    free_result(&plain);
}

static void test_text_held_for_a_stop_that_never_comes_is_shown(void **state)
{
    struct fixture *f = *state;
    zp_generated plain, out;
    generate(f, &(zp_generate_options){ .n_predict = 12, .ignore_end = true }, &plain);
    char stop[64];
    size_t size = strlen(plain.text), at = size;
    while (at > 0 && (plain.text[--at] & 0xc0) == 0x80) {
    }
    snprintf(stop, sizeof stop, "%s~", plain.text + at); /* begins with the last character */
    const char *const stops[] = { stop };
    generate(
        f,
        &(zp_generate_options){ .n_predict = 12, .ignore_end = true, .stop = stops, .n_stop = 1 },
        &out);
    assert_string_equal(out.reason, "length");
    assert_string_equal(out.text, plain.text);
    free_result(&plain);
    free_result(&out);
}

static void test_end_token_ends_unless_ignored(void **state)
{
    struct fixture *f = *state;
    zp_bias bias = { 0, 1e6f }; /* <|endoftext|> */
    zp_generate_options o = { .n_predict = 5, .sampler = { .bias = &bias, .n_bias = 1 } };
    zp_generated out;
    assert_true(zp_token_ends(f->m, 0));
    generate(f, &o, &out);
    assert_string_equal(out.reason, "end");
    assert_int_equal(out.n_ids, 0);
    assert_string_equal(out.text, "");
    free_result(&out);
    o.ignore_end = true;
    generate(f, &o, &out);
    assert_string_equal(out.reason, "length");
    assert_int_equal(out.n_ids, 5);
    free_result(&out);
}

static void test_caller_can_stop_after_any_token(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    f->most = 7;
    generate(f, &(zp_generate_options){ .n_predict = 30, .ignore_end = true }, &out);
    assert_string_equal(out.reason, "stopped");
    assert_int_equal(out.n_ids, 7);
    free_result(&out);
}

/* Draw i belongs to (seed, position): two calls draw what one does, penalties included. */
static void test_two_calls_draw_what_one_draws(void **state)
{
    struct fixture *f = *state;
    zp_generate_options o = {
        .n_predict = 24,
        .ignore_end = true,
        .sampler = { .temperature = 1.5f, .seed = 9, .repeat_penalty = 1.3f, .penalty_last_n = 20 }
    };
    zp_generated one, a, b;
    generate(f, &o, &one);
    o.n_predict = 10;
    generate(f, &o, &a);
    assert_memory_equal(a.ids, one.ids, 10 * sizeof *a.ids);
    int32_t history[N_PROMPT + 9];
    memcpy(history, prompt, sizeof prompt);
    memcpy(history + N_PROMPT, a.ids, 9 * sizeof *a.ids);
    o.n_predict = 14, o.history = history, o.n_history = N_PROMPT + 9;
    GOLDEN_OK(zp_generate(f->e, f->s, a.ids + 9, 1, &o, &b, err));
    assert_int_equal(b.n_reused, N_PROMPT + 9);
    assert_int_equal(b.n_ids, 14);
    assert_memory_equal(b.ids, one.ids + 10, 14 * sizeof *b.ids);
    free_result(&one);
    free_result(&a);
    free_result(&b);
}

static bool stop_at_once(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    *(int *)arg += 1;
    return false;
}

static void test_prompt_can_be_interrupted(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    zp_err why = { 0 };
    int calls = 0;
    zp_generate_options o = { .n_predict = 5, .progress = { stop_at_once, &calls } };
    GOLDEN_OK(zp_seq_truncate(f->s, 0, err));
    zp_status status = zp_generate(f->e, f->s, prompt, N_PROMPT, &o, &out, &why);
    assert_int_equal(status, ZP_INTERRUPTED);
    assert_int_equal(calls, 1);
    assert_true(out.ids == NULL && out.text == NULL && out.reason == NULL);
    assert_int_equal(zp_seq_length(f->s), 0);
}

static void expect_refusal(struct fixture *f, size_t n, const char *part)
{
    static int32_t ids[2 * N_CTX];
    zp_generated out;
    zp_err err = { 0 };
    uint32_t before = zp_seq_length(f->s);
    assert_int_equal(zp_generate(f->e, f->s, ids, n, NULL, &out, &err), ZP_BAD_INPUT);
    if (!strstr(err.message, part)) fail_msg("'%s' is not in: %s", part, err.message);
    assert_null(out.ids);
    assert_int_equal(zp_seq_length(f->s), before);
}

static void test_prompts_that_cannot_be_answered_are_refused(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    expect_refusal(f, 0, "empty");
    expect_refusal(f, N_CTX, "120 tokens");
    expect_refusal(f, N_CTX + 30, "150 tokens");
    expect_refusal(f, N_CTX + 30, "context of 120");
    generate(f, &(zp_generate_options){ .n_predict = 16, .ignore_end = true }, &out);
    free_result(&out);
    expect_refusal(f, N_CTX - 20, "120 tokens (with those the sequence holds)");
}

static void test_sequence_of_another_engine_is_refused(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    zp_err err = { 0 };
    zp_engine *other = golden_engine(f->m, (zp_engine_options){ .n_ctx = 20 });
    assert_int_equal(zp_generate(other, f->s, prompt, N_PROMPT, NULL, &out, &err), ZP_USAGE);
    zp_engine_close(other);
}

/* ---- parts of a prompt ----------------------------------------------------------------------- */

/* One generation by its steps, a prompt of n tokens in parts of at most `chunk`. rows: those of the
 * prompt, (n, n_vocab), or NULL. */
static zp_generated generate_in_parts(zp_engine *e, const int32_t *ids, size_t n, size_t chunk,
                                      const zp_generate_options *o, float *rows)
{
    struct gen g = { .o = o, .prompt = ids, .n_prompt = n, .chunk = chunk,
                     .all_rows = rows != NULL }, *all = &g;
    size_t n_vocab = e->model->h.n_vocab, failed, n_runs = 0,
           n_parts = chunk ? (n - 1) / chunk + 1 : 1;
    float *logits = malloc(n * n_vocab * sizeof *logits);
    zp_generated out;
    zp_item item;
    assert_non_null(logits);
    GOLDEN_OK(zp_seq_open(&g.seq, e, NULL, err));
    GOLDEN_OK(gen_open(&g, err));
    while (!g.reason) {
        size_t n_rows = gen_rows(&g), done = g.n_done;
        GOLDEN_OK(gen_step(e, &all, 1, &item, logits, NULL, &failed, err));
        if (rows && done < n)
            memcpy(rows + done * n_vocab, logits, n_rows * n_vocab * sizeof *rows);
        n_runs++;
        assert_int_equal(g.n_done, n_runs < n_parts ? n_runs * chunk : n);
        assert_int_equal(zp_seq_length(g.seq) >= n, n_runs >= n_parts);
    }
    gen_result(&g, &out);
    gen_close(&g);
    zp_seq_close(g.seq);
    free(logits);
    return out;
}

/* Neither what is drawn nor the logits of the prompt depend on its parts. */
static void test_parts_of_a_prompt_change_nothing(void **state)
{
    enum { N = 70 };
    struct fixture *f = *state;
    static const size_t chunks[] = { 1, 7, 64, 69, 70, 1000 };
    const zp_generate_options o = { .n_predict = 20, .sampler = { .temperature = 1, .seed = 3 } };
    size_t n_vocab = f->m->h.n_vocab;
    float *whole = malloc(N * n_vocab * sizeof *whole),
          *parts = malloc(N * n_vocab * sizeof *parts);
    int32_t ids[N];
    assert_true(whole && parts);
    for (int i = 0; i < N; i++) ids[i] = 30 + i * 37 % 90;
    for (int kv = ZP_KV_BF16; kv <= ZP_KV_Q8; kv++) {
        zp_engine_options eo = { .n_ctx = N_CTX, .kv_type = (zp_kv_type)kv };
        zp_engine *e = golden_engine(f->m, eo);
        zp_generated plain = generate_in_parts(e, ids, N, 0, &o, whole);
        assert_int_equal(plain.n_ids, 20);
        for (size_t i = 0; i < ZP_COUNT(chunks); i++) {
            zp_generated out = generate_in_parts(e, ids, N, chunks[i], &o, i % 2 ? parts : NULL);
            assert_int_equal(out.n_ids, plain.n_ids);
            assert_memory_equal(out.ids, plain.ids, plain.n_ids * sizeof *plain.ids);
            assert_string_equal(out.text, plain.text);
            if (i % 2) assert_memory_equal(parts, whole, N * n_vocab * sizeof *parts);
            free_result(&out);
        }
        free_result(&plain);
        zp_engine_close(e);
    }
    free(whole), free(parts);
}

/* ---- drafts ---------------------------------------------------------------------------------- */

struct drafted {
    zp_generated out;
    uint32_t length;
    float *next; /* logits of one more token behind the result */
};

/* Another sequence begins with what the prefix cache kept of s, and goes on with the same bits: no
 * guess that was wrong is in there. */
static void go_on_from_cache(zp_engine *e, const zp_seq *s, const float *next)
{
    zp_seq_info info;
    zp_seq *t = NULL;
    size_t reused, n_vocab = e->model->h.n_vocab;
    float *own = malloc(n_vocab * sizeof *own);
    assert_non_null(own);
    zp_seq_describe(s, &info);
    GOLDEN_OK(zp_seq_open(&t, e, NULL, err));
    GOLDEN_OK(zp_seq_reuse(t, info.ids, info.length, &reused, err));
    assert_int_equal(reused, (info.length - 1) / 64 * 64);
    zp_item item = { t, info.ids + reused, info.length - reused, ZP_WANT_LAST };
    GOLDEN_OK(zp_engine_run(e, &item, 1, own, 1, NULL, err));
    assert_memory_equal(own, next, n_vocab * sizeof *own);
    zp_seq_close(t);
    free(own);
}

static struct drafted draft_with(struct fixture *f, zp_kv_type kv, zp_generate_options o,
                                 uint32_t n_draft)
{
    struct drafted d;
    zp_seq *s = NULL;
    const int32_t more = 7;
    zp_engine_options eo = { .n_ctx = N_CTX, .n_seq = 2, .kv_type = kv, .prefix_cache = true };
    zp_engine *e = golden_engine(f->m, eo);
    assert_non_null(d.next = malloc(f->m->h.n_vocab * sizeof *d.next));
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    o.n_draft = n_draft;
    GOLDEN_OK(zp_generate(e, s, prompt, N_PROMPT, &o, &d.out, err));
    d.length = zp_seq_length(s);
    if (d.length < N_CTX) {
        GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, &more, 1, ZP_WANT_LAST }, 1, d.next, 1, NULL,
                                err));
        go_on_from_cache(e, s, d.next);
    }
    zp_seq_close(s);
    zp_engine_close(e);
    return d;
}

/* Guessed tokens change nothing but time: ids, text, reason, the sequence's length and the bits of
 * what follows. */
static void test_drafts_change_nothing(void **state)
{
    struct fixture *f = *state;
    static const char *const stops[] = { "e", "th" };
    static const zp_bias loop[] = { { 50, 4 }, { 51, 4 }, { 52, 4 } }; /* repeats itself */
    const zp_generate_options options[] = {
        { .ignore_end = true },
        { .n_predict = 60 },
        { .n_predict = 70, .ignore_end = true, .sampler = { .bias = loop, .n_bias = 3 } },
        { .n_predict = 90,
          .ignore_end = true,
          .sampler = { .temperature = 0.7f, .seed = 3, .bias = loop, .n_bias = 3 } },
        { .n_predict = 80,
          .ignore_end = true,
          .sampler = { .repeat_penalty = 1.3f, .bias = loop, .n_bias = 3 } },
        { .ignore_end = true, .stop = stops, .n_stop = 2 },
    };
    static const uint32_t drafts[] = { 1, 3, 8, 32 };
    size_t accepted = 0;
    for (size_t i = 0; i < ZP_COUNT(options) * 2; i++) {
        zp_kv_type kv = i % 2 ? ZP_KV_Q8 : ZP_KV_BF16;
        struct drafted plain = draft_with(f, kv, options[i / 2], 0);
        assert_int_equal(plain.out.n_drafted, 0);
        for (size_t k = 0; k < ZP_COUNT(drafts); k++) {
            struct drafted d = draft_with(f, kv, options[i / 2], drafts[k]);
            assert_int_equal(d.out.n_ids, plain.out.n_ids);
            assert_memory_equal(d.out.ids, plain.out.ids, d.out.n_ids * sizeof *d.out.ids);
            assert_string_equal(d.out.text, plain.out.text);
            assert_string_equal(d.out.reason, plain.out.reason);
            assert_int_equal(d.length, plain.length);
            if (d.length < N_CTX)
                assert_memory_equal(d.next, plain.next, f->m->h.n_vocab * sizeof *d.next);
            assert_true(d.out.n_accepted <= d.out.n_drafted);
            accepted += d.out.n_accepted;
            free_result(&d.out);
            free(d.next);
        }
        free_result(&plain.out);
        free(plain.next);
    }
    print_message("%zu guesses accepted\n", accepted);
    assert_true(accepted > 500); /* else nothing was tried */
}

static void test_long_drafts_are_refused(void **state)
{
    struct fixture *f = *state;
    zp_generated out;
    zp_err err = { 0 };
    zp_generate_options o = { .n_draft = 33 };
    assert_int_equal(zp_generate(f->e, f->s, prompt, N_PROMPT, &o, &out, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "33"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_greedy_text_is_the_text_of_its_ids),
        CASE(test_context_ends_generation),
        CASE(test_stop_strings_are_held_back),
        CASE(test_text_held_for_a_stop_that_never_comes_is_shown),
        CASE(test_end_token_ends_unless_ignored),
        CASE(test_caller_can_stop_after_any_token),
        CASE(test_two_calls_draw_what_one_draws),
        CASE(test_prompt_can_be_interrupted),
        CASE(test_prompts_that_cannot_be_answered_are_refused),
        CASE(test_sequence_of_another_engine_is_refused),
        CASE(test_parts_of_a_prompt_change_nothing),
        CASE(test_drafts_change_nothing),
        CASE(test_long_drafts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_textstream.c: whole characters only, stop strings across token borders, flush. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/rng.h"
#include "model/textstream.h"
#include "tokenizer_fixture.h"

/* Ids are bytes: token i decodes to byte i. 256: control; 257: a word of several bytes. */
enum { CONTROL = 256, WORD, N_TOKENS };
static struct test_token tokens[N_TOKENS];
static char texts[256][8];

static struct tokenizer *byte_tokenizer(int add_space_prefix)
{
    for (int i = 0; i < 256; i++) {
        snprintf(texts[i], sizeof texts[i], "<0x%02X>", i);
        tokens[i] = (struct test_token){ texts[i], TOKEN_BYTE, 0 };
    }
    tokens[CONTROL] = (struct test_token){ "<end>", TOKEN_CONTROL, 0 };
    tokens[WORD] = (struct test_token){ "\xE2\x96\x81word", TOKEN_NORMAL, 0 };
    struct test_vocab v = { .model = "llama",
                            .tokens = tokens,
                            .n_tokens = N_TOKENS,
                            .bos = -1,
                            .eos = -1,
                            .unk = -1,
                            .add_bos = 0,
                            .add_space_prefix = add_space_prefix,
                            .merge_spaces = -1 };
    struct tokenizer *t;
    zp_err err = { 0 };
    if (open_vocab(&t, &v, NULL, &err) != ZP_OK) fail_msg("%s", err.message);
    return t;
}

struct run {
    struct tokenizer *t;
    struct textstream s;
    struct buffer out;
    bool stopped;
};

static void begin(struct run *r, int add_space_prefix, const char *const *stops, size_t n)
{
    zp_err err = { 0 };
    r->t = byte_tokenizer(add_space_prefix);
    r->out = buffer_with_max(MEM_SCRATCH, 1 << 20);
    r->stopped = false;
    if (textstream_init(&r->s, r->t, 0, stops, n, &err) != ZP_OK) fail_msg("%s", err.message);
}

static void push(struct run *r, int32_t id)
{
    zp_err err = { 0 };
    if (textstream_push(&r->s, id, &r->out, &r->stopped, &err) != ZP_OK)
        fail_msg("%s", err.message);
}

static void push_text(struct run *r, const char *text)
{
    while (*text != '\0') push(r, (uint8_t)*text++);
}

static void flush(struct run *r)
{
    zp_err err = { 0 };
    if (textstream_flush(&r->s, &r->out, &err) != ZP_OK) fail_msg("%s", err.message);
}

static void expect(const struct run *r, const char *text)
{
    assert_string_equal(r->out.data == NULL ? "" : (const char *)r->out.data, text);
}

static void end(struct run *r)
{
    textstream_free(&r->s);
    buffer_free(&r->out);
    tokenizer_close(r->t);
}

static void test_unfinished_characters_wait(void **state)
{
    (void)state;
    struct run r;
    begin(&r, 0, NULL, 0);
    push_text(&r, "a\xF0\x9F\x99");
    expect(&r, "a");
    push(&r, 0x82);
    expect(&r, "a\xF0\x9F\x99\x82");
    push(&r, CONTROL);
    expect(&r, "a\xF0\x9F\x99\x82");
    flush(&r);
    expect(&r, "a\xF0\x9F\x99\x82");
    end(&r);
}

static void test_bytes_that_are_no_character_become_replacements(void **state)
{
    (void)state;
    struct run r;
    begin(&r, 0, NULL, 0);
    push_text(&r, "\xC3"
                  "x\xFF\x80\xE0\x80");
    push_text(&r, "\xED\xA0\x80"); /* a surrogate: no part of it is a character */
    expect(&r, "\xEF\xBF\xBDx\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF"
               "\xBD\xEF\xBF\xBD");
    buffer_clear(&r.out);
    push_text(&r, "\xF0\x9F\x99");
    flush(&r);
    expect(&r, "\xEF\xBF\xBD");
    end(&r);
}

static void test_stop_strings_are_never_shown(void **state)
{
    (void)state;
    struct run r;
    const char *const stops[] = { "END", "\n\n" };
    begin(&r, 0, stops, 2);
    push_text(&r, "one E");
    expect(&r, "one ");
    push_text(&r, "N");
    expect(&r, "one ");
    push_text(&r, "e\nEN");
    expect(&r, "one ENe\n");
    assert_false(r.stopped);
    push_text(&r, "D");
    assert_true(r.stopped);
    assert_int_equal(r.s.stop_index, 0);
    push_text(&r, "more");
    flush(&r);
    expect(&r, "one ENe\n");
    end(&r);
}

static void test_flush_shows_a_beginning_that_stayed_one(void **state)
{
    (void)state;
    struct run r;
    const char *const stops[] = { "abcX", "bc" };
    begin(&r, 0, stops, 2);
    push_text(&r, "zab");
    expect(&r, "z");
    flush(&r);
    expect(&r, "zab");
    end(&r);
    begin(&r, 0, stops, 2);
    push_text(&r, "zabc"); /* could still be abcX, so bc must wait */
    expect(&r, "z");
    flush(&r);
    expect(&r, "za");
    assert_true(r.s.stopped);
    end(&r);
}

static void test_leading_space_goes_with_the_first_visible_token(void **state)
{
    (void)state;
    struct run r;
    begin(&r, 1, NULL, 0);
    push(&r, CONTROL);
    push(&r, WORD);
    push(&r, WORD);
    expect(&r, "word word");
    end(&r);
    begin(&r, 0, NULL, 0);
    push(&r, WORD);
    expect(&r, " word");
    end(&r);
}

static void test_bad_stop_strings_are_refused(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer(0);
    struct textstream s;
    static char endless[TEXTSTREAM_MAX_STOP_SIZE + 2];
    memset(endless, 'x', sizeof endless - 1);
    const char *const bad[] = { "", "a\xFF", endless };
    for (size_t i = 0; i < 3; i++) {
        zp_err err = { 0 };
        assert_int_equal(textstream_init(&s, t, 0, &bad[i], 1, &err), ZP_BAD_INPUT);
        textstream_free(&s);
    }
    zp_err err = { 0 };
    const char *many[TEXTSTREAM_MAX_STOPS + 1];
    for (size_t i = 0; i < ZP_COUNT(many); i++) many[i] = "x";
    assert_int_equal(textstream_init(&s, t, 0, many, ZP_COUNT(many), &err), ZP_USAGE);
    textstream_free(&s);
    tokenizer_close(t);
}

/* S2 by brute force: random texts over few letters, random stop strings. */
static void test_output_is_the_text_before_the_first_stop(void **state)
{
    (void)state;
    const uint64_t seed = 77;
    struct rng rng = rng_stream(seed, 2);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 400; round++) {
        char text[41] = { 0 }, stop_texts[3][5] = { { 0 } };
        const char *stops[3];
        size_t n_stops = rng_below(&rng, 4), size = rng_below(&rng, 40), want = size;
        for (size_t i = 0; i < size; i++) text[i] = (char)('a' + rng_below(&rng, 3));
        for (size_t i = 0; i < n_stops; i++) {
            size_t n = 1 + rng_below(&rng, 4);
            for (size_t k = 0; k < n; k++) stop_texts[i][k] = (char)('a' + rng_below(&rng, 3));
            stops[i] = stop_texts[i];
            const char *hit = strstr(text, stops[i]);
            if (hit != NULL && (size_t)(hit - text) < want) want = (size_t)(hit - text);
        }
        struct run r;
        begin(&r, 0, stops, n_stops);
        push_text(&r, text);
        flush(&r);
        text[want] = '\0';
        expect(&r, text);
        assert_int_equal(r.s.stopped, want < size);
        end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unfinished_characters_wait),
        cmocka_unit_test(test_bytes_that_are_no_character_become_replacements),
        cmocka_unit_test(test_stop_strings_are_never_shown),
        cmocka_unit_test(test_flush_shows_a_beginning_that_stayed_one),
        cmocka_unit_test(test_leading_space_goes_with_the_first_visible_token),
        cmocka_unit_test(test_bad_stop_strings_are_refused),
        cmocka_unit_test(test_output_is_the_text_before_the_first_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

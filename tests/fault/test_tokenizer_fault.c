/* test_tokenizer_fault.c: the N-th allocation fails, for every N: each call fails cleanly or
 * succeeds with the right answer, nothing leaks, the caller's list stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/os.h"
#include "model/textstream.h"
#include "live_bytes.h"
#include "tokenizer_fixture.h"

/* Runs the step with allocation 1, 2, ... failing until none fails any more. */
typedef zp_status (*fault_step)(void *arg, zp_err *err);
static void fail_each(fault_step step, void *arg)
{
    for (uint64_t n = 1;; n++) {
        zp_err err = { 0 };
        uint64_t before = live_bytes();
        mem_fail_at(n, false);
        zp_status status = step(arg, &err);
        uint64_t injected = mem_fail_count();
        mem_fail_at(0, false);
        assert_int_equal(live_bytes(), before);
        if (status != ZP_OK && status != ZP_NO_MEMORY)
            fail_msg("allocation %u: %s", (unsigned)n, err.message);
        if (status != ZP_OK) assert_true(injected > 0 && err.message[0] != '\0');
        if (injected == 0) {
            assert_int_equal(status, ZP_OK);
            assert_true(n > 2); /* the step did allocate */
            return;
        }
    }
}

/* ---- vocabularies: byte-level, SentencePiece, unigram */

enum { N_BYTE_LEVEL = BYTE_LEVEL_ASCII + 4, N_PIECES = 8 };
static struct test_token byte_tokens[N_BYTE_LEVEL];
static char ascii[BYTE_LEVEL_ASCII][3];
static const char *const merges[] = { "h e", "x y", "xy z", NULL };
static const struct test_token pieces[N_PIECES] = {
    { "<unk>", TOKEN_UNKNOWN, 0 }, { "<s>", TOKEN_CONTROL, 0 },
    { "</s>", TOKEN_CONTROL, 0 },  { "\xE2\x96\x81", TOKEN_NORMAL, -3 },
    { "h", TOKEN_NORMAL, -4 },     { "e", TOKEN_NORMAL, -5 },
    { "he", TOKEN_NORMAL, -1 },    { "<tool>", TOKEN_USER_DEFINED, 0 },
};

static struct test_vocab vocabulary(int kind)
{
    static const struct test_token rest[4] = { { "he", TOKEN_NORMAL, 0 },
                                               { "<s>", TOKEN_CONTROL, 0 },
                                               { "</s>", TOKEN_CONTROL, 0 },
                                               { "<tool>", TOKEN_USER_DEFINED, 0 } };
    struct test_vocab v = { .model = kind == 1 ? "llama" : "t5",
                            .tokens = pieces,
                            .n_tokens = N_PIECES,
                            .bos = 1,
                            .eos = 2,
                            .unk = 0,
                            .add_bos = 1,
                            .add_space_prefix = 1,
                            .merge_spaces = -1 };
    if (kind > 0) return v;
    memcpy(byte_tokens + fill_ascii_tokens(byte_tokens, ascii), rest, sizeof rest);
    v.model = "gpt2";
    v.pre = "smollm";
    v.tokens = byte_tokens;
    v.n_tokens = N_BYTE_LEVEL;
    v.merges = merges;
    v.bos = BYTE_LEVEL_ASCII + 1;
    v.eos = v.bos + 1;
    v.unk = -1;
    return v;
}

static zp_status open_step(void *arg, zp_err *err)
{
    struct test_vocab v = vocabulary(*(int *)arg);
    struct tokenizer *t;
    zp_status status = open_vocab(&t, &v, NULL, err);
    if (status == ZP_OK) tokenizer_close(t);
    else assert_null(t);
    return status;
}

static void test_opening_survives_each_failed_allocation(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) fail_each(open_step, &kind);
}

static zp_status open_json_step(void *arg, zp_err *err)
{
    struct tokenizer *t;
    const struct gguf_str *json = arg;
    zp_status status = tokenizer_open_json(&t, *json, (struct gguf_str){ 0 }, "test", err);
    if (status == ZP_OK) tokenizer_close(t);
    else assert_null(t);
    return status;
}

static void test_opening_json_survives_each_failed_allocation(void **state)
{
    (void)state;
    static const char text[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":"
        "\"q\",\"special\":false,\"normalized\":true}],\"normalizer\":{\"type\":\"Sequence\","
        "\"normalizers\":[{\"type\":"
        "\"NFC\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" "
        "\"}]},\"pre_tokenizer\":{\"type\":"
        "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},"
        "\"behavior\":\"Isolated\"},"
        "{\"type\":\"ByteLevel\"}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":"
        "2},\"merges\":[\"a b\"]}}";
    struct gguf_str json = { text, sizeof text - 1 };
    fail_each(open_json_step, &json);
}

struct encode_case {
    struct tokenizer *t;
    const char *text;
    size_t size;
    int32_t first[4];
    size_t n;
};

static zp_status encode_step(void *arg, zp_err *err)
{
    const struct encode_case *c = arg;
    struct token_list ids = { 0 };
    zp_status status = token_list_push(&ids, 7, err);
    if (status == ZP_OK) {
        status =
            tokenizer_encode(c->t, c->text, c->size, TOKENIZE_AUTO | TOKENIZE_SPECIAL, &ids, err);
        assert_int_equal(ids.ids[0], 7);
        assert_int_equal(ids.count, status == ZP_OK ? c->n + 1 : 1);
        if (status == ZP_OK) assert_memory_equal(ids.ids + 1, c->first, sizeof c->first);
    }
    token_list_free(&ids);
    return status;
}

static zp_status segments_step(void *arg, zp_err *err)
{
    const struct encode_case *c = arg;
    const struct text_segment parts[] = { { "<s>", 3, true },
                                          { c->text, c->size, false },
                                          { "</s>", 4, true } };
    struct token_list ids = { 0 };
    zp_status status = tokenizer_encode_segments(c->t, parts, 3, 0, &ids, err);
    token_list_free(&ids);
    return status;
}

static zp_status stream_step(void *arg, zp_err *err)
{
    const struct encode_case *c = arg;
    static const char *const stops[] = { "zzz" };
    struct textstream s;
    struct buffer out = buffer_with_max(MEM_SCRATCH, 1000);
    bool stopped;
    zp_status status = textstream_init(&s, c->t, 0, stops, 1, err);
    for (size_t i = 0; i < 4 && status == ZP_OK; i++)
        status = textstream_push(&s, c->first[i], &out, &stopped, err);
    if (status == ZP_OK) status = textstream_flush(&s, &out, err);
    textstream_free(&s);
    buffer_free(&out);
    return status;
}

static zp_status decode_step(void *arg, zp_err *err)
{
    const struct encode_case *c = arg;
    struct buffer out = buffer_with_max(MEM_SCRATCH, 1000);
    zp_status status = tokenizer_decode(c->t, c->first, 4, DETOKENIZE_SPECIAL, &out, err);
    if (status == ZP_OK)
        status = buffer_append_text(
            &out,
            "more than the first piece of memory holds, whatever that "
            "is: 0123456789012345678901234567890123456789012345678901234567890123456789",
            err);
    buffer_free(&out);
    return status;
}

static void test_encoding_and_decoding_survive_each_failed_allocation(void **state)
{
    (void)state;
    char text[300]; /* a long word too, so that the heap of the merge loop is used */
    memset(text, 'e', sizeof text);
    memcpy(text, "<tool>he<s>", 11);
    for (int kind = 0; kind < 3; kind++) {
        struct test_vocab v = vocabulary(kind);
        struct encode_case c = { .text = text, .size = sizeof text };
        struct token_list ids = { 0 };
        zp_err err = { 0 };
        if (open_vocab(&c.t, &v, NULL, &err) != ZP_OK) fail_msg("%s", err.message);
        assert_int_equal(
            tokenizer_encode(c.t, text, sizeof text, TOKENIZE_AUTO | TOKENIZE_SPECIAL, &ids, &err),
            ZP_OK);
        memcpy(c.first, ids.ids, sizeof c.first);
        c.n = ids.count;
        token_list_free(&ids);
        fail_each(encode_step, &c);
        fail_each(segments_step, &c);
        fail_each(stream_step, &c);
        fail_each(decode_step, &c);
        tokenizer_close(c.t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_survives_each_failed_allocation),
        cmocka_unit_test(test_opening_json_survives_each_failed_allocation),
        cmocka_unit_test(test_encoding_and_decoding_survive_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tokenizer_fixture.h: small tokenizers made in the test from lists of tokens, through GGUF bytes
 * in memory, so that the whole opener is under test. */
#ifndef TESTS_TOKENIZER_FIXTURE_H
#define TESTS_TOKENIZER_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "gguf_bytes.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

struct test_token {
    const char *text;
    int kind;
    float score;
};

struct test_vocab {
    const char *model, *pre, *name; /* pre, name: NULL = key absent */
    const struct test_token *tokens;
    size_t n_tokens;
    const char *const *merges;                   /* ends with NULL; NULL = key absent */
    int bos, eos, unk;                           /* negative = key absent */
    int add_bos, add_space_prefix, merge_spaces; /* -1 = key absent */
    const uint8_t *charsmap;
    size_t charsmap_size;
};

static inline void put_kv_bool(struct bytes *b, const char *name, int value, uint64_t *n)
{
    if (value < 0) return;
    put_kv(b, name, 7);
    put_u8(b, (uint8_t)value);
    ++*n;
}

static inline void put_kv_id(struct bytes *b, const char *name, int value, uint64_t *n)
{
    if (value < 0) return;
    put_kv_u32(b, name, (uint32_t)value);
    ++*n;
}

static inline void put_kv_text(struct bytes *b, const char *name, const char *value, uint64_t *n)
{
    if (value == NULL) return;
    put_kv_str(b, name, value);
    ++*n;
}

static inline void put_token_arrays(struct bytes *b, const struct test_vocab *v, uint64_t *n)
{
    put_kv_array(b, "tokenizer.ggml.tokens", 8, v->n_tokens);
    for (size_t i = 0; i < v->n_tokens; i++) put_str(b, v->tokens[i].text);
    put_kv_array(b, "tokenizer.ggml.token_type", 5, v->n_tokens);
    for (size_t i = 0; i < v->n_tokens; i++) put_u32(b, (uint32_t)v->tokens[i].kind);
    put_kv_array(b, "tokenizer.ggml.scores", 6, v->n_tokens);
    for (size_t i = 0; i < v->n_tokens; i++) put_f32(b, v->tokens[i].score);
    *n += 3;
    size_t n_merges = 0;
    if (v->merges == NULL) return;
    while (v->merges[n_merges] != NULL) n_merges++;
    put_kv_array(b, "tokenizer.ggml.merges", 8, n_merges);
    for (size_t i = 0; i < n_merges; i++) put_str(b, v->merges[i]);
    ++*n;
}

static inline void make_vocab_file(struct bytes *b, const struct test_vocab *v)
{
    uint64_t n = 0;
    put_head(b, 3, 0, 0);
    put_kv_text(b, "tokenizer.ggml.model", v->model, &n);
    put_kv_text(b, "tokenizer.ggml.pre", v->pre, &n);
    put_kv_text(b, "general.name", v->name, &n);
    put_token_arrays(b, v, &n);
    put_kv_id(b, "tokenizer.ggml.bos_token_id", v->bos, &n);
    put_kv_id(b, "tokenizer.ggml.eos_token_id", v->eos, &n);
    put_kv_id(b, "tokenizer.ggml.unknown_token_id", v->unk, &n);
    put_kv_bool(b, "tokenizer.ggml.add_bos_token", v->add_bos, &n);
    put_kv_bool(b, "tokenizer.ggml.add_space_prefix", v->add_space_prefix, &n);
    put_kv_bool(b, "tokenizer.ggml.remove_extra_whitespaces", v->merge_spaces, &n);
    if (v->charsmap != NULL) {
        put_kv_array(b, "tokenizer.ggml.precompiled_charsmap", 0, v->charsmap_size);
        put(b, v->charsmap, v->charsmap_size);
        n++;
    }
    memcpy(b->data + 16, &n, 8); /* number of keys */
}

static inline zp_status open_vocab(struct tokenizer **t, const struct test_vocab *v,
                                   const char *pre_override, zp_err *err)
{
    struct bytes b;
    struct gguf g;
    *t = NULL;
    make_vocab_file(&b, v);
    ZP_TRY(gguf_open_bytes(&g, b.data, b.size, "test.gguf", err));
    zp_status status = tokenizer_open_gguf(t, &g, pre_override, err);
    gguf_close(&g);
    return status;
}

/* A byte-level vocabulary begins with printable ASCII and the space, one byte each (ids 0..94). */
#define BYTE_LEVEL_ASCII 95
static inline size_t fill_ascii_tokens(struct test_token *tokens, char texts[][3])
{
    for (int i = 0; i < BYTE_LEVEL_ASCII; i++) {
        if (i == 94) strcpy(texts[i], "\xC4\xA0"); /* the space */
        else texts[i][0] = (char)(33 + i), texts[i][1] = '\0';
        tokens[i] = (struct test_token){ texts[i], TOKEN_NORMAL, 0.0f };
    }
    return BYTE_LEVEL_ASCII;
}

#endif

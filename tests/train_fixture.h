/* train_fixture.h: a small tokenizer and a corpus of made-up prose for tests of training: documents
 * of known lengths, every third of them held out. Include after cmocka.h and in_folder.h. */
#ifndef TESTS_TRAIN_FIXTURE_H
#define TESTS_TRAIN_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "train/bpetrain.h"
#include "train/shards.h"

#define FINE(call)                                                          \
    do {                                                                    \
        zp_err fine_err_ = { 0 }, *err = &fine_err_;                        \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, fine_err_.message);  \
    } while (0)

struct train_fixture {
    struct tokenizer *tokenizer;
    struct shards shards;
};

/* Sentences of made-up words: the same for the same document. */
static inline void fixture_text(struct buffer *b, uint32_t doc, size_t n_words)
{
    static const char *const syllables[] = { "ka", "lo", "mi", "ne", "su", "ta", "ro", "vi" };
    struct rng r = rng_stream(99, doc);
    buffer_clear(b);
    for (size_t i = 0; i < n_words; i++) {
        size_t n = 1 + rng_below(&r, 3);
        if (i) FINE(buffer_append_text(b, i % 9 ? " " : ".\n", err));
        for (size_t k = 0; k < n; k++)
            FINE(buffer_append_text(b, syllables[rng_below(&r, 8)], err));
    }
    FINE(buffer_append_text(b, ".\n", err));
}

static inline void fixture_tokenizer(struct train_fixture *f, uint32_t n_vocab)
{
    struct bpetrain b;
    struct gguf g;
    struct buffer text = buffer_with_max(MEM_META, 1 << 20);
    const char *path = in_folder("fixture.gguf");
    FINE(bpetrain_open(&b, &(struct bpetrain_options){ .n_vocab = n_vocab }, err));
    for (uint32_t i = 0; i < 20; i++) {
        fixture_text(&text, i, 200);
        FINE(bpetrain_add(&b, (const char *)text.data, text.size, err));
    }
    FINE(bpetrain_run(&b, err));
    FINE(bpetrain_save(&b, path, err));
    bpetrain_free(&b);
    buffer_free(&text);
    FINE(gguf_open(&g, path, err));
    FINE(tokenizer_open_gguf(&f->tokenizer, &g, NULL, err));
    gguf_close(&g);
}

/* Document i has n_words[i] words. */
static inline void fixture_corpus(const char *path, const struct tokenizer *t,
                                  const size_t *n_words, uint32_t n_docs)
{
    struct shards_writer w;
    struct buffer text = buffer_with_max(MEM_META, 16 << 20);
    FINE(shards_writer_open(&w, t, err));
    for (uint32_t i = 0; i < n_docs; i++) {
        struct token_list list = { 0 };
        char name[32];
        snprintf(name, sizeof name, "doc%u", i);
        fixture_text(&text, i, n_words[i]);
        FINE(tokenizer_encode(t, (const char *)text.data, text.size, 0, &list, err));
        FINE(shards_writer_add(&w, name, hash_bytes(text.data, text.size, 0), text.size, list.ids,
                               list.count, i % 3 == 2, err));
        token_list_free(&list);
    }
    FINE(shards_writer_save(&w, path, err));
    shards_writer_free(&w);
    buffer_free(&text);
}

/* Text of document i with structure: headings, items, fences, numbers, tags, tables; documents
 * i % 4 == 3 have none. */
static inline void fixture_structured(struct buffer *b, uint32_t doc)
{
    static const char *const heads[] = { "# ", "- ", "1. ", "```\n", "<b>", "| a | b |\n" };
    struct rng r = rng_stream(98, doc);
    struct buffer prose = buffer_with_max(MEM_META, 1 << 20);
    buffer_clear(b);
    for (uint32_t i = 0; i < 24; i++) {
        fixture_text(&prose, doc * 24 + i, 3 + rng_below(&r, 9));
        if (doc % 4 != 3)
            FINE(buffer_append_text(b, heads[rng_below(&r, sizeof heads / sizeof *heads)], err));
        FINE(buffer_append(b, prose.data, prose.size, err));
        if (rng_below(&r, 2)) FINE(buffer_append_text(b, "\n", err));
    }
    buffer_free(&prose);
}

static inline void fixture_structured_corpus(const char *path, const struct tokenizer *t,
                                             uint32_t n_docs)
{
    struct shards_writer w;
    struct buffer text = buffer_with_max(MEM_META, 16 << 20);
    FINE(shards_writer_open(&w, t, err));
    for (uint32_t i = 0; i < n_docs; i++) {
        struct token_list list = { 0 };
        fixture_structured(&text, i);
        FINE(tokenizer_encode(t, (const char *)text.data, text.size, 0, &list, err));
        FINE(shards_writer_add(&w, "structured", hash_bytes(text.data, text.size, 0), text.size,
                               list.ids, list.count, i % 3 == 2, err));
        token_list_free(&list);
    }
    FINE(shards_writer_save(&w, path, err));
    shards_writer_free(&w);
    buffer_free(&text);
}

static inline void fixture_open(struct train_fixture *f, uint32_t n_vocab, const size_t *n_words,
                                uint32_t n_docs)
{
    const char *path = in_folder("fixture.zpt");
    memset(f, 0, sizeof *f);
    fixture_tokenizer(f, n_vocab);
    fixture_corpus(path, f->tokenizer, n_words, n_docs);
    FINE(shards_open(&f->shards, path, err));
}

static inline void fixture_close(struct train_fixture *f)
{
    shards_close(&f->shards);
    tokenizer_close(f->tokenizer);
}

#endif

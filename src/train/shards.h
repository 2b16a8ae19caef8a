/* shards.h: a file of token documents, mapped for reading: ids, where each document lies, whether
 * it is held out, where its text came from.
 * H1 every id is below n_vocab, and every document has at least one.
 * H2 documents lie one behind the other, without gaps, in the order they were added.
 * H3 whether a document is held out depends on its text alone (shards_is_held), but for a corpus
 *    that would otherwise have none on one side. */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "base/bytes.h"
#include "base/os.h"
#include "model/tokenizer.h"

#define SHARDS_MAGIC "zpshards"
#define SHARDS_VERSION 1
#define SHARDS_BYTE_ORDER 0x01020304u
#define SHARDS_ALIGN 64

/* Header, documents, names, zeros up to SHARDS_ALIGN, ids (2 or 4 bytes each). Numbers are in the
 * byte order of the machine that wrote; another one refuses the file. */
struct shards_header {
    char magic[8];
    uint64_t tables_hash; /* XXH64 of all between this and ids_at */
    uint32_t version, byte_order;
    uint64_t file_bytes, ids_at, ids_hash;
    uint64_t tokenizer; /* shards_hash_tokenizer */
    uint64_t n_tokens;
    uint32_t n_docs, n_vocab;
    uint32_t id_bytes;  /* 2 where n_vocab <= 65536, else 4 */
    int32_t separator;  /* begins each document in training */
    uint32_t names_bytes, reserved;
};

struct shards_doc {
    uint64_t at, n; /* ids */
    /* hash_bytes of the text: the hash that scans and evaluations know documents by. */
    uint64_t text_hash;
    uint64_t text_bytes;
    uint32_t name_at, name_size; /* in names; no NUL */
    uint32_t held;               /* 1: held out */
    uint32_t reserved;
};

struct shards {
    struct os_map map;
    struct shards_header head;
    const struct shards_doc *docs; /* (n_docs) */
    const char *names;
    const void *ids; /* (n_tokens) of id_bytes */
};

/* Checks every length, both hashes and every id. Damaged: ZP_BAD_FILE, *s empty. */
zp_status shards_open(struct shards *s, const char *path, zp_err *err);
/* Over bytes that outlive s and begin at a multiple of 8. name: for messages. */
zp_status shards_open_bytes(struct shards *s, const void *data, size_t size, const char *name,
                            zp_err *err);
void shards_close(struct shards *s); /* accepts a zeroed one */

static inline int32_t shards_id(const struct shards *s, uint64_t at)
{
    return s->head.id_bytes == 2 ? ((const uint16_t *)s->ids)[at]
                                 : (int32_t)((const uint32_t *)s->ids)[at];
}
/* Ids [first, first + n) of the document, which has them. */
void shards_read(const struct shards *s, uint32_t doc, uint64_t first, size_t n, int32_t *out);

/* What tells tokenizers apart: kind, pre-tokeniser, and every token's text, kind and score. */
uint64_t shards_hash_tokenizer(const struct tokenizer *t);
/* The token that stands between documents: <|endoftext|> where there is one, else BOS, else EOS;
 * TOKEN_NONE if the tokenizer has none of them. */
int32_t shards_separator_of(const struct tokenizer *t);
/* ZP_BAD_INPUT: the ids are those of another tokenizer. */
zp_status shards_check_tokenizer(const struct shards *s, const struct tokenizer *t,
                                 const char *name, zp_err *err);
/* 0 to 1, by the text alone: those below the share (of texts, not of bytes) are held out. */
double shards_held_rank(uint64_t text_hash);
static inline bool shards_is_held(uint64_t text_hash, double share)
{
    return shards_held_rank(text_hash) < share;
}

/* ---- writing ---- */
struct shards_writer {
    struct shards_header head;
    struct buffer docs, names, ids;
};
/* Begins a list of documents in memory (2 or 4 bytes a token). */
zp_status shards_writer_open(struct shards_writer *w, const struct tokenizer *t, zp_err *err);
/* n >= 1 ids below n_vocab. */
zp_status shards_writer_add(struct shards_writer *w, const char *name, uint64_t text_hash,
                            uint64_t text_bytes, const int32_t *ids, size_t n, bool held,
                            zp_err *err);
/* (head.n_docs), until the next add. */
struct shards_doc *shards_writer_docs(struct shards_writer *w);
/* Whole under its name, or not there. */
zp_status shards_writer_save(struct shards_writer *w, const char *path, zp_err *err);
void shards_writer_free(struct shards_writer *w);

#endif

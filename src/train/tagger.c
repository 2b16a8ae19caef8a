/* tagger.c: structure marks of tokens.
 * Owns: the marks of one part of a corpus. Does not know: rows, detectors. */
#include "train/tagger.h"

#include "base/mem.h"

/* Room for one document after the other. */
struct work {
    struct buffer text;
    size_t *ends;    /* (room) where each token's bytes end */
    uint16_t *marks; /* (n_marks) of the bytes */
    size_t room, n_marks;
};

static zp_status make_room(struct work *w, size_t n_ids, size_t n_bytes, zp_err *err)
{
    if (n_ids > w->room) {
        mem_free(w->ends);
        w->room = 0;
        ZP_ALLOC(w->ends, MEM_TRAIN, n_ids, err, "the tokens of a document");
        w->room = n_ids;
    }
    if (n_bytes > w->n_marks) {
        mem_free(w->marks);
        w->n_marks = 0;
        ZP_ALLOC(w->marks, MEM_TRAIN, n_bytes, err, "the marks of a document");
        w->n_marks = n_bytes;
    }
    return ZP_OK;
}

static zp_status decode(struct work *w, const struct shards *s, const struct shards_doc *d,
                        const struct tokenizer *tokenizer, zp_err *err)
{
    buffer_clear(&w->text);
    ZP_TRY(make_room(w, (size_t)d->n, 0, err));
    for (uint64_t i = 0; i < d->n; i++) {
        ZP_TRY(tokenizer_decode_token(tokenizer, shards_id(s, d->at + i),
                                      i ? DETOKENIZE_CONTINUES : 0, &w->text, err));
        w->ends[i] = w->text.size;
    }
    return make_room(w, 0, w->text.size, err);
}

static zp_status tag_document(struct tagger *t, struct work *w, const struct shards *s,
                              const struct shards_doc *d, const struct tokenizer *tokenizer,
                              zp_err *err)
{
    bool any = false;
    ZP_TRY(decode(w, s, d, tokenizer, err));
    if (w->text.size) doctags_mark((const char *)w->text.data, w->text.size, w->marks);
    for (uint64_t i = 0; i < d->n; i++) {
        uint16_t tag = 0;
        for (size_t b = i ? w->ends[i - 1] : 0; b < w->ends[i]; b++) tag |= w->marks[b];
        t->tags[d->at + i] = tag;
        for (int k = 0; k < STRUCT_TYPES; k++) t->count[k] += tag >> k & 1;
        any |= tag % DOCTAGS_BEGINS != 0;
    }
    t->n_tokens += d->n;
    if (!any) t->n_plain += d->n;
    return ZP_OK;
}

static zp_status fill(struct tagger *t, struct work *w, const struct shards *s,
                      const struct tokenizer *tokenizer, bool held, zp_err *err)
{
    ZP_FAIL_IF(s->head.n_tokens > SIZE_MAX / sizeof *t->tags, err, ZP_NO_MEMORY,
               "too many tokens to tell their structure");
    t->tags = mem_zalloc(MEM_TRAIN, (size_t)s->head.n_tokens * sizeof *t->tags);
    ZP_FAIL_IF(!t->tags, err, ZP_NO_MEMORY, "not enough memory for the structure of %llu tokens",
               (unsigned long long)s->head.n_tokens);
    for (uint32_t i = 0; i < s->head.n_docs; i++)
        if ((s->docs[i].held != 0) == held)
            ZP_TRY(tag_document(t, w, s, &s->docs[i], tokenizer, err));
    return ZP_OK;
}

zp_status tagger_open(struct tagger *t, const struct shards *s, const struct tokenizer *tokenizer,
                      bool held, zp_err *err)
{
    struct work w = { .text = buffer_with_max(MEM_TRAIN, 2 * TOKENIZER_MAX_TEXT) };
    *t = (struct tagger){ 0 };
    zp_status status = fill(t, &w, s, tokenizer, held, err);
    buffer_free(&w.text);
    mem_free(w.ends);
    mem_free(w.marks);
    if (status != ZP_OK) tagger_close(t);
    return status;
}

void tagger_close(struct tagger *t)
{
    mem_free(t->tags);
    *t = (struct tagger){ 0 };
}

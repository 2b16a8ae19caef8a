/* tagger.h: structure marks (doctags.h) of a corpus's tokens: a token is of each type of which a
 * byte of it is marked. Of a document's own bytes, whole documents at a time: what a row or window
 * shows of one has the marks it has there. */
#ifndef TRAIN_TAGGER_H
#define TRAIN_TAGGER_H

#include "train/doctags.h"
#include "train/shards.h"

struct tagger {
    uint16_t *tags; /* (n_tokens of the corpus); 0 in the other part's documents */
    uint64_t n_tokens, n_plain; /* of the part; of its documents without a mark */
    uint64_t count[STRUCT_TYPES];
};

/* held: of the documents that are held out, else of the others. The tokenizer is the corpus's. */
zp_status tagger_open(struct tagger *t, const struct shards *s, const struct tokenizer *tokenizer,
                      bool held, zp_err *err);
void tagger_close(struct tagger *t); /* accepts a zeroed one */
/* Token `at` of a document. */
static inline uint16_t tagger_tag(const struct tagger *t, const struct shards *s, uint32_t doc,
                                  uint64_t at)
{
    return t->tags[s->docs[doc].at + at];
}

#endif

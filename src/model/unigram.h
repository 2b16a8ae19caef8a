/* unigram.h: SentencePiece unigram: the segmentation of highest total score (GGUF model "t5").
 * Input is normalised text with U+2581 for spaces. */
#ifndef MODEL_UNIGRAM_H
#define MODEL_UNIGRAM_H

#include "model/trie.h"
#include "model/vocab.h"

struct unigram {
    const struct vocab *vocab;
    struct trie trie;     /* values: token ids */
    double unknown_score; /* per character without token */
    int32_t unk;
    int32_t byte_token[256];
    bool byte_fallback; /* the vocabulary has all of <0x00>..<0xFF> */
};

/* vocab must be complete and outlive u. Scores that are not finite are ZP_BAD_FILE. */
zp_status unigram_init(struct unigram *u, const struct vocab *vocab, int32_t unk, zp_err *err);
void unigram_free(struct unigram *u);
zp_status unigram_encode(const struct unigram *u, const uint8_t *text, size_t size,
                         struct token_list *out, zp_err *err);

#endif

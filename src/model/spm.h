/* spm.h: SentencePiece BPE: neighbours are joined while their text is a token, highest score first
 * (GGUF tokenizer.ggml.model "llama"). Input is text whose spaces are already U+2581. */
#ifndef MODEL_SPM_H
#define MODEL_SPM_H

#include "model/merger.h"
#include "model/vocab.h"

struct spm {
    const struct vocab *vocab;
    uint32_t *ranks;         /* per token: order of its score, equal scores share one */
    int32_t byte_token[256]; /* <0xNN> or the byte itself as a token; else TOKEN_NONE */
    int32_t unk;
    bool crosses[256]; /* some token has this byte right before U+2581: no cut between them */
};

/* vocab must be complete and sealed, and outlive s. Scores that are not finite are ZP_BAD_FILE. */
zp_status spm_init(struct spm *s, const struct vocab *vocab, int32_t unk, zp_err *err);
void spm_free(struct spm *s);
zp_status spm_encode(const struct spm *s, struct merger *scratch, const uint8_t *text, size_t size,
                     struct token_list *out, zp_err *err);

#endif

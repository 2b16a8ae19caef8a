/* hftokenizer.h: tokenizer.json and tokenizer_config.json of a byte-level BPE that a GGUF file
 * describes, for Hugging Face folders. */
#ifndef MODEL_HFTOKENIZER_H
#define MODEL_HFTOKENIZER_H

#include "model/gguf.h"
#include "model/tokenizer.h"

/* Only byte-level BPE ("gpt2") with a known pre-tokeniser can be written. */
bool hftokenizer_is_possible(const struct tokenizer *t);
/* t: made from g's keys. *json is released with mem_free. Texts that are not UTF-8, and merges of
 * another form than "left right": ZP_UNSUPPORTED. */
zp_status hftokenizer_write(const struct gguf *g, const struct tokenizer *t, char **json,
                            zp_err *err);
zp_status hftokenizer_write_config(const struct tokenizer *t, uint32_t n_ctx, char **json,
                                   zp_err *err);

#endif

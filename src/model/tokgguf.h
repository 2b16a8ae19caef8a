/* tokgguf.h: a tokenizer from GGUF keys (tokenizer.ggml.*). Called by tokenizer.c only. */
#ifndef MODEL_TOKGGUF_H
#define MODEL_TOKGGUF_H

#include "model/gguf.h"
#include "model/tokenizer_parts.h"

/* Fills a zeroed *t; on failure the caller closes it. */
zp_status tokgguf_fill(struct tokenizer *t, const struct gguf *g, const char *pre_override,
                       zp_err *err);

#endif

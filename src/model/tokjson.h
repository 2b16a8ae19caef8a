/* tokjson.h: a tokenizer from tokenizer.json and tokenizer_config.json. Called by tokenizer.c
 * only. */
#ifndef MODEL_TOKJSON_H
#define MODEL_TOKJSON_H

#include "model/tokenizer_parts.h"

/* Fills a zeroed *t; on failure the caller closes it. config.data may be NULL. name: where the
 * texts come from, for messages. */
zp_status tokjson_fill(struct tokenizer *t, struct gguf_str json, struct gguf_str config,
                       const char *name, zp_err *err);

#endif

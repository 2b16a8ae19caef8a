/* tokjson.h: a tokenizer from tokenizer.json and tokenizer_config.json. Called by tokenizer.c
 * only. */
#ifndef MODEL_TOKJSON_H
#define MODEL_TOKJSON_H

#include "model/tokenizer_parts.h"

/* Fills a zeroed *t; on failure the caller closes it. config_path may be NULL or name no file. */
zp_status tokjson_fill(struct tokenizer *t, const char *json_path, const char *config_path,
                       zp_err *err);
/* The same from text in memory (tests, fuzzing); config may be NULL. name is for messages. */
zp_status tokjson_fill_text(struct tokenizer *t, const char *json, size_t json_size,
                            const char *config, size_t config_size, const char *name, zp_err *err);

#endif

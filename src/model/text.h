/* text.h: text, ids and chat templates of a model: the public calls zp_tokenize, zp_detokenize,
 * zp_template_render and their kin. */
#ifndef MODEL_TEXT_H
#define MODEL_TEXT_H

#include <jansson.h>
#include "model/model.h"

/* Id that begins a text of this model, TOKEN_NONE where it wants none. */
int32_t text_bos(const struct zp_model *m);
/* Puts the id in front of a prompt's, unless it is there or the model wants none. */
zp_status text_add_bos(const struct zp_model *m, struct token_list *ids, zp_err *err);
/* The variables bos_token and eos_token of a template's input. */
zp_status text_set_tokens(const struct zp_model *m, json_t *input, zp_err *err);

#endif

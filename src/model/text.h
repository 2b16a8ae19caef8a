/* text.h: text, ids and chat templates of a model: the public calls zp_tokenize, zp_detokenize,
 * zp_template_render and their kin. */
#ifndef MODEL_TEXT_H
#define MODEL_TEXT_H

#include "model/model.h"

/* Id that begins a text of this model, TOKEN_NONE where it wants none. */
int32_t text_bos(const struct zp_model *m);

#endif

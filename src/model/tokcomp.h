/* tokcomp.h: the components of a tokenizer.json around its model: normalizer, pre_tokenizer,
 * post_processor, decoder. Called by tokjson.c only. */
#ifndef MODEL_TOKCOMP_H
#define MODEL_TOKCOMP_H

#include <jansson.h>
#include "model/tokenizer_parts.h"

/* What the components tell about the rest. */
struct tokcomp {
    bool byte_level;       /* words are bytes in GPT-2's alphabet */
    bool marks;            /* the decoder turns U+2581 into a space */
    const char *bos, *eos; /* texts the post-processor puts around the input; views of the JSON */
};

/* Each takes the component or NULL (absent, null). A component we do not know is ZP_UNSUPPORTED. */
zp_status tokcomp_read_normalizer(struct tokenizer *t, const json_t *component, zp_err *err);
zp_status tokcomp_read_pretok(struct tokenizer *t, const json_t *component, struct tokcomp *found,
                              zp_err *err);
zp_status tokcomp_read_decoder(struct tokenizer *t, const json_t *component, struct tokcomp *found,
                               zp_err *err);
zp_status tokcomp_read_processor(const json_t *component, struct tokcomp *found, zp_err *err);

#endif

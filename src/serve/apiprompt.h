/* apiprompt.h: what a request asks of a model: its prompt as ids, how calls are written, and the
 * form of its answer as a grammar. */
#ifndef SERVE_APIPROMPT_H
#define SERVE_APIPROMPT_H

#include "model/anchors.h"
#include "model/tokenizer.h"
#include "serve/apireply.h"

struct apiprompt {
    struct token_list ids;
    struct buffer text; /* what the ids are of, without a BOS that the text does not have */
    struct anchor_list anchors; /* where they were asked for; the text is without their marks */
    /* of chats: for apireply_options */
    enum toolcalls_style style;
    bool in_reasoning, has_form;
    struct toolform form; /* where a call must come */
    struct apireply_echo echo; /* of completions, good as long as this and the model */
};

/* A chat: messages, tools and what the answer begins with, through the model's template; once for a
 * request, whose input changes. Give it to apiprompt_free in any case. */
zp_status apiprompt_open_chat(struct apiprompt *p, const struct zp_model *m, struct api_request *r,
                              struct apifault *fault);
/* A prompt of a completions request: special tokens in a text are read as such, ids stay as they
 * are. anchors: marks of positions are read in a text (anchors.h). */
zp_status apiprompt_open_text(struct apiprompt *p, const struct zp_model *m,
                              const struct api_prompt *prompt, bool anchors,
                              struct apifault *fault);
void apiprompt_free(struct apiprompt *p); /* zeroed is fine */

/* Any text: *out NULL. To zp_grammar_close after the request's jobs. */
zp_status apiprompt_open_grammar(zp_grammar **out, const struct apiprompt *p,
                                 const struct zp_model *m, const struct api_request *r,
                                 struct apifault *fault);

#endif

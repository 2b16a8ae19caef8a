/* model.h: the immutable model: keys, hyper-parameters, position table, tokenizer, chat
 * template. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdatomic.h>

#include <zerope/zerope.h>
#include "model/position.h"
#include "model/stretch.h"
#include "model/structhead.h"
#include "model/template.h"
#include "model/tokenizer.h"
#include "model/tokentrie.h"

struct zp_model {
    struct gguf gguf;
    struct hparams h;
    struct position position;
    struct structhead structure; /* its weight NULL: none */
    struct arena arena;
    struct tokenizer
        *tokenizer; /* NULL: the file has none, or tokenizer_error says why it cannot be used */
    zp_err tokenizer_error;
    char *template_text;       /* source of the chat template; NULL = none */
    _Atomic(struct tokentrie *) trie; /* for grammars: made with the first one; NULL before */
    struct template *template; /* NULL: none, or template_error */
    zp_err template_error;
    char sha256_hex[65]; /* what zp_model_sha256 gives, once sha256_state says so */
    _Atomic int sha256_state;
    uint64_t n_params;
    char *name;
    uint64_t vocabulary; /* models of one number have the same tokens: grammars fit all of them */
    char stretch[STRETCH_TEXT]; /* what the caller put in place of the file's scaling, or "" */
};

/* The tokenizer, or an error that says why there is none. */
zp_status model_tokenizer(const struct zp_model *m, const struct tokenizer **out, zp_err *err);
/* Takes the number of a model whose tokens were found to be the same. Before others use m. */
void model_share_vocabulary(zp_model *m, const struct zp_model *with);
zp_status model_template(const struct zp_model *m, const struct template **out, zp_err *err);

#endif

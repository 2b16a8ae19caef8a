/* api_plain.h: requests that draw no tokens, and their answers: /v1/embeddings and /v1/models of
 * OpenAI's API, /embedding, /tokenize, /detokenize and /apply-template of llama.cpp's. */
#ifndef SERVE_API_PLAIN_H
#define SERVE_API_PLAIN_H

#include "serve/apianswer.h"

enum { PLAIN_MOST_INPUTS = 2048 }; /* texts to embed in a request: as many as OpenAI takes */

/* One for all of them: what the others ask for is zero. */
struct plain_request {
    const char *model, *user; /* NULL: not said */
    const struct api_prompt *prompts; /* (n_prompts): input of embeddings, content of tokenize,
                                       * tokens of detokenize */
    size_t n_prompts;
    enum plain_encoding { PLAIN_FLOAT, PLAIN_BASE64 } encoding; /* embeddings */
    uint32_t dimensions;                                        /* embeddings; 0: all */
    zp_pooling pooling; /* embeddings */
    bool raw;           /* embeddings: not scaled to length 1 */
    int mode;           /* embeddings: a zp_mode, -1: not said */
    bool add_special, parse_special, with_pieces;               /* tokenize */
    json_t *body;
    struct arena arena;
};
/* Give the request to plain_free in any case. */
zp_status plain_read_embeddings(struct plain_request *r, const char *body, size_t size,
                                const struct api_limits *limits, struct apifault *fault);
zp_status plain_read_tokenize(struct plain_request *r, const char *body, size_t size,
                              const struct api_limits *limits, struct apifault *fault);
zp_status plain_read_detokenize(struct plain_request *r, const char *body, size_t size,
                                const struct api_limits *limits, struct apifault *fault);
void plain_free(struct plain_request *r); /* zeroed is fine */

/* Answers, appended. */
struct plain_vectors {
    const char *model;
    const float *rows; /* (n, width) */
    size_t n, width;
    enum plain_encoding encoding;
    const struct api_usage *usage;
};
zp_status plain_write_embeddings(const struct plain_vectors *v, struct buffer *out, zp_err *err);
/* As llama.cpp's /embedding has it: a list of {"index", "embedding": [[...]]}. */
zp_status plain_write_embedding_list(const struct plain_vectors *v, struct buffer *out,
                                     zp_err *err);
/* pieces: (n) texts of the ids, of any bytes, sizes beside them; NULL: ids alone. */
zp_status plain_write_tokens(const int32_t *ids, size_t n, const char *const *pieces,
                             const size_t *sizes, struct buffer *out, zp_err *err);
/* {"content": text} of detokenize, {"prompt": text} of apply-template. */
zp_status plain_write_text(const char *key, const char *text, size_t size, struct buffer *out,
                           zp_err *err);
struct plain_model {
    const char *id;
    int64_t created;
    uint32_t n_ctx, n_ctx_train, n_vocab;
    uint64_t n_params, size; /* of the file */
    uint32_t n_layer, layer_zeroed;
};
zp_status plain_write_models(const struct plain_model *models, size_t n, struct buffer *out,
                             zp_err *err);
zp_status plain_write_model(const struct plain_model *model, struct buffer *out, zp_err *err);

#endif

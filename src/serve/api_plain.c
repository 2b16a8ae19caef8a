/* api_plain.c: tokens, embeddings, models: requests and answers. No state. */
#include "serve/api_plain.h"

#include "base/num.h"
#include "base/json_build.h"

/* ---- requests -------------------------------------------------------------------------------- */

enum { EMBED = 1, TOKENIZE = 2, DETOKENIZE = 4, EACH = 7 };

static const char *const encodings[] = { "float", "base64", NULL };
static const char *const poolings[] = { "default", "last", "mean", "first", "cls", NULL };
static const char *const modes[] = { "full", "zero", "half", "auto", NULL }; /* as zp_mode */

/* llama.cpp's ways to scale a vector: 2 is by its length, -1 not at all. */
static zp_status read_scaling(void *out, const json_t *value, const char *path,
                              struct apifault *fault)
{
    struct plain_request *r = out;
    int64_t way;
    if (!jsonfield_whole(value, -1, 2, &way) || way == 0 || way == 1)
        return apifault_expected(fault, path, value, "2 (length 1) or -1 (as it is)");
    r->raw = way < 0;
    return ZP_OK;
}

#define ROW(name, kind, sets, member, least, most, names) \
    { name, kind, sets, offsetof(struct plain_request, member), least, most, names, NULL }
#define BOOL(name, sets, member) ROW(name, FIELD_BOOL, sets, member, 0, 0, NULL)

static const struct jsonfield fields[] = {
    ROW("model", FIELD_TEXT, EACH, model, 0, 512, NULL),
    ROW("user", FIELD_TEXT, EMBED, user, 0, 1024, NULL),
    ROW("encoding_format", FIELD_NAME, EMBED, encoding, 0, 0, encodings),
    ROW("dimensions", FIELD_U32, EMBED, dimensions, 1, INT32_MAX, NULL),
    ROW("pooling", FIELD_NAME, EMBED, pooling, 0, 0, poolings),
    ROW("position_mode", FIELD_NAME, EMBED, mode, 0, 0, modes),
    { "embd_normalize", FIELD_CUSTOM, EMBED, 0, 0, 0, NULL, read_scaling },
    BOOL("add_special", TOKENIZE, add_special),
    BOOL("parse_special", TOKENIZE, parse_special),
    BOOL("with_pieces", TOKENIZE, with_pieces),
};

static zp_status open_request(struct plain_request *r, unsigned set, const char *body, size_t size,
                              const struct api_limits *limits, struct apifault *fault)
{
    *r = (struct plain_request){ .parse_special = true, .mode = -1,
                                 .arena.tag = MEM_SERVE };
    ZP_TRY(apirequest_parse(&r->body, body, size, limits, fault));
    return jsonfield_read(fields, ZP_COUNT(fields), set, r->body, "", r, NULL, fault);
}

/* NULL: absent or null. */
static const json_t *get(const struct plain_request *r, const char *key)
{
    const json_t *value = json_object_get(r->body, key);
    return json_is_null(value) ? NULL : value;
}

/* key: the field with the texts or ids. */
static zp_status read_prompts(struct plain_request *r, const char *key,
                              const struct api_limits *limits, struct apifault *fault)
{
    return apirequest_read_prompts(&r->arena, get(r, key), key, limits, &r->prompts, &r->n_prompts,
                                   fault);
}

zp_status plain_read_embeddings(struct plain_request *r, const char *body, size_t size,
                                const struct api_limits *limits, struct apifault *fault)
{
    struct api_limits more = *limits;
    more.prompts = PLAIN_MOST_INPUTS;
    ZP_TRY(open_request(r, EMBED, body, size, limits, fault));
    if (r->pooling > ZP_POOL_FIRST) r->pooling = ZP_POOL_FIRST; /* cls */
    bool old = get(r, "input") == NULL && get(r, "content") != NULL; /* llama.cpp's name */
    const char *key = old ? "content" : "input";
    ZP_TRY(read_prompts(r, key, &more, fault));
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct jsonfield_path room;
        const char *path = r->n_prompts == 1 ? key : jsonfield_path(&room, key, NULL, i);
        if (r->prompts[i].text != NULL && r->prompts[i].size == 0)
            return apifault_set(fault, 400, "invalid_value", path,
                                "'%s': expected a text that is not empty", path);
    }
    return ZP_OK;
}

zp_status plain_read_tokenize(struct plain_request *r, const char *body, size_t size,
                              const struct api_limits *limits, struct apifault *fault)
{
    ZP_TRY(open_request(r, TOKENIZE, body, size, limits, fault));
    const json_t *content = json_object_get(r->body, "content");
    if (!json_is_string(content)) return apifault_expected(fault, "content", content, "a text");
    return read_prompts(r, "content", limits, fault);
}

/* No tokens are no text, and no prompt. */
zp_status plain_read_detokenize(struct plain_request *r, const char *body, size_t size,
                                const struct api_limits *limits, struct apifault *fault)
{
    ZP_TRY(open_request(r, DETOKENIZE, body, size, limits, fault));
    const json_t *tokens = json_object_get(r->body, "tokens");
    if (json_is_array(tokens) && json_array_size(tokens) == 0) return ZP_OK;
    if (!json_is_array(tokens) || !json_is_number(json_array_get(tokens, 0)))
        return apifault_expected(fault, "tokens", tokens, "a list of token ids");
    return read_prompts(r, "tokens", limits, fault);
}

void plain_free(struct plain_request *r)
{
    json_decref(r->body);
    arena_free(&r->arena);
    *r = (struct plain_request){ 0 };
}

/* ---- answers --------------------------------------------------------------------------------- */

/* RFC 4648 of the numbers, little-endian. */
static zp_status add_base64(struct buffer *out, const float *row, size_t width, zp_err *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = width * 4;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = 0;
        for (size_t k = i; k < i + 3; k++) {
            uint32_t byte = k < n ? f32_bits(row[k / 4]) >> 8 * (k % 4) & 255 : 0;
            three = three << 8 | byte;
        }
        char four[4] = { digits[three >> 18], digits[three >> 12 & 63],
                         i + 1 < n ? digits[three >> 6 & 63] : '=',
                         i + 2 < n ? digits[three & 63] : '=' };
        ZP_TRY(buffer_append(out, four, sizeof four, err));
    }
    return ZP_OK;
}

static zp_status write_row(struct json_build *w, const char *key, const struct plain_vectors *v,
                           size_t i, struct buffer *out, zp_err *err)
{
    const float *row = v->rows + i * v->width;
    if (v->encoding == PLAIN_FLOAT) {
        json_build_array(w, key);
        for (size_t k = 0; k < v->width; k++) json_build_real(w, NULL, (double)row[k], 9);
        json_build_array_end(w);
        return w->status;
    }
    json_build_raw(w, key, "\"", 1);
    ZP_TRY(w->status);
    ZP_TRY(add_base64(out, row, v->width, err));
    return buffer_append(out, "\"", 1, err);
}

zp_status plain_write_embeddings(const struct plain_vectors *v, struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "object", "list");
    json_build_array(&w, "data");
    for (size_t i = 0; i < v->n; i++) {
        json_build_object(&w, NULL);
        json_build_text(&w, "object", "embedding");
        json_build_uint(&w, "index", i);
        ZP_TRY(write_row(&w, "embedding", v, i, out, err));
        json_build_object_end(&w);
    }
    json_build_array_end(&w);
    json_build_text(&w, "model", v->model);
    json_build_object(&w, "usage");
    json_build_uint(&w, "prompt_tokens", v->usage->n_prompt);
    json_build_uint(&w, "total_tokens", v->usage->n_prompt);
    api_usage_write(v->usage, &w);
    json_build_object_end(&w);
    json_build_object_end(&w);
    return w.status;
}

zp_status plain_write_embedding_list(const struct plain_vectors *v, struct buffer *out,
                                     zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_array(&w, NULL);
    for (size_t i = 0; i < v->n; i++) {
        json_build_object(&w, NULL);
        json_build_uint(&w, "index", i);
        json_build_array(&w, "embedding");
        ZP_TRY(write_row(&w, NULL, v, i, out, err));
        json_build_array_end(&w);
        json_build_object_end(&w);
    }
    json_build_array_end(&w);
    return w.status;
}

/* A piece that is no text is a list of its bytes. */
static void write_piece(struct json_build *w, const char *piece, size_t size)
{
    if (size == 0 || utf8_is_valid(piece, size, NULL)) {
        json_build_bytes(w, "piece", piece, size);
        return;
    }
    json_build_array(w, "piece");
    for (size_t i = 0; i < size; i++) json_build_uint(w, NULL, (uint8_t)piece[i]);
    json_build_array_end(w);
}

zp_status plain_write_tokens(const int32_t *ids, size_t n, const char *const *pieces,
                             const size_t *sizes, struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    json_build_array(&w, "tokens");
    for (size_t i = 0; i < n; i++) {
        if (pieces == NULL) {
            json_build_int(&w, NULL, ids[i]);
            continue;
        }
        json_build_object(&w, NULL);
        json_build_int(&w, "id", ids[i]);
        write_piece(&w, pieces[i], sizes[i]);
        json_build_object_end(&w);
    }
    json_build_array_end(&w);
    json_build_object_end(&w);
    return w.status;
}

zp_status plain_write_text(const char *key, const char *text, size_t size, struct buffer *out,
                           zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    json_build_bytes(&w, key, text, size);
    json_build_object_end(&w);
    return w.status;
}

static void write_model(const struct plain_model *m, struct json_build *w)
{
    json_build_object(w, NULL);
    json_build_text(w, "id", m->id);
    json_build_text(w, "object", "model");
    json_build_int(w, "created", m->created);
    json_build_text(w, "owned_by", "zerope");
    json_build_object(w, "meta");
    json_build_uint(w, "n_ctx", m->n_ctx);
    json_build_uint(w, "n_ctx_train", m->n_ctx_train);
    json_build_uint(w, "n_vocab", m->n_vocab);
    json_build_uint(w, "n_params", m->n_params);
    json_build_uint(w, "size", m->size);
    json_build_uint(w, "n_layer", m->n_layer);
    json_build_uint(w, "layer_zeroed", m->layer_zeroed);
    json_build_object_end(w);
    json_build_object_end(w);
}

zp_status plain_write_models(const struct plain_model *models, size_t n, struct buffer *out,
                             zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "object", "list");
    json_build_array(&w, "data");
    for (size_t i = 0; i < n; i++) write_model(&models[i], &w);
    json_build_array_end(&w);
    json_build_object_end(&w);
    return w.status;
}

zp_status plain_write_model(const struct plain_model *model, struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    write_model(model, &w);
    return w.status;
}

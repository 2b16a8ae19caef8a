/* api_plain.c: tokens, embeddings, models: requests and answers. No state. */
#include "serve/api_plain.h"

#include "base/num.h"
#include "base/json_build.h"

/* ---- requests -------------------------------------------------------------------------------- */

enum { EMBED = 1, TOKENIZE = 2, DETOKENIZE = 4, EACH = 7 };

static const char *const encodings[] = { "float", "base64", NULL };

#define ROW(name, kind, sets, member, least, most, names) \
    { name, kind, sets, offsetof(struct plain_request, member), least, most, names, NULL }
#define BOOL(name, sets, member) ROW(name, FIELD_BOOL, sets, member, 0, 0, NULL)

static const struct jsonfield fields[] = {
    ROW("model", FIELD_TEXT, EACH, model, 0, 512, NULL),
    ROW("user", FIELD_TEXT, EMBED, user, 0, 1024, NULL),
    ROW("encoding_format", FIELD_NAME, EMBED, encoding, 0, 0, encodings),
    ROW("dimensions", FIELD_U32, EMBED, dimensions, 1, INT32_MAX, NULL),
    BOOL("add_special", TOKENIZE, add_special),
    BOOL("parse_special", TOKENIZE, parse_special),
    BOOL("with_pieces", TOKENIZE, with_pieces),
};

static zp_status open_request(struct plain_request *r, unsigned set, const char *body, size_t size,
                              const struct api_limits *limits, struct apifault *fault)
{
    *r = (struct plain_request){ .parse_special = true, .arena.tag = MEM_SERVE };
    ZP_TRY(apirequest_parse(&r->body, body, size, limits, fault));
    return jsonfield_read(fields, ZP_COUNT(fields), set, r->body, "", r, NULL, fault);
}

/* key: the field with the texts or ids. */
static zp_status read_prompts(struct plain_request *r, const char *key,
                              const struct api_limits *limits, struct apifault *fault)
{
    const json_t *value = json_object_get(r->body, key);
    return apirequest_read_prompts(&r->arena, json_is_null(value) ? NULL : value, key, limits,
                                   &r->prompts, &r->n_prompts, fault);
}

zp_status plain_read_embeddings(struct plain_request *r, const char *body, size_t size,
                                const struct api_limits *limits, struct apifault *fault)
{
    ZP_TRY(open_request(r, EMBED, body, size, limits, fault));
    return read_prompts(r, "input", limits, fault);
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

static zp_status write_row(struct json_build *w, const float *row, size_t width,
                           enum plain_encoding encoding, struct buffer *out, zp_err *err)
{
    if (encoding == PLAIN_FLOAT) {
        json_build_array(w, "embedding");
        for (size_t i = 0; i < width; i++) json_build_real(w, NULL, (double)row[i], 9);
        json_build_array_end(w);
        return w->status;
    }
    json_build_raw(w, "embedding", "\"", 1);
    ZP_TRY(w->status);
    ZP_TRY(add_base64(out, row, width, err));
    return buffer_append(out, "\"", 1, err);
}

zp_status plain_write_embeddings(const char *model, const float *rows, size_t n, size_t width,
                                 enum plain_encoding encoding, uint64_t n_tokens,
                                 struct buffer *out, zp_err *err)
{
    struct json_build w;
    json_build_append(&w, out, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "object", "list");
    json_build_array(&w, "data");
    for (size_t i = 0; i < n; i++) {
        json_build_object(&w, NULL);
        json_build_text(&w, "object", "embedding");
        json_build_uint(&w, "index", i);
        ZP_TRY(write_row(&w, rows + i * width, width, encoding, out, err));
        json_build_object_end(&w);
    }
    json_build_array_end(&w);
    json_build_text(&w, "model", model);
    json_build_object(&w, "usage");
    json_build_uint(&w, "prompt_tokens", n_tokens);
    json_build_uint(&w, "total_tokens", n_tokens);
    json_build_object_end(&w);
    json_build_object_end(&w);
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

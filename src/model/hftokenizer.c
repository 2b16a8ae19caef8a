/* hftokenizer.c: tokenizer.ggml.* keys as the two JSON files transformers reads.
 * Owns: the documents while they are written. Does not know: how words are merged.
 * The expressions of pretok_table.inc are valid in Oniguruma too, which the tokenizers library
 * uses; a step isolates its matches in both. */
#include "model/hftokenizer.h"

#include <string.h>

#include "base/status.h"
#include "base/json_build.h"
#include "model/pretok.h"

#define KEY(name) "tokenizer.ggml." name

static const struct pretok_row *row_of(const struct tokenizer *t)
{
    const struct tokenizer_info *info = tokenizer_get_info(t);
    if (strcmp(info->model, "gpt2") != 0) return NULL;
    return pretok_find(info->pre, strlen(info->pre));
}

bool hftokenizer_is_possible(const struct tokenizer *t)
{
    return t != NULL && row_of(t) != NULL;
}

/* ---- tokens */

static bool is_added(enum token_kind kind)
{
    return kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED || kind == TOKEN_UNKNOWN;
}

static zp_status check_text(const struct tokenizer *t, int32_t id, zp_err *err)
{
    size_t size, bad;
    const char *text = tokenizer_token_text(t, id, &size);
    ZP_FAIL_IF(!utf8_is_valid(text, size, &bad), err, ZP_UNSUPPORTED,
               "token %d is not UTF-8, which tokenizer.json needs", id);
    return ZP_OK;
}

static void write_added(struct json_build *w, const struct tokenizer *t)
{
    json_build_array(w, "added_tokens");
    for (int32_t id = 0; id < tokenizer_get_info(t)->n_vocab; id++) {
        size_t size;
        const char *text = tokenizer_token_text(t, id, &size);
        enum token_kind kind = tokenizer_token_kind(t, id);
        if (!is_added(kind)) continue;
        json_build_object(w, NULL);
        json_build_int(w, "id", id);
        json_build_bytes(w, "content", text, size);
        json_build_bool(w, "single_word", false);
        json_build_bool(w, "lstrip", false);
        json_build_bool(w, "rstrip", false);
        json_build_bool(w, "normalized", false);
        json_build_bool(w, "special", kind != TOKEN_USER_DEFINED);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

static zp_status write_vocab(struct json_build *w, const struct tokenizer *t, zp_err *err)
{
    json_build_object(w, "vocab");
    for (int32_t id = 0; id < tokenizer_get_info(t)->n_vocab; id++) {
        size_t size;
        const char *text = tokenizer_token_text(t, id, &size);
        ZP_TRY(check_text(t, id, err));
        if (size == 0) continue; /* a hole in the vocabulary */
        json_build_int(w, text, id); /* NUL-terminated; a NUL inside is no byte-level letter */
    }
    json_build_object_end(w);
    return ZP_OK;
}

static zp_status write_merges(struct json_build *w, const struct gguf *g, zp_err *err)
{
    const struct gguf_kv *merges;
    ZP_TRY(gguf_get_array(g, KEY("merges"), GGUF_STRS, &merges, err));
    json_build_array(w, "merges");
    for (uint64_t i = 0; i < merges->count; i++) {
        struct gguf_str line = gguf_item_str(merges, i);
        size_t bad;
        const char *space = memchr(line.data, ' ', line.size);
        bool good = space != NULL && utf8_is_valid(line.data, line.size, &bad) &&
                    memchr(space + 1, ' ', line.size - (size_t)(space + 1 - line.data)) == NULL;
        ZP_FAIL_IF(!good, err, ZP_UNSUPPORTED, "merge %llu is not 'left right'",
                   (unsigned long long)i);
        json_build_bytes(w, NULL, line.data, line.size);
    }
    json_build_array_end(w);
    return ZP_OK;
}

/* ---- the rest of tokenizer.json */

static void write_byte_level(struct json_build *w, const char *key)
{
    json_build_object(w, key);
    json_build_text(w, "type", "ByteLevel");
    json_build_bool(w, "add_prefix_space", false);
    json_build_bool(w, "trim_offsets", true);
    json_build_bool(w, "use_regex", false);
    json_build_object_end(w);
}

static void write_pre_tokenizer(struct json_build *w, const struct pretok_row *row)
{
    json_build_object(w, "pre_tokenizer");
    json_build_text(w, "type", "Sequence");
    json_build_array(w, "pretokenizers");
    for (size_t i = 0; i < ZP_COUNT(row->expressions) && row->expressions[i]; i++) {
        json_build_object(w, NULL);
        json_build_text(w, "type", "Split");
        json_build_object(w, "pattern");
        json_build_text(w, "Regex", row->expressions[i]);
        json_build_object_end(w);
        json_build_text(w, "behavior", "Isolated");
        json_build_bool(w, "invert", false);
        json_build_object_end(w);
    }
    write_byte_level(w, NULL);
    json_build_array_end(w);
    json_build_object_end(w);
}

static void write_special_piece(struct json_build *w, const struct tokenizer *t, int32_t id)
{
    size_t size;
    const char *text = tokenizer_token_text(t, id, &size);
    json_build_object(w, NULL);
    json_build_object(w, "SpecialToken");
    json_build_bytes(w, "id", text, size);
    json_build_int(w, "type_id", 0);
    json_build_object_end(w);
    json_build_object_end(w);
}

static void write_special_entry(struct json_build *w, const struct tokenizer *t, int32_t id)
{
    size_t size;
    const char *text = tokenizer_token_text(t, id, &size);
    json_build_object(w, text);
    json_build_bytes(w, "id", text, size);
    json_build_array(w, "ids");
    json_build_int(w, NULL, id);
    json_build_array_end(w);
    json_build_array(w, "tokens");
    json_build_bytes(w, NULL, text, size);
    json_build_array_end(w);
    json_build_object_end(w);
}

static void write_sequence(struct json_build *w, const char *name)
{
    json_build_object(w, NULL);
    json_build_object(w, "Sequence");
    json_build_text(w, "id", name);
    json_build_int(w, "type_id", 0);
    json_build_object_end(w);
    json_build_object_end(w);
}

/* BOS and EOS where the file asks for them. */
static void write_post_processor(struct json_build *w, const struct tokenizer *t)
{
    const struct tokenizer_info *info = tokenizer_get_info(t);
    if (!info->add_bos && !info->add_eos) {
        json_build_null(w, "post_processor");
        return;
    }
    json_build_object(w, "post_processor");
    json_build_text(w, "type", "TemplateProcessing");
    for (int pair = 0; pair < 2; pair++) {
        json_build_array(w, pair ? "pair" : "single");
        for (int part = 0; part <= pair; part++) {
            if (info->add_bos) write_special_piece(w, t, info->bos);
            write_sequence(w, part ? "B" : "A");
            if (info->add_eos) write_special_piece(w, t, info->eos);
        }
        json_build_array_end(w);
    }
    json_build_object(w, "special_tokens");
    if (info->add_bos) write_special_entry(w, t, info->bos);
    if (info->add_eos && !(info->add_bos && info->bos == info->eos))
        write_special_entry(w, t, info->eos);
    json_build_object_end(w);
    json_build_object_end(w);
}

static zp_status write_model(struct json_build *w, const struct gguf *g, const struct tokenizer *t,
                             zp_err *err)
{
    json_build_object(w, "model");
    json_build_text(w, "type", "BPE");
    json_build_null(w, "dropout");
    json_build_null(w, "unk_token");
    json_build_null(w, "continuing_subword_prefix");
    json_build_null(w, "end_of_word_suffix");
    json_build_bool(w, "fuse_unk", false);
    json_build_bool(w, "byte_fallback", false);
    json_build_bool(w, "ignore_merges", row_of(t)->ignore_merges);
    ZP_TRY(write_vocab(w, t, err));
    ZP_TRY(write_merges(w, g, err));
    json_build_object_end(w);
    return ZP_OK;
}

static zp_status write_document(struct json_build *w, const struct gguf *g,
                                const struct tokenizer *t, zp_err *err)
{
    json_build_object(w, NULL);
    json_build_text(w, "version", "1.0");
    json_build_null(w, "truncation");
    json_build_null(w, "padding");
    write_added(w, t);
    json_build_null(w, "normalizer");
    write_pre_tokenizer(w, row_of(t));
    write_post_processor(w, t);
    write_byte_level(w, "decoder");
    ZP_TRY(write_model(w, g, t, err));
    json_build_object_end(w);
    return ZP_OK;
}

zp_status hftokenizer_write(const struct gguf *g, const struct tokenizer *t, char **json,
                            zp_err *err)
{
    struct json_build w;
    *json = NULL;
    ZP_FAIL_IF(!hftokenizer_is_possible(t), err, ZP_UNSUPPORTED,
               "this tokenizer cannot be written as tokenizer.json (only byte-level BPE can)");
    json_build_open(&w, err);
    zp_status status = write_document(&w, g, t, err);
    zp_status finished = json_build_finish(&w, json);
    if (status == ZP_OK) return finished;
    mem_free(*json);
    *json = NULL;
    return status;
}

/* ---- tokenizer_config.json */

static void write_token(struct json_build *w, const char *key, const struct tokenizer *t,
                        int32_t id)
{
    size_t size;
    if (id == TOKEN_NONE) return;
    const char *text = tokenizer_token_text(t, id, &size);
    json_build_bytes(w, key, text, size);
}

zp_status hftokenizer_write_config(const struct tokenizer *t, uint32_t n_ctx, char **json,
                                   zp_err *err)
{
    struct json_build w;
    const struct tokenizer_info *info = tokenizer_get_info(t);
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    write_token(&w, "bos_token", t, info->bos);
    write_token(&w, "eos_token", t, info->eos);
    write_token(&w, "unk_token", t, info->unk);
    write_token(&w, "pad_token", t, info->pad);
    json_build_uint(&w, "model_max_length", n_ctx);
    json_build_bool(&w, "clean_up_tokenization_spaces", false);
    json_build_object_end(&w);
    return json_build_finish(&w, json);
}

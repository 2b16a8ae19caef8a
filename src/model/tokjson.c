/* tokjson.c: tokenizer.json -> parts of a tokenizer. Follows the file itself: its expressions, its
 * normalizers, its special tokens; what we cannot do exactly is refused by name.
 * One deviation, on purpose: special tokens are always looked for in the text as given, also where
 * the file asks for the normalised text, so that which bytes are a message's stays known. */
#include "model/tokjson.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "model/json_read.h"
#include "model/tokcomp.h"

#define MAX_HOLES 65536

/* A token while the ids are being put in order; text is a view of the JSON. */
struct json_token {
    const char *text;
    size_t size;
    double score;
    uint8_t kind, flags;
};

struct json_reader {
    struct tokenizer *t;
    const json_t *root, *config, *model;
    const char *name;
    struct json_token *tokens; /* by id; text NULL: no such token */
    size_t n;
    struct tokcomp found;
};

/* ---- tokens */

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static size_t count_of(const json_t *vocab)
{
    return json_is_object(vocab) ? json_object_size(vocab) : json_array_size(vocab);
}

static zp_status put_token(struct json_reader *r, json_int_t id, const char *text, size_t size,
                           double score, zp_err *err)
{
    ZP_FAIL_IF(id < 0 || (uint64_t)id >= r->n, err, ZP_BAD_FILE,
               "%s: token '%.60s' has id %lld (expected 0 to %zu: ids may not leave large gaps)",
               r->name, text, (long long)id, r->n - 1);
    struct json_token *token = &r->tokens[id];
    bool same = token->text != NULL && token->size == size && memcmp(token->text, text, size) == 0;
    ZP_FAIL_IF(token->text != NULL && !same, err, ZP_BAD_FILE,
               "%s: tokens '%.60s' and '%.60s' have the same id %lld", r->name, token->text, text,
               (long long)id);
    if (token->text == NULL) *token = (struct json_token){ text, size, score, TOKEN_NORMAL, 0 };
    return ZP_OK;
}

static zp_status read_vocab_object(struct json_reader *r, const json_t *vocab, zp_err *err)
{
    for (void *it = json_object_iter((json_t *)(uintptr_t)vocab); it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)vocab, it)) {
        const char *text = json_object_iter_key(it);
        const json_t *id = json_object_iter_value(it);
        ZP_FAIL_IF(!json_is_integer(id), err, ZP_BAD_FILE, "%s: the id of '%.60s' is no integer",
                   r->name, text);
        ZP_TRY(put_token(r, json_integer_value(id), text, strlen(text), 0.0, err));
    }
    return ZP_OK;
}

static zp_status read_vocab_array(struct json_reader *r, const json_t *vocab, zp_err *err)
{
    size_t i;
    const json_t *pair;
    json_array_foreach(vocab, i, pair)
    {
        const json_t *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
        ZP_FAIL_IF(!json_is_string(text) || !json_is_number(score), err, ZP_BAD_FILE,
                   "%s: item %zu of the vocabulary is not [text, score]", r->name, i);
        ZP_TRY(put_token(r, (json_int_t)i, json_string_value(text), json_string_length(text),
                         json_number_value(score), err));
    }
    return ZP_OK;
}

static bool flag_of(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static zp_status read_added(struct json_reader *r, const json_t *added, zp_err *err)
{
    size_t i;
    const json_t *item;
    json_array_foreach(added, i, item)
    {
        const json_t *id = json_object_get(item, "id"), *text = json_object_get(item, "content");
        ZP_FAIL_IF(!json_is_integer(id) || !json_is_string(text), err, ZP_BAD_FILE,
                   "%s: item %zu of added_tokens lacks id or content", r->name, i);
        ZP_TRY(put_token(r, json_integer_value(id), json_string_value(text),
                         json_string_length(text), 0.0, err));
        struct json_token *token = &r->tokens[json_integer_value(id)];
        token->kind = flag_of(item, "special") ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
        token->flags = (uint8_t)((flag_of(item, "lstrip") ? VOCAB_LSTRIP : 0) |
                                 (flag_of(item, "rstrip") ? VOCAB_RSTRIP : 0) |
                                 (flag_of(item, "single_word") ? VOCAB_SINGLE_WORD : 0) |
                                 (flag_of(item, "normalized") ? VOCAB_NORMALIZED : 0));
    }
    return ZP_OK;
}

static void mark_bytes(struct json_reader *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct json_token *token = &r->tokens[i];
        if (token->text != NULL && token->kind == TOKEN_NORMAL &&
            vocab_byte_value(token->text, token->size) >= 0)
            token->kind = TOKEN_BYTE;
    }
}

static zp_status build_vocab(struct json_reader *r, zp_err *err)
{
    struct vocab *v = &r->t->vocab;
    size_t n = r->n;
    while (n > 0 && r->tokens[n - 1].text == NULL) n--;
    ZP_FAIL_IF(n == 0, err, ZP_BAD_FILE, "%s: the vocabulary is empty", r->name);
    if (json_is_true(json_object_get(r->model, "byte_fallback"))) mark_bytes(r);
    for (size_t i = 0; i < n; i++) {
        const struct json_token *token = &r->tokens[i];
        bool hole = token->text == NULL;
        ZP_TRY(vocab_add(v, hole ? "" : token->text, hole ? 0 : token->size,
                         hole ? TOKEN_UNUSED : (enum token_kind)token->kind, token->score, err));
        v->tokens[i].flags = token->flags;
    }
    return vocab_seal(v, err);
}

static zp_status read_tokens(struct json_reader *r, zp_err *err)
{
    const json_t *vocab = member(r->model, "vocab"), *added = member(r->root, "added_tokens");
    ZP_FAIL_IF(!json_is_object(vocab) && !json_is_array(vocab), err, ZP_BAD_FILE,
               "%s: the model has no vocab", r->name);
    r->n = count_of(vocab) + count_of(added) + MAX_HOLES;
    r->tokens = mem_zalloc(MEM_SCRATCH, r->n * sizeof *r->tokens);
    ZP_FAIL_IF(r->tokens == NULL, err, ZP_NO_MEMORY, "not enough memory for %zu tokens", r->n);
    ZP_TRY(json_is_object(vocab) ? read_vocab_object(r, vocab, err)
                                 : read_vocab_array(r, vocab, err));
    ZP_TRY(read_added(r, added, err));
    return build_vocab(r, err);
}

/* ---- model */

static int32_t find_text(const struct json_reader *r, const char *text)
{
    return text == NULL ? TOKEN_NONE : vocab_find(&r->t->vocab, text, strlen(text));
}

static zp_status require_empty(const struct json_reader *r, const char *key, zp_err *err)
{
    const json_t *value = member(r->model, key);
    bool empty = value == NULL || (json_is_string(value) && json_string_length(value) == 0) ||
                 (json_is_number(value) && json_number_value(value) == 0.0);
    ZP_FAIL_IF(!empty, err, ZP_UNSUPPORTED, "%s: a BPE model with %s is not supported", r->name,
               key);
    return ZP_OK;
}

static zp_status read_merge(struct json_reader *r, const json_t *merge, uint32_t rank, zp_err *err)
{
    if (json_is_string(merge))
        return bpe_add_merge_line(&r->t->bpe, json_string_value(merge), json_string_length(merge),
                                  rank, err);
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    ZP_FAIL_IF(!json_is_string(left) || !json_is_string(right), err, ZP_BAD_FILE,
               "%s: merge %u is neither a string nor a pair of strings", r->name, rank);
    return bpe_add_merge(&r->t->bpe, json_string_value(left), json_string_length(left),
                         json_string_value(right), json_string_length(right), rank, err);
}

static zp_status read_bpe(struct json_reader *r, zp_err *err)
{
    const json_t *merges = member(r->model, "merges"), *merge;
    ZP_FAIL_IF(!json_is_array(merges) || json_array_size(merges) > UINT32_MAX, err, ZP_BAD_FILE,
               "%s: the BPE model has no list of merges", r->name);
    ZP_TRY(require_empty(r, "dropout", err));
    ZP_TRY(require_empty(r, "continuing_subword_prefix", err));
    ZP_TRY(require_empty(r, "end_of_word_suffix", err));
    struct bpe_options options = {
        .unit = r->found.byte_level ? BPE_BYTES : BPE_CHARS,
        .ignore_merges = flag_of(r->model, "ignore_merges"),
        .byte_fallback = flag_of(r->model, "byte_fallback"),
        .fuse_unk = flag_of(r->model, "fuse_unk"),
        .unk = r->t->info.unk,
    };
    ZP_TRY(bpe_init(&r->t->bpe, &r->t->vocab, options, (uint32_t)json_array_size(merges), err));
    size_t i;
    json_array_foreach(merges, i, merge) ZP_TRY(read_merge(r, merge, (uint32_t)i, err));
    r->t->model = TOKENIZER_BPE;
    return ZP_OK;
}

static zp_status read_unigram(struct json_reader *r, zp_err *err)
{
    r->t->model = TOKENIZER_UNIGRAM;
    return unigram_init(&r->t->unigram, &r->t->vocab, r->t->info.unk, err);
}

/* Old files have no type: merges tell a BPE, a list of pairs a unigram model. */
static const char *model_type(const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type != NULL) return type;
    if (json_object_get(model, "merges") != NULL) return "BPE";
    return json_is_array(json_object_get(model, "vocab")) ? "Unigram" : "";
}

static zp_status read_unknown(struct json_reader *r, bool unigram, zp_err *err)
{
    struct tokenizer *t = r->t;
    const json_t *unk = member(r->model, unigram ? "unk_id" : "unk_token");
    if (unk == NULL) return ZP_OK;
    json_int_t id = unigram ? json_integer_value(unk) : find_text(r, json_string_value(unk));
    ZP_FAIL_IF(id < 0 || id >= (json_int_t)t->vocab.n, err, ZP_BAD_FILE,
               "%s: the unknown token is not in the vocabulary", r->name);
    t->info.unk = (int32_t)id;
    if (t->vocab.tokens[id].kind == TOKEN_NORMAL) t->vocab.tokens[id].kind = TOKEN_UNKNOWN;
    return ZP_OK;
}

/* ---- ids of roles */

/* A role in tokenizer_config.json: a string or an object with content. */
static int32_t config_token(const struct json_reader *r, const char *key)
{
    const json_t *value = member(r->config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return find_text(r, json_string_value(value));
}

static void read_roles(struct json_reader *r)
{
    struct tokenizer_info *info = &r->t->info;
    int32_t before = find_text(r, r->found.bos), after = find_text(r, r->found.eos);
    info->bos = config_token(r, "bos_token");
    info->eos = config_token(r, "eos_token");
    info->pad = config_token(r, "pad_token");
    info->sep = config_token(r, "sep_token");
    info->bos = info->bos == TOKEN_NONE ? before : info->bos;
    info->eos = info->eos == TOKEN_NONE ? after : info->eos;
    info->add_bos = before != TOKEN_NONE && before == info->bos;
    info->add_eos = after != TOKEN_NONE && after == info->eos;
    const json_t *add_bos = member(r->config, "add_bos_token"),
                 *add_eos = member(r->config, "add_eos_token");
    if (json_is_boolean(add_bos) && info->bos != TOKEN_NONE) info->add_bos = json_is_true(add_bos);
    if (json_is_boolean(add_eos) && info->eos != TOKEN_NONE) info->add_eos = json_is_true(add_eos);
}

/* User-defined tokens that are looked for in normalised text; theirs is normalised first. */
static zp_status add_normalized(struct tokenizer *t, zp_err *err)
{
    struct textnorm_scratch scratch = { 0 };
    zp_status status = ZP_OK;
    for (uint32_t id = 0; id < t->vocab.n && status == ZP_OK; id++) {
        const struct vocab_token *token = &t->vocab.tokens[id];
        if (token->kind != TOKEN_USER_DEFINED || (token->flags & VOCAB_NORMALIZED) == 0) continue;
        size_t size;
        const uint8_t *text = vocab_get(&t->vocab, VOCAB_TEXT, id, &size);
        status = textnorm_run(&t->normalize, &scratch, text, size, true, &text, &size, err);
        if (status == ZP_OK) status = special_add(&t->normalized, text, size, (int32_t)id, err);
    }
    textnorm_scratch_free(&scratch);
    return status;
}

static zp_status read_all(struct json_reader *r, zp_err *err)
{
    struct tokenizer *t = r->t;
    r->model = member(r->root, "model");
    ZP_FAIL_IF(!json_is_object(r->model), err, ZP_BAD_FILE, "%s: no model", r->name);
    const char *type = model_type(r->model);
    bool unigram = strcmp(type, "Unigram") == 0;
    ZP_FAIL_IF(!unigram && strcmp(type, "BPE") != 0, err, ZP_UNSUPPORTED,
               "%s: model '%.60s' is not supported (expected BPE or Unigram)", r->name, type);
    t->info.model = "tokenizer.json";
    ZP_TRY(tokcomp_read_normalizer(t, member(r->root, "normalizer"), err));
    ZP_TRY(tokcomp_read_pretok(t, member(r->root, "pre_tokenizer"), &r->found, err));
    ZP_TRY(tokcomp_read_decoder(t, member(r->root, "decoder"), &r->found, err));
    ZP_TRY(tokcomp_read_processor(member(r->root, "post_processor"), &r->found, err));
    ZP_FAIL_IF(unigram && r->found.byte_level, err, ZP_UNSUPPORTED,
               "%s: a Unigram model over ByteLevel", r->name);
    ZP_TRY(read_tokens(r, err));
    ZP_TRY(
        tokenizer_set_bytes(t, r->found.byte_level ? TOKEN_BYTES_LEVEL : TOKEN_BYTES_MARKS, err));
    ZP_TRY(read_unknown(r, unigram, err));
    ZP_TRY(unigram ? read_unigram(r, err) : read_bpe(r, err));
    read_roles(r);
    ZP_TRY(add_normalized(t, err));
    return tokenizer_finish(t, SPECIAL_LEFTMOST, err);
}

static zp_status fill_from(struct tokenizer *t, json_t *root, json_t *config, const char *name,
                           zp_err *err)
{
    struct json_reader r = { .t = t, .root = root, .config = config, .name = name };
    zp_status status = read_all(&r, err);
    mem_free(r.tokens);
    return status;
}

zp_status tokjson_fill(struct tokenizer *t, struct gguf_str json, struct gguf_str config,
                       const char *name, zp_err *err)
{
    char at_json[160], at_config[160];
    json_t *root = NULL, *settings = NULL;
    snprintf(at_json, sizeof at_json, "%.100s: tokenizer.json", gguf_label(name));
    snprintf(at_config, sizeof at_config, "%.100s: tokenizer_config.json", gguf_label(name));
    zp_status status = json_read_text(json.data, json.size, at_json, &root, err);
    if (status == ZP_OK && config.data != NULL)
        status = json_read_text(config.data, config.size, at_config, &settings, err);
    if (status == ZP_OK) status = fill_from(t, root, settings, at_json, err);
    json_decref(settings);
    json_decref(root);
    return status;
}

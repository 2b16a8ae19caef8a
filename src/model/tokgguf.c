/* tokgguf.c: tokenizer.ggml.* keys -> parts of a tokenizer, with llama.cpp's defaults where the
 * file is silent and errors where llama.cpp guesses (a missing or unknown pre-tokeniser). */
#include "model/tokgguf.h"
#include <ctype.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"

#define KEY(name) "tokenizer.ggml." name

static enum token_kind kind_of(int64_t value)
{
    return value >= TOKEN_UNDEFINED && value <= TOKEN_BYTE ? (enum token_kind)value
                                                           : TOKEN_UNDEFINED;
}

static zp_status check_length(const struct gguf_kv *kv, uint64_t n, zp_err *err)
{
    ZP_FAIL_IF(kv != NULL && kv->count != n, err, ZP_BAD_FILE,
               "%s has %llu items, the vocabulary %llu", kv->name, (unsigned long long)kv->count,
               (unsigned long long)n);
    return ZP_OK;
}

static zp_status read_tokens(struct tokenizer *t, const struct gguf *g, zp_err *err)
{
    const struct gguf_kv *texts, *types, *scores;
    ZP_TRY(gguf_get_array(g, KEY("tokens"), GGUF_STRS, &texts, err));
    ZP_FAIL_IF(texts->count == 0 || texts->count > VOCAB_MAX_TOKENS, err, ZP_BAD_FILE,
               KEY("tokens") " has %llu items (expected 1 to %zu)",
               (unsigned long long)texts->count, VOCAB_MAX_TOKENS);
    ZP_TRY(gguf_find_array(g, KEY("token_type"), GGUF_ANY_INT, &types, err));
    ZP_TRY(check_length(types, texts->count, err));
    ZP_TRY(gguf_find_array(g, KEY("scores"), GGUF_ANY_FLOAT, &scores, err));
    ZP_TRY(check_length(scores, texts->count, err));
    ZP_FAIL_IF(scores == NULL && t->model != TOKENIZER_BPE, err, ZP_BAD_FILE,
               "key " KEY("scores") " is missing (a '%s' tokenizer needs it)", t->info.model);
    ZP_TRY(vocab_reserve(&t->vocab, (uint32_t)texts->count, texts->bytes - 8 * texts->count, err));
    for (uint64_t i = 0; i < texts->count; i++) {
        struct gguf_str text = gguf_item_str(texts, i);
        enum token_kind kind = types == NULL ? TOKEN_NORMAL : kind_of(gguf_item_int(types, i));
        if (types == NULL && t->model != TOKENIZER_BPE &&
            vocab_byte_value(text.data, text.size) >= 0)
            kind = TOKEN_BYTE;
        double score = scores == NULL ? 0.0 : gguf_item_float(scores, i);
        ZP_TRY(vocab_add(&t->vocab, text.data, text.size, kind, score, err));
    }
    return vocab_seal(&t->vocab, err);
}

/* fallback: what the kind of tokenizer implies when the key is absent; dropped if out of range. */
static zp_status read_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                         int32_t fallback, int32_t *out, zp_err *err)
{
    uint32_t id;
    *out = fallback >= 0 && (uint32_t)fallback < t->vocab.n ? fallback : TOKEN_NONE;
    if (gguf_find_key(g, key) == NULL) return ZP_OK;
    ZP_TRY(gguf_get_u32(g, key, &id, err));
    ZP_FAIL_IF(id >= t->vocab.n && id != UINT32_MAX, err, ZP_BAD_FILE,
               "%s is %u, the vocabulary has %u tokens", key, id, t->vocab.n);
    *out = id == UINT32_MAX ? TOKEN_NONE : (int32_t)id;
    return ZP_OK;
}

static zp_status read_ids(struct tokenizer *t, const struct gguf *g, zp_err *err)
{
    struct tokenizer_info *info = &t->info;
    bool spm = t->model == TOKENIZER_SPM, unigram = t->model == TOKENIZER_UNIGRAM;
    const struct {
        const char *key;
        int32_t fallback;
        int32_t *out;
    } ids[] = {
        { KEY("bos_token_id"), spm ? 1 : TOKEN_NONE, &info->bos },
        { KEY("eos_token_id"),
          spm       ? 2
          : unigram ? 1
                    : TOKEN_NONE,
          &info->eos },
        { KEY("unknown_token_id"),
          spm       ? 0
          : unigram ? 2
                    : TOKEN_NONE,
          &info->unk },
        { KEY("eot_token_id"), TOKEN_NONE, &info->eot },
        { KEY("eom_token_id"), TOKEN_NONE, &info->eom },
        { KEY("padding_token_id"), unigram ? 0 : TOKEN_NONE, &info->pad },
        { KEY("seperator_token_id"), TOKEN_NONE,
          &info->sep }, /* sic: the spelling most files have */
        { KEY("prefix_token_id"), TOKEN_NONE, &info->fim_prefix },
        { KEY("suffix_token_id"), TOKEN_NONE, &info->fim_suffix },
        { KEY("middle_token_id"), TOKEN_NONE, &info->fim_middle },
    };
    for (size_t i = 0; i < ZP_COUNT(ids); i++)
        ZP_TRY(read_id(t, g, ids[i].key, ids[i].fallback, ids[i].out, err));
    ZP_TRY(read_id(t, g, KEY("separator_token_id"), info->sep, &info->sep, err));
    ZP_TRY(read_id(t, g, KEY("fim_pre_token_id"), info->fim_prefix, &info->fim_prefix, err));
    ZP_TRY(read_id(t, g, KEY("fim_suf_token_id"), info->fim_suffix, &info->fim_suffix, err));
    ZP_TRY(read_id(t, g, KEY("fim_mid_token_id"), info->fim_middle, &info->fim_middle, err));
    ZP_TRY(gguf_get_bool_or(g, KEY("add_bos_token"), info->add_bos, &info->add_bos, err));
    ZP_TRY(gguf_get_bool_or(g, KEY("add_eos_token"), info->add_eos, &info->add_eos, err));
    ZP_FAIL_IF(info->add_bos && info->bos == TOKEN_NONE, err, ZP_BAD_FILE,
               "the tokenizer adds a BOS token, but the file names none (" KEY("bos_token_id") ")");
    ZP_FAIL_IF(
        info->add_eos && info->eos == TOKEN_NONE, err, ZP_BAD_FILE,
        "the tokenizer adds an EOS token, but the file names none (" KEY("eos_token_id") ")");
    return ZP_OK;
}

/* ---- byte-level BPE */

static zp_status choose_pretok(struct tokenizer *t, const struct gguf *g, const char *pre_override,
                               const struct pretok_row **row, zp_err *err)
{
    struct gguf_str name;
    char known[320];
    ZP_TRY(gguf_get_str_or_null(g, KEY("pre"), &name, err));
    if (pre_override != NULL) name = (struct gguf_str){ pre_override, strlen(pre_override) };
    pretok_list_names(known, sizeof known);
    ZP_FAIL_IF(name.data == NULL, err, ZP_UNSUPPORTED,
               "the file names no pre-tokeniser (" KEY("pre") "); say which with --pre NAME: %s",
               known);
    *row = pretok_find(name.data, name.size);
    ZP_FAIL_IF(*row == NULL, err, ZP_UNSUPPORTED,
               "unknown pre-tokeniser '%.*s'; if it equals a known one, say so with --pre NAME: %s",
               (int)(name.size < 48 ? name.size : 48), name.data, known);
    t->pre_name = mem_strndup(MEM_TOKENIZER, name.data, name.size);
    ZP_FAIL_IF(t->pre_name == NULL, err, ZP_NO_MEMORY, "not enough memory for a name");
    t->info.pre = t->pre_name;
    return ZP_OK;
}

static zp_status read_merges(struct tokenizer *t, const struct gguf *g, struct bpe_options options,
                             zp_err *err)
{
    const struct gguf_kv *merges;
    ZP_TRY(gguf_get_array(g, KEY("merges"), GGUF_STRS, &merges, err));
    ZP_FAIL_IF(merges->count > UINT32_MAX, err, ZP_BAD_FILE, KEY("merges") " has %llu items",
               (unsigned long long)merges->count);
    ZP_TRY(bpe_init(&t->bpe, &t->vocab, options, (uint32_t)merges->count, err));
    for (uint32_t i = 0; i < merges->count; i++) {
        struct gguf_str line = gguf_item_str(merges, i);
        ZP_TRY(bpe_add_merge_line(&t->bpe, line.data, line.size, i, err));
    }
    return ZP_OK;
}

static zp_status fill_bpe(struct tokenizer *t, const struct gguf *g, const char *pre_override,
                          zp_err *err)
{
    const struct pretok_row *row;
    ZP_TRY(choose_pretok(t, g, pre_override, &row, err));
    ZP_TRY(pretok_open_row(&t->pretok, row, t->pre_name, err));
    t->info.add_bos = row->add_bos;
    ZP_TRY(read_tokens(t, g, err));
    ZP_TRY(tokenizer_set_bytes(t, TOKEN_BYTES_LEVEL, err));
    ZP_TRY(read_ids(t, g, err));
    struct bpe_options options = { .unit = BPE_BYTES,
                                   .ignore_merges = row->ignore_merges,
                                   .unk = t->info.unk };
    return read_merges(t, g, options, err);
}

/* ---- SentencePiece */

static zp_status fill_spm(struct tokenizer *t, const struct gguf *g, zp_err *err)
{
    t->info.add_bos = true;
    ZP_TRY(gguf_get_bool_or(g, KEY("add_space_prefix"), true, &t->info.add_space_prefix, err));
    if (t->info.add_space_prefix)
        ZP_TRY(textnorm_add(&t->normalize, NORM_PREPEND, " ", 1, NULL, 0, NULL, err));
    ZP_TRY(textnorm_add(&t->normalize, NORM_REPLACE, " ", 1, "\xE2\x96\x81", 3, NULL, err));
    t->strip_left = t->info.add_space_prefix;
    ZP_TRY(read_tokens(t, g, err));
    ZP_TRY(tokenizer_set_bytes(t, TOKEN_BYTES_MARKS, err));
    ZP_TRY(read_ids(t, g, err));
    return spm_init(&t->spm, &t->vocab, t->info.unk, err);
}

static zp_status read_charsmap(struct tokenizer *t, const struct gguf *g, zp_err *err)
{
    const struct gguf_kv *blob;
    ZP_TRY(gguf_find_array(g, KEY("precompiled_charsmap"), GGUF_ANY_INT, &blob, err));
    if (blob == NULL || blob->count == 0) return ZP_OK;
    ZP_FAIL_IF(blob->type != GGUF_U8 && blob->type != GGUF_I8, err, ZP_BAD_FILE,
               KEY("precompiled_charsmap") " is an array of %s (expected bytes)",
               gguf_type_name(blob->type));
    struct textnorm_step *step;
    ZP_TRY(textnorm_add(&t->normalize, NORM_CHARSMAP, NULL, 0, NULL, 0, &step, err));
    ZP_TRY(charsmap_init(&step->map, blob->data, blob->bytes, err));
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        size_t size;
        const uint8_t *text = vocab_get(&t->vocab, VOCAB_TEXT, id, &size);
        if (t->vocab.tokens[id].kind == TOKEN_USER_DEFINED && size > 0)
            ZP_TRY(trie_add(&t->normalize.protect, text, size, (int32_t)id, err));
    }
    return ZP_OK;
}

static zp_status fill_unigram(struct tokenizer *t, const struct gguf *g, zp_err *err)
{
    bool suffix, merge;
    struct textnorm_step *spaces;
    t->info.add_eos = true;
    ZP_TRY(read_tokens(t, g, err));
    ZP_TRY(tokenizer_set_bytes(t, TOKEN_BYTES_MARKS, err));
    ZP_TRY(read_ids(t, g, err));
    ZP_TRY(gguf_get_bool_or(g, KEY("add_space_prefix"), false, &t->info.add_space_prefix, err));
    ZP_TRY(gguf_get_bool_or(g, KEY("remove_extra_whitespaces"), false, &merge, err));
    ZP_TRY(gguf_get_bool_or(g, KEY("treat_whitespace_as_suffix"), false, &suffix, err));
    ZP_TRY(read_charsmap(t, g, err));
    ZP_TRY(textnorm_add(&t->normalize, NORM_UNIGRAM_SPACES, NULL, 0, NULL, 0, &spaces, err));
    spaces->prefix = t->info.add_space_prefix && !suffix;
    spaces->suffix = t->info.add_space_prefix && suffix;
    spaces->merge = merge;
    t->strip_left = spaces->prefix;
    return unigram_init(&t->unigram, &t->vocab, t->info.unk, err);
}

/* ---- all */

/* Phi-3 was trained so, but its files do not say it: white space after a special token goes. */
static void apply_phi3_rule(struct tokenizer *t, const struct gguf *g)
{
    const struct gguf_kv *kv = gguf_find_key(g, "general.name");
    if (kv == NULL || kv->is_array || kv->type != GGUF_STR) return;
    struct gguf_str name = gguf_item_str(kv, 0);
    char lower[128];
    size_t n = name.size < sizeof lower - 1 ? name.size : sizeof lower - 1;
    for (size_t i = 0; i < n; i++) lower[i] = (char)tolower((unsigned char)name.data[i]);
    lower[n] = '\0';
    if (strstr(lower, "phi-3") == NULL && strstr(lower, "phi3") == NULL) return;
    static const char *const exempt[] = { "<unk>", "<s>", "<|endoftext|>" };
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        uint8_t kind = t->vocab.tokens[id].kind;
        if (kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED || kind == TOKEN_UNKNOWN)
            t->vocab.tokens[id].flags |= VOCAB_RSTRIP;
    }
    for (size_t i = 0; i < ZP_COUNT(exempt); i++) {
        int32_t id = vocab_find(&t->vocab, exempt[i], strlen(exempt[i]));
        if (id != TOKEN_NONE) t->vocab.tokens[id].flags &= (uint8_t)~VOCAB_RSTRIP;
    }
}

zp_status tokgguf_fill(struct tokenizer *t, const struct gguf *g, const char *pre_override,
                       zp_err *err)
{
    struct gguf_str model;
    ZP_TRY(gguf_get_str(g, KEY("model"), &model, err));
    bool bpe = gguf_str_is(model, "gpt2"), spm = gguf_str_is(model, "llama"),
         unigram = gguf_str_is(model, "t5");
    ZP_FAIL_IF(!bpe && !spm && !unigram, err, ZP_UNSUPPORTED,
               "tokenizer model '%.*s' is not supported (expected gpt2, llama or t5)",
               (int)(model.size < 64 ? model.size : 64), model.data);
    ZP_FAIL_IF(pre_override != NULL && !bpe, err, ZP_USAGE,
               "a pre-tokeniser was given, but this model's tokenizer ('%.*s') has none",
               (int)model.size, model.data);
    t->model = bpe ? TOKENIZER_BPE : spm ? TOKENIZER_SPM : TOKENIZER_UNIGRAM;
    t->info.model = bpe ? "gpt2" : spm ? "llama" : "t5";
    ZP_TRY(bpe   ? fill_bpe(t, g, pre_override, err)
           : spm ? fill_spm(t, g, err)
                 : fill_unigram(t, g, err));
    apply_phi3_rule(t, g);
    return tokenizer_finish(t, SPECIAL_LONGEST, err);
}

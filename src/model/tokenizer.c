/* tokenizer.c: the public tokenizer: encoding and decoding over the parts the openers built.
 * Owns: the order of the stages. Does not know: file formats, merges, expressions.
 * T1 text that is not UTF-8 is refused with its offset.  T2 nothing of a tokenizer changes after
 * open, except the per-token "whole word" notes, which are atomic and always set to the same value.
 * T3 a failed call leaves the caller's list or buffer as it was. */
#include "model/tokenizer.h"
#include <string.h>
#include "base/mem.h"
#include "model/tokenizer_parts.h"
#include "model/tokgguf.h"
#include "model/tokjson.h"

/* ---- token lists */

zp_status token_list_push(struct token_list *list, int32_t id, zp_err *err)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 64 : list->room * 2;
        int32_t *ids = mem_resize(MEM_SCRATCH, list->ids, room * sizeof *ids);
        ZP_FAIL_IF(ids == NULL, err, ZP_NO_MEMORY, "not enough memory for tokens (%zu bytes)",
                   room * sizeof *ids);
        list->ids = ids;
        list->room = room;
    }
    list->ids[list->count++] = id;
    return ZP_OK;
}

void token_list_clear(struct token_list *list)
{
    list->count = 0;
}

void token_list_free(struct token_list *list)
{
    mem_free(list->ids);
    *list = (struct token_list){ 0 };
}

/* ---- opening */

static zp_status create(struct tokenizer **out, zp_err *err)
{
    struct tokenizer *t = mem_zalloc(MEM_TOKENIZER, sizeof *t);
    ZP_FAIL_IF(t == NULL, err, ZP_NO_MEMORY, "not enough memory for a tokenizer");
    struct tokenizer_info *info = &t->info;
    info->model = info->pre = "";
    info->bos = info->eos = info->eot = info->eom = info->unk = info->pad = info->sep = TOKEN_NONE;
    info->fim_prefix = info->fim_suffix = info->fim_middle = TOKEN_NONE;
    *out = t;
    return ZP_OK;
}

static zp_status finish_open(struct tokenizer **out, zp_status status)
{
    if (status != ZP_OK) {
        tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

zp_status tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g,
                              const char *pre_override, zp_err *err)
{
    *out = NULL;
    ZP_TRY(create(out, err));
    return finish_open(out, tokgguf_fill(*out, g, pre_override, err));
}

zp_status tokenizer_open_json(struct tokenizer **out, struct gguf_str json, struct gguf_str config,
                              const char *name, zp_err *err)
{
    *out = NULL;
    ZP_TRY(create(out, err));
    return finish_open(out, tokjson_fill(*out, json, config, name, err));
}

void tokenizer_close_parts(struct tokenizer *t)
{
    vocab_free(&t->vocab);
    special_free(&t->raw);
    special_free(&t->normalized);
    textnorm_free(&t->normalize);
    textnorm_free(&t->prepare);
    pretok_close(&t->pretok);
    pretok_close(&t->words);
    bpe_free(&t->bpe);
    spm_free(&t->spm);
    unigram_free(&t->unigram);
    mem_free(t->pre_name);
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL) return;
    tokenizer_close_parts(t);
    mem_free(t);
}

/* Control and user-defined tokens stand for their text as it is. */
static zp_status set_level_bytes(struct vocab *v, uint32_t id, uint8_t *scratch, zp_err *err)
{
    size_t size, n;
    const uint8_t *text = vocab_get(v, VOCAB_TEXT, id, &size);
    uint8_t kind = v->tokens[id].kind;
    bool literal = kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN || kind == TOKEN_USER_DEFINED;
    if (literal || !bpe_text_bytes((const char *)text, size, scratch, &n)) return ZP_OK;
    return n == size ? ZP_OK : vocab_set_bytes(v, id, scratch, n, err);
}

/* scratch holds the text's size. */
static zp_status set_marked_bytes(struct vocab *v, uint32_t id, uint8_t *scratch, zp_err *err)
{
    size_t size, n = 0;
    const uint8_t *text = vocab_get(v, VOCAB_TEXT, id, &size);
    uint8_t kind = v->tokens[id].kind, byte = (uint8_t)vocab_byte_value(text, size);
    if (kind == TOKEN_BYTE && vocab_byte_value(text, size) >= 0)
        return vocab_set_bytes(v, id, &byte, 1, err);
    if (kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN || kind == TOKEN_USER_DEFINED) return ZP_OK;
    for (size_t i = 0; i < size; n++) {
        bool mark = size - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        scratch[n] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    return n == size ? ZP_OK : vocab_set_bytes(v, id, scratch, n, err);
}

zp_status tokenizer_set_bytes(struct tokenizer *t, enum token_bytes_rule rule, zp_err *err)
{
    struct vocab *v = &t->vocab;
    size_t longest = 0;
    for (uint32_t id = 0; id < v->n; id++)
        longest = v->tokens[id].span[VOCAB_TEXT].size > longest
                      ? v->tokens[id].span[VOCAB_TEXT].size
                      : longest;
    uint8_t *scratch = mem_alloc(MEM_SCRATCH, longest + 1);
    ZP_FAIL_IF(scratch == NULL, err, ZP_NO_MEMORY, "not enough memory for a token of %zu bytes",
               longest);
    zp_status status = ZP_OK;
    for (uint32_t id = 0; id < v->n && status == ZP_OK; id++)
        status = rule == TOKEN_BYTES_LEVEL ? set_level_bytes(v, id, scratch, err)
                                           : set_marked_bytes(v, id, scratch, err);
    mem_free(scratch);
    return status;
}

/* Names of tokens that end a generation. sure: the name means nothing else, so the token is treated
 * as control even where the file calls it normal; others count only if the file says control. */
/* clang-format off */
static const struct { const char *name; bool sure, eot; } end_names[] = {
    {"<|eot_id|>", true, true}, {"<|im_end|>", true, true}, {"<|end|>", true, true},
    {"<end_of_turn>", true, true}, {"<|endoftext|>", true, true}, {"<|end_of_text|>", true, true},
    {"<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", true, true},
    {"<end_of_utterance>", true, true}, {"<|eom_id|>", true, false}, {"<|return|>", true, false},
    {"<|call|>", true, false}, {"<|calls|>", true, false}, {"<|flush|>", true, false},
    {"<turn|>", true, false}, {"<|tool_response>", true, false}, {"[e~[", true, false},
    {"<|fim_pad|>", true, false}, {"<|repo_name|>", true, false}, {"<|file_sep|>", true, false},
    {"<EOT>", false, true}, {"_<EOT>", false, true}, {"[EOT]", false, true},
    {"[EOS]", false, false}, {"<eos>", false, false}, {"</s>", false, false},
};
/* clang-format on */

static int32_t find_name(const struct tokenizer *t, const char *name)
{
    return vocab_find(&t->vocab, name, strlen(name));
}

static void mark_end(struct tokenizer *t, int32_t id)
{
    if (id != TOKEN_NONE) t->vocab.tokens[id].flags |= VOCAB_EOG;
}

static void mark_ends(struct tokenizer *t, bool trust_names)
{
    struct vocab *v = &t->vocab;
    for (size_t i = 0; i < ZP_COUNT(end_names); i++) {
        int32_t id = find_name(t, end_names[i].name);
        uint8_t kind = id == TOKEN_NONE ? TOKEN_NORMAL : v->tokens[id].kind;
        bool sure = end_names[i].sure && (trust_names || kind == TOKEN_USER_DEFINED);
        if (id == TOKEN_NONE || !(sure || kind == TOKEN_CONTROL)) continue;
        if (trust_names) v->tokens[id].kind = TOKEN_CONTROL;
        mark_end(t, id);
        if (t->info.eot == TOKEN_NONE && end_names[i].eot) t->info.eot = id;
    }
    if (t->info.eom == TOKEN_NONE) t->info.eom = find_name(t, "<|eom_id|>");
    mark_end(t, t->info.eos);
    mark_end(t, t->info.eot);
    mark_end(t, t->info.eom);
    /* Harmony-like formats: <|end|> only ends a part of the answer. */
    int32_t end = find_name(t, "<|end|>");
    bool call = find_name(t, "<|call|>") != TOKEN_NONE || find_name(t, "<|calls|>") != TOKEN_NONE;
    bool more = find_name(t, "<|return|>") != TOKEN_NONE || find_name(t, "<|flush|>") != TOKEN_NONE;
    if (end != TOKEN_NONE && end != t->info.eos && call && more)
        v->tokens[end].flags &= (uint8_t)~VOCAB_EOG;
}

zp_status tokenizer_finish(struct tokenizer *t, enum special_rule rule, zp_err *err)
{
    struct vocab *v = &t->vocab;
    t->info.n_vocab = (int32_t)v->n;
    t->raw.rule = t->normalized.rule = rule;
    mark_ends(t, rule == SPECIAL_LONGEST); /* a tokenizer.json knows its special tokens */
    for (uint32_t id = 0; id < v->n; id++) {
        size_t size;
        const uint8_t *text = vocab_get(v, VOCAB_TEXT, id, &size);
        bool special = vocab_is_special(v, id);
        if (!special && v->tokens[id].kind != TOKEN_USER_DEFINED) continue;
        if (special || (v->tokens[id].flags & VOCAB_NORMALIZED) == 0)
            ZP_TRY(special_add(&t->raw, text, size, (int32_t)id, err));
    }
    return ZP_OK;
}

/* ---- questions */

const struct tokenizer_info *tokenizer_get_info(const struct tokenizer *t)
{
    return &t->info;
}

static bool in_range(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n;
}

const char *tokenizer_token_text(const struct tokenizer *t, int32_t id, size_t *size)
{
    return (const char *)vocab_get(&t->vocab, VOCAB_TEXT, (uint32_t)id, size);
}

const uint8_t *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *size)
{
    return vocab_get(&t->vocab, VOCAB_BYTES, (uint32_t)id, size);
}

enum token_kind tokenizer_token_kind(const struct tokenizer *t, int32_t id)
{
    return (enum token_kind)t->vocab.tokens[id].kind;
}

float tokenizer_token_score(const struct tokenizer *t, int32_t id)
{
    return (float)t->vocab.tokens[id].score;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) && (t->vocab.tokens[id].flags & VOCAB_EOG) != 0;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) && vocab_is_special(&t->vocab, (uint32_t)id);
}

int32_t tokenizer_find_token(const struct tokenizer *t, const char *text, size_t size)
{
    return vocab_find(&t->vocab, text, size);
}

/* ---- encoding */

/* Memory of one call. */
struct encoder {
    const struct tokenizer *t;
    struct token_list *out;
    struct fragment_list raw, normalized;
    struct textnorm_scratch normalize, prepare;
    struct pretok_scratch pretok, words;
    struct merger merger;
};

static void encoder_free(struct encoder *e)
{
    fragment_list_free(&e->raw);
    fragment_list_free(&e->normalized);
    textnorm_scratch_free(&e->normalize);
    textnorm_scratch_free(&e->prepare);
    pretok_scratch_free(&e->pretok);
    pretok_scratch_free(&e->words);
    merger_free(&e->merger);
}

static zp_status encode_word(struct encoder *e, const uint8_t *word, size_t size, zp_err *err)
{
    const struct tokenizer *t = e->t;
    switch (t->model) {
    case TOKENIZER_BPE: return bpe_encode(&t->bpe, &e->merger, word, size, e->out, err);
    case TOKENIZER_SPM: return spm_encode(&t->spm, &e->merger, word, size, e->out, err);
    case TOKENIZER_UNIGRAM: return unigram_encode(&t->unigram, word, size, e->out, err);
    }
    return ZP_OK;
}

/* Only tokenizer.json has anything after the first cut. */
static zp_status encode_piece(struct encoder *e, const uint8_t *piece, size_t size, bool at_start,
                              zp_err *err)
{
    const struct tokenizer *t = e->t;
    if (t->prepare.n_steps == 0) return encode_word(e, piece, size, err);
    const struct pretok_pieces *words;
    ZP_TRY(textnorm_run(&t->prepare, &e->prepare, piece, size, at_start, &piece, &size, err));
    ZP_TRY(pretok_split(&t->words, &e->words, piece, size, &words, err));
    for (size_t i = 0; i < words->count; i++)
        ZP_TRY(encode_word(e, piece + words->items[i].begin,
                           words->items[i].end - words->items[i].begin, err));
    return ZP_OK;
}

static zp_status encode_pieces(struct encoder *e, const uint8_t *text, size_t size, bool at_start,
                               zp_err *err)
{
    const struct pretok_pieces *pieces;
    ZP_TRY(pretok_split(&e->t->pretok, &e->pretok, text, size, &pieces, err));
    for (size_t i = 0; i < pieces->count; i++) {
        struct pretok_piece p = pieces->items[i];
        ZP_TRY(encode_piece(e, text + p.begin, p.end - p.begin, at_start && p.begin == 0, err));
    }
    return ZP_OK;
}

/* A stretch of text without raw special tokens. */
static zp_status encode_text(struct encoder *e, const uint8_t *text, size_t size, bool at_start,
                             zp_err *err)
{
    const struct tokenizer *t = e->t;
    ZP_TRY(textnorm_run(&t->normalize, &e->normalize, text, size, at_start, &text, &size, err));
    struct special_run run = { size, false };
    struct special_runs runs = { &run, 1 };
    ZP_TRY(special_split(&t->normalized, &t->vocab, text, size, runs, &e->normalized, err));
    for (size_t i = 0; i < e->normalized.count; i++) {
        struct fragment f = e->normalized.items[i];
        if (f.id != TOKEN_NONE) {
            ZP_TRY(token_list_push(e->out, f.id, err));
            continue;
        }
        ZP_TRY(encode_pieces(e, text + f.begin, f.end - f.begin, at_start && f.begin == 0, err));
    }
    return ZP_OK;
}

static zp_status encode_body(struct encoder *e, const uint8_t *text, size_t size,
                             struct special_runs runs, unsigned flags, zp_err *err)
{
    const struct tokenizer_info *info = &e->t->info;
    size_t bad;
    ZP_FAIL_IF(size > TOKENIZER_MAX_TEXT, err, ZP_BAD_INPUT, "the text has %zu bytes (limit %zu)",
               size, TOKENIZER_MAX_TEXT);
    ZP_FAIL_IF(!utf8_is_valid((const char *)text, size, &bad), err, ZP_BAD_INPUT,
               "the text is not UTF-8: byte 0x%02X at offset %zu; convert it first", text[bad],
               bad);
    bool bos = (flags & TOKENIZE_BOS) || ((flags & TOKENIZE_AUTO) && info->add_bos);
    bool eos = (flags & TOKENIZE_EOS) || ((flags & TOKENIZE_AUTO) && info->add_eos);
    ZP_FAIL_IF(bos && info->bos == TOKEN_NONE, err, ZP_BAD_INPUT,
               "BOS was asked for, but this model has none");
    ZP_FAIL_IF(eos && info->eos == TOKEN_NONE, err, ZP_BAD_INPUT,
               "EOS was asked for, but this model has none");
    if (bos) ZP_TRY(token_list_push(e->out, info->bos, err));
    ZP_TRY(special_split(&e->t->raw, &e->t->vocab, text, size, runs, &e->raw, err));
    for (size_t i = 0; i < e->raw.count; i++) {
        struct fragment f = e->raw.items[i];
        if (f.id != TOKEN_NONE) ZP_TRY(token_list_push(e->out, f.id, err));
        else ZP_TRY(encode_text(e, text + f.begin, f.end - f.begin, f.begin == 0, err));
    }
    return eos ? token_list_push(e->out, info->eos, err) : ZP_OK;
}

static zp_status encode_runs(const struct tokenizer *t, const char *text, size_t size,
                             struct special_runs runs, unsigned flags, struct token_list *out,
                             zp_err *err)
{
    struct encoder e = { .t = t, .out = out };
    size_t before = out->count;
    zp_status status = encode_body(&e, (const uint8_t *)text, size, runs, flags, err);
    if (status != ZP_OK) out->count = before; // T3
    encoder_free(&e);
    return status;
}

zp_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, unsigned flags,
                           struct token_list *out, zp_err *err)
{
    struct special_run run = { size, (flags & TOKENIZE_SPECIAL) != 0 };
    return encode_runs(t, text, size, (struct special_runs){ &run, 1 }, flags, out, err);
}

static zp_status join_segments(const struct text_segment *segments, size_t n, struct buffer *text,
                               struct special_run *runs, size_t *n_runs, zp_err *err)
{
    *n_runs = 0;
    for (size_t i = 0; i < n; i++) {
        ZP_TRY(buffer_append(text, segments[i].text, segments[i].size, err));
        if (*n_runs > 0 && runs[*n_runs - 1].allowed == segments[i].is_template)
            runs[*n_runs - 1].end = text->size;
        else runs[(*n_runs)++] = (struct special_run){ text->size, segments[i].is_template };
    }
    return ZP_OK;
}

zp_status tokenizer_encode_segments(const struct tokenizer *t, const struct text_segment *segments,
                                    size_t n_segments, unsigned flags, struct token_list *out,
                                    zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_SCRATCH, TOKENIZER_MAX_TEXT);
    struct special_run *runs;
    size_t n_runs;
    ZP_ALLOC(runs, MEM_SCRATCH, n_segments + 1, err, "text segments");
    zp_status status = join_segments(segments, n_segments, &text, runs, &n_runs, err);
    if (status == ZP_OK)
        status = encode_runs(t, (const char *)text.data, text.size,
                             (struct special_runs){ runs, n_runs }, flags, out, err);
    mem_free(runs);
    buffer_free(&text);
    return status;
}

/* ---- decoding */

zp_status tokenizer_decode_token(const struct tokenizer *t, int32_t id, unsigned flags,
                                 struct buffer *out, zp_err *err)
{
    ZP_FAIL_IF(!in_range(t, id), err, ZP_BAD_INPUT,
               "token id %d is out of range (the vocabulary has %u)", id, t->vocab.n);
    if (vocab_is_special(&t->vocab, (uint32_t)id) && (flags & DETOKENIZE_SPECIAL) == 0)
        return ZP_OK;
    size_t size;
    const uint8_t *bytes = vocab_get(&t->vocab, VOCAB_BYTES, (uint32_t)id, &size);
    return buffer_append(out, bytes, size, err);
}

static void strip_left(struct buffer *b, size_t from, uint32_t n)
{
    size_t drop = 0;
    while (drop < n && from + drop < b->size && b->data[from + drop] == ' ') drop++;
    memmove(b->data + from, b->data + from + drop, b->size - from - drop + 1); /* with the NUL */
    b->size -= drop;
}

zp_status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                           struct buffer *out, zp_err *err)
{
    size_t before = out->size;
    bool strip = t->strip_left > 0 && (flags & DETOKENIZE_CONTINUES) == 0;
    zp_status status = ZP_OK;
    for (size_t i = 0; i < n && status == ZP_OK; i++) {
        status = tokenizer_decode_token(t, ids[i], flags, out, err);
        if (status == ZP_OK && strip && out->size > before) {
            strip = false;
            strip_left(out, before, t->strip_left);
        }
    }
    if (status != ZP_OK && out->data != NULL) { // T3
        out->size = before;
        out->data[before] = '\0';
    }
    return status;
}

/* bpe.c: merges as a table from pairs of symbols to rank and joined symbol.
 * A symbol is a distinct text: tokens come first (symbol = id), texts that only merges mention
 * follow. So joining compares numbers, never strings; and merges whose parts or result are not in
 * the vocabulary keep their place in the order. */
#include "model/bpe.h"
#include <string.h>
#include "base/mem.h"

#define MAX_MERGES ((uint32_t)1 << 26)
#define MAX_MERGE_TEXT 8192

static uint32_t byte_char(uint8_t byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
    /* The rest, in order, from U+0100 on: 0..32, 127..160, 173. */
    return 256u + (byte <= 32 ? byte : byte <= 160 ? byte - 127u + 33u : 67u);
}

size_t bpe_byte_text(uint8_t byte, char out[2])
{
    uint32_t c = byte_char(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
}

/* The byte whose character this is; -1 for others. */
static int char_byte(uint32_t c)
{
    if (c < 256) return byte_char((uint8_t)c) == c ? (int)c : -1;
    uint32_t n = c - 256;
    if (n <= 32) return (int)n;
    if (n <= 66) return (int)(n - 33 + 127);
    return n == 67 ? 173 : -1;
}

bool bpe_text_bytes(const char *text, size_t size, uint8_t *out, size_t *out_size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; n++) {
        uint8_t lead = (uint8_t)text[i];
        uint32_t c = lead;
        if (lead < 0x80) {
            i++;
        } else if ((lead & 0xE0) == 0xC0 && i + 1 < size && ((uint8_t)text[i + 1] & 0xC0) == 0x80) {
            c = (lead & 0x1Fu) << 6 | ((uint8_t)text[i + 1] & 0x3Fu);
            i += 2;
        } else {
            return false;
        }
        int byte = char_byte(c);
        if (byte < 0) return false;
        out[n] = (uint8_t)byte;
    }
    *out_size = n;
    return true;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static struct bpe_rule *rule_slot(const struct bpe *b, uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    uint64_t at = (h ^ h >> 32) & b->mask;
    while (b->rules[at].key != 0 && b->rules[at].key != key) at = (at + 1) & b->mask;
    return &b->rules[at];
}

static zp_status intern(struct bpe *b, const void *text, size_t size, int32_t *symbol, zp_err *err)
{
    *symbol = vocab_find(b->vocab, text, size);
    if (*symbol != TOKEN_NONE) return ZP_OK;
    int32_t extra = vocab_find(&b->extra, text, size);
    if (extra == TOKEN_NONE) {
        extra = (int32_t)b->extra.n;
        ZP_TRY(vocab_add(&b->extra, text, size, TOKEN_UNDEFINED, 0.0, err));
    }
    *symbol = (int32_t)b->vocab->n + extra;
    return ZP_OK;
}

/* Vocabularies list the results of merges in the order of the merges, so that the token behind the
 * last result most often is the next one: two of three searches of a start are then enough. */
static zp_status intern_joined(struct bpe *b, const void *text, size_t size, zp_err *err)
{
    size_t next_size;
    uint32_t next = (uint32_t)b->joined + 1;
    if (next < b->vocab->n) {
        const uint8_t *known = vocab_get(b->vocab, VOCAB_TEXT, next, &next_size);
        if (next_size == size && memcmp(known, text, size) == 0) {
            b->joined = (int32_t)next;
            return ZP_OK;
        }
    }
    return intern(b, text, size, &b->joined, err);
}

zp_status bpe_init(struct bpe *b, const struct vocab *vocab, struct bpe_options options,
                   uint32_t n_merges, zp_err *err)
{
    *b = (struct bpe){ .options = options, .vocab = vocab };
    ZP_FAIL_IF(n_merges > MAX_MERGES, err, ZP_BAD_FILE, "%u merges (limit %u)", n_merges,
               MAX_MERGES);
    uint64_t slots = 64;
    while (slots < (uint64_t)n_merges * 2) slots *= 2;
    b->rules = mem_alloc_huge(MEM_TOKENIZER, slots * sizeof *b->rules);
    ZP_FAIL_IF(b->rules == NULL, err, ZP_NO_MEMORY, "not enough memory for %u merges", n_merges);
    b->mask = slots - 1;
    for (int i = 0; i < 256; i++) {
        size_t size = bpe_byte_text((uint8_t)i, b->byte_text[i]);
        if (options.unit == BPE_BYTES)
            ZP_TRY(intern(b, b->byte_text[i], size, &b->byte_symbol[i], err));
        b->byte_token[i] = TOKEN_NONE;
    }
    for (uint32_t id = 0; options.unit == BPE_CHARS && id < vocab->n; id++) {
        size_t size;
        const uint8_t *text = vocab_get(vocab, VOCAB_TEXT, id, &size);
        int value = vocab_byte_value(text, size);
        if (value >= 0) b->byte_token[value] = (int32_t)id;
    }
    return ZP_OK;
}

zp_status bpe_add_merge(struct bpe *b, const char *left, size_t left_size, const char *right,
                        size_t right_size, uint32_t rank, zp_err *err)
{
    char text[MAX_MERGE_TEXT];
    ZP_FAIL_IF(
        left_size == 0 || right_size == 0 || left_size + right_size > sizeof text, err, ZP_BAD_FILE,
        "merge %u joins texts of %zu and %zu bytes (expected 1 or more, %d together at most)", rank,
        left_size, right_size, MAX_MERGE_TEXT);
    ZP_FAIL_IF(b->n_rules * (uint64_t)2 > b->mask, err, ZP_BAD_FILE,
               "more merges than announced (%u)", b->n_rules);
    memcpy(text, left, left_size);
    memcpy(text + left_size, right, right_size);
    int32_t l, r;
    ZP_TRY(intern(b, left, left_size, &l, err));
    ZP_TRY(intern(b, right, right_size, &r, err));
    ZP_TRY(intern_joined(b, text, left_size + right_size, err));
    struct bpe_rule *rule = rule_slot(b, pair_key(l, r));
    if (rule->key == 0) { /* the first of equal merges has the lower rank */
        *rule = (struct bpe_rule){ pair_key(l, r), { rank, b->joined } };
        b->n_rules++;
    }
    return ZP_OK;
}

zp_status bpe_add_merge_line(struct bpe *b, const char *line, size_t size, uint32_t rank,
                             zp_err *err)
{
    const char *space = size < 2 ? NULL : memchr(line + 1, ' ', size - 1);
    ZP_FAIL_IF(space == NULL, err, ZP_BAD_FILE,
               "merge %u is '%.*s' (expected two texts with a space between)", rank,
               (int)(size < 64 ? size : 64), line);
    size_t left = (size_t)(space - line);
    return bpe_add_merge(b, line, left, space + 1, size - left - 1, rank, err);
}

void bpe_free(struct bpe *b)
{
    vocab_free(&b->extra);
    if (b->rules) mem_free_huge(MEM_TOKENIZER, b->rules, (b->mask + 1) * sizeof *b->rules);
    b->rules = NULL;
}

static bool find_rule(const void *rules, const uint8_t *word, const struct merge_symbol *left,
                      const struct merge_symbol *right, struct merge_pair *out)
{
    ZP_UNUSED(word);
    if (left->id < 0 || right->id < 0) return false;
    const struct bpe_rule *rule = rule_slot(rules, pair_key(left->id, right->id));
    *out = rule->pair;
    return rule->key != 0;
}

static size_t char_size(const uint8_t *text, size_t left)
{
    size_t size = *text < 0x80 ? 1 : *text < 0xE0 ? 2 : *text < 0xF0 ? 3 : 4;
    return size < left ? size : left;
}

/* Fills scratch->symbols; in BPE_CHARS a character that is no symbol gets id TOKEN_NONE. */
static zp_status split_word(const struct bpe *b, struct merger *scratch, const uint8_t *word,
                            size_t size, zp_err *err)
{
    ZP_TRY(merger_reserve(scratch, size, err));
    for (uint32_t i = 0; i < size;) {
        uint32_t step = 1;
        int32_t symbol;
        if (b->options.unit == BPE_BYTES) {
            symbol = b->byte_symbol[word[i]];
        } else {
            step = (uint32_t)char_size(word + i, size - i);
            symbol = vocab_find(b->vocab, word + i, step);
            if (symbol == TOKEN_NONE) {
                symbol = vocab_find(&b->extra, word + i, step);
                symbol = symbol == TOKEN_NONE ? TOKEN_NONE : symbol + (int32_t)b->vocab->n;
            }
        }
        scratch->symbols[scratch->n++] = (struct merge_symbol){ i, i + step, symbol };
        i += step;
    }
    return ZP_OK;
}

static bool is_token(const struct bpe *b, int32_t symbol)
{
    return symbol >= 0 && (uint32_t)symbol < b->vocab->n &&
           !vocab_is_special(b->vocab, (uint32_t)symbol);
}

static zp_status push_unknown(const struct bpe *b, const uint8_t *text, size_t size, bool *fused,
                              struct token_list *out, zp_err *err)
{
    ZP_FAIL_IF(b->options.unk == TOKEN_NONE, err, ZP_BAD_INPUT,
               "the vocabulary has no token for byte 0x%02X and no unknown token",
               size > 0 ? text[0] : 0);
    if (!(*fused && b->options.fuse_unk)) ZP_TRY(token_list_push(out, b->options.unk, err));
    *fused = true;
    return ZP_OK;
}

/* A symbol that is no token: byte by byte. */
static zp_status push_pieces(const struct bpe *b, const uint8_t *text, size_t size, bool *fused,
                             struct token_list *out, zp_err *err)
{
    const int32_t *tokens = b->options.unit == BPE_BYTES ? b->byte_symbol : b->byte_token;
    bool all = b->options.unit == BPE_BYTES || b->options.byte_fallback;
    for (size_t i = 0; i < size && all && b->options.unit == BPE_CHARS; i++)
        all = tokens[text[i]] != TOKEN_NONE;
    if (!all) return push_unknown(b, text, size, fused, out, err);
    for (size_t i = 0; i < size; i++) {
        int32_t id = tokens[text[i]];
        if (b->options.unit == BPE_BYTES && !is_token(b, id)) {
            ZP_TRY(push_unknown(b, text + i, 1, fused, out, err));
            continue;
        }
        *fused = false;
        ZP_TRY(token_list_push(out, id, err));
    }
    return ZP_OK;
}

/* A word that is a token most often encodes to it; whether it does is remembered per token. Tokens
 * that the user defined are found before any word is. */
static zp_status whole_word(const struct bpe *b, struct merger *scratch, const uint8_t *word,
                            size_t size, int32_t *out, zp_err *err)
{
    const char *text = (const char *)word;
    if (b->options.unit == BPE_BYTES) {
        ZP_TRY(merger_reserve(scratch, size, err));
        char *to = (char *)scratch->symbols; /* of two bytes at most for one of the word */
        size_t n = 0;
        for (size_t i = 0; i < size; i++) {
            memcpy(to + n, b->byte_text[word[i]], 2);
            n += (uint8_t)to[n] < 0x80 ? 1 : 2;
        }
        text = to;
        size = n;
    }
    int32_t id = vocab_find(b->vocab, text, size);
    bool literal = b->options.unit == BPE_BYTES && id != TOKEN_NONE &&
                   b->vocab->tokens[id].kind == TOKEN_USER_DEFINED;
    *out = is_token(b, id) && !literal ? id : TOKEN_NONE;
    return ZP_OK;
}

zp_status bpe_encode(const struct bpe *b, struct merger *scratch, const uint8_t *word, size_t size,
                     struct token_list *out, zp_err *err)
{
    ZP_FAIL_IF(size > MERGER_MAX_WORD, err, ZP_BAD_INPUT, "a word of %zu bytes (limit %zu)", size,
               MERGER_MAX_WORD);
    int32_t whole;
    ZP_TRY(whole_word(b, scratch, word, size, &whole, err));
    enum vocab_whole known =
        whole == TOKEN_NONE ? WHOLE_NO : vocab_get_whole(b->vocab, (uint32_t)whole);
    if (whole != TOKEN_NONE && (known == WHOLE_YES || b->options.ignore_merges))
        return token_list_push(out, whole, err);
    ZP_TRY(split_word(b, scratch, word, size, err));
    ZP_TRY(merger_run(scratch, word, find_rule, b, err));
    if (whole != TOKEN_NONE && known == WHOLE_UNKNOWN)
        vocab_set_whole(b->vocab, (uint32_t)whole,
                        scratch->n == 1 && scratch->symbols[0].id == whole);
    bool fused = false;
    for (size_t i = 0; i < scratch->n; i++) {
        struct merge_symbol s = scratch->symbols[i];
        if (is_token(b, s.id)) {
            fused = false;
            ZP_TRY(token_list_push(out, s.id, err));
        } else {
            ZP_TRY(push_pieces(b, word + s.begin, s.end - s.begin, &fused, out, err));
        }
    }
    return ZP_OK;
}

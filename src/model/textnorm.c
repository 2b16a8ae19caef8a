/* textnorm.c: the steps. Each reads one buffer and writes the other. */
#include "model/textnorm.h"
#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "model/pretok.h"

#define MAX_NORMALIZED ((size_t)1 << 31)
#define MAX_MARK_RUN 4096

static const char mark[] = "\xE2\x96\x81"; /* U+2581 */

zp_status textnorm_add(struct textnorm *n, enum textnorm_kind kind, const char *what,
                       size_t what_size, const char *with, size_t with_size,
                       struct textnorm_step **out, zp_err *err)
{
    ZP_FAIL_IF(n->n_steps == TEXTNORM_MAX_STEPS, err, ZP_UNSUPPORTED,
               "more than %d normalizer steps", TEXTNORM_MAX_STEPS);
    struct textnorm_step *step = mem_zalloc(MEM_TOKENIZER, sizeof *step);
    ZP_FAIL_IF(step == NULL, err, ZP_NO_MEMORY, "not enough memory for a normalizer step");
    n->steps[n->n_steps++] = step;
    step->kind = kind;
    step->what_size = what == NULL ? 0 : what_size;
    step->with_size = with == NULL ? 0 : with_size;
    step->what = mem_strndup(MEM_TOKENIZER, what == NULL ? "" : what, step->what_size);
    step->with = mem_strndup(MEM_TOKENIZER, with == NULL ? "" : with, step->with_size);
    ZP_FAIL_IF(step->what == NULL || step->with == NULL, err, ZP_NO_MEMORY,
               "not enough memory for a normalizer step");
    if (kind == NORM_REPLACE_MATCH) {
        step->expression = mem_zalloc(MEM_TOKENIZER, sizeof(struct pretok));
        ZP_FAIL_IF(step->expression == NULL, err, ZP_NO_MEMORY,
                   "not enough memory for a normalizer step");
        ZP_TRY(pretok_add_step(step->expression, what, what_size, PRETOK_REMOVED, true, true, err));
    }
    if (out != NULL) *out = step;
    return ZP_OK;
}

void textnorm_free(struct textnorm *n)
{
    for (size_t i = 0; i < n->n_steps; i++) {
        struct textnorm_step *step = n->steps[i];
        if (step->expression != NULL) pretok_close(step->expression);
        mem_free(step->expression);
        charsmap_free(&step->map);
        mem_free(step->what);
        mem_free(step->with);
        mem_free(step);
    }
    trie_free(&n->protect);
    *n = (struct textnorm){ 0 };
}

struct view {
    const uint8_t *data;
    size_t size;
};

static bool begins_with(struct view in, const char *text, size_t size)
{
    return in.size >= size && memcmp(in.data, text, size) == 0;
}

static zp_status prepend(const struct textnorm_step *step, struct view in, bool at_start,
                         struct buffer *out, zp_err *err)
{
    bool wanted = in.size > 0 && (at_start || !step->first_only);
    if (step->kind == NORM_PREPEND_UNLESS)
        wanted = wanted && !begins_with(in, step->what, step->what_size);
    if (wanted) ZP_TRY(buffer_append(out, step->what, step->what_size, err));
    return buffer_append(out, in.data, in.size, err);
}

static zp_status replace(const struct textnorm_step *step, struct view in, struct buffer *out,
                         zp_err *err)
{
    size_t done = 0;
    for (size_t i = 0; step->what_size > 0 && i + step->what_size <= in.size;) {
        const uint8_t *hit =
            memchr(in.data + i, (uint8_t)step->what[0], in.size - step->what_size + 1 - i);
        if (hit == NULL) break;
        i = (size_t)(hit - in.data);
        if (memcmp(hit, step->what, step->what_size) != 0) {
            i++;
            continue;
        }
        ZP_TRY(buffer_append(out, in.data + done, i - done, err));
        ZP_TRY(buffer_append(out, step->with, step->with_size, err));
        i += step->what_size;
        done = i;
    }
    return buffer_append(out, in.data + done, in.size - done, err);
}

/* The step's expression keeps its matches and removes the rest. */
static zp_status replace_match(const struct textnorm_step *step, struct view in, struct buffer *out,
                               zp_err *err)
{
    struct pretok_scratch scratch = { 0 };
    const struct pretok_pieces *matches = NULL;
    zp_status status = pretok_split(step->expression, &scratch, in.data, in.size, &matches, err);
    size_t done = 0;
    for (size_t i = 0; status == ZP_OK && i < matches->count; i++) {
        status = buffer_append(out, in.data + done, matches->items[i].begin - done, err);
        if (status == ZP_OK) status = buffer_append(out, step->with, step->with_size, err);
        done = matches->items[i].end;
    }
    if (status == ZP_OK) status = buffer_append(out, in.data + done, in.size - done, err);
    pretok_scratch_free(&scratch);
    return status;
}

/* ---- Unicode */

static size_t read_char(struct view in, size_t at, utf8proc_int32_t *c)
{
    utf8proc_ssize_t size = utf8proc_iterate(in.data + at, (utf8proc_ssize_t)(in.size - at), c);
    return size > 0 ? (size_t)size : 1; /* text was validated */
}

static zp_status append_char(struct buffer *out, utf8proc_int32_t c, zp_err *err)
{
    utf8proc_uint8_t bytes[4];
    return buffer_append(out, bytes, (size_t)utf8proc_encode_char(c, bytes), err);
}

static bool is_ascii(struct view in)
{
    uint8_t any = 0;
    for (size_t i = 0; i < in.size; i++) any |= in.data[i];
    return any < 0x80;
}

/* utf8proc sorts combining marks by insertion: a long run of them would take quadratic time. */
static zp_status check_mark_runs(struct view in, zp_err *err)
{
    size_t run = 0;
    for (size_t i = 0; i < in.size;) {
        utf8proc_int32_t c;
        i += read_char(in, i, &c);
        run = c >= 0x300 && utf8proc_get_property(c)->combining_class != 0 ? run + 1 : 0;
        ZP_FAIL_IF(run > MAX_MARK_RUN, err, ZP_BAD_INPUT,
                   "more than %d combining marks in a row near byte %zu of the text", MAX_MARK_RUN,
                   i);
    }
    return ZP_OK;
}

static int normal_form_options(enum textnorm_kind kind)
{
    int options = UTF8PROC_STABLE;
    options |= kind == NORM_NFC || kind == NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    return options | (kind == NORM_NFKC || kind == NORM_NFKD ? UTF8PROC_COMPAT : 0);
}

static zp_status normal_form(enum textnorm_kind kind, struct view in, struct buffer *out,
                             zp_err *err)
{
    utf8proc_option_t options = (utf8proc_option_t)normal_form_options(kind);
    if (is_ascii(in)) return buffer_append(out, in.data, in.size, err);
    ZP_TRY(check_mark_runs(in, err));
    utf8proc_ssize_t need =
        utf8proc_decompose(in.data, (utf8proc_ssize_t)in.size, NULL, 0, options);
    ZP_FAIL_IF(need < 0, err, ZP_BAD_INPUT, "Unicode normalisation failed: %s",
               utf8proc_errmsg(need));
    utf8proc_int32_t *chars = mem_array(MEM_SCRATCH, (size_t)need + 1, sizeof *chars);
    ZP_FAIL_IF(chars == NULL, err, ZP_NO_MEMORY, "not enough memory to normalise %zu characters",
               (size_t)need);
    utf8proc_ssize_t n =
        utf8proc_decompose(in.data, (utf8proc_ssize_t)in.size, chars, need, options);
    n = n < 0 ? n : utf8proc_normalize_utf32(chars, n, options);
    zp_status status = ZP_OK;
    for (utf8proc_ssize_t i = 0; i < n && status == ZP_OK; i++)
        status = append_char(out, chars[i], err);
    mem_free(chars);
    ZP_FAIL_IF(n < 0, err, ZP_BAD_INPUT, "Unicode normalisation failed: %s", utf8proc_errmsg(n));
    return status;
}

static bool in_nmt_controls(utf8proc_int32_t c)
{
    return (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
}

static bool in_nmt_spaces(utf8proc_int32_t c)
{
    return c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

static bool is_combining(utf8proc_int32_t c)
{
    utf8proc_category_t kind = utf8proc_category(c);
    return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

static zp_status map_char(enum textnorm_kind kind, utf8proc_int32_t c, struct buffer *out,
                          zp_err *err)
{
    switch (kind) {
    case NORM_LOWERCASE:
        if (c == 0x130) /* the one letter whose simple lower case is two characters */
            return buffer_append(out, "i\xCC\x87", 3, err);
        return append_char(out, utf8proc_tolower(c), err);
    case NORM_STRIP_ACCENTS: return is_combining(c) ? ZP_OK : append_char(out, c, err);
    default:
        if (in_nmt_controls(c)) return ZP_OK;
        return append_char(out, in_nmt_spaces(c) ? ' ' : c, err);
    }
}

static zp_status map_chars(enum textnorm_kind kind, struct view in, struct buffer *out, zp_err *err)
{
    for (size_t i = 0; i < in.size;) {
        utf8proc_int32_t c;
        i += read_char(in, i, &c);
        ZP_TRY(map_char(kind, c, out, err));
    }
    return ZP_OK;
}

static bool is_white(utf8proc_int32_t c)
{
    utf8proc_category_t kind = utf8proc_category(c);
    return (c >= 9 && c <= 13) || c == 0x85 || kind == UTF8PROC_CATEGORY_ZS ||
           kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

static zp_status strip(const struct textnorm_step *step, struct view in, struct buffer *out,
                       zp_err *err)
{
    size_t begin = 0, end = in.size;
    utf8proc_int32_t c;
    while (step->left && begin < end) {
        size_t size = read_char(in, begin, &c);
        if (!is_white(c)) break;
        begin += size;
    }
    while (step->right && end > begin) {
        size_t last = end - 1;
        while (last > begin && (in.data[last] & 0xC0) == 0x80) last--;
        read_char(in, last, &c);
        if (!is_white(c)) break;
        end = last;
    }
    return buffer_append(out, in.data + begin, end - begin, err);
}

/* ---- SentencePiece */

/* Longest mapped sequence at each place; protected texts and everything unmapped stay. */
static zp_status map_sequences(const struct textnorm *n, const struct textnorm_step *step,
                               struct view in, struct buffer *out, zp_err *err)
{
    for (size_t i = 0; i < in.size;) {
        int32_t value;
        size_t consumed = trie_longest(&n->protect, in.data + i, in.size - i, &value), size = 0;
        const char *text = (const char *)in.data + i;
        if (consumed == 0) {
            const char *mapped =
                charsmap_find(&step->map, in.data + i, in.size - i, &consumed, &size);
            text = mapped == NULL ? text : mapped;
            if (mapped == NULL) {
                utf8proc_int32_t c;
                consumed = size = read_char(in, i, &c);
            }
        } else {
            size = consumed;
        }
        ZP_TRY(buffer_append(out, text, size, err));
        i += consumed;
    }
    return ZP_OK;
}

static zp_status unigram_spaces(const struct textnorm_step *step, struct view in,
                                struct buffer *out, zp_err *err)
{
    bool in_word = false, prefixed = false;
    for (size_t i = 0; i < in.size; i++) {
        if (in.data[i] == ' ') {
            in_word = false;
            if (!step->merge) ZP_TRY(buffer_append(out, mark, 3, err));
            continue;
        }
        if (!in_word && ((step->prefix && !prefixed) || step->merge)) {
            ZP_TRY(buffer_append(out, mark, 3, err));
            prefixed = true;
        }
        in_word = true;
        ZP_TRY(buffer_append(out, in.data + i, 1, err));
    }
    return step->suffix ? buffer_append(out, mark, 3, err) : ZP_OK;
}

static zp_status run_step(const struct textnorm *n, const struct textnorm_step *step,
                          struct view in, bool at_start, struct buffer *out, zp_err *err)
{
    switch (step->kind) {
    case NORM_PREPEND:
    case NORM_PREPEND_UNLESS: return prepend(step, in, at_start, out, err);
    case NORM_REPLACE: return replace(step, in, out, err);
    case NORM_REPLACE_MATCH: return replace_match(step, in, out, err);
    case NORM_NFC:
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD: return normal_form(step->kind, in, out, err);
    case NORM_LOWERCASE:
    case NORM_STRIP_ACCENTS:
    case NORM_NMT: return map_chars(step->kind, in, out, err);
    case NORM_STRIP: return strip(step, in, out, err);
    case NORM_CHARSMAP: return map_sequences(n, step, in, out, err);
    case NORM_UNIGRAM_SPACES: return unigram_spaces(step, in, out, err);
    }
    return ZP_OK;
}

zp_status textnorm_run(const struct textnorm *n, struct textnorm_scratch *scratch,
                       const uint8_t *text, size_t size, bool at_start, const uint8_t **out,
                       size_t *out_size, zp_err *err)
{
    for (int i = 0; i < 2 && !scratch->ready; i++)
        scratch->buffers[i] = buffer_with_max(MEM_SCRATCH, MAX_NORMALIZED);
    scratch->ready = true;
    struct view in = { text, size };
    for (size_t i = 0; i < n->n_steps; i++) {
        struct buffer *b = &scratch->buffers[i & 1];
        buffer_clear(b);
        ZP_TRY(run_step(n, n->steps[i], in, at_start, b, err));
        in = (struct view){ b->data, b->size };
    }
    *out = in.data;
    *out_size = in.size;
    return ZP_OK;
}

void textnorm_scratch_free(struct textnorm_scratch *scratch)
{
    for (int i = 0; i < 2 && scratch->ready; i++) buffer_free(&scratch->buffers[i]);
    scratch->ready = false;
}

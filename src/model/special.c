/* special.c: search for special tokens. Time is O(text * longest special text) at worst, and one
 * table look-up per byte on text without any. */
#include "model/special.h"
#include <stdlib.h>
#include <string.h>

zp_status special_add(struct special_set *set, const void *text, size_t size, int32_t id,
                      zp_err *err)
{
    if (size == 0) return ZP_OK;
    ZP_FAIL_IF(size > SPECIAL_MAX_SIZE, err, ZP_UNSUPPORTED,
               "special token %d is %zu bytes long (limit %d): not a usable vocabulary", id, size,
               SPECIAL_MAX_SIZE);
    ZP_TRY(trie_add(&set->trie, text, size, id, err));
    set->n++;
    return ZP_OK;
}

void special_free(struct special_set *set)
{
    trie_free(&set->trie);
    set->n = 0;
}

zp_status fragment_push(struct fragment_list *list, struct fragment f, zp_err *err)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 16 : list->room * 2;
        struct fragment *items = mem_resize(MEM_SCRATCH, list->items, room * sizeof *items);
        ZP_FAIL_IF(items == NULL, err, ZP_NO_MEMORY,
                   "not enough memory for text fragments (%zu bytes)", room * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = f;
    return ZP_OK;
}

void fragment_list_free(struct fragment_list *list)
{
    mem_free(list->items);
    *list = (struct fragment_list){ 0 };
}

struct search {
    const struct special_set *set;
    const struct vocab *vocab;
    const uint8_t *text;
    size_t size;
    struct special_runs runs;
    bool any_allowed;
    uint32_t *starts; /* places where some special text begins, ascending */
    size_t n_starts, room;
    uint8_t *covered;                /* one bit per byte of text */
    bool seen[SPECIAL_MAX_SIZE + 1]; /* lengths that occur */
};

/* The run that holds a byte: the first whose end lies beyond it. */
static const struct special_run *run_at(const struct search *s, size_t at)
{
    size_t low = 0, high = s->runs.n - 1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->runs.runs[mid].end > at) high = mid;
        else low = mid + 1;
    }
    return &s->runs.runs[low];
}

static bool is_word_byte(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c >= 0x80;
}

static bool is_space_byte(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool may_match(const struct search *s, size_t at, size_t length, int32_t id)
{
    if (vocab_is_special(s->vocab, (uint32_t)id)) {
        if (!s->any_allowed) return false;
        const struct special_run *run = run_at(s, at);
        if (!run->allowed || at + length > run->end) return false;
    }
    if ((s->vocab->tokens[id].flags & VOCAB_SINGLE_WORD) == 0) return true;
    return (at == 0 || !is_word_byte(s->text[at - 1])) &&
           (at + length == s->size || !is_word_byte(s->text[at + length]));
}

static bool is_covered(const struct search *s, size_t at)
{
    return s->covered[at >> 3] >> (at & 7) & 1;
}

static void cover(struct search *s, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) s->covered[i >> 3] |= (uint8_t)(1u << (i & 7));
}

static zp_status push_start(struct search *s, size_t at, zp_err *err)
{
    if (s->n_starts == s->room) {
        size_t room = s->room == 0 ? 64 : s->room * 2;
        uint32_t *starts = mem_resize(MEM_SCRATCH, s->starts, room * sizeof *starts);
        ZP_FAIL_IF(starts == NULL, err, ZP_NO_MEMORY,
                   "not enough memory to find special tokens (%zu bytes)", room * sizeof *starts);
        s->starts = starts;
        s->room = room;
    }
    s->starts[s->n_starts++] = (uint32_t)at;
    return ZP_OK;
}

/* Notes each place where an allowed special text begins and each length that occurs. */
static zp_status find_starts(struct search *s, zp_err *err)
{
    const struct trie *trie = &s->set->trie;
    for (size_t at = 0; at < s->size; at++) {
        uint32_t node = trie->first[s->text[at]];
        bool found = false;
        for (size_t i = at + 1; node != 0; node = trie_step(trie, node, s->text[i++])) {
            int32_t id = trie->values[node];
            if (id != TRIE_NO_VALUE && may_match(s, at, i - at, id)) s->seen[i - at] = found = true;
            if (i == s->size) break;
        }
        if (found) ZP_TRY(push_start(s, at, err));
    }
    return ZP_OK;
}

/* The token of exactly this length at this place, or TOKEN_NONE. */
static int32_t token_of_length(const struct search *s, size_t at, size_t length)
{
    const struct trie *trie = &s->set->trie;
    uint32_t node = 0;
    for (size_t i = at; i < at + length; i++) {
        node = trie_step(trie, node, s->text[i]);
        if (node == 0) return TOKEN_NONE;
    }
    return trie->values[node];
}

/* Takes the match and the white space it asks for. */
static zp_status accept(struct search *s, size_t at, size_t length, int32_t id,
                        struct fragment_list *out, zp_err *err)
{
    size_t begin = at, end = at + length;
    uint8_t flags = s->vocab->tokens[id].flags;
    if (flags & VOCAB_LSTRIP)
        while (begin > 0 && !is_covered(s, begin - 1) && is_space_byte(s->text[begin - 1])) begin--;
    if (flags & VOCAB_RSTRIP)
        while (end < s->size && !is_covered(s, end) && is_space_byte(s->text[end])) end++;
    cover(s, begin, end);
    return fragment_push(out, (struct fragment){ begin, end, id }, err);
}

/* A shorter match overlaps an accepted one only if its first or last byte is covered, because every
 * covered block is at least as long as it. */
static zp_status accept_longest(struct search *s, struct fragment_list *out, zp_err *err)
{
    for (size_t length = SPECIAL_MAX_SIZE; length > 0; length--) {
        if (!s->seen[length]) continue;
        size_t kept = 0;
        for (size_t i = 0; i < s->n_starts; i++) {
            size_t at = s->starts[i];
            if (is_covered(s, at)) continue;
            s->starts[kept++] = (uint32_t)at;
            if (length > s->size - at || is_covered(s, at + length - 1)) continue;
            int32_t id = token_of_length(s, at, length);
            if (id != TOKEN_NONE && may_match(s, at, length, id))
                ZP_TRY(accept(s, at, length, id, out, err));
        }
        s->n_starts = kept;
    }
    return ZP_OK;
}

static zp_status accept_leftmost(struct search *s, struct fragment_list *out, zp_err *err)
{
    const struct trie *trie = &s->set->trie;
    for (size_t i = 0; i < s->n_starts; i++) {
        size_t at = s->starts[i], longest = 0;
        if (is_covered(s, at)) continue;
        int32_t best = TOKEN_NONE;
        uint32_t node = 0;
        for (size_t end = at; end < s->size; end++) {
            node = trie_step(trie, node, s->text[end]);
            if (node == 0) break;
            int32_t id = trie->values[node];
            if (id == TRIE_NO_VALUE || !may_match(s, at, end + 1 - at, id)) continue;
            longest = end + 1 - at;
            best = id;
        }
        if (best != TOKEN_NONE) ZP_TRY(accept(s, at, longest, best, out, err));
    }
    return ZP_OK;
}

static int compare_fragments(const void *a, const void *b)
{
    const struct fragment *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Puts the text between the accepted tokens into the list. */
static zp_status fill_gaps(struct fragment_list *out, size_t size, zp_err *err)
{
    size_t n = out->count, at = 0;
    if (n > 1) qsort(out->items, n, sizeof *out->items, compare_fragments);
    for (size_t i = 0; i < n; i++) {
        struct fragment token = out->items[i];
        if (token.begin > at)
            ZP_TRY(fragment_push(out, (struct fragment){ at, token.begin, TOKEN_NONE }, err));
        at = token.end;
    }
    if (at < size) ZP_TRY(fragment_push(out, (struct fragment){ at, size, TOKEN_NONE }, err));
    if (out->count > n) qsort(out->items, out->count, sizeof *out->items, compare_fragments);
    return ZP_OK;
}

static zp_status run_search(struct search *s, struct fragment_list *out, zp_err *err)
{
    ZP_TRY(find_starts(s, err));
    if (s->n_starts == 0) return ZP_OK;
    ZP_ALLOC(s->covered, MEM_SCRATCH, s->size / 8 + 1, err, "the special token map");
    memset(s->covered, 0, s->size / 8 + 1);
    return s->set->rule == SPECIAL_LONGEST ? accept_longest(s, out, err)
                                           : accept_leftmost(s, out, err);
}

zp_status special_split(const struct special_set *set, const struct vocab *v, const uint8_t *text,
                        size_t size, struct special_runs runs, struct fragment_list *out,
                        zp_err *err)
{
    out->count = 0;
    if (set->n > 0 && size > 0) {
        struct search s = { .set = set, .vocab = v, .text = text, .size = size, .runs = runs };
        for (size_t i = 0; i < runs.n; i++) s.any_allowed |= runs.runs[i].allowed;
        zp_status status = run_search(&s, out, err);
        mem_free(s.starts);
        mem_free(s.covered);
        ZP_TRY(status);
    }
    return fill_gaps(out, size, err);
}

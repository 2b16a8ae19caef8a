/* pretok.c: pre-tokenisation with PCRE2 in UTF mode, compiled to machine code where the system
 * permits and interpreted where it does not (W^X policies), with the same results.
 * Expressions of the table run in linear time. Those of a tokenizer.json may not: a match that
 * needs more than MATCH_LIMIT steps is an error, never a hang. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretok.h"
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include "model/pretok_table.inc"

#define MATCH_LIMIT 20000000u
#define HEAP_LIMIT_KIB (256u * 1024)

struct pretok_step {
    pcre2_code *code;
    enum pretok_behavior behavior;
    bool invert;
};

static void *alloc_hook(size_t size, void *arg)
{
    ZP_UNUSED(arg);
    return mem_alloc(MEM_TOKENIZER, size);
}

static void free_hook(void *p, void *arg)
{
    ZP_UNUSED(arg);
    mem_free(p);
}

/* ---- table */

static bool names_hold(const char *names, const char *name, size_t size)
{
    for (const char *at = names; *at != '\0';) {
        size_t length = strcspn(at, " ");
        if (length == size && memcmp(at, name, size) == 0) return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

const struct pretok_row *pretok_find(const char *name, size_t size)
{
    for (size_t i = 0; i < ZP_COUNT(pretok_rows); i++)
        if (names_hold(pretok_rows[i].names, name, size)) return &pretok_rows[i];
    return NULL;
}

void pretok_list_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ZP_COUNT(pretok_rows); i++) {
        size_t length = strcspn(pretok_rows[i].names, " "); /* the first name stands for its row */
        if (used + length + 6 > size) {
            snprintf(out + used, size - used, " ...");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", i == 0 ? "" : " ", (int)length,
                                 pretok_rows[i].names);
    }
}

/* ---- compilation */

/* Classes whose members differ from those of the engines we follow: PCRE2's \s also takes U+180E,
 * which White_Space lost in Unicode 6.3; its \w lacks marks, connectors and circled letters; \h is
 * a hexadecimal digit in Oniguruma. They are spelled out. The negated ones have no spelling inside
 * a class and stay. */
static const char *class_members(char letter)
{
    switch (letter) {
    case 's':
    case 'S': return "\\t-\\r\\x{85}\\p{Z}";
    case 'w':
    case 'W':
        return "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE\\x{24B6}-\\x{24E9}"
               "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
    case 'h':
    case 'H': return "0-9a-fA-F";
    default: return NULL;
    }
}

/* Copies one element of an expression, translated; *at moves past it. */
static zp_status translate_one(const char *expression, size_t size, size_t *at, bool *in_class,
                               struct buffer *out, zp_err *err)
{
    char c = expression[*at], next = *at + 1 < size ? expression[*at + 1] : '\0';
    bool escape = c == '\\' && *at + 1 < size, negated = next < 'a';
    const char *members = escape ? class_members(next) : NULL;
    const char *text = expression + *at;
    bool first = *at > 0 && (text[-1] == '[' || text[-1] == '^');
    *at += escape ? 2 : 1;
    if (members != NULL && !(negated && *in_class))
        return buffer_printf(out, err, "%s%s%s",
                             *in_class ? ""
                             : negated ? "[^"
                                       : "[",
                             members, *in_class ? "" : "]");
    if (c == '[' && !escape) *in_class = true;
    if (c == ']' && !first) *in_class = false;
    return buffer_append(out, text, escape ? 2 : 1, err);
}

static zp_status translate(const char *expression, size_t size, struct buffer *out, zp_err *err)
{
    bool in_class = false;
    ZP_TRY(buffer_append(out, "", 0, err));
    for (size_t at = 0; at < size;)
        ZP_TRY(translate_one(expression, size, &at, &in_class, out, err));
    return ZP_OK;
}

static zp_status compile(pcre2_code **out, const struct buffer *expression, bool line_anchors,
                         zp_err *err)
{
    pcre2_general_context *general = pcre2_general_context_create(alloc_hook, free_hook, NULL);
    pcre2_compile_context *context = general == NULL ? NULL : pcre2_compile_context_create(general);
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    *out = NULL;
    if (context != NULL)
        *out = pcre2_compile(expression->data, expression->size,
                             PCRE2_UTF | PCRE2_UCP | (line_anchors ? PCRE2_MULTILINE : 0), &code,
                             &at, context);
    if (context != NULL) pcre2_compile_context_free(context);
    if (general != NULL) pcre2_general_context_free(general);
    /* 121 is PCRE2's "failed to allocate heap memory" at compile time. */
    ZP_FAIL_IF(*out == NULL && (code == PCRE2_ERROR_NOMEMORY || code == 121), err, ZP_NO_MEMORY,
               "not enough memory to compile a pre-tokeniser expression");
    if (*out == NULL) {
        char text[160] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        ZP_FAIL(err, ZP_BAD_FILE, "pre-tokeniser expression '%.80s%s': %s at offset %zu",
                expression->data, expression->size > 80 ? "..." : "", text, (size_t)at);
    }
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* refused: pcre2_match interprets */
    return ZP_OK;
}

zp_status pretok_add_step(struct pretok *p, const char *expression, size_t size,
                          enum pretok_behavior behavior, bool invert, bool line_anchors,
                          zp_err *err)
{
    ZP_FAIL_IF(p->n_steps == PRETOK_MAX_STEPS, err, ZP_UNSUPPORTED,
               "more than %d pre-tokeniser steps", PRETOK_MAX_STEPS);
    struct pretok_step *step;
    ZP_ALLOC(step, MEM_TOKENIZER, 1, err, "a pre-tokeniser step");
    *step = (struct pretok_step){ .behavior = behavior, .invert = invert };
    struct buffer text = buffer_with_max(MEM_TOKENIZER, 1 << 20);
    zp_status status = translate(expression, size, &text, err);
    if (status == ZP_OK) status = compile(&step->code, &text, line_anchors, err);
    buffer_free(&text);
    if (status != ZP_OK) {
        mem_free(step);
        return status;
    }
    p->steps[p->n_steps++] = step;
    return ZP_OK;
}

zp_status pretok_open_row(struct pretok *p, const struct pretok_row *row, const char *name,
                          zp_err *err)
{
    p->name = name;
    for (size_t i = 0; i < ZP_COUNT(row->expressions) && row->expressions[i] != NULL; i++)
        ZP_TRY(pretok_add_step(p, row->expressions[i], strlen(row->expressions[i]), PRETOK_ISOLATED,
                               false, false, err));
    return ZP_OK;
}

void pretok_close(struct pretok *p)
{
    for (size_t i = 0; i < p->n_steps; i++) {
        pcre2_code_free(p->steps[i]->code);
        mem_free(p->steps[i]);
    }
    p->n_steps = 0;
}

/* ---- splitting */

/* Match data and the limits of one caller. */
struct matcher {
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *data;
};

static void matcher_free(struct matcher *m)
{
    if (m->data != NULL) pcre2_match_data_free(m->data);
    if (m->context != NULL) pcre2_match_context_free(m->context);
    if (m->general != NULL) pcre2_general_context_free(m->general);
    mem_free(m);
}

static zp_status get_matcher(struct pretok_scratch *scratch, struct matcher **out, zp_err *err)
{
    *out = scratch->match;
    if (*out != NULL) return ZP_OK;
    struct matcher *m = mem_zalloc(MEM_SCRATCH, sizeof *m);
    if (m != NULL) {
        m->general = pcre2_general_context_create(alloc_hook, free_hook, NULL);
        m->context = m->general == NULL ? NULL : pcre2_match_context_create(m->general);
        m->data = m->context == NULL ? NULL : pcre2_match_data_create(1, m->general);
        if (m->data == NULL) {
            matcher_free(m);
            m = NULL;
        }
    }
    ZP_FAIL_IF(m == NULL, err, ZP_NO_MEMORY, "not enough memory for pre-tokeniser match data");
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
    scratch->match = *out = m;
    return ZP_OK;
}

static zp_status push_piece(struct pretok_pieces *list, size_t begin, size_t end, zp_err *err)
{
    if (begin == end) return ZP_OK;
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 64 : list->room * 2;
        struct pretok_piece *items = mem_resize(MEM_SCRATCH, list->items, room * sizeof *items);
        ZP_FAIL_IF(items == NULL, err, ZP_NO_MEMORY, "not enough memory for words (%zu bytes)",
                   room * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = (struct pretok_piece){ (uint32_t)begin, (uint32_t)end };
    return ZP_OK;
}

/* One match from `from` on: *found, and its place. */
static zp_status find_match(const struct pretok_step *step, struct matcher *m, const uint8_t *text,
                            size_t size, size_t from, bool *found, size_t place[2], zp_err *err)
{
    int rc = pcre2_match(step->code, text, size, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its frames on the heap */
        rc = pcre2_match(step->code, text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                         m->context);
    *found = rc >= 0;
    if (rc >= 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
        place[0] = at[0];
        place[1] = at[1];
        return ZP_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH) return ZP_OK;
    ZP_FAIL_IF(rc == PCRE2_ERROR_NOMEMORY, err, ZP_NO_MEMORY, "not enough memory to pre-tokenise");
    char reason[120] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason);
    ZP_FAIL(err, ZP_BAD_INPUT, "the pre-tokeniser gave up on a text of %zu bytes at offset %zu: %s",
            size, from, reason);
}

/* State of one step on one piece of text. */
struct splitter {
    const struct pretok_step *step;
    struct pretok_pieces *out;
    size_t base;       /* of the piece in the whole text */
    size_t begin, end; /* piece held back: the next part may join it; empty if begin == end */
    bool was_match;    /* the last part was a match */
};

static bool joins_held(const struct splitter *s, bool is_match)
{
    switch (s->step->behavior) {
    case PRETOK_MERGED_WITH_PREVIOUS: return is_match && !s->was_match;
    case PRETOK_MERGED_WITH_NEXT: return !is_match && s->was_match;
    case PRETOK_CONTIGUOUS: return is_match == s->was_match;
    default: return false;
    }
}

/* Takes [begin, end), a match or what lies between two; parts come in order and leave no gaps. */
static zp_status take_part(struct splitter *s, size_t begin, size_t end, bool is_match, zp_err *err)
{
    if (begin == end) return ZP_OK;
    is_match ^= s->step->invert;
    if (s->begin == s->end || !joins_held(s, is_match)) {
        ZP_TRY(push_piece(s->out, s->base + s->begin, s->base + s->end, err));
        s->begin = begin;
    }
    s->end = end;
    if (is_match && s->step->behavior == PRETOK_REMOVED) s->begin = s->end;
    s->was_match = is_match;
    return ZP_OK;
}

static size_t next_char(const uint8_t *text, size_t size, size_t at)
{
    do at++;
    while (at < size && (text[at] & 0xC0) == 0x80);
    return at;
}

static zp_status split_piece(const struct pretok_step *step, struct matcher *m, const uint8_t *text,
                             struct pretok_piece piece, struct pretok_pieces *out, zp_err *err)
{
    struct splitter s = { .step = step, .out = out, .base = piece.begin };
    const uint8_t *part = text + piece.begin;
    size_t size = piece.end - piece.begin, done = 0, place[2];
    for (size_t from = 0; from <= size;) {
        bool found;
        ZP_TRY(find_match(step, m, part, size, from, &found, place, err));
        if (!found) break;
        ZP_TRY(take_part(&s, done, place[0], false, err));
        ZP_TRY(take_part(&s, place[0], place[1], true, err));
        done = place[1];
        /* An empty match cuts the text; the search goes on one character later. */
        from = place[1] > place[0] ? place[1] : next_char(part, size, place[1]);
    }
    ZP_TRY(take_part(&s, done, size, false, err));
    return push_piece(out, s.base + s.begin, s.base + s.end, err);
}

zp_status pretok_split(const struct pretok *p, struct pretok_scratch *scratch, const uint8_t *text,
                       size_t size, const struct pretok_pieces **out, zp_err *err)
{
    struct pretok_pieces *in = &scratch->pieces[0], *next = &scratch->pieces[1];
    struct matcher *m = NULL;
    in->count = 0;
    ZP_FAIL_IF(size > UINT32_MAX, err, ZP_BAD_INPUT, "a text of %zu bytes in one piece", size);
    ZP_TRY(push_piece(in, 0, size, err));
    if (p->n_steps > 0) ZP_TRY(get_matcher(scratch, &m, err));
    for (size_t i = 0; i < p->n_steps; i++) {
        next->count = 0;
        for (size_t k = 0; k < in->count; k++)
            ZP_TRY(split_piece(p->steps[i], m, text, in->items[k], next, err));
        struct pretok_pieces *swap = in;
        in = next;
        next = swap;
    }
    *out = in;
    return ZP_OK;
}

void pretok_scratch_free(struct pretok_scratch *scratch)
{
    for (int i = 0; i < 2; i++) mem_free(scratch->pieces[i].items);
    if (scratch->match != NULL) matcher_free(scratch->match);
    *scratch = (struct pretok_scratch){ 0 };
}

/* grammar.c: nodes and rules while they are put together.
 * Owns: their memory and limits, and the first failure. Does not know: what reads them. */
#include "model/grammar.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/numtext.h"

zp_status grammar_init(struct grammar *g, zp_err *err)
{
    *g = (struct grammar){ .names = { .tag = MEM_META }, .err = err };
    struct grammar_node end = { .kind = NODE_END }, never = { .kind = NODE_BYTES, .low = 1 };
    g->room_nodes = 256;
    ZP_ALLOC(g->nodes, MEM_META, g->room_nodes, err, "a grammar");
    g->nodes[g->n_nodes++] = end;
    g->nodes[g->n_nodes++] = never; /* low > high: no byte */
    return ZP_OK;
}

void grammar_free(struct grammar *g)
{
    mem_free(g->nodes);
    mem_free(g->rules);
    arena_free(&g->names);
    *g = (struct grammar){ 0 };
}

void grammar_fail(struct grammar *g, zp_status code, const char *fmt, ...)
{
    char text[sizeof g->err->message];
    va_list args;
    if (grammar_failed(g)) return;
    va_start(args, fmt);
    numtext_vprintf(text, sizeof text, fmt, args);
    va_end(args);
    g->status = status_fail(g->err, code, __FILE__, __LINE__, "%s", text);
}

bool grammar_work(struct grammar *g, uint64_t steps)
{
    g->work += steps;
    if (g->work > GRAMMAR_MAX_WORK)
        grammar_fail(g, ZP_BAD_INPUT, "the grammar takes too much work: use smaller bounds of "
                     "repetitions and lengths, and fewer schemas that are joined");
    return !grammar_failed(g);
}

/* Room for one more of a growing array; false: recorded why not. */
static bool make_room(struct grammar *g, void **array, uint32_t n, uint32_t *room, uint32_t max,
                      size_t size, const char *what)
{
    if (grammar_failed(g)) return false;
    if (n < *room) return true;
    uint32_t more = *room ? *room * 2 : 64;
    void *grown = n < max ? mem_resize(MEM_META, *array, more * size) : NULL;
    if (n >= max)
        grammar_fail(g, ZP_BAD_INPUT,
                     "the grammar is too large: it needs more than %u %s; shorten bounds of "
                     "repetitions or lengths of patterns",
                     max, what);
    else if (grown == NULL)
        grammar_fail(g, ZP_NO_MEMORY, "not enough memory for a grammar (%zu bytes)", more * size);
    if (grown == NULL) return false;
    *array = grown;
    *room = more;
    return true;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static uint32_t add(struct grammar *g, struct grammar_node node)
{
    void *nodes = g->nodes;
    if (!make_room(g, &nodes, g->n_nodes, &g->room_nodes, GRAMMAR_MAX_NODES, sizeof node, "nodes"))
        return GRAMMAR_NEVER;
    g->nodes = nodes;
    g->nodes[g->n_nodes] = node;
    return g->n_nodes++;
}

uint32_t grammar_bytes(struct grammar *g, uint8_t low, uint8_t high, uint32_t next)
{
    if (low > high || next == GRAMMAR_NEVER) return GRAMMAR_NEVER;
    return add(g, (struct grammar_node){ NODE_BYTES, low, high, .next = next });
}

uint32_t grammar_text(struct grammar *g, const void *text, size_t size, uint32_t next)
{
    const uint8_t *bytes = text;
    while (size-- > 0 && !grammar_failed(g))
        next = grammar_bytes(g, bytes[size], bytes[size], next);
    return next;
}

uint32_t grammar_either(struct grammar *g, uint32_t a, uint32_t b)
{
    if (a == b || b == GRAMMAR_NEVER) return a;
    if (a == GRAMMAR_NEVER) return b;
    return add(g, (struct grammar_node){ NODE_EITHER, .next = a, .other = b });
}

uint32_t grammar_open_either(struct grammar *g)
{
    return add(g, (struct grammar_node){ NODE_EITHER, .next = GRAMMAR_NEVER,
                                         .other = GRAMMAR_NEVER });
}

void grammar_set_either(struct grammar *g, uint32_t node, uint32_t a, uint32_t b)
{
    if (grammar_failed(g)) return;
    g->nodes[node].next = a;
    g->nodes[node].other = b;
}

uint32_t grammar_call(struct grammar *g, uint32_t rule, uint32_t next)
{
    if (next == GRAMMAR_NEVER) return next;
    return add(g, (struct grammar_node){ NODE_CALL, .next = next, .other = rule });
}

uint32_t grammar_repeat(struct grammar *g, uint32_t rule, uint32_t min, uint32_t max, uint32_t next)
{
    if (next == GRAMMAR_NEVER || min > max) return GRAMMAR_NEVER;
    if (max == 0) return next;
    return add(g, (struct grammar_node){ NODE_REPEAT, .next = next, .other = rule, .min = min,
                                         .max = max });
}

/* ---- sets of texts -------------------------------------------------------------------------- */

static int compare_words(const void *a, const void *b)
{
    const struct grammar_word *x = a, *y = b;
    size_t n = x->size < y->size ? x->size : y->size;
    int order = n ? memcmp(x->text, y->text, n) : 0;
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

/* The words from `at` on, which begin alike before it: shared beginnings are read once, so that
 * many words are few ways. Depth: words that are beginnings of others. */
static uint32_t words_from(struct grammar *g, const struct grammar_word *words, size_t n, size_t at,
                           uint32_t next)
{
    size_t i = 0, shared = at;
    uint32_t node = GRAMMAR_NEVER;
    while (shared < words[0].size && shared < words[n - 1].size &&
           words[0].text[shared] == words[n - 1].text[shared])
        shared++; /* sorted: what first and last share, all do */
    for (; i < n && words[i].size == shared; i++) node = next;
    while (i < n && !grammar_failed(g)) {
        size_t end = i + 1;
        uint8_t byte = words[i].text[shared];
        while (end < n && words[end].text[shared] == byte) end++;
        uint32_t rest = words_from(g, words + i, end - i, shared + 1, next);
        node = grammar_either(g, grammar_bytes(g, byte, byte, rest), node);
        i = end;
    }
    return grammar_text(g, words[0].text + at, shared - at, node);
}

void grammar_sort_words(struct grammar_word *words, size_t n)
{
    if (n > 1) qsort(words, n, sizeof *words, compare_words);
}

uint32_t grammar_words(struct grammar *g, struct grammar_word *words, size_t n, uint32_t next)
{
    if (n == 0 || grammar_failed(g)) return GRAMMAR_NEVER;
    grammar_sort_words(words, n);
    return words_from(g, words, n, 0, next);
}

/* ---- rules ---------------------------------------------------------------------------------- */

uint32_t grammar_declare(struct grammar *g, const char *name)
{
    void *rules = g->rules;
    struct grammar_rule rule = { .start = GRAMMAR_NEVER };
    if (!make_room(g, &rules, g->n_rules, &g->room_rules, GRAMMAR_MAX_RULES, sizeof rule, "rules"))
        return 0;
    g->rules = rules;
    if (name != NULL) rule.name = arena_strndup(&g->names, name, strlen(name));
    if (name != NULL && rule.name == NULL)
        grammar_fail(g, ZP_NO_MEMORY, "not enough memory for the name of a rule");
    g->rules[g->n_rules] = rule;
    return g->n_rules++;
}

void grammar_define(struct grammar *g, uint32_t rule, uint32_t start)
{
    if (grammar_failed(g)) return;
    g->rules[rule].start = start;
    g->rules[rule].defined = true;
}

uint32_t grammar_rule(struct grammar *g, uint32_t start)
{
    uint32_t rule = grammar_declare(g, NULL);
    grammar_define(g, rule, start);
    return rule;
}

/* fuzz_gbnf.c: any text as a grammar in llama.cpp's notation, or behind a `/` as a pattern of JSON
 * Schema; then texts of allowed bytes, which must be UTF-8 where they may end. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "model/automaton.h"
#include "model/gbnf.h"
#include "model/pattern.h"

enum { MOST = 200 };

static uint32_t pattern_rules(struct grammar *g, const char *text, size_t size)
{
    uint32_t start = GRAMMAR_NEVER, min = size % 3, max = size % 5 ? GRAMMAR_UNBOUNDED : 7;
    if (!utf8_is_valid(text, size, NULL)) {
        grammar_fail(g, ZP_BAD_INPUT, "not UTF-8");
        return 0;
    }
    pattern_nodes(g, text, size, min, max, GRAMMAR_END, &start);
    return grammar_rule(g, start);
}

static void walk(struct automaton *a, unsigned seed)
{
    char text[MOST];
    uint32_t state = a->start, next = AUTOMATON_DEAD;
    if (automaton_prepare(a, NULL) != ZP_OK) return;
    for (size_t n = 0; n < MOST; n++) {
        if (a->states[state].accepts && !utf8_is_valid(text, n, NULL)) abort();
        unsigned i = 0;
        for (next = AUTOMATON_DEAD; i < 256 && next == AUTOMATON_DEAD; i++) {
            text[n] = (char)(seed + n * 89 + i);
            if (automaton_step(a, state, (uint8_t)text[n], &next, NULL) != ZP_OK) return;
        }
        if (next == AUTOMATON_DEAD && !a->states[state].accepts) abort();
        if (next == AUTOMATON_DEAD) return;
        state = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar g;
    struct automaton a = { 0 };
    zp_err err = { 0 };
    bool pattern = size > 0 && data[0] == '/';
    const char *text = (const char *)data + pattern;
    size_t n = size - pattern;
    if (grammar_init(&g, &err) == ZP_OK &&
        grammar_seal(&g, pattern ? pattern_rules(&g, text, n) : gbnf_rules(&g, text, n)) == ZP_OK &&
        automaton_open(&a, &g, &err) == ZP_OK)
        for (unsigned seed = 0; seed < 3; seed++) walk(&a, seed * 97);
    if (err.code != ZP_OK && !utf8_is_valid(err.message, strlen(err.message), NULL)) abort();
    automaton_close(&a);
    grammar_free(&g);
    return 0;
}

/* fuzz_schema.c: any text as a JSON Schema, up to the first NUL; the bytes behind it choose a text
 * among those that the grammar allows. Every state on the way must lead on or accept, and a text
 * that is whole must be JSON. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "model/automaton.h"
#include "model/jsonschema.h"

enum { MOST = 400 };

static void check_text(const char *text, size_t n)
{
    json_t *value = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    if (value == NULL) abort();
    json_decref(value);
}

/* The next byte that the grammar allows, from a chosen one on; the state it leads to. */
static bool step(struct automaton *a, uint32_t *state, uint8_t chosen, char *out)
{
    for (unsigned i = 0; i < 256; i++) {
        uint32_t next;
        uint8_t byte = (uint8_t)(chosen + i);
        if (automaton_step(a, *state, byte, &next, NULL) != ZP_OK) return false;
        if (next == AUTOMATON_DEAD) continue;
        *state = next;
        *out = (char)byte;
        return true;
    }
    if (!a->states[*state].accepts) abort();
    return false;
}

static void walk(struct automaton *a, const uint8_t *choices, size_t n_choices)
{
    char text[MOST];
    uint32_t state = a->start;
    if (automaton_prepare(a, NULL) != ZP_OK) return;
    for (size_t n = 0; n < MOST; n++) {
        if (a->states[state].accepts) check_text(text, n);
        uint8_t chosen = n < n_choices ? choices[n] : (uint8_t)(n * 151 + 34);
        if (!step(a, &state, chosen, &text[n])) return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t n = nul == NULL ? size : (size_t)(nul - data);
    struct grammar g;
    struct automaton a = { 0 };
    zp_err err = { 0 };
    if (grammar_init(&g, &err) == ZP_OK &&
        grammar_seal(&g, jsonschema_rules(&g, (const char *)data, n)) == ZP_OK &&
        automaton_open(&a, &g, &err) == ZP_OK)
        walk(&a, nul ? nul + 1 : NULL, nul ? size - n - 1 : 0);
    if (err.code != ZP_OK && !utf8_is_valid(err.message, strlen(err.message), NULL)) abort();
    automaton_close(&a);
    grammar_free(&g);
    return 0;
}

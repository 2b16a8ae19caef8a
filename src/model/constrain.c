/* constrain.c: grammars of models: opening, masks, places.
 * Owns: the grammar, its automaton, kept masks, and the lock around them; the vocabulary's trie is
 * the model's, made when its first grammar is opened. */
#include "model/constrain.h"

#include <string.h>

#include "base/lock.h"
#include "model/gbnf.h"
#include "model/jsonrules.h"
#include "model/jsonschema.h"
#include "model/model.h"
#include "model/tokenmask.h"

struct zp_grammar {
    const zp_model *m;
    const struct tokenizer *tokenizer;
    struct lock lock; /* of what follows, but for the grammar, which is only read */
    struct grammar grammar;
    struct automaton automaton;
    struct tokenmask masks;
};

/* ---- opening --------------------------------------------------------------------------------- */

typedef uint32_t rules_fn(struct grammar *g, const char *text, size_t size);

static uint32_t json_rules(struct grammar *g, const char *text, size_t size)
{
    struct jsonrules rules = { .g = g };
    (void)text, (void)size;
    return jsonrules_get(&rules, JSON_RULE_OBJECT);
}

/* The model's trie. Threads that ask at once all make it; one is kept. */
static zp_status find_trie(const zp_model *m, const struct tokentrie **out, zp_err *err)
{
    struct zp_model *own = (struct zp_model *)(uintptr_t)m;
    struct tokentrie *trie = atomic_load(&own->trie), *made;
    *out = trie;
    if (trie != NULL) return ZP_OK;
    ZP_TRY(tokentrie_open(&made, m->tokenizer, m->h.n_vocab, err));
    if (atomic_compare_exchange_strong(&own->trie, &trie, made)) trie = made;
    else tokentrie_close(made);
    *out = trie;
    return ZP_OK;
}

static zp_status fill(zp_grammar *g, const zp_model *m, rules_fn *rules, const char *text,
                      size_t size, zp_err *err)
{
    const struct tokentrie *trie;
    g->m = m;
    g->lock = (struct lock){ LOCK_INIT };
    ZP_TRY(model_tokenizer(m, &g->tokenizer, err));
    ZP_TRY(grammar_init(&g->grammar, err));
    uint32_t root = rules(&g->grammar, text, size);
    ZP_TRY(grammar_seal(&g->grammar, root));
    ZP_TRY(automaton_open(&g->automaton, &g->grammar, err));
    ZP_TRY(find_trie(m, &trie, err));
    return tokenmask_open(&g->masks, &g->automaton, trie, m->h.n_vocab, TOKENMASK_MAX_BYTES, err);
}

static zp_status open(zp_grammar **out, const zp_model *m, rules_fn *rules, const char *text,
                      size_t size, zp_err *err)
{
    *out = NULL;
    zp_grammar *g = mem_zalloc(MEM_META, sizeof *g);
    ZP_FAIL_IF(g == NULL, err, ZP_NO_MEMORY, "not enough memory for a grammar");
    zp_status status = fill(g, m, rules, text, size, err);
    g->grammar.err = NULL; /* the caller's; nothing is recorded any more */
    if (status != ZP_OK) zp_grammar_close(g);
    else *out = g;
    return status;
}

zp_status zp_grammar_open_schema(zp_grammar **out, const zp_model *m, const char *schema,
                                 size_t size, zp_err *err)
{
    return open(out, m, jsonschema_rules, schema, size, err);
}

zp_status zp_grammar_open_json(zp_grammar **out, const zp_model *m, zp_err *err)
{
    return open(out, m, json_rules, NULL, 0, err);
}

zp_status zp_grammar_open_gbnf(zp_grammar **out, const zp_model *m, const char *grammar,
                               size_t size, zp_err *err)
{
    return open(out, m, gbnf_rules, grammar, size, err);
}

void zp_grammar_close(zp_grammar *g)
{
    if (g == NULL) return;
    tokenmask_close(&g->masks);
    automaton_close(&g->automaton);
    grammar_free(&g->grammar);
    mem_free(g);
}

/* ---- texts ----------------------------------------------------------------------------------- */

void constrain_enter(zp_grammar *g, struct automaton_place *p)
{
    lock_take(&g->lock);
    automaton_enter(&g->automaton, p);
    lock_give(&g->lock);
}

void constrain_leave(zp_grammar *g, struct automaton_place *p)
{
    lock_take(&g->lock);
    automaton_leave(&g->automaton, p);
    lock_give(&g->lock);
}

size_t constrain_words(const zp_grammar *g)
{
    return g->masks.n_words;
}

const zp_model *constrain_model(const zp_grammar *g)
{
    return g->m;
}

void constrain_set_room(zp_grammar *g, size_t max_bytes)
{
    tokenmask_set_room(&g->masks, max_bytes);
}

zp_status constrain_mask(zp_grammar *g, const struct automaton_place *p, uint64_t *bits,
                         zp_err *err)
{
    const uint64_t *found;
    lock_take(&g->lock);
    zp_status status = tokenmask_get(&g->masks, p, &found, err);
    if (status == ZP_OK) memcpy(bits, found, g->masks.n_words * sizeof *bits);
    lock_give(&g->lock);
    return status;
}

static zp_status walk(zp_grammar *g, struct automaton_place *p, const uint8_t *bytes, size_t size,
                      zp_err *err)
{
    ZP_TRY(automaton_prepare(&g->automaton, err));
    uint32_t state = p->state;
    for (size_t i = 0; i < size; i++)
        ZP_TRY(automaton_step(&g->automaton, state, bytes[i], &state, err));
    ZP_FAIL_IF(state == AUTOMATON_DEAD, err, ZP_BAD_INPUT,
               "the grammar does not allow the token \"%.*s\" here", size < 60 ? (int)size : 60,
               (const char *)bytes);
    p->state = state;
    return ZP_OK;
}

zp_status constrain_accept(zp_grammar *g, struct automaton_place *p, int32_t id, zp_err *err)
{
    size_t size;
    bool ends = tokenizer_is_eog(g->tokenizer, id);
    ZP_FAIL_IF(id < 0 || id >= tokenizer_get_info(g->tokenizer)->n_vocab, err, ZP_BAD_INPUT,
               "token %d is outside the vocabulary", id);
    const uint8_t *bytes = tokentrie_bytes(g->tokenizer, id, &size);
    ZP_FAIL_IF(bytes == NULL && !ends, err, ZP_BAD_INPUT,
               "token %d is no text: a grammar never allows it", id);
    lock_take(&g->lock);
    bool early = ends && !g->automaton.states[p->state].accepts;
    zp_status status = ends ? ZP_OK : walk(g, p, bytes, size, err);
    lock_give(&g->lock);
    ZP_FAIL_IF(early, err, ZP_BAD_INPUT, "the text cannot end here by its grammar");
    return status;
}

bool constrain_is_over(zp_grammar *g, const struct automaton_place *p)
{
    lock_take(&g->lock);
    bool over = automaton_is_over(&g->automaton, p->state);
    lock_give(&g->lock);
    return over;
}

/* test_alloc_failures_grammar.c: opening grammars of every kind and drawing by them when allocation
 * number n fails, for all n: ZP_NO_MEMORY, no byte stays behind, and it works afterwards. */
#include "alloc_failures.h"

#include "model/model.h"
#include "model/tokentrie.h"

/* Each kind of rule, references, joined schemas, patterns, names of others, values that nest. */
static const char schema[] =
    "{\"$defs\":{\"n\":{\"type\":[\"integer\",\"null\"],\"minimum\":-3,\"maximum\":1e3},\"s\":"
    "{\"allOf\":[{\"type\":\"string\",\"minLength\":1},{\"maxLength\":9,\"pattern\":"
    "\"^(?:[a-z]|\\\\d{2}){1,9}x?$\"}]}},\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":"
    "\"#/$defs/n\"},\"ab\":{\"$ref\":\"#/$defs/"
    "s\"},\"v\":{\"enum\":[\"x\",1.5,{\"y\":[1,{}]},null]},"
    "\"l\":{\"type\":\"array\",\"prefixItems\":[{\"format\":\"date\"}],\"items\":{\"$ref\":\"#\"},"
    "\"maxItems\":3}},\"required\":[\"ab\",\"other\"],\"anyOf\":[{\"required\":[\"a\"]},"
    "{\"properties\":{\"v\":{\"const\":\"x\"},\"a\":{\"maximum\":5}},\"required\":[\"v\"]}]}";
static const char notation[] =
    "root ::= item (\",\" item)* # a comment\nitem ::= \"a\" | [^b-d]{5,7} | (\"x\" | .)? \"\\n\"";

struct fixture {
    zp_model *m;
    zp_grammar *g;
};

static zp_status give_back(zp_grammar *g, zp_status status)
{
    assert_true((g != NULL) == (status == ZP_OK));
    zp_grammar_close(g);
    return status;
}

static zp_status call_schema(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    zp_grammar *g;
    zp_status status = zp_grammar_open_schema(&g, f->m, schema, strlen(schema), why);
    return give_back(g, status);
}

static zp_status call_notation(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    zp_grammar *g;
    zp_status status = zp_grammar_open_gbnf(&g, f->m, notation, strlen(notation), why);
    return give_back(g, status);
}

static zp_status call_json(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    zp_grammar *g;
    zp_status status = zp_grammar_open_json(&g, f->m, why);
    return give_back(g, status);
}

static zp_status draw(zp_sampler *s, size_t n_vocab, zp_err *why)
{
    float *logits = calloc(n_vocab, sizeof *logits);
    zp_status status = ZP_OK;
    for (uint64_t i = 0; i < 12 && status == ZP_OK; i++) {
        int32_t id;
        status = zp_sampler_draw(s, logits, NULL, 0, i, &id, why);
        if (status == ZP_OK) status = zp_sampler_accept(s, id, why);
    }
    free(logits);
    return status;
}

/* Opens one, so that its tables are empty, and draws a text. */
static zp_status call_draws(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    zp_sampler_options o = { .temperature = 1, .seed = 4 };
    zp_sampler *s = NULL;
    zp_status status = zp_grammar_open_schema(&o.grammar, f->m, schema, strlen(schema), why);
    if (status == ZP_OK) status = zp_sampler_open(&s, f->m, &o, why);
    if (status == ZP_OK) status = draw(s, f->m->h.n_vocab, why);
    zp_sampler_close(s);
    zp_grammar_close(o.grammar);
    return status;
}

static zp_status call_trie(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    struct tokentrie *trie;
    zp_status status = tokentrie_open(&trie, f->m->tokenizer, f->m->h.n_vocab, why);
    assert_true((trie != NULL) == (status == ZP_OK));
    tokentrie_close(trie);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    struct fixture f = { 0 };
    (void)state;
    GOLDEN_OK(zp_model_open(&f.m, ZP_TEST_DATA "/arch/llama", NULL, err));
    struct fail_call calls[] = {
        { .what = "tokentrie_open", .run = call_trie },
        { .what = "zp_grammar_open_json", .run = call_json },
        { .what = "zp_grammar_open_schema", .run = call_schema },
        { .what = "zp_grammar_open_gbnf", .run = call_notation },
        { .what = "draws by a grammar", .run = call_draws },
    };
    zp_grammar *first; /* the model keeps its trie from now on */
    GOLDEN_OK(zp_grammar_open_json(&first, f.m, err));
    zp_grammar_close(first);
    for (size_t i = 0; i < ZP_COUNT(calls); i++) {
        calls[i].arg = &f;
        fail_each(&calls[i], i == 0 ? 5 : 20);
    }
    zp_model_close(f.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_allocation_may_fail) };
    fail_watch_jansson();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

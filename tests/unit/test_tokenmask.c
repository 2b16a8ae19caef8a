/* test_tokenmask.c: masks over a vocabulary against trying every token, however many are kept, and
 * the tokens that are never text. */
#include "grammar_fixture.h"

#include "model/tokenmask.h"
#include "tokenizer_fixture.h"

/* <unk> <s> </s>, all bytes, pieces of JSON and texts, some of the same bytes, and what no text
 * has. */
static const struct test_token pieces[] = {
    { "\xE2\x96\x81", TOKEN_NORMAL, 0 },      { "a", TOKEN_NORMAL, 0 },
    { "{\"", TOKEN_NORMAL, 0 },               { "\":", TOKEN_NORMAL, 0 },
    { "\":\xE2\x96\x81", TOKEN_NORMAL, 0 },   { "\",\xE2\x96\x81\"", TOKEN_NORMAL, 0 },
    { "\n\xE2\x96\x81\xE2\x96\x81", TOKEN_NORMAL, 0 }, { "]}", TOKEN_NORMAL, 0 },
    { "\"}", TOKEN_NORMAL, 0 },               { "name", TOKEN_NORMAL, 0 },
    { "nam", TOKEN_NORMAL, 0 },               { "12", TOKEN_NORMAL, 0 },
    { "123", TOKEN_NORMAL, 0 },               { "true", TOKEN_NORMAL, 0 },
    { "\xC3\xA9\xE4\xB8", TOKEN_NORMAL, 0 },  { "\xAD\"", TOKEN_NORMAL, 0 },
    { "a\"b", TOKEN_NORMAL, 0 },              { "}{", TOKEN_NORMAL, 0 },
    { "name\":\xE2\x96\x81\"x\"}", TOKEN_NORMAL, 0 }, { "<tool>", TOKEN_USER_DEFINED, 0 },
    { "\"unused", TOKEN_UNUSED, 0 },          { "[CTRL]", TOKEN_CONTROL, 0 },
    { "<eos>", TOKEN_CONTROL, 0 },
};
enum { N_BYTES = 256, N_FIRST = 3, N_TOKENS = N_FIRST + N_BYTES + (int)ZP_COUNT(pieces) };

static struct tokenizer *open_tokenizer(void)
{
    static struct test_token tokens[N_TOKENS];
    static char names[N_BYTES][8];
    struct tokenizer *t;
    tokens[0] = (struct test_token){ "<unk>", TOKEN_UNKNOWN, 0 };
    tokens[1] = (struct test_token){ "<s>", TOKEN_CONTROL, 0 };
    tokens[2] = (struct test_token){ "</s>", TOKEN_CONTROL, 0 };
    for (int i = 0; i < N_BYTES; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        tokens[N_FIRST + i] = (struct test_token){ names[i], TOKEN_BYTE, 0 };
    }
    memcpy(tokens + N_FIRST + N_BYTES, pieces, sizeof pieces);
    struct test_vocab v = { .model = "llama", .tokens = tokens, .n_tokens = N_TOKENS, .bos = 1,
                            .eos = 2, .unk = 0, .add_bos = -1, .add_space_prefix = -1,
                            .merge_spaces = -1 };
    GOLDEN_OK(open_vocab(&t, &v, NULL, err));
    return t;
}

static bool has_bit(const uint64_t *bits, size_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

/* What the mask must say of a token, by reading its bytes. */
static bool may_come(struct reader *r, const struct tokenizer *t, uint32_t state, int32_t id)
{
    size_t size;
    const uint8_t *bytes = tokenizer_token_bytes(t, id, &size);
    enum token_kind kind = tokenizer_token_kind(t, id);
    if (tokenizer_is_eog(t, id)) return r->a.states[state].accepts;
    if (kind != TOKEN_NORMAL && kind != TOKEN_BYTE && kind != TOKEN_USER_DEFINED) return false;
    for (size_t i = 0; i < size; i++)
        GOLDEN_OK(automaton_step(&r->a, state, bytes[i], &state, err));
    return state != AUTOMATON_DEAD;
}

static const char *const schemas[] = {
    "{}",
    "{\"type\":\"object\"}",
    ("{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":3},\"nam\":"
     "{\"type\":\"integer\",\"maximum\":123}}}"),
    "{\"enum\":[\"a\\\"b\",12,123,true,\"\\u00e9\\u4e2d\",{\"name\":\"x\"}]}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^<tool>|e$\"}}",
};

/* Walks through texts at random and compares each mask with brute force; room: bytes of masks. */
static void check_masks(const char *schema, size_t room, uint64_t seed, size_t n_vocab)
{
    struct rng rng = rng_stream(seed, 1);
    struct tokenizer *t = open_tokenizer();
    struct tokentrie *trie;
    struct tokenmask masks;
    struct automaton_place p;
    struct reader r;
    open_reader(&r, jsonschema_rules, schema);
    GOLDEN_OK(tokentrie_open(&trie, t, (uint32_t)n_vocab, err));
    GOLDEN_OK(tokenmask_open(&masks, &r.a, trie, (uint32_t)n_vocab, room, err));
    for (int text = 0; text < 12; text++) {
        automaton_enter(&r.a, &p);
        for (int step = 0; step < 25; step++) {
            const uint64_t *bits;
            int32_t allowed[N_TOKENS], n = 0;
            GOLDEN_OK(tokenmask_get(&masks, &p, &bits, err));
            for (int32_t id = 0; id < (int32_t)masks.n_words * 64; id++) {
                bool known = id < N_TOKENS && (size_t)id < n_vocab;
                bool wanted = known && may_come(&r, t, p.state, id);
                if (has_bit(bits, (size_t)id) != wanted)
                    fail_msg("%s: text %d, step %d: token %d is %s", schema, text, step, id,
                             wanted ? "missing" : "allowed");
                if (wanted && !tokenizer_is_eog(t, id)) allowed[n++] = id;
            }
            if (n == 0) break;
            size_t size;
            int32_t id = allowed[rng_below(&rng, (uint64_t)n)];
            const uint8_t *bytes = tokenizer_token_bytes(t, id, &size);
            for (size_t i = 0; i < size; i++)
                GOLDEN_OK(automaton_step(&r.a, p.state, bytes[i], &p.state, err));
        }
        automaton_leave(&r.a, &p);
    }
    tokenmask_close(&masks);
    tokentrie_close(trie);
    tokenizer_close(t);
    close_reader(&r);
}

static void test_masks_equal_brute_force(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(schemas); i++)
        check_masks(schemas[i], 1 << 20, 5 + i, N_TOKENS);
}

static void test_few_kept_masks_change_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(schemas); i++) {
        check_masks(schemas[i], 0, 50 + i, N_TOKENS);
        check_masks(schemas[i], 200, 60 + i, N_TOKENS); /* three of them */
    }
}

/* Fewer or more logits than tokens. */
static void test_vocabularies_of_other_sizes(void **state)
{
    (void)state;
    check_masks(schemas[1], 1 << 20, 70, N_TOKENS - 9);
    check_masks(schemas[1], 1 << 20, 71, N_TOKENS + 100);
}

static void test_tokens_that_are_no_text(void **state)
{
    struct tokenizer *t = open_tokenizer();
    size_t size;
    (void)state;
    for (int32_t id = 0; id < N_TOKENS; id++) {
        const char *text = tokenizer_token_text(t, id, &size);
        bool none = id < N_FIRST || strcmp(text, "\"unused") == 0 || strcmp(text, "[CTRL]") == 0 ||
                    strcmp(text, "<eos>") == 0;
        const uint8_t *bytes = tokentrie_bytes(t, id, &size);
        assert_true((bytes == NULL) == none);
    }
    tokenizer_close(t);
}

/* The trie against the list of tokens: each is found where its bytes lead, in order, once. */
static void test_trie_holds_every_text_once(void **state)
{
    struct tokenizer *t = open_tokenizer();
    struct tokentrie *trie;
    bool seen[N_TOKENS] = { false };
    uint8_t path[64];
    (void)state;
    GOLDEN_OK(tokentrie_open(&trie, t, N_TOKENS, err));
    for (uint32_t i = 0; i < trie->n_nodes; i++) {
        const struct tokentrie_node *n = &trie->nodes[i];
        path[n->depth - 1] = n->byte;
        assert_true(n->skip > i && n->skip <= trie->n_nodes && n->depth <= trie->max_depth);
        for (uint32_t k = i + 1; k < n->skip; k++) assert_true(trie->nodes[k].depth > n->depth);
        if (n->skip < trie->n_nodes) assert_true(trie->nodes[n->skip].depth <= n->depth);
        for (int32_t id = n->id; id != TOKEN_NONE; id = trie->same[id]) {
            size_t size;
            const uint8_t *bytes = tokentrie_bytes(t, id, &size);
            assert_int_equal(size, n->depth);
            assert_memory_equal(bytes, path, size);
            assert_false(seen[id]);
            seen[id] = true;
        }
    }
    for (int32_t id = 0; id < N_TOKENS; id++) {
        size_t size;
        assert_true(seen[id] == (tokentrie_bytes(t, id, &size) != NULL));
    }
    assert_int_equal(trie->n_ends, 2); /* </s> and <eos> */
    tokentrie_close(trie);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_equal_brute_force),
        cmocka_unit_test(test_few_kept_masks_change_nothing),
        cmocka_unit_test(test_vocabularies_of_other_sizes),
        cmocka_unit_test(test_tokens_that_are_no_text),
        cmocka_unit_test(test_trie_holds_every_text_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

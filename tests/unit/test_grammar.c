/* test_grammar.c: rules and the automaton that reads by them: repetition, recursion, ways that
 * begin alike, limits, and tables that are tidied up. */
#include "grammar_fixture.h"

/* A grammar made by hand; `make` returns the start of the root rule, which is rule 0. */
typedef uint32_t make_fn(struct grammar *g);

static zp_status try_made(struct reader *r, make_fn *make, zp_err *err)
{
    *r = (struct reader){ 0 };
    assert_int_equal(grammar_init(&r->g, err), ZP_OK);
    uint32_t root = grammar_declare(&r->g, "root");
    grammar_define(&r->g, root, make(&r->g));
    zp_status status = grammar_seal(&r->g, root);
    return status == ZP_OK ? automaton_open(&r->a, &r->g, err) : status;
}

static void expect_made(make_fn *make, const char *const *good, const char *const *bad)
{
    struct reader r;
    GOLDEN_OK(try_made(&r, make, err));
    for (; *good; good++) check_text(&r, "by hand", *good, strlen(*good), true);
    for (; *bad; bad++) check_text(&r, "by hand", *bad, strlen(*bad), false);
    close_reader(&r);
}

static void expect_not_made(make_fn *make, const char *part)
{
    struct reader r;
    zp_err why = { 0 };
    assert_int_equal(try_made(&r, make, &why), ZP_BAD_INPUT);
    if (strstr(why.message, part) == NULL) fail_msg("'%s' is not in: %s", part, why.message);
    close_reader(&r);
}

static uint32_t letter(struct grammar *g, char c)
{
    return grammar_rule(g, grammar_text(g, &c, 1, GRAMMAR_END));
}

/* ---- what texts are accepted ----------------------------------------------------------------- */

static uint32_t counted(struct grammar *g)
{
    return grammar_repeat(g, letter(g, 'a'), 2, 4,
                          grammar_repeat(g, letter(g, 'b'), 1, GRAMMAR_UNBOUNDED, GRAMMAR_END));
}

static void test_repetitions_are_counted(void **state)
{
    (void)state;
    expect_made(counted, TEXTS("aab", "aaabbbbb", "aaaab"),
                TEXTS("", "ab", "aa", "aaaaab", "aaba"));
}

/* (a? b?){3,5} c: rounds may be empty. */
static uint32_t empty_rounds(struct grammar *g)
{
    uint32_t b = grammar_either(g, grammar_text(g, "b", 1, GRAMMAR_END), GRAMMAR_END);
    uint32_t round = grammar_either(g, grammar_text(g, "a", 1, b), b);
    return grammar_repeat(g, grammar_rule(g, round), 3, 5, grammar_text(g, "c", 1, GRAMMAR_END));
}

static void test_rounds_may_be_empty(void **state)
{
    (void)state;
    expect_made(empty_rounds, TEXTS("c", "abc", "ababc", "aaaaac", "bbbc", "ababababac", "bac"),
                TEXTS("", "aaaaaac", "bbbbbbc", "abababababac", "cc"));
}

static uint32_t words(struct grammar *g)
{
    static const char *const list[] = { "in", "int", "", "integer", "in", "x", "out" };
    struct grammar_word w[ZP_COUNT(list)];
    for (size_t i = 0; i < ZP_COUNT(list); i++)
        w[i] = (struct grammar_word){ (const uint8_t *)list[i], strlen(list[i]) };
    return grammar_words(g, w, ZP_COUNT(list), grammar_text(g, ".", 1, GRAMMAR_END));
}

static void test_words_that_begin_alike(void **state)
{
    (void)state;
    expect_made(words, TEXTS("in.", "int.", ".", "integer.", "x.", "out."),
                TEXTS("i.", "inte.", "", "in", "xx.", "o."));
}

/* ( ) nested, also beside each other. */
static uint32_t brackets(struct grammar *g)
{
    uint32_t inside = grammar_call(g, 0, grammar_text(g, ")", 1, GRAMMAR_END));
    uint32_t pair = grammar_rule(g, grammar_text(g, "(", 1, inside));
    return grammar_repeat(g, pair, 0, GRAMMAR_UNBOUNDED, GRAMMAR_END);
}

static void test_rules_call_themselves(void **state)
{
    (void)state;
    expect_made(brackets, TEXTS("", "()", "(())", "()(()())"), TEXTS("(", ")", "(()", "())", ")("));
}

/* root = "a" root | "a": each letter is the end of the rule that calls. */
static uint32_t tail(struct grammar *g)
{
    return grammar_either(g, grammar_text(g, "a", 1, grammar_call(g, 0, GRAMMAR_END)),
                          grammar_text(g, "a", 1, GRAMMAR_END));
}

static void test_calls_at_the_end_need_no_stack(void **state)
{
    struct reader r;
    zp_err why = { 0 };
    (void)state;
    GOLDEN_OK(try_made(&r, tail, err));
    uint32_t at = r.a.start;
    for (size_t i = 0; i < 100000; i++) {
        assert_int_equal(automaton_step(&r.a, at, 'a', &at, &why), ZP_OK);
        assert_true(r.a.states[at].accepts);
    }
    assert_true(r.a.n_states <= 4);
    close_reader(&r);
}

/* root = "a" root "b" | "a" root "c" | "x": 2^n ways to read n letters a. */
static uint32_t alike(struct grammar *g)
{
    uint32_t b = grammar_call(g, 0, grammar_text(g, "b", 1, GRAMMAR_END));
    uint32_t c = grammar_call(g, 0, grammar_text(g, "c", 1, GRAMMAR_END));
    uint32_t ways = grammar_either(g, grammar_text(g, "a", 1, b), grammar_text(g, "a", 1, c));
    return grammar_either(g, ways, grammar_text(g, "x", 1, GRAMMAR_END));
}

static void test_ways_that_begin_alike_share_their_stacks(void **state)
{
    enum { DEPTH = 150 };
    char text[2 * DEPTH + 1];
    struct reader r;
    (void)state;
    GOLDEN_OK(try_made(&r, alike, err));
    memset(text, 'a', DEPTH);
    text[DEPTH] = 'x';
    for (size_t i = 0; i < DEPTH; i++) text[DEPTH + 1 + i] = i * i % 7 < 3 ? 'b' : 'c';
    assert_true(accepts(&r, text, sizeof text));
    assert_false(accepts(&r, text, sizeof text - 1));
    text[2 * DEPTH] = 'a';
    assert_false(accepts(&r, text, sizeof text));
    assert_true(r.a.n_items < 10 * DEPTH);
    close_reader(&r);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static uint32_t left(struct grammar *g)
{
    return grammar_either(g, grammar_call(g, 0, grammar_text(g, "a", 1, GRAMMAR_END)),
                          grammar_text(g, "a", 1, GRAMMAR_END));
}

/* root begins with b, b with an empty rule and root. */
static uint32_t hidden_left(struct grammar *g)
{
    uint32_t empty = grammar_rule(g, GRAMMAR_END);
    uint32_t back = grammar_call(g, 0, grammar_text(g, "a", 1, GRAMMAR_END));
    uint32_t b = grammar_rule(g, grammar_call(g, empty, back));
    return grammar_either(g, grammar_repeat(g, b, 0, 3, GRAMMAR_END),
                          grammar_text(g, "x", 1, GRAMMAR_END));
}

static uint32_t endless(struct grammar *g)
{
    return grammar_text(g, "a", 1, grammar_call(g, 0, GRAMMAR_END));
}

static uint32_t undefined(struct grammar *g)
{
    return grammar_call(g, grammar_declare(g, "nowhere"), GRAMMAR_END);
}

static uint32_t many_empty_rounds(struct grammar *g)
{
    return grammar_repeat(g, grammar_rule(g, GRAMMAR_END), 0, 65, GRAMMAR_END);
}

/* 250 rules, each inside the one before. */
static uint32_t deep(struct grammar *g)
{
    uint32_t rule = letter(g, 'x');
    for (int i = 0; i < 250; i++)
        rule = grammar_rule(g, grammar_text(g, "(", 1, grammar_call(g, rule, grammar_text(
                                                           g, ")", 1, GRAMMAR_END))));
    return grammar_call(g, rule, GRAMMAR_END);
}

static uint32_t large(struct grammar *g)
{
    uint32_t node = GRAMMAR_END;
    for (uint32_t i = 0; i < 2 * GRAMMAR_MAX_NODES; i++) node = grammar_bytes(g, 'a', 'b', node);
    return node;
}

static uint32_t many_rules(struct grammar *g)
{
    uint32_t node = GRAMMAR_END;
    for (uint32_t i = 0; i < 2 * GRAMMAR_MAX_RULES; i++)
        node = grammar_call(g, grammar_rule(g, GRAMMAR_END), node);
    return node;
}

static void test_grammars_that_cannot_work_are_refused(void **state)
{
    (void)state;
    expect_not_made(left, "root begins with itself");
    expect_not_made(hidden_left, "root begins with itself");
    expect_not_made(endless, "nothing can satisfy");
    expect_not_made(undefined, "nowhere is called, but not defined");
    expect_not_made(many_empty_rounds, "65 repetitions");
    expect_not_made(deep, "deeper than 200");
    expect_not_made(large, "more than 262144 nodes");
    expect_not_made(many_rules, "more than 32768 rules");
}

/* A way that leads nowhere is not taken: no state has it. */
static uint32_t closed_ways(struct grammar *g)
{
    uint32_t never = grammar_rule(g, grammar_text(g, "n", 1, grammar_call(g, 2, GRAMMAR_END)));
    grammar_rule(g, grammar_text(g, "m", 1, grammar_call(g, never, GRAMMAR_END)));
    uint32_t open = grammar_text(g, "ab", 2, GRAMMAR_END);
    return grammar_either(g, grammar_text(g, "a", 1, grammar_call(g, never, GRAMMAR_END)), open);
}

static void test_ways_without_an_end_are_not_taken(void **state)
{
    (void)state;
    expect_made(closed_ways, TEXTS("ab"), TEXTS("an", "anm", "a", "am"));
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Letters a and b in any order, which end in the reverse order: each text has a stack of its
 * own. */
static uint32_t mirrored(struct grammar *g)
{
    uint32_t a = grammar_call(g, 0, grammar_text(g, "a", 1, GRAMMAR_END));
    uint32_t b = grammar_call(g, 0, grammar_text(g, "b", 1, GRAMMAR_END));
    uint32_t ways = grammar_either(g, grammar_text(g, "a", 1, a), grammar_text(g, "b", 1, b));
    return grammar_either(g, ways, grammar_text(g, ".", 1, GRAMMAR_END));
}

static uint32_t go(struct reader *r, uint32_t at, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        GOLDEN_OK(automaton_step(&r->a, at, (uint8_t)text[i], &at, err));
    return at;
}

/* Fills the tables with other texts until they are tidied up several times; places that stay go on
 * where they were, each by its own text. */
static void test_places_outlast_their_tables(void **state)
{
    enum { N = 20, DEPTH = 60 };
    struct automaton_place places[N];
    char texts[N][2 * DEPTH + 1], other[100];
    struct rng rng = rng_stream(31, 1);
    struct reader r;
    (void)state;
    GOLDEN_OK(try_made(&r, mirrored, err));
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < DEPTH; k++)
            texts[i][k] = texts[i][2 * DEPTH - k] = rng_below(&rng, 2) ? 'a' : 'b';
        texts[i][DEPTH] = '.';
        automaton_enter(&r.a, &places[i]);
        places[i].state = go(&r, places[i].state, texts[i], i * 3);
    }
    for (size_t round = 0; r.a.age < 3; round++) {
        assert_true(round < 100000);
        GOLDEN_OK(automaton_prepare(&r.a, err));
        for (size_t k = 0; k < sizeof other; k++) other[k] = rng_below(&rng, 2) ? 'a' : 'b';
        go(&r, r.a.start, other, sizeof other);
    }
    automaton_leave(&r.a, &places[7]);
    for (size_t i = 0; i < N; i++) {
        if (i == 7) continue;
        uint32_t end = go(&r, places[i].state, texts[i] + i * 3, 2 * DEPTH + 1 - i * 3);
        assert_true(automaton_is_over(&r.a, end));
        automaton_leave(&r.a, &places[i]);
    }
    assert_null(r.a.places);
    close_reader(&r);
}

/* ((a|b|ab|ba|aa|...) with ends that count: a step that would take too long is refused. */
static uint32_t costly(struct grammar *g)
{
    uint32_t rules[40], node = GRAMMAR_NEVER;
    for (uint32_t i = 0; i < ZP_COUNT(rules); i++) {
        uint32_t round = grammar_rule(g, grammar_text(g, "aaaaaaaa", i % 5 + 1, GRAMMAR_END));
        rules[i] = grammar_rule(g, grammar_repeat(g, round, 0, 5000 + i, GRAMMAR_END));
    }
    for (uint32_t i = 0; i < 200; i++) {
        char end = (char)('A' + i % 26);
        uint32_t then = grammar_call(g, rules[i * 7 % 40], grammar_text(g, &end, 1, GRAMMAR_END));
        node = grammar_either(g, grammar_call(g, rules[i % 40], then), node);
    }
    return grammar_repeat(g, grammar_rule(g, grammar_text(g, "<", 1, node)), 1, 60, GRAMMAR_END);
}

static void test_steps_of_grammars_with_too_many_ways_fail(void **state)
{
    struct reader r;
    zp_err why = { 0 };
    zp_status status = ZP_OK;
    (void)state;
    GOLDEN_OK(try_made(&r, costly, err));
    uint32_t at = r.a.start;
    GOLDEN_OK(automaton_prepare(&r.a, err));
    status = automaton_step(&r.a, at, '<', &at, &why);
    for (size_t i = 0; i < 4000 && status == ZP_OK; i++)
        status = automaton_step(&r.a, at, 'a', &at, &why);
    assert_int_equal(status, ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "too many ways"));
    GOLDEN_OK(automaton_prepare(&r.a, err)); /* the automaton goes on, with other texts */
    uint32_t begin = r.a.start;
    GOLDEN_OK(automaton_step(&r.a, begin, '<', &begin, err));
    assert_true(begin != AUTOMATON_DEAD);
    close_reader(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repetitions_are_counted),
        cmocka_unit_test(test_rounds_may_be_empty),
        cmocka_unit_test(test_words_that_begin_alike),
        cmocka_unit_test(test_rules_call_themselves),
        cmocka_unit_test(test_calls_at_the_end_need_no_stack),
        cmocka_unit_test(test_ways_that_begin_alike_share_their_stacks),
        cmocka_unit_test(test_grammars_that_cannot_work_are_refused),
        cmocka_unit_test(test_ways_without_an_end_are_not_taken),
        cmocka_unit_test(test_places_outlast_their_tables),
        cmocka_unit_test(test_steps_of_grammars_with_too_many_ways_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

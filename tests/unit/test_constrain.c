/* test_constrain.c: generation by a grammar on a small random model: what comes is valid JSON by
 * its schema, whatever the draws, the drafts, the company, and the threads. */
#include "schema_check.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/constrain.h"
#include "model/engine.h"

enum { N_CTX = 400, N_PREDICT = 300 };

struct fixture {
    zp_model *m;
    zp_engine *e;
    zp_seq *s;
    zp_bias ends[8]; /* makes strings, arrays and objects end soon */
    size_t n_ends;
};

static void add_bias(struct fixture *f, const char *text, float value)
{
    int32_t *ids;
    size_t n;
    GOLDEN_OK(zp_tokenize(f->m, text, strlen(text), 0, &ids, &n, err));
    assert_int_equal(n, 1);
    f->ends[f->n_ends++] = (zp_bias){ ids[0], value };
    zp_free(ids);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    GOLDEN_OK(zp_model_open(&f->m, ZP_TEST_DATA "/arch/llama", NULL, err));
    f->e = golden_engine(f->m, (zp_engine_options){ .n_ctx = N_CTX, .n_seq = 4, .n_threads = 1 });
    GOLDEN_OK(zp_seq_open(&f->s, f->e, NULL, err));
    add_bias(f, "\"", 5);
    add_bias(f, "}", 5);
    add_bias(f, "]", 5);
    add_bias(f, ",", 2);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    zp_seq_close(f->s);
    zp_engine_close(f->e);
    zp_model_close(f->m);
    free(f);
    return 0;
}

static zp_grammar *open_schema(struct fixture *f, const char *schema)
{
    zp_grammar *g = NULL;
    GOLDEN_OK(zp_grammar_open_schema(&g, f->m, schema, strlen(schema), err));
    return g;
}

static const int32_t prompt[] = { 40, 80, 120, 60, 90, 40, 80, 120, 60, 90 };

static zp_generate_options options_of(struct fixture *f, zp_grammar *g, uint64_t seed)
{
    return (zp_generate_options){ .n_predict = N_PREDICT,
                                  .sampler = { .temperature = 1.2f, .seed = seed, .grammar = g,
                                               .bias = f->ends, .n_bias = f->n_ends } };
}

static void generate(struct fixture *f, const zp_generate_options *o, zp_generated *out)
{
    GOLDEN_OK(zp_seq_truncate(f->s, 0, err));
    GOLDEN_OK(zp_generate(f->e, f->s, prompt, ZP_COUNT(prompt), o, out, err));
}

static void free_result(zp_generated *out)
{
    zp_free(out->ids);
    zp_free(out->text);
}

/* ---- what comes is valid --------------------------------------------------------------------- */

/* How many of the texts were whole. */
static size_t check_texts(struct fixture *f, const json_t *schema, const char *what, size_t rounds)
{
    char *text = json_dumps(schema, JSON_COMPACT);
    zp_grammar *g = open_schema(f, text);
    size_t whole = 0;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        zp_generated out;
        zp_generate_options o = options_of(f, g, seed);
        json_error_t error;
        generate(f, &o, &out);
        if (strcmp(out.reason, "end") == 0) {
            json_t *value = json_loads(out.text, JSON_DECODE_ANY, &error);
            if (value == NULL)
                fail_msg("%s: seed %d: %s: %s", what, (int)seed, error.text, out.text);
            if (!schema_is_valid(schema, schema, value))
                fail_msg("%s: seed %d: not valid: %s", what, (int)seed, out.text);
            json_decref(value);
            whole++;
        } else assert_string_equal(out.reason, "length");
        free_result(&out);
    }
    zp_grammar_close(g);
    free(text);
    return whole;
}

static void test_random_texts_are_valid_by_their_schema(void **state)
{
    struct fixture *f = *state;
    json_t *root = golden_load("schemas.json"), *one;
    size_t i, whole = 0, all = 0;
    json_array_foreach (json_object_get(root, "cases"), i, one) {
        const char *what = json_string_value(json_object_get(one, "what"));
        whole += check_texts(f, json_object_get(one, "schema"), what, 3);
        all += 3;
    }
    print_message("%zu of %zu texts were whole\n", whole, all);
    assert_true(whole > all / 2);
    json_decref(root);
}

static void test_any_object_is_one(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g;
    size_t whole = 0;
    GOLDEN_OK(zp_grammar_open_json(&g, f->m, err));
    for (uint64_t seed = 100; seed < 110; seed++) {
        zp_generated out;
        zp_generate_options o = options_of(f, g, seed);
        generate(f, &o, &out);
        assert_int_equal(out.text[0], '{');
        json_t *value = json_loads(out.text, 0, NULL);
        assert_true(json_is_object(value) == (strcmp(out.reason, "end") == 0));
        whole += value != NULL;
        json_decref(value);
        free_result(&out);
    }
    assert_true(whole > 0);
    zp_grammar_close(g);
}

static void test_llama_cpp_grammars(void **state)
{
    struct fixture *f = *state;
    static const char grammar[] = "root ::= \"<\" [a-c]{2,4} \">\" | \"none\"";
    zp_grammar *g;
    GOLDEN_OK(zp_grammar_open_gbnf(&g, f->m, grammar, strlen(grammar), err));
    for (uint64_t seed = 0; seed < 10; seed++) {
        zp_generated out;
        zp_generate_options o = options_of(f, g, seed);
        generate(f, &o, &out);
        size_t n = strlen(out.text);
        bool letters = n >= 4 && n <= 6 && strspn(out.text + 1, "abc") == n - 2 &&
                       out.text[0] == '<' && out.text[n - 1] == '>';
        assert_true(letters || strcmp(out.text, "none") == 0);
        assert_string_equal(out.reason, "end");
        free_result(&out);
    }
    zp_grammar_close(g);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void test_whole_texts_end_without_an_end_token(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g = open_schema(f, "{\"const\":[1,2]}");
    zp_bias all_ends[3] = { { 0, -INFINITY }, { 1, -INFINITY }, { 2, -INFINITY } };
    zp_generate_options o = { .sampler = { .grammar = g, .bias = all_ends, .n_bias = 3 } };
    zp_generated out;
    generate(f, &o, &out);
    assert_string_equal(out.reason, "end");
    assert_int_equal(strspn(out.text, "[]12, \n\t"), strlen(out.text));
    assert_int_equal(zp_seq_length(f->s), ZP_COUNT(prompt) + out.n_ids - 1);
    free_result(&out);
    zp_grammar_close(g);
}

/* Numbers may go on: the model has a say in where they end. */
static void test_end_tokens_come_where_the_text_may_end(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g = open_schema(f, "{\"type\":\"integer\"}");
    zp_bias end = { 0, 1e6f };
    zp_generate_options o = { .sampler = { .grammar = g, .bias = &end, .n_bias = 1 } };
    zp_generated out;
    assert_true(zp_token_ends(f->m, 0));
    generate(f, &o, &out);
    assert_string_equal(out.reason, "end");
    assert_true(out.n_ids == 1 || (out.n_ids == 2 && out.text[0] == '-'));
    free_result(&out);
    zp_grammar_close(g);
}

static void test_length_and_stop_strings_end_texts_early(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g = open_schema(f, "{\"type\":\"string\",\"minLength\":50}");
    static const char *const stops[] = { "\"" };
    zp_generate_options o = options_of(f, g, 3);
    zp_generated out;
    o.n_predict = 8;
    generate(f, &o, &out);
    assert_string_equal(out.reason, "length");
    assert_int_equal(out.n_ids, 8);
    free_result(&out);
    o.stop = stops, o.n_stop = 1;
    generate(f, &o, &out);
    assert_string_equal(out.reason, "stop");
    assert_string_equal(out.text, "");
    free_result(&out);
    zp_grammar_close(g);
}

/* ---- nothing else changes the result --------------------------------------------------------- */

static const char *const schemas[] = {
    "{\"type\":\"array\",\"items\":{\"enum\":[\"ab\",\"abc\",12]},\"minItems\":20}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"n\":{\"type\":"
    "\"integer\",\"minimum\":5}},\"required\":[\"name\",\"n\"]}",
    "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"const\":\"the the the\"}},"
    "\"minItems\":4}",
};

static void test_drafts_change_nothing_but_time(void **state)
{
    struct fixture *f = *state;
    size_t drafted = 0, accepted = 0;
    for (size_t i = 0; i < ZP_COUNT(schemas); i++) {
        zp_grammar *g = open_schema(f, schemas[i]);
        for (uint64_t seed = 0; seed < 4; seed++) {
            zp_generated plain, out;
            zp_generate_options o = options_of(f, g, seed);
            if (seed == 0) o.sampler.temperature = 0;
            generate(f, &o, &plain);
            o.n_draft = 8;
            generate(f, &o, &out);
            assert_int_equal(out.n_ids, plain.n_ids);
            assert_memory_equal(out.ids, plain.ids, out.n_ids * sizeof *out.ids);
            assert_string_equal(out.text, plain.text);
            assert_string_equal(out.reason, plain.reason);
            drafted += out.n_drafted;
            accepted += out.n_accepted;
            free_result(&plain);
            free_result(&out);
        }
        zp_grammar_close(g);
    }
    print_message("%zu of %zu guesses were right\n", accepted, drafted);
    assert_true(accepted > 0 && accepted < drafted);
}

/* Twelve jobs with three grammars, four at a time, against each alone with a grammar of its own. */
static void test_company_changes_nothing(void **state)
{
    enum { N_JOBS = 12 };
    struct fixture *f = *state;
    zp_grammar *shared[ZP_COUNT(schemas)];
    zp_generate_options options[N_JOBS];
    zp_job jobs[N_JOBS];
    for (size_t i = 0; i < ZP_COUNT(schemas); i++) shared[i] = open_schema(f, schemas[i]);
    for (size_t i = 0; i < N_JOBS; i++) {
        options[i] = options_of(f, shared[i % ZP_COUNT(schemas)], i);
        jobs[i] = (zp_job){ .prompt = prompt, .n_prompt = 1 + i % ZP_COUNT(prompt),
                            .options = &options[i] };
    }
    GOLDEN_OK(zp_generate_many(f->e, NULL, jobs, N_JOBS, NULL, err));
    for (size_t i = 0; i < N_JOBS; i++) {
        zp_grammar *own = open_schema(f, schemas[i % ZP_COUNT(schemas)]);
        zp_generate_options o = options_of(f, own, i);
        zp_generated out;
        GOLDEN_OK(zp_seq_truncate(f->s, 0, err));
        GOLDEN_OK(zp_generate(f->e, f->s, prompt, jobs[i].n_prompt, &o, &out, err));
        assert_string_equal(jobs[i].result.text, out.text);
        assert_string_equal(jobs[i].result.reason, out.reason);
        free_result(&out);
        free_result(&jobs[i].result);
        zp_grammar_close(own);
    }
    for (size_t i = 0; i < ZP_COUNT(schemas); i++) zp_grammar_close(shared[i]);
}

/* A grammar that keeps one mask at a time gives the same texts. */
static void test_kept_masks_change_nothing(void **state)
{
    struct fixture *f = *state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        zp_grammar *many = open_schema(f, schemas[1]), *one = open_schema(f, schemas[1]);
        zp_generated a, b;
        constrain_set_room(one, 0);
        zp_generate_options o = options_of(f, many, seed), p = options_of(f, one, seed);
        generate(f, &o, &a);
        generate(f, &p, &b);
        assert_string_equal(a.text, b.text);
        free_result(&a);
        free_result(&b);
        zp_grammar_close(many);
        zp_grammar_close(one);
    }
}

struct worker {
    struct fixture *f;
    zp_grammar *g;
    pthread_t thread;
    int32_t ids[200];
    size_t n;
    uint64_t seed;
};

/* Draws from flat logits until the text ends. */
static void *draw_text(void *arg)
{
    struct worker *w = arg;
    zp_sampler *s;
    zp_model_info info;
    zp_model_describe(w->f->m, &info);
    float *logits = calloc(info.n_vocab, sizeof *logits);
    zp_sampler_options o = options_of(w->f, w->g, w->seed).sampler;
    if (zp_sampler_open(&s, w->f->m, &o, NULL) != ZP_OK) return NULL;
    for (w->n = 0; w->n < ZP_COUNT(w->ids); w->n++) {
        int32_t *id = &w->ids[w->n];
        zp_status status = zp_sampler_draw(s, logits, NULL, 0, w->n, id, NULL);
        if (status != ZP_OK || zp_token_ends(w->f->m, *id)) break;
        if (zp_sampler_accept(s, *id, NULL) != ZP_OK) break;
    }
    zp_sampler_close(s);
    free(logits);
    return NULL;
}

static void test_threads_share_a_grammar(void **state)
{
    enum { N = 4 };
    struct fixture *f = *state;
    struct worker workers[N], alone;
    zp_grammar *g = open_schema(f, schemas[1]);
    for (size_t i = 0; i < N; i++) {
        workers[i] = (struct worker){ .f = f, .g = g, .seed = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, draw_text, &workers[i]), 0);
    }
    for (size_t i = 0; i < N; i++) pthread_join(workers[i].thread, NULL);
    zp_grammar_close(g);
    for (size_t i = 0; i < N; i++) {
        alone = (struct worker){ .f = f, .g = open_schema(f, schemas[1]), .seed = i };
        draw_text(&alone);
        assert_true(alone.n > 5);
        assert_int_equal(alone.n, workers[i].n);
        assert_memory_equal(alone.ids, workers[i].ids, alone.n * sizeof *alone.ids);
        zp_grammar_close(alone.g);
    }
}

/* ---- samplers -------------------------------------------------------------------------------- */

static void test_draws_are_of_the_accepted_text(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g = open_schema(f, "{\"enum\":[true,false]}");
    zp_sampler_options o = { .grammar = g, .temperature = 1, .top_k = 2, .seed = 8 };
    float logits[512] = { 0 };
    zp_sampler *s;
    int32_t a, b;
    zp_err why = { 0 };
    GOLDEN_OK(zp_sampler_open(&s, f->m, &o, err));
    for (uint64_t i = 0; i < 20; i++) { /* a draw alone moves nothing */
        GOLDEN_OK(zp_sampler_draw(s, logits, NULL, 0, i, &a, err));
        GOLDEN_OK(zp_sampler_draw(s, logits, NULL, 0, i, &b, err));
        assert_int_equal(a, b);
    }
    assert_int_equal(zp_sampler_accept(s, 0, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "cannot end here"));
    why = (zp_err){ 0 };
    assert_int_equal(zp_sampler_accept(s, 1, &why), ZP_BAD_INPUT); /* <|im_start|> */
    why = (zp_err){ 0 };
    assert_int_equal(zp_sampler_accept(s, 1000000, &why), ZP_BAD_INPUT);
    why = (zp_err){ 0 };
    assert_int_equal(zp_sampler_accept(s, -1, &why), ZP_BAD_INPUT);
    GOLDEN_OK(zp_sampler_accept(s, a, err));
    why = (zp_err){ 0 };
    assert_int_equal(zp_sampler_accept(s, a, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "does not allow the token"));
    zp_sampler_close(s);
    zp_grammar_close(g);
}

static void test_what_cannot_be_drawn_is_told(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g = open_schema(f, "{\"enum\":[true,false]}");
    int32_t *ids;
    size_t n;
    GOLDEN_OK(zp_tokenize(f->m, "tf", 2, 0, &ids, &n, err));
    assert_int_equal(n, 2);
    zp_bias bans[2] = { { ids[0], -INFINITY }, { ids[1], -INFINITY } };
    zp_generate_options o = { .sampler = { .grammar = g, .bias = bans, .n_bias = 2 } };
    zp_generated out;
    zp_err why = { 0 };
    GOLDEN_OK(zp_seq_truncate(f->s, 0, err));
    assert_int_equal(zp_generate(f->e, f->s, prompt, 5, &o, &out, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "the bias bans those that the grammar allows"));
    zp_free(ids);
    zp_grammar_close(g);
}

static void test_misuse_is_refused(void **state)
{
    struct fixture *f = *state;
    zp_grammar *g = open_schema(f, "{}"), *none = NULL;
    zp_model *other = golden_small("gguf-qwen3");
    zp_sampler_options so = { .grammar = g };
    zp_generate_options o = { .sampler = so, .ignore_end = true };
    zp_generated out;
    zp_sampler *s = NULL;
    zp_err why = { 0 };
    assert_int_equal(zp_sampler_open(&s, other, &so, &why), ZP_USAGE);
    assert_non_null(strstr(why.message, "another model"));
    assert_null(s);
    why = (zp_err){ 0 };
    assert_int_equal(zp_generate(f->e, f->s, prompt, 5, &o, &out, &why), ZP_USAGE);
    assert_non_null(strstr(why.message, "ignore_end"));
    why = (zp_err){ 0 };
    assert_int_equal(zp_grammar_open_gbnf(&none, f->m, "root ::= (", 10, &why), ZP_BAD_INPUT);
    assert_null(none);
    GOLDEN_OK(zp_sampler_open(&s, f->m, NULL, err));
    GOLDEN_OK(zp_sampler_accept(s, 3, err)); /* without a grammar: nothing to do */
    zp_sampler_close(s);
    zp_grammar_close(NULL);
    zp_grammar_close(g);
    zp_model_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_texts_are_valid_by_their_schema, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_any_object_is_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_llama_cpp_grammars, setup, teardown),
        cmocka_unit_test_setup_teardown(test_whole_texts_end_without_an_end_token, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_tokens_come_where_the_text_may_end, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_length_and_stop_strings_end_texts_early, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_drafts_change_nothing_but_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_company_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_masks_change_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_share_a_grammar, setup, teardown),
        cmocka_unit_test_setup_teardown(test_draws_are_of_the_accepted_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_drawn_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_misuse_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

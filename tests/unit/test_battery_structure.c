/* test_battery_structure.c: what zp_probe_json tells of tokens by their part of a document's
 * structure, and of detectors, against figures computed here from plain logits and embeddings; the
 * same document for any threads; what is refused. */
#include "golden.h"
#include "in_folder.h"
#include "train_fixture.h"

#include <zerope/train.h>

#include "evap/heldwin.h"
#include "kern/quant.h"
#include "live_bytes.h"
#include "model/model.h"
#include "train/tagger.h"

enum { N_DOCS = 18, SHORT = 64, LONG = 200, N_WINDOWS = 5, PARTS = 3 + STRUCT_TYPES };

static zp_model *model, *base;
static struct shards shards;
static struct tagger tagger;
static char corpus[128];

static int start(void **state)
{
    make_folder(state);
    model = golden_small("zerope-struct");
    base = golden_small("gguf-smollm3");
    snprintf(corpus, sizeof corpus, "%s", in_folder("structured.tokens"));
    fixture_structured_corpus(corpus, model->tokenizer, N_DOCS);
    FINE(shards_open(&shards, corpus, err));
    FINE(tagger_open(&tagger, &shards, model->tokenizer, true, err));
    return 0;
}

static int stop(void **state)
{
    tagger_close(&tagger);
    shards_close(&shards);
    zp_model_close(model);
    zp_model_close(base);
    return remove_folder(state);
}

static const uint32_t lengths[] = { SHORT, LONG };
static zp_probe_options options(void)
{
    return (zp_probe_options){ .lengths = lengths, .n_lengths = 2, .n_windows = N_WINDOWS,
                               .no_cases = true, .structure = true,
                               .engine = { .n_threads = 1 } };
}

static json_t *probe(const zp_model *m, const zp_model *against, uint32_t n_threads)
{
    zp_probe_options o = options();
    char *text;
    o.engine.n_threads = n_threads;
    FINE(zp_probe_json(m, against, corpus, &o, &text, err));
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    zp_free(text);
    json_object_del(doc, "total_seconds");
    return doc;
}

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    if (!json_is_number(v)) fail_msg("%s is missing or no number", key);
    return json_number_value(v);
}

static void near(double a, double b)
{
    if (!(fabs(a - b) < 2e-6 * (1 + fabs(b)))) fail_msg("%.9g, expected %.9g", a, b);
}

/* ---- tokens by part -------------------------------------------------------------------------- */

static bool is_of(uint16_t tag, size_t part)
{
    if (part == 0) return (tag & DOCTAGS_BEGINS) != 0;
    if (part == 1) return (tag & (DOCTAGS_BEGINS - 1)) != 0;
    if (part == 2) return tag == 0;
    return tag >> (part - 3) & 1;
}

struct truth {
    double nll[2], right[2];
    size_t n;
};

/* NLL of the target and whether it is the first of the most likely ones, of m at each place. */
static void add_window(const zp_model *m, int side, const struct heldwin *w, uint32_t n,
                       struct truth *of)
{
    size_t n_vocab = m->h.n_vocab;
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = n, .exact = true, .n_threads = 1 });
    float *logits = golden_logits(e, m, w->tokens, n);
    for (uint32_t p = 0; p < n; p++) {
        const float *row = logits + p * n_vocab;
        size_t target = (size_t)w->tokens[p + 1], best = 0;
        double sum = 0;
        for (size_t v = 0; v < n_vocab; v++) {
            sum += exp((double)row[v]);
            if (row[v] > row[best]) best = v;
        }
        for (size_t part = 0; part < PARTS; part++) {
            if (w->place[p] == HELDWIN_SEPARATOR || !is_of(tagger.tags[w->place[p]], part))
                continue;
            of[part].nll[side] += log(sum) - (double)row[target];
            of[part].right[side] += best == target;
            of[part].n += side == 0;
        }
    }
    free(logits);
    zp_engine_close(e);
}

static void test_parts_equal_plain_logits(void **state)
{
    (void)state;
    static const char *const names[PARTS] = { "boundary", "mark",       "plain", "heading",
                                              "xml_tag",  "numbering",  "table", "code_fence",
                                              "list",     "section",    "break" };
    uint64_t live = live_bytes();
    json_t *doc = probe(model, base, 1);
    assert_int_equal(live_bytes(), live);
    const json_t *rows = json_object_get(doc, "structure");
    assert_int_equal(json_array_size(rows), 2 * PARTS);
    for (size_t i = 0; i < 2; i++) {
        struct heldwin_set w;
        struct truth of[PARTS] = { 0 };
        FINE(heldwin_open(&w, &shards, lengths[i], N_WINDOWS, err));
        for (uint32_t k = 0; k < w.n; k++) {
            add_window(model, 0, &w.at[k], lengths[i], of);
            add_window(base, 1, &w.at[k], lengths[i], of);
        }
        heldwin_close(&w);
        assert_true(of[0].n > 10 && of[1].n > 10 && of[2].n > 100);
        for (size_t part = 0; part < PARTS; part++) {
            const json_t *row = json_array_get(rows, i * PARTS + part);
            double n = (double)of[part].n;
            assert_string_equal(json_string_value(json_object_get(row, "tokens_of")), names[part]);
            assert_true(number(row, "length") == lengths[i] && number(row, "tokens") == n);
            if (n == 0) {
                assert_true(json_is_null(json_object_get(row, "accuracy")));
                continue;
            }
            near(number(row, "nll"), of[part].nll[0] / n);
            near(number(row, "nll_change"), (of[part].nll[0] - of[part].nll[1]) / n);
            near(number(row, "accuracy"), of[part].right[0] / n);
            near(number(row, "accuracy_base"), of[part].right[1] / n);
            near(number(row, "accuracy_change"), (of[part].right[0] - of[part].right[1]) / n);
        }
    }
    json_decref(doc);
}

/* ---- detectors ------------------------------------------------------------------------------- */

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

/* Bits of the detectors above 1/2, from the file's embedding. */
static unsigned says(int32_t id)
{
    const struct gguf_tensor *t = gguf_find_tensor(&model->gguf, "token_embd.weight");
    const struct structhead *s = &model->structure;
    float x[64];
    double square = 0, gate = 0;
    unsigned bits = 0;
    size_t d = model->h.d_model;
    quant_dequantize_row(quant_traits_find(t->type),
                         t->data + (size_t)id * gguf_tensor_row_bytes(t), x, d);
    for (size_t i = 0; i < d; i++) square += (double)x[i] * (double)x[i];
    double rms = sqrt(square / (double)d + (double)model->h.norm_eps);
    for (size_t i = 0; i < d; i++) gate += (double)s->gate[i] * (double)x[i] / rms;
    for (size_t k = 0; k < STRUCT_TYPES; k++) {
        double z = 0;
        for (size_t i = 0; i < d; i++) z += (double)s->weight[k * d + i] * (double)x[i] / rms;
        bits |= (sigmoid(z) * sigmoid(gate) > 0.5 ? 1u : 0u) << k;
    }
    return bits;
}

static void test_detectors_are_counted_by_token(void **state)
{
    (void)state;
    struct heldwin_set w;
    size_t tagged[STRUCT_TYPES] = { 0 }, found[STRUCT_TYPES] = { 0 }, hit[STRUCT_TYPES] = { 0 };
    json_t *doc = probe(model, NULL, 2);
    const json_t *rows = json_object_get(doc, "detectors");
    FINE(heldwin_open(&w, &shards, SHORT, N_WINDOWS, err));
    for (uint32_t i = 0; i < w.n; i++)
        for (uint32_t p = 0; p < SHORT; p++) {
            if (w.at[i].place[p] == HELDWIN_SEPARATOR) continue;
            unsigned tag = tagger.tags[w.at[i].place[p]], bits = says(w.at[i].tokens[p + 1]);
            for (size_t k = 0; k < STRUCT_TYPES; k++)
                tagged[k] += tag >> k & 1, found[k] += bits >> k & 1, hit[k] += tag & bits & 1u << k
                                                                                 ? 1 : 0;
        }
    heldwin_close(&w);
    assert_int_equal(json_array_size(rows), STRUCT_TYPES);
    for (size_t k = 0; k < STRUCT_TYPES; k++) {
        const json_t *row = json_array_get(rows, k);
        assert_string_equal(json_string_value(json_object_get(row, "type")),
                            structhead_type_name((enum struct_type)k));
        assert_int_equal(number(row, "tagged"), tagged[k]);
        assert_int_equal(number(row, "found"), found[k]);
        if (found[k]) near(number(row, "precision"), (double)hit[k] / (double)found[k]);
        else assert_true(json_is_null(json_object_get(row, "precision")));
        if (tagged[k]) near(number(row, "recall"), (double)hit[k] / (double)tagged[k]);
    }
    json_decref(doc);
    doc = probe(base, NULL, 1); /* it has none */
    assert_int_equal(json_array_size(json_object_get(doc, "detectors")), 0);
    json_decref(doc);
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    json_t *one = probe(model, base, 1), *two = probe(model, base, 2);
    assert_true(json_equal(one, two));
    json_decref(one);
    json_decref(two);
}

static void test_structure_is_told_when_asked_for(void **state)
{
    (void)state;
    zp_probe_options o = options();
    char *text = NULL;
    zp_err err = { 0 };
    o.structure = false, o.n_lengths = 1;
    assert_int_equal(zp_probe_json(model, NULL, corpus, &o, &text, &err), ZP_OK);
    assert_null(strstr(text, "\"structure\""));
    assert_null(strstr(text, "\"detectors\""));
    zp_free(text);
    o.structure = true, o.no_windows = true, o.no_cases = false;
    assert_int_equal(zp_probe_json(model, NULL, corpus, &o, &text, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "windows"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_equal_plain_logits),
        cmocka_unit_test(test_detectors_are_counted_by_token),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_structure_is_told_when_asked_for),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

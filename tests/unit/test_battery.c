/* test_battery.c: what zp_probe_json tells of small random models against figures computed here
 * from plain logits: windows, distances to a base, questions; the same bits for any threads and
 * batches; what is refused. */
#include "golden.h"
#include "in_folder.h"
#include "train_fixture.h"

#include <zerope/train.h>

#include "evap/battery.h"
#include "evap/heldwin.h"
#include "live_bytes.h"
#include "model/gguf_write.h"

/* Held out: every third. Three of them are longer than 256 tokens, one is longer than 512. */
enum { N_DOCS = 24, SHORT = 64, LONG = 256, N_WINDOWS = 6, N_CASES = 24 };
static const size_t n_words[N_DOCS] = { 40, 60, 30,  50, 40, 140, 9, 30, 12, 70, 20, 60,
                                        33, 40, 25, 60, 10, 45,  80, 9, 80, 60, 20, 15 };

static zp_model *model, *base;
static struct shards shards;
static const char *corpus;

static int start(void **state)
{
    static char path[128];
    make_folder(state);
    model = golden_small("gguf-qwen2");
    base = golden_small("gguf-smollm3");
    snprintf(path, sizeof path, "%s/held.tokens", folder);
    corpus = path;
    fixture_corpus(corpus, model->tokenizer, n_words, N_DOCS);
    FINE(shards_open(&shards, corpus, err));
    return 0;
}

static int stop(void **state)
{
    shards_close(&shards);
    zp_model_close(model);
    zp_model_close(base);
    return remove_folder(state);
}

static const uint32_t both[] = { SHORT, LONG };
static zp_probe_options options(void)
{
    return (zp_probe_options){ .lengths = both,
                               .n_lengths = 2,
                               .n_windows = N_WINDOWS,
                               .n_cases = N_CASES,
                               .engine = { .n_threads = 1, .allow_unverified_mode = true } };
}

static void probe_text(const zp_model *m, const zp_model *against, const zp_probe_options *o,
                       char **text)
{
    FINE(zp_probe_json(m, against, corpus, o, text, err));
}

static json_t *probe(const zp_model *m, const zp_model *against, const zp_probe_options *o)
{
    char *text;
    probe_text(m, against, o, &text);
    json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(doc);
    zp_free(text);
    return doc;
}

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    if (!json_is_number(v)) fail_msg("%s is missing or no number", key);
    return json_number_value(v);
}

static const json_t *rows_of(const json_t *doc, const char *name, size_t n)
{
    const json_t *rows = json_object_get(doc, name);
    assert_int_equal(json_array_size(rows), n);
    return rows;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) < 2e-6 * (1 + fabs(b)))) fail_msg("%.9g, expected %.9g", a, b);
}

static void check_around(const json_t *row, const char *name)
{
    char lo[40], hi[40];
    snprintf(lo, sizeof lo, "%s_lo", name);
    snprintf(hi, sizeof hi, "%s_hi", name);
    assert_true(number(row, lo) <= number(row, name) && number(row, name) <= number(row, hi));
}

/* ---- windows of held-out documents ---- */

static void check_window(const struct heldwin *w, uint32_t length)
{
    assert_int_equal(w->tokens[0], shards.head.separator);
    for (uint32_t i = 0; i < length; i++) {
        assert_in_range(w->doc[i], 0, N_DOCS - 1);
        assert_int_equal(shards.docs[w->doc[i]].held, 1);
    }
}

/* Tokens of the text from `place` on, which goes behind them; separators are passed over. */
static void follow(const struct heldwin *w, uint32_t length, uint64_t *place)
{
    for (uint32_t i = 0; i < length; i++) {
        if (w->tokens[i + 1] == shards.head.separator) continue;
        const struct shards_doc *d = &shards.docs[w->doc[i]];
        if (*place == UINT64_MAX || *place < d->at) *place = d->at; /* the next document */
        assert_true(*place < d->at + d->n);
        assert_int_equal(w->tokens[i + 1], shards_id(&shards, (*place)++));
    }
}

static void test_windows_are_held_out_text_in_order(void **state)
{
    (void)state;
    struct heldwin_set w;
    size_t inside = 0;
    FINE(heldwin_open(&w, &shards, LONG, 1000, err));
    for (uint32_t i = 0; i < N_DOCS; i++)
        if (shards.docs[i].held) inside += shards.docs[i].n / LONG;
    assert_true(inside > 3);
    assert_int_equal(w.n - w.n_joined, inside);
    assert_true(w.n_joined > 1);
    for (uint32_t i = 0; i < inside; i++) { /* one document each, in whole windows */
        uint64_t place = shards.docs[w.at[i].doc[0]].at;
        while (shards_id(&shards, place) != w.at[i].tokens[1] ||
               shards_id(&shards, place + 1) != w.at[i].tokens[2] ||
               shards_id(&shards, place + 2) != w.at[i].tokens[3])
            place += LONG;
        check_window(&w.at[i], LONG);
        follow(&w.at[i], LONG, &place);
        assert_int_equal(w.at[i].doc[0], w.at[i].doc[LONG - 1]);
    }
    uint64_t place = UINT64_MAX;
    for (size_t i = inside; i < w.n; i++) { /* W1: one goes on where the other ended */
        check_window(&w.at[i], LONG);
        follow(&w.at[i], LONG, &place);
        for (uint32_t k = 0; k < LONG; k++)
            assert_true(shards.docs[w.at[i].doc[k]].n < LONG);
    }
    heldwin_close(&w);
}

static void test_many_documents_come_first(void **state)
{
    (void)state;
    struct heldwin_set w;
    uint32_t long_enough = 0;
    for (uint32_t i = 0; i < N_DOCS; i++)
        long_enough += shards.docs[i].held && shards.docs[i].n >= SHORT;
    assert_true(long_enough > 4);
    FINE(heldwin_open(&w, &shards, SHORT, long_enough, err));
    assert_int_equal(w.n, long_enough);
    for (uint32_t i = 0; i < w.n; i++)
        for (uint32_t k = 0; k < i; k++) assert_int_not_equal(w.at[i].doc[0], w.at[k].doc[0]);
    heldwin_close(&w);
}

static void test_longest_window_takes_all(void **state)
{
    (void)state;
    struct heldwin_set w;
    uint32_t n_docs;
    uint64_t longest = heldwin_longest(&shards, &n_docs);
    assert_int_equal(n_docs, N_DOCS / 3);
    FINE(heldwin_open(&w, &shards, (uint32_t)longest, 5, err));
    assert_int_equal(w.n, 1);
    check_window(&w.at[0], (uint32_t)longest);
    assert_int_equal(w.at[0].tokens[longest], shards.head.separator); /* the last text's end */
    heldwin_close(&w);
    FINE(heldwin_open(&w, &shards, (uint32_t)longest + 1, 5, err));
    assert_int_equal(w.n, 0);
    heldwin_close(&w);
}

/* ---- numbers of windows ---- */

/* Log-probabilities (n, n_vocab) in double of one sequence; free(). */
static double *log_rows(const zp_model *m, const int32_t *ids, uint32_t n)
{
    size_t n_vocab = m->h.n_vocab;
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = n, .exact = true, .n_threads = 1 });
    float *logits = golden_logits(e, m, ids, n);
    double *out = malloc(n * n_vocab * sizeof *out);
    assert_non_null(out);
    for (uint32_t r = 0; r < n; r++) {
        double sum = 0;
        for (size_t v = 0; v < n_vocab; v++) sum += exp((double)logits[r * n_vocab + v]);
        for (size_t v = 0; v < n_vocab; v++)
            out[r * n_vocab + v] = (double)logits[r * n_vocab + v] - log(sum);
    }
    free(logits);
    zp_engine_close(e);
    return out;
}

static size_t best_of(const double *row, size_t n)
{
    size_t best = 0;
    for (size_t v = 1; v < n; v++)
        if (row[v] > row[best]) best = v;
    return best;
}

struct truth {
    double nll, nll_base, kl, same;
    size_t n, n_docs;
    uint8_t seen[N_DOCS];
};

static void add_window(struct truth *t, const struct heldwin *w, uint32_t n, uint32_t from,
                       uint32_t to)
{
    size_t n_vocab = model->h.n_vocab;
    double *a = log_rows(model, w->tokens, n), *b = log_rows(base, w->tokens, n);
    for (uint32_t p = from; p < to; p++) {
        const double *x = a + p * n_vocab, *y = b + p * n_vocab;
        for (size_t v = 0; v < n_vocab; v++) t->kl += exp(y[v]) * (y[v] - x[v]);
        t->nll -= x[w->tokens[p + 1]];
        t->nll_base -= y[w->tokens[p + 1]];
        t->same += best_of(x, n_vocab) == best_of(y, n_vocab);
        t->n++;
        t->n_docs += !t->seen[w->doc[p]];
        t->seen[w->doc[p]] = 1;
    }
    free(a);
    free(b);
}

static void check_row(const json_t *row, uint32_t length, uint32_t from, uint32_t to)
{
    static const char *const around[] = { "nll", "nll_base", "nll_change", "kl", "top1_agree" };
    struct truth t = { 0 };
    struct heldwin_set w;
    FINE(heldwin_open(&w, &shards, length, N_WINDOWS, err));
    for (uint32_t i = 0; i < w.n; i++) add_window(&t, &w.at[i], length, from, to);
    heldwin_close(&w);
    double n = (double)t.n;
    assert_true(number(row, "length") == length && number(row, "tokens") == n);
    assert_int_equal(number(row, "documents"), t.n_docs);
    near(number(row, "nll"), t.nll / n);
    near(number(row, "nll_base"), t.nll_base / n);
    near(number(row, "nll_change"), (t.nll - t.nll_base) / n);
    near(number(row, "kl"), t.kl / n);
    near(number(row, "top1_agree"), t.same / n);
    for (size_t i = 0; i < ZP_COUNT(around); i++) check_around(row, around[i]);
    assert_true(number(row, "kl_lo") > 0 && number(row, "nll_lo") < number(row, "nll_hi"));
}

static void test_windows_equal_plain_logits(void **state)
{
    (void)state;
    zp_probe_options o = options();
    o.no_cases = true;
    json_t *doc = probe(model, base, &o);
    const json_t *lengths = rows_of(doc, "lengths", 2), *buckets = rows_of(doc, "buckets", 3);
    for (size_t i = 0; i < 2; i++) check_row(json_array_get(lengths, i), both[i], 0, both[i]);
    const json_t *last = json_array_get(lengths, 1);
    assert_true(number(last, "windows") == N_WINDOWS && number(last, "joined") > 0);
    check_row(json_array_get(buckets, 0), SHORT, 0, SHORT);
    check_row(json_array_get(buckets, 1), LONG, 0, SHORT);
    check_row(json_array_get(buckets, 2), LONG, SHORT, LONG);
    assert_int_equal(number(json_array_get(buckets, 2), "from"), SHORT);
    assert_int_equal(number(json_array_get(buckets, 2), "to"), LONG);
    rows_of(doc, "probes", 0);
    assert_int_equal(number(doc, "held_documents"), N_DOCS / 3);
    json_decref(doc);
}

static void test_a_model_against_itself_has_no_difference(void **state)
{
    (void)state;
    static const char *const zeros[] = { "nll_change", "kl" };
    zp_probe_options o = options();
    o.kinds = (const char *const[]){ "induction" };
    o.n_kinds = 1;
    json_t *doc = probe(model, model, &o);
    const json_t *row = json_array_get(json_object_get(doc, "lengths"), 1);
    for (size_t i = 0; i < ZP_COUNT(zeros); i++) {
        check_around(row, zeros[i]);
        assert_true(fabs(number(row, zeros[i])) < 1e-12);
    }
    assert_true(number(row, "top1_agree_lo") == 1.0 &&
                number(row, "nll") == number(row, "nll_base"));
    row = json_array_get(rows_of(doc, "probes", 2), 0);
    assert_true(number(row, "accuracy_change") == 0);
    assert_true(number(row, "accuracy_change_lo") < 0 && number(row, "accuracy_change_hi") > 0);
    json_decref(doc);
}

static void test_without_a_base_there_is_no_difference(void **state)
{
    (void)state;
    static const char *const absent[] = { "nll_base", "kl", "top1_agree", "accuracy_base",
                                          "accuracy_change", "against" };
    zp_probe_options o = options();
    char *with, *text;
    probe_text(model, base, &o, &with);
    probe_text(model, NULL, &o, &text);
    for (size_t i = 0; i < ZP_COUNT(absent); i++) {
        char quoted[40];
        snprintf(quoted, sizeof quoted, "\"%s\"", absent[i]);
        assert_null(strstr(text, quoted));
        assert_non_null(strstr(with, quoted));
    }
    zp_free(with);
    zp_free(text);
}

/* The other mode is another model; its base is the file in full. */
static void test_mode_is_of_the_model_alone(void **state)
{
    (void)state;
    zp_probe_options o = options();
    o.no_cases = true;
    json_t *full = probe(model, NULL, &o);
    o.mode = ZP_MODE_ZERO;
    json_t *zero = probe(model, model, &o);
    const json_t *a = json_array_get(json_object_get(full, "lengths"), 0);
    const json_t *b = json_array_get(json_object_get(zero, "lengths"), 0);
    assert_string_equal(json_string_value(json_object_get(zero, "mode")), "zero");
    assert_true(number(b, "kl") > 1e-6 && number(b, "nll") != number(a, "nll"));
    assert_true(number(b, "nll_base") == number(a, "nll"));
    json_decref(full);
    json_decref(zero);
}

/* ---- questions ---- */

/* A model that always expects the same token: one embedding for all, and the rows of `output`
 * changed about so that `id` wins. */
static zp_model *write_constant(int32_t id)
{
    enum { D = 32, V = 272 };
    static float same[V * D], output[V * D];
    struct gguf_edit e;
    zp_model *m = NULL;
    const char *path = in_folder("constant.gguf");
    uint64_t ne[2] = { D, V };
    struct rng r = rng_stream(3, 0);
    int32_t wins = id;
    for (size_t i = 0; i < V * D; i++) output[i] = rng_normal(&r);
    for (size_t i = 0; i < V * D; i++) same[i] = i < D ? rng_normal(&r) : same[i % D];
    for (int turn = 0; turn < 2; turn++) {
        for (size_t k = 0; turn && k < D; k++) { /* the winner's row and that of id change places */
            float was = output[id * D + (int)k];
            output[id * D + (int)k] = output[wins * D + (int)k];
            output[wins * D + (int)k] = was;
        }
        FINE(gguf_edit_init(&e, &model->gguf, err));
        FINE(gguf_edit_set_tensor_f32(&e, "token_embd.weight", 2, ne, same, err));
        FINE(gguf_edit_set_tensor_f32(&e, "output.weight", 2, ne, output, err));
        FINE(gguf_edit_write(&e, path, err));
        gguf_edit_free(&e);
        zp_model_close(m);
        FINE(zp_model_open(&m, path, NULL, err));
        double *row = log_rows(m, &id, 1);
        wins = (int32_t)best_of(row, V);
        free(row);
    }
    assert_int_equal(wins, id);
    return m;
}

struct asked {
    size_t n, right, at[3], right_at[3]; /* at: by distance */
    size_t tokens, right_tokens;
    double nll;
};

/* The cases of a kind, one sequence after the other. */
static struct asked ask(const zp_model *m, enum task_kind kind, uint32_t length)
{
    struct asked a = { 0 };
    struct tasks t;
    struct task c;
    struct tasks_options o = { .probes = true };
    size_t n_vocab = m->h.n_vocab;
    o.share[kind] = 1;
    FINE(tasks_open(&t, &shards, m->tokenizer, &o, err));
    FINE(task_open(&c, length, err));
    for (uint64_t i = 0; i < N_CASES; i++) {
        int32_t ids[LONG + 1] = { shards.head.separator };
        FINE(tasks_make(&t, 1, i, length - 1, 1, &c, err));
        memcpy(ids + 1, c.ids, c.n * sizeof *c.ids);
        double *rows = log_rows(m, ids, c.n + 1), nll = 0;
        size_t right = 0, bucket = c.distance < SHORT / 4 ? 0 : c.distance < SHORT ? 1 : 2;
        for (uint32_t k = c.answer; k < c.answer + c.n_answer; k++) {
            right += best_of(rows + k * n_vocab, n_vocab) == (size_t)c.ids[k];
            nll -= rows[k * n_vocab + (size_t)c.ids[k]] / c.n_answer;
        }
        free(rows);
        a.n++;
        a.tokens += c.n_answer;
        a.right_tokens += right;
        a.nll += nll / N_CASES;
        a.right += right == c.n_answer;
        a.at[bucket]++;
        a.right_at[bucket] += right == c.n_answer;
    }
    task_close(&c);
    tasks_close(&t);
    return a;
}

/* A token that answers case 0. */
static int32_t answer_of(enum task_kind kind, uint32_t length)
{
    struct tasks t;
    struct task c;
    struct tasks_options o = { .probes = true };
    o.share[kind] = 1;
    FINE(tasks_open(&t, &shards, model->tokenizer, &o, err));
    FINE(task_open(&c, length, err));
    FINE(tasks_make(&t, 1, 0, length - 1, 1, &c, err));
    int32_t id = c.ids[c.answer + c.n_answer - 1];
    task_close(&c);
    tasks_close(&t);
    return id;
}

static void check_asked(const json_t *doc, const struct asked *a, const char *kind, uint32_t length)
{
    const json_t *rows = json_object_get(doc, "probes");
    size_t found = 0, n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "kind")), kind) != 0) continue;
        if (number(row, "length") != length) continue;
        struct score_interval w = score_wilson95(a->right, a->n);
        assert_int_equal(number(row, "cases"), a->n);
        near(number(row, "accuracy"), (double)a->right / (double)a->n);
        near(number(row, "accuracy_lo"), w.lo);
        near(number(row, "accuracy_hi"), w.hi);
        near(number(row, "answer_nll"), a->nll);
        near(number(row, "token_accuracy"), (double)a->right_tokens / (double)a->tokens);
        found++;
    }
    assert_int_equal(found, 1);
    rows = json_object_get(doc, "distances");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "kind")), kind) != 0) continue;
        if (number(row, "length") != length) continue;
        double from = number(row, "from");
        size_t b = from == 0 ? 0 : from < SHORT ? 1 : 2;
        assert_int_equal(number(row, "cases"), a->at[b]);
        near(number(row, "accuracy"), (double)a->right_at[b] / (double)a->at[b]);
        n += a->at[b];
    }
    assert_int_equal(n, strcmp(kind, "count") == 0 ? 0 : a->n);
}

static void test_accuracies_equal_those_of_plain_logits(void **state)
{
    (void)state;
    static const enum task_kind kinds[] = { TASK_INDUCTION, TASK_COUNT };
    zp_probe_options o = options();
    o.no_windows = true;
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        const char *name = task_kind_name(kinds[i]);
        zp_model *m = write_constant(answer_of(kinds[i], LONG));
        struct asked a = ask(m, kinds[i], LONG), b = ask(model, kinds[i], LONG);
        print_message("%s: %d of %d right\n", name, (int)a.right, (int)a.n);
        assert_in_range(a.right, 1, a.n - 1); /* or it would show little */
        o.kinds = &name;
        o.n_kinds = 1;
        json_t *doc = probe(m, model, &o);
        check_asked(doc, &a, name, LONG);
        const json_t *rows = json_object_get(doc, "probes");
        const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
        near(number(last, "accuracy_base"), (double)b.right / (double)b.n);
        near(number(last, "answer_nll_base"), b.nll);
        near(number(last, "accuracy_change"), ((double)a.right - (double)b.right) / N_CASES);
        near(number(last, "token_accuracy_base"), (double)b.right_tokens / (double)b.tokens);
        near(number(last, "token_accuracy_change"),
             ((double)a.right_tokens - (double)b.right_tokens) / (double)a.tokens);
        check_around(last, "accuracy_change");
        json_decref(doc);
        zp_model_close(m);
    }
}

static void test_kinds_are_asked_where_they_fit(void **state)
{
    (void)state;
    zp_probe_options o = options();
    o.no_windows = true;
    json_t *doc = probe(model, NULL, &o);
    const json_t *rows = json_object_get(doc, "probes");
    size_t n[TASK_KINDS] = { 0 }, n_rows[TASK_KINDS] = { 0 };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        int k = 0;
        while (strcmp(task_kind_name((enum task_kind)k),
                      json_string_value(json_object_get(row, "kind"))) != 0)
            k++;
        n[k] += (size_t)number(row, "cases");
        n_rows[k]++;
        if (number(row, "cases") == 0) {
            assert_true(json_is_null(json_object_get(row, "accuracy")));
            assert_true(json_is_null(json_object_get(row, "accuracy_hi")));
            assert_true(json_is_null(json_object_get(row, "answer_nll")));
        }
    }
    assert_true(n[TASK_COPY] == 2 * N_CASES && n[TASK_INDUCTION] == 2 * N_CASES);
    assert_true(n[TASK_PASSKEY] == N_CASES && n_rows[TASK_PASSKEY] == 2); /* too long for 64 */
    assert_true(n[TASK_ORDER] == N_CASES && n[TASK_BRACKETS] == N_CASES);
    assert_int_equal(n_rows[TASK_BRACKETS], 1); /* once, at the first that it fits */
    json_decref(doc);
}

/* ---- same bits ---- */

/* All of the documents but the seconds at their end. */
static bool same_documents(const char *a, const char *b)
{
    static const char end[] = "\"total_seconds\"";
    const char *a_end = strstr(a, end), *b_end = strstr(b, end);
    assert_true(a_end && b_end);
    return a_end - a == b_end - b && memcmp(a, b, (size_t)(a_end - a)) == 0;
}

static void test_bits_depend_on_no_threads_and_batches(void **state)
{
    (void)state;
    static const zp_engine_options ways[] = {
        { .n_threads = 3 },
        { .n_threads = 2, .n_seq = 1, .micro_batch = 7 },
        { .n_threads = 1, .n_seq = 5, .micro_batch = 64 },
        { .n_threads = 1, .n_seq = 11 },
    };
    zp_probe_options o = options();
    char *first, *text;
    probe_text(model, base, &o, &first);
    engine_allow_any_threads(true);
    for (size_t i = 0; i < ZP_COUNT(ways); i++) {
        o.engine = ways[i];
        probe_text(model, base, &o, &text);
        assert_true(same_documents(text, first));
        zp_free(text);
    }
    engine_allow_any_threads(false);
    o = options();
    o.seed = 2; /* other cases, other draws */
    probe_text(model, base, &o, &text);
    assert_false(same_documents(text, first));
    zp_free(text);
    zp_free(first);
}

/* ---- lengths by default, progress, notes ---- */

static bool count_up(void *arg, const char *what, uint64_t done, uint64_t total)
{
    uint64_t *last = arg;
    (void)what;
    assert_true(done >= last[0] && done <= total);
    last[0] = done;
    last[1] = total;
    return done < last[2];
}

static void test_lengths_are_those_that_the_text_fills(void **state)
{
    (void)state;
    uint64_t seen[3] = { 0, 0, UINT64_MAX };
    uint32_t n_docs;
    zp_probe_options o = options();
    o.lengths = NULL;
    o.n_lengths = 0;
    o.progress = (zp_progress){ count_up, seen };
    uint64_t longest = heldwin_longest(&shards, &n_docs);
    json_t *doc = probe(model, NULL, &o);
    assert_in_range(longest, 8 * model->h.n_ctx_train, 1 << 20);
    const json_t *rows = rows_of(doc, "lengths", 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(number(json_array_get(rows, i), "length"), model->h.n_ctx_train << i);
    rows_of(doc, "buckets", 1 + 2 + 3 + 4);
    assert_int_equal(seen[0], seen[1]); /* all that was announced came */
    json_decref(doc);
}

static void test_progress_can_stop_it(void **state)
{
    (void)state;
    uint64_t seen[3] = { 0, 0, 10 }, before = live_bytes();
    zp_probe_options o = options();
    char *text = NULL;
    zp_err e = { 0 };
    o.engine.n_seq = 2;
    o.progress = (zp_progress){ count_up, seen };
    assert_int_equal(zp_probe_json(model, base, corpus, &o, &text, &e), ZP_INTERRUPTED);
    assert_null(text);
    assert_int_equal(live_bytes(), before);
}

static void test_stretching_is_told(void **state)
{
    (void)state;
    zp_model *m = NULL;
    zp_model_options mo = { .rope_scaling = "ntk:4" };
    zp_probe_options o = options();
    o.no_cases = true;
    FINE(zp_model_open(&m, model->gguf.path, &mo, err));
    json_t *doc = probe(m, model, &o);
    assert_string_equal(json_string_value(json_object_get(doc, "rope_scaling")), "ntk:4");
    assert_true(number(json_array_get(json_object_get(doc, "lengths"), 1), "kl") > 1e-9);
    json_decref(doc);
    zp_model_close(m);
}

/* ---- refusals ---- */

static void refuse(const zp_model *m, const zp_model *against, const char *path,
                   const zp_probe_options *o, zp_status status, const char *words)
{
    char *text = NULL;
    zp_err e = { 0 };
    uint64_t before = live_bytes();
    assert_int_equal(zp_probe_json(m, against, path, o, &text, &e), status);
    assert_null(text);
    assert_int_equal(live_bytes(), before);
    if (!strstr(e.message, words)) fail_msg("'%s' lacks '%s'", e.message, words);
}

static void test_wrong_corpora_are_refused(void **state)
{
    (void)state;
    static const size_t two[2] = { 50, 60 }; /* none held out */
    zp_probe_options o = options();
    struct train_fixture other;
    const char *none = in_folder("none.tokens");
    fixture_corpus(none, model->tokenizer, two, 2);
    refuse(model, NULL, none, &o, ZP_BAD_INPUT, "holds no documents out");
    fixture_open(&other, 300, n_words, N_DOCS);
    refuse(model, NULL, in_folder("fixture.zpt"), &o, ZP_BAD_INPUT, "another tokenizer");
    fixture_close(&other);
    refuse(model, NULL, in_folder("nothing"), &o, ZP_BAD_INPUT, "nothing");
    refuse(model, NULL, ZP_TEST_DATA "/prose.txt", &o, ZP_BAD_FILE, "no token corpus");
}

/* The same model with one merge left in its tokenizer. */
static void test_wrong_bases_are_refused(void **state)
{
    (void)state;
    struct gguf_edit e;
    zp_model *m = NULL;
    zp_probe_options o = options();
    struct gguf_str merge =
        gguf_item_str(gguf_find_key(&model->gguf, "tokenizer.ggml.merges"), 0);
    FINE(gguf_edit_init(&e, &model->gguf, err));
    FINE(gguf_edit_set_strs(&e, "tokenizer.ggml.merges", &merge, 1, err));
    FINE(gguf_edit_set_str(&e, "tokenizer.ggml.pre", "gpt-2", err));
    FINE(gguf_edit_write(&e, in_folder("other.gguf"), err));
    gguf_edit_free(&e);
    FINE(zp_model_open(&m, in_folder("other.gguf"), NULL, err));
    refuse(model, m, corpus, &o, ZP_BAD_INPUT, "another tokenizer");
    refuse(m, model, corpus, &o, ZP_BAD_INPUT, "another tokenizer");
    zp_model_close(m);
}

static void test_wrong_options_are_refused(void **state)
{
    (void)state;
    static const uint32_t falling[] = { 64, 64 }, tiny[] = { 16 }, huge[] = { 64, 1 << 20 },
                          beyond[] = { 1u << 25 };
    static const char *const kinds[] = { "copy", "riddle" };
    zp_probe_options o = options();
    o.lengths = falling;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "64 comes after 64");
    o.n_lengths = 17;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "17 lengths; at most 16");
    o.lengths = tiny, o.n_lengths = 1;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "16 tokens; at least 32");
    o.lengths = huge, o.n_lengths = 2;
    refuse(model, NULL, corpus, &o, ZP_BAD_INPUT, "1048576 tokens needs more text");
    o.lengths = beyond, o.n_lengths = 1, o.no_windows = true;
    refuse(model, NULL, corpus, &o, ZP_BAD_INPUT, "at most 16777216");
    o.no_cases = true;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "nothing is measured");
    o = options();
    o.kinds = kinds, o.n_kinds = 2;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "kind 'riddle' is unknown");
    o = options();
    o.mode = (zp_mode)7;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "position mode 7");
    o = options();
    o.engine.kv_type = ZP_KV_Q8;
    refuse(model, NULL, corpus, &o, ZP_USAGE, "f32");
    o = options();
    o.mode = ZP_MODE_ZERO, o.engine.allow_unverified_mode = false;
    refuse(model, NULL, corpus, &o, ZP_BAD_INPUT, "no passing evidence");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_are_held_out_text_in_order),
        cmocka_unit_test(test_many_documents_come_first),
        cmocka_unit_test(test_longest_window_takes_all),
        cmocka_unit_test(test_windows_equal_plain_logits),
        cmocka_unit_test(test_a_model_against_itself_has_no_difference),
        cmocka_unit_test(test_without_a_base_there_is_no_difference),
        cmocka_unit_test(test_mode_is_of_the_model_alone),
        cmocka_unit_test(test_accuracies_equal_those_of_plain_logits),
        cmocka_unit_test(test_kinds_are_asked_where_they_fit),
        cmocka_unit_test(test_bits_depend_on_no_threads_and_batches),
        cmocka_unit_test(test_lengths_are_those_that_the_text_fills),
        cmocka_unit_test(test_progress_can_stop_it),
        cmocka_unit_test(test_stretching_is_told),
        cmocka_unit_test(test_wrong_corpora_are_refused),
        cmocka_unit_test(test_wrong_bases_are_refused),
        cmocka_unit_test(test_wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

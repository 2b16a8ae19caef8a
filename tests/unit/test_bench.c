/* test_bench.c: the rows of a bench document are the work asked for, their bytes are the pages and
 * weights that work reads, and what cannot be measured is refused. No time is judged. */
#include "golden.h"

#include <zerope/eval.h>

#include "live_bytes.h"
#include "model/engine.h"

enum { PROMPT = 16, PREDICT = 8 };

static const uint32_t depths[] = { 0, 64, 200 }, batches[] = { 1, 3 };

static zp_bench_options options(void)
{
    return (zp_bench_options){ .n_prompt = PROMPT,
                               .n_predict = PREDICT,
                               .depths = depths,
                               .n_depths = ZP_COUNT(depths),
                               .batches = batches,
                               .n_batches = ZP_COUNT(batches),
                               .repetitions = 2,
                               .engine = { .n_threads = 1 } };
}

static json_t *bench(const zp_model *m, const zp_bench_options *o)
{
    char *text = NULL;
    GOLDEN_OK(zp_bench_json(m, o, &text, err));
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

static uint64_t whole(const json_t *row, const char *key)
{
    if (!json_is_integer(json_object_get(row, key))) fail_msg("%s is no whole number", key);
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

static const json_t *row_of(const json_t *doc, const char *test, uint64_t depth, uint64_t batch)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(doc, "rows"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "test")), test) == 0 &&
            whole(row, "depth") == depth && whole(row, "batch") == batch)
            return row;
    }
    fail_msg("no row %s at %llu, %llu", test, (unsigned long long)depth,
             (unsigned long long)batch);
    return NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool near(double x, double y)
{
    return fabs(x - y) <= 1e-3 * fabs(y);
}

static void check_row(const json_t *row, uint64_t repetitions)
{
    double tokens = number(row, "tokens"), seconds = number(row, "seconds_median");
    uint64_t bytes = whole(row, "weights_read_bytes") + whole(row, "kv_read_bytes");
    assert_int_equal(whole(row, "repetitions"), repetitions);
    assert_true(number(row, "tps_min") > 0);
    assert_true(number(row, "tps_min") <= number(row, "tps_median"));
    assert_true(number(row, "tps_median") <= number(row, "tps_max"));
    assert_true(near(number(row, "tps_median"), tokens / seconds));
    assert_true(near(number(row, "tps_max"), tokens / number(row, "seconds_min")));
    assert_true(number(row, "spread") >= 0);
    assert_true(number(row, "cpu_seconds_median") > 0);
    assert_int_equal(whole(row, "bytes_per_token"), bytes / whole(row, "tokens"));
    assert_true(near(number(row, "gbps"), (double)bytes / seconds * 1e-9));
    assert_true(number(row, "peak_gbps") > 0 && number(row, "fraction") > 0);
    assert_true(number(row, "load_average") >= 0);
    if (repetitions == 1) {
        assert_true(near(number(row, "fraction"), number(row, "gbps") / number(row, "peak_gbps")));
        assert_true(number(row, "spread") == 0);
    }
}

static void test_rows_are_the_work_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *test;
        uint64_t depth, batch, tokens;
    } rows[] = {
        { "prefill", 0, 1, PROMPT },    { "decode", 0, 1, PREDICT },
        { "decode", 0, 3, 24 },         { "fill", 64, 1, 64 },
        { "prefill", 64, 1, PROMPT },   { "decode", 64, 1, PREDICT },
        { "decode", 64, 3, 24 },        { "fill", 200, 1, 136 },
        { "prefill", 200, 1, PROMPT },  { "decode", 200, 1, PREDICT },
        { "decode", 200, 3, 24 },
    };
    zp_model *m = golden_small("gguf-qwen2");
    zp_bench_options o = options();
    json_t *doc = bench(m, &o), *list = json_object_get(doc, "rows");
    assert_int_equal(json_array_size(list), ZP_COUNT(rows));
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        const json_t *row = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(row, "test")), rows[i].test);
        assert_int_equal(whole(row, "depth"), rows[i].depth);
        assert_int_equal(whole(row, "batch"), rows[i].batch);
        assert_int_equal(whole(row, "tokens"), rows[i].tokens);
        check_row(row, strcmp(rows[i].test, "fill") == 0 ? 1 : 2);
    }
    assert_int_equal(whole(doc, "ctx"), 200 + PROMPT);
    assert_int_equal(whole(doc, "threads"), 1);
    assert_string_equal(json_string_value(json_object_get(doc, "kv_type")), "bf16");
    assert_string_equal(json_string_value(json_object_get(doc, "mode")), "full");
    json_decref(doc);
    zp_model_close(m);
}

static void test_defaults_and_tests_left_out(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    json_t *doc = bench(m, NULL);
    assert_int_equal(json_array_size(json_object_get(doc, "rows")), 2);
    assert_int_equal(whole(row_of(doc, "prefill", 0, 1), "tokens"), 512);
    assert_int_equal(whole(row_of(doc, "decode", 0, 1), "tokens"), 64);
    check_row(row_of(doc, "decode", 0, 1), 5);
    json_decref(doc);
    zp_bench_options o = options();
    o.no_prefill = o.no_decode = true;
    o.repetitions = 1;
    doc = bench(m, &o);
    assert_int_equal(json_array_size(json_object_get(doc, "rows")), 2);
    check_row(row_of(doc, "fill", 64, 1), 1);
    check_row(row_of(doc, "fill", 200, 1), 1);
    assert_int_equal(whole(doc, "ctx"), 200);
    json_decref(doc);
    zp_model_close(m);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes of the tiles that hold a position seen by a query at [at, at + n), counted one by one. */
static uint64_t bytes_seen(const zp_model *m, uint32_t layer_end, uint32_t at, uint32_t n)
{
    const struct position *p = &m->position;
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < layer_end * p->n_kv; i++) {
        struct position_sight s = position_head_sight(p, i / p->n_kv, i % p->n_kv);
        for (uint32_t tile = 0; tile * KERN_TILE < at + n; tile++) {
            bool seen = false;
            for (uint32_t j = tile * KERN_TILE; j < (tile + 1) * KERN_TILE; j++)
                for (uint32_t q = j > at ? j : at; q < at + n; q++)
                    seen |= s.window == 0 || q - j < s.window || j < s.n_sink;
            tiles += seen;
        }
    }
    return tiles * 2 * KERN_TILE * p->d_head * 2;
}

static uint64_t decode_bytes(const zp_model *m, uint32_t depth)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < PREDICT; i++) bytes += bytes_seen(m, m->h.n_layer, depth + i, 1);
    return bytes;
}

static void check_bytes(const char *name)
{
    zp_model *m = golden_small(name);
    zp_bench_options o = options();
    static const uint32_t deep[] = { 0, 60, 333 };
    o.depths = deep;
    o.repetitions = 1;
    json_t *doc = bench(m, &o);
    uint64_t weights = whole(doc, "weights_bytes");
    for (size_t i = 0; i < ZP_COUNT(deep); i++) {
        const json_t *alone = row_of(doc, "decode", deep[i], 1),
                     *three = row_of(doc, "decode", deep[i], 3),
                     *prefill = row_of(doc, "prefill", deep[i], 1);
        assert_int_equal(whole(alone, "weights_read_bytes"), PREDICT * weights);
        assert_int_equal(whole(three, "weights_read_bytes"), PREDICT * weights);
        assert_int_equal(whole(prefill, "weights_read_bytes"), weights);
        assert_int_equal(whole(alone, "kv_read_bytes"), decode_bytes(m, deep[i]));
        assert_int_equal(whole(three, "kv_read_bytes"), 3 * decode_bytes(m, deep[i]));
        assert_int_equal(whole(prefill, "kv_read_bytes"),
                         bytes_seen(m, m->h.n_layer, deep[i], PROMPT));
    }
    json_decref(doc);
    zp_model_close(m);
}

static void test_bytes_are_the_tiles_in_sight(void **state)
{
    (void)state;
    check_bytes("gguf-qwen2");  /* everything in sight */
    check_bytes("gguf-gemma3"); /* sliding windows in some layers */
    check_bytes("zerope-local"); /* heads with windows of their own and sinks */
}

/* 64 positions more are one page more of each head. */
static void test_bytes_per_token_grow_by_the_pages(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    zp_bench_options o = options();
    json_t *doc = bench(m, &o);
    uint64_t pages = (uint64_t)m->h.n_layer * m->h.n_kv,
             near_bytes = whole(row_of(doc, "decode", 0, 1), "bytes_per_token"),
             far_bytes = whole(row_of(doc, "decode", 64, 1), "bytes_per_token");
    assert_int_equal(far_bytes - near_bytes, pages * 2 * 64 * m->h.d_head * 2);
    json_decref(doc);
    o.engine.exact = true; /* keys and values in f32 */
    doc = bench(m, &o);
    assert_int_equal(whole(row_of(doc, "decode", 64, 1), "bytes_per_token") -
                         whole(row_of(doc, "decode", 0, 1), "bytes_per_token"),
                     pages * 2 * 64 * m->h.d_head * 4);
    assert_string_equal(json_string_value(json_object_get(doc, "kv_type")), "f32");
    json_decref(doc);
    zp_model_close(m);
}

/* The output matrix and, of the last layer, all but K and V. */
static uint64_t bytes_for_logits(const zp_model *m)
{
    static const enum weights_mat late[] = { W_Q, W_O, W_GATE, W_UP, W_DOWN };
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 64, .n_threads = 1 });
    uint64_t bytes = kern_mat_bytes(&e->weights.output);
    for (size_t i = 0; i < ZP_COUNT(late); i++)
        bytes += kern_mat_bytes(&e->weights.layers[m->h.n_layer - 1].mat[late[i]]);
    zp_engine_close(e);
    return bytes;
}

/* Only the last micro-batch needs all of the last layer, and logits. */
static void test_fill_reads_the_weights_once_a_micro_batch(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    static const uint32_t deep[] = { 80 };
    zp_bench_options o = { .no_prefill = true,
                           .n_predict = 1,
                           .depths = deep,
                           .n_depths = 1,
                           .batches = (const uint32_t[]){ 1, 40 },
                           .n_batches = 2,
                           .repetitions = 1,
                           .engine = { .n_threads = 1, .micro_batch = 32 } };
    json_t *doc = bench(m, &o);
    const json_t *fill = row_of(doc, "fill", 80, 1);
    uint32_t n = m->h.n_layer;
    uint64_t weights = whole(doc, "weights_bytes"), less = bytes_for_logits(m);
    assert_int_equal(whole(fill, "kv_read_bytes"), bytes_seen(m, n - 1, 0, 32) +
                                                       bytes_seen(m, n - 1, 32, 32) +
                                                       bytes_seen(m, n, 64, 16));
    assert_int_equal(whole(fill, "weights_read_bytes"), 3 * weights - 2 * less);
    assert_int_equal(whole(row_of(doc, "decode", 80, 40), "weights_read_bytes"), 2 * weights);
    json_decref(doc);
    zp_model_close(m);
}

static void check_planned_pages(const zp_model *m, zp_kv_type type, enum kv_form form, bool full,
                                bool separate)
{
    static const uint32_t deep[] = { 640, 1000 }, many[] = { 8 };
    zp_bench_options o = { .n_prompt = 600,
                           .n_predict = 400,
                           .depths = deep,
                           .n_depths = 2,
                           .batches = many,
                           .n_batches = 1,
                           .repetitions = 1,
                           .separate = separate,
                           .engine = { .n_threads = 1, .micro_batch = 64, .kv_type = type } };
    json_t *doc = bench(m, &o);
    struct kv_plan plan = kvcache_plan(&m->position, form, 1600, 9, 64, false);
    assert_true(whole(doc, "kv_bytes") < kv_plan_bytes(&plan));
    /* of a full head 16 pages and, from 1000 on, 8 times those from the last one of them on */
    plan.n_pages = (size_t)m->h.n_layer * m->h.n_kv * (16 + 8 * (22 - (separate ? 0 : 15)));
    if (full) assert_int_equal(whole(doc, "kv_bytes"), kv_plan_bytes(&plan));
    json_decref(doc);
}

/* Forks share the pages before the depth, so a few pages each suffice; windows of long decodes give
 * pages back that the filled sequence still holds. */
static void test_planned_pages_suffice_and_are_few(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-qwen2", "gguf-gemma3", "zerope-local" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        zp_model *m = golden_small(names[i]);
        for (int separate = 0; separate < 2; separate++) {
            check_planned_pages(m, ZP_KV_BF16, KV_BF16, i == 0, separate);
            check_planned_pages(m, ZP_KV_Q8, KV_Q8, i == 0, separate);
        }
        zp_model_close(m);
    }
}

/* ---- kinds of positions, copies -------------------------------------------------------------- */

/* The files' own kinds and every other; what bench says of them. */
static void test_position_kinds(void **state)
{
    (void)state;
    static const char *const files[] = { "gguf-qwen2", "zerope-mixed", "zerope-local" };
    static const struct {
        const char *kind;
        bool rotates, biases;
    } kinds[] = { { "rope", true, false },
                  { "none", false, false },
                  { "alibi", false, true },
                  { "t5", false, true },
                  { "mlp", false, true } };
    for (size_t i = 0; i < ZP_COUNT(files) * ZP_COUNT(kinds); i++) {
        zp_model *m = golden_small(files[i / ZP_COUNT(kinds)]);
        const struct position *p = &m->position;
        size_t k = i % ZP_COUNT(kinds);
        zp_bench_options o = options();
        o.n_depths = o.n_batches = o.repetitions = 1;
        o.position_kind = kinds[k].kind;
        json_t *doc = bench(m, &o);
        uint64_t pairs = (uint64_t)p->n_layer * p->n_kv * p->n_pair;
        assert_string_equal(json_string_value(json_object_get(doc, "position_kind")),
                            o.position_kind);
        assert_int_equal(whole(doc, "rotations_per_token"), kinds[k].rotates ? pairs : 0);
        assert_int_equal(whole(doc, "bias_heads"), kinds[k].biases ? p->n_layer * p->n_head : 0);
        assert_int_equal(whole(doc, "position_bytes") > 0, kinds[k].rotates || kinds[k].biases);
        assert_int_equal(json_array_size(json_object_get(doc, "rows")), 2);
        json_decref(doc);
        zp_model_close(m);
    }
}

/* Copies change only how a depth is reached: whatever the steps, forms and windows. */
static void test_depths_by_copies(void **state)
{
    (void)state;
    static const char *const files[] = { "gguf-qwen2", "gguf-gemma3", "zerope-local" };
    static const uint32_t odd[] = { 10, 100, 703 };
    for (size_t i = 0; i < ZP_COUNT(files) * 3; i++) {
        static const zp_kv_type types[] = { ZP_KV_F32, ZP_KV_BF16, ZP_KV_Q8 };
        zp_model *m = golden_small(files[i / 3]);
        zp_bench_options o = options();
        o.repetitions = 1;
        o.depths = odd, o.n_depths = ZP_COUNT(odd);
        o.engine.kv_type = types[i % 3];
        json_t *computed = bench(m, &o), *row;
        o.copy_fill = true;
        json_t *copied = bench(m, &o), *rows = json_object_get(copied, "rows");
        size_t at = 0, r;
        json_array_foreach(json_object_get(computed, "rows"), r, row)
        {
            static const char *const same[] = { "depth", "batch", "tokens", "weights_read_bytes",
                                                "kv_read_bytes" };
            if (strcmp(json_string_value(json_object_get(row, "test")), "fill") == 0) continue;
            for (size_t k = 0; k < ZP_COUNT(same); k++)
                assert_int_equal(whole(row, same[k]), whole(json_array_get(rows, at), same[k]));
            at++;
        }
        assert_int_equal(at, json_array_size(rows));
        json_decref(computed);
        json_decref(copied);
        zp_model_close(m);
    }
}

static void test_copies_are_of_the_tile_before(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    zp_seq *s = NULL;
    int32_t ids[128];
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = 640, .n_seq = 2, .micro_batch = 100 });
    for (int i = 0; i < 128; i++) ids[i] = 3 + i % 50;
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, 128, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    GOLDEN_OK(kv_table_repeat(&s->kv, &e->kv, 320, err));
    assert_int_equal(zp_seq_length(s), 448);
    for (uint32_t h = 0; h < e->kv.n_heads; h++) {
        const void **k = s->kv.k + (size_t)h * s->kv.n_tiles;
        assert_memory_not_equal(k[0], k[1], e->kv.pages.page_bytes);
        for (int i = 2; i < 7; i++) {
            assert_ptr_not_equal(k[i], k[1]);
            assert_memory_equal(k[i], k[1], e->kv.pages.page_bytes);
        }
    }
    zp_seq *fork = NULL;
    GOLDEN_OK(zp_seq_fork(&fork, s, 448, err));
    GOLDEN_OK(kv_table_unshare(&fork->kv, &e->kv, err));
    for (size_t i = 0; i < (size_t)e->kv.n_heads * s->kv.n_tiles; i++) {
        if (!s->kv.k[i]) continue;
        assert_ptr_not_equal(fork->kv.k[i], s->kv.k[i]);
        assert_memory_equal(fork->kv.k[i], s->kv.k[i], e->kv.pages.page_bytes);
    }
    zp_seq_close(fork);
    zp_err why = { 0 };
    assert_int_equal(kv_table_repeat(&s->kv, &e->kv, 320, &why), ZP_BAD_INPUT); /* no room */
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(const zp_model *m, zp_bench_options o, zp_status status, const char *part)
{
    zp_err err = { 0 };
    char other, *json = &other;
    uint64_t before = live_bytes();
    zp_status found = zp_bench_json(m, &o, &json, &err);
    if (found != status || !strstr(err.message, part))
        fail_msg("%s: '%s' (expected '%s')", zp_status_name(found), err.message, part);
    assert_null(json);
    assert_int_equal(live_bytes(), before);
}

static void test_what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    static const uint32_t falling[] = { 64, 0 }, twice[] = { 64, 64 }, none[] = { 1, 0 },
                          far[] = { UINT32_MAX }, many[] = { 65536 };
    static uint32_t long_list[300];
    zp_model *m = golden_small("gguf-qwen2");
    zp_bench_options o = options();
#define REFUSE(status, part, ...)        \
    do {                                 \
        zp_bench_options bad = o;        \
        __VA_ARGS__;                     \
        refuse(m, bad, (status), part);  \
    } while (0)
    REFUSE(ZP_USAGE, "depth 0 stands after 64", bad.depths = falling, bad.n_depths = 2);
    REFUSE(ZP_USAGE, "depth 64 stands after 64", bad.depths = twice, bad.n_depths = 2);
    REFUSE(ZP_USAGE, "batch of 0", bad.batches = none, bad.n_batches = 2);
    REFUSE(ZP_USAGE, "batch of 65536", bad.batches = many, bad.n_batches = 1);
    REFUSE(ZP_USAGE, "missing", bad.depths = NULL);
    REFUSE(ZP_USAGE, "missing", bad.batches = NULL);
    REFUSE(ZP_USAGE, "at most 256", bad.depths = long_list, bad.n_depths = 300);
    REFUSE(ZP_USAGE, "at most 256", bad.batches = long_list, bad.n_batches = 300);
    REFUSE(ZP_USAGE, "10001 repetitions", bad.repetitions = 10001);
    REFUSE(ZP_USAGE, "nothing to measure", bad.no_prefill = bad.no_decode = true, bad.n_depths = 1);
    REFUSE(ZP_USAGE, "position kind 'alib'", bad.position_kind = "alib");
    REFUSE(ZP_USAGE, "nothing to measure", bad.no_prefill = bad.no_decode = bad.copy_fill = true);
    REFUSE(ZP_USAGE, "position mode", bad.mode = (zp_mode)9);
    REFUSE(ZP_BAD_INPUT, "depth 200 and 16 tokens do not fit into 215", bad.engine.n_ctx = 215);
    REFUSE(ZP_BAD_INPUT, "215 positions; lower the depth or raise --ctx-size",
           bad.engine.n_ctx = 215);
    REFUSE(ZP_BAD_INPUT, "the most a context may have; lower", bad.depths = far, bad.n_depths = 1);
    REFUSE(ZP_BAD_INPUT, "the most a context may have; lower", bad.n_prompt = UINT32_MAX);
    REFUSE(ZP_BAD_INPUT, "16777216 positions, the most", bad.n_prompt = (1 << 24) - 199,
           bad.engine.n_ctx = 1 << 24);
    /* one page a head */
    struct kv_plan small = kvcache_plan(&m->position, KV_BF16, 1, 1, 1, false);
    REFUSE(ZP_NO_MEMORY, "KV budget", bad.engine.kv_bytes = kv_plan_bytes(&small));
#undef REFUSE
    o.engine.n_ctx = 216; /* is enough */
    json_decref(bench(m, &o));
    zp_model_close(m);
}

/* ---- progress -------------------------------------------------------------------------------- */

struct watch {
    uint64_t calls, stop_at, done, total;
};

static bool on_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct watch *w = arg;
    assert_string_equal(what, "tokens");
    assert_true(done > w->done && done <= total);
    assert_true(w->total == 0 || w->total == total);
    w->done = done, w->total = total;
    return ++w->calls != w->stop_at;
}

/* Rows measured before the stop are told, of 7 tests; returns their number, at least so many. */
static size_t check_interrupted(const zp_model *m, const zp_bench_options *o, size_t least)
{
    zp_err err = { 0 };
    char other, *json = &other, wanted[64];
    uint64_t before = live_bytes();
    assert_int_equal(zp_bench_json(m, o, &json, &err), ZP_INTERRUPTED);
    json_t *doc = json ? json_loads(json, 0, NULL) : NULL;
    size_t n = json_array_size(json_object_get(doc, "rows"));
    snprintf(wanted, sizeof wanted, "interrupted after %zu of 7 tests", n);
    assert_string_equal(err.message, wanted);
    assert_in_range(n, least, 6);
    assert_int_equal(json != NULL, n > 0);
    if (doc) assert_true(json_is_true(json_object_get(doc, "interrupted")));
    json_decref(doc);
    zp_free(json);
    assert_int_equal(live_bytes(), before);
    return n;
}

static void test_progress_ascends_and_may_stop_anywhere(void **state)
{
    (void)state;
    zp_model *m = golden_small("zerope-local");
    zp_bench_options o = options();
    struct watch all = { 0 };
    o.n_depths = 2;
    o.repetitions = 1;
    o.progress = (zp_progress){ on_progress, &all };
    json_t *whole_doc = bench(m, &o);
    assert_null(json_object_get(whole_doc, "interrupted"));
    json_decref(whole_doc);
    assert_int_equal(all.done, all.total);
    assert_int_equal(all.total, 64 + 2 * 2 * (PROMPT + PREDICT + 3 * PREDICT));
    size_t n_rows = 0;
    for (uint64_t at = 1; at <= all.calls; at += at < 3 ? 1 : all.calls / 7) {
        struct watch w = { .stop_at = at };
        o.progress.arg = &w;
        n_rows = check_interrupted(m, &o, n_rows);
        assert_int_equal(w.calls, at);
    }
    assert_in_range(n_rows, 3, 6);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_the_work_asked_for),
        cmocka_unit_test(test_defaults_and_tests_left_out),
        cmocka_unit_test(test_bytes_are_the_tiles_in_sight),
        cmocka_unit_test(test_bytes_per_token_grow_by_the_pages),
        cmocka_unit_test(test_fill_reads_the_weights_once_a_micro_batch),
        cmocka_unit_test(test_planned_pages_suffice_and_are_few),
        cmocka_unit_test(test_position_kinds),
        cmocka_unit_test(test_depths_by_copies),
        cmocka_unit_test(test_copies_are_of_the_tile_before),
        cmocka_unit_test(test_what_cannot_be_measured_is_refused),
        cmocka_unit_test(test_progress_ascends_and_may_stop_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

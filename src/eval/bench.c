/* bench.c: speed of an engine on synthetic tokens, at depths and for several sequences at a time.
 * Owns: the engine of one call, its filled sequence, the times. Does not know: text, figures.
 * N1 every repetition of a row does the same work: on forks of the filled sequence, which are gone
 *    afterwards.
 * N2 every repetition stands between two measurements of the read bandwidth by the same threads,
 *    since that drifts within seconds.
 * N3 bytes are what the layer program has to read, by its own sizes; no hardware is asked. */
#include "eval/bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"
#include "eval/standin.h"
#include "model/doctor.h"
#include "model/engine.h"
#include "base/json_build.h"

enum { MOST_VALUES = 256, MOST_BATCH = 65535, MOST_REPETITIONS = 10000 };
enum { MOST_POSITIONS = 1 << 24, SEED = 1 };
static const double probe_seconds = 0.05; /* several passes over the probe's memory */

enum kind { FILL, PREFILL, DECODE };

/* What a row measures: `batch` sequences of `at` tokens take n more each. */
struct test {
    enum kind kind;
    uint32_t at, n, batch;
};

struct row {
    double median, least, most; /* seconds of a repetition */
    double cpu, peak, fraction, load;
    uint64_t weights, kv; /* bytes read in a repetition (N3) */
};

struct bench {
    struct zp_model m; /* as it is, or with the position table of another kind */
    struct arena arena;
    zp_bench_options o; /* resolved */
    struct test *tests;
    struct row *rows;
    size_t n_tests, n_measured;
    struct zp_engine *e;
    struct doctor_probe *probe;
    zp_seq *filled;
    zp_seq **forks;  /* (most_batch) */
    zp_item *items;  /* (most_batch) */
    int32_t *ids;    /* (n_ctx): token of each position */
    float *logits;   /* (most_batch, n_vocab) */
    double *seconds; /* (repetitions), then their processor seconds, bandwidths and shares */
    uint64_t done, total; /* tokens of all runs */
};

/* ---- options --------------------------------------------------------------------------------- */

static void set_defaults(zp_bench_options *o)
{
    static const uint32_t depth = 0, batch = 1;
    if (o->n_prompt == 0) o->n_prompt = 512;
    if (o->n_predict == 0) o->n_predict = 64;
    if (o->repetitions == 0) o->repetitions = 5;
    if (o->n_depths == 0) o->depths = &depth, o->n_depths = 1;
    if (o->n_batches == 0) o->batches = &batch, o->n_batches = 1;
}

static zp_status check_lists(const zp_bench_options *o, zp_err *err)
{
    ZP_FAIL_IF(!o->depths || !o->batches, err, ZP_USAGE,
               "the list of depths or of batches is missing");
    ZP_FAIL_IF(o->n_depths > MOST_VALUES || o->n_batches > MOST_VALUES, err, ZP_USAGE,
               "%zu depths and %zu batches; at most %d each", o->n_depths, o->n_batches,
               MOST_VALUES);
    for (size_t i = 1; i < o->n_depths; i++)
        ZP_FAIL_IF(o->depths[i] <= o->depths[i - 1], err, ZP_USAGE,
                   "depth %u stands after %u: depths must ascend, since one sequence is filled "
                   "from each to the next", o->depths[i], o->depths[i - 1]);
    for (size_t i = 0; i < o->n_batches; i++)
        ZP_FAIL_IF(o->batches[i] == 0 || o->batches[i] > MOST_BATCH, err, ZP_USAGE,
                   "a batch of %u sequences; expected 1 to %d", o->batches[i], MOST_BATCH);
    return ZP_OK;
}

static zp_status check_options(const zp_bench_options *o, zp_err *err)
{
    ZP_TRY(check_lists(o, err));
    ZP_FAIL_IF(o->repetitions > MOST_REPETITIONS, err, ZP_USAGE, "%u repetitions; at most %d",
               o->repetitions, MOST_REPETITIONS);
    uint32_t deepest = o->depths[o->n_depths - 1];
    ZP_FAIL_IF(o->no_prefill && o->no_decode && (deepest == 0 || o->copy_fill), err, ZP_USAGE,
               "nothing to measure: prefill and decode are left out, and no depth is computed");
    uint64_t n = o->no_prefill ? 0 : o->n_prompt, ctx = o->engine.n_ctx;
    if (!o->no_decode && o->n_predict > n) n = o->n_predict;
    if (ctx == 0 || ctx > MOST_POSITIONS) ctx = MOST_POSITIONS;
    ZP_FAIL_IF(deepest + n > ctx, err, ZP_BAD_INPUT,
               "depth %u and %llu tokens do not fit into %llu positions%s", deepest,
               (unsigned long long)n, (unsigned long long)ctx,
               ctx == MOST_POSITIONS ? ", the most a context may have; lower the depth"
                                     : "; lower the depth or raise --ctx-size");
    return ZP_OK;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static uint64_t tokens_of(const struct test *t)
{
    return (uint64_t)t->n * t->batch;
}

static uint32_t repetitions_of(const struct bench *b, const struct test *t)
{
    return t->kind == FILL ? 1 : b->o.repetitions;
}

static void add_test(struct bench *b, enum kind kind, uint32_t at, uint32_t n, uint32_t batch)
{
    struct test *t = &b->tests[b->n_tests++];
    *t = (struct test){ kind, at, n, batch };
    b->total += tokens_of(t) * (repetitions_of(b, t) + (kind != FILL)); /* one to warm up */
}

static zp_status plan_tests(struct bench *b, zp_err *err)
{
    const zp_bench_options *o = &b->o;
    size_t most = o->n_depths * (o->n_batches + 2);
    ZP_ALLOC(b->tests, MEM_META, most, err, "the list of tests");
    ZP_ALLOC(b->rows, MEM_META, most, err, "the list of results");
    for (size_t i = 0; i < o->n_depths; i++) {
        uint32_t depth = o->depths[i], at = i ? o->depths[i - 1] : 0;
        if (depth > at) add_test(b, FILL, at, depth - at, 1);
        if (!o->no_prefill) add_test(b, PREFILL, depth, o->n_prompt, 1);
        for (size_t k = 0; !o->no_decode && k < o->n_batches; k++)
            add_test(b, DECODE, depth, o->n_predict, o->batches[k]);
    }
    return ZP_OK;
}

static uint32_t positions_needed(const struct bench *b)
{
    uint32_t most = 0;
    for (size_t i = 0; i < b->n_tests; i++) {
        uint32_t end = b->tests[i].at + b->tests[i].n;
        most = end > most ? end : most;
    }
    return most;
}

static uint32_t most_batch(const struct bench *b)
{
    uint32_t most = 1;
    for (size_t i = 0; i < b->n_tests; i++)
        if (b->tests[i].batch > most) most = b->tests[i].batch;
    return most;
}

/* The filled sequence and the forks of a test; sequences of full length would take many times
 * as many. */
static size_t pages_needed(const struct bench *b, uint32_t micro_batch)
{
    const struct position *p = &b->m.position;
    size_t most = 0;
    for (size_t i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        size_t fork = b->o.separate ? kvcache_pages_needed(p, t->at + t->n, micro_batch)
                                    : kvcache_fork_pages(p, t->at, t->n, micro_batch),
               pages = kvcache_pages_needed(p, t->at, micro_batch) + fork * t->batch;
        if (pages > most) most = pages;
    }
    return most;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zp_status open_engine(struct bench *b, zp_err *err)
{
    zp_engine_options o = b->o.engine;
    struct engine_plan plan;
    o.n_seq = most_batch(b) + 1; /* the filled one */
    if (o.n_ctx == 0) o.n_ctx = positions_needed(b);
    ZP_TRY(engine_plan(&b->m, &o, &plan, err)); /* resolves the defaults */
    plan.pages.n_pages = pages_needed(b, o.micro_batch);
    if (b->o.engine.kv_bytes == 0) o.kv_bytes = kv_plan_bytes(&plan.pages);
    return zp_engine_open(&b->e, &b->m, &o, err);
}

static zp_status choose_position(struct bench *b, zp_err *err)
{
    struct position own;
    if (!b->o.position_kind) return ZP_OK;
    ZP_TRY(standin_position(&own, &b->m.position, b->o.position_kind, &b->arena, err));
    b->m.position = own;
    return ZP_OK;
}

static zp_status open_bench(struct bench *b, zp_err *err)
{
    ZP_TRY(choose_position(b, err));
    ZP_TRY(plan_tests(b, err));
    size_t n_ids = positions_needed(b), n = most_batch(b), n_vocab = b->m.h.n_vocab;
    ZP_TRY(open_engine(b, err));
    ZP_ALLOC(b->ids, MEM_META, n_ids, err, "the tokens");
    ZP_ALLOC(b->forks, MEM_META, n, err, "the list of sequences");
    ZP_ALLOC(b->items, MEM_META, n, err, "the batch");
    ZP_ALLOC(b->logits, MEM_SCRATCH, n * n_vocab, err, "the logits");
    ZP_ALLOC(b->seconds, MEM_META, 4 * (size_t)b->o.repetitions, err, "the times");
    struct rng r = rng_stream(SEED, 0);
    for (size_t i = 0; i < n_ids; i++) b->ids[i] = (int32_t)rng_below(&r, n_vocab);
    zp_seq_options seq = { .mode = b->o.mode };
    ZP_TRY(zp_seq_open(&b->filled, b->e, &seq, err));
    return doctor_probe_open(&b->probe, b->e->pool, err);
}

static void close_bench(struct bench *b)
{
    doctor_probe_close(b->probe);
    zp_seq_close(b->filled);
    zp_engine_close(b->e);
    mem_free(b->seconds);
    mem_free(b->logits);
    mem_free(b->items);
    mem_free(b->forks);
    mem_free(b->ids);
    mem_free(b->rows);
    mem_free(b->tests);
    arena_free(&b->arena);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Progress of one engine run as a part of all. */
static bool tick(void *arg, const char *what, uint64_t done, uint64_t total)
{
    const struct bench *b = arg;
    const zp_progress *p = &b->o.progress;
    (void)total;
    return !p->fn || p->fn(p->arg, what, b->done + done, b->total);
}

/* The items' sequences take the test's tokens: all at once, or each one of its own at a time. */
static zp_status run_items(struct bench *b, const struct test *t, double *seconds, double *cpu,
                           zp_err *err)
{
    zp_progress progress = { tick, b };
    uint32_t step = t->kind == DECODE ? 1 : t->n;
    double begin = os_now(), cpu_begin = os_cpu_seconds();
    for (uint32_t at = 0; at < t->n; at += step) {
        for (uint32_t i = 0; i < t->batch; i++)
            b->items[i].ids = b->ids + t->at + at, b->items[i].n = step;
        ZP_TRY(zp_engine_run(b->e, b->items, t->batch, b->logits, t->batch, &progress, err));
        b->done += (uint64_t)step * t->batch;
    }
    *seconds = os_now() - begin;
    *cpu = os_cpu_seconds() - cpu_begin;
    return ZP_OK;
}

/* Reaches the next depth; with copies of a computed tile where the options say so. */
static zp_status fill(struct bench *b, const struct test *t, double *seconds, double *cpu,
                      zp_err *err)
{
    struct test part = *t;
    uint32_t end = t->at + t->n, first = (t->at + KERN_TILE - 1) / KERN_TILE * KERN_TILE;
    if (first == 0) first = KERN_TILE;
    if (b->o.copy_fill && first < end) {
        part.n = first - t->at;
        if (part.n > 0) ZP_TRY(run_items(b, &part, seconds, cpu, err));
        part.at = end / KERN_TILE * KERN_TILE;
        ZP_TRY(kv_table_repeat(&b->filled->kv, &b->e->kv, part.at - first, err));
        memcpy(b->filled->ids + first, b->ids + first, (part.at - first) * sizeof *b->ids);
        b->done += part.at - first;
        part.n = end - part.at;
    }
    return part.n > 0 ? run_items(b, &part, seconds, cpu, err) : ZP_OK;
}

static zp_status run_once(struct bench *b, const struct test *t, double *seconds, double *cpu,
                          zp_err *err)
{
    zp_status status = ZP_OK;
    uint32_t n = 0, n_forks = t->kind == FILL ? 0 : t->batch;
    b->items[0] = (zp_item){ .seq = b->filled, .want = ZP_WANT_LAST };
    while (n < n_forks && status == ZP_OK) {
        status = zp_seq_fork(&b->forks[n], b->filled, t->at, err);
        if (status != ZP_OK) break;
        b->items[n] = (zp_item){ .seq = b->forks[n], .want = ZP_WANT_LAST };
        if (b->o.separate) status = kv_table_unshare(&b->forks[n]->kv, &b->e->kv, err);
        n++;
    }
    if (status == ZP_OK && t->kind == FILL) status = fill(b, t, seconds, cpu, err);
    else if (status == ZP_OK) status = run_items(b, t, seconds, cpu, err);
    while (n > 0) zp_seq_close(b->forks[--n]);
    return status;
}

/* ---- bytes (N3) ------------------------------------------------------------------------------ */

/* In the last layer a micro-batch without wanted logits needs keys and values alone. */
static uint64_t unwanted_bytes(const struct weights *w, uint32_t n_layer)
{
    const struct kern_mat *mat = w->layers[n_layer - 1].mat;
    uint64_t bytes = kern_mat_bytes(&w->output);
    for (int i = 0; i < W_MAT_COUNT; i++)
        if (i != W_K && i != W_V) bytes += kern_mat_bytes(&mat[i]);
    return bytes;
}

static void count_bytes(const struct bench *b, const struct test *t, struct row *r)
{
    const struct zp_engine *e = b->e;
    uint32_t micro_batch = e->options.micro_batch, n_layer = b->m.h.n_layer;
    uint64_t all = e->weights.packed_bytes, less = unwanted_bytes(&e->weights, n_layer);
    r->weights = r->kv = 0;
    for (uint32_t i = 0; t->kind == DECODE && i < t->n; i++) {
        r->weights += (t->batch + micro_batch - 1) / micro_batch * all;
        r->kv += t->batch * kvcache_bytes_seen(&e->kv, n_layer, t->at + i, 1);
    }
    for (uint32_t i = 0, n; t->kind != DECODE && i < t->n; i += n) {
        bool last = t->n - i <= micro_batch;
        n = last ? t->n - i : micro_batch;
        r->weights += last ? all : all - less;
        r->kv += kvcache_bytes_seen(&e->kv, last ? n_layer : n_layer - 1, t->at + i, n);
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Leaves x sorted. */
static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, by_size);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

static zp_status measure(struct bench *b, const struct test *t, struct row *r, zp_err *err)
{
    uint32_t n = repetitions_of(b, t);
    double *seconds = b->seconds, *cpu = seconds + n, *peaks = cpu + n, *shares = peaks + n;
    count_bytes(b, t, r);
    if (t->kind != FILL) ZP_TRY(run_once(b, t, seconds, cpu, err)); /* warms up */
    double before = doctor_probe_read(b->probe, probe_seconds);
    for (uint32_t i = 0; i < n; i++) {
        ZP_TRY(run_once(b, t, &seconds[i], &cpu[i], err));
        double after = doctor_probe_read(b->probe, probe_seconds);
        peaks[i] = (before + after) / 2;
        shares[i] = (double)(r->weights + r->kv) / seconds[i] / peaks[i];
        before = after;
    }
    r->median = median(seconds, n);
    r->least = seconds[0], r->most = seconds[n - 1];
    r->cpu = median(cpu, n);
    r->peak = median(peaks, n);
    r->fraction = median(shares, n);
    r->load = os_load_average();
    return ZP_OK;
}

/* ---- the document ---------------------------------------------------------------------------- */

static void write_row(struct json_build *j, const struct bench *b, const struct test *t,
                      const struct row *r)
{
    static const char *const names[] = { "fill", "prefill", "decode" };
    uint64_t tokens = tokens_of(t), bytes = r->weights + r->kv;
    double n = (double)tokens;
    json_build_object(j, NULL);
    json_build_text(j, "test", names[t->kind]);
    json_build_uint(j, "depth", t->kind == FILL ? t->at + t->n : t->at);
    json_build_uint(j, "batch", t->batch);
    json_build_uint(j, "tokens", tokens);
    json_build_uint(j, "repetitions", repetitions_of(b, t));
    json_build_real(j, "tps_median", n / r->median, 6);
    json_build_real(j, "tps_min", n / r->most, 6);
    json_build_real(j, "tps_max", n / r->least, 6);
    json_build_real(j, "spread", (r->most - r->least) / r->median, 4);
    json_build_real(j, "seconds_median", r->median, 6);
    json_build_real(j, "seconds_min", r->least, 6);
    json_build_real(j, "cpu_seconds_median", r->cpu, 6);
    json_build_uint(j, "weights_read_bytes", r->weights);
    json_build_uint(j, "kv_read_bytes", r->kv);
    json_build_uint(j, "bytes_per_token", bytes / tokens);
    json_build_real(j, "gbps", (double)bytes / r->median * 1e-9, 4);
    json_build_real(j, "peak_gbps", r->peak * 1e-9, 4);
    json_build_real(j, "fraction", r->fraction, 4);
    json_build_real(j, "load_average", r->load, 4);
    json_build_object_end(j);
}

/* Heads of all layers that add a value to every score. */
static uint32_t bias_heads(const struct position *p)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) n += position_layer_has_bias(p, l) ? p->n_head : 0;
    return n;
}

/* Copies take no time worth a row. */
static bool has_row(const struct bench *b, size_t i)
{
    return i < b->n_measured && (b->tests[i].kind != FILL || !b->o.copy_fill);
}

static bool has_rows(const struct bench *b)
{
    size_t i = 0;
    while (i < b->n_measured && !has_row(b, i)) i++;
    return i < b->n_measured;
}

/* The rows measured so far; they are all, unless the call was stopped. */
static zp_status write_document(const struct bench *b, double seconds, char **json, zp_err *err)
{
    static const char *const kv_names[] = { "f32", "bf16", "q8" }; /* by enum kv_form */
    struct json_build j;
    zp_engine_stats s;
    char cpu[128];
    zp_engine_describe(b->e, &s);
    json_build_open(&j, err);
    json_build_object(&j, NULL);
    json_build_text(&j, "model", b->m.gguf.path);
    json_build_text(&j, "cpu", os_cpu_model(cpu, sizeof cpu));
    json_build_text(&j, "level", s.level);
    json_build_uint(&j, "threads", s.n_threads);
    json_build_bool(&j, "exact", b->e->options.exact);
    json_build_text(&j, "kv_type", kv_names[b->e->kv.form]);
    json_build_text(&j, "mode", position_mode_name(b->filled->mode));
    json_build_text(&j, "position_kind", b->o.position_kind ? b->o.position_kind : "own");
    json_build_uint(&j, "position_bytes", s.position_bytes);
    json_build_uint(&j, "rotations_per_token", s.position_done / s.tokens);
    json_build_uint(&j, "bias_heads", bias_heads(&b->m.position));
    json_build_bool(&j, "separate", b->o.separate);
    json_build_uint(&j, "ctx", s.n_ctx);
    json_build_uint(&j, "micro_batch", s.micro_batch);
    json_build_uint(&j, "weights_bytes", s.weights_bytes);
    json_build_uint(&j, "kv_bytes", s.kv_bytes);
    json_build_array(&j, "rows");
    for (size_t i = 0; i < b->n_tests; i++)
        if (has_row(b, i)) write_row(&j, b, &b->tests[i], &b->rows[i]);
    json_build_array_end(&j);
    if (b->n_measured < b->n_tests) json_build_bool(&j, "interrupted", true);
    json_build_real(&j, "total_seconds", seconds, 4);
    json_build_object_end(&j);
    return json_build_finish(&j, json);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Where it is stopped, the failure tells of tests instead of the engine's run that saw it. */
static zp_status measure_all(struct bench *b, zp_err *err)
{
    zp_status status = ZP_OK;
    zp_err why = { 0 };
    while (b->n_measured < b->n_tests && status == ZP_OK) {
        status = measure(b, &b->tests[b->n_measured], &b->rows[b->n_measured], &why);
        b->n_measured += status == ZP_OK;
    }
    ZP_FAIL_IF(status == ZP_INTERRUPTED, err, status, "interrupted after %zu of %zu tests",
               b->n_measured, b->n_tests);
    if (status != ZP_OK && err && err->code == ZP_OK) *err = why;
    return status;
}

/* Rows that were measured are not lost when it is stopped; a document without any says nothing. */
static zp_status run_bench(struct bench *b, char **json, zp_err *err)
{
    double begin = os_now();
    set_defaults(&b->o);
    ZP_TRY(check_options(&b->o, err));
    ZP_TRY(open_bench(b, err));
    zp_status status = measure_all(b, err);
    if (status == ZP_OK) return write_document(b, os_now() - begin, json, err);
    if (status == ZP_INTERRUPTED && has_rows(b)) write_document(b, os_now() - begin, json, err);
    return status;
}

zp_status zp_bench_json(const zp_model *m, const zp_bench_options *options, char **json,
                        zp_err *err)
{
    struct bench b = { .m = *m };
    if (json) *json = NULL;
    if (options) b.o = *options;
    zp_status status = run_bench(&b, json, err);
    close_bench(&b);
    return status;
}

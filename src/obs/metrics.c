/* metrics.c: cells of the metrics in metric_table.inc, and how they are counted in.
 * Owns: the cells. Does not know: who counts, and who asks.
 * M1 a cell is changed by single atomic additions or stores; nothing waits.  M2 the values of a
 * histogram are counted by its buckets alone, so their sum and its _count cannot differ.
 * M3 additions release, copies acquire from the last cell to the first: of two things counted one
 * after the other, the later one standing below in the table, a copy never has the later without
 * the earlier. So accepted >= ended >= those in the histograms of ended ones, at any time.
 * M4 when nothing is under way: accepted = completed + cancelled + failed; the same in
 * requests_phase; failed = requests_failed; completed = requests_finished = duration; those that
 * ended in phase decode = time_to_first_token.
 * M5 a value beyond a label's set is a mistake of the caller (assert). */
#include "metrics.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "metrics_parts.h"

#define MOST_OBSERVED 1e9 /* what a sum takes of one value: 31 years */

/* ---- the table ------------------------------------------------------------------------------- */
#define METRIC(id, kind, unit, scale, name, help, ...)                                             \
    { name, help, METRIC_KIND_##kind, METRIC_UNIT_##unit, METRIC_SCALE_##scale, { __VA_ARGS__ } },
const struct metric_row metric_rows[METRIC_COUNT] = {
#include "metric_table.inc"
};

#define VALUE(id, text) text,
#define LABEL(id, name, ...) static const char *const values_##id[] = { __VA_ARGS__ };
#include "metric_table.inc"

#define LABEL(id, name, ...) [LABELS_##id] = { name, values_##id, ZP_COUNT(values_##id) },
#define OPEN_LABEL(id, name) [LABELS_##id] = { name, NULL, 1 },
const struct metric_label metric_label_sets[LABELS_COUNT] = {
    [LABELS_NONE] = { "", NULL, 1 },
#include "metric_table.inc"
};

#define SCALE(id, ...) static const double bounds_##id[] = { __VA_ARGS__ };
#include "metric_table.inc"

static const struct {
    const double *bounds;
    size_t n;
} scales[METRIC_SCALES] = {
#define SCALE(id, ...) [METRIC_SCALE_##id] = { bounds_##id, ZP_COUNT(bounds_##id) },
#include "metric_table.inc"
};

const double *metric_bounds(enum metric_scale s, size_t *n)
{
    *n = scales[s].n;
    return scales[s].bounds;
}

uint64_t metrics_parts_of_one(enum metric_unit unit)
{
    return unit == METRIC_UNIT_SECONDS || unit == METRIC_UNIT_RATIO ? 1000000000 : 1;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* A state is one cell, whatever its values. */
static size_t count_series(const struct metric_row *row)
{
    size_t n = 1;
    if (row->kind == METRIC_KIND_STATE) return 1;
    for (size_t i = 0; i < METRIC_MOST_LABELS; i++) n *= metric_label_sets[row->labels[i]].n;
    return n;
}

static void place_cells(struct metrics *m)
{
    for (size_t id = 0; id < METRIC_COUNT; id++) {
        const struct metric_row *row = &metric_rows[id];
        bool counts = row->kind == METRIC_KIND_HISTOGRAM, none = row->kind == METRIC_KIND_INFO;
        m->places[id].first = m->n_cells;
        m->places[id].n_series = count_series(row);
        m->places[id].stride = counts ? m->scales[row->scale].n_cells + 1 : none ? 0 : 1;
        assert(m->places[id].stride <= METRICS_MOST_CELLS);
        m->n_cells += m->places[id].n_series * m->places[id].stride;
    }
}

size_t metrics_series(const struct metrics *m, enum metric id, struct metric_at at)
{
    size_t series = 0;
    for (size_t i = 0; i < METRIC_MOST_LABELS; i++) {
        size_t n = metric_label_sets[metric_rows[id].labels[i]].n;
        assert(at.value[i] < n); // M5
        series = series * n + at.value[i];
    }
    assert(series < m->places[id].n_series);
    return series;
}

struct metric_at metrics_values(enum metric id, size_t series)
{
    struct metric_at at = { { 0 } };
    for (size_t i = METRIC_MOST_LABELS; i-- > 0;) {
        size_t n = metric_label_sets[metric_rows[id].labels[i]].n;
        at.value[i] = (unsigned)(series % n);
        series /= n;
    }
    return at;
}

static _Atomic uint64_t *cells_of(const struct metrics *m, enum metric id, struct metric_at at)
{
    return m->cells + metrics_place(m, id, metrics_series(m, id, at));
}

/* ---- open, close ----------------------------------------------------------------------------- */

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

double metrics_real(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static zp_status fill(struct metrics *m, zp_err *err)
{
    for (size_t s = METRIC_SCALE_NONE + 1; s < METRIC_SCALES; s++)
        ZP_TRY(histogram_open(&m->scales[s], scales[s].bounds, scales[s].n, err));
    place_cells(m);
    m->cells = mem_zalloc(MEM_SERVE, m->n_cells * sizeof *m->cells);
    ZP_FAIL_IF(m->cells == NULL, err, ZP_NO_MEMORY, "not enough memory for metrics");
    for (size_t id = 0; id < METRIC_COUNT; id++) {
        if (metric_rows[id].kind != METRIC_KIND_GAUGE) continue;
        for (size_t i = 0; i < m->places[id].n_series; i++)
            atomic_init(&m->cells[m->places[id].first + i], bits_of(NAN));
    }
    return ZP_OK;
}

zp_status metrics_open(struct metrics **out, zp_err *err)
{
    struct metrics *m = mem_zalloc(MEM_SERVE, sizeof *m);
    *out = NULL;
    ZP_FAIL_IF(m == NULL, err, ZP_NO_MEMORY, "not enough memory for metrics");
    zp_status status = fill(m, err);
    if (status == ZP_OK) *out = m;
    else metrics_close(m);
    return status;
}

void metrics_close(struct metrics *m)
{
    if (m == NULL) return;
    for (size_t s = 0; s < METRIC_SCALES; s++) histogram_free(&m->scales[s]);
    mem_free(m->cells);
    mem_free(m);
}

/* ---- recording ------------------------------------------------------------------------------- */

static void add(_Atomic uint64_t *cell, uint64_t n)
{
    atomic_fetch_add_explicit(cell, n, memory_order_release); // M1, M3
}

static void store(_Atomic uint64_t *cell, uint64_t x)
{
    atomic_store_explicit(cell, x, memory_order_release);
}

void metrics_add(struct metrics *m, enum metric id, struct metric_at at, uint64_t n)
{
    assert(metric_rows[id].kind == METRIC_KIND_COUNTER);
    add(cells_of(m, id, at), n);
}

void metrics_set_count(struct metrics *m, enum metric id, struct metric_at at, uint64_t n)
{
    assert(metric_rows[id].kind == METRIC_KIND_COUNTER);
    store(cells_of(m, id, at), n);
}

void metrics_set(struct metrics *m, enum metric id, struct metric_at at, double x)
{
    assert(metric_rows[id].kind == METRIC_KIND_GAUGE);
    store(cells_of(m, id, at), bits_of(x));
}

void metrics_set_state(struct metrics *m, enum metric id, unsigned value)
{
    assert(metric_rows[id].kind == METRIC_KIND_STATE);
    assert(value < metric_label_sets[metric_rows[id].labels[0]].n); // M5
    store(m->cells + m->places[id].first, value);
}

void metrics_observe(struct metrics *m, enum metric id, struct metric_at at, double x)
{
    const struct metric_row *row = &metric_rows[id];
    const struct histogram_scale *scale = &m->scales[row->scale];
    assert(row->kind == METRIC_KIND_HISTOGRAM);
    _Atomic uint64_t *cells = cells_of(m, id, at);
    if (!(x > 0)) x = 0;
    add(cells + histogram_cell(scale, x), 1); // M2
    double ones = (double)metrics_parts_of_one(row->unit);
    add(cells + scale->n_cells, (uint64_t)llround(fmin(x, MOST_OBSERVED) * ones));
}

/* ---- the course of a request ----------------------------------------------------------------- */

void metrics_accepted(struct metrics *m, unsigned endpoint, unsigned variant)
{
    metrics_add(m, METRIC_ACCEPTED, METRIC_AT(endpoint, variant), 1);
}

void metrics_first_token(struct metrics *m, unsigned variant, unsigned length, double seconds)
{
    metrics_observe(m, METRIC_FIRST_TOKEN, METRIC_AT(variant, length), seconds);
}

void metrics_token(struct metrics *m, unsigned variant, double gap)
{
    metrics_add(m, METRIC_TOKENS, METRIC_AT(variant, LABEL_TOKEN_GENERATED), 1);
    if (gap >= 0) metrics_observe(m, METRIC_GAP, METRIC_AT(variant), gap);
}

static void count_prompt(struct metrics *m, const struct metrics_request *r)
{
    const uint64_t n[] = { [LABEL_TOKEN_COMPUTED] = r->n_computed,
                           [LABEL_TOKEN_REUSED] = r->n_reused,
                           [LABEL_TOKEN_RECOMPUTED] = r->n_recomputed };
    for (unsigned kind = 0; kind < ZP_COUNT(n); kind++)
        metrics_add(m, METRIC_TOKENS, METRIC_AT(r->variant, kind), n[kind]);
    if (r->phase == LABEL_PHASE_QUEUE) return;
    unsigned found = r->n_reused != 0 ? LABEL_LOOKUP_HIT : LABEL_LOOKUP_MISS;
    metrics_add(m, METRIC_LOOKUPS, METRIC_AT(r->variant, found), 1);
}

static void observe_completed(struct metrics *m, const struct metrics_request *r)
{
    struct metric_at at = METRIC_AT(r->variant);
    double n_prompt = (double)(r->n_computed + r->n_reused);
    metrics_observe(m, METRIC_PROMPT_TOKENS, at, n_prompt);
    metrics_observe(m, METRIC_GENERATED_TOKENS, at, (double)r->n_generated);
    metrics_observe(m, METRIC_CONTEXT_TOKENS, at, n_prompt + (double)r->n_generated);
    metrics_observe(m, METRIC_LIMIT_TOKENS, at, (double)r->n_limit);
    metrics_observe(m, METRIC_DURATION, METRIC_AT(r->variant, r->length), r->total_seconds);
    metrics_observe(m, METRIC_QUEUE, at, r->queue_seconds);
    metrics_observe(m, METRIC_PREFILL, at, r->prefill_seconds);
    if (r->phase == LABEL_PHASE_DECODE) metrics_observe(m, METRIC_DECODE, at, r->decode_seconds);
    if (isnan(r->top1_mean) || isnan(r->top1_std)) return;
    metrics_observe(m, METRIC_TOP1_MEAN, at, r->top1_mean);
    metrics_observe(m, METRIC_TOP1_STD, at, r->top1_std);
}

void metrics_ended(struct metrics *m, const struct metrics_request *r)
{
    bool completed = r->outcome == LABEL_OUTCOME_COMPLETED;
    metrics_add(m, METRIC_REQUESTS, METRIC_AT(r->endpoint, r->variant, r->outcome), 1);
    metrics_add(m, METRIC_PHASES, METRIC_AT(r->variant, r->outcome, r->phase), 1);
    if (r->outcome == LABEL_OUTCOME_FAILED)
        metrics_add(m, METRIC_FAILURES, METRIC_AT(r->variant, r->failure), 1);
    if (completed) metrics_add(m, METRIC_FINISHED, METRIC_AT(r->variant, r->finish), 1);
    metrics_add(m, METRIC_MODES, METRIC_AT(r->variant, r->mode), 1);
    if (completed && r->looped) metrics_add(m, METRIC_LOOPED, METRIC_AT(r->variant), 1);
    count_prompt(m, r);
    if (completed) observe_completed(m, r);
}

void metrics_step(struct metrics *m, double seconds, uint64_t tokens, uint64_t sequences)
{
    metrics_observe(m, METRIC_STEP_SECONDS, METRIC_AT(0), seconds);
    metrics_observe(m, METRIC_STEP_TOKENS, METRIC_AT(0), (double)tokens);
    metrics_observe(m, METRIC_STEP_SEQUENCES, METRIC_AT(0), (double)sequences);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static unsigned status_class(int status)
{
    if (status == 499) return LABEL_STATUS_GONE;
    if (status < 300) return LABEL_STATUS_2XX;
    if (status < 400) return LABEL_STATUS_3XX;
    return status < 500 ? LABEL_STATUS_4XX : LABEL_STATUS_5XX;
}

static unsigned error_of(int status)
{
    const struct metric_label *set = &metric_label_sets[LABELS_ERROR];
    char text[3] = { (char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
                     (char)('0' + status % 10) };
    for (unsigned i = 0; i < LABEL_ERROR_OTHER; i++)
        if (memcmp(set->values[i], text, sizeof text) == 0) return i;
    return LABEL_ERROR_OTHER;
}

void metrics_http(struct metrics *m, const struct metrics_http *h)
{
    metrics_add(m, METRIC_HTTP_REQUESTS, METRIC_AT(h->route, status_class(h->status)), 1);
    if (h->status >= 400) metrics_add(m, METRIC_HTTP_ERRORS, METRIC_AT(error_of(h->status)), 1);
    metrics_observe(m, METRIC_HTTP_SECONDS, METRIC_AT(h->route), h->seconds);
    metrics_add(m, METRIC_HTTP_RECEIVED, METRIC_AT(0), h->bytes_in);
    metrics_add(m, METRIC_HTTP_SENT, METRIC_AT(0), h->bytes_out);
}

/* ---- the process ----------------------------------------------------------------------------- */

void metrics_sample_process(struct metrics *m)
{
    struct mem_stats stats;
    struct metric_at none = METRIC_AT(0);
    uint64_t most_files = os_most_files();
    mem_stats_read(&stats);
    for (unsigned tag = 0; tag < MEM_TAG_COUNT; tag++) {
        metrics_set(m, METRIC_MEMORY, METRIC_AT(tag), (double)stats.live[tag]);
        metrics_set(m, METRIC_MEMORY_PEAK, METRIC_AT(tag), (double)stats.peak[tag]);
    }
    metrics_set_count(m, METRIC_ALLOCATIONS, none, stats.allocations);
    metrics_set_count(m, METRIC_PROCESS_CPU, none, (uint64_t)(1e9 * os_cpu_seconds()));
    /* Once: it is the difference of two clocks, and must not seem to change. */
    if (isnan(metrics_gauge(m, METRIC_PROCESS_START, none)))
        metrics_set(m, METRIC_PROCESS_START, none, os_start_seconds());
    metrics_set(m, METRIC_PROCESS_RESIDENT, none, (double)os_rss_bytes());
    metrics_set(m, METRIC_PROCESS_VIRTUAL, none, (double)os_virtual_bytes());
    metrics_set(m, METRIC_PROCESS_FDS, none, (double)os_open_files());
    metrics_set(m, METRIC_PROCESS_MAX_FDS, none,
                most_files == UINT64_MAX ? INFINITY : (double)most_files);
}

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t load(const _Atomic uint64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_acquire);
}

void metrics_copy(const struct metrics *m, uint64_t *out)
{
    for (size_t i = m->n_cells; i-- > 0;) out[i] = load(&m->cells[i]); // M3
}

uint64_t metrics_count(const struct metrics *m, enum metric id, struct metric_at at)
{
    return load(cells_of(m, id, at));
}

double metrics_gauge(const struct metrics *m, enum metric id, struct metric_at at)
{
    return metrics_real(load(cells_of(m, id, at)));
}

uint64_t metrics_observed(const struct metrics *m, enum metric id, struct metric_at at)
{
    const _Atomic uint64_t *cells = cells_of(m, id, at);
    uint64_t n = 0;
    for (size_t i = 0; i < m->scales[metric_rows[id].scale].n_cells; i++) n += load(&cells[i]);
    return n;
}

double metrics_sum(const struct metrics *m, enum metric id, struct metric_at at)
{
    const struct metric_row *row = &metric_rows[id];
    uint64_t parts = load(cells_of(m, id, at) + m->scales[row->scale].n_cells);
    return (double)parts / (double)metrics_parts_of_one(row->unit);
}

double metrics_quantile(const struct metrics *m, enum metric id, struct metric_at at, double q)
{
    uint64_t counts[METRICS_MOST_CELLS];
    const struct histogram_scale *scale = &m->scales[metric_rows[id].scale];
    const _Atomic uint64_t *cells = cells_of(m, id, at);
    for (size_t i = 0; i < scale->n_cells; i++) counts[i] = load(&cells[i]);
    return histogram_quantile(scale, counts, q);
}

/* doctor.c: processor, memory, kernels: measured, not guessed.
 * Owns: the memory it reads while it measures. Does not know: models.
 * D1 a figure comes from this run; what could not be measured is null, never a default. */
#include "model/doctor.h"

#include <string.h>
#include <zerope/zerope.h>

#include "base/os.h"
#include "kern/selftest.h"
#include "model/inspect.h"
#include "model/library.h"

enum { LANES = 16, RESULT_ROOM = 64 };

/* ---- read bandwidth -------------------------------------------------------------------------- */

struct doctor_probe {
    struct pool *pool;
    uint64_t *data;
    size_t n;              /* multiple of LANES */
    uint64_t sums[256][8]; /* by thread, a cache line each: what was read is used */
};

static void touch_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct doctor_probe *b = arg;
    size_t begin, end;
    pool_share(b->n, LANES, thread, n_threads, &begin, &end);
    if (begin < end) memset(b->data + begin, 0x5a, (end - begin) * sizeof *b->data);
}

static void read_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct doctor_probe *b = arg;
    size_t begin, end;
    uint64_t sum[LANES] = { 0 }, total = 0;
    pool_share(b->n, LANES, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i += LANES)
        for (size_t k = 0; k < LANES; k++) sum[k] += b->data[i + k];
    for (size_t k = 0; k < LANES; k++) total += sum[k];
    b->sums[thread][0] = total;
}

/* 256 MiB, less where there is little memory: at most an eighth of it. */
static size_t bytes_to_read(void)
{
    uint64_t have = os_memory_available(), want = (uint64_t)256 << 20;
    if (have && have / 8 < want) want = have / 8;
    return (size_t)(want < (1u << 20) ? 1u << 20 : want);
}

zp_status doctor_probe_open(struct doctor_probe **out, struct pool *p, zp_err *err)
{
    struct doctor_probe *b = mem_zalloc(MEM_SCRATCH, sizeof *b);
    size_t n = bytes_to_read() / sizeof *b->data / LANES * LANES, size = n * sizeof *b->data;
    if (b) b->data = mem_alloc_huge(MEM_SCRATCH, size);
    if (!b || !b->data) {
        mem_free(b);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory to measure the bandwidth (%zu bytes)", size);
    }
    b->pool = p;
    b->n = n;
    pool_run(p, touch_worker, b);
    *out = b;
    return ZP_OK;
}

void doctor_probe_close(struct doctor_probe *b)
{
    if (b) mem_free_huge(MEM_SCRATCH, b->data, doctor_probe_bytes(b));
    mem_free(b);
}

size_t doctor_probe_bytes(const struct doctor_probe *b)
{
    return b->n * sizeof *b->data;
}

double doctor_probe_read(struct doctor_probe *b, double seconds)
{
    double best = 0;
    for (double begin = os_now(), from = begin; from - begin < seconds;) {
        pool_run(b->pool, read_worker, b);
        double now = os_now(), rate = (double)doctor_probe_bytes(b) / (now - from);
        if (now > from && rate > best) best = rate;
        from = now;
    }
    return best;
}

/* ---- document -------------------------------------------------------------------------------- */

struct rates {
    double alone, cores, all; /* bytes a second: one thread, one a core, one a processor */
    size_t bytes;
};

/* Second hardware threads of cores only where they are measured to read more. */
static uint32_t suggested(const struct rates *r)
{
    return r->all > 1.05 * r->cores ? os_cpu_count() : os_core_count();
}

static void write_cpu(struct json_build *w, uint32_t n_threads, const struct rates *r)
{
    char model[128], features[256];
    kern_cpu_features(features, sizeof features);
    json_build_object(w, "cpu");
    json_build_text(w, "model", os_cpu_model(model, sizeof model));
    json_build_text(w, "features", features);
    json_build_text(w, "level", kern_level_name(kern_cpu_level()));
    json_build_uint(w, "processors", os_cpu_count());
    json_build_uint(w, "cores", os_core_count());
    json_build_uint(w, "threads", n_threads);
    json_build_uint(w, "threads_suggested", suggested(r));
    json_build_real(w, "load_average", os_load_average(), 4);
    json_build_object_end(w);
}

/* *rate: of n_threads workers together, over *bytes. */
static zp_status measure(uint32_t n_threads, double seconds, double *rate, size_t *bytes,
                         zp_err *err)
{
    struct pool *pool;
    struct doctor_probe *probe = NULL;
    ZP_TRY(pool_open(&pool, n_threads, err));
    zp_status status = doctor_probe_open(&probe, pool, err);
    if (status == ZP_OK) {
        *bytes = doctor_probe_bytes(probe);
        *rate = doctor_probe_read(probe, seconds);
    }
    doctor_probe_close(probe);
    pool_close(pool);
    return status;
}

static zp_status measure_all(struct rates *r, bool quick, zp_err *err)
{
    double seconds = quick ? 0.2 : 1.5;
    ZP_TRY(measure(os_core_count(), seconds, &r->cores, &r->bytes, err));
    ZP_TRY(measure(1, seconds, &r->alone, &r->bytes, err));
    r->all = r->cores;
    if (os_cpu_count() == os_core_count()) return ZP_OK;
    return measure(os_cpu_count(), seconds, &r->all, &r->bytes, err);
}

static void write_memory(struct json_build *w, const struct rates *r, double asked)
{
    json_build_object(w, "memory");
    json_build_uint(w, "available_bytes", os_memory_available());
    json_build_uint(w, "rss_bytes", os_rss_bytes());
    json_build_uint(w, "measured_over_bytes", r->bytes);
    json_build_real(w, "read_gbps", asked * 1e-9, 4);
    json_build_real(w, "read_gbps_one_thread", r->alone * 1e-9, 4);
    json_build_real(w, "read_gbps_cores", r->cores * 1e-9, 4);
    json_build_real(w, "read_gbps_processors", r->all * 1e-9, 4);
    json_build_object_end(w);
}

static zp_status write_self_test(struct json_build *w, const struct kern_table *t, zp_err *err)
{
    struct selftest_result results[RESULT_ROOM];
    size_t n = kern_op_count(), bad = 0;
    ZP_FAIL_IF(n > RESULT_ROOM, err, ZP_RUN, "%zu operations, room for %d", n, RESULT_ROOM);
    ZP_TRY(selftest_run(t, results, err));
    for (size_t i = 0; i < n; i++) bad += !results[i].ok;
    json_build_object(w, "self_test");
    json_build_text(w, "status", bad ? "fail" : "pass");
    json_build_array(w, "operations");
    for (size_t i = 0; i < n; i++) {
        json_build_object(w, NULL);
        json_build_text(w, "operation", results[i].op);
        json_build_text(w, "kernel", results[i].chosen);
        json_build_text(w, "contract", results[i].contract);
        json_build_real(w, "of_limit", results[i].worst, 3);
        json_build_text(w, "status", results[i].ok ? "pass" : "fail");
        json_build_object_end(w);
    }
    json_build_array_end(w);
    json_build_object_end(w);
    return ZP_OK;
}

static zp_status write_all(struct json_build *w, uint32_t n_threads, bool quick, zp_err *err)
{
    struct kern_table kern;
    struct rates rates = { 0 };
    double asked;
    ZP_TRY(measure_all(&rates, quick, err));
    asked = rates.cores;
    if (n_threads != os_core_count())
        ZP_TRY(measure(n_threads, quick ? 0.2 : 1.5, &asked, &rates.bytes, err));
    kern_table_init(&kern, KERN_LEVEL_COUNT);
    json_build_object(w, NULL);
    json_build_text(w, "version", zp_version());
    write_cpu(w, n_threads, &rates);
    write_memory(w, &rates, asked);
    inspect_write_kernels(w, &kern);
    library_write_versions(w);
    ZP_TRY(write_self_test(w, &kern, err));
    json_build_object_end(w);
    return ZP_OK;
}

zp_status zp_doctor_json(char **json, uint32_t n_threads, bool quick, zp_err *err)
{
    struct json_build w;
    if (json) *json = NULL;
    if (n_threads == 0) n_threads = os_core_count();
    ZP_FAIL_IF(n_threads > 256, err, ZP_BAD_INPUT, "%u threads; at most 256", n_threads);
    json_build_open(&w, err);
    zp_status status = write_all(&w, n_threads, quick, err);
    if (w.status == ZP_OK) w.status = status;
    return json_build_finish(&w, json);
}

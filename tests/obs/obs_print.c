/* obs_print.c: prints what src/obs writes, for programs of others to judge: test_exposition.py,
 * test_lines.py; and the list of metrics for tools/metrics_page.py.
 *
 * Usage: obs_print prometheus|openmetrics|compat|page|lines|spans */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "obs/logline.h"
#include "obs/metrics.h"
#include "obs/otlp.h"

static void check(zp_status status, const zp_err *err)
{
    if (status == ZP_OK) return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* Every series of every metric, each with another number. */
static void fill_all(struct metrics *m)
{
    uint64_t n = 0;
    for (size_t id = 0; id < METRIC_COUNT; id++) {
        const struct metric_row *row = &metric_rows[id];
        size_t sizes[METRIC_MOST_LABELS], all = 1;
        for (size_t i = 0; i < METRIC_MOST_LABELS; i++)
            all *= sizes[i] = metric_label_sets[row->labels[i]].n;
        if (row->kind == METRIC_KIND_INFO) continue;
        for (size_t series = 0; series < all; series++) {
            struct metric_at at = { { 0 } };
            for (size_t i = METRIC_MOST_LABELS, rest = series; i-- > 0; rest /= sizes[i])
                at.value[i] = (unsigned)(rest % sizes[i]);
            n++;
            if (row->kind == METRIC_KIND_COUNTER) metrics_add(m, (enum metric)id, at, n * 1000001);
            if (row->kind == METRIC_KIND_GAUGE)
                metrics_set(m, (enum metric)id, at, n % 7 == 0 ? INFINITY : (double)n / 3);
            if (row->kind == METRIC_KIND_STATE) metrics_set_state(m, (enum metric)id, 1);
            for (uint64_t i = 0; i < 20 && row->kind == METRIC_KIND_HISTOGRAM; i++)
                metrics_observe(m, (enum metric)id, at, pow(1.9, (double)(i + n % 3)) / 1000);
        }
    }
}

static void print_metrics(enum metrics_format format, unsigned compat)
{
    zp_err err = { 0 };
    struct metrics *m;
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 24);
    const struct metrics_texts texts = {
        .version = "0.1.0",
        .compiler = "gcc \"12\"",
        .kernels = "avx512\n",
        .variants = { { "mod\\el \xc3\xa9 {a=\"b\"},\r", "llama", "ab\xff" },
                      { "candidate", "zerope-llama", NULL } },
    };
    check(metrics_open(&m, &err), &err);
    fill_all(m);
    metrics_sample_process(m);
    check(metrics_write(m, &texts, format, compat, &out, &err), &err);
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
    metrics_close(m);
}

static void print_page(void)
{
    zp_err err = { 0 };
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 20);
    check(metrics_write_page(&out, &err), &err);
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
}

/* ---- log lines ------------------------------------------------------------------------------- */

static void print_line(void *arg, enum log_level level, const char *line, size_t size)
{
    (void)arg, (void)level;
    fwrite(line, 1, size, stdout);
}

/* Random bytes, a secret and content in every line; of all lengths. */
static void print_lines(void)
{
    struct rng r = rng_stream(0x109, 1);
    const struct logline_log log = { .most = LOG_DEBUG, .salt = "salt", .sink = print_line };
    for (int i = 0; i < 500; i++) {
        char id[40], text[6000];
        size_t n_id = rng_below(&r, sizeof id), n_text = rng_below(&r, i % 5 == 0 ? 6000 : 60);
        for (size_t k = 0; k < n_id; k++) id[k] = (char)(1 + rng_below(&r, 255));
        for (size_t k = 0; k < n_text; k++) text[k] = (char)(1 + rng_below(&r, 255));
        id[n_id] = text[n_text] = '\0';
        LOGLINE(&log, (enum log_level)(i % 4), "an_event", id,
                logline_secret("api_key", "sk-SECRET-1234"),
                logline_content("prompt", "PRIVATE words"),
                logline_uint("n", UINT64_MAX), logline_real("x", rng_unit(&r)),
                logline_text("text", text), logline_bool("yes", true));
    }
}

/* ---- spans ----------------------------------------------------------------------------------- */

static void print_spans(void)
{
    zp_err err = { 0 };
    struct otlp o;
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 20);
    struct rng r = rng_stream(0x0714, 1);
    size_t n;
    check(otlp_open(&o, &(struct otlp_options){ "0.1.0", "host:8080", 0, 7 }, &err), &err);
    otlp_set_clock(&o, 100, 1900000000000000000);
    for (int i = 0; i < 50; i++) {
        struct otlp_request q = { .trace = traceparent_new(&r, 1),
                                  .method = "POST",
                                  .route = "/v1/chat/completions",
                                  .operation = "chat",
                                  .request_id = "req \"1\"\xff",
                                  .model = "m",
                                  .variant = "baseline",
                                  .status = i % 3 == 0 ? 500 : 200,
                                  .n_prompt = 12,
                                  .error = i % 3 == 0 ? "logits are not finite" : NULL,
                                  .arrived = 100 + i };
        double *moments[] = { &q.accepted, &q.begun, &q.first_token, &q.last_token };
        for (int k = 0; k < i % 5; k++) *moments[k] = q.arrived + 0.001 * (k + 1);
        q.stream = q.first_token;
        q.ended = q.arrived + 0.01;
        otlp_add(&o, &q);
    }
    check(otlp_take(&o, &out, &n, &err), &err);
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
    otlp_free(&o);
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "prometheus") == 0) print_metrics(METRICS_PROMETHEUS, 0);
    else if (strcmp(what, "openmetrics") == 0) print_metrics(METRICS_OPENMETRICS, 0);
    else if (strcmp(what, "compat") == 0)
        print_metrics(METRICS_PROMETHEUS, METRICS_VLLM | METRICS_LLAMACPP);
    else if (strcmp(what, "page") == 0) print_page();
    else if (strcmp(what, "lines") == 0) print_lines();
    else if (strcmp(what, "spans") == 0) print_spans();
    else return 2;
    return 0;
}

/* schedbench.c: what the scheduler costs beside bare engine runs, and what a budget of tokens does
 * to those that draw while prompts are computed.
 * Usage: schedbench MODEL batch N_SEQ N_PREDICT [PAIRS]
 *        schedbench MODEL mixed N_SEQ N_PROMPT STEP_TOKENS
 * batch: N_SEQ greedy answers of N_PREDICT tokens to prompts of 8, by jobs of the scheduler and by
 * a loop of zp_engine_run, in turns; a line of JSON with both speeds (tokens a second, medians) and
 * the pairs' ratios: of speeds, and of processor time (least, median, most), for a machine that has
 * other work. mixed: N_SEQ answers are drawn while four prompts of N_PROMPT
 * tokens come; the milliseconds between two tokens of an answer (median, 95 of 100, largest) before
 * and beside the prompts, and the prompts' tokens a second. Exit code 1: something failed; 2: wrong
 * usage. */
#include <ctype.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "model/engine.h"
#include "model/sample.h"
#include "serve/scheduler.h"

enum { SHORT = 8, MOST_SEQ = 256, MOST_PAIRS = 99, MOST_GAPS = 1 << 20, N_LONG = 4 };

struct bench {
    zp_model *m;
    zp_engine *e;
    struct sched *s;
    sem_t news;
    uint32_t n_seq, n_predict, n_prompt;
    int32_t *ids;
    float *logits;
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "schedbench: %s: %s\n", what, why);
    exit(1);
}

static void wake(void *arg)
{
    sem_post(&((struct bench *)arg)->news);
}

static void open_bench(struct bench *b, const char *path, uint32_t n_ctx, uint32_t n_seq,
                       uint32_t step_tokens)
{
    zp_err err = { 0 };
    zp_engine_options o = { .n_ctx = n_ctx, .n_seq = n_seq };
    struct sched_options so = { .step_tokens = step_tokens, .wake = wake, .wake_arg = b };
    if (zp_model_open(&b->m, path, NULL, &err) != ZP_OK) stop(path, err.message);
    if (zp_engine_open(&b->e, b->m, &o, &err) != ZP_OK) stop("engine", err.message);
    sem_init(&b->news, 0, 0);
    if (sched_open(&b->s, &so, &err) != ZP_OK) stop("scheduler", err.message);
    if (sched_set_engine(b->s, 0, b->e, &err) != ZP_OK) stop("scheduler", err.message);
    b->ids = malloc((n_ctx + n_seq) * sizeof *b->ids);
    b->logits = malloc((size_t)n_seq * b->m->h.n_vocab * sizeof *b->logits);
    if (!b->ids || !b->logits) stop("memory", "not enough");
    for (uint32_t i = 0; i < n_ctx + n_seq; i++)
        b->ids[i] = (int32_t)((100 + 7919ull * i) % b->m->h.n_vocab);
}

static void close_bench(struct bench *b)
{
    sched_close(b->s);
    zp_engine_close(b->e);
    zp_model_close(b->m);
    sem_destroy(&b->news);
    free(b->ids);
    free(b->logits);
}

static void submit(struct bench *b, const int32_t *ids, size_t n, uint32_t n_predict, void *arg)
{
    zp_err err = { 0 };
    uint64_t id;
    struct sched_job job = { .prompt = ids, .n_prompt = n, .n_predict = n_predict,
                             .ignore_end = true, .no_reuse = true, .arg = arg };
    if (sched_submit(b->s, &job, &id, &err) != ZP_OK) stop("submit", err.message);
}

static const struct sched_event *next(struct bench *b)
{
    const struct sched_event *e;
    while (!(e = sched_next(b->s))) sem_wait(&b->news);
    if (e->kind == SCHED_FAILED || e->kind == SCHED_REFUSED) stop("job", e->err->message);
    return e;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Value below which `share` of them lie; leaves x sorted. */
static double quantile(double *x, size_t n, double share)
{
    if (n == 0) return 0;
    qsort(x, n, sizeof *x, by_size);
    return x[(size_t)((double)(n - 1) * share)];
}

/* ---- batch ----------------------------------------------------------------------------------- */

/* Both return seconds. */
static double by_scheduler(struct bench *b)
{
    double begin = os_now();
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < b->n_seq; i++) submit(b, b->ids + i, SHORT, b->n_predict, NULL);
    while (n_done < b->n_seq) n_done += next(b)->kind == SCHED_DONE;
    return os_now() - begin;
}

static double by_engine(struct bench *b)
{
    zp_err err = { 0 };
    zp_item items[MOST_SEQ];
    int32_t drawn[MOST_SEQ];
    double begin = os_now();
    for (uint32_t i = 0; i < b->n_seq; i++) {
        items[i] = (zp_item){ NULL, b->ids + i, SHORT, ZP_WANT_LAST };
        if (zp_seq_open(&items[i].seq, b->e, NULL, &err) != ZP_OK) stop("sequence", err.message);
    }
    for (uint32_t step = 0; step < b->n_predict; step++) {
        if (zp_engine_run(b->e, items, b->n_seq, b->logits, b->n_seq, NULL, &err) != ZP_OK)
            stop("run", err.message);
        for (uint32_t i = 0; i < b->n_seq; i++) {
            uint32_t n_vocab = b->m->h.n_vocab;
            drawn[i] = sample_best(b->logits + (size_t)i * n_vocab, n_vocab);
            items[i].ids = &drawn[i];
            items[i].n = 1;
        }
    }
    for (uint32_t i = 0; i < b->n_seq; i++) zp_seq_close(items[i].seq);
    return os_now() - begin;
}

/* The scheduler stands still while the engine is used without it. */
static void run_batch(struct bench *b, uint32_t n_pairs)
{
    double sched[MOST_PAIRS], bare[MOST_PAIRS], ratio[MOST_PAIRS], cpu[MOST_PAIRS];
    double tokens = (double)b->n_seq * b->n_predict;
    by_scheduler(b);
    by_engine(b);
    for (uint32_t i = 0; i < n_pairs; i++) {
        double start = os_cpu_seconds();
        sched[i] = tokens / by_scheduler(b);
        double middle = os_cpu_seconds();
        bare[i] = tokens / by_engine(b);
        ratio[i] = sched[i] / bare[i];
        cpu[i] = (middle - start) / (os_cpu_seconds() - middle);
    }
    printf("{\"n_seq\": %u, \"n_predict\": %u, \"pairs\": %u, \"scheduler_tps\": %.1f, "
           "\"engine_tps\": %.1f, \"ratio\": %.3f, \"ratio_least\": %.3f, \"ratio_most\": %.3f, "
           "\"cpu_ratio\": [%.3f, %.3f, %.3f], \"load_average\": %.2f}\n",
           b->n_seq, b->n_predict, n_pairs, quantile(sched, n_pairs, 0.5),
           quantile(bare, n_pairs, 0.5), quantile(ratio, n_pairs, 0.5),
           quantile(ratio, n_pairs, 0), quantile(ratio, n_pairs, 1), quantile(cpu, n_pairs, 0),
           quantile(cpu, n_pairs, 0.5), quantile(cpu, n_pairs, 1), os_load_average());
}

/* ---- mixed ----------------------------------------------------------------------------------- */

struct gaps {
    double *ms;
    size_t n;
};

static void add_gap(struct gaps *g, double *last, double now)
{
    if (*last != 0 && g->n < MOST_GAPS) g->ms[g->n++] = (now - *last) * 1e3;
    *last = now;
}

static void print_gaps(const char *name, struct gaps *g)
{
    double median = quantile(g->ms, g->n, 0.5), p95 = quantile(g->ms, g->n, 0.95);
    printf("\"%s_ms\": [%.2f, %.2f, %.2f], ", name, median, p95, g->n ? g->ms[g->n - 1] : 0);
}

/* Answers are long enough to be drawn all the while; what is left of them is cancelled. */
static void run_mixed(struct bench *b, uint32_t step_tokens)
{
    double last[MOST_SEQ] = { 0 }, begin = 0, end = 0;
    struct gaps before = { malloc(MOST_GAPS * sizeof(double)), 0 },
                beside = { malloc(MOST_GAPS * sizeof(double)), 0 };
    uint32_t n_done = 0;
    bool prompts = false;
    if (!before.ms || !beside.ms) stop("memory", "not enough");
    for (uint32_t i = 0; i < b->n_seq; i++) submit(b, b->ids + i, SHORT, 0, &last[i]);
    while (n_done < N_LONG) {
        const struct sched_event *e = next(b);
        bool answer = e->arg != NULL;
        if (answer && e->kind == SCHED_DONE) stop("mixed", "an answer ended: prompts too long");
        if (e->kind == SCHED_TOKEN && answer)
            add_gap(prompts ? &beside : &before, e->arg, os_now());
        if (!answer && e->kind == SCHED_DONE) n_done++, end = os_now();
        if (prompts || before.n < 40u * b->n_seq) continue;
        prompts = true;
        begin = os_now();
        for (uint32_t i = 0; i < N_LONG; i++) submit(b, b->ids + i, b->n_prompt, 1, NULL);
    }
    printf("{\"n_seq\": %u, \"n_prompt\": %u, \"step_tokens\": %u, ", b->n_seq, b->n_prompt,
           step_tokens);
    print_gaps("alone", &before);
    print_gaps("beside", &beside);
    printf("\"prompt_tps\": %.1f, \"load_average\": %.2f}\n",
           N_LONG * b->n_prompt / (end - begin), os_load_average());
    free(before.ms);
    free(beside.ms);
}

/* ---- the program ----------------------------------------------------------------------------- */

static uint32_t read_number(const char *text, uint32_t most)
{
    char *end;
    unsigned long x = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
    if (x == 0 || *end != '\0' || x > most) {
        fprintf(stderr, "schedbench: found '%s', expected a whole number of 1 to %u\n", text, most);
        exit(2);
    }
    return (uint32_t)x;
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    bool batch = argc >= 5 && argc <= 6 && strcmp(argv[2], "batch") == 0;
    bool mixed = argc == 6 && strcmp(argv[2], "mixed") == 0;
    if (!batch && !mixed) {
        fprintf(stderr, "usage: schedbench MODEL batch N_SEQ N_PREDICT [PAIRS]\n"
                        "       schedbench MODEL mixed N_SEQ N_PROMPT STEP_TOKENS\n");
        return 2;
    }
    b.n_seq = read_number(argv[3], MOST_SEQ - N_LONG);
    if (batch) {
        uint32_t n_pairs = argc > 5 ? read_number(argv[5], MOST_PAIRS) : 5;
        b.n_predict = read_number(argv[4], 100000);
        open_bench(&b, argv[1], SHORT + b.n_predict, b.n_seq, 0);
        run_batch(&b, n_pairs);
    } else {
        uint32_t step_tokens = read_number(argv[5], 65536);
        b.n_prompt = read_number(argv[4], 100000);
        open_bench(&b, argv[1], 4 * b.n_prompt + 200, b.n_seq + N_LONG, step_tokens);
        run_mixed(&b, step_tokens);
    }
    close_bench(&b);
    return 0;
}

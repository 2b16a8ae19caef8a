/* cli_lines.c: run --parallel: each line of a text is a prompt; so many are computed at a time.
 * L1 answers are shown in the order of their lines, as soon as those before them have ended.
 * L2 what was answered before Ctrl-C or an error is shown, also behind lines that were not; a
 *    document that lacks some says so. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

struct lines {
    struct generation *g;
    zp_progress progress; /* of the terminal */
    zp_job *jobs;
    struct line { const char *text; size_t size, number; int32_t *ids; } *lines; /* (n) */
    size_t n, n_shown, n_ended, n_reused;
    double seconds;
};

/* ---- reading ----------------------------------------------------------------------------- */

static void add_line(struct lines *l, const char *text, size_t size, size_t number)
{
    if (size > 0 && text[size - 1] == '\r')
        size--;
    size_t blanks = 0;
    while (blanks < size && (text[blanks] == ' ' || text[blanks] == '\t'))
        blanks++;
    if (blanks == size)
        return;
    l->lines = cli_resize(l->lines, (l->n + 1) * sizeof *l->lines);
    l->lines[l->n++] = (struct line){ .text = text, .size = size, .number = number };
}

/* Puts "line N: " before the failure of a line. */
static zp_status name_line(struct cli *c, zp_status st, size_t number)
{
    struct text named = { 0 };
    if (st == ZP_OK)
        return st;
    text_printf(&named, "line %zu: %s", number, c->err.message);
    size_t most = sizeof c->err.message - 1, n = named.size < most ? named.size : most;
    memcpy(c->err.message, named.data, n);
    c->err.message[n] = '\0';
    text_free(&named);
    return st;
}

/* The library counts jobs from 0; who reads the message counts lines. */
static void name_line_of_job(const struct lines *l, zp_status st)
{
    char *message = l->g->c->err.message;
    size_t job = 0;
    int skip = 0;
    if (sscanf(message, "job %zu: %n", &job, &skip) != 1 || skip == 0 || job >= l->n)
        return;
    memmove(message, message + skip, strlen(message + skip) + 1);
    name_line(l->g->c, st, l->lines[job].number);
}

static zp_status read_lines(struct lines *l, const struct text *in)
{
    const char *end = in->data + in->size;
    size_t number = 1;
    for (const char *p = in->data; p < end; number++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        add_line(l, p, (size_t)(stop - p), number);
        p = stop + 1;
    }
    if (l->n == 0)
        return cli_fail(l->g->c, ZP_BAD_INPUT, "the input has no line but empty and blank ones");
    l->jobs = cli_alloc(l->n * sizeof *l->jobs);
    for (size_t i = 0; i < l->n; i++) {
        struct line *line = &l->lines[i];
        zp_job *job = &l->jobs[i];
        zp_status st =
            generation_prompt(l->g, line->text, line->size, &line->ids, &job->n_prompt);
        CLI_TRY(name_line(l->g->c, st, line->number));
        job->prompt = line->ids;
        job->options = &l->g->options;
    }
    return ZP_OK;
}

/* Opens the engine: room for the longest line and its answer, as many sequences as lines at
 * most. */
static zp_status start(struct lines *l)
{
    struct generation *g = l->g;
    size_t longest = 0, at = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->jobs[i].n_prompt > longest)
            longest = l->jobs[i].n_prompt, at = i;
    }
    if (l->n < g->engine_options.n_seq)
        g->engine_options.n_seq = (uint32_t)l->n;
    CLI_TRY(generation_start(g, longest));
    if (longest >= g->engine_options.n_ctx)
        return cli_fail(g->c, ZP_BAD_INPUT,
                        "line %zu: its prompt of %zu tokens does not fit into the context of %u "
                        "positions with room for an answer; raise --ctx-size",
                        l->lines[at].number, longest, g->engine_options.n_ctx);
    return ZP_OK;
}

/* ---- showing ----------------------------------------------------------------------------- */

static bool has_ended(const struct lines *l, size_t i)
{
    return l->jobs[i].result.reason != NULL;
}

static void show_answer(const struct lines *l, size_t i)
{
    const struct line *line = &l->lines[i];
    progress_clear();
    printf("> %.*s\n%s\n\n", (int)line->size, line->text, l->jobs[i].result.text);
}

static void show_ended(struct lines *l)
{
    while (l->n_shown < l->n && has_ended(l, l->n_shown))
        show_answer(l, l->n_shown++);
    fflush(stdout);
}

/* Nothing more will end. */
static void show_rest(struct lines *l)
{
    for (; l->n_shown < l->n; l->n_shown++) {
        if (has_ended(l, l->n_shown))
            show_answer(l, l->n_shown);
    }
    fflush(stdout);
}

static bool on_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct lines *l = arg;
    if (l->g->stream)
        show_ended(l);
    bool go_on = l->progress.fn == NULL || l->progress.fn(l->progress.arg, what, done, total);
    return go_on && !ferror(stdout);
}

static json_t *answers_json(const struct lines *l)
{
    json_t *answers = json_array();
    for (size_t i = 0; i < l->n; i++) {
        if (!has_ended(l, i))
            continue;
        json_t *answer = generation_answer(&l->jobs[i].result);
        json_object_set_new(answer, "line", json_integer((json_int_t)l->lines[i].number));
        json_array_append_new(answers, answer);
    }
    return answers;
}

static void count(struct lines *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (!has_ended(l, i))
            continue;
        l->n_ended++;
        l->g->n_prompt += l->jobs[i].result.n_prompt;
        l->n_reused += l->jobs[i].result.n_reused;
        l->g->n_generated += l->jobs[i].result.n_ids;
    }
}

static double rate(const struct lines *l)
{
    return l->seconds > 0 ? (double)l->g->n_generated / l->seconds : 0;
}

static json_t *result_json(const struct lines *l, zp_status st)
{
    const struct generation *g = l->g;
    json_t *timings =
        json_pack("{s:f, s:I, s:I, s:I, s:f, s:f}", "load_seconds", g->load_seconds,
                  "prompt_tokens", (json_int_t)g->n_prompt, "reused_tokens",
                  (json_int_t)l->n_reused, "answer_tokens", (json_int_t)g->n_generated, "seconds",
                  l->seconds, "answer_tps", rate(l));
    json_t *doc = json_pack("{s:o, s:o}", "answers", answers_json(l), "timings", timings);
    if (g->options.sampler.temperature > 0)
        json_object_set_new(doc, "seed", json_integer((json_int_t)g->options.sampler.seed));
    if (st == ZP_INTERRUPTED)
        json_object_set_new(doc, "interrupted", json_true());
    else if (st != ZP_OK)
        json_object_set_new(doc, "error", cli_error_json(g->c, st));
    return doc;
}

static void print_timings(const struct lines *l)
{
    const struct generation *g = l->g;
    size_t n_tokens = g->n_prompt + l->n_reused;
    fprintf(stderr, "zerope: %zu", l->n_ended);
    if (l->n_ended < l->n)
        fprintf(stderr, " of %zu", l->n);
    fprintf(stderr,
            " prompt%s of %zu token%s (%zu of them reused), %zu token%s of answers, at most %u at "
            "a time: %.2f s, %.1f t/s; load %.2f s",
            cli_plural(l->n), n_tokens, cli_plural(n_tokens), l->n_reused, g->n_generated,
            cli_plural(g->n_generated), g->engine_options.n_seq, l->seconds, rate(l),
            g->load_seconds);
    if (g->options.sampler.temperature > 0)
        fprintf(stderr, "; seed %llu", (unsigned long long)g->options.sampler.seed);
    fprintf(stderr, "\n");
}

static zp_status show_all(struct lines *l, zp_status st)
{
    progress_clear();
    count(l);
    if (l->g->c->json)
        return cli_emit(l->g->c, result_json(l, st));
    show_rest(l);
    if (!l->g->c->quiet)
        print_timings(l);
    return ZP_OK;
}

/* ---- the call ---------------------------------------------------------------------------- */

static zp_status run(struct lines *l, const struct text *in)
{
    struct generation *g = l->g;
    CLI_TRY(read_lines(l, in));
    CLI_TRY(start(l));
    l->progress = cli_progress(g->c);
    g->options.on_text = NULL;
    zp_progress progress = { on_progress, l };
    double before = cli_now();
    zp_status st =
        zp_generate_many(g->engine, &g->seq_options, l->jobs, l->n, &progress, &g->c->err);
    l->seconds = cli_now() - before;
    name_line_of_job(l, st);
    if (st == ZP_INTERRUPTED && !interrupt_pending()) { /* by a failed write: cli_flush tells why */
        g->c->err = (zp_err){ 0 };
        st = ZP_OK;
    }
    zp_status shown = show_all(l, st);
    return st != ZP_OK ? st : shown;
}

zp_status generation_run_lines(struct generation *g, const struct text *in)
{
    struct lines l = { .g = g };
    zp_status st = run(&l, in);
    for (size_t i = 0; i < l.n; i++) {
        zp_free(l.lines[i].ids);
        if (l.jobs != NULL)
            generation_free_result(&l.jobs[i].result);
    }
    free(l.lines);
    free(l.jobs);
    return st;
}

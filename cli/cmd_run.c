/* cmd_run.c: run: text from a prompt, or from each line of many. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- prompt cache ------------------------------------------------------------------------ */

static zp_status check_mode(const struct generation *g, const zp_seq_info *saved, const char *path)
{
    static const char *const modes[] = { "full", "zero", "half" };
    zp_seq_info own;
    zp_seq_describe(g->seq, &own);
    if (own.mode == saved->mode)
        return ZP_OK;
    return cli_fail(g->c, ZP_BAD_INPUT,
                    "%s: was saved in position mode %s, this run has %s; give --mode %s or another "
                    "--prompt-cache",
                    path, modes[saved->mode], modes[own.mode], modes[saved->mode]);
}

/* The *reused tokens that the saved sequence shares with the prompt but its last become the run's
 * sequence. Tokens that were computed behind others are left out. */
static zp_status restore_prompt(struct generation *g, const char *path, const int32_t *ids,
                                size_t n, size_t *reused)
{
    zp_seq *saved = NULL;
    zp_seq_info info;
    if (access(path, F_OK) != 0) {
        if (cli_flag(g->c, "prompt-cache-ro") && !g->c->quiet)
            fprintf(stderr,
                    "zerope: warning: prompt cache %s: %s: all %zu prompt tokens are computed\n",
                    path, strerror(errno), n);
        return ZP_OK;
    }
    CLI_TRY(zp_seq_restore(&saved, g->engine, path, ids, n - 1, &g->c->err));
    zp_seq_describe(saved, &info);
    zp_status st = check_mode(g, &info, path);
    if (st == ZP_OK && zp_seq_truncate(saved, info.n_exact, NULL) == ZP_OK) {
        *reused = info.n_exact;
        zp_seq *fresh = g->seq;
        g->seq = saved;
        saved = fresh;
    }
    zp_seq_close(saved);
    if (st == ZP_OK && !g->c->quiet)
        fprintf(stderr, "zerope: prompt cache %s: %zu of %zu prompt tokens reused\n", path,
                *reused, n);
    return st;
}

struct all_but_last {
    zp_progress of_all;
    uint64_t done, total;
};

/* The last token is computed with the answer, but belongs to the prompt. */
static bool on_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct all_but_last *p = arg;
    p->done = done;
    p->total = total + 1;
    return p->of_all.fn(p->of_all.arg, what, p->done, p->total);
}

static zp_status compute(struct generation *g, const zp_item *item)
{
    struct all_but_last counts = { .of_all = cli_progress(g->c) };
    zp_progress progress = { on_progress, &counts };
    zp_status st = zp_engine_run(g->engine, item, 1, NULL, 0, &progress, &g->c->err);
    progress_clear();
    if (st != ZP_INTERRUPTED)
        return st;
    g->c->err = (zp_err){ 0 };
    return cli_fail(g->c, st, "interrupted after %llu of %llu tokens",
                    (unsigned long long)counts.done, (unsigned long long)counts.total);
}

/* Computes the prompt but its last token, or takes it from the file, which then holds it. */
static zp_status use_prompt_cache(struct generation *g, const int32_t *ids, size_t n,
                                  size_t *reused)
{
    const char *path = cli_text(g->c, "prompt-cache");
    CLI_TRY(restore_prompt(g, path, ids, n, reused));
    zp_item item = { g->seq, ids + *reused, n - 1 - *reused, ZP_WANT_NONE };
    bool saves = item.n > 0 && !cli_flag(g->c, "prompt-cache-ro");
    if (saves) /* a full disk is known before the work */
        CLI_TRY(zp_seq_check_save(g->seq, (uint32_t)n - 1, path, &g->c->err));
    double before = cli_now();
    CLI_TRY(compute(g, &item));
    g->prefill_seconds += cli_now() - before;
    g->n_prompt += item.n;
    g->n_reused += *reused;
    g->options.history = ids;
    g->options.n_history = n - 1;
    return saves ? zp_seq_save(g->seq, path, &g->c->err) : ZP_OK;
}

/* ---- the command ------------------------------------------------------------------------- */

static json_t *result_json(const struct generation *g, const zp_generated *out, bool interrupted)
{
    json_t *doc = generation_answer(out);
    if (interrupted)
        json_object_set_new(doc, "reason", json_string("interrupted"));
    json_object_set_new(doc, "timings", generation_timings(g));
    if (g->options.sampler.temperature > 0)
        json_object_set_new(doc, "seed", json_integer((json_int_t)g->options.sampler.seed));
    return doc;
}

static zp_status generate(struct generation *g, const struct text *in)
{
    int32_t *ids = NULL;
    size_t n = 0, reused = 0;
    zp_generated out = { 0 };
    zp_status st = generation_prompt(g, in->data, in->size, &ids, &n);
    if (st == ZP_OK)
        st = generation_start(g, n);
    /* A prompt that leaves no room for an answer is refused before it is computed. */
    bool caches = cli_text(g->c, "prompt-cache") != NULL && n < g->engine_options.n_ctx;
    if (st == ZP_OK && caches)
        st = use_prompt_cache(g, ids, n, &reused);
    size_t held = st == ZP_OK && caches ? n - 1 : 0;
    if (st == ZP_OK)
        st = generation_run(g, ids + held, n - held, &out);
    if (held > 0)
        out.n_reused = reused, out.n_prompt = n - reused;
    zp_free(ids);
    bool finished = st == ZP_OK || (st == ZP_INTERRUPTED && out.reason != NULL);
    if (finished && g->c->json)
        cli_emit(g->c, result_json(g, &out, st == ZP_INTERRUPTED));
    if (finished && !g->c->json && !g->ends_with_newline)
        printf("\n");
    fflush(stdout);
    if (finished)
        generation_print_timings(g, st == ZP_OK ? out.reason : "interrupted");
    generation_free_result(&out);
    return st;
}

zp_status cmd_run(struct cli *c)
{
    struct text in = { 0 };
    struct generation g;
    bool is_prompt;
    if (cli_text(c, "system") != NULL && !cli_flag(c, "chat"))
        return cli_usage(c, "--system belongs to --chat");
    if (cli_flag(c, "prompt-cache-ro") && cli_text(c, "prompt-cache") == NULL)
        return cli_usage(c, "--prompt-cache-ro belongs to --prompt-cache FILE");
    if (cli_flag(c, "ignore-eos") && (cli_text(c, "json-schema") || cli_text(c, "grammar-file")))
        return cli_usage(c, "--ignore-eos goes beyond the end of a text: leave it out beside "
                            "--json-schema and --grammar-file");
    if (cli_text(c, "prompt-cache") != NULL && cli_given(c, "parallel"))
        return cli_usage(c, "--prompt-cache holds one prompt: leave --parallel out");
    if (!cli_flag(c, "prompt-cache-ro"))
        CLI_TRY(cli_check_outputs(c, NULL));
    CLI_TRY(cli_read_input(c, &in, &is_prompt));
    zp_status st = generation_open(&g, c);
    if (st == ZP_OK) {
        g.options.ignore_end = cli_flag(c, "ignore-eos");
        st = cli_given(c, "parallel") ? generation_run_lines(&g, &in) : generate(&g, &in);
        generation_close(&g);
    }
    text_free(&in);
    return st;
}

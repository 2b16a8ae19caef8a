/* cli_generate.c: what run and chat share: an open sequence, streamed text, timings.
 * G1 text is flushed piece by piece.  G2 a failed write or Ctrl-C ends the generation, and what
 * came so far is kept. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool on_text(void *arg, const char *text, size_t size)
{
    struct generation *g = arg;
    if (g->stream && size > 0) {
        progress_clear();
        fwrite(text, 1, size, stdout);
        fflush(stdout);
        g->ends_with_newline = text[size - 1] == '\n';
    }
    return !interrupt_pending() && !ferror(stdout);
}

static zp_status fill(struct generation *g)
{
    struct cli *c = g->c;
    zp_engine_options engine;
    zp_seq_options seq = { 0 };
    const struct cli_value *stop = cli_value(c, "stop");
    int64_t n = cli_int(c, "n-predict");
    if (n == 0)
        return cli_usage(c, "--n-predict 0 generates nothing; give at least 1, or -1 for no limit");
    CLI_TRY(cli_engine_options(c, &engine));
    CLI_TRY(cli_mode(c, &seq.mode));
    CLI_TRY(cli_sampler_options(c, &g->options.sampler));
    g->options.n_predict = n > 0 ? (uint32_t)n : 0;
    g->options.stop = (const char *const *)stop->texts;
    g->options.n_stop = stop->n;
    g->options.on_text = on_text;
    g->options.arg = g;
    CLI_TRY(cli_open_model(c, &g->model));
    CLI_TRY(zp_engine_open(&g->engine, g->model, &engine, &c->err));
    CLI_TRY(zp_seq_open(&g->seq, g->engine, &seq, &c->err));
    return ZP_OK;
}

zp_status generation_open(struct generation *g, struct cli *c)
{
    *g = (struct generation){ .c = c, .stream = !c->json, .ends_with_newline = true };
    double before = cli_now();
    zp_status st = fill(g);
    g->load_seconds = cli_now() - before;
    if (st != ZP_OK)
        generation_close(g);
    return st;
}

void generation_close(struct generation *g)
{
    zp_seq_close(g->seq);
    zp_engine_close(g->engine);
    zp_model_close(g->model);
    g->seq = NULL;
    g->engine = NULL;
    g->model = NULL;
}

zp_status generation_run(struct generation *g, const int32_t *prompt, size_t n, zp_generated *out)
{
    *out = (zp_generated){ 0 };
    g->options.progress = cli_progress(g->c);
    zp_status st = zp_generate(g->engine, g->seq, prompt, n, &g->options, out, &g->c->err);
    progress_clear();
    if (st != ZP_OK)
        return st;
    g->n_prompt += out->n_prompt;
    g->n_generated += out->n_ids;
    g->prefill_seconds += out->prefill_seconds;
    g->decode_seconds += out->decode_seconds;
    if (interrupt_pending() && strcmp(out->reason, "stopped") == 0)
        return cli_fail(g->c, ZP_INTERRUPTED, "interrupted after %zu tokens", out->n_ids);
    return ZP_OK;
}

void generation_free_result(zp_generated *out)
{
    zp_free(out->ids);
    zp_free(out->text);
    *out = (zp_generated){ 0 };
}

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

json_t *generation_timings(const struct generation *g)
{
    return json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "load_seconds", g->load_seconds,
                     "prefill_tokens", (json_int_t)g->n_prompt, "reused_tokens",
                     (json_int_t)g->n_reused, "prefill_seconds", g->prefill_seconds, "prefill_tps",
                     rate(g->n_prompt, g->prefill_seconds), "decode_tokens",
                     (json_int_t)g->n_generated, "decode_seconds", g->decode_seconds, "decode_tps",
                     rate(g->n_generated, g->decode_seconds));
}

void generation_print_timings(const struct generation *g, const char *reason)
{
    if (g->c->quiet)
        return;
    fprintf(stderr, "zerope: prefill %zu tokens, %.1f t/s", g->n_prompt,
            rate(g->n_prompt, g->prefill_seconds));
    if (g->n_reused > 0)
        fprintf(stderr, " (%zu reused)", g->n_reused);
    fprintf(stderr, "; decode %zu tokens, %.1f t/s; load %.2f s", g->n_generated,
            rate(g->n_generated, g->decode_seconds), g->load_seconds);
    if (g->options.sampler.temperature > 0)
        fprintf(stderr, "; seed %llu", (unsigned long long)g->options.sampler.seed);
    fprintf(stderr, reason != NULL ? "; ended by: %s\n" : "\n", reason);
}

zp_status generation_render(struct generation *g, const json_t *messages, int32_t **ids, size_t *n)
{
    zp_model_info info;
    zp_model_describe(g->model, &info);
    if (!info.has_template && cli_text(g->c, "chat-template") == NULL)
        return cli_fail(g->c, ZP_BAD_INPUT,
                        "the model has no chat template: --chat-template FILE gives one, 'zerope "
                        "run' needs none");
    json_t *input = json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
    char *text = input != NULL ? json_dumps(input, JSON_COMPACT) : NULL;
    json_decref(input);
    if (text == NULL)
        return cli_fail(g->c, ZP_RUN, "cannot build the JSON of the messages");
    zp_status st = zp_template_render(g->model, text, NULL, NULL, ids, n, &g->c->err);
    free(text);
    return st;
}

json_t *generation_message(const char *role, const char *text, size_t size)
{
    return json_pack("{s:s, s:o}", "role", role, "content", cli_json_text(text, size));
}

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
        cli_write(text, size);
        g->ends_with_newline = text[size - 1] == '\n';
    }
    return !interrupt_pending() && !ferror(stdout);
}

#define MAX_GRAMMAR ((size_t)1 << 20)

zp_status cli_read_grammar(struct cli *c, struct text *out)
{
    const char *file = cli_text(c, "grammar-file"), *schema = cli_text(c, "json-schema");
    if (file == NULL && schema[strspn(schema, " \t\r\n")] == '{') {
        text_append(out, schema, strlen(schema));
        return ZP_OK;
    }
    return cli_read_file(c, file != NULL ? file : schema, MAX_GRAMMAR, out);
}

/* What --json-schema or --grammar-file ask for. */
static zp_status open_grammar(struct generation *g)
{
    struct cli *c = g->c;
    bool by_file = cli_text(c, "grammar-file") != NULL;
    struct text text = { 0 };
    if (!by_file && cli_text(c, "json-schema") == NULL)
        return ZP_OK;
    zp_status st = cli_read_grammar(c, &text);
    if (st == ZP_OK && by_file)
        st = zp_grammar_open_gbnf(&g->grammar, g->model, text.data, text.size, &c->err);
    else if (st == ZP_OK)
        st = zp_grammar_open_schema(&g->grammar, g->model, text.data, text.size, &c->err);
    g->options.sampler.grammar = g->grammar;
    text_free(&text);
    return st;
}

zp_status cli_check_generation(struct cli *c)
{
    const struct cli_value *stop = cli_value(c, "stop");
    _Static_assert(ZP_STOPS_MAX == 64, "the help of --stop says so");
    if (cli_int(c, "n-predict") == 0)
        return cli_usage(c, "--n-predict 0 generates nothing; give at least 1, or -1 for no limit");
    if (stop->n > ZP_STOPS_MAX)
        return cli_usage(c, "--stop is given %zu times; at most %d", stop->n, ZP_STOPS_MAX);
    for (size_t i = 0; i < stop->n; i++) {
        if (stop->texts[i][0] == '\0')
            return cli_usage(c, "--stop: an empty text would end every answer at once");
    }
    if (cli_text(c, "json-schema") != NULL && cli_text(c, "grammar-file") != NULL)
        return cli_usage(c, "--json-schema and --grammar-file exclude each other");
    if (cli_real(c, "top-p") == 0)
        return cli_usage(c, "--top-p 0 would leave no token; 1 turns it off");
    return ZP_OK;
}

static zp_status fill(struct generation *g)
{
    struct cli *c = g->c;
    const struct cli_value *stop = cli_value(c, "stop");
    int64_t n = cli_int(c, "n-predict");
    CLI_TRY(cli_check_generation(c));
    CLI_TRY(cli_engine_options(c, &g->engine_options));
    CLI_TRY(cli_mode(c, &g->seq_options.mode));
    CLI_TRY(cli_sampler_options(c, &g->options.sampler));
    g->options.n_predict = n > 0 ? (uint32_t)n : 0;
    g->options.n_draft = cli_u32(c, "draft");
    g->options.stop = (const char *const *)stop->texts;
    g->options.n_stop = stop->n;
    g->options.on_text = on_text;
    g->options.arg = g;
    CLI_TRY(cli_open_model(c, &g->model));
    return open_grammar(g);
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

/* The length to speak of: the context asked for, or by default what the sequence may reach. */
static uint32_t reach(const struct generation *g, size_t n_prompt)
{
    size_t most = n_prompt + g->options.n_predict;
    bool bounded = !cli_given(g->c, "ctx-size") && n_prompt > 0 && g->options.n_predict > 0 &&
                   most < g->engine_options.n_ctx;
    return bounded ? (uint32_t)most : g->engine_options.n_ctx;
}

zp_status generation_start(struct generation *g, size_t n_prompt)
{
    double before = cli_now();
    if (g->engine_options.n_ctx == 0)
        g->engine_options.n_ctx = cli_default_context(g->model, n_prompt, g->options.n_predict);
    cli_note_length(g->c, g->model, reach(g, n_prompt));
    CLI_TRY(zp_engine_open(&g->engine, g->model, &g->engine_options, &g->c->err));
    CLI_TRY(zp_seq_open(&g->seq, g->engine, &g->seq_options, &g->c->err));
    g->load_seconds += cli_now() - before;
    return ZP_OK;
}

void generation_close(struct generation *g)
{
    zp_seq_close(g->seq);
    zp_engine_close(g->engine);
    zp_grammar_close(g->grammar);
    zp_model_close(g->model);
    g->seq = NULL;
    g->engine = NULL;
    g->grammar = NULL;
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
    g->n_drafted += out->n_drafted;
    g->n_accepted += out->n_accepted;
    g->n_steps += zp_seq_length(g->seq) - out->n_reused - out->n_prompt;
    g->prefill_seconds += out->prefill_seconds;
    g->decode_seconds += out->decode_seconds;
    if (interrupt_pending() && strcmp(out->reason, "stopped") == 0)
        return cli_fail(g->c, ZP_INTERRUPTED, "interrupted after %zu token%s", out->n_ids,
                        cli_plural(out->n_ids));
    return ZP_OK;
}

void generation_free_result(zp_generated *out)
{
    zp_free(out->ids);
    zp_free(out->text);
    *out = (zp_generated){ 0 };
}

json_t *generation_answer(const zp_generated *out)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < out->n_ids; i++)
        json_array_append_new(ids, json_integer(out->ids[i]));
    const char *text = out->text != NULL ? out->text : "";
    return json_pack("{s:o, s:o, s:s, s:I, s:I}", "text", cli_json_text(text, strlen(text)), "ids",
                     ids, "reason", out->reason, "n_prompt", (json_int_t)out->n_prompt, "n_reused",
                     (json_int_t)out->n_reused);
}

static double rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

json_t *generation_timings(const struct generation *g)
{
    json_t *doc = json_object();
    json_object_set_new(doc, "load_seconds", json_real(g->load_seconds));
    json_object_set_new(doc, "prefill_tokens", json_integer((json_int_t)g->n_prompt));
    json_object_set_new(doc, "reused_tokens", json_integer((json_int_t)g->n_reused));
    json_object_set_new(doc, "prefill_seconds", json_real(g->prefill_seconds));
    json_object_set_new(doc, "prefill_tps", json_real(rate(g->n_prompt, g->prefill_seconds)));
    json_object_set_new(doc, "decode_tokens", json_integer((json_int_t)g->n_generated));
    json_object_set_new(doc, "decode_steps", json_integer((json_int_t)g->n_steps));
    json_object_set_new(doc, "decode_seconds", json_real(g->decode_seconds));
    json_object_set_new(doc, "decode_tps", json_real(rate(g->n_steps, g->decode_seconds)));
    json_object_set_new(doc, "drafted_tokens", json_integer((json_int_t)g->n_drafted));
    json_object_set_new(doc, "accepted_tokens", json_integer((json_int_t)g->n_accepted));
    zp_engine_stats stats;
    zp_engine_describe(g->engine, &stats);
    double all = (double)(stats.position_done + stats.position_skipped);
    json_object_set_new(doc, "position_done", json_integer((json_int_t)stats.position_done));
    json_object_set_new(doc, "position_skipped", json_integer((json_int_t)stats.position_skipped));
    json_object_set_new(doc, "position_skip_rate",
                        json_real(all > 0 ? (double)stats.position_skipped / all : 1));
    return doc;
}

void generation_print_timings(const struct generation *g, const char *reason)
{
    if (g->c->quiet)
        return;
    fprintf(stderr, "zerope: prefill %zu token%s, %.1f t/s", g->n_prompt, cli_plural(g->n_prompt),
            rate(g->n_prompt, g->prefill_seconds));
    if (g->n_reused > 0)
        fprintf(stderr, " (%zu reused)", g->n_reused);
    fprintf(stderr, "; decode %zu token%s, %.1f t/s; load %.2f s", g->n_generated,
            cli_plural(g->n_generated), rate(g->n_steps, g->decode_seconds), g->load_seconds);
    if (g->options.sampler.temperature > 0)
        fprintf(stderr, "; seed %llu", (unsigned long long)g->options.sampler.seed);
    fprintf(stderr, reason != NULL ? "; ended by: %s\n" : "\n", reason);
}

zp_status generation_check_template(struct generation *g)
{
    zp_model_info info;
    zp_model_describe(g->model, &info);
    if (!info.has_template && cli_text(g->c, "chat-template") == NULL)
        return cli_fail(
            g->c, ZP_BAD_INPUT,
            "%s: the model has no chat template: give one with --chat-template FILE, or "
            "%s",
            cli_text(g->c, "model"),
            cli_has(g->c, "chat") ? "run it without --chat" : "use 'zerope run', which needs none");
    return ZP_OK;
}

zp_status generation_render(struct generation *g, const json_t *messages, int32_t **ids, size_t *n)
{
    CLI_TRY(generation_check_template(g));
    json_t *input = json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
    char *text = input != NULL ? json_dumps(input, JSON_COMPACT) : NULL;
    json_decref(input);
    if (text == NULL)
        return cli_fail(g->c, ZP_RUN, "cannot build the JSON of the messages");
    zp_status st = zp_template_render(g->model, text, NULL, NULL, ids, n, &g->c->err);
    free(text);
    return st;
}

static zp_status prompt_ids(struct generation *g, const char *text, size_t size, int32_t **ids,
                            size_t *n)
{
    struct cli *c = g->c;
    if (!cli_flag(c, "chat")) {
        int flags = ZP_TOKENS_BOS | (cli_flag(c, "special") ? ZP_TOKENS_SPECIAL : 0);
        return zp_tokenize(g->model, text, size, flags, ids, n, &c->err);
    }
    /* A message is a JSON string, where bad bytes would be replaced: tokenising refuses them first.
     */
    CLI_TRY(zp_tokenize(g->model, text, size, 0, ids, n, &c->err));
    zp_free(*ids);
    *ids = NULL;
    json_t *messages = json_array();
    const char *system = cli_text(c, "system");
    if (system != NULL)
        json_array_append_new(messages, cli_message("system", system, strlen(system)));
    json_array_append_new(messages, cli_message("user", text, size));
    zp_status st = generation_render(g, messages, ids, n);
    json_decref(messages);
    return st;
}

zp_status generation_prompt(struct generation *g, const char *text, size_t size, int32_t **ids,
                            size_t *n)
{
    CLI_TRY(prompt_ids(g, text, size, ids, n));
    if (*n == 0)
        return cli_fail(
            g->c, ZP_BAD_INPUT,
            "the prompt is empty, and the model begins with no BOS token: give some text");
    return ZP_OK;
}

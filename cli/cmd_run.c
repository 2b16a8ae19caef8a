/* cmd_run.c: run: text from a prompt. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Ids of the prompt: as it stands, or in the chat template. *ids is released with zp_free. */
static zp_status prompt_ids(struct generation *g, const struct text *in, int32_t **ids, size_t *n)
{
    struct cli *c = g->c;
    if (!cli_flag(c, "chat")) {
        int flags = ZP_TOKENS_BOS | (cli_flag(c, "special") ? ZP_TOKENS_SPECIAL : 0);
        return zp_tokenize(g->model, in->data, in->size, flags, ids, n, &c->err);
    }
    /* A message is a JSON string, where bad bytes would be replaced: tokenising refuses them first.
     */
    CLI_TRY(zp_tokenize(g->model, in->data, in->size, 0, ids, n, &c->err));
    zp_free(*ids);
    *ids = NULL;
    json_t *messages = json_array();
    const char *system = cli_text(c, "system");
    if (system != NULL)
        json_array_append_new(messages, generation_message("system", system, strlen(system)));
    json_array_append_new(messages, generation_message("user", in->data, in->size));
    zp_status st = generation_render(g, messages, ids, n);
    json_decref(messages);
    return st;
}

static json_t *result_json(const struct generation *g, const zp_generated *out, bool interrupted)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < out->n_ids; i++)
        json_array_append_new(ids, json_integer(out->ids[i]));
    const char *text = out->text != NULL ? out->text : "";
    json_t *doc = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:o}", "text", cli_json_text(text, strlen(text)), "ids", ids,
        "reason", interrupted ? "interrupted" : out->reason, "n_prompt", (json_int_t)out->n_prompt,
        "n_reused", (json_int_t)out->n_reused, "timings", generation_timings(g));
    if (g->options.sampler.temperature > 0)
        json_object_set_new(doc, "seed", json_integer((json_int_t)g->options.sampler.seed));
    return doc;
}

static zp_status generate(struct generation *g, const struct text *in)
{
    int32_t *ids = NULL;
    size_t n = 0;
    zp_generated out = { 0 };
    zp_status st = prompt_ids(g, in, &ids, &n);
    if (st == ZP_OK && n == 0)
        st =
            cli_fail(g->c, ZP_BAD_INPUT,
                     "the prompt is empty, and the model begins with no BOS token: give some text");
    if (st == ZP_OK)
        st = generation_start(g, n);
    if (st == ZP_OK)
        st = generation_run(g, ids, n, &out);
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
    CLI_TRY(cli_read_input(c, &in, &is_prompt));
    zp_status st = generation_open(&g, c);
    if (st == ZP_OK) {
        g.options.ignore_end = cli_flag(c, "ignore-eos");
        st = generate(&g, &in);
        generation_close(&g);
    }
    text_free(&in);
    return st;
}

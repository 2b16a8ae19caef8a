/* cmd_run.c: run: text from a prompt, or from each line of many. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static json_t *result_json(const struct generation *g, const zp_generated *out, bool interrupted)
{
    json_t *doc = generation_answer(out);
    if (interrupted)
        json_object_set_new(doc, "reason", json_string("interrupted"));
    json_object_set_new(doc, "n_reused", json_integer((json_int_t)out->n_reused));
    json_object_set_new(doc, "timings", generation_timings(g));
    if (g->options.sampler.temperature > 0)
        json_object_set_new(doc, "seed", json_integer((json_int_t)g->options.sampler.seed));
    return doc;
}

static zp_status generate(struct generation *g, const struct text *in)
{
    int32_t *ids = NULL;
    size_t n = 0;
    zp_generated out = { 0 };
    zp_status st = generation_prompt(g, in->data, in->size, &ids, &n);
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
        st = cli_given(c, "parallel") ? generation_run_lines(&g, &in) : generate(&g, &in);
        generation_close(&g);
    }
    text_free(&in);
    return st;
}

/* cmd_eval.c: logits and ppl: what a model computes, as numbers. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* The ids of --ids, or of the text with BOS where wanted. *ids is released with free(). */
static zp_status read_ids(struct cli *c, const zp_model *m, int32_t **ids, size_t *n)
{
    if (cli_text(c, "ids") != NULL) {
        if (cli_text(c, "prompt") != NULL || cli_text(c, "file") != NULL)
            return cli_usage(c, "the input is given twice: with --ids and as a text");
        return cli_parse_ids(c, cli_text(c, "ids"), ids, n);
    }
    struct text in = { 0 };
    bool is_prompt;
    int32_t *found = NULL;
    int flags = (cli_flag(c, "special") ? ZP_TOKENS_SPECIAL : 0) |
                (cli_flag(c, "no-bos") ? 0 : ZP_TOKENS_BOS);
    CLI_TRY(cli_read_input(c, &in, &is_prompt));
    zp_status st = zp_tokenize(m, in.data, in.size, flags, &found, n, &c->err);
    text_free(&in);
    if (st == ZP_OK) {
        *ids = cli_alloc((*n + 1) * sizeof **ids);
        if (*n > 0)
            memcpy(*ids, found, *n * sizeof **ids);
    }
    zp_free(found);
    return st;
}

static zp_status run_logits(struct cli *c, const zp_model *m, const int32_t *ids, size_t n,
                            char **json)
{
    zp_engine_options options;
    zp_engine *e = NULL;
    int64_t more = cli_int(c, "n-predict");
    if (more < 0)
        return cli_usage(c, "--n-predict: the greedy continuation needs a length >= 0");
    if (n == 0)
        return cli_fail(
            c, ZP_BAD_INPUT,
            "the prompt is empty, and the model begins with no BOS token: give some text");
    CLI_TRY(cli_engine_options(c, &options));
    if (options.n_ctx == 0)
        options.n_ctx = (uint32_t)(n + (size_t)more);
    cli_note_length(c, m, options.n_ctx);
    CLI_TRY(zp_engine_open(&e, m, &options, &c->err));
    zp_logits_options want = { .top = cli_u32(c, "top"), .n_predict = (uint32_t)more };
    zp_status st = zp_logits_json(e, ids, n, &want, json, &c->err);
    zp_engine_close(e);
    return st;
}

zp_status cmd_logits(struct cli *c)
{
    zp_model *m = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    char *json = NULL;
    CLI_TRY(cli_open_model(c, &m));
    zp_status st = read_ids(c, m, &ids, &n);
    if (st == ZP_OK)
        st = run_logits(c, m, ids, n, &json);
    free(ids);
    zp_model_close(m);
    return st == ZP_OK ? cli_show(c, json) : st;
}

zp_status cmd_ppl(struct cli *c)
{
    zp_model *m = NULL, *base = NULL;
    char *json = NULL;
    zp_ppl_options options = {
        .n_ctx = cli_u32(c, "ctx-size"),
        .max_windows = cli_u32(c, "windows"),
        .contiguous = cli_flag(c, "contiguous"),
    };
    CLI_TRY(cli_mode(c, &options.mode));
    CLI_TRY(cli_engine_options(c, &options.engine));
    options.base_engine = options.engine;
    CLI_TRY(cli_open_model(c, &m));
    zp_status st = ZP_OK;
    if (cli_text(c, "base") != NULL)
        st = cli_open_model_at(c, cli_text(c, "base"), &base);
    if (st == ZP_OK)
        cli_note_length(c, m, options.n_ctx);
    options.progress = cli_progress(c);
    if (st == ZP_OK)
        st = zp_ppl_json(m, base, cli_text(c, "file"), &options, &json, &c->err);
    zp_model_close(base);
    zp_model_close(m);
    progress_clear();
    return st == ZP_OK ? cli_show(c, json) : st;
}

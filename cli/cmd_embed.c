/* cmd_embed.c: embed: a text as a vector. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char *const poolings[] = { "default", "last", "mean", "first" }; /* as zp_pooling */

zp_pooling cli_pooling(const struct cli *c)
{
    zp_pooling found = ZP_POOL_DEFAULT;
    for (size_t i = 0; i < CLI_COUNT(poolings); i++) {
        if (strcmp(cli_text(c, "pooling"), poolings[i]) == 0)
            found = (zp_pooling)i;
    }
    return found;
}

/* *ids is released with zp_free. */
static zp_status read_text(struct cli *c, const zp_model *m, int32_t **ids, size_t *n)
{
    struct text in = { 0 };
    bool is_prompt;
    int flags = (cli_flag(c, "special") ? ZP_TOKENS_SPECIAL : 0) |
                (cli_flag(c, "no-bos") ? 0 : ZP_TOKENS_BOS);
    CLI_TRY(cli_read_input(c, &in, &is_prompt));
    zp_status st = in.size > 0 ? zp_tokenize(m, in.data, in.size, flags, ids, n, &c->err)
                               : cli_fail(c, ZP_BAD_INPUT, "the text is empty: nothing to embed");
    text_free(&in);
    return st;
}

static zp_status show(struct cli *c, const float *vector, size_t n, size_t n_tokens,
                      zp_pooling pooling)
{
    if (!c->json) {
        for (size_t i = 0; i < n; i++)
            printf(i > 0 ? " %.9g" : "%.9g", (double)vector[i]);
        printf("\n");
        return ZP_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real((double)vector[i]));
    return cli_emit(c, json_pack("{s:I, s:s, s:o}", "n_tokens", (json_int_t)n_tokens, "pooling",
                                 poolings[pooling], "embedding", list));
}

static zp_status compute(struct cli *c, const zp_model *m, const int32_t *ids, size_t n)
{
    zp_model_info info;
    zp_engine_options options;
    zp_engine *e = NULL;
    zp_embed_options o = { .pooling = cli_pooling(c), .raw = cli_flag(c, "raw") };
    zp_model_describe(m, &info);
    if (o.pooling == ZP_POOL_DEFAULT)
        o.pooling = info.pooling;
    CLI_TRY(cli_mode(c, &o.seq.mode));
    CLI_TRY(cli_engine_options(c, &options));
    if (options.n_ctx == 0)
        options.n_ctx = (uint32_t)n;
    cli_note_length(c, m, options.n_ctx);
    CLI_TRY(zp_engine_open(&e, m, &options, &c->err));
    float *vector = cli_alloc(info.d_model * sizeof *vector);
    o.progress = cli_progress(c);
    zp_status st = zp_embed(e, ids, n, &o, vector, &c->err);
    progress_clear();
    if (st == ZP_OK)
        st = show(c, vector, info.d_model, n, o.pooling);
    free(vector);
    zp_engine_close(e);
    return st;
}

static zp_status embed_text(struct cli *c, const zp_model *m)
{
    int32_t *ids = NULL;
    size_t n = 0;
    zp_status st = read_text(c, m, &ids, &n);
    if (st == ZP_OK)
        st = compute(c, m, ids, n);
    zp_free(ids);
    return st;
}

static zp_status embed_ids(struct cli *c, const zp_model *m)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (cli_text(c, "text") != NULL || cli_text(c, "file") != NULL)
        return cli_usage(c, "the input is given twice: with --ids and as a text");
    CLI_TRY(cli_parse_ids(c, cli_text(c, "ids"), &ids, &n));
    zp_status st = n > 0 ? compute(c, m, ids, n)
                         : cli_fail(c, ZP_BAD_INPUT, "there are no ids: nothing to embed");
    free(ids);
    return st;
}

zp_status cmd_embed(struct cli *c)
{
    zp_model *m = NULL;
    CLI_TRY(cli_open_model(c, &m));
    zp_status st = cli_text(c, "ids") != NULL ? embed_ids(c, m) : embed_text(c, m);
    zp_model_close(m);
    return st;
}

/* cmd_bench.c: bench: speed of the engine at depths and for several sequences at a time. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <zerope/eval.h>
#include <zerope/report.h>

/* What a reader compares; --json has the rest. */
static void view(const json_t *doc)
{
    static const char *const hidden[] = { "tokens", "repetitions", "tps_max", "seconds_min",
                                          "cpu_seconds_median", "weights_read_bytes",
                                          "kv_read_bytes" };
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(doc, "rows"), i, row)
    {
        for (size_t k = 0; k < CLI_COUNT(hidden); k++)
            json_object_del(row, hidden[k]);
    }
    view_document(stdout, doc);
}

/* After Ctrl-C the picture is of the rows measured, if it can be drawn of them. */
static zp_status draw(struct cli *c, const char *json, const char *plot, bool *drawn)
{
    bool interrupted = c->err.code == ZP_INTERRUPTED;
    zp_status st = plot != NULL ? zp_report_speed(json, plot, &c->err) : ZP_OK;
    *drawn = plot != NULL && st == ZP_OK;
    return interrupted ? ZP_OK : st;
}

static zp_status show(struct cli *c, const char *json)
{
    json_t *doc = NULL;
    const char *plot = cli_text(c, "plot");
    bool drawn;
    progress_clear();
    CLI_TRY(draw(c, json, plot, &drawn));
    CLI_TRY(cli_parse_document(c, json, &doc));
    if (c->json)
        return cli_emit(c, doc);
    view(doc);
    if (drawn)
        printf("\nwritten: %s\n", plot);
    json_decref(doc);
    return ZP_OK;
}

static zp_status measure(struct cli *c, const struct cli_numbers *depths,
                         const struct cli_numbers *batches)
{
    zp_model *m = NULL;
    char *json = NULL;
    zp_bench_options options = {
        .n_prompt = cli_u32(c, "n-prompt"),
        .no_prefill = cli_int(c, "n-prompt") == 0,
        .n_predict = cli_u32(c, "n-gen"),
        .no_decode = cli_int(c, "n-gen") == 0,
        .depths = depths->at,
        .n_depths = depths->n,
        .batches = batches->at,
        .n_batches = batches->n,
        .repetitions = cli_u32(c, "repetitions"),
        .separate = cli_flag(c, "separate"),
        .copy_fill = cli_flag(c, "copy-fill"),
    };
    if (strcmp(cli_text(c, "position-kind"), "own") != 0)
        options.position_kind = cli_text(c, "position-kind");
    CLI_TRY(cli_mode(c, &options.mode));
    CLI_TRY(cli_engine_options(c, &options.engine));
    CLI_TRY(cli_check_outputs(c, NULL));
    CLI_TRY(cli_open_model(c, &m));
    options.progress = cli_progress(c);
    zp_status st = zp_bench_json(m, &options, &json, &c->err);
    zp_model_close(m);
    if (json != NULL) {
        zp_status shown = show(c, json);
        st = st == ZP_OK ? shown : st;
    }
    zp_free(json);
    return st;
}

zp_status cmd_bench(struct cli *c)
{
    struct cli_numbers depths = { 0 }, batches = { 0 };
    zp_status st = cli_read_numbers(c, "depth", 0, 1 << 24, &depths);
    if (st == ZP_OK)
        st = cli_read_numbers(c, "batch", 1, 65535, &batches);
    if (st == ZP_OK)
        st = measure(c, &depths, &batches);
    free(depths.at);
    free(batches.at);
    return st;
}

/* cmd_inspect.c: inspect, doctor, version: what a file, a machine and this build are. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <zerope/report.h>

/* The document of inspect, and its picture when asked for. */
static zp_status describe(struct cli *c, const zp_model *m, char **json)
{
    zp_inspect_options options = { .tensors = cli_flag(c, "tensors") };
    CLI_TRY(cli_plan_options(c, &options.engine));
    if (options.engine.n_ctx == 0)
        options.engine.n_ctx = cli_default_context(m, 0, 0);
    CLI_TRY(zp_inspect_json(m, &options, json, &c->err));
    const char *picture = cli_text(c, "heatmap");
    if (picture != NULL)
        CLI_TRY(zp_report_heatmap(*json, picture, &c->err));
    return ZP_OK;
}

/* The processor's part of the document of doctor. */
static zp_status add_cpu(struct cli *c, json_t *doc)
{
    char *text = NULL;
    json_t *machine = NULL;
    CLI_TRY(zp_doctor_json(&text, cli_u32(c, "threads"), true, &c->err));
    zp_status st = cli_parse_document(c, text, &machine);
    zp_free(text);
    if (st == ZP_OK)
        json_object_set(doc, "cpu", json_object_get(machine, "cpu"));
    json_decref(machine);
    return st;
}

zp_status cmd_inspect(struct cli *c)
{
    zp_model *m = NULL;
    char *json = NULL;
    json_t *doc = NULL;
    CLI_TRY(cli_check_outputs(c, NULL));
    CLI_TRY(cli_open_model(c, &m));
    zp_status st = describe(c, m, &json);
    zp_model_close(m);
    if (st == ZP_OK)
        st = cli_parse_document(c, json, &doc);
    zp_free(json);
    if (st == ZP_OK && cli_flag(c, "cpu"))
        st = add_cpu(c, doc);
    if (st == ZP_OK && c->json)
        return cli_emit(c, doc);
    if (st == ZP_OK && !cli_flag(c, "cpu"))
        json_object_del(doc, "kernels");
    if (st == ZP_OK)
        view_document(stdout, doc);
    json_decref(doc);
    return st;
}

zp_status cmd_doctor(struct cli *c)
{
    char *json = NULL;
    json_t *doc = NULL;
    CLI_TRY(zp_doctor_json(&json, cli_u32(c, "threads"), cli_flag(c, "quick"), &c->err));
    zp_status st = cli_parse_document(c, json, &doc);
    zp_free(json);
    if (st != ZP_OK)
        return st;
    const char *folder = cli_pack_cache();
    json_object_set_new(doc, "pack_cache",
                        folder != NULL ? cli_json_text(folder, strlen(folder)) : json_null());
    return cli_show_value(c, doc);
}

zp_status cmd_version(struct cli *c)
{
    if (cli_flag(c, "features")) {
        char *json = NULL;
        CLI_TRY(zp_features_json(&json, &c->err));
        return cli_show(c, json);
    }
    if (c->json)
        return cli_emit(c, json_pack("{s:s}", "version", zp_version()));
    printf("zerope %s\n", zp_version());
    return ZP_OK;
}

/* cmd_verify.c: verify, export, quantize: what happens to a model file after evaporation. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zerope/report.h>

/* A verdict, the checks without their recipes (--json and the page have them), then the rest. */
static zp_status print_evidence(struct cli *c, const char *json)
{
    json_t *doc = NULL, *check;
    size_t i, failed = 0, passed = 0;
    CLI_TRY(cli_parse_document(c, json, &doc));
    json_t *checks = json_incref(json_object_get(doc, "checks"));
    json_array_foreach(checks, i, check) {
        const char *status = json_string_value(json_object_get(check, "status"));
        passed += status != NULL && strcmp(status, "pass") == 0;
        failed += status != NULL && strcmp(status, "fail") == 0;
        json_object_del(check, "how");
    }
    const char *status = json_string_value(json_object_get(doc, "status"));
    size_t n = json_array_size(checks);
    printf("%s: %zu of %zu passed, %zu failed, %zu without verdict\n\n",
           status != NULL ? status : "?", passed, n, failed, n - passed - failed);
    view_document(stdout, checks);
    printf("\n");
    json_object_del(doc, "checks");
    view_document(stdout, doc);
    json_decref(checks);
    json_decref(doc);
    return ZP_OK;
}

/* The document and the page are written whether the checks passed or not; the exit code tells. */
static zp_status show_evidence(struct cli *c, char *json)
{
    const char *page = cli_text(c, "report");
    zp_status st = ZP_OK;
    if (page != NULL)
        st = zp_report_verify_html(json, page, &c->err);
    if (c->json)
        return cli_show(c, json), st;
    zp_status shown = print_evidence(c, json);
    zp_free(json);
    return st != ZP_OK ? st : shown;
}

zp_status cmd_verify(struct cli *c)
{
    char *json = NULL;
    CLI_TRY(cli_check_outputs(c, NULL));
    const char *model = cli_text(c, "model");
    bool writes = !cli_flag(c, "no-write") && !cli_flag(c, "quick");
    if (writes && access(model, F_OK) == 0) /* the evidence goes into it */
        CLI_TRY(cli_check_output(c, model));
    zp_verify_options options = {
        .n_ctx = cli_u32(c, "ctx-size"),
        .budget_kl = cli_real(c, "budget-kl"),
        .quick = cli_flag(c, "quick"),
        .write_evidence = !cli_flag(c, "no-write"),
        .n_threads = cli_u32(c, "threads"),
        .progress = cli_progress(c),
    };
    zp_status st = zp_verify_run(cli_text(c, "model"), cli_text(c, "base"), cli_text(c, "file"),
                                 &options, &json, &c->err);
    progress_clear();
    if (json == NULL)
        return st;
    zp_err verdict = c->err;
    c->err = (zp_err){ 0 };
    zp_status shown = show_evidence(c, json);
    if (shown != ZP_OK)
        return shown;
    c->err = verdict;
    return st;
}

zp_status cmd_export(struct cli *c)
{
    char *json = NULL;
    const char *to = cli_text(c, "to"), *out = cli_text(c, "output");
    CLI_TRY(cli_check_outputs(c, strcmp(to, "hf") == 0 ? "output" : NULL));
    zp_progress progress = cli_progress(c);
    CLI_TRY(zp_export_run(cli_text(c, "model"), to, out, &progress, &json, &c->err));
    progress_clear();
    return cli_show(c, json);
}

zp_status cmd_quantize(struct cli *c)
{
    char *json = NULL;
    const char *in = cli_text(c, "in"), *out = cli_text(c, "out");
    CLI_TRY(cli_check_outputs(c, NULL));
    zp_progress progress = cli_progress(c);
    CLI_TRY(zp_quantize(in, out, cli_text(c, "type"), &progress, &json, &c->err));
    progress_clear();
    return cli_show(c, json);
}

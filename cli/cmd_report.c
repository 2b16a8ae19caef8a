/* cmd_report.c: report: what a training run did, as a page, a picture, a table or a document. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <zerope/report.h>

/* Before anything is read: -o ends in one of the three. */
static zp_status check_name(struct cli *c, const char *out)
{
    static const char *const ends[] = { ".html", ".svg", ".png" };
    size_t n = strlen(out);
    for (size_t i = 0; i < CLI_COUNT(ends); i++) {
        size_t m = strlen(ends[i]);
        if (n > m && strcmp(out + n - m, ends[i]) == 0)
            return ZP_OK;
    }
    return cli_usage(c, "--output: found '%s'; a report's name ends in .html, .svg or .png", out);
}

/* Where the run stands; --json and the page have the rest. */
static void view(json_t *doc)
{
    static const char *const hidden[] = { "format", "machine", "model_sha256", "options", "seeds",
                                          "versions", "events", "series" };
    static const char *const tables[] = { "resumed", "last", "by_layer" };
    for (size_t i = 0; i < CLI_COUNT(hidden); i++)
        json_object_del(doc, hidden[i]);
    for (size_t i = 0; i < CLI_COUNT(tables); i++) {
        if (json_array_size(json_object_get(doc, tables[i])) == 0)
            json_object_del(doc, tables[i]);
    }
    view_document(stdout, doc);
}

static zp_status show(struct cli *c, const char *json, const char *out)
{
    json_t *doc = NULL;
    if (out != NULL)
        CLI_TRY(zp_report_run(json, out, &c->err));
    CLI_TRY(cli_parse_document(c, json, &doc));
    if (c->json)
        return cli_emit(c, doc);
    view(doc);
    json_decref(doc);
    if (out != NULL)
        printf("\nwritten: %s\n", out);
    return ZP_OK;
}

zp_status cmd_report(struct cli *c)
{
    const char *out = cli_text(c, "output");
    char *json = NULL;
    if (out != NULL)
        CLI_TRY(check_name(c, out));
    CLI_TRY(cli_check_outputs(c, NULL));
    CLI_TRY(zp_train_run_json(cli_text(c, "run"), &json, &c->err));
    zp_status st = show(c, json, out);
    zp_free(json);
    return st;
}

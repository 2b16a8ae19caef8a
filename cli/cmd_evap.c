/* cmd_evap.c: scan, plan, evaporate: which gates matter, which close, and the closing itself. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zerope/report.h>

#define MAX_DOCUMENT (1u << 30)

static double number_of(const json_t *doc, const char *key)
{
    return json_number_value(json_object_get(doc, key));
}

/* A document the library wrote: its picture, then itself (--json) or its short form. */
static zp_status show_written(struct cli *c, const char *path)
{
    struct text t = { 0 };
    json_t *doc = NULL;
    CLI_TRY(cli_read_file(c, path, MAX_DOCUMENT, &t));
    const char *picture = cli_text(c, "heatmap");
    zp_status st = ZP_OK;
    if (picture != NULL)
        st = zp_report_heatmap(t.data, picture, &c->err);
    if (st == ZP_OK && c->json) {
        while (t.size > 0 && t.data[t.size - 1] == '\n')
            t.data[--t.size] = '\0';
        printf("%s\n", t.data);
        c->wrote_document = true;
    } else if (st == ZP_OK) {
        st = cli_parse_document(c, t.data, &doc);
        if (st == ZP_OK)
            view_document(stdout, doc);
        if (st == ZP_OK)
            printf("\nwritten: %s%s%s\n", path, picture != NULL ? ", " : "",
                   picture != NULL ? picture : "");
    }
    json_decref(doc);
    text_free(&t);
    return st;
}

static zp_scan_options scan_options(struct cli *c)
{
    return (zp_scan_options){
        .n_ctx = cli_u32(c, "ctx-size"),
        .local_window = cli_u32(c, "local"),
        .n_threads = cli_u32(c, "threads"),
        .seed = (uint64_t)cli_int(c, "seed"),
        .progress = cli_progress(c),
    };
}

zp_status cmd_scan(struct cli *c)
{
    const char *out = cli_text(c, "output");
    CLI_TRY(cli_check_outputs(c, NULL));
    if (cli_given(c, "windows-kl") && cli_u32(c, "windows-kl") > cli_u32(c, "windows"))
        return cli_usage(c, "--windows-kl %u is more than --windows %u, of which they are a part",
                         cli_u32(c, "windows-kl"), cli_u32(c, "windows"));
    CLI_TRY(cli_note_length_of(c, cli_text(c, "model"), cli_u32(c, "ctx-size")));
    zp_scan_options options = scan_options(c);
    options.n_windows_local = cli_u32(c, "windows");
    options.n_windows_kl = cli_u32(c, "windows-kl");
    options.fisher = cli_flag(c, "fisher");
    CLI_TRY(zp_scan_run(cli_text(c, "model"), cli_text(c, "file"), &options, out, &c->err));
    progress_clear();
    return show_written(c, out);
}

static zp_plan_options plan_options(struct cli *c)
{
    return (zp_plan_options){
        .budget_kl = cli_real(c, "budget-kl"),
        .uniform = cli_flag(c, "uniform"),
        .uniform_slow = cli_flag(c, "uniform-slow"),
        .layers = cli_flag(c, "layers"),
        .local_window = cli_u32(c, "local"),
        .no_fold = cli_flag(c, "no-fold"),
        .rank = cli_text(c, "rank"),
        .n_threads = cli_u32(c, "threads"),
        .progress = cli_progress(c),
    };
}

/* A plan has one kind of unit to begin with: pairs, slow pairs, layers or local heads. */
static zp_status check_shape(struct cli *c)
{
    static const char *const shapes[] = { "uniform", "uniform-slow", "layers", "local" };
    const char *first = NULL;
    for (size_t i = 0; i < CLI_COUNT(shapes); i++) {
        const struct cli_value *v = cli_value(c, shapes[i]);
        if (!v->on && v->integer == 0)
            continue;
        if (first != NULL)
            return cli_usage(c, "--%s and --%s exclude each other: a plan has one kind of unit",
                             first, shapes[i]);
        first = shapes[i];
    }
    bool pairs = cli_flag(c, "uniform") || cli_flag(c, "uniform-slow");
    if (pairs && strcmp(cli_text(c, "rank"), "local") != 0)
        return cli_usage(c, "--rank %s orders single gates, and --%s closes none: leave one out",
                         cli_text(c, "rank"), first);
    return ZP_OK;
}

/* Whether the failure is about a relative path that the scan, not the command line, gave, and that
 * leads nowhere from here. */
static bool is_path_of_scan(struct cli *c, const json_t *doc, const char *key, const char *option)
{
    const char *path = json_string_value(json_object_get(doc, key));
    return path != NULL && path[0] != '/' && cli_text(c, option) == NULL &&
           access(path, F_OK) != 0 && strncmp(c->err.message, path, strlen(path)) == 0;
}

/* The failure of a plan, and which folder the paths in the scan count from. */
static zp_status explain_path(struct cli *c, zp_status st)
{
    const char *scan = cli_text(c, "scan");
    struct text t = { 0 };
    json_t *doc = NULL;
    zp_err plain = c->err;
    if (cli_read_file(c, scan, MAX_DOCUMENT, &t) == ZP_OK)
        doc = json_loads(t.data, 0, NULL);
    if (is_path_of_scan(c, doc, "model", "model") || is_path_of_scan(c, doc, "text", "file"))
        snprintf(c->err.message, sizeof c->err.message,
                 "%.300s; paths in %.80s count from the folder that scan ran in: run plan there, "
                 "or give the model with -m and the text with -f", plain.message, scan);
    json_decref(doc);
    text_free(&t);
    return st;
}

zp_status cmd_plan(struct cli *c)
{
    const char *out = cli_text(c, "output");
    CLI_TRY(check_shape(c));
    CLI_TRY(cli_check_outputs(c, NULL));
    zp_plan_options options = plan_options(c);
    options.model = cli_text(c, "model");
    options.text = cli_text(c, "file");
    zp_status st = zp_plan_run(cli_text(c, "scan"), &options, out, &c->err);
    progress_clear();
    return st == ZP_OK ? show_written(c, out) : explain_path(c, st);
}

/* ---- evaporate --------------------------------------------------------------------------- */
static zp_status check_budget(struct cli *c)
{
    bool budget = cli_text(c, "budget-kl") != NULL;
    if (!budget && !cli_flag(c, "close-all") && cli_text(c, "plan") == NULL)
        return cli_usage(c,
                         "--budget-kl X is missing: the mean KL the result may cost, such as 0.02");
    if (budget && cli_flag(c, "close-all"))
        return cli_usage(c, "--close-all closes whatever it costs; leave --budget-kl out");
    return ZP_OK;
}

/* With a plan nothing that measures or chooses has a say any more. */
static zp_status check_plan(struct cli *c)
{
    static const char *const others[] = { "scan",   "save-scan", "uniform", "uniform-slow",
                                          "layers", "local",     "rank" };
    if (cli_text(c, "plan") == NULL)
        return check_shape(c);
    for (size_t i = 0; i < CLI_COUNT(others); i++) {
        const struct cli_value *v = cli_value(c, others[i]);
        if (v->origin == ORIGIN_FLAG && strcmp(v->texts[0], "false") != 0)
            return cli_usage(c, "--%s has no effect with --plan, which says what closes; leave it "
                             "out", others[i]);
    }
    return ZP_OK;
}

static void print_headline(const json_t *doc)
{
    double total = number_of(doc, "total"), closed = number_of(doc, "closed");
    printf("closed %.0f of %.0f gates (%.1f %%) at %.0f tokens: KL %.4g, at most %.4g, budget "
           "%.4g\n\n",
           closed, total, total > 0 ? closed / total * 100 : 0, number_of(doc, "ctx"),
           number_of(doc, "kl_mean"), number_of(doc, "kl_hi"), number_of(doc, "budget_kl"));
}

zp_status cmd_evaporate(struct cli *c)
{
    CLI_TRY(check_budget(c));
    CLI_TRY(check_plan(c));
    CLI_TRY(cli_check_outputs(c, NULL));
    CLI_TRY(cli_note_length_of(c, cli_text(c, "model"), cli_u32(c, "ctx-size")));
    char *json = NULL;
    json_t *doc = NULL;
    zp_evaporate_options options = {
        .scan = scan_options(c),
        .plan = plan_options(c),
        .scan_in = cli_text(c, "scan"),
        .scan_out = cli_text(c, "save-scan"),
        .plan_in = cli_text(c, "plan"),
        .base = cli_text(c, "base"),
        .plan_out = cli_text(c, "save-plan"),
        .n_windows_check = cli_u32(c, "windows"),
        .close_all = cli_flag(c, "close-all"),
    };
    CLI_TRY(zp_evaporate_run(cli_text(c, "model"), cli_text(c, "file"), &options,
                             cli_text(c, "output"), &json, &c->err));
    progress_clear();
    if (c->json)
        return cli_show(c, json);
    zp_status st = cli_parse_document(c, json, &doc);
    if (st == ZP_OK && !cli_flag(c, "close-all"))
        print_headline(doc);
    json_decref(doc);
    return st == ZP_OK ? cli_show(c, json) : st;
}

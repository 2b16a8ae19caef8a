/* cmd_probe.c: probe: the measures by which models of one experiment are compared. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <zerope/train.h>

/* ---- for people -------------------------------------------------------------------------- */

/* x, x_lo, x_hi of a row become one cell, "3.2 [3.1, 3.4]". */
static void join_interval(json_t *row, const char *name)
{
    char lo[40], hi[40];
    struct text cell = { 0 };
    snprintf(lo, sizeof lo, "%s_lo", name);
    snprintf(hi, sizeof hi, "%s_hi", name);
    json_t *value = json_object_get(row, name);
    if (json_object_get(row, hi) == NULL)
        return;
    view_text_cell(&cell, name, value);
    if (json_is_number(json_object_get(row, hi))) {
        text_append(&cell, " [", 2);
        view_text_cell(&cell, lo, json_object_get(row, lo));
        text_append(&cell, ", ", 2);
        view_text_cell(&cell, hi, json_object_get(row, hi));
        text_append(&cell, "]", 1);
    }
    json_object_set_new(row, name, json_string(cell.data));
    json_object_del(row, lo);
    json_object_del(row, hi);
    text_free(&cell);
}

static void join_intervals(json_t *rows)
{
    static const char *const names[] = { "nll",        "nll_base", "nll_change",
                                         "kl",         "top1_agree", "accuracy",
                                         "accuracy_base", "accuracy_change",
                                         "token_accuracy", "token_accuracy_base",
                                         "token_accuracy_change" };
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        for (size_t k = 0; k < CLI_COUNT(names); k++)
            join_interval(row, names[k]);
    }
}

static bool is_same_cell(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "kind"), json_object_get(b, "kind")) &&
           json_equal(json_object_get(a, "from"), json_object_get(b, "from")) &&
           json_equal(json_object_get(a, "to"), json_object_get(b, "to"));
}

/* The row of the table that a row of `distances` belongs to; made where there is none yet. */
static json_t *row_of(json_t *table, const json_t *from)
{
    static const char *const keys[] = { "kind", "from", "to" };
    json_t *row;
    size_t i;
    json_array_foreach(table, i, row)
    {
        if (is_same_cell(row, from))
            return row;
    }
    row = json_object();
    for (i = 0; i < CLI_COUNT(keys); i++)
        json_object_set(row, keys[i], json_object_get(from, keys[i]));
    json_array_append_new(table, row);
    return row;
}

/* Distances as rows, lengths as columns, in them the accuracy and of how many cases. */
static json_t *by_distance(const json_t *rows)
{
    json_t *table = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        char column[40];
        struct text cell = { 0 };
        view_text_cell(&cell, "accuracy", json_object_get(row, "accuracy"));
        text_printf(&cell, " (%lld)", (long long)json_integer_value(json_object_get(row, "cases")));
        snprintf(column, sizeof column, "in %lld",
                 (long long)json_integer_value(json_object_get(row, "length")));
        json_object_set_new(row_of(table, row), column, json_string(cell.data));
        text_free(&cell);
    }
    return table;
}

static void view(json_t *doc)
{
    static const char *const tables[] = { "lengths",   "buckets", "structure",
                                          "detectors", "probes",  "distances" };
    json_object_set_new(doc, "distances", by_distance(json_object_get(doc, "distances")));
    for (size_t i = 0; i < CLI_COUNT(tables); i++) {
        json_t *rows = json_object_get(doc, tables[i]);
        join_intervals(rows);
        if (json_array_size(rows) == 0)
            json_object_del(doc, tables[i]);
    }
    view_document(stdout, doc);
}

static zp_status show(struct cli *c, char *json)
{
    json_t *doc = NULL;
    progress_clear();
    if (c->json)
        return cli_show(c, json);
    zp_status st = cli_parse_document(c, json, &doc);
    zp_free(json);
    CLI_TRY(st);
    view(doc);
    json_decref(doc);
    return ZP_OK;
}

/* ---- the call ---------------------------------------------------------------------------- */

/* The base is measured as its file is. */
static zp_status open_models(struct cli *c, zp_model **m, zp_model **base)
{
    zp_model_options options = {
        .pre = cli_text(c, "pre"),
        .rope_scaling = cli_text(c, "rope-scaling"),
    };
    CLI_TRY(zp_model_open(m, cli_text(c, "model"), &options, &c->err));
    const char *against = cli_text(c, "against");
    return against != NULL ? cli_open_model_at(c, against, base) : ZP_OK;
}

static zp_status measure(struct cli *c, zp_probe_options *options)
{
    zp_model *m = NULL, *base = NULL;
    char *json = NULL;
    zp_status st = open_models(c, &m, &base);
    options->progress = cli_progress(c);
    if (st == ZP_OK)
        st = zp_probe_json(m, base, cli_text(c, "corpus"), options, &json, &c->err);
    zp_model_close(base);
    zp_model_close(m);
    return st == ZP_OK ? show(c, json) : st;
}

zp_status cmd_probe(struct cli *c)
{
    struct cli_numbers lengths = { 0 };
    struct cli_names kinds = { 0 };
    zp_probe_options options = {
        .n_windows = cli_u32(c, "windows"),
        .no_windows = cli_int(c, "windows") == 0,
        .n_cases = cli_u32(c, "cases"),
        .no_cases = cli_int(c, "cases") == 0,
        .seed = (uint64_t)cli_int(c, "seed"),
        .structure = cli_flag(c, "structure"),
        .fast = cli_flag(c, "fast"),
    };
    CLI_TRY(cli_mode(c, &options.mode));
    CLI_TRY(cli_engine_options(c, &options.engine));
    zp_status st = cli_read_numbers(c, "lengths", 32, 1 << 24, &lengths);
    if (st == ZP_OK)
        st = cli_read_names(c, "kinds", &kinds);
    options.lengths = lengths.at;
    options.n_lengths = lengths.n;
    options.kinds = (const char *const *)kinds.at;
    options.n_kinds = kinds.n;
    if (st == ZP_OK)
        st = measure(c, &options);
    cli_free_names(&kinds);
    free(lengths.at);
    return st;
}

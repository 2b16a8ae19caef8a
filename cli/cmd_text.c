/* cmd_text.c: tokenize, detokenize, template: text to ids and back, without an engine. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IDS_TEXT (256u << 20)
#define MAX_CHAT (64u << 20)

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

/* ---- tokenize ---------------------------------------------------------------------------- */
static int token_flags(const struct cli *c)
{
    return (cli_flag(c, "bos") ? ZP_TOKENS_BOS : 0) |
           (cli_flag(c, "special") ? ZP_TOKENS_SPECIAL : 0);
}

static zp_status print_pieces(struct cli *c, const zp_model *m, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text = NULL;
        size_t size = 0;
        CLI_TRY(zp_detokenize(m, &ids[i], 1, true, &text, &size, &c->err));
        json_t *piece = cli_json_text(text, size);
        char *shown = json_dumps(piece, JSON_ENCODE_ANY);
        printf("%d\t%s\n", (int)ids[i], shown != NULL ? shown : "");
        free(shown);
        json_decref(piece);
        zp_free(text);
    }
    return ZP_OK;
}

static zp_status tokenize_text(struct cli *c, const zp_model *m)
{
    struct text in = { 0 };
    bool is_prompt;
    int32_t *ids = NULL;
    size_t n = 0;
    CLI_TRY(cli_read_input(c, &in, &is_prompt));
    zp_status st = zp_tokenize(m, in.data, in.size, token_flags(c), &ids, &n, &c->err);
    text_free(&in);
    if (st != ZP_OK)
        return st;
    if (c->json) {
        st = cli_emit(c,
                      json_pack("{s:I, s:o}", "n_tokens", (json_int_t)n, "ids", ids_json(ids, n)));
    } else if (cli_flag(c, "pieces")) {
        st = print_pieces(c, m, ids, n);
    } else {
        for (size_t i = 0; i < n; i++)
            printf(i > 0 ? " %d" : "%d", (int)ids[i]);
        printf("\n");
    }
    zp_free(ids);
    return st;
}

/* One line of --jsonl: `line` holds JSON of the wanted kind; fails with its number. */
typedef zp_status (*line_fn)(struct cli *c, const zp_model *m, const json_t *value, size_t number,
                             json_t *out);

static zp_status each_line(struct cli *c, const zp_model *m, line_fn fn, const char *key)
{
    const char *path = cli_text(c, "file");
    if (cli_text(c, "prompt") != NULL)
        return cli_usage(c, "--jsonl reads lines from --file or standard input, not from --prompt");
    struct text in = { 0 };
    CLI_TRY(cli_read_file(c, path != NULL ? path : "-", MAX_IDS_TEXT, &in));
    zp_status st = ZP_OK;
    json_t *all = json_array();
    size_t number = 0;
    for (size_t at = 0; at < in.size && st == ZP_OK; number++) {
        char *end = memchr(in.data + at, '\n', in.size - at);
        size_t size = end != NULL ? (size_t)(end - in.data) - at : in.size - at;
        json_error_t e;
        json_t *value = json_loadb(in.data + at, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
        if (value == NULL)
            st = cli_fail(c, ZP_BAD_INPUT,
                          "line %zu: column %d: %s (each line holds one JSON value)", number + 1,
                          e.column, e.text);
        else
            st = fn(c, m, value, number + 1, all);
        json_decref(value);
        if (st == ZP_OK && !c->json) {
            char *line = json_dumps(json_array_get(all, 0), JSON_ENCODE_ANY | JSON_COMPACT);
            printf("%s\n", line);
            free(line);
            json_array_clear(all);
        }
        at += size + 1;
    }
    text_free(&in);
    if (st == ZP_OK && c->json)
        return cli_emit(c, json_pack("{s:o}", key, all));
    json_decref(all);
    return st;
}

static zp_status tokenize_line(struct cli *c, const zp_model *m, const json_t *value, size_t number,
                               json_t *out)
{
    if (!json_is_string(value))
        return cli_fail(c, ZP_BAD_INPUT, "line %zu: expected a JSON string", number);
    int32_t *ids = NULL;
    size_t n = 0;
    CLI_TRY(zp_tokenize(m, json_string_value(value), json_string_length(value), token_flags(c),
                        &ids, &n, &c->err));
    json_array_append_new(out, ids_json(ids, n));
    zp_free(ids);
    return ZP_OK;
}

zp_status cmd_tokenize(struct cli *c)
{
    zp_model *m = NULL;
    if (cli_flag(c, "pieces") && (cli_flag(c, "jsonl") || c->json))
        return cli_usage(c, "--pieces is a form of its own: leave %s out",
                         c->json ? "--json" : "--jsonl");
    CLI_TRY(cli_open_model(c, &m));
    zp_status st =
        cli_flag(c, "jsonl") ? each_line(c, m, tokenize_line, "ids") : tokenize_text(c, m);
    zp_model_close(m);
    return st;
}

/* ---- detokenize -------------------------------------------------------------------------- */
static zp_status detokenize_line(struct cli *c, const zp_model *m, const json_t *value,
                                 size_t number, json_t *out)
{
    size_t n = json_array_size(value), size = 0;
    if (!json_is_array(value))
        return cli_fail(c, ZP_BAD_INPUT, "line %zu: expected a JSON array of ids", number);
    int32_t *ids = cli_alloc((n + 1) * sizeof *ids);
    zp_status st = ZP_OK;
    for (size_t i = 0; i < n && st == ZP_OK; i++) {
        const json_t *id = json_array_get(value, i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x > INT32_MAX)
            st = cli_fail(c, ZP_BAD_INPUT, "line %zu: item %zu is not a token id", number, i + 1);
        ids[i] = (int32_t)x;
    }
    char *text = NULL;
    if (st == ZP_OK)
        st = zp_detokenize(m, ids, n, cli_flag(c, "special"), &text, &size, &c->err);
    if (st == ZP_OK)
        json_array_append_new(out, cli_json_text(text, size));
    zp_free(text);
    free(ids);
    return st;
}

/* An id and the blanks and at most one comma behind it; *comma: there was one. */
static zp_status parse_id(struct cli *c, const char **p, size_t number, int32_t *id, bool *comma)
{
    char *end = NULL;
    errno = 0;
    long long x = strtoll(*p, &end, 10);
    size_t left = strcspn(end, " \t\r\n,]");
    if (end == *p || left > 0 || errno != 0 || x < 0 || x > INT32_MAX)
        return cli_fail(c, ZP_BAD_INPUT,
                        "token %zu: found '%.20s', expected an id (a whole number >= 0)", number,
                        *p);
    *id = (int32_t)x;
    *p = end + strspn(end, " \t\r\n");
    *comma = **p == ',';
    *p += *comma;
    *p += strspn(*p, " \t\r\n");
    return ZP_OK;
}

/* Ids with blanks or single commas between them, in brackets or without. */
zp_status cli_parse_ids(struct cli *c, const char *text, int32_t **ids, size_t *n)
{
    size_t room = 64;
    const char *p = text + strspn(text, " \t\r\n");
    bool list = *p == '[', comma = false;
    zp_status st = ZP_OK;
    *ids = cli_alloc(room * sizeof **ids);
    *n = 0;
    p += list;
    p += strspn(p, " \t\r\n");
    while (st == ZP_OK && (comma || *p != (list ? ']' : '\0'))) {
        if (*n == room)
            *ids = cli_resize(*ids, (room *= 2) * sizeof **ids);
        if (list && *p == '\0')
            st = cli_fail(c, ZP_BAD_INPUT, "the list of ids is not closed: expected ']'");
        else
            st = parse_id(c, &p, *n + 1, &(*ids)[*n], &comma);
        *n += st == ZP_OK;
    }
    if (st == ZP_OK && list && p[1 + strspn(p + 1, " \t\r\n")] != '\0')
        st = cli_fail(c, ZP_BAD_INPUT, "found '%.20s' behind the list of ids", p + 1);
    if (st != ZP_OK) {
        free(*ids);
        *ids = NULL;
    }
    return st;
}

static zp_status detokenize_text(struct cli *c, const zp_model *m)
{
    struct text in = { 0 };
    bool is_prompt;
    int32_t *ids = NULL;
    size_t n = 0, size = 0;
    char *text = NULL;
    CLI_TRY(cli_read_input(c, &in, &is_prompt));
    zp_status st = cli_parse_ids(c, in.data, &ids, &n);
    text_free(&in);
    if (st == ZP_OK)
        st = zp_detokenize(m, ids, n, cli_flag(c, "special"), &text, &size, &c->err);
    free(ids);
    if (st == ZP_OK && c->json)
        st = cli_emit(c, json_pack("{s:o}", "text", cli_json_text(text, size)));
    else if (st == ZP_OK)
        fwrite(text, 1, size, stdout);
    zp_free(text);
    return st;
}

zp_status cmd_detokenize(struct cli *c)
{
    zp_model *m = NULL;
    CLI_TRY(cli_open_model(c, &m));
    zp_status st =
        cli_flag(c, "jsonl") ? each_line(c, m, detokenize_line, "texts") : detokenize_text(c, m);
    zp_model_close(m);
    return st;
}

/* ---- template ---------------------------------------------------------------------------- */
zp_status cmd_template(struct cli *c)
{
    zp_model *m = NULL;
    struct text in = { 0 };
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    zp_template_options options = { .bos = cli_text(c, "bos"),
                                    .eos = cli_text(c, "eos"),
                                    .no_generation_prompt = cli_flag(c, "no-generation-prompt") };
    CLI_TRY(cli_read_file(c, cli_text(c, "input"), MAX_CHAT, &in));
    zp_status st = cli_open_model(c, &m);
    if (st == ZP_OK)
        st = zp_template_render(m, in.data, &options, &text, &ids, &n, &c->err);
    text_free(&in);
    if (st == ZP_OK && c->json)
        st = cli_emit(c, json_pack("{s:o, s:I, s:o}", "text", cli_json_text(text, strlen(text)),
                                   "n_tokens", (json_int_t)n, "ids", ids_json(ids, n)));
    else if (st == ZP_OK)
        fputs(text, stdout);
    zp_free(text);
    zp_free(ids);
    zp_model_close(m);
    return st;
}

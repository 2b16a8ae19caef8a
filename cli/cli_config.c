/* cli_config.c: the config file, and the command that shows each option's value and origin.
 * The file is one JSON object: {"threads": 2, "ctx-size": "4k", "run": {"temp": 0.7}}. A key at the
 * top applies to every command that has the option; an object named like a command applies to that
 * command only. Unknown keys are errors. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether a config file may set an option of this name, of one command or (NULL) of any: --help,
 * --config and names that mean different things are given on the command line only. */
static bool is_settable(const struct cli_command *cmd, const char *name)
{
    bool found = false;
    for (size_t k = 0; k < cli_n_commands; k++) {
        if (cmd != NULL && cmd != &cli_commands[k])
            continue;
        for (size_t i = 0; i < cli_commands[k].n_options; i++) {
            const struct cli_option *o = &cli_commands[k].options[i];
            found = found || (!o->flag_only && strcmp(o->name, name) == 0);
        }
    }
    for (size_t i = 0; i < cli_n_common_options; i++) {
        const struct cli_option *o = &cli_common_options[i];
        found = found || (!o->flag_only && strcmp(o->name, name) == 0);
    }
    return found && strcmp(name, "config") != 0;
}

static bool option_exists(const char *name)
{
    for (size_t i = 0; i < cli_n_common_options; i++) {
        if (strcmp(cli_common_options[i].name, name) == 0)
            return true;
    }
    for (size_t k = 0; k < cli_n_commands; k++) {
        for (size_t i = 0; i < cli_commands[k].n_options; i++) {
            if (strcmp(cli_commands[k].options[i].name, name) == 0)
                return true;
        }
    }
    return false;
}

static bool command_has(const struct cli_command *cmd, const char *name)
{
    for (size_t i = 0; i < cmd->n_options; i++) {
        if (strcmp(cmd->options[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < cli_n_common_options; i++) {
        if (strcmp(cli_common_options[i].name, name) == 0)
            return true;
    }
    return false;
}

/* cmd: whose keys the object holds; NULL: those of all commands. */
static zp_status unknown_key(struct cli *c, const char *path, const struct cli_command *cmd,
                             const char *key)
{
    const char *names[512];
    size_t n = 0;
    for (size_t i = 0; i < cli_n_common_options; i++)
        names[n++] = cli_common_options[i].name;
    for (size_t k = 0; k < cli_n_commands; k++) {
        if (cmd != NULL && cmd != &cli_commands[k])
            continue;
        for (size_t i = 0; i < cli_commands[k].n_options && n < CLI_COUNT(names); i++)
            names[n++] = cli_commands[k].options[i].name;
    }
    const char *near = cli_near_miss(key, names, n);
    return cli_usage(c, "%s: unknown key \"%s\"%s%s%s", path, key, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}

static zp_status check_keys(struct cli *c, const char *path, const struct cli_command *cmd,
                            json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const struct cli_command *inner = cmd == NULL ? cli_find_command(key) : NULL;
        bool known = cmd != NULL ? command_has(cmd, key) : option_exists(key);
        if (inner != NULL && json_is_object(value))
            CLI_TRY(check_keys(c, path, inner, value));
        else if (inner != NULL && !is_settable(NULL, key))
            return cli_usage(c, "%s: \"%s\": expected an object with options of '%s'", path, key,
                             key);
        else if (!known && cmd != NULL && option_exists(key))
            return cli_usage(c, "%s: \"%s\": '%s' has no such option", path, key, cmd->name);
        else if (!known)
            return unknown_key(c, path, cmd, key);
        else if (!is_settable(cmd, key))
            return cli_usage(c, "%s: unknown key \"%s\": --%s is given on the command line only",
                             path, key, key);
        else if (json_is_object(value) || json_is_null(value))
            return cli_usage(c, "%s: \"%s\": expected text, number, true/false or a list", path,
                             key);
    }
    return ZP_OK;
}

zp_status cli_load_config(struct cli *c)
{
    const char *path = cli_text(c, "config");
    if (path == NULL)
        return ZP_OK;
    struct text t = { 0 };
    CLI_TRY(cli_read_file(c, path, 1 << 20, &t));
    json_error_t e;
    c->config = json_loadb(t.data, t.size, JSON_REJECT_DUPLICATES, &e);
    text_free(&t);
    if (c->config == NULL)
        return cli_fail(c, ZP_BAD_INPUT,
                        "%s: line %d, column %d: %s (a config file is one JSON object)", path,
                        e.line, e.column, e.text);
    if (!json_is_object(c->config))
        return cli_fail(c, ZP_BAD_INPUT, "%s: a config file is one JSON object", path);
    return check_keys(c, path, NULL, c->config);
}

static zp_status set_from_json(struct cli *c, size_t index, const json_t *value)
{
    if (json_is_string(value))
        return cli_set_value(c, index, json_string_value(value), ORIGIN_CONFIG);
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    zp_status st = cli_set_value(c, index, text != NULL ? text : "", ORIGIN_CONFIG);
    free(text);
    return st;
}

zp_status cli_apply_config(struct cli *c)
{
    if (c->config == NULL)
        return ZP_OK;
    json_t *own = json_object_get(c->config, c->command->name);
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cli_option *o = c->options[i];
        if (c->values[i].origin != ORIGIN_NONE || o->flag_only || strcmp(o->name, "config") == 0)
            continue;
        json_t *value = json_is_object(own) ? json_object_get(own, o->name) : NULL;
        if (value == NULL)
            value = json_object_get(c->config, o->name);
        if (value == NULL || json_is_object(value))
            continue;
        if (!json_is_array(value)) {
            CLI_TRY(set_from_json(c, i, value));
            continue;
        }
        if (o->type != OPTION_LIST)
            return cli_usage(c, "%s (config file): a list is given, expected one value", o->name);
        for (size_t k = 0; k < json_array_size(value); k++)
            CLI_TRY(set_from_json(c, i, json_array_get(value, k)));
    }
    return ZP_OK;
}

const char *cli_origin_name(enum cli_origin origin)
{
    static const char *const names[] = {
        "none", "default", "config", "environment", "flag", "flag"
    };
    return names[origin];
}

/* ---- zerope config print ----------------------------------------------------------------- */
static json_t *value_json(const struct cli_option *o, const struct cli_value *v)
{
    if (v->n == 0)
        return json_null();
    switch (o->type) {
    case OPTION_FLAG: return json_boolean(v->on);
    case OPTION_COUNT:
    case OPTION_INT: return json_integer(v->integer);
    case OPTION_REAL: return json_real(v->real);
    case OPTION_LIST: {
        json_t *list = json_array();
        for (size_t i = 0; i < v->n; i++)
            json_array_append_new(list, cli_json_text(v->texts[i], strlen(v->texts[i])));
        return list;
    }
    default: return cli_json_text(v->texts[0], strlen(v->texts[0]));
    }
}

static void add_rows(json_t *rows, const struct cli *c, bool common)
{
    size_t first = common ? c->n_options - cli_n_common_options : 0;
    size_t end = common ? c->n_options : c->n_options - cli_n_common_options;
    for (size_t i = first; i < end; i++) {
        const struct cli_option *o = c->options[i];
        char env[80];
        cli_env_name(o, env, sizeof env);
        if (strcmp(o->name, "help") == 0)
            continue;
        json_t *row =
            json_pack("{s:s, s:s, s:o, s:s, s:s?, s:s?}", "command",
                      common ? "*" : c->command->name, "option", o->name, "value",
                      value_json(o, &c->values[i]), "origin", cli_origin_name(c->values[i].origin),
                      "default", o->preset, "env", o->flag_only ? NULL : env);
        json_array_append_new(rows, row);
    }
}

/* Parses the words as the command itself would, but needs nothing to be given. */
static zp_status resolve(struct cli *outer, const struct cli_command *cmd, int argc, char **argv,
                         json_t *rows, bool common)
{
    struct cli_command lenient = *cmd;
    lenient.raw = true;
    struct cli inner;
    cli_init(&inner, &lenient, argc, argv);
    zp_status st = cli_parse_words(&inner, argc, argv);
    if (st == ZP_OK)
        st = cli_parse(&inner);
    if (st == ZP_OK)
        add_rows(rows, &inner, common);
    outer->err = inner.err;
    outer->json = inner.json;
    outer->help = cli_given(&inner, "help");
    cli_free(&inner);
    return st;
}

static zp_status resolve_all(struct cli *c, int argc, char **argv, json_t *rows)
{
    CLI_TRY(resolve(c, c->command, argc, argv, rows, true));
    for (size_t i = 0; i < cli_n_commands; i++) {
        if (cli_commands[i].n_options > 0)
            CLI_TRY(resolve(c, &cli_commands[i], argc, argv, rows, false));
    }
    return ZP_OK;
}

static void print_rows(const json_t *rows)
{
    size_t i;
    json_t *row;
    printf("%-11s %-22s %-12s %s\n", "COMMAND", "OPTION", "ORIGIN", "VALUE");
    json_array_foreach((json_t *)rows, i, row)
    {
        struct text cell = { 0 };
        view_text_cell(&cell, "", json_object_get(row, "value"));
        printf("%-11s %-22s %-12s %s\n", json_string_value(json_object_get(row, "command")),
               json_string_value(json_object_get(row, "option")),
               json_string_value(json_object_get(row, "origin")), cell.data ? cell.data : "");
        text_free(&cell);
    }
}

zp_status cmd_config(struct cli *c)
{
    int argc = c->argc;
    char **argv = c->argv;
    bool asks_help = argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
    if (asks_help)
        return help_print_command(stdout, c->command), ZP_OK;
    if (argc == 0 || strcmp(argv[0], "print") != 0)
        return cli_usage(c, "found '%s', expected: zerope config print [COMMAND [OPTIONS]]",
                         argc > 0 ? argv[0] : "nothing");
    json_t *rows = json_array();
    zp_status st;
    if (argc > 1 && argv[1][0] != '-') {
        const struct cli_command *cmd = cli_find_command(argv[1]);
        st = cmd == NULL ? cli_usage(c, "unknown command '%s'", argv[1])
                         : resolve(c, cmd, argc - 2, argv + 2, rows, false);
        if (st == ZP_OK)
            st = resolve(c, cmd, argc - 2, argv + 2, rows, true);
    } else {
        st = resolve_all(c, argc - 1, argv + 1, rows);
    }
    if (st == ZP_OK && c->help)
        help_print_command(stdout, c->command);
    else if (st == ZP_OK && c->json)
        st = cli_emit(c, json_pack("{s:O}", "options", rows));
    else if (st == ZP_OK)
        print_rows(rows);
    json_decref(rows);
    return st;
}

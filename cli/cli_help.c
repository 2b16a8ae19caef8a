/* cli_help.c: help on the terminal, as Markdown (docs/COMMANDS.md) and as JSON, all from the
 * command table. */
#include "cli.h"

#include <string.h>

#define WIDTH 96
#define LEFT 30 /* column where the explanation of an option begins */

/* Words of `text` wrapped at WIDTH, lines after the first indented; "\n\n" begins a paragraph. */
static void print_wrapped(FILE *f, const char *text, int column, int indent)
{
    for (const char *p = text; *p != '\0';) {
        if (p[0] == '\n') {
            fprintf(f, "\n%*s", indent, p[1] == '\n' ? "" : "");
            if (p[1] == '\n')
                fprintf(f, "\n%*s", indent, "");
            p += p[1] == '\n' ? 2 : 1;
            column = indent;
            continue;
        }
        int n = (int)strcspn(p, " \n");
        if (column > indent && column + 1 + n > WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        }
        if (column > indent)
            fputc(' ', f), column++;
        fprintf(f, "%.*s", n, p);
        column += n;
        p += n;
        p += *p == ' ';
    }
    fputc('\n', f);
}

static const struct cli_option *find_word(const struct cli_command *cmd, int n)
{
    for (size_t i = 0; i < cmd->n_options; i++) {
        if (cmd->options[i].word == n)
            return &cmd->options[i];
    }
    return NULL;
}

void help_usage_line(FILE *f, const struct cli_command *cmd, const char *prefix)
{
    const struct cli_option *o;
    fprintf(f, "%szerope %s", prefix, cmd->name);
    if (cmd->raw)
        fputs(" print [COMMAND]", f);
    for (int w = 1; (o = find_word(cmd, w)) != NULL; w++)
        fprintf(f, o->required ? " %s" : " [%s]", o->arg);
    for (size_t i = 0; i < cmd->n_options; i++) {
        o = &cmd->options[i];
        if (o->required && o->word == 0 && o->abbr != NULL)
            fprintf(f, " %s %s", o->abbr, o->arg);
        else if (o->required && o->word == 0)
            fprintf(f, " --%s %s", o->name, o->arg);
    }
    fputs(" [options]\n", f);
}

static void option_head(const struct cli_option *o, char *out, size_t size)
{
    snprintf(out, size, "%s%s--%s%s%s", o->abbr ? o->abbr : "", o->abbr ? ", " : "", o->name,
             o->arg ? " " : "", o->arg ? o->arg : "");
}

/* What stands in brackets after the explanation: choices, default, repeatability. */
static void option_notes(const struct cli_option *o, struct text *out)
{
    text_append(out, "", 0);
    if (o->choices != NULL) {
        text_append(out, " (", 2);
        for (const char *p = o->choices; *p != '\0'; p++)
            *p == '|' ? text_append(out, ", ", 2) : text_append(out, p, 1);
        text_append(out, ")", 1);
    }
    if (o->preset != NULL)
        text_printf(out, " [%s]", o->preset);
}

static void print_option(FILE *f, const struct cli_option *o)
{
    char head[96];
    struct text help = { 0 }, notes = { 0 };
    option_head(o, head, sizeof head);
    option_notes(o, &notes);
    text_printf(&help, "%s%s", o->help, notes.data);
    const char *gap = o->abbr == NULL ? "    " : "";
    int n = fprintf(f, "  %s%s", gap, head);
    if (n > LEFT - 2) {
        fputc('\n', f);
        n = 0;
    }
    fprintf(f, "%*s", LEFT - n, "");
    print_wrapped(f, help.data, LEFT, LEFT);
    text_free(&help);
    text_free(&notes);
}

void help_print_command(FILE *f, const struct cli_command *cmd)
{
    fprintf(f, "zerope %s: %s\n\n", cmd->name, cmd->summary);
    help_usage_line(f, cmd, "Usage: ");
    if (cmd->about != NULL) {
        fputc('\n', f);
        print_wrapped(f, cmd->about, 0, 0);
    }
    if (cmd->n_options > 0)
        fputs("\nOptions:\n", f);
    for (size_t i = 0; i < cmd->n_options; i++)
        print_option(f, &cmd->options[i]);
    fputs("\nCommon options:\n", f);
    for (size_t i = 0; i < cli_n_common_options; i++)
        print_option(f, &cli_common_options[i]);
    fputs("\nExamples:\n", f);
    for (size_t i = 0; i < cmd->n_examples; i++)
        fprintf(f, "  # %s\n  %s\n", cmd->examples[i].comment, cmd->examples[i].line);
    if (cmd->fields != NULL) {
        fputs("\nWith --json at least:", f);
        print_wrapped(f, cmd->fields, 21, 2);
    }
}

const struct cli_exit_code cli_exit_codes[] = {
    { 0, "ok" },
    { 1, "run error; no right to read or write there; a closed pipe or a failing device" },
    { 2, "usage: unknown or contradictory words and options" },
    { 3, "invalid model or input; a path that names no file, or no folder to write into" },
    { 4, "not enough memory or disk space, standard output on a full disk included" },
    { 5, "verification failed" },
    { 130, "interrupted" },
};
const size_t cli_n_exit_codes = CLI_COUNT(cli_exit_codes);
const char cli_error_document[] =
    "A command that fails with --json and has printed no document yet prints this one, and the "
    "message on stderr as well: {\"error\": {\"code\": \"ZP_BAD_FILE\", \"exit\": 3, "
    "\"message\": \"...\"}}. One that a signal ends at once, or whose model file shrinks while in "
    "use, prints none.";
static const char sources[] =
    "Each option can also be given in the environment (--ctx-size as ZEROPE_CTX_SIZE) or in a "
    "config file "
    "(--config FILE, one JSON object: {\"threads\": 2, \"run\": {\"temp\": 0.7}}). A flag goes "
    "before the "
    "environment, the environment before the config file, the config file before the default; "
    "zerope config print shows what holds.";

void help_print_overview(FILE *f)
{
    fprintf(
        f,
        "zerope %s: takes the positional encoding out of language models, and runs the result\n\n",
        zp_version());
    fputs("Usage: zerope COMMAND [words and options]\n\nCommands:\n", f);
    for (size_t i = 0; i < cli_n_commands; i++)
        fprintf(f, "  %-12s %s\n", cli_commands[i].name, cli_commands[i].summary);
    fputs("\n", f);
    print_wrapped(f, sources, 0, 0);
    fputs("\nExit codes:\n", f);
    for (size_t i = 0; i < cli_n_exit_codes; i++) {
        fprintf(f, "  %-4d", cli_exit_codes[i].code);
        print_wrapped(f, cli_exit_codes[i].text, 6, 6);
    }
    print_wrapped(f, cli_error_document, 0, 0);
    fputs("\nMore: zerope COMMAND --help, zerope help --man\n", f);
}

/* ---- Markdown ---------------------------------------------------------------------------- */
static void print_cell(FILE *f, const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '|' || *s == '<' || *s == '*')
            fputc('\\', f);
        fputc(*s, f);
    }
}

static void print_option_rows(FILE *f, const struct cli_option *options, size_t n)
{
    fputs("| option | meaning | environment |\n| --- | --- | --- |\n", f);
    for (size_t i = 0; i < n; i++) {
        char head[96], env[80];
        struct text notes = { 0 };
        option_head(&options[i], head, sizeof head);
        cli_env_name(&options[i], env, sizeof env);
        option_notes(&options[i], &notes);
        fprintf(f, "| `%s` | ", head);
        print_cell(f, options[i].help);
        print_cell(f, notes.data);
        fprintf(f, options[i].flag_only ? " | - |\n" : " | `%s` |\n", env);
        text_free(&notes);
    }
}

static void print_command_section(FILE *f, const struct cli_command *cmd)
{
    fprintf(f, "\n## zerope %s\n\n", cmd->name);
    fprintf(f, "%c%s.\n", cmd->summary[0] - ('a' - 'A'), cmd->summary + 1);
    if (cmd->about != NULL)
        fprintf(f, "\n%s\n", cmd->about);
    fputs("\n```\n", f);
    help_usage_line(f, cmd, "");
    fputs("```\n\n", f);
    if (cmd->n_options > 0)
        print_option_rows(f, cmd->options, cmd->n_options);
    if (cmd->fields != NULL)
        fprintf(f, "\nJSON (at least): `%s`\n", cmd->fields);
    fputs("\n```sh\n", f);
    for (size_t i = 0; i < cmd->n_examples; i++)
        fprintf(f, "# %s\n%s\n", cmd->examples[i].comment, cmd->examples[i].line);
    fputs("```\n", f);
}

void help_print_markdown(FILE *f)
{
    fputs("<!-- Made by `zerope help --markdown` from cli/commands.c; do not edit. -->\n# "
          "Commands\n\n",
          f);
    for (size_t i = 0; i < cli_n_commands; i++)
        fprintf(f, "- [`%s`](#zerope-%s): %s\n", cli_commands[i].name, cli_commands[i].name,
                cli_commands[i].summary);
    fprintf(f, "\n%s\n\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n", sources);
    for (size_t i = 0; i < cli_n_exit_codes; i++)
        fprintf(f, "| %d | %s |\n", cli_exit_codes[i].code, cli_exit_codes[i].text);
    fprintf(f, "\n%s\n\n## Options of every command\n\n", cli_error_document);
    print_option_rows(f, cli_common_options, cli_n_common_options);
    for (size_t i = 0; i < cli_n_commands; i++)
        print_command_section(f, &cli_commands[i]);
}

/* ---- JSON -------------------------------------------------------------------------------- */
static json_t *options_json(const struct cli_option *options, size_t n)
{
    static const char *const types[] = { "flag",  "text", "list", "file",
                                         "count", "int",  "real", "choice" };
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct cli_option *o = &options[i];
        char env[80];
        cli_env_name(o, env, sizeof env);
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s?, s:s, s:s?, s:s?, s:b, s:s?, s:s}",
                                              "name", o->name, "short", o->abbr, "argument", o->arg,
                                              "type", types[o->type], "default", o->preset,
                                              "choices", o->choices, "required", (int)o->required,
                                              "env", o->flag_only ? NULL : env, "help", o->help));
    }
    return list;
}

json_t *help_command_json(const struct cli_command *cmd)
{
    json_t *examples = json_array();
    for (size_t i = 0; i < cmd->n_examples; i++)
        json_array_append_new(examples, json_pack("{s:s, s:s}", "line", cmd->examples[i].line,
                                                  "comment", cmd->examples[i].comment));
    return json_pack("{s:s, s:s, s:s?, s:s?, s:o, s:o}", "name", cmd->name, "summary", cmd->summary,
                     "about", cmd->about, "fields", cmd->fields, "options",
                     options_json(cmd->options, cmd->n_options), "examples", examples);
}

json_t *help_json(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < cli_n_commands; i++)
        json_array_append_new(list, help_command_json(&cli_commands[i]));
    return json_pack("{s:s, s:o, s:o}", "version", zp_version(), "common_options",
                     options_json(cli_common_options, cli_n_common_options), "commands", list);
}

zp_status cmd_help(struct cli *c)
{
    const char *name = cli_text(c, "command");
    const struct cli_command *cmd = name != NULL ? cli_find_command(name) : NULL;
    if (name != NULL && cmd == NULL) {
        const char *names[64];
        for (size_t i = 0; i < cli_n_commands; i++)
            names[i] = cli_commands[i].name;
        const char *near = cli_near_miss(name, names, cli_n_commands);
        return cli_usage(c, "unknown command '%s'%s%s%s", name, near ? "; did you mean '" : "",
                         near ? near : "", near ? "'?" : "");
    }
    if (c->json)
        return cli_emit(c, cmd != NULL ? help_command_json(cmd) : help_json());
    if (cli_flag(c, "man"))
        man_print(stdout);
    else if (cli_flag(c, "markdown"))
        help_print_markdown(stdout);
    else if (cmd != NULL)
        help_print_command(stdout, cmd);
    else
        help_print_overview(stdout);
    return ZP_OK;
}

/* cli_completion.c: completions for bash, zsh and fish, from the command table, and the command
 * that prints them. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* ---- bash -------------------------------------------------------------------------------- */
static void bash_names(FILE *f, const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(f, " --%s", options[i].name);
        if (options[i].abbr != NULL)
            fprintf(f, " %s", options[i].abbr);
    }
}

/* One case branch an option that takes a value: its choices, or files. */
static void bash_values(FILE *f, const struct cli_command *cmd, const struct cli_option *options,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct cli_option *o = &options[i];
        if (o->type == OPTION_FLAG)
            continue;
        fprintf(f, "    %s:--%s", cmd != NULL ? cmd->name : "*", o->name);
        if (o->abbr != NULL)
            fprintf(f, "|%s:%s", cmd != NULL ? cmd->name : "*", o->abbr);
        fputs(") ", f);
        if (o->type == OPTION_CHOICE) {
            fputs("COMPREPLY=($(compgen -W '", f);
            for (const char *p = o->choices; *p != '\0'; p++)
                fputc(*p == '|' ? ' ' : *p, f);
            fputs("' -- \"$cur\")) ;;\n", f);
        } else if (o->type == OPTION_FILE) {
            fputs("COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n", f);
        } else {
            fputs(";;\n", f);
        }
    }
}

static void print_bash(FILE *f)
{
    fputs("# bash completion of zerope; made by: zerope completion bash\n"
          "_zerope() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
          "cmd=${COMP_WORDS[1]}\n"
          "  COMPREPLY=()\n"
          "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "    COMPREPLY=($(compgen -W '",
          f);
    for (size_t i = 0; i < cli_n_commands; i++)
        fprintf(f, "%s%s", i > 0 ? " " : "", cli_commands[i].name);
    fputs("' -- \"$cur\")); return\n  fi\n  case \"$cmd:$prev\" in\n", f);
    for (size_t i = 0; i < cli_n_commands; i++)
        bash_values(f, &cli_commands[i], cli_commands[i].options, cli_commands[i].n_options);
    bash_values(f, NULL, cli_common_options, cli_n_common_options);
    fputs("    *)\n      case \"$cur\" in\n      -*)\n        case \"$cmd\" in\n", f);
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *cmd = &cli_commands[i];
        fprintf(f, "        %s) COMPREPLY=($(compgen -W '", cmd->name);
        bash_names(f, cmd->options, cmd->n_options);
        bash_names(f, cli_common_options, cli_n_common_options);
        fputs("' -- \"$cur\")) ;;\n", f);
    }
    fputs("        esac ;;\n      *)\n        case \"$cmd\" in\n"
          "        completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\")) ;;\n"
          "        config) COMPREPLY=($(compgen -W 'print' -- \"$cur\")) ;;\n"
          "        help) COMPREPLY=($(compgen -W '",
          f);
    for (size_t i = 0; i < cli_n_commands; i++)
        fprintf(f, "%s%s", i > 0 ? " " : "", cli_commands[i].name);
    fputs("' -- \"$cur\")) ;;\n        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n        esac "
          ";;\n      esac ;;\n"
          "  esac\n}\ncomplete -o filenames -F _zerope zerope\n",
          f);
}

/* ---- zsh and fish ------------------------------------------------------------------------ */
/* Text within single quotes; `also` are further characters that get a backslash (zsh's _arguments).
 */
static void print_quoted(FILE *f, const char *s, const char *also)
{
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            fputs("'\\''", f);
            continue;
        }
        if (strchr(also, *s) != NULL)
            fputc('\\', f);
        fputc(*s, f);
    }
}

static void zsh_option(FILE *f, const struct cli_option *o)
{
    const char *names[2] = { o->name, o->abbr };
    for (int k = 0; k < 2; k++) {
        if (names[k] == NULL)
            continue;
        fprintf(f, " \\\n        '%s%s%s[", o->type == OPTION_LIST ? "*" : "", k == 0 ? "--" : "",
                names[k]);
        print_quoted(f, o->help, "[]:\\");
        fputs("]", f);
        if (o->type == OPTION_CHOICE) {
            fprintf(f, ":%s:(", o->arg);
            for (const char *p = o->choices; *p != '\0'; p++)
                fputc(*p == '|' ? ' ' : *p, f);
            fputs(")", f);
        } else if (o->type != OPTION_FLAG) {
            fprintf(f, ":%s:%s", o->arg, o->type == OPTION_FILE ? "_files" : " ");
        }
        fputs("'", f);
    }
}

static void zsh_words(FILE *f, const struct cli_command *cmd)
{
    bool any = false;
    for (size_t i = 0; i < cmd->n_options; i++) {
        const struct cli_option *o = &cmd->options[i];
        if (o->word == 0)
            continue;
        any = true;
        if (cmd->run == cmd_help)
            fputs(" \\\n        '1:COMMAND:_zerope_commands'", f);
        else if (o->type == OPTION_CHOICE)
            fprintf(f, " \\\n        '%d:%s:(bash zsh fish)'", o->word, o->arg);
        else
            fprintf(f, " \\\n        '%d:%s:_files'", o->word, o->arg);
    }
    if (!any && cmd->raw)
        fputs(" \\\n        '1:action:(print)' '2:COMMAND:_zerope_commands'", f);
}

static void print_zsh(FILE *f)
{
    fputs("#compdef zerope\n# zsh completion of zerope; made by: zerope completion zsh\n"
          "_zerope_commands() {\n  local -a commands=(\n",
          f);
    for (size_t i = 0; i < cli_n_commands; i++) {
        fprintf(f, "    '%s:", cli_commands[i].name);
        print_quoted(f, cli_commands[i].summary, ":\\");
        fputs("'\n", f);
    }
    fputs("  )\n  _describe command commands\n}\n"
          "_zerope() {\n  local state line context\n  typeset -A opt_args\n"
          "  _arguments -C '1: :_zerope_commands' '*:: :->rest'\n"
          "  case $state in\n  rest)\n    case $words[1] in\n",
          f);
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *cmd = &cli_commands[i];
        fprintf(f, "    %s)\n      _arguments", cmd->name);
        for (size_t k = 0; k < cmd->n_options; k++)
            zsh_option(f, &cmd->options[k]);
        for (size_t k = 0; k < cli_n_common_options; k++)
            zsh_option(f, &cli_common_options[k]);
        zsh_words(f, cmd);
        fputs(" ;;\n", f);
    }
    fputs(
        "    esac ;;\n  esac\n}\nif [ \"$funcstack[1]\" = _zerope ]; then\n  _zerope \"$@\"\nelse\n"
        "  compdef _zerope zerope\nfi\n",
        f);
}

static void fish_option(FILE *f, const struct cli_option *o, const char *condition)
{
    fprintf(f, "complete -c zerope -n '%s' -l %s", condition, o->name);
    if (o->abbr != NULL)
        fprintf(f, strlen(o->abbr) == 2 ? " -s %s" : " -o %s", o->abbr + 1);
    if (o->type == OPTION_FILE)
        fputs(" -r -F", f);
    else if (o->type != OPTION_FLAG)
        fputs(" -x", f);
    if (o->type == OPTION_CHOICE) {
        fputs(" -a '", f);
        for (const char *p = o->choices; *p != '\0'; p++)
            fputc(*p == '|' ? ' ' : *p, f);
        fputs("'", f);
    }
    fputs(" -d '", f);
    for (const char *p = o->help; *p != '\0'; p++) {
        if (*p == '\'' || *p == '\\')
            fputc('\\', f);
        fputc(*p, f);
    }
    fputs("'\n", f);
}

static void print_fish(FILE *f)
{
    fputs("# fish completion of zerope; made by: zerope completion fish\n", f);
    for (size_t i = 0; i < cli_n_commands; i++)
        fprintf(f, "complete -c zerope -f -n __fish_use_subcommand -a %s -d '%s'\n",
                cli_commands[i].name, cli_commands[i].summary);
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *cmd = &cli_commands[i];
        char condition[96];
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", cmd->name);
        if (cmd->run == cmd_completion)
            fprintf(f, "complete -c zerope -f -n '%s' -a 'bash zsh fish'\n", condition);
        if (cmd->run == cmd_config)
            fprintf(f, "complete -c zerope -f -n '%s' -a print\n", condition);
        for (size_t k = 0; k < cmd->n_options; k++)
            fish_option(f, &cmd->options[k], condition);
    }
    for (size_t k = 0; k < cli_n_common_options; k++)
        fish_option(f, &cli_common_options[k], "not __fish_use_subcommand");
}

bool completion_print(FILE *f, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        return print_bash(f), true;
    if (strcmp(shell, "zsh") == 0)
        return print_zsh(f), true;
    if (strcmp(shell, "fish") == 0)
        return print_fish(f), true;
    return false;
}

zp_status cmd_completion(struct cli *c)
{
    const char *shell = cli_text(c, "shell");
    if (!c->json)
        return completion_print(stdout, shell) ? ZP_OK : cli_usage(c, "unknown shell '%s'", shell);
    char *script = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&script, &size);
    if (f == NULL)
        return cli_fail(c, ZP_NO_MEMORY, "not enough memory for the completions");
    completion_print(f, shell);
    fclose(f);
    json_t *doc = json_pack("{s:s, s:s%}", "shell", shell, "script", script, size);
    free(script);
    return cli_emit(c, doc);
}

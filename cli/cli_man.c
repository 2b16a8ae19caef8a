/* cli_man.c: the manual page zerope(1), one page for all commands, from the command table. */
#include "cli.h"

#include <string.h>

/* Text with what roff takes as its own escaped: backslashes, hyphens, dots and quotes at the start
 * of a line. */
static void print_roff(FILE *f, const char *s)
{
    bool line_start = true;
    for (; *s != '\0'; s++) {
        if (s[0] == '\n' && s[1] == '\n') {
            fputs("\n.PP\n", f);
            s++;
            line_start = true;
            continue;
        }
        if (line_start && (*s == '.' || *s == '\''))
            fputs("\\&", f);
        if (*s == '\\')
            fputs("\\e", f);
        else if (*s == '-')
            fputs("\\-", f);
        else if (*s == '\'')
            fputs("\\(aq", f);
        else
            fputc(*s, f);
        line_start = *s == '\n';
    }
}

static void print_option(FILE *f, const struct cli_option *o)
{
    fputs(".TP\n", f);
    if (o->abbr != NULL) {
        fputs("\\fB", f);
        print_roff(f, o->abbr);
        fputs("\\fR, ", f);
    }
    fputs("\\fB\\-\\-", f);
    print_roff(f, o->name);
    fputs("\\fR", f);
    if (o->arg != NULL)
        fprintf(f, " \\fI%s\\fR", o->arg);
    fputs("\n", f);
    print_roff(f, o->help);
    if (o->choices != NULL) {
        fputs(" (", f);
        for (const char *p = o->choices; *p != '\0'; p++)
            *p == '|' ? fputs(", ", f) : fputc(*p, f);
        fputs(")", f);
    }
    fputs(".", f);
    if (o->preset != NULL) {
        fputs(" Default: ", f);
        print_roff(f, o->preset);
        fputs(".", f);
    }
    fputs("\n", f);
}

static void print_command(FILE *f, const struct cli_command *cmd)
{
    fprintf(f, ".SS zerope %s\n", cmd->name);
    print_roff(f, cmd->summary);
    fputs(".\n.PP\n.nf\n", f);
    help_usage_line(f, cmd, "");
    fputs(".fi\n", f);
    if (cmd->about != NULL) {
        fputs(".PP\n", f);
        print_roff(f, cmd->about);
        fputs("\n", f);
    }
    for (size_t i = 0; i < cmd->n_options; i++)
        print_option(f, &cmd->options[i]);
    if (cmd->fields != NULL) {
        fputs(".PP\nWith \\-\\-json at least: ", f);
        print_roff(f, cmd->fields);
        fputs(".\n", f);
    }
    fputs(".PP\nExamples:\n", f);
    for (size_t i = 0; i < cmd->n_examples; i++) {
        fputs(".PP\n.RS\n.nf\n# ", f);
        print_roff(f, cmd->examples[i].comment);
        fputs("\n", f);
        print_roff(f, cmd->examples[i].line);
        fputs("\n.fi\n.RE\n", f);
    }
}

void man_print(FILE *f)
{
    fprintf(f, ".TH ZEROPE 1 \"\" \"zerope %s\" \"User Commands\"\n", zp_version());
    fputs(".SH NAME\nzerope \\- take the positional encoding out of language models, and run the "
          "result\n"
          ".SH SYNOPSIS\n.B zerope\n\\fICOMMAND\\fR [\\fIwords and options\\fR]\n"
          ".SH DESCRIPTION\n"
          "zerope takes the explicit positional encoding (RoPE rotations) out of a trained "
          "language model as far\n"
          "as a budget on measured KL allows, checks that nothing else broke, and runs the result, "
          "or an ordinary\n"
          "GGUF model, on CPUs.\n"
          ".PP\n"
          "Each option can also be given in the environment (\\-\\-ctx\\-size as ZEROPE_CTX_SIZE) "
          "or in a config\n"
          "file; a flag goes before the environment, the environment before the file, the file "
          "before the\n"
          "default.\n",
          f);
    fputs(".SH COMMANDS\n", f);
    for (size_t i = 0; i < cli_n_commands; i++)
        print_command(f, &cli_commands[i]);
    fputs(".SH COMMON OPTIONS\n", f);
    for (size_t i = 0; i < cli_n_common_options; i++)
        print_option(f, &cli_common_options[i]);
    fputs(".SH EXIT STATUS\n", f);
    for (size_t i = 0; i < cli_n_exit_codes; i++)
        fprintf(f, ".TP\n%d\n%s\n", cli_exit_codes[i].code, cli_exit_codes[i].text);
    fputs(".PP\n", f);
    print_roff(f, cli_error_document);
    fputs("\n.SH ENVIRONMENT\n.TP\n\\fBZEROPE_*\\fR\nvalues of options, as above\n"
          ".TP\n\\fBNO_COLOR\\fR\nno colours\n",
          f);
}

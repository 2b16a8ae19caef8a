/* zerope.c: the program's entry: picks the command, prints its failure, turns it into an exit code.
 */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static zp_status record(struct cli *c, zp_status code, const char *fmt, va_list args)
{
    if (c->err.code == ZP_OK) { /* the first failure wins, as in the library */
        vsnprintf(c->err.message, sizeof c->err.message, fmt, args);
        c->err.code = code;
    }
    return code;
}

zp_status cli_fail(struct cli *c, zp_status code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    zp_status st = record(c, code, fmt, args);
    va_end(args);
    return st;
}

zp_status cli_usage(struct cli *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    zp_status st = record(c, ZP_USAGE, fmt, args);
    va_end(args);
    return st;
}

static void log_to_stderr(void *arg, int level, const char *text)
{
    (void)arg;
    static const char *const names[] = { "error", "warning", "note", "debug" };
    progress_clear();
    fprintf(stderr, "zerope: %s: %s\n", names[level < 0 ? 0 : level > 3 ? 3 : level], text);
}

static bool wants_json(int argc, char **argv)
{
    const char *env = getenv("ZEROPE_JSON");
    bool json = env != NULL && (strcmp(env, "1") == 0 || strcmp(env, "true") == 0);
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
    }
    return json;
}

json_t *cli_error_json(const struct cli *c, zp_status st)
{
    json_t *message = cli_json_text(c->err.message, strlen(c->err.message));
    return json_pack("{s:s, s:i, s:o}", "code", zp_status_name(st), "exit",
                     zp_status_exit_code(st), "message", message);
}

/* A failed command still prints its one document with --json, unless it printed one already
 * (verify). */
static void report_failure(struct cli *c, zp_status st)
{
    if (c->err.message[0] == '\0')
        snprintf(c->err.message, sizeof c->err.message, "%s", zp_status_text(st));
    progress_clear();
    bool color = cli_color(stderr);
    fprintf(stderr, "zerope: %serror:%s %s\n", color ? "\033[1;31m" : "", color ? "\033[0m" : "",
            c->err.message);
    if (c->verbose && c->err.file != NULL)
        fprintf(stderr, "zerope: note: raised at %s:%d (%s)\n", c->err.file, c->err.line,
                zp_status_name(st));
    if (st == ZP_USAGE && c->command != NULL)
        fprintf(stderr, "try: zerope %s --help\n", c->command->name);
    if (c->json && !c->wrote_document)
        cli_emit(c, json_pack("{s:o}", "error", cli_error_json(c, st)));
}

static zp_status run_command(struct cli *c)
{
    if (c->command->raw) {
        zp_log_set(log_to_stderr, NULL, 1);
        return c->command->run(c);
    }
    CLI_TRY(cli_parse(c));
    if (c->help) {
        if (c->json)
            return cli_emit(c, help_command_json(c->command));
        help_print_command(stdout, c->command);
        return ZP_OK;
    }
    zp_log_set(log_to_stderr, NULL, c->quiet ? 0 : c->verbose ? 3 : 1);
    return c->command->run(c);
}

static int finish(struct cli *c, zp_status st)
{
    zp_status flushed = cli_flush(c);
    if (st == ZP_OK)
        st = flushed;
    progress_clear();
    if (st != ZP_OK) {
        report_failure(c, st);
        fflush(stdout);
    }
    int code = zp_status_exit_code(st);
    cli_free(c);
    return code;
}

static int unknown_command(const char *word, int argc, char **argv)
{
    const char *names[64];
    for (size_t i = 0; i < cli_n_commands; i++)
        names[i] = cli_commands[i].name;
    const char *near = cli_near_miss(word, names, cli_n_commands);
    struct cli c = { .json = wants_json(argc, argv) };
    zp_status st = word[0] == '-' ? cli_usage(&c, "unknown option %s; a command comes first", word)
                   : near ? cli_usage(&c, "unknown command '%s'; did you mean '%s'?", word, near)
                          : cli_usage(&c, "unknown command '%s'; zerope help lists them", word);
    return finish(&c, st);
}

/* evaporate --train is anneal: takes the word out. */
static bool asks_to_train(int *argc, char **argv)
{
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--train") != 0)
            continue;
        /* with the last NULL */
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
        --*argc;
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error with a message, not a death */
    interrupt_install();
    cli_open_output();
    if (argc < 2) {
        help_print_overview(stderr);
        return zp_status_exit_code(ZP_USAGE);
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0)
        word = "version";
    int n_words = argc - 2;
    if (strcmp(word, "evaporate") == 0 && asks_to_train(&n_words, argv + 2))
        word = "anneal";
    const struct cli_command *command = cli_find_command(word);
    if (command == NULL)
        return unknown_command(word, n_words, argv + 2);
    struct cli c;
    cli_init(&c, command, n_words, argv + 2);
    c.json = wants_json(n_words, argv + 2);
    return finish(&c, run_command(&c));
}

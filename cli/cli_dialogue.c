/* cli_dialogue.c: a line in, an answer out: what the conversations of chat share, whoever answers.
 * D1 `messages` is what the next answer is given to.
 * D2 a line that cannot be answered is refused and taken back; the conversation goes on, and a
 *    script hears of it by the exit code. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dialogue_open(struct dialogue *d, struct cli *c)
{
    *d = (struct dialogue){
        .c = c, .messages = json_array(), .terminal = isatty(STDIN_FILENO)
    };
    dialogue_reset(d);
}

void dialogue_close(struct dialogue *d)
{
    json_decref(d->messages);
    d->messages = NULL;
}

void dialogue_reset(struct dialogue *d)
{
    const char *system = cli_text(d->c, "system");
    json_array_clear(d->messages);
    if (system != NULL)
        json_array_append_new(d->messages, cli_message("system", system, strlen(system)));
}

void dialogue_answered(struct dialogue *d, const char *text, size_t size)
{
    json_array_append_new(d->messages, cli_message("assistant", text, size));
}

json_t *cli_message(const char *role, const char *text, size_t size)
{
    return json_pack("{s:s, s:o}", "role", role, "content", cli_json_text(text, size));
}

/* D2 */
static void refuse(struct dialogue *d)
{
    struct cli *c = d->c;
    fprintf(stderr, "zerope: error: %s\n", c->err.message);
    if (d->n_refused++ == 0)
        d->refused = c->err;
    c->err = (zp_err){ 0 };
}

/* A turn that fails for its text is taken back; other failures end a script, but not someone at a
 * terminal. */
static zp_status take_turn(struct dialogue *d, const char *line, size_t size)
{
    struct cli *c = d->c;
    size_t before = json_array_size(d->messages);
    zp_status st = ZP_OK;
    if (memchr(line, '\0', size) != NULL)
        st = cli_fail(c, ZP_BAD_INPUT, "a message cannot hold a NUL byte");
    if (st == ZP_OK) /* a message is a JSON string, where bad bytes would be replaced */
        st = d->check(d->arg, line, size);
    if (st == ZP_OK) {
        json_array_append_new(d->messages, cli_message("user", line, size));
        st = d->answer(d->arg);
    }
    bool goes_on = st == ZP_BAD_INPUT || d->terminal;
    if (st == ZP_OK || st == ZP_INTERRUPTED || !goes_on || d->lost)
        return st;
    refuse(d);
    while (json_array_size(d->messages) > before)
        json_array_remove(d->messages, before);
    return ZP_OK;
}

static zp_status take_line(struct dialogue *d, const char *line, size_t size, bool *end)
{
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) {
        *end = true;
    } else if (strcmp(line, "/reset") == 0) {
        dialogue_reset(d);
    } else if (line[0] == '/') {
        cli_usage(d->c, "unknown command %.60s; there are /reset and /exit (a message that "
                  "begins with / gets a blank before it)", line);
        refuse(d);
    } else if (size > 0) {
        return take_turn(d, line, size);
    }
    return ZP_OK;
}

zp_status dialogue_run(struct dialogue *d)
{
    struct cli *c = d->c;
    char *line = NULL;
    size_t room = 0;
    zp_status st = ZP_OK;
    bool end = false;
    while (st == ZP_OK && !end && !ferror(stdout)) {
        if (d->terminal) {
            fputs("> ", stderr);
            fflush(stderr);
        }
        interrupt_defer(false); /* waiting for a line there is nothing to clean up */
        errno = 0;
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0 && ferror(stdin))
            st = cli_fail(c, ZP_IO, "standard input: cannot read: %s", strerror(errno));
        if (n < 0)
            break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        st = take_line(d, line, (size_t)n, &end);
    }
    free(line);
    return st;
}

zp_status dialogue_verdict(struct dialogue *d, zp_status st)
{
    if (st != ZP_OK || d->n_refused == 0 || d->terminal)
        return st;
    return cli_fail(d->c, d->refused.code, "%zu of the lines got no answer; the first: %.400s",
                    d->n_refused, d->refused.message);
}

/* cmd_chat.c: chat: a line in, an answer out; earlier turns stay in the sequence and are not
 * computed again. C1 `held` are the ids whose keys the sequence holds, in order.  C2 `messages` is
 * what the next rendering shows.  C3 a line that cannot be answered is refused and taken back; the
 * conversation goes on, and a script hears of it by the exit code. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat {
    struct generation g;
    json_t *messages;
    int32_t *held; /* (n_held) */
    size_t n_held;
    bool terminal; /* someone types */
    zp_err refused; /* the first line that got no answer */
    size_t n_refused;
};

#define MORE_ROOM "/reset starts over, --ctx-size N gives more room"

static void reset(struct chat *chat)
{
    const char *system = cli_text(chat->g.c, "system");
    json_array_clear(chat->messages);
    if (system != NULL)
        json_array_append_new(chat->messages, generation_message("system", system, strlen(system)));
}

/* Cuts the sequence back to what it shares with the new rendering, at least one token short of it,
 * so that there is something to compute. A sequence that cannot be cut (local heads dropped those
 * keys) begins anew. */
static zp_status reuse(struct chat *chat, const int32_t *ids, size_t n, size_t *shared)
{
    size_t k = 0;
    while (k < chat->n_held && k + 1 < n && chat->held[k] == ids[k])
        k++;
    *shared = k;
    if (k == chat->n_held || zp_seq_truncate(chat->g.seq, (uint32_t)k, NULL) == ZP_OK)
        return ZP_OK;
    *shared = 0;
    zp_seq_close(chat->g.seq);
    chat->g.seq = NULL;
    return zp_seq_open(&chat->g.seq, chat->g.engine, &chat->g.seq_options, &chat->g.c->err);
}

/* Notes which ids the sequence holds now: the prompt's and those generated, as far as its length
 * goes. */
static void remember(struct chat *chat, const int32_t *ids, size_t n, const zp_generated *out)
{
    size_t length = zp_seq_length(chat->g.seq);
    chat->held = cli_resize(chat->held, (n + out->n_ids + 1) * sizeof *chat->held);
    memcpy(chat->held, ids, n * sizeof *ids);
    if (out->n_ids > 0)
        memcpy(chat->held + n, out->ids, out->n_ids * sizeof *ids);
    chat->n_held = length < n + out->n_ids ? length : n + out->n_ids;
}

/* An answer that the context cut short looks finished; the next line would not fit. */
static void note_full(const struct chat *chat)
{
    const struct generation *g = &chat->g;
    if (!g->c->quiet && zp_seq_length(g->seq) + 1 >= g->engine_options.n_ctx)
        fprintf(stderr, "zerope: note: the context of %u tokens is full: " MORE_ROOM "\n",
                g->engine_options.n_ctx);
}

static zp_status answer(struct chat *chat)
{
    int32_t *ids = NULL;
    size_t n = 0, shared = 0;
    zp_generated out = { 0 };
    zp_status st = generation_render(&chat->g, chat->messages, &ids, &n);
    if (st == ZP_OK && n == 0)
        st = cli_fail(chat->g.c, ZP_BAD_INPUT, "the chat template makes an empty prompt");
    if (st == ZP_OK && n >= chat->g.engine_options.n_ctx)
        st =
            cli_fail(chat->g.c, ZP_BAD_INPUT,
                     "the conversation of %zu tokens does not fit into the context of %u with room "
                     "for an answer: " MORE_ROOM,
                     n, chat->g.engine_options.n_ctx);
    if (st == ZP_OK)
        st = reuse(chat, ids, n, &shared);
    if (st == ZP_OK) {
        chat->g.options.history = ids;
        chat->g.options.n_history = shared;
        chat->g.n_reused += shared;
        st = generation_run(&chat->g, ids + shared, n - shared, &out);
    }
    bool finished = out.reason != NULL;
    if (finished) {
        remember(chat, ids, n, &out);
        json_array_append_new(chat->messages,
                              generation_message("assistant", out.text, strlen(out.text)));
    } else if (chat->g.seq != NULL) {
        chat->n_held =
            zp_seq_length(chat->g.seq) < chat->n_held ? zp_seq_length(chat->g.seq) : chat->n_held;
    }
    if (finished && !chat->g.c->json && !chat->g.ends_with_newline)
        printf("\n");
    chat->g.ends_with_newline = true;
    fflush(stdout);
    if (finished && strcmp(out.reason, "length") == 0)
        note_full(chat);
    generation_free_result(&out);
    zp_free(ids);
    return st;
}

/* C3 */
static void refuse(struct chat *chat)
{
    struct cli *c = chat->g.c;
    fprintf(stderr, "zerope: error: %s\n", c->err.message);
    if (chat->n_refused++ == 0)
        chat->refused = c->err;
    c->err = (zp_err){ 0 };
}

/* A turn that fails for its text is taken back; other failures end a script, but not someone at a
 * terminal. */
static zp_status take_turn(struct chat *chat, const char *line, size_t size)
{
    struct cli *c = chat->g.c;
    int32_t *ids = NULL;
    size_t n = 0, before = json_array_size(chat->messages);
    zp_status st = ZP_OK;
    if (memchr(line, '\0', size) != NULL)
        st = cli_fail(c, ZP_BAD_INPUT, "a message cannot hold a NUL byte");
    if (st == ZP_OK) /* refuses invalid UTF-8 */
        st = zp_tokenize(chat->g.model, line, size, 0, &ids, &n, &c->err);
    zp_free(ids);
    if (st == ZP_OK) {
        json_array_append_new(chat->messages, generation_message("user", line, size));
        st = answer(chat);
    }
    bool goes_on = st == ZP_BAD_INPUT || chat->terminal;
    if (st == ZP_OK || st == ZP_INTERRUPTED || !goes_on || chat->g.seq == NULL)
        return st;
    refuse(chat);
    while (json_array_size(chat->messages) > before)
        json_array_remove(chat->messages, before);
    return ZP_OK;
}

static zp_status take_line(struct chat *chat, const char *line, size_t size, bool *end)
{
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) {
        *end = true;
    } else if (strcmp(line, "/reset") == 0) {
        reset(chat);
    } else if (line[0] == '/') {
        cli_usage(chat->g.c, "unknown command %.60s; there are /reset and /exit (a message that "
                  "begins with / gets a blank before it)", line);
        refuse(chat);
    } else if (size > 0) {
        return take_turn(chat, line, size);
    }
    return ZP_OK;
}

static zp_status loop(struct chat *chat)
{
    char *line = NULL;
    size_t room = 0;
    zp_status st = ZP_OK;
    bool end = false;
    while (st == ZP_OK && !end && !ferror(stdout)) {
        if (chat->terminal) {
            fputs("> ", stderr);
            fflush(stderr);
        }
        interrupt_defer(false); /* waiting for a line there is nothing to clean up */
        errno = 0;
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0 && ferror(stdin))
            st = cli_fail(chat->g.c, ZP_IO, "standard input: cannot read: %s", strerror(errno));
        if (n < 0)
            break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        st = take_line(chat, line, (size_t)n, &end);
    }
    free(line);
    return st;
}

zp_status cmd_chat(struct cli *c)
{
    struct chat chat = { .terminal = isatty(STDIN_FILENO) };
    CLI_TRY(generation_open(&chat.g, c));
    chat.messages = json_array();
    reset(&chat);
    zp_status st = generation_check_template(&chat.g); /* before someone types */
    if (st == ZP_OK)
        st = generation_start(&chat.g, 0);
    if (st == ZP_OK)
        st = loop(&chat);
    bool finished = chat.g.seq != NULL && (st == ZP_OK || st == ZP_INTERRUPTED);
    if (finished && c->json)
        cli_emit(c, json_pack("{s:O, s:o}", "messages", chat.messages, "timings",
                              generation_timings(&chat.g)));
    if (finished)
        generation_print_timings(&chat.g, NULL);
    if (st == ZP_OK && chat.n_refused > 0 && !chat.terminal)
        st = cli_fail(c, chat.refused.code, "%zu of the lines got no answer; the first: %.400s",
                      chat.n_refused, chat.refused.message);
    json_decref(chat.messages);
    free(chat.held);
    generation_close(&chat.g);
    return st;
}

/* cmd_chat.c: chat with a model here: earlier turns stay in the sequence and are not computed
 * again. C1 `held` are the ids whose keys the sequence holds, in order. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

struct chat {
    struct generation g;
    struct dialogue talk;
    int32_t *held; /* (n_held) */
    size_t n_held;
};

#define MORE_ROOM "/reset starts over, --ctx-size N gives more room"

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
    zp_status st =
        zp_seq_open(&chat->g.seq, chat->g.engine, &chat->g.seq_options, &chat->g.c->err);
    chat->talk.lost = chat->g.seq == NULL;
    return st;
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

static zp_status answer(void *arg)
{
    struct chat *chat = arg;
    int32_t *ids = NULL;
    size_t n = 0, shared = 0;
    zp_generated out = { 0 };
    zp_status st = generation_render(&chat->g, chat->talk.messages, &ids, &n);
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
        dialogue_answered(&chat->talk, out.text, strlen(out.text));
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

/* Refuses invalid UTF-8. */
static zp_status check(void *arg, const char *line, size_t size)
{
    struct chat *chat = arg;
    int32_t *ids = NULL;
    size_t n = 0;
    zp_status st = zp_tokenize(chat->g.model, line, size, 0, &ids, &n, &chat->g.c->err);
    zp_free(ids);
    return st;
}

static zp_status chat_here(struct cli *c)
{
    struct chat chat = { 0 };
    CLI_TRY(generation_open(&chat.g, c));
    dialogue_open(&chat.talk, c);
    chat.talk.check = check;
    chat.talk.answer = answer;
    chat.talk.arg = &chat;
    zp_status st = generation_check_template(&chat.g); /* before someone types */
    if (st == ZP_OK)
        st = generation_start(&chat.g, 0);
    if (st == ZP_OK)
        st = dialogue_run(&chat.talk);
    bool finished = chat.g.seq != NULL && (st == ZP_OK || st == ZP_INTERRUPTED);
    if (finished && c->json)
        cli_emit(c, json_pack("{s:O, s:o}", "messages", chat.talk.messages, "timings",
                              generation_timings(&chat.g)));
    if (finished)
        generation_print_timings(&chat.g, NULL);
    st = dialogue_verdict(&chat.talk, st);
    dialogue_close(&chat.talk);
    free(chat.held);
    generation_close(&chat.g);
    return st;
}

zp_status cmd_chat(struct cli *c)
{
    static const char *const of_servers[] = { "api-key", "api-key-file", "ca-file", "patience" };
    if (cli_text(c, "server") != NULL)
        return chat_there(c);
    for (size_t i = 0; i < CLI_COUNT(of_servers); i++) {
        if (cli_value(c, of_servers[i])->origin == ORIGIN_FLAG)
            return cli_usage(c, "--%s is for --server", of_servers[i]);
    }
    if (cli_text(c, "model") == NULL)
        return cli_usage(c, "MODEL is missing: give it as a word, with -m or in ZEROPE_MODEL; or "
                            "--server URL");
    return chat_here(c);
}

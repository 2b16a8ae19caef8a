/* cli_remote.c: chat with a server somewhere else.
 * R1 of the options only those are sent that were given, but for the temperature: without it the
 *    answer would depend on the server's taste.
 * R2 Ctrl-C at a terminal ends the answer, not the program; what came of it stays in the
 *    conversation.  R3 nothing that a server sends acts on a terminal. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zerope/client.h>

struct remote {
    struct cli *c;
    zp_client *client;
    json_t *request; /* all but the messages */
    struct dialogue talk;
    bool plain;             /* standard output is a terminal: R3 */
    bool ends_with_newline; /* what was shown so far */
    size_t n_answers;
    uint64_t n_prompt, n_reused, n_generated;
    double first_seconds, seconds; /* of all answers */
};

/* ---- options ----------------------------------------------------------------------------- */
/* What a server decides for itself. */
static zp_status refuse_local_options(struct cli *c)
{
    static const char *const local[] = { "ctx-size",     "draft",         "allow-unverified-mode",
                                         "batch-size",   "cache-type-k",  "cache-type-v",
                                         "cpu",          "exact",         "pin",
                                         "no-pack-cache", "chat-template", "pre" };
    if (cli_flag(c, "offline"))
        return cli_usage(c, "--server needs the network, and --offline forbids it");
    for (size_t i = 0; i < CLI_COUNT(local); i++) {
        if (cli_value(c, local[i])->origin == ORIGIN_FLAG)
            return cli_usage(c, "--%s is the server's to decide: leave it out with --server",
                             local[i]);
    }
    return ZP_OK;
}

static void put_reals(struct cli *c, json_t *request)
{
    static const char *const options[] = { "top-p", "min-p", "repeat-penalty" };
    static const char *const fields[] = { "top_p", "min_p", "repeat_penalty" };
    json_object_set_new(request, "temperature", json_real(cli_real(c, "temp"))); /* R1 */
    for (size_t i = 0; i < CLI_COUNT(options); i++) {
        if (cli_given(c, options[i]))
            json_object_set_new(request, fields[i], json_real(cli_real(c, options[i])));
    }
}

static zp_status put_form(struct cli *c, json_t *request)
{
    const char *file = cli_text(c, "grammar-file"), *schema = cli_text(c, "json-schema");
    struct text text = { 0 };
    if (file == NULL && schema == NULL)
        return ZP_OK;
    CLI_TRY(cli_read_grammar(c, &text));
    json_error_t e;
    json_t *value = file != NULL ? cli_json_text(text.data, text.size)
                                 : json_loadb(text.data, text.size, 0, &e);
    text_free(&text);
    if (value == NULL)
        return cli_fail(c, ZP_BAD_INPUT, "--json-schema: not JSON: line %d: %s", e.line, e.text);
    if (file != NULL)
        json_object_set_new(request, "grammar", value);
    else
        json_object_set_new(request, "response_format",
                            json_pack("{s:s, s:{s:s, s:o}}", "type", "json_schema", "json_schema",
                                      "name", "answer", "schema", value));
    return ZP_OK;
}

static zp_status read_request(struct remote *r)
{
    struct cli *c = r->c;
    const struct cli_value *stop = cli_value(c, "stop"), *model = cli_value(c, "model");
    int64_t n = cli_int(c, "n-predict"), seed = cli_int(c, "seed");
    CLI_TRY(cli_check_generation(c));
    /* ZEROPE_MODEL and a config file name files here. */
    if (model->origin == ORIGIN_FLAG || model->origin == ORIGIN_WORD)
        json_object_set_new(r->request, "model",
                            cli_json_text(cli_text(c, "model"), strlen(cli_text(c, "model"))));
    put_reals(c, r->request);
    if (cli_given(c, "top-k"))
        json_object_set_new(r->request, "top_k", json_integer(cli_int(c, "top-k")));
    if (n > 0)
        json_object_set_new(r->request, "max_tokens", json_integer(n));
    if (seed >= 0)
        json_object_set_new(r->request, "seed", json_integer(seed));
    if (cli_given(c, "mode"))
        json_object_set_new(r->request, "position_mode", json_string(cli_text(c, "mode")));
    if (stop->n > 0) {
        json_t *list = json_array();
        for (size_t i = 0; i < stop->n; i++)
            json_array_append_new(list, cli_json_text(stop->texts[i], strlen(stop->texts[i])));
        json_object_set_new(r->request, "stop", list);
    }
    return put_form(c, r->request);
}

/* The flag, the file's one word, or the variable; *key stays NULL where there is none. */
static zp_status read_key(struct cli *c, struct text *file, const char **key)
{
    const char *path = cli_text(c, "api-key-file"), *variable = getenv("ZEROPE_API_KEY");
    *key = cli_text(c, "api-key");
    if (*key != NULL && path != NULL)
        return cli_usage(c, "--api-key and --api-key-file exclude each other");
    if (*key == NULL && path == NULL && variable != NULL && *variable != '\0')
        *key = variable;
    if (path == NULL)
        return ZP_OK;
    CLI_TRY(cli_read_file(c, path, 4096, file));
    char *word = file->data + strspn(file->data, " \t\r\n");
    size_t n = strcspn(word, " \t\r\n");
    if (n == 0 || word[n + strspn(word + n, " \t\r\n")] != '\0')
        return cli_fail(c, ZP_BAD_INPUT, "%s: expected one word, the key, and nothing else", path);
    word[n] = '\0';
    *key = word;
    return ZP_OK;
}

/* Who listens on the way would have the key. */
static void note_open_key(const struct cli *c, const char *url, const char *key)
{
    static const char *const here[] = { "http://127.", "http://localhost", "http://[::1]" };
    bool safe = key == NULL || strncmp(url, "http://", 7) != 0;
    for (size_t i = 0; i < CLI_COUNT(here); i++)
        safe = safe || strncmp(url, here[i], strlen(here[i])) == 0;
    if (!safe && !c->quiet)
        fprintf(stderr, "zerope: note: the key goes to %.200s unencrypted: use https\n", url);
}

static zp_status open_client(struct remote *r)
{
    struct cli *c = r->c;
    struct text file = { 0 };
    zp_client_options o = { .url = cli_text(c, "server"), .ca_file = cli_text(c, "ca-file"),
                            .patience = cli_real(c, "patience") };
    zp_status st = read_key(c, &file, &o.key);
    if (st == ZP_OK)
        st = zp_client_open(&r->client, &o, &c->err);
    if (st == ZP_OK)
        note_open_key(c, o.url, o.key);
    text_free(&file);
    return st;
}

/* ---- answers ----------------------------------------------------------------------------- */
/* R3: control characters, also those of two bytes (U+0080 to U+009F), but for ends of lines and
 * tabs. */
static void write_plain(const char *text, size_t size)
{
    size_t from = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char b = (unsigned char)text[i];
        bool wide = b == 0xc2 && i + 1 < size && (unsigned char)text[i + 1] < 0xa0;
        if (!wide && b != 0x7f && (b >= 0x20 || b == '\n' || b == '\t'))
            continue;
        cli_write(text + from, i - from);
        cli_write("?", 1);
        i += wide;
        from = i + 1;
    }
    cli_write(text + from, size - from);
}

static bool on_text(void *arg, const char *text, size_t size)
{
    struct remote *r = arg;
    if (!r->c->json && size > 0) {
        r->plain ? write_plain(text, size) : (void)cli_write(text, size);
        r->ends_with_newline = text[size - 1] == '\n';
    }
    return !ferror(stdout);
}

static bool goes_on(void *arg)
{
    (void)arg;
    return !interrupt_pending();
}

static void count(struct remote *r, const zp_client_answer *a)
{
    r->n_answers++;
    r->n_prompt += a->n_prompt;
    r->n_reused += a->n_reused;
    r->n_generated += a->n_generated;
    r->first_seconds += a->first_seconds;
    r->seconds += a->seconds;
}

/* R2; a script ends. What came stays; where nothing came, the question goes, too. */
static zp_status end_stopped(struct remote *r, const zp_client_answer *a)
{
    struct cli *c = r->c;
    if (a->size > 0)
        dialogue_answered(&r->talk, a->text, a->size);
    else
        json_array_remove(r->talk.messages, json_array_size(r->talk.messages) - 1);
    if (!r->talk.terminal && interrupt_pending())
        return ZP_INTERRUPTED;
    interrupt_forget();
    c->err = (zp_err){ 0 };
    if (!c->quiet)
        fprintf(stderr, "zerope: note: stopped; /exit ends\n");
    return ZP_OK;
}

static zp_status answer(void *arg)
{
    struct remote *r = arg;
    struct cli *c = r->c;
    zp_client_answer a = { 0 };
    json_object_set(r->request, "messages", r->talk.messages);
    char *request = json_dumps(r->request, JSON_COMPACT);
    if (request == NULL)
        return cli_fail(c, ZP_RUN, "cannot build the JSON of the request");
    interrupt_defer(true);
    zp_status st = zp_client_chat(r->client, request, on_text, goes_on, r, &a, &c->err);
    free(request);
    if (!c->json && !r->ends_with_newline)
        printf("\n");
    r->ends_with_newline = true;
    fflush(stdout);
    if (st == ZP_OK) {
        count(r, &a);
        dialogue_answered(&r->talk, a.text, a.size);
        if (strcmp(a.reason, "length") == 0 && !c->quiet)
            fprintf(stderr, "zerope: note: the answer was cut for its length\n");
    } else if (st == ZP_INTERRUPTED) {
        st = end_stopped(r, &a);
    }
    zp_client_free_answer(&a);
    return st;
}

static zp_status check(void *arg, const char *line, size_t size)
{
    struct remote *r = arg;
    json_t *text = cli_json_text(line, size);
    bool same =
        json_string_length(text) == size && memcmp(json_string_value(text), line, size) == 0;
    json_decref(text);
    return same ? ZP_OK : cli_fail(r->c, ZP_BAD_INPUT, "the message is not UTF-8");
}

static json_t *timings(const struct remote *r)
{
    double n = r->n_answers > 0 ? (double)r->n_answers : 1;
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "answers", (json_int_t)r->n_answers,
                     "prompt_tokens", (json_int_t)r->n_prompt, "reused_tokens",
                     (json_int_t)r->n_reused, "answer_tokens", (json_int_t)r->n_generated,
                     "first_seconds", r->first_seconds / n, "seconds", r->seconds);
}

static void print_timings(const struct remote *r)
{
    if (r->c->quiet || r->n_answers == 0)
        return;
    fprintf(stderr, "zerope: %zu answer%s, %.2f s, to the first text %.2f s; tokens as the server "
            "counts: %llu of prompts (%llu reused), %llu of answers\n",
            r->n_answers, cli_plural(r->n_answers), r->seconds,
            r->first_seconds / (double)r->n_answers, (unsigned long long)r->n_prompt,
            (unsigned long long)r->n_reused, (unsigned long long)r->n_generated);
}

zp_status chat_there(struct cli *c)
{
    struct remote r = { .c = c, .request = json_object(), .plain = isatty(STDOUT_FILENO),
                        .ends_with_newline = true };
    dialogue_open(&r.talk, c);
    r.talk.check = check;
    r.talk.answer = answer;
    r.talk.arg = &r;
    zp_status st = refuse_local_options(c);
    if (st == ZP_OK)
        st = read_request(&r);
    if (st == ZP_OK)
        st = open_client(&r);
    if (st == ZP_OK)
        st = dialogue_run(&r.talk);
    bool finished = r.client != NULL && (st == ZP_OK || st == ZP_INTERRUPTED);
    if (finished && c->json)
        cli_emit(c, json_pack("{s:O, s:o}", "messages", r.talk.messages, "timings", timings(&r)));
    if (finished)
        print_timings(&r);
    st = dialogue_verdict(&r.talk, st);
    zp_client_close(r.client);
    dialogue_close(&r.talk);
    json_decref(r.request);
    return st;
}

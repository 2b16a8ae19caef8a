/* client.h: answers of a chat server somewhere else that speaks OpenAI's API, as they come.
 *
 *     zp_client *c;
 *     zp_client_answer a = { 0 };
 *     const char *request = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
 *     if (zp_client_open(&c, &options, &err) == ZP_OK) {
 *         zp_client_chat(c, request, on_text, NULL, arg, &a, &err);
 *         zp_client_free_answer(&a);
 *         zp_client_close(c);
 *     }
 *
 * What a server sends is bounded in size and in silence; what is beyond is an error. A client
 * belongs to one thread at a time. */
#ifndef ZEROPE_CLIENT_H
#define ZEROPE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zerope/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zp_client zp_client;

typedef struct zp_client_options { /* copied; 0 and NULL mean the default */
    /* "http://127.0.0.1:8080", "https://host/prefix": /v1/chat/completions follows, where it does
     * not stand there already, whole or as /v1. Redirections are not followed. */
    const char *url;
    const char *key;     /* sent as Authorization: Bearer KEY */
    const char *ca_file; /* PEM: authorities to trust in place of the system's */
    double patience;     /* seconds without a line from the server; default 600 */
    size_t most_answer;  /* bytes of an answer; default 16 MiB */
} zp_client_options;

/* Fails with ZP_USAGE where url or key make no sense, with ZP_UNSUPPORTED where libcurl is not
 * there. */
ZP_API zp_status zp_client_open(zp_client **out, const zp_client_options *options, zp_err *err);
ZP_API void zp_client_close(zp_client *c); /* NULL is fine */

typedef struct zp_client_answer {
    char *text; /* (size) UTF-8, NUL-terminated; what came of it, also on failure */
    size_t size;
    char reason[32]; /* why it ended, in the server's word: "stop", "length"; "": it did not */
    int http_status; /* 0: none came */
    bool has_usage;  /* the server counted tokens */
    uint64_t n_prompt, n_reused, n_generated;
    double first_seconds, seconds; /* to the first text (0: none came) and to the end */
} zp_client_answer;

/* request: a JSON object of OpenAI's chat completions; "stream" and "stream_options" are put in
 * here. on_text gets the text in pieces of whole characters; goes_on (NULL: always) is asked ten
 * times a second. Where one of them returns false, the connection is closed and the call returns
 * ZP_INTERRUPTED. A request that the server finds wrong (400, 413, 422) is ZP_BAD_INPUT, what else
 * it refuses ZP_RUN, both in its words; a connection that fails is ZP_IO. out is to be given to
 * zp_client_free_answer in any case. */
ZP_API zp_status zp_client_chat(zp_client *c, const char *request,
                                bool (*on_text)(void *arg, const char *text, size_t size),
                                bool (*goes_on)(void *arg), void *arg, zp_client_answer *out,
                                zp_err *err);
ZP_API void zp_client_free_answer(zp_client_answer *answer);

#ifdef __cplusplus
}
#endif

#endif

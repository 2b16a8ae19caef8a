/* servejob_truncate.c: chats that are longer than the context, where the request asks to leave the
 * oldest messages out: never else (docs/SERVER.md).
 * N1 what stays: system messages at the beginning, and from a message of the user on all to the
 *    end; at least the last such message.
 * N2 as many stay as leave room for an answer: what was asked for, but no more than a quarter of
 *    the context. */
#include "serve/servejob.h"

#include <string.h>

#include "base/json_tree.h"

static bool has_role(const json_t *message, const char *role)
{
    return jsonfield_is(json_object_get(message, "role"), role);
}

/* System messages at the beginning. */
static size_t count_head(const json_t *messages)
{
    size_t n = 0;
    while (n < json_array_size(messages) && has_role(json_array_get(messages, n), "system")) n++;
    return n;
}

/* Where the part that stays may begin: the first message behind the head, or one of the user's. The
 * i-th of them; SIZE_MAX: there is none. */
static size_t find_cut(const json_t *messages, size_t i)
{
    size_t head = count_head(messages), n = json_array_size(messages);
    if (i == 0) return head < n ? head : SIZE_MAX;
    for (size_t at = head + 1; at < n; at++)
        if (has_role(json_array_get(messages, at), "user") && --i == 0) return at;
    return SIZE_MAX;
}

static size_t count_cuts(const json_t *messages)
{
    size_t n = 0;
    while (find_cut(messages, n) != SIZE_MAX) n++;
    return n;
}

/* The client's own words on what is missing, in its place. */
static zp_status put_summary(struct servejob *j, json_t *messages, size_t at)
{
    const json_t *summary = json_object_get(j->r.metadata, "summary");
    if (j->r.truncation != TRUNCATE_SUMMARISE) return ZP_OK;
    if (!json_is_string(summary))
        return apifault_expected(&j->fault, "metadata.summary", summary,
                                 "a text, which stands for messages that do not fit");
    json_t *message = json_tree_put(json_object(), "role", json_string("system"));
    message = json_tree_put(message, "content", json_incref((json_t *)summary));
    if (message == NULL || json_array_insert_new(messages, at, message) != 0)
        return apifault_no_memory(&j->fault);
    return ZP_OK;
}

/* The prompt without what stands before cut i. A prompt is made of a request once, so the body is
 * read again. */
static zp_status open_cut(struct servejob *j, size_t i)
{
    apiprompt_free(&j->prompts[0].p);
    apirequest_free(&j->r);
    ZP_TRY(servejob_read_body(j));
    json_t *messages = json_object_get(j->r.input, "messages");
    size_t head = count_head(messages), at = find_cut(messages, i);
    for (size_t k = head; k < at; k++) (void)json_array_remove(messages, head);
    if (at > head) ZP_TRY(put_summary(j, messages, head));
    return apiprompt_open_chat(&j->prompts[0].p, j->reads->model, &j->r, &j->fault);
}

static bool fits(const struct servejob *j)
{
    uint32_t n_ctx = j->reads->n_ctx, answer = j->r.job.n_predict;
    if (answer == 0 || answer > n_ctx / 4) answer = n_ctx / 4; // N2
    return j->prompts[0].p.ids.count + answer <= n_ctx;
}

zp_status servejob_open_truncated(struct servejob *j)
{
    size_t low = 0, high = count_cuts(json_object_get(j->r.input, "messages"));
    ZP_TRY(open_cut(j, 0));
    size_t whole = j->prompts[0].p.ids.count;
    if (whole < j->reads->n_ctx && fits(j)) return ZP_OK;
    if (high < 2) return whole < j->reads->n_ctx ? ZP_OK : servejob_too_long(j, whole, false);
    high--; /* the last cut, which leaves least; at `low` it does not fit */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        ZP_TRY(open_cut(j, middle));
        if (fits(j)) high = middle;
        else low = middle;
    }
    ZP_TRY(open_cut(j, high));
    size_t left = j->prompts[0].p.ids.count;
    if (left >= j->reads->n_ctx) return servejob_too_long(j, left, false);
    j->n_truncated = whole > left ? whole - left : 0;
    return ZP_OK;
}

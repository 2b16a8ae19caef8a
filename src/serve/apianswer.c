/* apianswer.c: parts of answers, collected; usage and timings in the names of both APIs.
 * Owns: the texts of whole answers.
 * N1 arguments belong to the last call that began.  N2 ids are functions of the seed alone. */
#include "serve/apianswer.h"

#include <stdio.h>
#include <string.h>

#define MOST_TEXT ((size_t)256 << 20)
#define MOST_CALLS 4096u
#define ID_DIGITS 24
#define DIGITS 6

/* ---- ids ------------------------------------------------------------------------------------- */

const char *api_make_id(struct api_id *room, const char *prefix, const char *seed, uint64_t n)
{
    struct sha256 hash;
    char hex[65], number[24];
    int size = snprintf(number, sizeof number, "/%llu", (unsigned long long)n);
    sha256_init(&hash);
    sha256_update(&hash, seed, strlen(seed));
    sha256_update(&hash, number, (size_t)size);
    sha256_final(&hash, hex);
    (void)snprintf(room->text, sizeof room->text, "%.16s%.*s", prefix, ID_DIGITS, hex);
    return room->text;
}

const char *api_call_id(struct api_id *room, const char *prefix, const struct api_identity *who,
                        uint32_t choice, uint32_t call)
{
    return api_make_id(room, prefix, who->seed, (uint64_t)choice << 32 | (call + 1));
}

enum api_finish api_finish_of(const char *reason)
{
    if (reason == NULL) return FINISH_NONE;
    if (strcmp(reason, "length") == 0) return FINISH_LENGTH;
    return strcmp(reason, "stop") == 0 ? FINISH_STOP : FINISH_END;
}

/* ---- figures --------------------------------------------------------------------------------- */

void api_usage_add(struct api_usage *u, const struct sched_usage *job)
{
    u->n_prompt += job->n_prompt;
    u->n_cached += job->n_reused;
    u->n_answer += job->n_drawn;
    u->prompt_seconds += job->prompt_seconds;
    u->answer_seconds += job->draw_seconds;
}

void api_usage_write(const struct api_usage *u, struct json_build *w)
{
    json_build_uint(w, "layer_zeroed", u->layer_zeroed);
    if (u->n_truncated != 0) json_build_uint(w, "truncated_tokens", u->n_truncated);
    if (u->n_anchors != 0) json_build_uint(w, "anchors", u->n_anchors);
    if (u->anchors_ignored) json_build_bool(w, "anchors_ignored", true);
    if (u->approximate) json_build_bool(w, "approximate", true);
    if (u->moved) json_build_bool(w, "moved_to_baseline", true);
    if (u->architecture != NULL)
        json_build_raw(w, "architecture_details", u->architecture, strlen(u->architecture));
}

static void write_speed(struct json_build *w, const char *const names[4], uint64_t n,
                        double seconds)
{
    json_build_uint(w, names[0], n);
    json_build_real(w, names[1], seconds * 1e3, DIGITS);
    json_build_real(w, names[2], n != 0 ? seconds * 1e3 / (double)n : 0, DIGITS);
    json_build_real(w, names[3], seconds > 0 ? (double)n / seconds : 0, DIGITS);
}

void api_timings_write(const struct api_usage *u, struct json_build *w)
{
    static const char *const prompt[] = { "prompt_n", "prompt_ms", "prompt_per_token_ms",
                                          "prompt_per_second" },
                             *const answer[] = { "predicted_n", "predicted_ms",
                                                 "predicted_per_token_ms", "predicted_per_second" };
    json_build_object(w, "timings");
    json_build_uint(w, "cache_n", u->n_cached);
    write_speed(w, prompt, u->n_prompt - u->n_cached, u->prompt_seconds);
    write_speed(w, answer, u->n_answer, u->answer_seconds);
    json_build_object_end(w);
}

void api_progress_write(const struct sched_progress *p, struct json_build *w)
{
    json_build_object(w, "prompt_progress");
    json_build_uint(w, "total", p->n_prompt);
    json_build_uint(w, "cache", p->n_reused);
    json_build_uint(w, "processed", p->n_done);
    json_build_uint(w, "time_ms", p->seconds > 0 ? (uint64_t)(p->seconds * 1e3) : 0);
    json_build_object_end(w);
}

/* ---- whole answers --------------------------------------------------------------------------- */

zp_status api_answer_open(struct api_answer *a, const struct api_request *r,
                          const struct api_identity *who, uint32_t n_choices, zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_SERVE, MOST_TEXT);
    *a = (struct api_answer){ .who = *who };
    ZP_ALLOC(a->choices, MEM_SERVE, n_choices, err, "an answer");
    a->n_choices = n_choices;
    for (uint32_t i = 0; i < n_choices; i++)
        a->choices[i] = (struct api_choice){ .content = text, .reasoning = text,
                                             .logprobs = apilogprobs_open(r->set == SET_CHAT) };
    return ZP_OK;
}

static void free_choice(struct api_choice *c)
{
    for (uint32_t i = 0; i < c->n_calls; i++) {
        buffer_free(&c->calls[i].name);
        buffer_free(&c->calls[i].arguments);
    }
    mem_free(c->calls);
    buffer_free(&c->content);
    buffer_free(&c->reasoning);
    apilogprobs_free(&c->logprobs);
}

void api_answer_free(struct api_answer *a)
{
    for (uint32_t i = 0; i < a->n_choices; i++) free_choice(&a->choices[i]);
    mem_free(a->choices);
    *a = (struct api_answer){ 0 };
}

static zp_status add_call(struct api_choice *c, const struct api_part *part, zp_err *err)
{
    ZP_FAIL_IF(c->n_calls == MOST_CALLS, err, ZP_RUN, "an answer with more than %u calls",
               MOST_CALLS);
    if (c->n_calls == c->calls_room) {
        uint32_t room = c->calls_room ? 2 * c->calls_room : 4;
        struct api_call *calls = mem_resize(MEM_SERVE, c->calls, room * sizeof *calls);
        ZP_FAIL_IF(calls == NULL, err, ZP_NO_MEMORY, "not enough memory for %u calls", room);
        c->calls = calls;
        c->calls_room = room;
    }
    struct buffer text = buffer_with_max(MEM_SERVE, MOST_TEXT);
    c->calls[c->n_calls] = (struct api_call){ text, text, c->content.size };
    return buffer_append(&c->calls[c->n_calls++].name, part->text, part->size, err);
}

zp_status api_answer_part(struct api_answer *a, uint32_t choice, const struct api_part *part,
                          zp_err *err)
{
    struct api_choice *c = &a->choices[choice];
    if (part->kind == PART_CALL) return add_call(c, part, err);
    struct buffer *to = part->kind == PART_CONTENT     ? &c->content
                        : part->kind == PART_REASONING ? &c->reasoning
                                                       : &c->calls[c->n_calls - 1].arguments; // N1
    return buffer_append(to, part->text, part->size, err);
}

zp_status api_answer_token(struct api_answer *a, uint32_t choice, const struct sched_token *token,
                           zp_err *err)
{
    return apilogprobs_add(&a->choices[choice].logprobs, token, err);
}

/* toolcalls.h: what a model writes, taken apart as it comes: content, reasoning between <think> and
 * </think>, and calls of tools, whose arguments are passed on while they are written.
 *
 * How a model writes calls is seen from its chat template (toolcalls_style_of):
 *   tagged  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, or a list of such objects in
 *           it; anywhere, any number of times (Hermes, Qwen, SmolLM)
 *   llama3  {"name": ..., "parameters": {...}} as the whole answer, or behind <|python_tag|>
 *   json    {"name": ..., "arguments": {...}}, or a list of those, as the whole answer
 * A call has the name of a tool, which makes it one; what only looks like a call is content. Both
 * "arguments" and "parameters" are taken, as an object or as its JSON text, before or behind the
 * name.
 *
 * T1 all text comes out, in order, but for the wrappers of calls, the marks of reasoning, white
 *    space between those and other text, and what follows the last call of most_calls.
 * T2 what comes out does not depend on how the text was cut, but for how it is cut itself.
 * T3 arguments are valid JSON unless the model's are not: control characters in its strings are
 *    escaped. A call that breaks off keeps what it has; the rest is content.
 * T4 no more is held back than may still become a mark or a call. */
#ifndef SERVE_TOOLCALLS_H
#define SERVE_TOOLCALLS_H

#include <jansson.h>
#include "serve/apianswer.h"
#include "serve/jsonscan.h"

enum toolcalls_style { TOOLCALLS_TAGGED, TOOLCALLS_LLAMA3, TOOLCALLS_JSON };

/* By the template's text:
 *   with "<tool_call>": tagged
 *   with "<|python_tag|>", or with "<|start_header_id|>" and "parameters": llama3
 *   with neither, but with "tools": json
 *   else tagged, because toolprompt.h then tells the model so */
enum toolcalls_style toolcalls_style_of(const char *template_text);

struct toolcalls_options {
    enum toolcalls_style style;
    const json_t *tools; /* in OpenAI's form; NULL: there are no calls */
    uint32_t most_calls; /* 0: any number */
    enum api_reasoning reasoning;
    bool in_reasoning; /* the prompt ends with <think> */
    zp_status (*part)(void *arg, const struct api_part *part, zp_err *err);
    void *arg;
};
/* Whether a rendered prompt ends with <think>, white space aside. */
bool toolcalls_opens_reasoning(const char *prompt, size_t size);

struct toolcalls {
    struct toolcalls_options o;
    const struct toolcalls_marks *marks;
    enum toolcalls_state {
        SPLIT_START,
        SPLIT_CONTENT,
        SPLIT_REASONING,
        SPLIT_CALL, /* an object or a list must come */
        SPLIT_OBJECT,
        SPLIT_BEHIND, /* behind an object */
        SPLIT_BROKEN, /* behind what broke off, before the closing tag */
        SPLIT_FULL
    } state;
    bool after_reasoning, trims; /* white space before what comes next is left out */
    bool in_list;
    uint32_t n_calls;
    struct buffer held; /* not given out yet */
    size_t at;          /* of held: looked at */
    size_t opening;     /* of held: white space and the mark before what may be the first call */
    /* of an object */
    struct jsonscan scan;
    size_t key_at, value_at;
    enum toolcalls_key { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_PASSED } key;
    const char *name;          /* the tool's; NULL: not known yet */
    bool in_value, begun, streams, has_arguments;
    size_t arguments_at, arguments_end; /* of held, while the call has not begun */
    bool in_string, escaped;   /* of the arguments, as far as they are given out */
};
void toolcalls_open(struct toolcalls *t, const struct toolcalls_options *o);
void toolcalls_free(struct toolcalls *t); /* zeroed is fine */
/* Whole characters. */
zp_status toolcalls_push(struct toolcalls *t, const char *text, size_t size, zp_err *err);
/* The end of the text: what is held comes out. */
zp_status toolcalls_finish(struct toolcalls *t, zp_err *err);
/* No part will come any more: the answer can be ended. */
bool toolcalls_is_full(const struct toolcalls *t);

#endif

/* messages.h: the input of a chat template, read and checked: {messages, tools?,
 * add_generation_prompt?, ...} or a bare array of messages. */
#ifndef MODEL_MESSAGES_H
#define MODEL_MESSAGES_H

#include <jansson.h>
#include <stddef.h>
#include "base/status.h"

/* name: the file or other source, for messages. *out is always an object with an array `messages`;
 * give it to json_decref. NULL on failure: ZP_BAD_FILE (no JSON, with line and column) or
 * ZP_BAD_INPUT (as messages_check). */
zp_status messages_read(const char *text, size_t size, const char *name, json_t **out, zp_err *err);

/* Turns a bare array into {"messages": array}; takes the reference in any case. */
zp_status messages_wrap(json_t *value, const char *name, json_t **out, zp_err *err);

/* ZP_BAD_INPUT "NAME: messages[2].content is 5, expected ..." unless every message has a role and
 * content (a text, parts, or null beside tool_calls) and tools are objects. Other members pass. */
zp_status messages_check(const json_t *input, const char *name, zp_err *err);

#endif

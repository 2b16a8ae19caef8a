/* toolform.h: a call that must come (tool_choice "required", or one by its name): what to write in
 * front of it and behind it, and which JSON is to be drawn between the two. */
#ifndef SERVE_TOOLFORM_H
#define SERVE_TOOLFORM_H

#include "serve/toolcalls.h"

struct toolform {
    /* Literals: the answer begins with the one (put it behind the prompt, and into the splitter of
     * toolcalls.h), and where its JSON is whole the other follows (into the splitter). */
    const char *before, *after;
    struct buffer schema; /* JSON Schema of the call: for zp_grammar_open_schema */
};
/* tools: in OpenAI's form, at least one. name: the only one, NULL: any of them. Give it to
 * toolform_free in any case. ZP_BAD_INPUT: there is no tool of the name. */
zp_status toolform_open(struct toolform *f, enum toolcalls_style style, const json_t *tools,
                        const char *name, zp_err *err);
void toolform_free(struct toolform *f); /* zeroed is fine */

#endif

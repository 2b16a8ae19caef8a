/* template.h: chat templates: from messages to the text a model reads. The language is the part of
 * Jinja that models' templates use, with Python's meaning, trim_blocks and lstrip_blocks on, and
 * Hugging Face's tojson. A template is read only after opening: any number of threads may render it
 * at once. */
#ifndef MODEL_TEMPLATE_H
#define MODEL_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct template;

/* name: what messages call it, such as the model's file. ZP_BAD_FILE "NAME:LINE:COLUMN: expected
 * ..., found ..." when the source cannot be parsed; the model stays usable without its template. */
zp_status template_open(struct template **out, const char *source, size_t size, const char *name,
                        zp_err *err);
void template_close(struct template *t); /* NULL is fine */

/* A piece of the output with one origin. The tokenizer parses special tokens in template text only;
 * a special token that lies across a border is none. Text between special tokens is tokenized as
 * one, across borders. */
struct template_segment {
    size_t offset, size; /* bytes of the text */
    bool from_user;      /* from messages, tools or other input; false: written in the template */
};

struct template_output {
    char *text; /* UTF-8, NUL-terminated */
    size_t size;
    struct template_segment *segments; /* in order, covering the text; neighbours differ */
    size_t n_segment;
};
void template_output_free(struct template_output *out); /* zeroed is fine */

/* input: an object whose members are the template's variables: messages, tools,
 * add_generation_prompt, bos_token, eos_token, and any others. The texts bos_token and eos_token
 * count as template text, all others as the user's. ZP_BAD_INPUT: with the template's own words
 * when it calls raise_exception, else "NAME:LINE:COLUMN: ...". */
zp_status template_render(const struct template *t, const json_t *input,
                          struct template_output *out, zp_err *err);

/* The same with limits and clock; 0 means the default. */
struct template_options {
    int64_t now;        /* for strftime_now: seconds since 1970 plus the zone's offset; now, UTC */
    uint64_t max_steps; /* evaluated nodes, loop rounds, comparisons; 20 million */
    size_t max_memory;  /* bytes; 512 MiB */
    size_t max_output;  /* bytes of the output or any text on the way; 64 MiB */
    uint32_t max_depth; /* nested evaluations; 600 */
};
zp_status template_render_with(const struct template *t, const json_t *input,
                               const struct template_options *options, struct template_output *out,
                               zp_err *err);

/* True if the template reads the variable of that name anywhere: "tools", "enable_thinking". */
bool template_reads(const struct template *t, const char *variable);

#endif

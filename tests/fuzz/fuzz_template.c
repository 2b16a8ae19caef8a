/* fuzz_template.c: any text as a chat template, up to the first NUL; behind it JSON variables, else
 * fixed ones. What renders must be UTF-8 and its segments must cover it without gaps. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "model/template.h"

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S é中\"}, {\"role\": \"user\", "
    "\"content\": "
    "\"a b\\nc\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": "
    "{\"name\": \"f\", \"arguments\": {\"x\": 1}}}]}], \"tools\": [{\"name\": \"t\"}], "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": 7, \"f\": 2.5, \"s\": \"Hi\", "
    "\"l\": [3, 1, 2], \"d\": {\"a\": 1, \"b\": [1, 2]}, \"no\": null}";

static void check_output(const struct template_output *out)
{
    size_t at = 0, bad;
    for (size_t i = 0; i < out->n_segment; i++) {
        if (out->segments[i].offset != at || out->segments[i].size == 0) abort();
        at += out->segments[i].size;
    }
    if (at != out->size || !utf8_is_valid(out->text, out->size, &bad)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct template_options limits = {
        .now = 1735689845, .max_steps = 20000, .max_memory = 8 << 20, .max_output = 1 << 18
    };
    const uint8_t *nul = memchr(data, 0, size);
    size_t n = nul == NULL ? size : (size_t)(nul - data);
    json_t *input = nul == NULL ? json_loads(variables, 0, NULL)
                                : json_loadb((const char *)nul + 1, size - n - 1, 0, NULL);
    struct template *t = NULL;
    struct template_output out = { 0 };
    zp_err err = { 0 };
    if (template_open(&t, (const char *)data, n, "fuzz", &err) == ZP_OK && input != NULL &&
        template_render_with(t, input, &limits, &out, &err) == ZP_OK)
        check_output(&out);
    if (err.code != ZP_OK && !utf8_is_valid(err.message, strlen(err.message), NULL)) abort();
    template_output_free(&out);
    template_close(t);
    json_decref(input);
    return 0;
}

/* outputs.c: which outputs would change an input.
 * Owns: nothing. A path is compared as the file it leads to, never as text: "m.gguf", "./m.gguf"
 * and a link to it are one. */
#include "model/outputs.h"

#include <stdio.h>
#include <string.h>
#include <zerope/zerope.h>

#include "base/os.h"
#include "base/status.h"
#include "model/gguf.h"
#include "model/hfwrite.h"

/* In a folder of documents every file counts, in a model's those that make it up; new ones too,
 * which the next call would read. */
static bool in_folder(const char *output, const char *input)
{
    const char *slash = strrchr(output, '/');
    char config[4096];
    if (!os_is_below(output, input)) return false;
    int size = snprintf(config, sizeof config, "%s/config.json", input);
    bool model = size > 0 && (size_t)size < sizeof config && os_exists(config);
    return !model || hf_is_model_file(slash == NULL ? output : slash + 1);
}

bool zp_writes_over(const char *output, const char *input)
{
    return os_same_file(output, input) || in_folder(output, input) ||
           gguf_is_part_of(output, input);
}

zp_status outputs_check(const char *const *outputs, size_t n_outputs, const char *const *inputs,
                        size_t n_inputs, zp_err *err)
{
    for (size_t i = 0; i < n_outputs; i++) {
        const char *out = outputs[i];
        if (out == NULL) continue;
        for (size_t k = 0; k < n_inputs; k++)
            ZP_FAIL_IF(inputs[k] != NULL && zp_writes_over(out, inputs[k]), err, ZP_USAGE,
                       "%s: would be written %s the input %s; give it another name", out,
                       !os_exists(out) && os_exists(inputs[k]) ? "into" : "over", inputs[k]);
        for (size_t k = 0; k < i; k++)
            ZP_FAIL_IF(outputs[k] != NULL && os_same_file(out, outputs[k]), err, ZP_USAGE,
                       "%s and %s are one file; outputs need names of their own", outputs[k], out);
    }
    return ZP_OK;
}

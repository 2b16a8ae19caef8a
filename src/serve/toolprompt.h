/* toolprompt.h: tools for models whose chat template knows nothing of tools: they are described in
 * the system message, and calls and results that happened become plain messages. */
#ifndef SERVE_TOOLPROMPT_H
#define SERVE_TOOLPROMPT_H

#include <jansson.h>
#include "base/status.h"

/* Changes a template's input (messages, tools, ...): for templates that do not read `tools`
 * (template_reads). Nothing changes without tools, calls and results in it. On failure the input
 * is good for nothing but json_decref. */
zp_status toolprompt_apply(json_t *input, zp_err *err);

#endif

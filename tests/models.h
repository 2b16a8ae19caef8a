/* models.h: where tests find the two real models that scripts/setup fetches. Missing models fail
 * the test. */
#ifndef TESTS_MODELS_H
#define TESTS_MODELS_H

#include <stdio.h>
#include <stdlib.h>

#define SMOLLM2_FILE "smollm2-135m-instruct-q4_1.gguf"
#define GEMMA3_FILE "gemma3-270m-q4_k_m.gguf"

/* $ZEROPE_MODELS, else $XDG_CACHE_HOME/zerope/models, else ~/.cache/zerope/models. Static
 * memory. */
static inline const char *test_model_path(const char *file)
{
    static char path[4096];
    const char *models = getenv("ZEROPE_MODELS"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (models != NULL) snprintf(path, sizeof path, "%s/%s", models, file);
    else if (cache != NULL) snprintf(path, sizeof path, "%s/zerope/models/%s", cache, file);
    else snprintf(path, sizeof path, "%s/.cache/zerope/models/%s", home ? home : "", file);
    return path;
}

#endif

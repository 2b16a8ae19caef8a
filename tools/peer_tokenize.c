/* peer_tokenize.c: token ids by llama.cpp, for tests/data/tokenize_pre.json and for comparisons.
 * Build: cc peer_tokenize.c -I LLAMA/include -I LLAMA/ggml/include -lllama -lggml -lggml-base ...
 * Usage: peer_tokenize MODEL PRE|- 0|1 < TEXTS: PRE overrides tokenizer.ggml.pre, 1 parses special
 * tokens; TEXTS holds u32 lengths, each followed by that many bytes. One line of ids a text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llama.h"

static void log_errors(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static struct llama_model *load(const char *path, const char *pre)
{
    struct llama_model_params params = llama_model_default_params();
    struct llama_model_kv_override overrides[2];
    memset(overrides, 0, sizeof overrides);
    params.vocab_only = true;
    if (strcmp(pre, "-") != 0) {
        snprintf(overrides[0].key, sizeof overrides[0].key, "tokenizer.ggml.pre");
        snprintf(overrides[0].val_str, sizeof overrides[0].val_str, "%s", pre);
        overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_STR;
        params.kv_overrides = overrides;
    }
    return llama_model_load_from_file(path, params);
}

static void print_ids(const struct llama_vocab *vocab, const char *text, uint32_t size,
                      bool special)
{
    int32_t room = (int32_t)size + 16;
    llama_token *ids = malloc((size_t)room * sizeof *ids);
    int32_t n = llama_tokenize(vocab, text, (int32_t)size, ids, room, false, special);
    for (int32_t i = 0; i < n; i++) printf(i == 0 ? "%d" : " %d", ids[i]);
    puts("");
    free(ids);
}

int main(int argc, char **argv)
{
    uint32_t size;
    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL PRE|- 0|1 < TEXTS\n", argv[0]);
        return 2;
    }
    llama_log_set(log_errors, NULL);
    llama_backend_init();
    struct llama_model *model = load(argv[1], argv[2]);
    if (model == NULL) return 1;
    while (fread(&size, 4, 1, stdin) == 1) {
        char *text = malloc(size + 1);
        if (fread(text, 1, size, stdin) != size) return 1;
        print_ids(llama_model_get_vocab(model), text, size, argv[3][0] == '1');
        free(text);
    }
    llama_model_free(model);
    return 0;
}

/* peer_logits.c: exact logits of a GGUF file by llama.cpp, for comparison with ours.
 * Owns: the settings that make that engine comparable: f32 KV cache, flash attention off, one
 * batch, CPU only. Built by build_peer.py against a llama.cpp build (C API, llama.h); not part of
 * the project's build.
 *
 * Usage: peer_logits MODEL.gguf IDS.txt OUT.f32 [THREADS]
 * IDS.txt: token ids separated by white space. OUT.f32: (n_ids, n_vocab) float32, native order.
 * stdout: one line "n_ids n_vocab". Exit 3: the model was refused (the reason is on stderr). */
#include <stdio.h>
#include <stdlib.h>

#include "llama.h"

static int32_t *read_ids(const char *path, int32_t *n)
{
    FILE *f = fopen(path, "r");
    int32_t room = 1024, *ids = malloc(sizeof *ids * (size_t)room);
    *n = 0;
    if (f == NULL || ids == NULL)
        return NULL;
    for (long id; fscanf(f, "%ld", &id) == 1; ids[(*n)++] = (int32_t)id) {
        if (*n < room)
            continue;
        room *= 2;
        ids = realloc(ids, sizeof *ids * (size_t)room);
        if (ids == NULL)
            return NULL;
    }
    fclose(f);
    return ids;
}

static struct llama_context *open_context(struct llama_model *model, int32_t n, int32_t threads)
{
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)((n + 255) / 256 * 256);
    p.n_batch = p.n_ubatch = (uint32_t)n;
    p.n_threads = p.n_threads_batch = threads;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_init_from_model(model, p);
}

static int write_logits(struct llama_context *ctx, int32_t *ids, int32_t n, int32_t n_vocab,
                        const char *path)
{
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = n;
    if (llama_decode(ctx, batch) != 0)
        return 1;
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return 1;
    size_t done = 0;
    for (int32_t i = 0; i < n; i++)
        done += fwrite(llama_get_logits_ith(ctx, i), sizeof(float), (size_t)n_vocab, f);
    llama_batch_free(batch);
    return fclose(f) != 0 || done != (size_t)n * (size_t)n_vocab;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: peer_logits MODEL.gguf IDS.txt OUT.f32 [THREADS]\n");
        return 2;
    }
    int32_t n = 0, *ids = read_ids(argv[2], &n);
    if (ids == NULL || n == 0) {
        fprintf(stderr, "%s: no token ids\n", argv[2]);
        return 2;
    }
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (model == NULL)
        return 3;
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_context *ctx = open_context(model, n, argc > 4 ? atoi(argv[4]) : 1);
    if (ctx == NULL)
        return 1;
    int rc = write_logits(ctx, ids, n, n_vocab, argv[3]);
    if (rc == 0)
        printf("%d %d\n", n, n_vocab);
    llama_free(ctx);
    llama_model_free(model);
    llama_backend_free();
    free(ids);
    return rc;
}

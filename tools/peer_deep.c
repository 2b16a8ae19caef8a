/* peer_deep.c: llama.cpp kept loaded, filling, decoding and going back on request: bench/deep.c's
 * counterpart (`accept engine deep` asks both in turns). KV in f16, flash attention and batches as
 * that engine's defaults are, CPU only. Built by build_peer.py; not part of the project's build.
 *
 * Usage: peer_deep MODEL.gguf N_CTX THREADS
 * Requests on stdin and answers as in bench/deep.c: fill N, decode N, cut N. The token of each
 * position is the same as there. Exit 1: a request failed or is none; 2: wrong usage; 3: the model
 * was refused (the reason is on stderr). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

struct peer {
    struct llama_context *ctx;
    struct llama_batch batch; // (n_batch)
    int32_t n_ctx, n_batch, n_vocab, length;
};

static void log_errors(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "peer_deep: %s: %s\n", what, why);
    exit(1);
}

/* deep.c has the same. */
static llama_token token_at(int32_t position, int32_t n_vocab)
{
    uint64_t x = (uint64_t)(position + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (llama_token)((x ^ x >> 31) % (uint64_t)n_vocab);
}

/* One batch of the next n tokens; with the logits of its last one if `wanted`. */
static void run(struct peer *p, const char *what, int32_t n, bool wanted)
{
    for (int32_t i = 0; i < n; i++) {
        p->batch.token[i] = token_at(p->length + i, p->n_vocab);
        p->batch.pos[i] = p->length + i;
        p->batch.n_seq_id[i] = 1;
        p->batch.seq_id[i][0] = 0;
        p->batch.logits[i] = wanted && i == n - 1;
    }
    p->batch.n_tokens = n;
    if (llama_decode(p->ctx, p->batch) != 0) stop(what, "llama_decode failed");
    p->length += n;
}

static void cut(struct peer *p, int32_t n)
{
    if (n > p->length) stop("cut", "there are fewer tokens");
    if (!llama_memory_seq_rm(llama_get_memory(p->ctx), 0, n, -1)) stop("cut", "refused");
    p->length = n;
}

/* Takes n more tokens, `step` at a time: of each step the last logits or, of a prompt, of all. */
static double take(struct peer *p, const char *what, int32_t n, int32_t step, bool prompt)
{
    if (n > p->n_ctx - p->length) stop(what, "more tokens than the context has room for");
    int64_t begin = llama_time_us();
    for (int32_t i = 0; i < n; i += step) {
        int32_t some = n - i < step ? n - i : step;
        run(p, what, some, !prompt || i + some == n);
        if (!prompt && llama_get_logits_ith(p->ctx, -1) == NULL) stop(what, "no logits");
    }
    llama_synchronize(p->ctx);
    return (double)(llama_time_us() - begin) * 1e-6;
}

static double decode(struct peer *p, int32_t n)
{
    int32_t at = p->length;
    double seconds = take(p, "decode", n, 1, false);
    cut(p, at);
    return seconds;
}

static void answer(struct peer *p, const char *line)
{
    char name[8] = "", rest;
    int n;
    if (sscanf(line, "%7s %9d%c", name, &n, &rest) != 2 || n < 0) name[0] = '\0';
    if (strcmp(name, "fill") == 0) printf("%.6f\n", take(p, "fill", n, p->n_batch, true));
    else if (strcmp(name, "decode") == 0) printf("%.6f\n", decode(p, n));
    else if (strcmp(name, "cut") == 0) cut(p, n), printf("%d\n", n);
    else stop(line, "expected fill N, decode N or cut N");
    fflush(stdout);
}

static void open_context(struct peer *p, struct llama_model *model, int32_t n_ctx, int32_t threads)
{
    struct llama_context_params o = llama_context_default_params();
    o.n_ctx = (uint32_t)n_ctx;
    o.n_threads = o.n_threads_batch = threads;
    p->ctx = llama_init_from_model(model, o);
    if (p->ctx == NULL) stop("context", "refused");
    p->n_ctx = n_ctx;
    p->n_batch = (int32_t)llama_n_batch(p->ctx);
    p->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    p->batch = llama_batch_init(p->n_batch, 0, 1);
}

static void show_usage(void)
{
    fprintf(stderr, "usage: peer_deep MODEL.gguf N_CTX THREADS\n");
    exit(2);
}

static int32_t read_count(const char *name, const char *text)
{
    char *end;
    errno = 0;
    long x = strtol(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && x >= 1 && x <= INT32_MAX)
        return (int32_t)x;
    fprintf(stderr, "peer_deep: %s: found '%s', expected a whole number above 0\n", name, text);
    show_usage();
    return 0;
}

int main(int argc, char **argv)
{
    struct peer p = { 0 };
    char line[64];
    if (argc != 4) show_usage();
    int32_t n_ctx = read_count("N_CTX", argv[2]), threads = read_count("THREADS", argv[3]);
    llama_log_set(log_errors, NULL);
    llama_backend_init();
    struct llama_model_params o = llama_model_default_params();
    o.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(argv[1], o);
    if (model == NULL) return 3;
    open_context(&p, model, n_ctx, threads);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(&p, line);
    }
    llama_batch_free(p.batch);
    llama_free(p.ctx);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}

/* best_ending.c: which ending does the model find most likely? The beginning is computed once, each
 * ending in a fork that shares its keys and values, and all endings in one ragged batch.
 * Build: cc best_ending.c $(pkg-config --cflags --libs zerope) -lm
 * Usage: best_ending MODEL.gguf "The capital of France is" " Paris" " Berlin" " a fish" */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zerope/zerope.h>

#define MAX_ENDINGS 16

struct work {
    zp_model *model;
    zp_engine *engine;
    zp_seq *beginning, *forks[MAX_ENDINGS];
    int32_t *ids[MAX_ENDINGS];
    zp_item items[MAX_ENDINGS];
    size_t n_endings, n_vocab, n_rows;
    float *logits;  /* (1 + n_rows, n_vocab): after the beginning, then after each ending token */
};

static double log_probability(const float *logits, size_t n_vocab, int32_t id)
{
    double max = logits[0], sum = 0;
    for (size_t i = 1; i < n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (size_t i = 0; i < n_vocab; i++)
        sum += exp(logits[i] - max);
    return logits[id] - max - log(sum);
}

static zp_status start(struct work *w, const char *path, const char *text, zp_err *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    zp_model_info info;
    zp_engine_options options = { .n_seq = MAX_ENDINGS + 1 };
    zp_seq_options plain = { 0 };
    zp_status st = zp_model_open(&w->model, path, &(zp_model_options){ 0 }, err);
    if (st == ZP_OK)
        st = zp_engine_open(&w->engine, w->model, &options, err);
    if (st == ZP_OK)
        st = zp_seq_open(&w->beginning, w->engine, &plain, err);
    if (st == ZP_OK)
        st = zp_tokenize(w->model, text, strlen(text), ZP_TOKENS_BOS, &ids, &n, err);
    if (st == ZP_OK) {
        zp_model_describe(w->model, &info);
        w->n_vocab = info.n_vocab;
        w->logits = malloc(w->n_vocab * sizeof *w->logits);
        if (w->logits == NULL)
            st = ZP_NO_MEMORY;
    }
    if (st == ZP_OK) {
        zp_item item = { .seq = w->beginning, .ids = ids, .n = n, .want = ZP_WANT_LAST };
        st = zp_engine_run(w->engine, &item, 1, w->logits, 1, NULL, err);
    }
    zp_free(ids);
    return st;
}

static zp_status add_ending(struct work *w, const char *text, zp_err *err)
{
    size_t i = w->n_endings, n = 0;
    zp_status st = zp_tokenize(w->model, text, strlen(text), 0, &w->ids[i], &n, err);
    if (st == ZP_OK)
        st = zp_seq_fork(&w->forks[i], w->beginning, zp_seq_length(w->beginning), err);
    w->items[i] = (zp_item){ .seq = w->forks[i], .ids = w->ids[i], .n = n, .want = ZP_WANT_ALL };
    w->n_endings++;
    w->n_rows += n;
    return st;
}

static zp_status score(struct work *w, char **texts, zp_err *err)
{
    float *grown = realloc(w->logits, (1 + w->n_rows) * w->n_vocab * sizeof *grown);
    if (grown == NULL)
        return ZP_NO_MEMORY;
    w->logits = grown;
    float *rows = w->logits + w->n_vocab;
    zp_status st = zp_engine_run(w->engine, w->items, w->n_endings, rows, w->n_rows, NULL, err);
    for (size_t i = 0; st == ZP_OK && i < w->n_endings; i++) {
        const float *row = w->logits;  /* the first token follows the beginning */
        double sum = 0;
        for (size_t k = 0; k < w->items[i].n; k++) {
            sum += log_probability(row, w->n_vocab, w->ids[i][k]);
            row = rows + k * w->n_vocab;
        }
        rows += w->items[i].n * w->n_vocab;
        printf("%9.3f  %s\n", sum, texts[i]);
    }
    return st;
}

int main(int argc, char **argv)
{
    struct work w = { 0 };
    zp_err err = { 0 };
    if (argc < 4 || argc > 3 + MAX_ENDINGS) {
        fprintf(stderr, "usage: best_ending MODEL.gguf BEGINNING ENDING...\n");
        return 2;
    }
    zp_status st = start(&w, argv[1], argv[2], &err);
    for (int i = 3; i < argc && st == ZP_OK; i++)
        st = add_ending(&w, argv[i], &err);
    if (st == ZP_OK)
        st = score(&w, argv + 3, &err);
    for (size_t i = 0; i < w.n_endings; i++) {
        zp_seq_close(w.forks[i]);
        zp_free(w.ids[i]);
    }
    zp_seq_close(w.beginning);
    zp_engine_close(w.engine);
    zp_model_close(w.model);
    free(w.logits);
    if (st != ZP_OK)
        fprintf(stderr, "best_ending: %s\n", err.message);
    return zp_status_exit_code(st);
}

/* masks.c: what a grammar costs: opening, and the mask of each token while texts are drawn by it at
 * random from the allowed tokens.
 * Usage: masks MODEL json|SCHEMA [TEXTS [TOKENS]]      (default: 5 texts of at most 400 tokens)
 * SCHEMA: the text of a JSON Schema. Times are of the processor. Prints a line for each text: the
 * first is by a new grammar, the others by one whose states are partly known. Exit code 1:
 * something failed; 2: wrong usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/constrain.h"
#include "model/model.h"

struct masks {
    zp_model *m;
    zp_grammar *g;
    uint64_t *bits;
    size_t n_words;
};

static void check(zp_status status, const zp_err *err)
{
    if (status == ZP_OK) return;
    fprintf(stderr, "masks: %s\n", err->message);
    exit(1);
}

/* Seconds of this thread: the machine may be busy. */
static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double kib(void)
{
    struct mem_stats s;
    uint64_t n = 0;
    mem_stats_read(&s);
    for (int i = 0; i < MEM_TAG_COUNT; i++) n += s.live[i];
    return (double)n / 1024;
}

static void open_grammar(struct masks *k, const char *schema)
{
    zp_err err = { 0 };
    double before = kib(), begin = cpu_now();
    check(strcmp(schema, "json") == 0
              ? zp_grammar_open_json(&k->g, k->m, &err)
              : zp_grammar_open_schema(&k->g, k->m, schema, strlen(schema), &err),
          &err);
    printf("open: %.2f ms, %.0f KiB\n", 1e3 * (cpu_now() - begin), kib() - before);
}

/* One of the allowed tokens. */
static int32_t pick(const struct masks *k, struct rng *rng)
{
    uint64_t n = 0, at = 0;
    for (size_t i = 0; i < 64 * k->n_words; i++) n += k->bits[i / 64] >> i % 64 & 1;
    if (n > 0) at = rng_below(rng, n);
    for (size_t i = 0; i < 64 * k->n_words; i++)
        if ((k->bits[i / 64] >> i % 64 & 1) && at-- == 0) return (int32_t)i;
    return -1;
}

static void draw_text(struct masks *k, uint64_t seed, int most)
{
    struct automaton_place p;
    struct rng rng = rng_stream(seed, 1);
    zp_err err = { 0 };
    double sum = 0, longest = 0;
    int n = 0;
    constrain_enter(k->g, &p);
    while (n < most && !constrain_is_over(k->g, &p)) {
        double begin = cpu_now();
        check(constrain_mask(k->g, &p, k->bits, &err), &err);
        double took = cpu_now() - begin;
        sum += took;
        longest = took > longest ? took : longest;
        n++;
        int32_t id = pick(k, &rng);
        if (id < 0 || zp_token_ends(k->m, id)) break;
        check(constrain_accept(k->g, &p, id, &err), &err);
    }
    constrain_leave(k->g, &p);
    printf("text of %d tokens: %.4f ms a mask, at most %.3f ms; %.0f KiB in all\n", n,
           n ? 1e3 * sum / n : 0, 1e3 * longest, kib());
}

int main(int argc, char **argv)
{
    struct masks k = { 0 };
    zp_err err = { 0 };
    if (argc < 3) {
        fprintf(stderr, "usage: masks MODEL json|SCHEMA [TEXTS [TOKENS]]\n");
        return 2;
    }
    check(zp_model_open(&k.m, argv[1], NULL, &err), &err);
    open_grammar(&k, argv[2]); /* lays out the vocabulary */
    zp_grammar_close(k.g);
    open_grammar(&k, argv[2]);
    k.n_words = constrain_words(k.g);
    k.bits = calloc(k.n_words, sizeof *k.bits);
    if (k.bits == NULL) return 1;
    int texts = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 5;
    int most = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 400;
    for (int i = 0; i < texts; i++) draw_text(&k, (uint64_t)i, most);
    free(k.bits);
    zp_grammar_close(k.g);
    zp_model_close(k.m);
    return 0;
}

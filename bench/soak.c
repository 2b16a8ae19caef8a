/* soak.c: one engine under mixed work for a while: memory must stay flat and answers the same.
 * Usage: soak MODEL SECONDS [f32|bf16|q8] [SEED]
 * Sequences begin, grow by ragged batches, are forked, cut, continued and closed at random, within
 * a page budget that is often used up. Prints a line of JSON a minute: {"seconds", "rss", "live"
 * (bytes counted), "tokens", "refused" (runs that found no page)}. Exit code 1: counted bytes
 * differ while no sequence is open, pages were lost, or the same prompt gave other logits; 2: wrong
 * usage. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "model/engine.h"
#include "model/model.h"

enum { N_SEQ = 12, N_CTX = 4096, MOST_TOKENS = 700, PROBE = 100 };

struct soak {
    zp_model *m;
    zp_engine *e;
    struct rng r;
    zp_seq *seqs[N_SEQ];
    int32_t ids[N_SEQ][MOST_TOKENS];
    float *logits, *probe;
    uint64_t live, tokens, refused, rounds;
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "soak: %s: %s\n", what, why);
    exit(1);
}

static uint64_t below(struct soak *s, uint64_t n)
{
    return rng_below(&s->r, n);
}

static uint64_t live_bytes(void)
{
    struct mem_stats stats;
    uint64_t all = 0;
    mem_stats_read(&stats);
    for (int i = 0; i < MEM_TAG_COUNT; i++) all += stats.live[i];
    return all;
}

static void close_all(struct soak *s)
{
    for (int i = 0; i < N_SEQ; i++) zp_seq_close(s->seqs[i]), s->seqs[i] = NULL;
}

/* Opens an empty place, as a fork of another sequence if there is one. */
static void open_one(struct soak *s, int at)
{
    zp_err err = { 0 };
    const zp_seq *other = s->seqs[below(s, N_SEQ)];
    uint32_t n = other ? (uint32_t)below(s, zp_seq_length(other) + 1) : 0;
    zp_status status = n ? zp_seq_fork(&s->seqs[at], other, n, &err)
                         : zp_seq_open(&s->seqs[at], s->e, NULL, &err);
    if (status != ZP_OK && status != ZP_UNSUPPORTED && status != ZP_NO_MEMORY)
        stop("open", err.message);
    s->refused += status == ZP_NO_MEMORY;
}

static void change_some(struct soak *s)
{
    zp_err err = { 0 };
    for (int i = 0; i < N_SEQ; i++) {
        uint64_t what = below(s, 10);
        if (!s->seqs[i]) {
            if (what < 5) open_one(s, i);
        } else if (what == 0) {
            zp_seq_close(s->seqs[i]);
            s->seqs[i] = NULL;
        } else if (what == 1) {
            uint32_t n = (uint32_t)below(s, zp_seq_length(s->seqs[i]) + 1);
            zp_status status = zp_seq_truncate(s->seqs[i], n, &err);
            if (status != ZP_OK && status != ZP_UNSUPPORTED) stop("truncate", err.message);
        }
    }
}

static void run_some(struct soak *s)
{
    zp_err err = { 0 };
    zp_item items[N_SEQ];
    size_t n = 0;
    for (int i = 0; i < N_SEQ; i++) {
        if (!s->seqs[i] || below(s, 3) == 0) continue;
        uint32_t room = N_CTX - zp_seq_length(s->seqs[i]);
        uint64_t most = below(s, 8) == 0 ? MOST_TOKENS : 8;
        uint32_t take = (uint32_t)below(s, (most < room ? most : room) + 1);
        for (uint32_t k = 0; k < take; k++)
            s->ids[i][k] = (int32_t)below(s, s->m->h.n_vocab);
        if (take) items[n++] = (zp_item){ s->seqs[i], s->ids[i], take, ZP_WANT_LAST };
        s->tokens += take;
    }
    if (n == 0) return;
    zp_status status = zp_engine_run(s->e, items, n, s->logits, N_SEQ, NULL, &err);
    if (status != ZP_OK && status != ZP_NO_MEMORY) stop("run", err.message);
    s->refused += status == ZP_NO_MEMORY;
}

/* With everything closed: the counts of the beginning, all pages free, the same logits. */
static void check_empty(struct soak *s)
{
    zp_err err = { 0 };
    zp_seq *seq = NULL;
    size_t bytes = s->m->h.n_vocab * sizeof *s->probe;
    close_all(s);
    if (live_bytes() != s->live) stop("memory", "counted bytes differ with no sequence open");
    if (s->e->kv.pages.n_free != s->e->kv.pages.n_pages) stop("memory", "pages were lost");
    for (int i = 0; i < PROBE; i++) s->ids[0][i] = (100 + 7 * i) % (int32_t)s->m->h.n_vocab;
    zp_item item = { NULL, s->ids[0], PROBE, ZP_WANT_LAST };
    if (zp_seq_open(&seq, s->e, NULL, &err) != ZP_OK) stop("open", err.message);
    item.seq = seq;
    if (zp_engine_run(s->e, &item, 1, s->logits, 1, NULL, &err) != ZP_OK) stop("run", err.message);
    if (s->rounds++ == 0) memcpy(s->probe, s->logits, bytes);
    if (memcmp(s->probe, s->logits, bytes) != 0) stop("probe", "other logits than at first");
    zp_seq_close(seq);
}

static void show_usage(void)
{
    fprintf(stderr, "usage: soak MODEL SECONDS [f32|bf16|q8] [SEED]\n");
    exit(2);
}

static void refuse(const char *name, const char *text, const char *expected)
{
    fprintf(stderr, "soak: %s: found '%s', expected %s\n", name, text, expected);
    show_usage();
}

static uint64_t read_number(const char *name, const char *text, uint64_t least)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || x < least)
        refuse(name, text, least > 0 ? "a whole number above 0" : "a whole number");
    return x;
}

static zp_kv_type read_type(const char *text)
{
    static const char *const names[] = { "f32", "bf16", "q8" };
    int i = 0;
    while (i < 3 && strcmp(text, names[i]) != 0) i++;
    if (i == 3) refuse("KV type", text, "f32, bf16 or q8");
    return (zp_kv_type)(ZP_KV_F32 + i);
}

static void open_soak(struct soak *s, const char *path, zp_kv_type type, uint64_t seed)
{
    zp_err err = { 0 };
    zp_engine_options o = { .n_ctx = N_CTX, .n_seq = N_SEQ, .micro_batch = 256, .kv_type = type };
    struct engine_plan plan;
    if (zp_model_open(&s->m, path, NULL, &err) != ZP_OK) stop(path, err.message);
    if (engine_plan(s->m, &o, &plan, &err) != ZP_OK) stop("plan", err.message);
    plan.pages.n_pages /= 6; /* often used up */
    o.kv_bytes = kv_plan_bytes(&plan.pages);
    if (zp_engine_open(&s->e, s->m, &o, &err) != ZP_OK) stop("engine", err.message);
    s->logits = malloc(N_SEQ * (size_t)s->m->h.n_vocab * sizeof *s->logits);
    s->probe = malloc(s->m->h.n_vocab * sizeof *s->probe);
    if (!s->logits || !s->probe) stop("memory", "not enough");
    s->r = rng_stream(seed, 0);
    s->live = live_bytes();
}

int main(int argc, char **argv)
{
    struct soak s = { 0 };
    if (argc < 3 || argc > 5) show_usage();
    uint64_t seconds = read_number("SECONDS", argv[2], 1),
             seed = argc > 4 ? read_number("SEED", argv[4], 0) : 1;
    open_soak(&s, argv[1], argc > 3 ? read_type(argv[3]) : ZP_KV_BF16, seed);
    double begin = os_now(), end = begin + (double)seconds, told = begin;
    check_empty(&s);
    for (uint64_t i = 1; os_now() < end; i++) {
        change_some(&s);
        run_some(&s);
        if (i % 200 == 0) check_empty(&s);
        if (os_now() < told + 60) continue;
        told += 60;
        printf("{\"seconds\": %.0f, \"rss\": %llu, \"live\": %llu, \"tokens\": %llu, "
               "\"refused\": %llu}\n", os_now() - begin, (unsigned long long)os_rss_bytes(),
               (unsigned long long)live_bytes(), (unsigned long long)s.tokens,
               (unsigned long long)s.refused);
        fflush(stdout);
    }
    check_empty(&s);
    zp_engine_close(s.e);
    zp_model_close(s.m);
    free(s.logits);
    free(s.probe);
    printf("{\"rounds\": %llu, \"tokens\": %llu, \"refused\": %llu}\n",
           (unsigned long long)s.rounds, (unsigned long long)s.tokens,
           (unsigned long long)s.refused);
    return 0;
}

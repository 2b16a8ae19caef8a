/* deep.c: one engine that stays loaded and fills, decodes and goes back on request, so that it can
 * be measured in turns with others that do the same (tools/peer_deep.c; `accept engine deep` asks).
 * Usage: deep MODEL f32|bf16|q8 N_CTX THREADS
 * Each line of the standard input is a request, answered by a line with one number:
 *   fill N    N more tokens as a prompt, the logits of the last wanted: seconds
 *   decode N  N more tokens one at a time, logits of each, then back to where it was: seconds
 *             without the way back
 *   cut N     back to N tokens: N
 *   bytes     what a token decoded here reads, as `zerope bench` counts it
 *   read      GB/s that the engine's threads read, as `zerope bench` measures it
 * Exit code 0: the input ended; 1: a request failed or is none; 2: wrong usage.
 * P1 the token of a position is always the same, in the peer too.
 * P2 a measured run computes the tokens it was asked for and no other: none is known before, and
 *    what a cut inside a closed 8-bit page has lost is computed within the cut. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "model/doctor.h"
#include "model/engine.h"

static const double probe_seconds = 0.05; /* as bench.c: several passes over the probe's memory */

struct deep {
    zp_model *m;
    zp_engine *e;
    zp_seq *s;
    struct doctor_probe *probe;
    int32_t *ids;  /* (n_ctx) */
    float *logits; /* (n_vocab) */
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "deep: %s: %s\n", what, why);
    exit(1);
}

static void check(zp_status status, const char *what, const zp_err *err)
{
    if (status != ZP_OK) stop(what, err->message);
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (!p) stop("memory", "not enough");
    return p;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Takes n more tokens, `step` of them at a time; the seconds of it (P2). */
static double take(struct deep *d, const char *what, uint32_t n, uint32_t step)
{
    zp_err err = { 0 };
    uint32_t at = zp_seq_length(d->s);
    if (n > d->e->options.n_ctx - at) stop(what, "more tokens than the context has room for");
    uint64_t before = d->e->tokens;
    double begin = os_now();
    for (uint32_t i = 0; i < n; i += step) {
        zp_item item = { d->s, d->ids + at + i, step, ZP_WANT_LAST };
        check(zp_engine_run(d->e, &item, 1, d->logits, 1, NULL, &err), what, &err);
    }
    double seconds = os_now() - begin;
    if (d->e->tokens - before != n) stop(what, "other tokens were computed than those asked for");
    return seconds;
}

/* By way of whole pages: a closed one cannot be cut, and the run after would pay for it (P2). */
static void cut(struct deep *d, uint32_t n)
{
    zp_err err = { 0 };
    if (n > zp_seq_length(d->s)) stop("cut", "there are fewer tokens");
    check(zp_seq_truncate(d->s, n / KERN_TILE * KERN_TILE, &err), "cut", &err);
    take(d, "cut", n % KERN_TILE, n % KERN_TILE);
}

static double decode(struct deep *d, uint32_t n)
{
    uint32_t at = zp_seq_length(d->s);
    double seconds = take(d, "decode", n, 1);
    cut(d, at);
    return seconds;
}

static uint64_t bytes_read(const struct deep *d)
{
    return d->e->weights.packed_bytes +
           kvcache_bytes_seen(&d->e->kv, d->m->h.n_layer, zp_seq_length(d->s), 1);
}

/* A number and nothing after it; false if it is none. */
static bool read_number(const char *text, uint32_t least, uint32_t *x)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *x = (uint32_t)value;
    return isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0 && value >= least &&
           value <= UINT32_MAX;
}

static void answer(struct deep *d, const char *line)
{
    char name[8];
    int size = 0;
    uint32_t n = 0;
    sscanf(line, "%7[a-z]%n", name, &size);
    bool alone = size > 0 && line[size] == '\0',
         counted = size > 0 && line[size] == ' ' && read_number(line + size + 1, 0, &n);
    if (counted && strcmp(name, "fill") == 0) printf("%.9f\n", take(d, "fill", n, n));
    else if (counted && strcmp(name, "decode") == 0) printf("%.9f\n", decode(d, n));
    else if (counted && strcmp(name, "cut") == 0) cut(d, n), printf("%u\n", n);
    else if (alone && strcmp(name, "bytes") == 0)
        printf("%llu\n", (unsigned long long)bytes_read(d));
    else if (alone && strcmp(name, "read") == 0)
        printf("%.3f\n", doctor_probe_read(d->probe, probe_seconds) * 1e-9);
    else stop(line, "expected fill N, decode N, cut N, bytes or read");
    fflush(stdout);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void show_usage(void)
{
    fprintf(stderr, "usage: deep MODEL f32|bf16|q8 N_CTX THREADS\n");
    exit(2);
}

static void refuse(const char *name, const char *text, const char *expected)
{
    fprintf(stderr, "deep: %s: found '%s', expected %s\n", name, text, expected);
    show_usage();
}

static uint32_t read_count(const char *name, const char *text)
{
    uint32_t x;
    if (!read_number(text, 1, &x)) refuse(name, text, "a whole number above 0");
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

/* P1: SplitMix64 (Steele et al., 2014) of the position. peer_deep.c has the same. */
static int32_t token_at(uint32_t position, uint32_t n_vocab)
{
    uint64_t x = (position + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int32_t)((x ^ x >> 31) % n_vocab);
}

static void open_deep(struct deep *d, const char *path, const zp_engine_options *o)
{
    zp_err err = { 0 };
    check(zp_model_open(&d->m, path, NULL, &err), path, &err);
    check(zp_engine_open(&d->e, d->m, o, &err), "engine", &err);
    check(zp_seq_open(&d->s, d->e, NULL, &err), "sequence", &err);
    check(doctor_probe_open(&d->probe, d->e->pool, &err), "memory to read", &err);
    d->ids = room(o->n_ctx, sizeof *d->ids);
    d->logits = room(d->m->h.n_vocab, sizeof *d->logits);
    for (uint32_t i = 0; i < o->n_ctx; i++) d->ids[i] = token_at(i, d->m->h.n_vocab);
}

static void close_deep(struct deep *d)
{
    free(d->logits);
    free(d->ids);
    doctor_probe_close(d->probe);
    zp_seq_close(d->s);
    zp_engine_close(d->e);
    zp_model_close(d->m);
}

int main(int argc, char **argv)
{
    struct deep d = { 0 };
    char line[64];
    if (argc != 5) show_usage();
    zp_engine_options o = { .kv_type = read_type(argv[2]),
                            .n_ctx = read_count("N_CTX", argv[3]),
                            .n_threads = read_count("THREADS", argv[4]) };
    open_deep(&d, argv[1], &o);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(&d, line);
    }
    close_deep(&d);
    return 0;
}

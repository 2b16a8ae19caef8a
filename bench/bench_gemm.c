/* bench_gemm.c: speed of training's matrix products, as a share of the cores' own peak measured in
 * the same run: shapes of a tiny model and of SmolLM2, forward (nt), by input (nn), by weight (tn).
 * Processor time of the caller with one thread, wall time with more, best of some rounds: of a
 * machine with other work, only the first tells much.
 *   bench_gemm [threads] [own|library] [f32|bf16] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "train/gemm.h"

enum { ROUNDS = 7 };

static double now(bool one_thread)
{
    struct timespec t;
    clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if ZP_X86
/* GFLOPS of one core: ten independent chains of multiply-adds of the widest registers. */
static ZP_NOINLINE double peak(bool wide)
{
#define STEP(r, i) "vfmadd231ps %%" r "0, %%" r "1, %%" r #i "\n"
#define STEPS(r)                                                                                   \
    STEP(r, 2) STEP(r, 3) STEP(r, 4) STEP(r, 5) STEP(r, 6) STEP(r, 7) STEP(r, 8) STEP(r, 9)        \
    STEP(r, 10) STEP(r, 11)
    double best = 0;
    for (int i = 0; i < 3; i++) {
        long n = 2000000;
        double start = now(true);
        if (wide) __asm__ volatile("1:\n" STEPS("zmm") "dec %0\njnz 1b" : "+r"(n)::"cc");
        else __asm__ volatile("1:\n" STEPS("ymm") "dec %0\njnz 1b" : "+r"(n)::"cc");
        double rate = 2e7 / (now(true) - start) * 1e-9 * (wide ? 32 : 16);
        if (rate > best) best = rate;
    }
    return best;
}
#else
static double peak(bool wide)
{
    return wide * 0.0;
}
#endif

static float *numbers(struct rng *r, size_t n)
{
    float *x = mem_alloc_huge(MEM_TRAIN, n * sizeof *x);
    for (size_t i = 0; x && i < n; i++) x[i] = (float)rng_unit(r) - 0.5f;
    return x;
}

static double best_rate(struct gemm *g, const struct gemm_product *p, bool one_thread)
{
    double best = 0, work = 2e-9 * (double)p->n * (double)p->m * (double)p->k;
    for (int i = 0; i < ROUNDS; i++) {
        double start = now(one_thread);
        gemm_run(g, p);
        double rate = work / (now(one_thread) - start);
        if (rate > best) best = rate;
    }
    return best;
}

/* y (n, m) = x (n, k) w (m, k)^T, dx = dy w, dw += dy^T x. */
static void measure(struct gemm *g, struct rng *r, size_t n, size_t k, size_t m, bool one_thread,
                    double top)
{
    float *x = numbers(r, n * k), *w = numbers(r, m * k), *y = numbers(r, n * m);
    if (!x || !w || !y) exit(4);
    struct gemm_product forward = { GEMM_NT, false, n, m, k, x, k, w, k, y, m };
    struct gemm_product by_input = { GEMM_NN, false, n, k, m, y, m, w, k, x, k };
    struct gemm_product by_weight = { GEMM_TN, true, m, k, n, y, m, x, k, w, k };
    double nt = best_rate(g, &forward, one_thread), nn = best_rate(g, &by_input, one_thread);
    double tn = best_rate(g, &by_weight, one_thread);
    printf("%5zu x %4zu x %4zu   nt %6.1f (%3.0f %%)   nn %6.1f (%3.0f %%)   tn %6.1f (%3.0f %%)\n",
           n, k, m, nt, 100 * nt / top, nn, 100 * nn / top, tn, 100 * tn / top);
    mem_free_huge(MEM_TRAIN, x, n * k * sizeof *x);
    mem_free_huge(MEM_TRAIN, w, m * k * sizeof *w);
    mem_free_huge(MEM_TRAIN, y, n * m * sizeof *y);
}

int main(int argc, char **argv)
{
    static const size_t shapes[][3] = { { 4096, 192, 192 },  { 4096, 192, 512 },
                                        { 4096, 512, 192 },  { 4096, 192, 2048 },
                                        { 1024, 576, 576 },  { 1024, 576, 1536 },
                                        { 1024, 1536, 576 }, { 1024, 576, 49152 / 8 } };
    uint32_t n_threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    struct gemm_options options = { .own = argc > 2 && strcmp(argv[2], "own") == 0 };
    if (argc > 3 && strcmp(argv[3], "bf16") == 0) options.precision = GEMM_BF16;
    struct pool *pool;
    struct gemm *g = NULL;
    zp_err err = { 0 };
    if (pool_open(&pool, n_threads, &err) != ZP_OK ||
        gemm_open_with(&g, pool, &options, &err) != ZP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double top = n_threads * peak(kern_cpu_level() >= KERN_AVX512);
    printf("%s, %s, %u threads, multiply-add peak %.0f GFLOPS; rows x in x out: GFLOPS\n",
           gemm_backend(g), gemm_precision_used(g) == GEMM_BF16 ? "bf16" : "f32", n_threads, top);
    struct rng r = rng_stream(1, 1);
    for (size_t i = 0; i < ZP_COUNT(shapes); i++)
        measure(g, &r, shapes[i][0], shapes[i][1], shapes[i][2], n_threads == 1, top);
    gemm_close(g);
    pool_close(pool);
    return 0;
}

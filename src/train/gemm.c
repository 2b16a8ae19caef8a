/* gemm.c: a product's blocks, shared by the workers of a pool, and the choice of a backend.
 * Owns: scratch of the own kernels per thread, bf16 copies of operands, oneDNN's state.
 * G1 blocks depend on n and m only; whoever computes a block gives it the same bits. */
#include "train/gemm.h"

#include <stdatomic.h>
#include <string.h>
#include "base/mem.h"
#include "base/num.h"
#include "kern/kern.h"
#include "train/gemm_dnnl.h"
#include "train/gemm_own.h"

enum {
    BLOCKS_WANTED = 8, /* 16 cost NT a tenth: more packing a product */
    BLOCK_AREA = 256 << 10, /* larger blocks are cut further */
    BLOCK_SIDE = 128,       /* sides up to this are not cut */
    BLOCK_UNIT = 16,
    TURN_SLICE = 512 /* rows of a TN product at a time */
};

struct gemm {
    struct pool *pool;
    struct kern_table kern;
    struct gemm_dnnl *dnnl; /* NULL: own kernels */
    struct gemm_own *rooms; /* (n_threads) */
    enum gemm_precision precision;
    uint16_t *half; /* operands in bf16: x, then w */
    size_t half_count;
};

enum gemm_precision gemm_precision_used(const struct gemm *g)
{
    return g->precision;
}

const char *gemm_backend(const struct gemm *g)
{
    return g->dnnl ? "onednn" : "own";
}

struct pool *gemm_pool(const struct gemm *g)
{
    return g->pool;
}

zp_status gemm_open_with(struct gemm **out, struct pool *pool, const struct gemm_options *options,
                         zp_err *err)
{
    *out = NULL;
    uint32_t n_threads = pool_threads(pool);
    struct gemm *g = mem_zalloc(MEM_PRODUCT, sizeof *g);
    ZP_FAIL_IF(!g, err, ZP_NO_MEMORY, "not enough memory for matrix products");
    g->pool = pool;
    kern_table_init(&g->kern, KERN_LEVEL_COUNT - 1);
    g->rooms = mem_array(MEM_PRODUCT, n_threads, sizeof *g->rooms);
    if (!g->rooms) {
        gemm_close(g);
        ZP_FAIL(err, ZP_NO_MEMORY,
                "not enough memory for matrix products of %u threads (%zu bytes)", n_threads,
                n_threads * sizeof *g->rooms);
    }
    zp_status status = options->own ? ZP_OK : gemm_dnnl_open(&g->dnnl, n_threads, err);
    if (status != ZP_OK) {
        gemm_close(g);
        return status;
    }
    enum kern_level least = options->emulate ? KERN_AVX512 : KERN_AVX512BF16;
    bool has_bf16 = g->dnnl && kern_cpu_level() >= least;
    g->precision = has_bf16 ? options->precision : GEMM_F32;
    *out = g;
    return ZP_OK;
}

zp_status gemm_open(struct gemm **out, struct pool *pool, enum gemm_precision precision,
                    zp_err *err)
{
    return gemm_open_with(out, pool, &(struct gemm_options){ .precision = precision }, err);
}

void gemm_close(struct gemm *g)
{
    if (!g) return;
    gemm_dnnl_close(g->dnnl);
    mem_free(g->rooms);
    mem_free(g->half);
    mem_free(g);
}

/* What the old room held is not needed. */
static bool grow_half(struct gemm *g, size_t count)
{
    if (count <= g->half_count) return true;
    mem_free(g->half);
    g->half = mem_array(MEM_PRODUCT, count, sizeof *g->half);
    g->half_count = g->half ? count : 0;
    return g->half != NULL;
}

zp_status gemm_reserve(struct gemm *g, size_t count, zp_err *err)
{
    ZP_FAIL_IF(g->precision == GEMM_BF16 && !grow_half(g, count), err, ZP_NO_MEMORY,
               "not enough memory for operands of matrix products (%zu x %zu bytes)", count,
               sizeof *g->half);
    return ZP_OK;
}

uint64_t gemm_bytes(const struct gemm *g, size_t count)
{
    size_t half = g->precision == GEMM_BF16 && count > g->half_count ? count : g->half_count;
    return sizeof *g + pool_threads(g->pool) * sizeof *g->rooms + gemm_dnnl_bytes(g->dnnl) +
           half * sizeof *g->half;
}

/* TN in slices of k, which stay in L2: one core 90 -> 130 GFLOPS with 512 columns. Rows whose
 * distance is a multiple of 1 KiB all fall into a few sets of L1: such a slice is copied to an odd
 * distance first (2048 columns: 89 -> 121). */
static bool turned_by_library(struct gemm *g, struct gemm_own *room, const struct gemm_product *p)
{
    size_t ld = p->n + BLOCK_UNIT, rows = sizeof room->panel / sizeof room->panel[0] / ld;
    bool copy = p->ldx % 256 == 0 && rows >= BLOCK_UNIT;
    size_t slice = copy && rows < TURN_SLICE ? rows : TURN_SLICE;
    struct gemm_product s = *p;
    for (size_t k = 0; k < p->k; k += s.k) {
        s.k = p->k - k < slice ? p->k - k : slice;
        s.x = p->x + k * p->ldx;
        s.w = p->w + k * p->ldw;
        for (size_t i = 0; copy && i < s.k; i++)
            memcpy(room->panel + i * ld, s.x + i * p->ldx, p->n * sizeof *s.x);
        if (copy) s.x = room->panel, s.ldx = ld;
        if (!gemm_dnnl_f32(g->dnnl, &s)) {
            if (k == 0) return false;
            s.x = p->x + k * p->ldx, s.ldx = p->ldx; /* the panel is needed */
            gemm_own_product(g->kern.gemm_f32, room, &s);
        }
        s.add = true;
    }
    return true;
}

void gemm_block(struct gemm *g, uint32_t thread, const struct gemm_product *p)
{
    if (p->n == 0 || p->m == 0) return;
    if (p->k == 0) {
        for (size_t r = 0; !p->add && r < p->n; r++) memset(p->y + r * p->ldy, 0, p->m * 4);
        return;
    }
    struct gemm_own *room = &g->rooms[thread];
    if (g->dnnl && p->kind == GEMM_TN && turned_by_library(g, room, p)) return;
    if (g->dnnl && p->kind != GEMM_TN && gemm_dnnl_f32(g->dnnl, p)) return;
    gemm_own_product(g->kern.gemm_f32, room, p);
}

/* ---- shared products ------------------------------------------------------------------------- */

struct grid {
    size_t n, m; /* of a block */
    size_t across, count;
};

static size_t half_of(size_t n)
{
    return (n / 2 + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
}

/* Halves the longer side until there are enough blocks, and small enough ones. */
static struct grid grid_of(size_t n, size_t m)
{
    struct grid b = { n, m, 1, 1 };
    while ((b.n > BLOCK_SIDE || b.m > BLOCK_SIDE) &&
           (b.count < BLOCKS_WANTED || b.n * b.m > BLOCK_AREA)) {
        if (b.n >= b.m) b.n = half_of(b.n);
        else b.m = half_of(b.m);
        b.across = (m + b.m - 1) / b.m;
        b.count = (n + b.n - 1) / b.n * b.across;
    }
    return b;
}

struct job {
    struct gemm *g;
    const struct gemm_product *p;
    struct grid grid;
    uint16_t *x, *w; /* bf16, rows without gaps; or NULL */
    atomic_size_t next;
};

/* Block number i; x_at and w_at tell where its operands begin. */
static struct gemm_product block_of(const struct job *j, size_t i, size_t *x_at, size_t *w_at)
{
    struct gemm_product b = *j->p;
    size_t n0 = i / j->grid.across * j->grid.n, m0 = i % j->grid.across * j->grid.m;
    if (b.n - n0 < j->grid.n) b.n -= n0;
    else b.n = j->grid.n;
    if (b.m - m0 < j->grid.m) b.m -= m0;
    else b.m = j->grid.m;
    if (j->x) {
        b.ldx = b.kind == GEMM_TN ? j->p->n : b.k;
        b.ldw = b.kind == GEMM_NT ? b.k : j->p->m;
    }
    *x_at = b.kind == GEMM_TN ? n0 : n0 * b.ldx;
    *w_at = b.kind == GEMM_NT ? m0 * b.ldw : m0;
    b.y += n0 * b.ldy + m0;
    return b;
}

static void run_blocks(struct job *j, uint32_t thread)
{
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed), x_at, w_at;
        if (i >= j->grid.count) return;
        struct gemm_product b = block_of(j, i, &x_at, &w_at);
        if (j->x && gemm_dnnl_bf16(j->g->dnnl, thread, &b, j->x + x_at, j->w + w_at)) continue;
        if (j->x) { /* no primitive for this shape: in f32 */
            b.ldx = j->p->ldx, b.ldw = j->p->ldw;
            x_at = b.kind == GEMM_TN ? x_at : x_at / b.k * b.ldx;
            w_at = b.kind == GEMM_NT ? w_at / b.k * b.ldw : w_at;
        }
        b.x = j->p->x + x_at;
        b.w = j->p->w + w_at;
        gemm_block(j->g, thread, &b);
    }
}

/* This thread's share of an operand (rows, columns) in bf16, to the nearest even. */
static void round_operand(const float *x, size_t ld, size_t rows, size_t columns, uint16_t *out,
                          uint32_t thread, uint32_t n_threads)
{
    size_t begin, end;
    pool_share(rows, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t c = 0; c < columns; c++) out[r * columns + c] = f32_to_bf16(x[r * ld + c]);
}

static void run_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct job *j = arg;
    if (j->x) {
        const struct gemm_product *p = j->p;
        bool tn = p->kind == GEMM_TN, nt = p->kind == GEMM_NT;
        round_operand(p->x, p->ldx, tn ? p->k : p->n, tn ? p->n : p->k, j->x, thread, n_threads);
        round_operand(p->w, p->ldw, nt ? p->m : p->k, nt ? p->k : p->m, j->w, thread, n_threads);
        pool_barrier(j->g->pool, thread);
    }
    run_blocks(j, thread);
}

/* Room for both operands in bf16; without it the product is done in f32. */
static void take_half_room(struct gemm *g, struct job *j)
{
    size_t x_count = j->p->n * j->p->k;
    if (!grow_half(g, x_count + j->p->m * j->p->k)) return;
    j->x = g->half;
    j->w = g->half + x_count;
}

static void run_product(struct gemm *g, const struct gemm_product *p, enum gemm_precision precision)
{
    struct job j = { .g = g, .p = p, .grid = grid_of(p->n, p->m) }; // G1
    if (p->n == 0 || p->m == 0) return;
    atomic_init(&j.next, 0);
    if (precision == GEMM_BF16 && p->k > 0) take_half_room(g, &j);
    pool_run(g->pool, run_share, &j);
}

void gemm_run(struct gemm *g, const struct gemm_product *p)
{
    run_product(g, p, g->precision);
}

void gemm_run_f32(struct gemm *g, const struct gemm_product *p)
{
    run_product(g, p, GEMM_F32);
}

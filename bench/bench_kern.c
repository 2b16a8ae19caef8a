/* bench_kern.c: speed of every kernel of the fastest level (or the one named) on one core, as a
 * share of this core's peaks measured in the same run. Weights and tiles come from memory (working
 * sets beyond the caches), shapes are those of a 135M and a 1B model.
 * Times are processor time of the thread, best of a few rounds, so that other load disturbs little.
 *   bench_kern [level] [part of an operation's name] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"

enum { ROUNDS = 5, MOST_TOK = 512 };
static const size_t working_set = 64u << 20;

struct peaks {
    double flops, int_ops, read; /* G per second */
};

struct bench {
    struct kern_table t;
    struct peaks peak;
    struct rng rng;
    const char *filter;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *room(size_t bytes)
{
    void *p = mem_alloc_huge(MEM_SCRATCH, bytes + 4096);
    if (!p) printf("not enough memory for %zu bytes\n", bytes);
    return p;
}

static float *numbers(struct bench *b, size_t n, float size)
{
    float *x = room(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++) x[i] = (float)(2 * rng_unit(&b->rng) - 1) * size;
    return x;
}

/* ---- peaks ----------------------------------------------------------------------------------- */

#if ZP_X86
#define TEN(op, r)                                                                                 \
    op " %%" r "0, %%" r "1, %%" r "2\n" op " %%" r "0, %%" r "1, %%" r "3\n" op " %%" r "0, %%" r \
       "1, %%" r "4\n" op " %%" r "0, %%" r "1, %%" r "5\n" op " %%" r "0, %%" r "1, %%" r         \
       "6\n" op " %%" r "0, %%" r "1, %%" r "7\n" op " %%" r "0, %%" r "1, %%" r "8\n" op " %%" r  \
       "0, %%" r "1, %%" r "9\n" op " %%" r "0, %%" r "1, %%" r "10\n" op " %%" r "0, %%" r        \
       "1, %%" r "11\n"
#define LOOP(op, r, n) __asm__ volatile("1:\n" TEN(op, r) "dec %0\njnz 1b" : "+r"(n)::"cc")

/* Registers are clobbered without telling: nothing vector lives across these calls. */
static ZP_NOINLINE double instructions_per_ns(int which)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        long n = 2000000;
        double start = now();
        if (which == 0) LOOP("vfmadd231ps", "zmm", n);
        if (which == 1) LOOP("vpdpbusd", "zmm", n);
        if (which == 2) LOOP("vfmadd231ps", "ymm", n);
        double rate = 2e7 / (now() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    return best;
}
#else
static double instructions_per_ns(int which)
{
    return which * 0.0;
}
#endif

static double read_rate(void)
{
    size_t n = (256u << 20) / 8;
    uint64_t *x = room(n * 8), sum = 0;
    double best = 0;
    memset(x, 1, n * 8);
    for (int round = 0; round < 3; round++) {
        double start = now();
        for (size_t i = 0; i < n; i += 8) /* one word a line: the core waits for memory alone */
            sum += x[i];
        double rate = (double)n * 8 / (now() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    if (sum == 1) printf(" ");
    mem_free_huge(MEM_SCRATCH, x, n * 8 + 4096);
    return best;
}

static void measure_peaks(struct bench *b)
{
    b->peak.read = read_rate();
    if (b->t.level >= KERN_AVX512) {
        b->peak.flops = 32 * instructions_per_ns(0);
        b->peak.int_ops = 128 * instructions_per_ns(1);
    } else if (b->t.level == KERN_AVX2) {
        b->peak.flops = 16 * instructions_per_ns(2);
    }
    printf("level %s, one core: %.0f GFLOPS, %.0f int8 GOPS, reads %.1f GB/s\n",
           kern_level_name(b->t.level), b->peak.flops, b->peak.int_ops, b->peak.read);
}

static void print_share(const char *unit, double rate, double peak)
{
    printf("  %7.1f %s", rate, unit);
    if (peak > 0) printf(" (%3.0f %%)", 100 * rate / peak);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Random numbers of that size (tiny ones would cost some processors a trap each), or random blocks
 * with finite scales. */
static void fill_blocks(struct bench *b, const struct quant_traits *t, uint8_t *out, size_t n)
{
    zp_err err = { 0 };
    for (size_t i = 0; i < n; i++, out += t->bytes) {
        if (t->block == 1) {
            float x = (float)(2 * rng_unit(&b->rng) - 1);
            quant_quantize_row(t, &x, out, 1, &err);
            continue;
        }
        do {
            for (size_t k = 0; k < t->bytes; k++) out[k] = (uint8_t)rng_u32(&b->rng);
        } while (!quant_row_is_finite(t, out, t->block));
    }
}

/* Copies of one packed random matrix until the working set is full; returns their number. */
static size_t fill_copies(struct bench *b, struct kern_mat *m, uint32_t type, uint8_t **all)
{
    const struct quant_traits *t = quant_traits_find(type);
    size_t row = quant_row_bytes(t, m->n_in), bytes = kern_mat_bytes(m),
           copies = working_set / bytes;
    if (copies == 0) copies = 1;
    uint8_t *file = room(row * m->n_out), *scratch = room(kern_mat_pack_scratch(m));
    fill_blocks(b, t, file, row * m->n_out / t->bytes);
    *all = room(copies * bytes);
    m->data = *all;
    kern_mat_pack(m, file, type, NULL, 0, (m->n_out + PACK_ROWS - 1) / PACK_ROWS, scratch);
    for (size_t i = 1; i < copies; i++) memcpy(*all + i * bytes, *all, bytes);
    mem_free_huge(MEM_SCRATCH, file, row * m->n_out + 4096);
    mem_free_huge(MEM_SCRATCH, scratch, kern_mat_pack_scratch(m) + 4096);
    return copies;
}

static void bench_product(struct bench *b, uint32_t type, size_t n_out, size_t n_in)
{
    static const size_t batches[] = { 1, 2, 4, 6, 16, 64, MOST_TOK };
    struct kern_mat m;
    struct kern_act x = { 0 };
    uint8_t *all;
    zp_err err = { 0 };
    if (kern_mat_plan(&m, type, n_out, n_in, false, &err)) return;
    size_t bytes = kern_mat_bytes(&m), copies = fill_copies(b, &m, type, &all);
    float *in = numbers(b, MOST_TOK * n_in, 1), *y = numbers(b, MOST_TOK * n_out, 0);
    void *q = room(kern_act_bytes(MOST_TOK, n_in));
    kern_act_place(&x, q, MOST_TOK, n_in);
    x.f32 = in;
    x.f32_stride = n_in;
    kern_act_quantize_rows(b->t.act_quantize, &x, 0, MOST_TOK);
    bool is_int = kern_mat_is_quantised(&m);
    for (size_t i = 0; i < ZP_COUNT(batches); i++) {
        double best = 1e9;
        size_t use = batches[i] > 16 && copies > 4 ? 4 : copies;
        for (int round = 0; round < ROUNDS; round++) {
            double start = now();
            for (size_t c = 0; c < use; c++) {
                m.data = all + c * bytes;
                kern_gemm_of(&b->t, m.form)(&m, 0, n_out, &x, batches[i], y, n_out);
            }
            double seconds = (now() - start) / (double)use;
            if (seconds < best) best = seconds;
        }
        printf("%-6s %5zu x %4zu, %3zu tokens", quant_traits_find(type)->name, n_out, n_in,
               batches[i]);
        double work = 2e-9 * (double)n_out * (double)n_in * (double)batches[i] / best;
        print_share("GOPS", work, is_int ? b->peak.int_ops : b->peak.flops);
        print_share("GB/s", (double)bytes / best * 1e-9, b->peak.read);
        printf("\n");
    }
    mem_free_huge(MEM_SCRATCH, all, copies * bytes + 4096);
    mem_free_huge(MEM_SCRATCH, in, MOST_TOK * n_in * 4 + 4096);
    mem_free_huge(MEM_SCRATCH, y, MOST_TOK * n_out * 4 + 4096);
    mem_free_huge(MEM_SCRATCH, q, kern_act_bytes(MOST_TOK, n_in) + 4096);
}

static void bench_products(struct bench *b)
{
    static const struct {
        uint32_t type;
        size_t n_out, n_in;
    } cases[] = { { QUANT_F32, 1536, 576 },     { QUANT_F16, 1536, 576 },
                  { QUANT_BF16, 1536, 576 },    { QUANT_Q4_1, 1536, 576 },
                  { QUANT_Q4_1, 576, 1536 },    { QUANT_Q8_0, 1536, 576 },
                  { QUANT_Q8_0, 576, 1536 },    { QUANT_Q4_0, 2048, 2048 },
                  { QUANT_Q4_1, 2048, 2048 },   { QUANT_Q5_0, 2048, 2048 },
                  { QUANT_Q5_1, 2048, 2048 },   { QUANT_Q8_0, 2048, 2048 },
                  { QUANT_Q2_K, 2048, 2048 },   { QUANT_Q3_K, 2048, 2048 },
                  { QUANT_Q4_K, 2048, 2048 },   { QUANT_Q5_K, 2048, 2048 },
                  { QUANT_Q6_K, 2048, 2048 },   { QUANT_IQ4_NL, 2048, 2048 },
                  { QUANT_IQ4_XS, 2048, 2048 }, { QUANT_MXFP4, 2048, 2048 } };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        struct kern_mat m;
        if (kern_mat_plan(&m, cases[i].type, cases[i].n_out, cases[i].n_in, false, NULL)) continue;
        static const char *const names[KERN_FORM_COUNT] = {
            "gemm_f32", "gemm_f16", "gemm_bf16", "gemm_q8", "gemm_q6",
            "gemm_q5",  "gemm_q4",  "gemm_c4",   "gemm_q3", "gemm_q2"
        };
        if (strstr(names[m.form], b->filter))
            bench_product(b, cases[i].type, cases[i].n_out, cases[i].n_in);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* rows query rows at the end of n_pos positions; group rows share a position. */
enum tiles { TILES_F32, TILES_BF16, TILES_Q8 };

static void bench_attention(struct bench *b, enum tiles type, size_t d, size_t rows, size_t group,
                            size_t n_pos)
{
    const kern_attend_fn ops[] = { b->t.attend_f32, b->t.attend_bf16, b->t.attend_q8 };
    static const char *const names[] = { "f32 ", "bf16", "q8  " };
    const size_t tile_bytes[] = { KERN_TILE * d * 4, KERN_TILE * d * 2, kern_q8_tile_bytes(d) };
    const size_t row_bytes[] = { d * 4, d * 2, kern_q8_row_bytes(d) };
    size_t tiles = n_pos / KERN_TILE, tile = tile_bytes[type], words = tile / 4;
    size_t copies = rows > 8 ? 2 : working_set / (2 * tile * tiles) + 1;
    float *memory = numbers(b, 2 * words * tiles * copies, 0),
          *q = numbers(b, rows * (d + 64), 0.1f);
    float *state = numbers(b, rows * (d + 2), 0);
    const void **k = room(tiles * copies * sizeof *k), **v = room(tiles * copies * sizeof *v);
    uint32_t *lo = room(rows * sizeof *lo), *hi = room(rows * sizeof *hi);
    double best = 1e9, pairs = 0;
    for (size_t i = 0; i < tiles * copies; i++) {
        k[i] = memory + 2 * i * words;
        v[i] = memory + (2 * i + 1) * words;
    }
    for (size_t r = 0; r < rows; r++) {
        hi[r] = (uint32_t)(n_pos - (rows - 1 - r) / group);
        pairs += hi[r];
    }
    struct kern_attend a = { .d = d,
                             .n_rows = rows,
                             .q = q,
                             .q_stride = row_bytes[type],
                             .lo = lo,
                             .hi = hi,
                             .room = room(kern_attend_room(d)),
                             .m = state,
                             .l = state + rows,
                             .o = state + 2 * rows };
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (size_t c = 0; c < copies; c++) {
            a.k_tile = k + c * tiles;
            a.v_tile = v + c * tiles;
            for (a.tile_begin = 0; a.tile_begin < tiles; a.tile_begin += 16) {
                a.tile_end = a.tile_begin + 16 < tiles ? a.tile_begin + 16 : tiles;
                ops[type](&a);
            }
        }
        double seconds = (now() - start) / (double)copies;
        if (seconds < best) best = seconds;
    }
    printf("attend_%s d %zu, %4zu rows, %4zu positions", names[type], d, rows, n_pos);
    print_share("GFLOPS", 4e-9 * pairs * (double)d / best, b->peak.flops);
    print_share("GB/s", 2e-9 * (double)(tile * tiles) / best, b->peak.read);
    printf("\n");
    mem_free_huge(MEM_SCRATCH, memory, 2 * words * tiles * copies * 4 + 4096);
}

static void bench_attentions(struct bench *b)
{
    static const char *const names[] = { "attend_f32", "attend_bf16", "attend_q8" };
    for (int i = 0; i < 3; i++) {
        enum tiles type = (enum tiles)i;
        if (!strstr(names[i], b->filter)) continue;
        bench_attention(b, type, 64, 3, 3, 4096);
        bench_attention(b, type, 256, 4, 4, 4096);
        bench_attention(b, type, 64, 1536, 3, 512);
        bench_attention(b, type, 64, 1536, 3, 4096);
        bench_attention(b, type, 256, 512, 4, 1024);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct row_room {
    float *x, *y, *z, *cs;
    struct kern_act act;
    float max;
    double sum;
    void *k, *v;
};

static void row_call(const struct kern_table *t, struct row_room *r, int op, size_t n)
{
    struct kern_norm_row norm = { n, r->x, r->y, r->z, 0.6f };
    switch (op) {
    case 0: t->rmsnorm(r->x, r->y, 1e-5f, n, r->z); break;
    case 1: t->rotate(r->z, r->cs, n / 2); break;
    case 2: t->silu_mul(r->x, r->y, r->z, n); break;
    case 3: t->gelu_mul(r->x, r->y, r->z, n); break;
    case 4: t->add_scaled(r->z, r->y, 0.5f, r->z, n); break;
    case 5: t->expsum(r->x, n, &r->max, &r->sum); break;
    case 6: t->kl_row(r->x, 1, 1, r->y, 1, 1, n); break;
    case 7: kern_act_quantize_rows(t->act_quantize, &r->act, 0, 1); break;
    case 8: t->kv_append_bf16(r->k, r->v, 5, r->x, r->y, n / 2); break;
    case 9: t->kv_append_f32(r->k, r->v, 5, r->x, r->y, n / 2); break;
    case 10: t->scale(r->x, 0.5f, r->z, n); break;
    case 11: r->max = t->row_max(r->x, n, 0); break;
    case 12: t->exp_row(r->z, n, 1, 1); break;
    case 13: t->silu_back(r->x, r->y, r->y, r->z, r->cs, n); break;
    case 14: t->gelu_back(r->x, r->y, r->y, r->z, r->cs, n); break;
    case 15: t->rmsnorm_back(&norm, false, r->z, r->cs); break;
    case 16: t->weigh_lists(r->x, n, r->y, 8, r->z, n); break;
    default: t->attend_merge(&r->max, &r->max, r->z, r->max, 1, r->y, n); break;
    }
}

static void bench_rows(struct bench *b)
{
    static const struct {
        const char *name;
        size_t n;
    } ops[] = { { "rmsnorm", 576 },       { "rotate", 576 },       { "silu_mul", 1536 },
                { "gelu_mul", 2048 },     { "add_scaled", 576 },   { "expsum", 49152 },
                { "kl_row", 49152 },      { "act_quantize", 576 }, { "kv_append_bf16", 128 },
                { "kv_append_f32", 128 }, { "scale", 576 },      { "row_max", 128 },
                { "exp_row", 128 },       { "silu_back", 1536 },   { "gelu_back", 1536 },
                { "rmsnorm_back", 576 },  { "weigh_lists", 1024 }, { "attend_merge", 64 } };
    size_t most = 49152;
    struct row_room r = { .x = numbers(b, most, 3),
                          .y = numbers(b, most, 3),
                          .z = numbers(b, most, 3),
                          .cs = numbers(b, most, 1),
                          .k = room(KERN_TILE * 64 * 4),
                          .v = room(KERN_TILE * 64 * 4) };
    kern_act_place(&r.act, room(kern_act_bytes(1, 576)), 1, 576);
    r.act.f32 = r.x;
    for (size_t i = 0; i < ZP_COUNT(ops); i++) {
        double best = 1e9;
        size_t calls = 400000 / ops[i].n + 1;
        if (!strstr(ops[i].name, b->filter)) continue;
        for (int round = 0; round < ROUNDS; round++) {
            double start = now();
            for (size_t c = 0; c < calls; c++) row_call(&b->t, &r, (int)i, ops[i].n);
            double seconds = (now() - start) / (double)calls;
            if (seconds < best) best = seconds;
        }
        printf("%-14s %5zu values: %8.1f ns, %.3f ns each\n", ops[i].name, ops[i].n, best * 1e9,
               best * 1e9 / (double)ops[i].n);
    }
}

int main(int argc, char **argv)
{
    struct bench b = { .rng = rng_stream(1, 1), .filter = argc > 2 ? argv[2] : "" };
    enum kern_level level = KERN_LEVEL_COUNT;
    for (int l = 0; argc > 1 && l < KERN_LEVEL_COUNT; l++)
        if (strcmp(argv[1], kern_level_name((enum kern_level)l)) == 0) level = (enum kern_level)l;
    kern_table_init(&b.t, level);
    measure_peaks(&b);
    bench_products(&b);
    bench_attentions(&b);
    bench_rows(&b);
    return 0;
}

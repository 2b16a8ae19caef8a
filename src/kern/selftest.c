/* selftest.c: one case an operation kind: the reference's bits, or, of products of float matrices
 * and attention over f32 tiles, what their contract says.
 * Owns: a room for the case while it runs. Does not know: models.
 * Inputs are seeded normals; sizes leave partial groups, blocks and tiles at every end. */
#include "kern/selftest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/numtext.h"
#include "base/rng.h"

enum {
    N_IN = 96,     /* whole blocks of 32, half a unit of padding */
    N_SUPER = 256, /* the width of types whose blocks are that long */
    N_OUT = 40,
    N_TOK = 7,
    D_HEAD = 64,
    N_ROWS = 5,
    N_TILES = 2,
    N_WIDE = 331,
    TILE_FLOATS = KERN_TILE * D_HEAD,
};

struct side { /* what one implementation works on */
    float y[N_TOK * N_OUT + N_WIDE];
    float m[N_ROWS], l[N_ROWS], o[N_ROWS * D_HEAD];
    float k[N_TILES][TILE_FLOATS], v[N_TILES][TILE_FLOATS];
    _Alignas(64) uint8_t act[4096];
};

struct selftest {
    const struct kern_table *ref;
    struct rng rng;
    struct side a, b; /* reference, chosen */
    float x[N_TOK * N_SUPER], rows[N_OUT * N_SUPER], wide[3][N_WIDE];
    uint8_t file[N_OUT * N_IN * 4];
    _Alignas(64) uint8_t packed[48 * N_SUPER * 4];
    _Alignas(64) uint8_t scratch[PACK_ROWS * PACK_SLICE];
};

static void fill(struct selftest *s, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(&s->rng);
}

/* ---- contracts ---------------------------------------------------------------------------------
 */

static double differing(const void *a, const void *b, size_t bytes)
{
    const uint8_t *p = a, *q = b;
    double n = 0;
    for (size_t i = 0; i < bytes; i++) n += p[i] != q[i];
    return n;
}

/* The number in "ULP(8)", "DOT(4)", "2e-6". */
static double allowance(const char *contract)
{
    const char *open = strchr(contract, '(');
    return numtext_double(open ? open + 1 : contract, NULL);
}

/* 0 for the same bits; beyond any limit where they differ or the result is no number. */
static double row_error(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(b[i])) return HUGE_VAL;
    return differing(a, b, n * sizeof *a) > 0 ? HUGE_VAL : 0;
}

/* ---- cases by kind ------------------------------------------------------------------------------
 */

static bool place_act(struct kern_act *a, struct side *side, const float *x, size_t n_in)
{
    memset(side->act, 0, sizeof side->act);
    *a = (struct kern_act){ .f32 = x, .f32_stride = n_in };
    if (kern_act_bytes(N_TOK, n_in) > sizeof side->act) return false;
    kern_act_place(a, side->act, N_TOK, n_in);
    return true;
}

static double case_act_quantize(struct selftest *s, const char *op, kern_act_quantize_fn ref,
                                kern_act_quantize_fn chosen, const char *contract)
{
    struct kern_act a, b;
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->x, N_TOK * N_IN);
    if (!place_act(&a, &s->a, s->x, N_IN) || !place_act(&b, &s->b, s->x, N_IN)) return HUGE_VAL;
    kern_act_quantize_rows(ref, &a, 0, N_TOK);
    kern_act_quantize_rows(chosen, &b, 0, N_TOK);
    return differing(s->a.act, s->b.act, kern_act_bytes(N_TOK, N_IN));
}

static uint32_t type_of_gemm(const char *op)
{
    static const struct {
        const char *op;
        uint32_t type;
    } types[] = { { "gemm_f32", QUANT_F32 },
                  { "gemm_f16", QUANT_F16 },
                  { "gemm_bf16", QUANT_BF16 },
                  { "gemm_q8", QUANT_Q8_0 },
                  { "gemm_q6", QUANT_Q6_K },
                  { "gemm_q5", QUANT_Q5_1 },
                  { "gemm_q4", QUANT_Q4_1 },
                  { "gemm_c4", QUANT_IQ4_NL },
                  { "gemm_q3", QUANT_Q3_K },
                  { "gemm_q2", QUANT_Q2_K } };
    for (size_t i = 0; i < ZP_COUNT(types); i++)
        if (strcmp(types[i].op, op) == 0) return types[i].type;
    return UINT32_MAX;
}

/* File rows of a type; random bits where this program cannot write it: without their bit 6, halves
 * are below 2. */
static bool fill_file(struct selftest *s, const struct quant_traits *t, size_t n_in)
{
    size_t row = quant_row_bytes(t, n_in);
    if (row * N_OUT > sizeof s->file) return false;
    fill(s, s->rows, N_OUT * n_in);
    for (size_t i = 0; !t->can_write && i < N_OUT * row; i++)
        s->file[i] = rng_u32(&s->rng) & 0xbf;
    for (size_t r = 0; t->can_write && r < N_OUT; r++)
        if (quant_quantize_row(t, s->rows + r * n_in, s->file + r * row, n_in, NULL) != ZP_OK)
            return false;
    return true;
}

static bool pack_matrix(struct selftest *s, uint32_t type, struct kern_mat *m)
{
    const struct quant_traits *t = quant_traits_find(type);
    if (!t) return false;
    size_t n_in = t->block == N_SUPER ? N_SUPER : N_IN;
    if (!fill_file(s, t, n_in) || kern_mat_plan(m, type, N_OUT, n_in, false, NULL) != ZP_OK)
        return false;
    if (kern_mat_bytes(m) > sizeof s->packed || kern_mat_pack_scratch(m) > sizeof s->scratch)
        return false;
    memset(s->packed, 0, sizeof s->packed);
    m->data = s->packed;
    kern_mat_pack(m, s->file, type, NULL, 0, (N_OUT + PACK_ROWS - 1) / PACK_ROWS, s->scratch);
    return true;
}

static double case_gemm(struct selftest *s, const char *op, kern_gemm_fn ref, kern_gemm_fn chosen,
                        const char *contract)
{
    struct kern_mat m;
    struct kern_act x;
    float w[N_SUPER];
    if (!pack_matrix(s, type_of_gemm(op), &m) || !place_act(&x, &s->a, s->x, m.n_in))
        return HUGE_VAL;
    fill(s, s->x, N_TOK * m.n_in);
    kern_act_quantize_rows(s->ref->act_quantize, &x, 0, N_TOK);
    ref(&m, 0, N_OUT, &x, N_TOK, s->a.y, N_OUT);
    chosen(&m, 0, N_OUT, &x, N_TOK, s->b.y, N_OUT);
    if (kern_mat_is_quantised(&m)) return row_error(s->a.y, s->b.y, N_TOK * N_OUT);
    double worst = 0, c = allowance(contract) * 0x1p-24 * (2 + sqrt((double)m.n_in));
    for (size_t r = 0; r < N_OUT; r++) {
        kern_mat_unpack_row(&m, r, w);
        for (size_t t = 0; t < N_TOK; t++) {
            double terms = 0, d = (double)s->a.y[t * N_OUT + r] - (double)s->b.y[t * N_OUT + r];
            for (size_t k = 0; k < m.n_in; k++)
                terms += fabs((double)x.f32[t * m.n_in + k] * (double)w[k]);
            if (isnan(d)) return HUGE_VAL;
            worst = fmax(worst, fabs(d) / (c * terms));
        }
    }
    return worst;
}

static void append_all(struct selftest *s, kern_kv_append_fn append, struct side *side)
{
    memset(side->k, 0, sizeof side->k);
    memset(side->v, 0, sizeof side->v);
    struct rng r = rng_stream(11, 3); /* both sides get the same numbers */
    s->rng = r;
    for (size_t p = 0; p < N_TILES * KERN_TILE - 9; p++) {
        float kv[2 * D_HEAD];
        fill(s, kv, 2 * D_HEAD);
        append(side->k[p / KERN_TILE], side->v[p / KERN_TILE], p % KERN_TILE, kv, kv + D_HEAD,
               D_HEAD);
    }
}

static double case_kv_append(struct selftest *s, const char *op, kern_kv_append_fn ref,
                             kern_kv_append_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    append_all(s, ref, &s->a);
    append_all(s, chosen, &s->b);
    return differing(s->a.k, s->b.k, sizeof s->a.k) + differing(s->a.v, s->b.v, sizeof s->a.v);
}

static double case_q8_row(struct selftest *s, const char *op, kern_q8_row_fn ref,
                          kern_q8_row_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->x, N_IN);
    ref(s->x, N_IN, s->a.act);
    chosen(s->x, N_IN, s->b.act);
    return differing(s->a.act, s->b.act, kern_q8_row_bytes(N_IN));
}

static double case_kv_close(struct selftest *s, const char *op, kern_kv_close_fn ref,
                            kern_kv_close_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    append_all(s, s->ref->kv_append_bf16, &s->a);
    ref(s->a.k[0], s->a.v[0], s->a.k[1], s->a.v[1], D_HEAD);
    chosen(s->a.k[0], s->a.v[0], s->b.k[1], s->b.v[1], D_HEAD);
    size_t bytes = kern_q8_tile_bytes(D_HEAD);
    return differing(s->a.k[1], s->b.k[1], bytes) + differing(s->a.v[1], s->b.v[1], bytes);
}

/* What attention over one type of tiles reads: tiles in side a, rows in `rows`. */
struct attend_input {
    const void *rows;
    size_t stride;
};

static struct attend_input attend_f32_input(struct selftest *s)
{
    append_all(s, s->ref->kv_append_f32, &s->a);
    fill(s, s->x, N_ROWS * D_HEAD);
    for (size_t i = 0; i < N_ROWS * D_HEAD; i++) s->x[i] *= 0.2f;
    return (struct attend_input){ s->x, D_HEAD * sizeof(float) };
}

static struct attend_input attend_bf16_input(struct selftest *s)
{
    uint16_t *pairs = (uint16_t *)(void *)s->scratch;
    attend_f32_input(s);
    append_all(s, s->ref->kv_append_bf16, &s->a);
    for (size_t i = 0; i < N_ROWS * D_HEAD; i++) pairs[i] = f32_to_bf16(s->x[i]);
    return (struct attend_input){ pairs, D_HEAD * sizeof *pairs };
}

static struct attend_input attend_q8_input(struct selftest *s)
{
    size_t bytes = kern_q8_row_bytes(D_HEAD);
    attend_f32_input(s);
    append_all(s, s->ref->kv_append_bf16, &s->b);
    for (size_t t = 0; t < N_TILES; t++)
        s->ref->kv_close(s->b.k[t], s->b.v[t], s->a.k[t], s->a.v[t], D_HEAD);
    for (size_t r = 0; r < N_ROWS; r++)
        s->ref->q8_row(s->x + r * D_HEAD, D_HEAD, s->scratch + r * bytes);
    return (struct attend_input){ s->scratch, bytes };
}

/* Rows see different parts of the tiles: sinks, a window, up to the last written position. */
static void attend_side(struct selftest *s, kern_attend_fn attend, struct side *side,
                        const struct attend_input *in)
{
    static const uint32_t lo[N_ROWS] = { 0, 0, 20, 66, 90 }, hi[N_ROWS] = { 1, 64, 80, 100, 119 };
    const void *k[N_TILES], *v[N_TILES];
    for (size_t t = 0; t < N_TILES; t++) k[t] = s->a.k[t], v[t] = s->a.v[t];
    for (size_t r = 0; r < N_ROWS; r++) side->m[r] = -INFINITY, side->l[r] = 0;
    memset(side->o, 0, sizeof side->o);
    struct kern_attend a = { .d = D_HEAD,
                             .n_rows = N_ROWS,
                             .q = in->rows,
                             .q_stride = in->stride,
                             .lo = lo,
                             .hi = hi,
                             .n_sink = 3,
                             .k_tile = k,
                             .v_tile = v,
                             .tile_end = N_TILES,
                             .m = side->m,
                             .l = side->l,
                             .o = side->o };
    attend(&a);
}

static double case_attend(struct selftest *s, const char *op, kern_attend_fn ref,
                          kern_attend_fn chosen, const char *contract)
{
    struct attend_input in = strstr(op, "q8")     ? attend_q8_input(s)
                             : strstr(op, "bf16") ? attend_bf16_input(s)
                                                  : attend_f32_input(s);
    attend_side(s, ref, &s->a, &in);
    attend_side(s, chosen, &s->b, &in);
    if (!strstr(op, "f32"))
        return row_error(s->a.m, s->b.m, N_ROWS) + row_error(s->a.l, s->b.l, N_ROWS) +
               row_error(s->a.o, s->b.o, N_ROWS * D_HEAD);
    double worst = 0, most_q = 0;
    for (size_t i = 0; i < N_ROWS * D_HEAD; i++) {
        double a = (double)s->a.o[i] / (double)s->a.l[i / D_HEAD];
        double b = (double)s->b.o[i] / (double)s->b.l[i / D_HEAD];
        if (isnan(b)) return HUGE_VAL;
        most_q = fmax(most_q, fabs((double)s->x[i]));
        worst = fmax(worst, fabs(a - b));
    }
    /* ATTEND(c) with |k|, |v| of some units and a generous mean of |q k| */
    return worst / (allowance(contract) * 0x1p-24 * (2 + D_HEAD * most_q));
}

static double case_attend_merge(struct selftest *s, const char *op, kern_attend_merge_fn ref,
                                kern_attend_merge_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->a.o, 2 * D_HEAD);
    memcpy(s->b.o, s->a.o, sizeof s->b.o);
    s->a.m[0] = s->b.m[0] = 0.25f, s->a.l[0] = s->b.l[0] = 3.0f;
    ref(&s->a.m[0], &s->a.l[0], s->a.o, 1.5f, 2.0f, s->a.o + D_HEAD, D_HEAD);
    chosen(&s->b.m[0], &s->b.l[0], s->b.o, 1.5f, 2.0f, s->b.o + D_HEAD, D_HEAD);
    return differing(s->a.o, s->b.o, D_HEAD * sizeof(float)) + (s->a.m[0] != s->b.m[0]) +
           (s->a.l[0] != s->b.l[0]);
}

static double case_rmsnorm(struct selftest *s, const char *op, kern_rmsnorm_fn ref,
                           kern_rmsnorm_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    fill(s, s->wide[1], N_WIDE);
    ref(s->wide[0], s->wide[1], 1e-5f, N_WIDE, s->a.y);
    chosen(s->wide[0], s->wide[1], 1e-5f, N_WIDE, s->b.y);
    return row_error(s->a.y, s->b.y, N_WIDE);
}

static double case_rotate(struct selftest *s, const char *op, kern_rotate_fn ref,
                          kern_rotate_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    size_t n = N_WIDE / 2;
    fill(s, s->wide[0], 2 * n);
    s->wide[0][4] = 1, s->wide[0][5] = 0; /* the identity keeps the bits */
    fill(s, s->a.y, 2 * n);
    memcpy(s->b.y, s->a.y, sizeof s->b.y);
    ref(s->a.y, s->wide[0], n);
    chosen(s->b.y, s->wide[0], n);
    return row_error(s->a.y, s->b.y, 2 * n);
}

static double case_gated_act(struct selftest *s, const char *op, kern_gated_act_fn ref,
                             kern_gated_act_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    fill(s, s->wide[1], N_WIDE);
    ref(s->wide[0], s->wide[1], s->a.y, N_WIDE);
    chosen(s->wide[0], s->wide[1], s->b.y, N_WIDE);
    return row_error(s->a.y, s->b.y, N_WIDE);
}

static double case_add_scaled(struct selftest *s, const char *op, kern_add_scaled_fn ref,
                              kern_add_scaled_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    fill(s, s->a.y, N_WIDE);
    memcpy(s->b.y, s->a.y, sizeof s->b.y);
    ref(s->a.y, s->wide[0], 0.22f, s->a.y, N_WIDE);
    chosen(s->b.y, s->wide[0], 0.22f, s->b.y, N_WIDE);
    return row_error(s->a.y, s->b.y, N_WIDE);
}

static double case_weigh_lists(struct selftest *s, const char *op, kern_weigh_lists_fn ref,
                               kern_weigh_lists_fn chosen, const char *contract)
{
    static const float weight[] = { 0.3f, -2, 0.7f };
    size_t n = N_WIDE / 3;
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    ref(s->wide[0], n, weight, 3, s->a.y, n);
    chosen(s->wide[0], n, weight, 3, s->b.y, n);
    return row_error(s->a.y, s->b.y, n);
}

static double case_scale(struct selftest *s, const char *op, kern_scale_fn ref,
                         kern_scale_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    ref(s->wide[0], 0.22f, s->a.y, N_WIDE);
    chosen(s->wide[0], 0.22f, s->b.y, N_WIDE);
    return row_error(s->a.y, s->b.y, N_WIDE);
}

static double case_row_max(struct selftest *s, const char *op, kern_row_max_fn ref,
                           kern_row_max_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    float a = ref(s->wide[0], N_WIDE, -1), b = chosen(s->wide[0], N_WIDE, -1);
    return row_error(&a, &b, 1);
}

static double case_exp_row(struct selftest *s, const char *op, kern_exp_row_fn ref,
                           kern_exp_row_fn chosen, const char *contract)
{
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->a.y, N_WIDE);
    memcpy(s->b.y, s->a.y, sizeof s->b.y);
    float a = ref(s->a.y, N_WIDE, 3, 0.22f), b = chosen(s->b.y, N_WIDE, 3, 0.22f);
    return row_error(s->a.y, s->b.y, N_WIDE) + row_error(&a, &b, 1);
}

static double case_gated_back(struct selftest *s, const char *op, kern_gated_back_fn ref,
                              kern_gated_back_fn chosen, const char *contract)
{
    size_t n = N_WIDE / 2;
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    fill(s, s->wide[1], N_WIDE);
    ref(s->wide[0], s->wide[0] + n, s->wide[1], s->a.y, s->a.y + n, n);
    chosen(s->wide[0], s->wide[0] + n, s->wide[1], s->b.y, s->b.y + n, n);
    return row_error(s->a.y, s->b.y, 2 * n);
}

static double case_rmsnorm_back(struct selftest *s, const char *op, kern_rmsnorm_back_fn ref,
                                kern_rmsnorm_back_fn chosen, const char *contract)
{
    size_t n = N_WIDE / 2;
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    fill(s, s->wide[1], N_WIDE);
    fill(s, s->a.y, N_WIDE);
    memcpy(s->b.y, s->a.y, sizeof s->b.y);
    struct kern_norm_row row = { .n = n, .x = s->wide[0], .gain = s->wide[0] + n,
                                 .dy = s->wide[1], .r = 0.7f };
    ref(&row, true, s->a.y, s->a.y + n);
    chosen(&row, true, s->b.y, s->b.y + n);
    return row_error(s->a.y, s->b.y, 2 * n);
}

static double case_expsum(struct selftest *s, const char *op, kern_expsum_fn ref,
                          kern_expsum_fn chosen, const char *contract)
{
    float max_a, max_b;
    double sum_a, sum_b;
    ZP_UNUSED(op), ZP_UNUSED(contract);
    fill(s, s->wide[0], N_WIDE);
    ref(s->wide[0], N_WIDE, &max_a, &sum_a);
    chosen(s->wide[0], N_WIDE, &max_b, &sum_b);
    return max_a == max_b && sum_a == sum_b ? 0 : HUGE_VAL;
}

static double case_kl_row(struct selftest *s, const char *op, kern_kl_row_fn ref,
                          kern_kl_row_fn chosen, const char *contract)
{
    float max[2];
    double sum[2];
    ZP_UNUSED(op), ZP_UNUSED(contract);
    for (int i = 0; i < 2; i++) {
        fill(s, s->wide[i], N_WIDE);
        s->ref->expsum(s->wide[i], N_WIDE, &max[i], &sum[i]);
    }
    double a = ref(s->wide[0], max[0], sum[0], s->wide[1], max[1], sum[1], N_WIDE);
    double b = chosen(s->wide[0], max[0], sum[0], s->wide[1], max[1], sum[1], N_WIDE);
    return a == b ? 0 : HUGE_VAL;
}

zp_status selftest_run(const struct kern_table *t, struct selftest_result *results, zp_err *err)
{
    struct kern_table ref;
    struct selftest *s = mem_zalloc(MEM_SCRATCH, sizeof *s);
    ZP_FAIL_IF(!s, err, ZP_NO_MEMORY, "not enough memory for the self-test of the kernels");
    kern_table_init(&ref, KERN_REF);
    s->ref = &ref;
    size_t i = 0;
#define KERN_OP(name, kind, contract_text)                                                         \
    s->rng = rng_stream(7, i);                                                                     \
    results[i] = (struct selftest_result){ #name, t->names[i], contract_text, false, 0 };          \
    results[i].worst = case_##kind(s, #name, ref.name, t->name, contract_text);                    \
    results[i].ok =                                                                                \
        strcmp(contract_text, "EXACT") == 0 ? results[i].worst == 0 : results[i].worst <= 1;       \
    i++;
#include "kern/kern_ops.inc"
#undef KERN_OP
    mem_free(s);
    return ZP_OK;
}

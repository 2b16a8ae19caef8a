/* test_kern_attend.c: attention at every level against a softmax in double arithmetic and against
 * the other levels, the same-bits rule, tiles nobody sees, merging of segments, and the tiles'
 * layout. */
#include "kern_cases.h"

enum { TILE = KERN_TILE };

/* The constant of kern_ops.inc. */
static const double attend_constant = 3;

enum tiles { F32, BF16, Q8, TILE_TYPES };

struct case_attend {
    struct kern_attend a;
    size_t n_pos, n_tiles;
    enum tiles type;
    float *q, *k, *v; /* q (n_rows, q_step); k, v (n_pos, d): what rows and tiles hold */
    void *q_rows;     /* q as the kernel reads it */
    size_t q_step;
    uint32_t *lo, *hi;
    const void **k_tile, **v_tile;
    float *bias_data;
    const float **bias;
    float *key_data; /* (n_rows, n_pos) */
    const float **key;
    float *state; /* m, l, o of all rows */
};

static float through_bf16(float x)
{
    return bf16_to_f32(f32_to_bf16(x));
}

static void q8_tile_values(const struct case_attend *c, size_t t)
{
    size_t d = c->a.d, width = kern_q8_width(d);
    const uint8_t *k = c->k_tile[t];
    const int8_t *v = c->v_tile[t];
    const uint16_t *k_scale = (const uint16_t *)(const void *)(k + TILE * width);
    const uint16_t *v_scale = (const uint16_t *)(const void *)(v + TILE * width);
    for (size_t j = 0; j < TILE; j++)
        for (size_t i = 0; i < d; i++) {
            float ks = f16_to_f32(k_scale[i / KERN_Q8_GROUP * TILE + j]);
            float vs = f16_to_f32(v_scale[i / KERN_Q8_GROUP * TILE + j]);
            c->k[(t * TILE + j) * d + i] = ks * (float)(k[i / 4 * 4 * TILE + j * 4 + i % 4] - 128);
            c->v[(t * TILE + j) * d + i] = vs * (float)v[j / 4 * 4 * width + i * 4 + j % 4];
        }
}

/* Unwritten positions hold NaN. Tiles that no row sees are NULL. q8 tiles are always full. */
static void fill_tiles(struct case_attend *c, struct rng *r)
{
    struct kern_table ref;
    kern_table_init(&ref, KERN_REF);
    size_t d = c->a.d, bytes = TILE * d * (c->type == F32 ? 4 : 2);
    c->n_tiles = (c->n_pos + TILE - 1) / TILE;
    c->k_tile = mem_array(MEM_SCRATCH, c->n_tiles, sizeof *c->k_tile);
    c->v_tile = mem_array(MEM_SCRATCH, c->n_tiles, sizeof *c->v_tile);
    c->k = floats(r, c->n_tiles * TILE * d, 1);
    c->v = floats(r, c->n_tiles * TILE * d, 1);
    for (size_t i = 0; i < c->n_tiles * TILE * d && c->type != F32; i++) {
        c->k[i] = through_bf16(c->k[i]);
        c->v[i] = through_bf16(c->v[i]);
    }
    for (size_t t = 0; t < c->n_tiles; t++) {
        uint8_t *k = guarded(bytes), *v = guarded(bytes);
        memset(k, 0xff, bytes);
        memset(v, 0xff, bytes);
        for (size_t j = 0; j < TILE && (t * TILE + j < c->n_pos || c->type == Q8); j++) {
            float *kj = c->k + (t * TILE + j) * d, *vj = c->v + (t * TILE + j) * d;
            (c->type == F32 ? ref.kv_append_f32 : ref.kv_append_bf16)(k, v, j, kj, vj, d);
        }
        c->k_tile[t] = k;
        c->v_tile[t] = v;
        if (c->type != Q8) continue;
        uint8_t *k8 = guarded(kern_q8_tile_bytes(d)), *v8 = guarded(kern_q8_tile_bytes(d));
        ref.kv_close(k, v, k8, v8, d);
        mem_free(k);
        mem_free(v);
        c->k_tile[t] = k8;
        c->v_tile[t] = v8;
        q8_tile_values(c, t);
    }
}

static bool sees(const struct case_attend *c, size_t r, size_t j)
{
    return (j < c->a.n_sink || c->lo[r] <= j) && j < c->hi[r];
}

static void set_q8_row(const struct case_attend *c, size_t row, const struct kern_table *ref)
{
    size_t d = c->a.d, groups = kern_q8_groups(d);
    int8_t *q8 = (int8_t *)c->q_rows + row * c->a.q_stride;
    float *x = c->q + row * c->q_step, scale[16];
    ref->q8_row(x, d, q8);
    memcpy(scale, q8 + kern_q8_width(d), groups * sizeof *scale);
    for (size_t i = 0; i < d; i++) x[i] = scale[i / KERN_Q8_GROUP] * (float)q8[i];
}

/* The kernel's view of q, and q as that view holds it. */
static void set_queries(struct case_attend *c)
{
    struct kern_table ref;
    kern_table_init(&ref, KERN_REF);
    uint16_t *pairs = c->q_rows;
    c->a.q = c->type == F32 ? (const void *)c->q : c->q_rows;
    c->a.q_stride = c->type == F32    ? c->q_step * 4
                    : c->type == BF16 ? c->q_step * 2
                                      : kern_q8_row_bytes(c->a.d);
    for (size_t i = 0; c->type == BF16 && i < c->a.n_rows * c->q_step; i++)
        c->q[i] = bf16_to_f32(pairs[i] = f32_to_bf16(c->q[i]));
    for (size_t r = 0; c->type == Q8 && r < c->a.n_rows; r++) set_q8_row(c, r, &ref);
}

/* A key's biases are counted from the first tile of the call. */
static void hear_from(struct case_attend *c, size_t tile)
{
    for (size_t i = 0; i < c->a.n_rows; i++)
        c->key[i] = c->key_data + i * c->n_pos + tile * TILE;
}

enum { BIAS = 1, KEY_BIAS = 2 };

/* window 0: everything before; else at most that many positions. biases: bits. */
static struct case_attend make_attend(struct rng *r, size_t d, size_t n_rows, size_t n_pos,
                                      size_t window, uint32_t n_sink, enum tiles type,
                                      unsigned biases)
{
    struct case_attend c = { .n_pos = n_pos, .type = type };
    c.a = (struct kern_attend){ .d = d, .n_rows = n_rows, .n_sink = n_sink };
    c.q_step = d + 6; /* whole pairs */
    c.q = floats(r, n_rows * c.q_step, 12 / sqrtf((float)d));
    c.q_rows = guarded(n_rows * (4 * c.q_step + 256));
    if (kern_attend_room(d) > 0 && rng_below(r, 4) > 0)
        c.a.room = mem_alloc(MEM_SCRATCH, kern_attend_room(d));
    c.lo = mem_array(MEM_SCRATCH, n_rows, sizeof *c.lo);
    c.hi = mem_array(MEM_SCRATCH, n_rows, sizeof *c.hi);
    for (size_t i = 0; i < n_rows; i++) {
        size_t at = rng_below(r, n_pos);
        c.hi[i] = (uint32_t)at + 1;
        c.lo[i] = (uint32_t)(window && at + 1 > window ? at + 1 - window : 0);
    }
    fill_tiles(&c, r);
    c.bias_data = floats(r, n_rows * n_pos, 2);
    c.bias = mem_array(MEM_SCRATCH, n_rows, sizeof *c.bias);
    for (size_t i = 0; i < n_rows; i++) {
        c.bias[i] = c.bias_data + i * n_pos;
        for (size_t j = 0; j < n_pos; j++)
            if (!sees(&c, i, j)) c.bias_data[i * n_pos + j] = NAN;
    }
    c.key_data = floats(r, n_rows * n_pos, 2);
    c.key = mem_array(MEM_SCRATCH, n_rows, sizeof *c.key);
    for (size_t i = 0; i < n_rows * n_pos; i++)
        if (isnan(c.bias_data[i])) c.key_data[i] = NAN;
    hear_from(&c, 0);
    c.state = mem_array(MEM_SCRATCH, n_rows * (d + 2), sizeof *c.state);
    set_queries(&c);
    c.a.lo = c.lo;
    c.a.hi = c.hi;
    c.a.bias = biases & BIAS ? c.bias : NULL;
    c.a.key_bias = biases & KEY_BIAS ? c.key : NULL;
    c.a.k_tile = c.k_tile;
    c.a.v_tile = c.v_tile;
    c.a.tile_end = c.n_tiles;
    c.a.m = c.state;
    c.a.l = c.state + n_rows;
    c.a.o = c.state + 2 * n_rows;
    return c;
}

static void free_attend(struct case_attend *c)
{
    for (size_t t = 0; t < c->n_tiles; t++) {
        mem_free((void *)(uintptr_t)c->k_tile[t]);
        mem_free((void *)(uintptr_t)c->v_tile[t]);
    }
    void *all[] = { c->q,  c->q_rows, c->k,         c->v,    c->lo,
                    c->hi, c->a.room, c->bias_data, c->key_data, c->state };
    for (size_t i = 0; i < ZP_COUNT(all); i++) mem_free(all[i]);
    mem_free((void *)c->k_tile);
    mem_free((void *)c->v_tile);
    mem_free((void *)c->bias);
    mem_free((void *)c->key);
}

static void start_state(struct kern_attend *a)
{
    for (size_t r = 0; r < a->n_rows; r++) {
        a->m[r] = -INFINITY;
        a->l[r] = 0;
    }
    memset(a->o, 0, a->n_rows * a->d * sizeof *a->o);
}

static kern_attend_fn attend_of(const struct kern_table *t, enum tiles type)
{
    const kern_attend_fn all[TILE_TYPES] = { t->attend_f32, t->attend_bf16, t->attend_q8 };
    return all[type];
}

/* The attention output of a row, by the definition. Returns 2 + the largest sum of |parts| of a
 * visible logit: what rounding errors of the weights scale with. */
static double true_output(const struct case_attend *c, size_t r, double *out)
{
    size_t d = c->a.d;
    double max = -INFINITY, sum = 0, size = 0, *s = mem_array(MEM_SCRATCH, c->n_pos, sizeof *s);
    for (size_t j = 0; j < c->n_pos; j++) {
        if (!sees(c, r, j)) continue;
        s[j] = c->a.bias ? (double)c->bias[r][j] : 0;
        if (c->a.key_bias) s[j] += (double)c->key_data[r * c->n_pos + j];
        double parts = fabs(s[j]);
        for (size_t i = 0; i < d; i++) {
            double part = (double)c->q[r * c->q_step + i] * (double)c->k[j * d + i];
            s[j] += part;
            parts += fabs(part);
        }
        if (s[j] > max) max = s[j];
        if (parts > size) size = parts;
    }
    memset(out, 0, d * sizeof *out);
    for (size_t j = 0; j < c->n_pos; j++) {
        if (!sees(c, r, j)) continue;
        double p = exp(s[j] - max);
        sum += p;
        for (size_t i = 0; i < d; i++) out[i] += p * (double)c->v[j * d + i];
    }
    for (size_t i = 0; i < d; i++) out[i] /= sum;
    mem_free(s);
    return 2 + size;
}

/* Largest |error| / (2^-24 (2 + size of the logits)), beyond 2^-8 where weights are rounded to
 * bf16; |v| <= 1 here. */
static double output_constant(const struct case_attend *c)
{
    double worst = 0, *out = mem_array(MEM_SCRATCH, c->a.d, sizeof *out);
    for (size_t r = 0; r < c->a.n_rows; r++) {
        double unit = ldexp(1, -24) * true_output(c, r, out);
        for (size_t i = 0; i < c->a.d; i++) {
            double got = (double)c->a.o[r * c->a.d + i] / (double)c->a.l[r];
            double error = (fabs(got - out[i]) - (c->type == F32 ? 0 : 0x1p-8)) / unit;
            if (!(error <= worst)) worst = error;
        }
    }
    mem_free(out);
    return worst;
}

/* And levels give the same bits. */
static void test_outputs_equal_a_softmax_in_double(void **state)
{
    (void)state;
    struct rng r = seeded("attend");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    double worst = 0;
    const size_t widths[] = { 64, 2, 18, 32, 80, 96, 128, 256, 34, 64 };
    for (size_t turn = 0; turn < 120; turn++) {
        size_t n_rows = 1 + rng_below(&r, turn % 4 ? 14 : 40), n_pos = 1 + rng_below(&r, 400);
        size_t window = turn % 3 == 1 ? 1 + rng_below(&r, 150) : 0;
        struct case_attend c =
            make_attend(&r, widths[turn % 10], n_rows, n_pos, window,
                        turn % 2 ? (uint32_t)rng_below(&r, 70) : 0, (enum tiles)(turn / 4 % 3),
                        (turn % 5 == 0 ? BIAS : 0) | (turn % 3 == 0 ? KEY_BIAS : 0));
        float *first = NULL;
        size_t size = n_rows * (c.a.d + 2);
        for (size_t l = 0; l < levels; l++) {
            start_state(&c.a);
            attend_of(&t[l], c.type)(&c.a);
            double found = output_constant(&c);
            if (!(found <= attend_constant))
                fail_msg("turn %zu level %s: constant %g", turn, kern_level_name(t[l].level),
                         found);
            if (found > worst) worst = found;
            if (l == KERN_REF && c.type == F32) continue; /* multiplies and adds apart */
            if (first) {
                assert_same_bits(c.state, first, size, kern_level_name(t[l].level));
            } else {
                first = mem_array(MEM_SCRATCH, size, sizeof *first);
                memcpy(first, c.state, size * sizeof *first);
            }
        }
        mem_free(first);
        free_attend(&c);
    }
    print_message("attend: worst constant %.3f\n", worst);
}

static void test_bits_of_a_row_do_not_depend_on_other_rows(void **state)
{
    (void)state;
    enum { ROWS = 37 }; /* more than any block of rows */
    struct rng r = seeded("rows");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t turn = 0; turn < 12; turn++) {
        struct case_attend c = make_attend(&r, turn % 3 ? 64 : 80, ROWS, 300, turn % 2 ? 90 : 0, 5,
                                           (enum tiles)(turn / 4), turn % 4);
        for (size_t l = 0; l < levels; l++) {
            start_state(&c.a);
            attend_of(&t[l], c.type)(&c.a);
            for (size_t from = 0, n; from < ROWS; from += n) {
                n = 1 + rng_below(&r, ROWS - from);
                if (rng_below(&r, 2)) n = 1;
                struct kern_attend part = c.a;
                float *own = mem_array(MEM_SCRATCH, n * (c.a.d + 2), sizeof *own);
                part.n_rows = n;
                part.q = (const char *)c.a.q + from * c.a.q_stride;
                part.lo += from;
                part.hi += from;
                if (part.bias) part.bias += from;
                if (part.key_bias) part.key_bias += from;
                part.m = own;
                part.l = own + n;
                part.o = own + 2 * n;
                start_state(&part);
                attend_of(&t[l], c.type)(&part);
                assert_same_bits(part.m, c.a.m + from, n, "m");
                assert_same_bits(part.l, c.a.l + from, n, "l");
                assert_same_bits(part.o, c.a.o + from * c.a.d, n * c.a.d, "o");
                mem_free(own);
            }
        }
        free_attend(&c);
    }
}

static void test_unseen_tiles_are_neither_read_nor_change_anything(void **state)
{
    (void)state;
    struct rng r = seeded("unseen");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (int type = 0; type < TILE_TYPES; type++)
        for (size_t l = 0; l < levels; l++) {
            struct case_attend c = make_attend(&r, 64, 5, 640, 100, 3, (enum tiles)type, 0);
            for (size_t i = 0; i < 5; i++) {
                c.hi[i] = 500 + (uint32_t)i;
                c.lo[i] = 400;
            }
            for (size_t tile = 0; tile < c.n_tiles; tile++) {
                if (tile == 0 || tile == 6 || tile == 7) continue;
                mem_free((void *)(uintptr_t)c.k_tile[tile]);
                mem_free((void *)(uintptr_t)c.v_tile[tile]);
                c.k_tile[tile] = c.v_tile[tile] = NULL;
            }
            start_state(&c.a);
            attend_of(&t[l], c.type)(&c.a);
            assert_true(output_constant(&c) <= attend_constant);
            float *copy = mem_array(MEM_SCRATCH, 5 * 66, sizeof *copy);
            memcpy(copy, c.state, 5 * 66 * sizeof *copy);
            c.a.tile_begin = 1;
            c.a.tile_end = 6;
            hear_from(&c, 1);
            attend_of(&t[l], c.type)(&c.a);
            assert_same_bits(c.state, copy, 5 * 66, "state");
            mem_free(copy);
            free_attend(&c);
        }
}

/* What a tile holds at or after the last visible position does not matter, not even NaN. */
static void test_positions_to_come_do_not_matter(void **state)
{
    (void)state;
    struct rng r = seeded("future");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (int type = F32; type <= BF16; type++)
        for (size_t l = 0; l < levels; l++)
            for (uint32_t hi = 1; hi <= 64; hi += 7) {
                size_t n_rows = hi % 2 ? 2 : 30;
                struct case_attend c =
                    make_attend(&r, 32, n_rows, 64, 0, 0, (enum tiles)type, 0);
                float first[30 * 34];
                for (size_t i = 0; i < n_rows; i++) c.hi[i] = hi;
                start_state(&c.a);
                attend_of(&t[l], c.type)(&c.a);
                memcpy(first, c.state, n_rows * 34 * sizeof *first);
                float bad[32];
                for (size_t i = 0; i < 32; i++) bad[i] = i % 2 ? NAN : INFINITY;
                for (size_t j = hi; j < 64; j++)
                    (type == BF16 ? t[l].kv_append_bf16
                                  : t[l].kv_append_f32)((void *)(uintptr_t)c.k_tile[0],
                                                   (void *)(uintptr_t)c.v_tile[0], j, bad, bad, 32);
                start_state(&c.a);
                attend_of(&t[l], c.type)(&c.a);
                assert_same_bits(c.state, first, n_rows * 34, "state");
                free_attend(&c);
            }
}

/* A value that is infinite reaches the rows that see its position, and no other of the call. */
static void test_infinite_values_stay_with_rows_that_see_them(void **state)
{
    (void)state;
    struct rng r = seeded("infinite");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (int type = F32; type <= BF16; type++)
        for (size_t l = 0; l < levels; l++)
            for (uint32_t hi = 1; hi < 64; hi += 9) {
                enum { D = 32, ROWS = 30 };
                struct case_attend c = make_attend(&r, D, ROWS, 64, 0, 0, (enum tiles)type, 0);
                float bad[D], zero[D] = { 0 };
                for (size_t i = 0; i < D; i++) bad[i] = INFINITY;
                for (size_t i = 0; i < ROWS; i++) c.hi[i] = i % 2 ? 64 : hi;
                (type == BF16 ? t[l].kv_append_bf16
                              : t[l].kv_append_f32)((void *)(uintptr_t)c.k_tile[0],
                                                    (void *)(uintptr_t)c.v_tile[0], hi, zero, bad,
                                                    D);
                start_state(&c.a);
                attend_of(&t[l], c.type)(&c.a);
                for (size_t i = 0; i < ROWS; i++)
                    for (size_t k = 0; k < D; k++)
                        assert_int_equal(isfinite(c.a.o[i * D + k]) != 0, i % 2 == 0);
                free_attend(&c);
            }
}

static void test_segments_merge_to_the_whole(void **state)
{
    (void)state;
    struct rng r = seeded("merge");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t l = 0; l < levels; l++)
        for (int turn = 0; turn < 6; turn++) {
            struct case_attend c = make_attend(&r, 64, 4, 700, turn % 2 ? 200 : 0, 2, turn >= 3,
                                               turn % 3 ? KEY_BIAS : 0);
            float *m = c.a.m, *lsum = c.a.l, *o = c.a.o, *other = mem_array(MEM_SCRATCH, 4 * 66, 4);
            start_state(&c.a);
            size_t end = c.n_tiles;
            for (size_t tile = 0; tile < end; tile += 3) {
                c.a.m = other;
                c.a.l = other + 4;
                c.a.o = other + 8;
                c.a.tile_begin = tile;
                c.a.tile_end = tile + 3 < end ? tile + 3 : end;
                hear_from(&c, tile);
                start_state(&c.a);
                attend_of(&t[l], c.type)(&c.a);
                for (size_t i = 0; i < 4; i++)
                    t[l].attend_merge(m + i, lsum + i, o + i * 64, other[i], other[4 + i],
                                      other + 8 + i * 64, 64);
            }
            c.a.m = m;
            c.a.l = lsum;
            c.a.o = o;
            assert_true(output_constant(&c) <= attend_constant);
            mem_free(other);
            free_attend(&c);
        }
}

static void test_merging_an_empty_segment_keeps_the_bits(void **state)
{
    (void)state;
    struct kern_table t;
    kern_table_init(&t, KERN_LEVEL_COUNT);
    float m = 1.5f, l = 2.25f, o[3] = { 1, -0.0f, 3 }, nothing[3] = { 0, 0, 0 };
    t.attend_merge(&m, &l, o, -INFINITY, 0, nothing, 3);
    assert_true(m == 1.5f && l == 2.25f && o[0] == 1 && signbit(o[1]) && o[2] == 3);
    float m2 = -INFINITY, l2 = 0, o2[3] = { 0, 0, 0 };
    t.attend_merge(&m2, &l2, o2, m, l, o, 3);
    assert_true(m2 == m && l2 == l && o2[0] == 1 && o2[2] == 3);
}

static void test_a_nan_query_gives_nan_for_its_row_only(void **state)
{
    (void)state;
    struct rng r = seeded("nan query");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t i = 0; i < levels * TILE_TYPES; i++) {
        size_t l = i / TILE_TYPES;
        enum tiles type = (enum tiles)(i % TILE_TYPES);
        struct case_attend c = make_attend(&r, 64, 6, 130, 0, 0, type, 0);
        c.q[2 * c.q_step + 5] = NAN;
        set_queries(&c);
        start_state(&c.a);
        attend_of(&t[l], c.type)(&c.a);
        for (size_t row = 0; row < 6; row++) {
            bool bad = isnan(c.a.o[row * 64] / c.a.l[row]);
            assert_true(bad == (row == 2));
        }
        free_attend(&c);
    }
}

static void test_append_writes_its_slot_only_and_rounds_to_even(void **state)
{
    (void)state;
    struct rng r = seeded("append");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    const float special[] = {
        NAN, INFINITY, -0.0f, 1e-42f, -1e-39f, 0x1.008p0f, 0x1.018p0f, 3.4e38f
    };
    for (size_t d = 2; d <= 130; d += 2) {
        float *k = floats(&r, d, 5), *v = floats(&r, d, 5);
        memcpy(k, special, (d < 8 ? d : 8) * sizeof *k);
        memcpy(v + d - 2, special + 3, 2 * sizeof *v);
        for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
            size_t bytes = TILE * d * (is_bf16 ? 2 : 4), slot = rng_below(&r, TILE);
            uint8_t *first[2] = { guarded(bytes), guarded(bytes) };
            for (size_t l = 0; l < levels; l++) {
                uint8_t *tile[2] = { guarded(bytes), guarded(bytes) };
                for (int i = 0; i < 2; i++) memset(l ? tile[i] : first[i], 0x77, bytes);
                (is_bf16 ? t[l].kv_append_bf16 : t[l].kv_append_f32)(
                    l ? tile[0] : first[0], l ? tile[1] : first[1], slot, k, v, d);
                for (int i = 0; i < 2; i++) {
                    if (l) assert_memory_equal(tile[i], first[i], bytes + GUARD);
                    mem_free(tile[i]);
                }
            }
            for (size_t i = 0; i < d && is_bf16; i++) {
                const uint16_t *kt = (const uint16_t *)(void *)first[0];
                assert_int_equal(kt[i / 2 * 128 + slot * 2 + i % 2], f32_to_bf16(k[i]));
            }
            size_t same = 0;
            for (size_t i = 0; i < bytes; i++) same += first[0][i] == 0x77;
            assert_true(same >= bytes - d * (is_bf16 ? 2 : 4));
            mem_free(first[0]);
            mem_free(first[1]);
        }
        mem_free(k);
        mem_free(v);
    }
}

/* ---- 8-bit tiles ----------------------------------------------------------------------------- */

/* bf16 tiles of random numbers, some of them not finite, some all zero. */
static void fill_odd(struct rng *r, size_t d, void *k, void *v, const struct kern_table *ref)
{
    float *x = mem_array(MEM_SCRATCH, 2 * d, sizeof *x);
    for (size_t j = 0; j < TILE; j++) {
        float size = j % 9 == 8 ? 0 : ldexpf(1, (int)rng_below(r, 60) - 40);
        for (size_t c = 0; c < 2 * d; c++) x[c] = size * (float)(2 * rng_unit(r) - 1);
        if (j % 16 == 5) x[rng_below(r, 2 * d)] = j % 32 == 5 ? NAN : -INFINITY;
        ref->kv_append_bf16(k, v, j, x, x + d, d);
    }
    mem_free(x);
}

static void test_closing_gives_the_same_bytes_at_every_level(void **state)
{
    (void)state;
    struct rng r = seeded("close");
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t d = 2; d <= 200; d += 2) {
        size_t bytes = kern_q8_tile_bytes(d), rows = kern_q8_row_bytes(d);
        uint8_t *k = guarded(TILE * d * 2), *v = guarded(TILE * d * 2), *out[KERN_LEVEL_COUNT][3];
        float *q = floats(&r, d, 3);
        if (d % 10 == 4) q[rng_below(&r, d)] = d % 20 == 4 ? NAN : INFINITY;
        if (d % 10 == 6) memset(q, 0, d * sizeof *q);
        fill_odd(&r, d, k, v, &t[0]);
        for (size_t l = 0; l < levels; l++) {
            for (int i = 0; i < 3; i++) {
                out[l][i] = guarded(i == 2 ? rows : bytes);
                memset(out[l][i], 0x55, i == 2 ? rows : bytes);
            }
            t[l].kv_close(k, v, out[l][0], out[l][1], d);
            t[l].q8_row(q, d, out[l][2]);
            assert_memory_equal(out[l][0], out[0][0], bytes + GUARD);
            assert_memory_equal(out[l][1], out[0][1], bytes + GUARD);
            for (size_t i = 0; i < rows; i += 4) { /* NaN of any kind */
                float a, b;
                memcpy(&a, out[l][2] + i, 4);
                memcpy(&b, out[0][2] + i, 4);
                assert_true(memcmp(&a, &b, 4) == 0 || (isnan(a) && isnan(b)));
            }
        }
        for (size_t l = 0; l < levels; l++)
            for (int i = 0; i < 3; i++) mem_free(out[l][i]);
        mem_free(k), mem_free(v), mem_free(q);
    }
}

/* A value comes back within half a step, and its step is a 127th of the position's largest. */
static void test_closed_tiles_hold_their_values(void **state)
{
    (void)state;
    struct rng r = seeded("closed");
    const size_t widths[] = { 2, 64, 96, 130 };
    for (size_t w = 0; w < ZP_COUNT(widths); w++) {
        size_t d = widths[w];
        struct case_attend c = make_attend(&r, d, 1, TILE, 0, 0, BF16, 0);
        struct case_attend q = { .a = { .d = d }, .type = Q8 };
        struct kern_table ref;
        kern_table_init(&ref, KERN_REF);
        void *k = guarded(kern_q8_tile_bytes(d)), *v = guarded(kern_q8_tile_bytes(d));
        const void *tiles[] = { k, v };
        q.k = floats(&r, TILE * d, 1), q.v = floats(&r, TILE * d, 1);
        q.k_tile = &tiles[0], q.v_tile = &tiles[1];
        ref.kv_close(c.k_tile[0], c.v_tile[0], k, v, d);
        q8_tile_values(&q, 0);
        for (size_t i = 0; i < TILE * d; i++) { /* |values| <= 1: a step is at most 1 / 127 */
            assert_true(fabsf(q.k[i] - c.k[i]) <= 0.505f / 127);
            assert_true(fabsf(q.v[i] - c.v[i]) <= 0.505f / 127);
        }
        mem_free(k), mem_free(v), mem_free(q.k), mem_free(q.v);
        free_attend(&c);
    }
}

/* So does a query row, whose starts take back the 128 that K's bytes have too much. */
static void test_query_rows_hold_their_values(void **state)
{
    (void)state;
    struct rng r = seeded("query rows");
    struct kern_table ref;
    kern_table_init(&ref, KERN_REF);
    for (size_t d = 2; d <= 200; d += 6) {
        size_t width = kern_q8_width(d), groups = kern_q8_groups(d);
        float *x = floats(&r, d, 5), scale[4], top[4] = { 0 };
        int8_t *row = guarded(kern_q8_row_bytes(d));
        int32_t start[4], sum[4] = { 0 };
        ref.q8_row(x, d, row);
        memcpy(scale, row + width, groups * sizeof *scale);
        memcpy(start, row + width + 4 * groups, groups * sizeof *start);
        for (size_t c = 0; c < width; c++) {
            size_t g = c / KERN_Q8_GROUP;
            double want = c < d ? (double)x[c] : 0;
            assert_true(fabs((double)scale[g] * row[c] - want) <= 0.50002 * (double)scale[g]);
            if (c < d) top[g] = fmaxf(top[g], fabsf(x[c]));
            sum[g] += row[c];
        }
        for (size_t g = 0; g < groups; g++) {
            assert_true(ulps((double)scale[g], (double)top[g] / 127) <= 1);
            assert_int_equal(start[g], -128 * sum[g]);
        }
        assert_guard(row, kern_q8_row_bytes(d));
        mem_free(x), mem_free(row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_equal_a_softmax_in_double),
        cmocka_unit_test(test_bits_of_a_row_do_not_depend_on_other_rows),
        cmocka_unit_test(test_unseen_tiles_are_neither_read_nor_change_anything),
        cmocka_unit_test(test_positions_to_come_do_not_matter),
        cmocka_unit_test(test_infinite_values_stay_with_rows_that_see_them),
        cmocka_unit_test(test_segments_merge_to_the_whole),
        cmocka_unit_test(test_merging_an_empty_segment_keeps_the_bits),
        cmocka_unit_test(test_a_nan_query_gives_nan_for_its_row_only),
        cmocka_unit_test(test_closing_gives_the_same_bytes_at_every_level),
        cmocka_unit_test(test_closed_tiles_hold_their_values),
        cmocka_unit_test(test_query_rows_hold_their_values),
        cmocka_unit_test(test_append_writes_its_slot_only_and_rounds_to_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

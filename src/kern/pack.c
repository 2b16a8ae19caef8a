/* pack.c: weights from file rows into packed forms, and back; places of quantised activations.
 * Owns: nothing; all memory is the caller's. Threads: disjoint row groups may be packed at the same
 * time. */
#include "kern/pack.h"

#include <assert.h>
#include <string.h>
#include "base/bytes.h"
#include "base/num.h"

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

bool kern_mat_is_quantised(const struct kern_mat *m)
{
    return pack_forms[m->form].low != 0;
}

/* The slice of n_k columns that begins at the row group's byte `at`. */
static struct pack_slice place_slice(const struct kern_mat *m, size_t n_k, size_t at)
{
    const struct pack_form *f = &pack_forms[m->form];
    const bool halves = m->scaling == QUANT_SCALE_F16, subs = pack_has_subs(m);
    const size_t columns = m->has_min ? 2 : 1; /* scales, mins */
    struct pack_slice s = { .n_blocks = n_k / PACK_BLOCK,
                            .n_groups = n_k / f->k_group,
                            .per_super = (subs ? PACK_SUPER : n_k) / f->k_group,
                            .d_bytes = subs ? PACK_ROWS * 2 * columns : 0,
                            .group_bytes = PACK_ROWS * (halves ? 2 : 1) * columns,
                            .head_at = at,
                            .block_bytes = PACK_ROWS * PACK_BLOCK / 8u * (f->low + f->high) };
    if (m->scaling == QUANT_SCALE_SUB4) s.group_bytes = PACK_ROWS;
    s.super_bytes = s.d_bytes + s.per_super * s.group_bytes;
    s.block_at = at + round_up(s.n_groups / s.per_super * s.super_bytes, 64);
    return s;
}

static size_t end_of(const struct pack_slice *s)
{
    return s->block_at + s->n_blocks * s->block_bytes;
}

struct pack_slice pack_slice_of(const struct kern_mat *m, size_t s)
{
    struct pack_slice first = place_slice(m, PACK_SLICE, 0);
    size_t left = m->n_in - s * PACK_SLICE;
    return place_slice(m, left < PACK_SLICE ? left : PACK_SLICE, s * end_of(&first));
}

static enum kern_form form_of(const struct quant_traits *t)
{
    if (t->form == QUANT_CODEBOOK) return KERN_C4;
    for (enum kern_form f = KERN_Q8; f < KERN_FORM_COUNT; f++)
        if (pack_forms[f].low + pack_forms[f].high == t->bits && f != KERN_C4) return f;
    return KERN_FORM_COUNT; /* no type of quant.c has other bits */
}

static void choose_form(struct kern_mat *m, const struct quant_traits *t, bool exact)
{
    if (exact || t->type == QUANT_F32) {
        m->form = KERN_F32;
    } else if (t->form == QUANT_FLOAT) {
        m->form = t->type == QUANT_F16 ? KERN_F16 : KERN_BF16;
    } else {
        m->form = form_of(t);
        m->scaling = t->scaling;
        m->has_min = t->has_min;
        m->codes = t->codes;
        const struct pack_form *f = &pack_forms[m->form];
        assert(t->group == f->k_group && (t->has_min || t->codes || t->offset == f->offset));
        assert(f->mins == PACK_MAY_HAVE_MIN || t->has_min == (f->mins == PACK_MIN));
    }
}

zp_status kern_mat_plan(struct kern_mat *m, uint32_t file_type, size_t n_out, size_t n_in,
                        bool exact, zp_err *err)
{
    const struct quant_traits *t = quant_traits_find(file_type);
    ZP_FAIL_IF(t == NULL, err, ZP_UNSUPPORTED, "tensor type %u is not known", (unsigned)file_type);
    ZP_FAIL_IF(n_out == 0 || n_in == 0, err, ZP_BAD_FILE,
               "matrix of %zu x %zu: found an empty side", n_out, n_in);
    ZP_FAIL_IF(n_in % t->block != 0, err, ZP_BAD_FILE,
               "%s matrix of %zu columns: expected a multiple of %u", t->name, n_in,
               (unsigned)t->block);
    size_t all, padded;
    ZP_FAIL_IF(n_in > SIZE_MAX / 4096 || n_out > SIZE_MAX / 4096 ||
                   !size_mul(round_up(n_in, 64), 2 * sizeof(float), &padded) ||
                   !size_mul(padded, round_up(n_out, PACK_ROWS), &all),
               err, ZP_BAD_FILE, "matrix of %zu x %zu is larger than the address space", n_out,
               n_in);
    *m = (struct kern_mat){ .n_out = n_out, .n_in = n_in };
    choose_form(m, t, exact);
    struct pack_slice last = { 0 };
    if (kern_mat_is_quantised(m)) {
        last = pack_slice_of(m, pack_slices(m) - 1);
        m->row_group_bytes = end_of(&last);
    } else m->row_group_bytes = round_up(n_in * PACK_ROWS * (m->form == KERN_F32 ? 4 : 2), 64);
    return ZP_OK;
}

size_t kern_mat_bytes(const struct kern_mat *m)
{
    return (m->n_out + PACK_ROWS - 1) / PACK_ROWS * m->row_group_bytes;
}

/* Scratch: 16 rows: f32, halves of the file, or a slice of q. */
size_t kern_mat_pack_scratch(const struct kern_mat *m)
{
    if (kern_mat_is_quantised(m)) return PACK_ROWS * PACK_SLICE;
    return PACK_ROWS * m->n_in * sizeof(float);
}

static void pack_f32(const float *rows, size_t n_in, float *out)
{
    for (size_t k = 0; k < n_in; k++)
        for (size_t r = 0; r < PACK_ROWS; r++) out[k * PACK_ROWS + r] = rows[r * n_in + k];
}

static void pack_u16(const uint16_t *rows, size_t n_in, uint16_t *out)
{
    for (size_t k = 0; k < n_in; k++)
        for (size_t r = 0; r < PACK_ROWS; r++) out[k * PACK_ROWS + r] = rows[r * n_in + k];
}

/* Bits [bit, bit + width) of weight vector v of 16 rows, q (16, n_k) at its block's first k, to out
 * from bit `at` on. Four k are moved as one word: no field crosses its byte. */
static void pack_fields(const uint8_t *q, size_t n_k, int v, unsigned bit, unsigned width,
                        unsigned at, uint8_t *out)
{
    const uint32_t mask = ((1u << width) - 1) * 0x01010101u;
    for (size_t r = 0; r < PACK_ROWS; r++) {
        uint32_t word, quad;
        memcpy(&quad, q + r * n_k + v * 4, 4);
        memcpy(&word, out + r * 4, 4);
        word = (at ? word : 0) | (quad >> bit & mask) << at;
        memcpy(out + r * 4, &word, 4);
    }
}

static void pack_block(const struct pack_form *f, const uint8_t *q, size_t n_k, uint8_t *out)
{
    for (int v = 0; v < 8; v++) {
        pack_fields(q, n_k, v, 0, f->low, (unsigned)v * f->low % 8, out + pack_low_at(f, v) * 64);
        if (f->high == 0) continue;
        pack_fields(q, n_k, v, f->low, f->high, (unsigned)v * f->high % 8,
                    out + pack_high_at(f, v) * 64);
    }
}

static uint8_t *group_at(const struct pack_slice *p, uint8_t *row_group, size_t g)
{
    return row_group + p->head_at + g / p->per_super * p->super_bytes + p->d_bytes +
           g % p->per_super * p->group_bytes;
}

/* The scales of one block of the file, number b of its row in this slice. */
static void pack_scales(const struct kern_mat *m, const struct pack_slice *p,
                        const struct quant_traits *t, const struct quant_scales *s, size_t b,
                        size_t r, uint8_t *row_group)
{
    const bool subs = pack_has_subs(m), nibbles = m->scaling == QUANT_SCALE_SUB4;
    const size_t n = t->block / t->group;
    for (size_t g = 0; g < n && m->scaling != QUANT_SCALE_F16; g++) {
        uint8_t *at = group_at(p, row_group, b * n + g);
        at[r] = nibbles ? (uint8_t)(s->sub[g] | s->sub_min[g] << 4) : s->sub[g];
        if (m->has_min && !nibbles) at[PACK_ROWS + r] = s->sub_min[g];
    }
    if (m->scaling == QUANT_SCALE_E8M0) return;
    uint16_t *d = (uint16_t *)(void *)(group_at(p, row_group, b * n) - (subs ? p->d_bytes : 0));
    d[r] = s->d;
    if (m->has_min) d[PACK_ROWS + r] = s->dmin;
}

/* One slice of 16 rows; from: the rows' bytes of the file there, NULL for padding (P2). */
static void pack_slice(const struct kern_mat *m, const struct quant_traits *t,
                       const struct pack_slice *p, const uint8_t *const from[PACK_ROWS],
                       uint8_t *q, uint8_t *row_group)
{
    const size_t n_k = p->n_blocks * PACK_BLOCK;
    struct quant_scales s;
    memset(row_group + p->head_at, 0, p->block_at - p->head_at);
    for (size_t r = 0; r < PACK_ROWS; r++) {
        if (from[r] == NULL) memset(q + r * n_k, 0, n_k);
        for (size_t b = 0; from[r] && b < n_k / t->block; b++) {
            quant_unpack_block(t, from[r] + b * t->bytes, q + r * n_k + b * t->block, &s);
            pack_scales(m, p, t, &s, b, r, row_group);
        }
    }
    uint8_t *out = row_group + p->block_at;
    for (size_t b = 0; b < p->n_blocks; b++, q += PACK_BLOCK, out += p->block_bytes)
        pack_block(&pack_forms[m->form], q, n_k, out);
}

static void pack_float(const struct kern_mat *m, const struct quant_traits *t,
                       const uint8_t *const from[PACK_ROWS], void *scratch, uint8_t *row_group)
{
    size_t n_in = m->n_in;
    float *rows = scratch;
    uint16_t *halves = scratch;
    for (size_t r = 0; r < PACK_ROWS; r++) {
        if (from[r] == NULL) {
            if (m->form == KERN_F32) memset(rows + r * n_in, 0, n_in * sizeof *rows);
            else memset(halves + r * n_in, 0, n_in * 2);
        } else if (m->form == KERN_F32) {
            quant_dequantize_row(t, from[r], rows + r * n_in, n_in);
        } else {
            memcpy(halves + r * n_in, from[r], n_in * 2);
        }
    }
    if (m->form == KERN_F32) pack_f32(rows, n_in, (float *)(void *)row_group);
    else pack_u16(halves, n_in, (uint16_t *)(void *)row_group);
}

void kern_mat_pack(struct kern_mat *m, const uint8_t *src, uint32_t file_type,
                   const uint32_t *row_map, size_t group_begin, size_t group_end, void *scratch)
{
    const struct quant_traits *t = quant_traits_find(file_type);
    size_t row_bytes = quant_row_bytes(t, m->n_in), slice_bytes = quant_row_bytes(t, PACK_SLICE);
    for (size_t g = group_begin; g < group_end; g++) {
        uint8_t *row_group = m->data + g * m->row_group_bytes;
        const uint8_t *from[PACK_ROWS] = { NULL };
        for (size_t r = 0, row = g * PACK_ROWS; r < PACK_ROWS && row < m->n_out; r++, row++)
            from[r] = src + (row_map ? row_map[row] : row) * row_bytes;
        if (!kern_mat_is_quantised(m)) {
            pack_float(m, t, from, scratch, row_group);
            continue;
        }
        for (size_t s = 0; s < pack_slices(m); s++) {
            struct pack_slice p = pack_slice_of(m, s);
            pack_slice(m, t, &p, from, scratch, row_group);
            for (size_t r = 0; r < PACK_ROWS; r++) from[r] += from[r] ? slice_bytes : 0;
        }
    }
}

/* ORs fields of 64 bytes to q, from its bit `bit` on. */
static void widen_fields(const uint8_t *from, unsigned at, unsigned width, unsigned bit,
                         uint8_t q[64])
{
    const unsigned mask = (1u << width) - 1;
    for (size_t i = 0; i < 64; i++) q[i] |= (uint8_t)((from[i] >> at & mask) << bit);
}

void pack_widen_block(const struct kern_mat *m, const struct pack_slice *s,
                      const uint8_t *row_group, size_t b, uint8_t q[8][64])
{
    const struct pack_form *f = &pack_forms[m->form];
    const uint8_t *block = row_group + s->block_at + b * s->block_bytes;
    memset(q, 0, 8 * 64);
    for (int v = 0; v < 8; v++) {
        widen_fields(block + pack_low_at(f, v) * 64, (unsigned)v * f->low % 8, f->low, 0, q[v]);
        if (f->high)
            widen_fields(block + pack_high_at(f, v) * 64, (unsigned)v * f->high % 8, f->high,
                         f->low, q[v]);
        for (size_t i = 0; m->codes && i < 64; i++) q[v][i] = (uint8_t)(m->codes[q[v][i]] + 128);
    }
}

static void widen_halves(const uint8_t *from, float out[PACK_ROWS])
{
    const uint16_t *halves = (const uint16_t *)(const void *)from;
    for (size_t r = 0; r < PACK_ROWS; r++) out[r] = f16_to_f32(halves[r]);
}

void pack_widen_scales(const struct kern_mat *m, const struct pack_slice *s,
                       const uint8_t *row_group, size_t g, float scale[PACK_ROWS],
                       float min[PACK_ROWS])
{
    const uint8_t *super = row_group + s->head_at + g / s->per_super * s->super_bytes;
    const uint8_t *sub = super + s->d_bytes + g % s->per_super * s->group_bytes;
    const bool nibbles = m->scaling == QUANT_SCALE_SUB4;
    memset(min, 0, PACK_ROWS * sizeof *min);
    if (m->scaling == QUANT_SCALE_E8M0) {
        for (size_t r = 0; r < PACK_ROWS; r++) scale[r] = quant_e8m0(sub[r]);
        return;
    }
    const uint8_t *d = pack_has_subs(m) ? super : sub;
    widen_halves(d, scale);
    if (m->has_min) widen_halves(d + PACK_ROWS * 2, min);
    for (size_t r = 0; r < PACK_ROWS && pack_has_subs(m); r++) {
        scale[r] *= (float)(nibbles ? sub[r] & 15 : (int8_t)sub[r]);
        if (m->has_min) min[r] *= (float)(nibbles ? sub[r] >> 4 : sub[PACK_ROWS + r]);
    }
}

static void unpack_quantised(const struct kern_mat *m, const uint8_t *row_group, size_t r,
                             float *out)
{
    const size_t k_group = pack_forms[m->form].k_group;
    const int offset = m->has_min ? 0 : pack_forms[m->form].offset;
    struct pack_slice s = { 0 };
    uint8_t q[8][64];
    float scale[PACK_ROWS], min[PACK_ROWS];
    for (size_t k = 0; k < m->n_in; k++) {
        size_t at = k % PACK_SLICE, i = k % PACK_BLOCK;
        if (at == 0) s = pack_slice_of(m, k / PACK_SLICE);
        if (i == 0) pack_widen_block(m, &s, row_group, at / PACK_BLOCK, q);
        if (k % k_group == 0) pack_widen_scales(m, &s, row_group, at / k_group, scale, min);
        out[k] = scale[r] * (float)(q[i / 4][r * 4 + i % 4] - offset) + min[r];
    }
}

void kern_mat_unpack_row(const struct kern_mat *m, size_t row, float *out)
{
    const uint8_t *group = m->data + row / PACK_ROWS * m->row_group_bytes;
    size_t r = row % PACK_ROWS;
    if (kern_mat_is_quantised(m)) {
        unpack_quantised(m, group, r, out);
    } else if (m->form == KERN_F32) {
        const float *w = (const float *)(const void *)group;
        for (size_t k = 0; k < m->n_in; k++) out[k] = w[k * PACK_ROWS + r];
    } else {
        const uint16_t *w = (const uint16_t *)(const void *)group;
        for (size_t k = 0; k < m->n_in; k++) {
            uint16_t h = w[k * PACK_ROWS + r];
            out[k] = m->form == KERN_F16 ? f16_to_f32(h) : bf16_to_f32(h);
        }
    }
}

void kern_mat_set_row_f32(struct kern_mat *m, size_t row, const float *values)
{
    float *w = (float *)(void *)(m->data + row / PACK_ROWS * m->row_group_bytes);
    for (size_t k = 0; k < m->n_in; k++) w[k * PACK_ROWS + row % PACK_ROWS] = values[k];
}

/* Bytes of one row of each of the five arrays; each array begins at a multiple of 64. */
enum { ACT_ARRAYS = 5, ACT_PAD = 64 };

static void act_rows(size_t stride, size_t bytes[ACT_ARRAYS])
{
    size_t per32 = stride / 32 * 4;
    const size_t rows[ACT_ARRAYS] = { stride, per32, per32, per32, 2 * per32 };
    memcpy(bytes, rows, sizeof rows);
}

size_t kern_act_bytes(size_t n_tok, size_t n_in)
{
    size_t rows[ACT_ARRAYS], bytes = 0;
    act_rows(round_up(n_in, ACT_PAD), rows);
    for (int i = 0; i < ACT_ARRAYS; i++) bytes += round_up(n_tok * rows[i], 64);
    return bytes;
}

void kern_act_place(struct kern_act *a, void *memory, size_t n_tok, size_t n_in)
{
    size_t rows[ACT_ARRAYS];
    uint8_t *at[ACT_ARRAYS + 1] = { memory };
    a->n_in = n_in;
    a->stride = round_up(n_in, ACT_PAD);
    act_rows(a->stride, rows);
    for (int i = 0; i < ACT_ARRAYS; i++) at[i + 1] = at[i] + round_up(n_tok * rows[i], 64);
    a->q = (int8_t *)at[0];
    a->scale = (float *)(void *)at[1];
    a->scaled32 = (float *)(void *)at[2];
    a->minus32 = (int32_t *)(void *)at[3];
    a->minus16 = (int32_t *)(void *)at[4];
}

void kern_act_copy_row(struct kern_act *a, size_t t, const struct kern_act *b, size_t u)
{
    size_t bytes[ACT_ARRAYS];
    void *const to[ACT_ARRAYS] = { a->q, a->scale, a->scaled32, a->minus32, a->minus16 };
    const void *const from[ACT_ARRAYS] = { b->q, b->scale, b->scaled32, b->minus32, b->minus16 };
    act_rows(a->stride, bytes);
    for (int i = 0; i < ACT_ARRAYS; i++)
        memmove((uint8_t *)to[i] + t * bytes[i], (const uint8_t *)from[i] + u * bytes[i], bytes[i]);
}

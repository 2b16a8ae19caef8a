/* pack.c: weights from file rows into packed forms, and back; places of quantised activations.
 * Owns: nothing; all memory is the caller's. Threads: disjoint row groups may be packed at the same
 * time. */
#include "kern/pack.h"

#include <string.h>
#include "base/bytes.h"
#include "base/num.h"

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

bool kern_mat_is_quantised(const struct kern_mat *m)
{
    return m->form == KERN_Q8 || m->form == KERN_Q4;
}

struct pack_block pack_block_of(const struct kern_mat *m)
{
    struct pack_block b = { 0 };
    size_t groups = PACK_BLOCK / m->k_group;
    b.scale_step = PACK_ROWS * (m->scale_f16 ? 2 : 4);
    b.scale_at = PACK_BLOCK * PACK_ROWS / (m->form == KERN_Q4 ? 2 : 1);
    b.min_at = b.scale_at + groups * b.scale_step;
    b.bytes = b.min_at + (m->has_min ? groups * b.scale_step : 0);
    return b;
}

static void choose_form(struct kern_mat *m, const struct quant_traits *t, bool exact)
{
    if (exact || t->type == QUANT_F32) {
        m->form = KERN_F32;
    } else if (t->form == QUANT_FLOAT) {
        m->form = t->type == QUANT_F16 ? KERN_F16 : KERN_BF16;
    } else {
        m->form = t->form == QUANT_AFFINE && t->pack_bits == 4 ? KERN_Q4 : KERN_Q8;
        m->k_group = t->group;
        m->offset = t->has_min ? 0 : t->offset;
        m->scale_f16 = t->scale_is_f16;
        m->has_min = t->has_min;
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
                   !size_mul(round_up(n_in, PACK_BLOCK), 2 * sizeof(float), &padded) ||
                   !size_mul(padded, round_up(n_out, PACK_ROWS), &all),
               err, ZP_BAD_FILE, "matrix of %zu x %zu is larger than the address space", n_out,
               n_in);
    *m = (struct kern_mat){ .n_out = n_out, .n_in = n_in };
    choose_form(m, t, exact);
    if (kern_mat_is_quantised(m))
        m->row_group_bytes = round_up(n_in, PACK_BLOCK) / PACK_BLOCK * pack_block_of(m).bytes;
    else m->row_group_bytes = round_up(n_in * PACK_ROWS * (m->form == KERN_F32 ? 4 : 2), 64);
    return ZP_OK;
}

size_t kern_mat_bytes(const struct kern_mat *m)
{
    return (m->n_out + PACK_ROWS - 1) / PACK_ROWS * m->row_group_bytes;
}

/* Scratch: 16 unpacked rows. Quantised: q (16, n_pad) u8, scale and min (16, n_pad / k_group) f32.
 */
size_t kern_mat_pack_scratch(const struct kern_mat *m)
{
    size_t n_pad = round_up(m->n_in, PACK_BLOCK);
    if (kern_mat_is_quantised(m))
        return PACK_ROWS * (n_pad + 2 * sizeof(float) * (n_pad / m->k_group));
    return PACK_ROWS * n_pad * sizeof(float);
}

static void pack_f32(const float *rows, size_t n_pad, size_t n_in, float *out)
{
    for (size_t k = 0; k < n_in; k++)
        for (size_t r = 0; r < PACK_ROWS; r++) out[k * PACK_ROWS + r] = rows[r * n_pad + k];
}

static void pack_u16(const uint16_t *rows, size_t n_pad, size_t n_in, uint16_t *out)
{
    for (size_t k = 0; k < n_in; k++)
        for (size_t r = 0; r < PACK_ROWS; r++) out[k * PACK_ROWS + r] = rows[r * n_pad + k];
}

/* 64 k of 16 rows; q (16, n_pad) at the block's first k. A quad of k is moved as one 4-byte word.
 */
static void pack_quads(const uint8_t *q, size_t n_pad, uint8_t *out)
{
    for (size_t r = 0; r < PACK_ROWS; r++)
        for (size_t v = 0; v < PACK_BLOCK / 4; v++)
            memcpy(out + v * 64 + r * 4, q + r * n_pad + v * 4, 4);
}

static void pack_nibbles(const uint8_t *q, size_t n_pad, uint8_t *out)
{
    for (size_t r = 0; r < PACK_ROWS; r++)
        for (size_t v = 0; v < PACK_BLOCK / 8; v++) {
            uint32_t lo, hi;
            const uint8_t *from = q + r * n_pad + v / 4 * 32 + v % 4 * 4;
            memcpy(&lo, from, 4);
            memcpy(&hi, from + 16, 4);
            lo |= hi << 4; /* no byte exceeds 15: the shift does not cross bytes */
            memcpy(out + v * 64 + r * 4, &lo, 4);
        }
}

static void pack_scales(const struct kern_mat *m, const float *scale, size_t row_step, uint8_t *out)
{
    for (size_t g = 0; g < PACK_BLOCK / m->k_group; g++)
        for (size_t r = 0; r < PACK_ROWS; r++) {
            float s = scale[r * row_step + g];
            size_t at = g * PACK_ROWS + r;
            if (m->scale_f16) ((uint16_t *)out)[at] = f32_to_f16(s);
            else ((float *)out)[at] = s;
        }
}

static void pack_blocks(const struct kern_mat *m, const uint8_t *q, const float *scale,
                        const float *min, uint8_t *out)
{
    size_t n_pad = round_up(m->n_in, PACK_BLOCK), row_step = n_pad / m->k_group;
    struct pack_block at = pack_block_of(m);
    for (size_t b = 0; b < n_pad / PACK_BLOCK; b++, out += at.bytes) {
        if (m->form == KERN_Q4) pack_nibbles(q + b * PACK_BLOCK, n_pad, out);
        else pack_quads(q + b * PACK_BLOCK, n_pad, out);
        size_t first = b * (PACK_BLOCK / m->k_group);
        pack_scales(m, scale + first, row_step, out + at.scale_at);
        if (m->has_min) pack_scales(m, min + first, row_step, out + at.min_at);
    }
}

static const uint8_t *source_row(const struct kern_mat *m, const uint8_t *src, size_t row_bytes,
                                 const uint32_t *row_map, size_t row)
{
    if (row >= m->n_out) return NULL;
    return src + (row_map ? row_map[row] : row) * row_bytes;
}

void kern_mat_pack(struct kern_mat *m, const uint8_t *src, uint32_t file_type,
                   const uint32_t *row_map, size_t group_begin, size_t group_end, void *scratch)
{
    const struct quant_traits *t = quant_traits_find(file_type);
    size_t n_pad = round_up(m->n_in, PACK_BLOCK), row_bytes = quant_row_bytes(t, m->n_in);
    size_t groups = kern_mat_is_quantised(m) ? n_pad / m->k_group : 0;
    uint8_t *q = scratch;
    float *rows = scratch, *scale = (float *)(void *)(q + PACK_ROWS * n_pad),
          *min = scale + PACK_ROWS * groups;
    uint16_t *halves = scratch;
    for (size_t g = group_begin; g < group_end; g++) {
        uint8_t *out = m->data + g * m->row_group_bytes;
        memset(scratch, 0, kern_mat_pack_scratch(m));
        for (size_t r = 0; r < PACK_ROWS; r++) {
            const uint8_t *from = source_row(m, src, row_bytes, row_map, g * PACK_ROWS + r);
            if (from == NULL) continue; /* P2 */
            if (m->form == KERN_F32) quant_dequantize_row(t, from, rows + r * n_pad, m->n_in);
            else if (kern_mat_is_quantised(m))
                quant_unpack_affine(t, from, m->n_in, q + r * n_pad, scale + r * groups,
                                    min + r * groups);
            else memcpy(halves + r * n_pad, from, m->n_in * 2);
        }
        if (m->form == KERN_F32) pack_f32(rows, n_pad, m->n_in, (float *)(void *)out);
        else if (kern_mat_is_quantised(m)) pack_blocks(m, q, scale, min, out);
        else pack_u16(halves, n_pad, m->n_in, (uint16_t *)(void *)out);
    }
}

static float scale_at(const struct kern_mat *m, const uint8_t *scales, size_t at)
{
    return m->scale_f16 ? f16_to_f32(((const uint16_t *)(const void *)scales)[at])
                        : ((const float *)(const void *)scales)[at];
}

static void unpack_quantised(const struct kern_mat *m, const uint8_t *group, size_t r, float *out)
{
    struct pack_block at = pack_block_of(m);
    for (size_t k = 0; k < m->n_in; k++) {
        const uint8_t *block = group + k / PACK_BLOCK * at.bytes;
        size_t i = k % PACK_BLOCK, s = i / m->k_group * PACK_ROWS + r;
        unsigned q;
        if (m->form == KERN_Q8) {
            q = block[i / 4 * 64 + r * 4 + i % 4];
        } else {
            size_t half = i / 32, j = i % 32;
            q = block[(half * 4 + j % 16 / 4) * 64 + r * 4 + j % 4];
            q = j < 16 ? q & 15 : q >> 4;
        }
        float w = scale_at(m, block + at.scale_at, s) * (float)((int)q - (int)m->offset);
        out[k] = m->has_min ? w + scale_at(m, block + at.min_at, s) : w;
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
enum { ACT_ARRAYS = 5 };

static void act_rows(size_t stride, size_t bytes[ACT_ARRAYS])
{
    size_t per32 = stride / 32 * 4;
    const size_t rows[ACT_ARRAYS] = { stride, per32, per32, per32, 2 * per32 };
    memcpy(bytes, rows, sizeof rows);
}

size_t kern_act_bytes(size_t n_tok, size_t n_in)
{
    size_t rows[ACT_ARRAYS], bytes = 0;
    act_rows(round_up(n_in, PACK_BLOCK), rows);
    for (int i = 0; i < ACT_ARRAYS; i++) bytes += round_up(n_tok * rows[i], 64);
    return bytes;
}

void kern_act_place(struct kern_act *a, void *memory, size_t n_tok, size_t n_in)
{
    size_t rows[ACT_ARRAYS];
    uint8_t *at[ACT_ARRAYS + 1] = { memory };
    a->n_in = n_in;
    a->stride = round_up(n_in, PACK_BLOCK);
    act_rows(a->stride, rows);
    for (int i = 0; i < ACT_ARRAYS; i++) at[i + 1] = at[i] + round_up(n_tok * rows[i], 64);
    a->q = (int8_t *)at[0];
    a->scale = (float *)(void *)at[1];
    a->scaled32 = (float *)(void *)at[2];
    a->minus32 = (int32_t *)(void *)at[3];
    a->sum16 = (int32_t *)(void *)at[4];
}

void kern_act_copy_row(struct kern_act *a, size_t t, const struct kern_act *b, size_t u)
{
    size_t bytes[ACT_ARRAYS];
    void *const to[ACT_ARRAYS] = { a->q, a->scale, a->scaled32, a->minus32, a->sum16 };
    const void *const from[ACT_ARRAYS] = { b->q, b->scale, b->scaled32, b->minus32, b->sum16 };
    act_rows(a->stride, bytes);
    for (int i = 0; i < ACT_ARRAYS; i++)
        memmove((uint8_t *)to[i] + t * bytes[i], (const uint8_t *)from[i] + u * bytes[i], bytes[i]);
}

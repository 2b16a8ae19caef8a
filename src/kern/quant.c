/* quant.c: traits of the tensor types, reference dequantisation, lossless unpacking, finiteness.
 * Every block type is one unpack function (q in natural order, scales as stored) in the codec
 * table; dequantising is unpacking followed by ggml's arithmetic, so the two cannot drift apart. */
#include "kern/quant.h"

#include "kern/quant_k.h"

#define BLOCK_MAX 256
#define GROUPS_MAX 16

static const int8_t codes_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
/* e2m1 values doubled; the block scale is halved instead, which keeps the codes integers. */
static const int8_t codes_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 16 bytes: weight j in the low nibble of byte j, weight 16 + j in the high one. */
static void unpack_nibbles(const uint8_t *restrict in, uint8_t *restrict q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = in[j] & 15;
        q[j + 16] = in[j] >> 4;
    }
}

/* ORs bit j of `bits` into q[j] as its fifth bit: eight at a time, since SSE2 has no per-lane
 * shifts (4x the bit-by-bit loop). Keeps one bit in each byte, then moves it up to bit 7. */
static void unpack_fifth_bits(const uint8_t *restrict bits, uint8_t *restrict q)
{
    for (int i = 0; i < 4; i++) {
        uint64_t spread = bits[i] * 0x0101010101010101u & 0x8040201008040201u;
        uint64_t set = (spread + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u, v;
        memcpy(&v, q + 8 * i, 8);
        v |= set;
        memcpy(q + 8 * i, &v, 8);
    }
}

static void unpack_q4_0(const uint8_t *restrict b, uint8_t *restrict q,
                        struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    unpack_nibbles(b + 2, q);
}

static void unpack_q4_1(const uint8_t *restrict b, uint8_t *restrict q,
                        struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    s->dmin = load_u16(b + 2);
    unpack_nibbles(b + 4, q);
}

static void unpack_q5_0(const uint8_t *restrict b, uint8_t *restrict q,
                        struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    unpack_nibbles(b + 6, q);
    unpack_fifth_bits(b + 2, q);
}

static void unpack_q5_1(const uint8_t *restrict b, uint8_t *restrict q,
                        struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    s->dmin = load_u16(b + 2);
    unpack_nibbles(b + 8, q);
    unpack_fifth_bits(b + 4, q);
}

static void unpack_q8_0(const uint8_t *restrict b, uint8_t *restrict q,
                        struct quant_scales *restrict s)
{
    s->d = load_u16(b);
    for (int j = 0; j < 32; j++) q[j] = b[2 + j] ^ 0x80; /* i8 + 128 */
}

/* 2^(e - 128): half of the scale the format means (see the codes). */
float quant_e8m0(uint8_t e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1u) << 23);
}

static void unpack_mxfp4(const uint8_t *restrict b, uint8_t *restrict q,
                        struct quant_scales *restrict s)
{
    s->sub[0] = b[0];
    unpack_nibbles(b + 1, q);
}

struct codec {
    struct quant_traits traits;
    quant_unpack_fn unpack;
    uint8_t half_at[2];      /* places of the f16 fields in a block */
    uint8_t n_half;
};

#define AFFINE(name_, block_, bytes_, ftype_, write_, group_, bits_, offset_, scaling_)         \
    .traits = {.name = #name_, .type = QUANT_##name_, .block = block_, .bytes = bytes_,          \
               .file_type = ftype_, .form = QUANT_AFFINE, .can_write = write_, .group = group_,  \
               .bits = bits_, .offset = offset_, .has_min = (offset_) == 0,                      \
               .scaling = QUANT_SCALE_##scaling_}
#define CODEBOOK(name_, block_, bytes_, ftype_, codes_, scaling_)                               \
    .traits = {.name = #name_, .type = QUANT_##name_, .block = block_, .bytes = bytes_,          \
               .file_type = ftype_, .form = QUANT_CODEBOOK, .group = 32, .bits = 4,              \
               .scaling = QUANT_SCALE_##scaling_, .codes = codes_}
#define FLOAT(name_, bytes_, ftype_)                                                            \
    .traits = {.name = #name_, .type = QUANT_##name_, .block = 1, .bytes = bytes_,               \
               .file_type = ftype_, .form = QUANT_FLOAT, .can_write = true}

static const struct codec codecs[] = {
    [QUANT_F32] = {FLOAT(F32, 4, 0)},
    [QUANT_F16] = {FLOAT(F16, 2, 1)},
    [QUANT_BF16] = {FLOAT(BF16, 2, 32)},
    [QUANT_Q4_0] = {AFFINE(Q4_0, 32, 18, 2, true, 32, 4, 8, F16), unpack_q4_0, {0}, 1},
    [QUANT_Q4_1] = {AFFINE(Q4_1, 32, 20, 3, true, 32, 4, 0, F16), unpack_q4_1, {0, 2}, 2},
    [QUANT_Q5_0] = {AFFINE(Q5_0, 32, 22, 8, true, 32, 5, 16, F16), unpack_q5_0, {0}, 1},
    [QUANT_Q5_1] = {AFFINE(Q5_1, 32, 24, 9, true, 32, 5, 0, F16), unpack_q5_1, {0, 2}, 2},
    [QUANT_Q8_0] = {AFFINE(Q8_0, 32, 34, 7, true, 32, 8, 128, F16), unpack_q8_0, {0}, 1},
    [QUANT_Q2_K] = {AFFINE(Q2_K, 256, 84, 21, false, 16, 2, 0, SUB4), quant_k_unpack_q2,
                    {80, 82}, 2},
    [QUANT_Q3_K] = {AFFINE(Q3_K, 256, 110, 11, false, 16, 3, 4, SUB8), quant_k_unpack_q3, {108}, 1},
    [QUANT_Q4_K] = {AFFINE(Q4_K, 256, 144, 14, true, 32, 4, 0, SUB8), quant_k_unpack_q4, {0, 2}, 2},
    [QUANT_Q5_K] = {AFFINE(Q5_K, 256, 176, 16, true, 32, 5, 0, SUB8), quant_k_unpack_q5, {0, 2}, 2},
    [QUANT_Q6_K] = {AFFINE(Q6_K, 256, 210, 18, true, 16, 6, 32, SUB8), quant_k_unpack_q6, {208}, 1},
    [QUANT_IQ4_NL] = {CODEBOOK(IQ4_NL, 32, 18, 25, codes_iq4, F16), unpack_q4_0, {0}, 1},
    [QUANT_IQ4_XS] = {CODEBOOK(IQ4_XS, 256, 136, 30, codes_iq4, SUB8), quant_k_unpack_iq4xs,
                      {0}, 1},
    [QUANT_MXFP4] = {CODEBOOK(MXFP4, 32, 17, 38, codes_mxfp4, E8M0), unpack_mxfp4, {0}, 0},
};

const struct quant_traits *quant_traits_find(uint32_t ggml_type)
{
    if (ggml_type >= ZP_COUNT(codecs) || codecs[ggml_type].traits.name == NULL) return NULL;
    return &codecs[ggml_type].traits;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a != 0 && *b != 0; a++, b++) {
        int x = *a >= 'a' && *a <= 'z' ? *a - 32 : *a, y = *b >= 'a' && *b <= 'z' ? *b - 32 : *b;
        if (x != y) return false;
    }
    return *a == *b;
}

const struct quant_traits *quant_traits_by_name(const char *name)
{
    const struct quant_traits *t;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        if (same_name(t->name, name)) return t;
    }
    return NULL;
}

const struct quant_traits *quant_traits_at(size_t i)
{
    for (size_t type = 0; type < ZP_COUNT(codecs); type++) {
        if (codecs[type].traits.name != NULL && i-- == 0) return &codecs[type].traits;
    }
    return NULL;
}

size_t quant_row_bytes(const struct quant_traits *t, size_t n) { return n / t->block * t->bytes; }

static void expand_float(uint32_t type, const uint8_t *restrict src, float *restrict dst, size_t n)
{
    if (type == QUANT_F32) {
        memcpy(dst, src, n * sizeof *dst);
    } else if (type == QUANT_F16) {
        for (size_t i = 0; i < n; i++) dst[i] = half_expand(load_u16(src + 2 * i));
    } else {
        for (size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load_u16(src + 2 * i));
    }
}

void quant_unpack_block(const struct quant_traits *t, const void *src, uint8_t *q,
                        struct quant_scales *s)
{
    codecs[t->type].unpack(src, q, s);
}

void quant_scale_values(const struct quant_traits *t, const struct quant_scales *s, float *scale,
                        float *min)
{
    const uint32_t groups = t->block / t->group;
    if (t->scaling == QUANT_SCALE_E8M0) {
        scale[0] = quant_e8m0(s->sub[0]);
        return;
    }
    const float d = half_expand(s->d), dmin = t->has_min ? half_expand(s->dmin) : 0;
    if (t->scaling == QUANT_SCALE_F16) {
        scale[0] = d;
        if (t->has_min) min[0] = dmin;
        return;
    }
    for (uint32_t g = 0; g < groups; g++) scale[g] = d * (float)(int8_t)s->sub[g];
    for (uint32_t g = 0; t->has_min && g < groups; g++) min[g] = dmin * (float)s->sub_min[g];
}

/* 16 weights of one group: constant length, so that it unrolls. The signed integer times the scale
 * (rather than scale * q + min) keeps ggml's sign of zero. */
static void expand_16(const uint8_t *restrict q, int offset, float scale, float *restrict dst)
{
    for (int l = 0; l < 16; l++) dst[l] = scale * (float)(q[l] - offset);
}

static void expand_16_codes(const uint8_t *restrict q, const int8_t *restrict codes, float scale,
                            float *restrict dst)
{
    for (int l = 0; l < 16; l++) dst[l] = scale * (float)codes[q[l]];
}

static void expand_16_min(const uint8_t *restrict q, float scale, float min, float *restrict dst)
{
    for (int l = 0; l < 16; l++) dst[l] = scale * (float)q[l] + min;
}

void quant_dequantize_row(const struct quant_traits *t, const void *src, float *dst, size_t n)
{
    const struct codec *c = &codecs[t->type];
    const uint8_t *b = src;
    uint8_t q[BLOCK_MAX];
    struct quant_scales s;
    float scale[GROUPS_MAX], min[GROUPS_MAX];
    if (t->form == QUANT_FLOAT) {
        expand_float(t->type, b, dst, n);
        return;
    }
    for (size_t i = 0; i < n; i += t->block, b += t->bytes) {
        c->unpack(b, q, &s);
        quant_scale_values(t, &s, scale, min);
        for (uint32_t k = 0; k < t->block; k += 16) {
            uint32_t g = k / t->group;
            if (t->codes != NULL)
                expand_16_codes(q + k, t->codes, scale[g], dst + i + k);
            else if (t->has_min)
                expand_16_min(q + k, scale[g], min[g], dst + i + k);
            else
                expand_16(q + k, t->offset, scale[g], dst + i + k);
        }
    }
}

static bool halves_are_finite(const uint8_t *p, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (load_u16(p + 2 * i) & 0x7c00u) == 0x7c00u;
    return bad == 0;
}

static bool words_are_finite(const uint8_t *p, size_t step, size_t n)
{
    uint32_t bad = 0; /* the top 16 bits of an f32 hold its exponent, so BF16 and F32 share this */
    for (size_t i = 0; i < n; i++) bad |= (load_u16(p + step * i) & 0x7f80u) == 0x7f80u;
    return bad == 0;
}

bool quant_row_is_finite(const struct quant_traits *t, const void *src, size_t n)
{
    const struct codec *c = &codecs[t->type];
    const uint8_t *b = src;
    bool finite = true;
    switch (t->type) {
    case QUANT_F32: return n == 0 || words_are_finite(b + 2, 4, n);
    case QUANT_F16: return halves_are_finite(b, n);
    case QUANT_BF16: return words_are_finite(b, 2, n);
    default: break;
    }
    for (size_t i = 0; i < n; i += t->block, b += t->bytes) {
        /* from 253 on the largest code overflows; 255 is the format's NaN */
        if (t->type == QUANT_MXFP4) finite &= b[0] < 253;
        for (int k = 0; k < c->n_half; k++) finite &= halves_are_finite(b + c->half_at[k], 1);
    }
    return finite;
}

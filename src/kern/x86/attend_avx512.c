/* attend_avx512.c: attention over f32 and bf16 tiles by fused multiply-adds of floats. */
#include "kern/x86/attend_avx512.h"

void attend_f32_avx512(const struct kern_attend *a)
{
    attend(a, FLOATS);
}

/* (rows, width, 2) bf16 as (2 * rows, width) floats. */
ZP_INLINE void widen_tile(const char *from, size_t rows, size_t width, float *out)
{
    for (size_t i = 0; i < rows; i++, from += width * 4, out += 2 * width) {
        for (size_t c = 0; c < width; c += LANES) {
            __mmask16 m = (__mmask16)(width - c >= LANES ? 0xffff : (1u << (width - c)) - 1);
            _mm512_mask_storeu_epi32(out + c, m, load_lane(from + c * 4, m, EVEN));
            _mm512_mask_storeu_epi32(out + width + c, m, load_lane(from + c * 4, m, ODD));
        }
    }
}

/* For many rows: each tile is made floats once. */
static void attend_widened(const struct kern_attend *a)
{
    float *k = a->room, *v = k + TILE * a->d;
    struct attend_batch b;
    struct attend_walk walk = { a->tile_begin, 0 };
    const char *widened = NULL;
    while (attend_next(a, &walk, &b)) {
        if (widened != b.k) {
            widen_tile(b.k, a->d / 2, TILE, k);
            widen_tile(b.v, TILE / 2, a->d, v);
            widened = b.k;
        }
        b.k = (const char *)k;
        b.v = (const char *)v;
        attend_batch(&b, a->d, WIDE);
    }
}

void attend_bf16_avx512(const struct kern_attend *a)
{
    if (a->n_rows >= WIDE_ROWS && a->room) attend_widened(a);
    else attend(a, PAIRS);
}

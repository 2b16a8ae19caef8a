/* bench_quant.c: weights per second of dequantising, unpacking, checking and quantising each type.
 * One thread, rows of 4096 weights over a working set of 4 MiB of f32, best of 5 rounds. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "kern/quant.h"

#define ROW 4096
#define ROWS 256

struct work {
    const struct quant_traits *t;
    float *value, *scale, *min; /* (ROWS, ROW), (ROW), (ROW) */
    uint8_t *packed, *q;        /* (ROWS, row bytes), (ROW) */
    size_t row_bytes;
};

static void dequantize(struct work *w, size_t row)
{
    quant_dequantize_row(w->t, w->packed + row * w->row_bytes, w->value + row * ROW, ROW);
}
static void unpack(struct work *w, size_t row)
{
    const uint8_t *b = w->packed + row * w->row_bytes;
    struct quant_scales s;
    for (size_t k = 0; k < ROW; k += w->t->block, b += w->t->bytes) {
        quant_unpack_block(w->t, b, w->q + k, &s);
        quant_scale_values(w->t, &s, w->scale, w->min);
    }
}
static void check(struct work *w, size_t row)
{
    if (!quant_row_is_finite(w->t, w->packed + row * w->row_bytes, ROW)) printf("not finite\n");
}
static void quantize(struct work *w, size_t row)
{
    zp_err err = {0};
    if (quant_quantize_row(w->t, w->value + row * ROW, w->packed + row * w->row_bytes, ROW, &err))
        printf("%s\n", err.message);
}

/* Millions of weights a second. */
static double rate(struct work *w, void (*step)(struct work *, size_t))
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        double start = os_now(), seconds = 0;
        size_t rows = 0;
        for (; (seconds = os_now() - start) < 0.05 || rows < ROWS / 16; rows++)
            step(w, rows % ROWS);
        double r = (double)rows * ROW / seconds * 1e-6;
        if (r > best) best = r;
    }
    return best;
}

int main(void)
{
    struct work w = {0};
    const struct quant_traits *t;
    w.value = mem_array(MEM_SCRATCH, (size_t)ROWS * ROW, sizeof(float));
    w.scale = mem_array(MEM_SCRATCH, ROW, sizeof(float));
    w.min = mem_array(MEM_SCRATCH, ROW, sizeof(float));
    w.packed = mem_zalloc(MEM_SCRATCH, (size_t)ROWS * ROW * sizeof(float));
    w.q = mem_alloc(MEM_SCRATCH, ROW);
    if (!w.value || !w.scale || !w.min || !w.packed || !w.q) return 4;
    printf("%-7s %12s %12s %12s %12s   (million weights/s)\n", "type", "dequantize", "unpack",
           "check", "quantize");
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        struct rng r = rng_stream(1, i);
        for (size_t k = 0; k < (size_t)ROWS * ROW; k++) w.value[k] = 0.02f * rng_normal(&r);
        w.t = t;
        w.row_bytes = quant_row_bytes(t, ROW);
        memset(w.packed, 0x3b, ROWS * w.row_bytes); /* types without a writer: scales near 1 */
        double q = t->can_write ? rate(&w, quantize) : 0;
        for (size_t row = 0; t->can_write && row < ROWS; row++) quantize(&w, row);
        printf("%-7s %12.0f %12.0f %12.0f %12.1f\n", t->name, rate(&w, dequantize),
               t->form == QUANT_FLOAT ? 0 : rate(&w, unpack), rate(&w, check), q);
    }
    mem_free(w.value);
    mem_free(w.scale);
    mem_free(w.min);
    mem_free(w.packed);
    mem_free(w.q);
    return 0;
}

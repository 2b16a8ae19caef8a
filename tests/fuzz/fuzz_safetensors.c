/* fuzz_safetensors.c: any bytes as a safetensors file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    zp_err err = {0};
    static volatile uint64_t sink;
    if (safetensors_open_bytes(&s, data, size, "input", &err) != ZP_OK) return 0;
    for (uint32_t i = 0; i < s.n_tensors; i++) {
        const struct safetensors_tensor *t = &s.tensors[i];
        if (safetensors_find(&s, t->name) != t) abort();
        for (uint64_t k = 0; k < t->bytes; k++) sink += t->data[k];
    }
    (void)sink;
    safetensors_close(&s);
    return 0;
}

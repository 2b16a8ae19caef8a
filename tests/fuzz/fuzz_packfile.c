/* fuzz_packfile.c: any bytes as a side file of packed weights: what is taken has its bytes in it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "model/packfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The files of the corpus are of this model. */
    static const struct packfile_key key = {
        .path = 0x1111, .source = 0x2222, .layout = 0x3333, .bytes = 3000
    };
    struct packfile f = {0};
    zp_err err = {0};
    static volatile uint64_t sink;
    if (packfile_check_head(&f, data, size, &key, "input", &err) != ZP_OK) return 0;
    if (f.packed < data || (size_t)(data + size - f.packed) != key.bytes) abort();
    for (size_t i = 0; i < key.bytes; i++) sink += f.packed[i];
    for (size_t i = 0; i < sizeof(uint64_t); i++) sink += f.hashes[i];
    (void)sink;
    return 0;
}

/* fuzz_checkpoint.c: any bytes as a checkpoint: what is taken has all its sections in it.
 * Input: a byte whose lowest bit says whether the header's hash is made right, and the next whether
 * those of the sections are; then the file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "train/checkpoint.h"

static void must(bool good)
{
    if (!good) abort();
}

/* Hashes of what the file says, where that lies inside it. */
static void seal(uint8_t *file, size_t size, bool sections)
{
    static const size_t bytes[] = { 1, 1, 4, 8, 4, 8, 2 };
    struct checkpoint_header h;
    const size_t from = offsetof(struct checkpoint_header, file_bytes);
    if (size < sizeof h) return;
    memcpy(&h, file, sizeof h);
    if (h.n_sections > (size - sizeof h) / sizeof(struct checkpoint_entry)) return;
    struct checkpoint_entry *e = (void *)(file + sizeof h);
    for (size_t i = 0; sections && i < h.n_sections; i++) {
        size_t each = bytes[e[i].type < 7 ? e[i].type : 0];
        if (e[i].offset <= size && e[i].count <= (size - e[i].offset) / each)
            e[i].hash = hash_xxh64(file + e[i].offset, (size_t)e[i].count * each, 0);
    }
    h.hash = hash_xxh64(file + from, sizeof h + (size_t)h.n_sections * sizeof *e - from, 0);
    memcpy(file, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink;
    const struct checkpoint_key key = { 0x1111, 0x2222, 0 };
    struct checkpoint c;
    zp_err err = { 0 };
    if (size < 1) return 0;
    uint8_t *file = malloc(size); /* one more than is needed, and aligned */
    must(file != NULL);
    memcpy(file, data + 1, size - 1);
    if (data[0] & 1) seal(file, size - 1, data[0] & 2);
    if (checkpoint_view(&c, file, size - 1, "input", &key, &err) == ZP_OK) {
        for (size_t i = 0; i < c.n_sections; i++) {
            const struct checkpoint_entry *e = &c.entries[i];
            uint8_t *out = malloc((size_t)e->count * 8 + 1);
            must(out != NULL && checkpoint_find(&c, e->name) == e);
            must(checkpoint_read(&c, e->name, (enum checkpoint_type)e->type, out, e->count, &err) ==
                 ZP_OK);
            if (e->count) sink += out[0];
            free(out);
        }
    } else {
        must(err.message[0] != '\0');
    }
    (void)sink;
    free(file);
    return 0;
}

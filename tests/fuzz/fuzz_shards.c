/* fuzz_shards.c: any bytes as a file of token documents: of what is taken, each document can be
 * read. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "train/shards.h"

static void read_all(const struct shards *s)
{
    int32_t ids[16];
    static volatile uint64_t sink;
    for (uint32_t i = 0; i < s->head.n_docs; i++) {
        const struct shards_doc *d = &s->docs[i];
        for (uint64_t at = 0; at < d->n; at += 16) {
            size_t n = d->n - at < 16 ? (size_t)(d->n - at) : 16;
            shards_read(s, i, at, n, ids);
            for (size_t j = 0; j < n; j++)
                if (ids[j] < 0 || (uint32_t)ids[j] >= s->head.n_vocab) abort();
        }
        for (uint32_t j = 0; j < d->name_size; j++) sink += (uint8_t)s->names[d->name_at + j];
    }
    (void)sink;
}

/* Half of the inputs get hashes that are right, so that what they guard is reached. */
static void seal(uint8_t *data, size_t size)
{
    struct shards_header h;
    if (size < sizeof h) return;
    memcpy(&h, data, sizeof h);
    if (h.ids_at > size || h.ids_at < sizeof h) return;
    h.file_bytes = size;
    h.ids_hash = hash_xxh64(data + h.ids_at, size - (size_t)h.ids_at, 0);
    memcpy(data, &h, sizeof h);
    size_t begin = offsetof(struct shards_header, version);
    h.tables_hash = hash_xxh64(data + begin, (size_t)h.ids_at - begin, 0);
    memcpy(data, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL) abort();
    if (size) memcpy(copy, data, size);
    for (int sealed = 0; sealed < 2; sealed++) {
        struct shards s;
        zp_err err = { 0 };
        if (sealed) seal(copy, size);
        if (shards_open_bytes(&s, copy, size, "input", &err) != ZP_OK) continue;
        read_all(&s);
        shards_close(&s);
    }
    free(copy);
    return 0;
}

/* charsmap.h: SentencePiece's precompiled_charsmap: a double-array trie from byte sequences to
 * replacement texts, interpreted as it stands (it is not NFKC, only resembles it).
 * Blob: u32 size of the array in bytes, the array of u32 units, then replacements that end
 * with NUL. */
#ifndef MODEL_CHARSMAP_H
#define MODEL_CHARSMAP_H

#include "base/bytes.h"

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts; /* ends with NUL */
    size_t texts_size;
};
/* Copies the blob; checks its sizes and that the texts end and are UTF-8. */
zp_status charsmap_init(struct charsmap *m, const uint8_t *blob, size_t size, zp_err *err);
void charsmap_free(struct charsmap *m);

/* The replacement of the longest sequence of the map that begins the text, and its length in
 * *consumed; NULL if there is none. Units that point outside the array end the walk. */
const char *charsmap_find(const struct charsmap *m, const uint8_t *text, size_t size,
                          size_t *consumed, size_t *out_size);

#endif

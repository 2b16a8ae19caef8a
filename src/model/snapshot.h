/* snapshot.h: a sequence as a file: its ids and its pages, as they lie in memory. The calls are
 * zp_seq_save and zp_seq_restore; docs/FORMATS.md shows the layout. */
#ifndef MODEL_SNAPSHOT_H
#define MODEL_SNAPSHOT_H

#include "model/seq.h"

enum { SNAPSHOT_VERSION = 1, SNAPSHOT_BYTE_ORDER = 0x01020304, SNAPSHOT_ALIGN = 4096 };
#define SNAPSHOT_MAGIC "zeropseq"

/* The file begins with it, without a gap. Then follow a u64 hash of each page, a u32 for each head:
 * the first tile it still has behind the sinks, the i32 ids, zeros up to payload_at; there the
 * pages, head by head and tile by tile, then the open ones. All hashes are XXH64 with seed 0. */
struct snapshot_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t hash; /* of the bytes from here to payload_at */
    uint64_t payload_at, file_bytes;
    char model[64];   /* zp_model_sha256 */
    uint64_t weights; /* hash of the beginnings of all tensors */
    char level[8];    /* kernels, NUL-padded */
    uint32_t kv_type, exact, n_layer, n_kv, d_head;
    uint32_t n_ctx; /* of a dynamic scaling, else 0 */
    uint32_t mode, length, n_pending;
    uint32_t moved_at; /* first token that came by zp_seq_append_pages, or the largest number */
    uint64_t offset, salt;
    uint64_t page_bytes, n_pages, open_bytes, n_open;
};

/* zp_seq_restore of a file's bytes. name: for messages. */
zp_status snapshot_restore(zp_seq **out, zp_engine *e, const void *data, size_t size,
                           const char *name, const int32_t *ids, size_t n, zp_err *err);

#endif

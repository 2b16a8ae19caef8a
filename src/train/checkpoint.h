/* checkpoint.h: the state of a training run as a file: named arrays, whose every byte is checked
 * before use, and the folder that keeps the last ones. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/os.h"
#include "base/status.h"

#define CHECKPOINT_MAGIC "zeropckp"
enum { CHECKPOINT_VERSION = 1, CHECKPOINT_BYTE_ORDER = 0x01020304, CHECKPOINT_ALIGN = 64 };
enum { CHECKPOINT_NAME = 48, CHECKPOINT_MOST = 4096 }; /* bytes of a name, sections of a file */

enum checkpoint_type {
    CHECKPOINT_U8 = 1, CHECKPOINT_U32, CHECKPOINT_U64, CHECKPOINT_F32, CHECKPOINT_F64,
    CHECKPOINT_BF16
};

/* What a checkpoint belongs to: hashes that the caller makes. 0: unknown, not compared. */
struct checkpoint_key {
    uint64_t shape;     /* the model's tensors: names, types, sizes */
    uint64_t tokenizer;
    uint64_t config;    /* the JSON text of the training configuration */
};

/* The file: header, n_sections entries, then the sections at multiples of 64, zeros between. All
 * hashes are XXH64 with seed 0. */
struct checkpoint_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t hash; /* of the bytes from here to the end of the entries */
    uint64_t file_bytes, step;
    struct checkpoint_key key;
    uint64_t n_sections;
};
struct checkpoint_entry {
    char name[CHECKPOINT_NAME]; /* printable ASCII, NUL-padded, at least one NUL */
    uint32_t type, zero;
    uint64_t count, offset, hash; /* count: elements */
};

/* ---- writing --------------------------------------------------------------------------------- */

struct checkpoint_part {
    const char *name;
    enum checkpoint_type type;
    const void *data;
    size_t count; /* elements */
};
/* Atomically (I4); a full disk leaves what was there. */
zp_status checkpoint_write(const char *path, uint64_t step, const struct checkpoint_key *key,
                           const struct checkpoint_part *parts, size_t n, zp_err *err);
/* Memory under MEM_META that checkpoint_save holds meanwhile: of the checkpoint's file and of
 * `latest`; names and tables are some KiB more. */
#define CHECKPOINT_SAVE_BYTES (2 * OS_FILE_BYTES)
/* Into the folder, which is made where it is not there: step-N.zpck, then the name in `latest`.
 * Afterwards only the last `keep` (0: all) up to this step remain; later steps, of a run that was
 * rolled back, are removed, and so is what killed writers left. A failure leaves the folder as it
 * was. */
zp_status checkpoint_save(const char *folder, uint64_t step, const struct checkpoint_key *key,
                          const struct checkpoint_part *parts, size_t n, size_t keep, zp_err *err);

/* ---- reading --------------------------------------------------------------------------------- */

struct checkpoint {
    uint64_t step;
    struct checkpoint_key key;
    size_t n_sections;
    const struct checkpoint_entry *entries;
    const uint8_t *data;
    char name[256]; /* for messages */
    struct os_map map;
};
/* Every length and hash is right afterwards. expected may be NULL; what differs from it is named:
 * ZP_BAD_INPUT. A damaged file: ZP_BAD_FILE. */
zp_status checkpoint_open(struct checkpoint *c, const char *path,
                          const struct checkpoint_key *expected, zp_err *err);
/* The same of bytes at a multiple of 8, which must outlive c. */
zp_status checkpoint_view(struct checkpoint *c, const void *data, size_t size, const char *name,
                          const struct checkpoint_key *expected, zp_err *err);
/* Removes what writers that were killed have left, however young: for whoever alone writes
 * there. */
zp_status checkpoint_clear(const char *folder, zp_err *err);
/* Whether the folder has a checkpoint, or `latest` says that it had. No folder: it has none. */
zp_status checkpoint_any(const char *folder, bool *out, zp_err *err);
/* What `latest` names; where that is missing or damaged, the newest older one that is whole, with a
 * warning in the log. None in the folder: ZP_BAD_INPUT. */
zp_status checkpoint_open_last(struct checkpoint *c, const char *folder,
                               const struct checkpoint_key *expected, zp_err *err);
void checkpoint_close(struct checkpoint *c);

/* NULL if there is none. */
const struct checkpoint_entry *checkpoint_find(const struct checkpoint *c, const char *name);
/* Copies a section that must be there with this type and number of elements: ZP_BAD_INPUT
 * otherwise. */
zp_status checkpoint_read(const struct checkpoint *c, const char *name, enum checkpoint_type type,
                          void *out, size_t count, zp_err *err);

#endif

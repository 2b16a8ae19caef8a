/* packfile.h: packed weights kept in a file of the user's cache folder, so that later starts map
 * them instead of packing again.
 *
 * File: struct of 64 bytes (packfile.c), one hash for each MiB of the packed bytes, zeros, and as
 * the last 8 bytes of a multiple of 4096 a hash of all before; then the packed bytes as in memory.
 * Its name is made of the key. Hashes: XXH64. */
#ifndef MODEL_PACKFILE_H
#define MODEL_PACKFILE_H

#include "base/os.h"
#include "base/pool.h"
#include "model/gguf.h"

/* What packed bytes depend on. */
struct packfile_key {
    uint64_t path; /* hash of the model's path, links followed */
    /* hash of its keys and tensor table, and of the sizes and times of its files */
    uint64_t source;
    uint64_t layout; /* hash of how its matrices are laid out; the caller's */
    size_t bytes;    /* packed */
};
/* Fails where side files cannot be told apart: of a model that is not read from files, or was
 * changed within the last two seconds. */
zp_status packfile_key_of(const struct gguf *g, uint64_t layout, size_t bytes,
                          struct packfile_key *out, zp_err *err);
enum { PACKFILE_PATH_ROOM = 4096 };
/* "folder/path-source-layout-PACK_LAYOUT.packed"; false if it is too long. */
bool packfile_path(const char *folder, const struct packfile_key *key,
                   char out[PACKFILE_PATH_ROOM]);

struct packfile {
    struct os_map map;
    const uint8_t *packed;  /* inside map, at a multiple of 4096 */
    const uint8_t *hashes;  /* inside map */
    bool small_pages;       /* the system maps it in small pages, which decode slower than memory */
};
/* Maps the side file of the key and checks every byte of it. Any failure means: there is none. */
zp_status packfile_open(struct packfile *f, const char *folder, const struct packfile_key *key,
                        struct pool *pool, zp_err *err);
void packfile_close(struct packfile *f);
/* Copies the packed bytes, all workers together; pages of the mapping go as they are copied. */
void packfile_copy(const struct packfile *f, const struct packfile_key *key, uint8_t *to,
                   struct pool *pool);
/* Writes the side file, whole or not at all, and removes those of earlier states of the model and
 * those that nobody used for 7 days. */
zp_status packfile_write(const char *folder, const struct packfile_key *key, const uint8_t *packed,
                         struct pool *pool, zp_err *err);

/* Checks everything before the packed bytes (tests, fuzzing); name is for messages. */
zp_status packfile_check_head(struct packfile *f, const uint8_t *data, size_t size,
                              const struct packfile_key *key, const char *name, zp_err *err);
/* Test hook: from now on every side file counts as mapped in small pages. */
void packfile_pretend_small_pages(bool on);

#endif

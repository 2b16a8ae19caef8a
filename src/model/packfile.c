/* packfile.c: side files of packed weights: names, the head and its check, reading, writing,
 * removal of what is stale.
 * Owns: the files of the cache folder. Does not know: what the packed bytes mean.
 * S1 no byte is used that does not equal what was written: the head carries a hash of itself, and
 *    each MiB of the rest has one there. All are checked before the first use: that costs less than
 *    the pages' first touch from the file would save, and there is no moment later at which a flaw
 *    could still lead back to the model file.
 * S2 a side file is served only to the state of the model's files it was made of. Changing a file
 *    changes the time of its last change, which no program can set back; a file that was changed
 *    within the resolution of that time has no key yet.
 * S3 nothing here is a failure for the caller: without a side file weights are packed again.
 * S4 a side file that nobody used for 7 days goes when the next one is written.
 * S5 what a link in the folder leads to is neither written, nor touched, nor removed: where it has
 *    the name of a side file, that file takes its place. The folder itself may be a link. */
#include "model/packfile.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "kern/pack.h"

#define CHUNK ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)
enum { DAY = 24 * 3600, LONGEST_UNUSED = 7 * DAY };

/* ---- the head -------------------------------------------------------------------------------- */

enum { FORMAT = 1 };

/* As in the file, little endian (the only order zerope runs in); the hashes of the chunks
 * follow. */
struct head {
    char magic[8];
    uint32_t format, layout; /* of this file; of the packed bytes: PACK_LAYOUT */
    uint64_t path, source, matrices, head_bytes, packed_bytes, chunk_bytes;
};
_Static_assert(sizeof(struct head) == 64, "no padding");

static const char magic[8] = "zpPACKED";

static size_t n_chunks(size_t bytes)
{
    return bytes / CHUNK + (bytes % CHUNK != 0);
}

static size_t chunk_size(size_t bytes, size_t i)
{
    return bytes - i * CHUNK < CHUNK ? bytes - i * CHUNK : CHUNK;
}

static size_t head_bytes(size_t bytes)
{
    size_t used = sizeof(struct head) + (n_chunks(bytes) + 1) * sizeof(uint64_t);
    return (used + PAGE - 1) / PAGE * PAGE;
}

static struct head head_of(const struct packfile_key *key)
{
    struct head h = { .format = FORMAT,
                      .layout = PACK_LAYOUT,
                      .path = key->path,
                      .source = key->source,
                      .matrices = key->layout,
                      .head_bytes = head_bytes(key->bytes),
                      .packed_bytes = key->bytes,
                      .chunk_bytes = CHUNK };
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

zp_status packfile_check_head(struct packfile *f, const uint8_t *data, size_t size,
                              const struct packfile_key *key, const char *name, zp_err *err)
{
    struct head expected = head_of(key), found;
    size_t head = head_bytes(key->bytes);
    ZP_FAIL_IF(size < sizeof found, err, ZP_BAD_FILE, "%s: has %zu bytes, too few for a side file",
               name, size);
    memcpy(&found, data, sizeof found);
    ZP_FAIL_IF(memcmp(found.magic, magic, sizeof magic) != 0, err, ZP_BAD_FILE,
               "%s: is no side file of packed weights", name);
    ZP_FAIL_IF(found.format != FORMAT || found.layout != PACK_LAYOUT, err, ZP_BAD_FILE,
               "%s: has format %u and layout %u, expected %u and %u", name, found.format,
               found.layout, (unsigned)FORMAT, (unsigned)PACK_LAYOUT);
    ZP_FAIL_IF(memcmp(&found, &expected, sizeof found) != 0, err, ZP_BAD_FILE,
               "%s: was made of another model, another state of it, or with other options", name);
    ZP_FAIL_IF(size != head + key->bytes, err, ZP_BAD_FILE, "%s: has %zu bytes, expected %zu", name,
               size, head + key->bytes);
    uint64_t hash;
    memcpy(&hash, data + head - sizeof hash, sizeof hash);
    ZP_FAIL_IF(hash != hash_xxh64(data, head - sizeof hash, 0), err, ZP_BAD_FILE,
               "%s: its head is damaged", name);
    f->hashes = data + sizeof found;
    f->packed = data + head;
    return ZP_OK;
}

/* ---- keys and names -------------------------------------------------------------------------- */

/* Keys and tensor table, as they were read. */
static uint64_t hash_table(const struct gguf *g, uint64_t h)
{
    for (uint32_t i = 0; i < g->n_kv; i++) {
        h = hash_xxh64(g->kvs[i].name, strlen(g->kvs[i].name) + 1, h);
        h = hash_xxh64(g->kvs[i].data, g->kvs[i].bytes, h);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const uint64_t place[] = { t->type, t->offset, t->shard };
        h = hash_xxh64(t->name, strlen(t->name) + 1, h);
        h = hash_xxh64(t->ne, sizeof t->ne, h);
        h = hash_xxh64(place, sizeof place, h);
    }
    return h;
}

zp_status packfile_key_of(const struct gguf *g, uint64_t layout, size_t bytes,
                          struct packfile_key *out, zp_err *err)
{
    enum { RESOLUTION = 2 }; /* seconds: of the file system with the coarsest times, FAT */
    char real[PACKFILE_PATH_ROOM];
    uint64_t of_files = 0;
    ZP_FAIL_IF(g->n_maps == 0 || !os_real_path(g->path, real, sizeof real), err, ZP_BAD_INPUT,
               "%s: has no file of its own, so a side file could not be told from another",
               g->path);
    for (uint32_t i = 0; i < g->n_maps; i++) {
        const struct os_map *m = &g->maps[i];
        const int64_t facts[] = { (int64_t)m->size, m->modified, m->changed };
        ZP_FAIL_IF(os_seconds_since(m->changed) < RESOLUTION, err, ZP_BAD_INPUT,
                   "%s: was changed just now", g->path); // S2
        of_files = hash_xxh64(facts, sizeof facts, of_files);
    }
    *out = (struct packfile_key){ .path = hash_xxh64(real, strlen(real), 0),
                                  .source = hash_table(g, of_files),
                                  .layout = layout,
                                  .bytes = bytes };
    return ZP_OK;
}

bool packfile_path(const char *folder, const struct packfile_key *key,
                   char out[PACKFILE_PATH_ROOM])
{
    int n = snprintf(out, PACKFILE_PATH_ROOM, "%s/%016llx-%016llx-%016llx-%u.packed", folder,
                     (unsigned long long)key->path, (unsigned long long)key->source,
                     (unsigned long long)key->layout, (unsigned)PACK_LAYOUT);
    return n > 0 && n < PACKFILE_PATH_ROOM;
}

/* ---- all chunks, by all workers -------------------------------------------------------------- */

struct chunks {
    const uint8_t *bytes;
    size_t size;
    uint64_t *hashes;         /* of each chunk, seeded with its number; or NULL */
    uint8_t *to;              /* copies it; or NULL */
    const struct os_map *map; /* that the chunks lie in, and that gives their pages back; or NULL */
};

static void each_chunk(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct chunks *c = arg;
    size_t begin, end;
    pool_share(n_chunks(c->size), 1, thread, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const uint8_t *chunk = c->bytes + i * CHUNK;
        size_t size = chunk_size(c->size, i);
        if (c->hashes) c->hashes[i] = hash_xxh64(chunk, size, i);
        if (c->to) memcpy(c->to + i * CHUNK, chunk, size);
        if (c->map) os_map_drop(c->map, (size_t)(chunk - c->map->data), size);
    }
}

void packfile_copy(const struct packfile *f, const struct packfile_key *key, uint8_t *to,
                   struct pool *pool)
{
    struct chunks all = { .bytes = f->packed, .size = key->bytes, .to = to, .map = &f->map };
    pool_run(pool, each_chunk, &all);
}

/* ---- reading --------------------------------------------------------------------------------- */

static atomic_bool pretend_small;

void packfile_pretend_small_pages(bool on)
{
    atomic_store(&pretend_small, on);
}

static zp_status check_chunks(const struct packfile *f, const struct packfile_key *key,
                              const char *path, struct pool *pool, zp_err *err)
{
    struct chunks all = { .bytes = f->packed, .size = key->bytes };
    size_t n = n_chunks(key->bytes), i = 0;
    ZP_ALLOC(all.hashes, MEM_META, n, err, "hashes");
    pool_run(pool, each_chunk, &all);
    while (i < n && memcmp(&all.hashes[i], f->hashes + i * sizeof(uint64_t), sizeof(uint64_t)) == 0)
        i++;
    mem_free(all.hashes);
    ZP_FAIL_IF(i < n, err, ZP_BAD_FILE, "%s: is damaged in MiB %zu of %zu", path, i + 1, n);
    return ZP_OK;
}

zp_status packfile_open(struct packfile *f, const char *folder, const struct packfile_key *key,
                        struct pool *pool, zp_err *err)
{
    char path[PACKFILE_PATH_ROOM];
    *f = (struct packfile){ 0 };
    ZP_FAIL_IF(!packfile_path(folder, key, path), err, ZP_BAD_INPUT,
               "the path of the cache folder is too long");
    ZP_TRY(os_map_file(&f->map, path, err));
    os_map_huge(&f->map);
    uint64_t faults = os_page_faults();
    zp_status status = packfile_check_head(f, f->map.data, f->map.size, key, path, err);
    if (status == ZP_OK) status = check_chunks(f, key, path, pool, err);
    if (status != ZP_OK) {
        packfile_close(f);
        return status;
    }
    if (os_seconds_since(f->map.modified) > DAY) os_touch(path); // S4, S5
    /* The check touched every page. A large page costs one fault, its small ones cost 32 and
     * more. */
    uint64_t huge_pages = f->map.size / HUGE_PAGE + 1;
    f->small_pages = os_page_faults() - faults > 2 * huge_pages + 64 || atomic_load(&pretend_small);
    return ZP_OK;
}

void packfile_close(struct packfile *f)
{
    os_unmap(&f->map);
    *f = (struct packfile){ 0 };
}

/* ---- writing --------------------------------------------------------------------------------- */

struct sweep {
    const char *folder;
    const struct packfile_key *key;
};

/* Whether nobody will want the file any more: left by a process that died while writing, not used
 * for long, or of an earlier state of this model or an earlier layout. Foreign names stay, and so
 * do links and folders. */
static bool is_stale(const struct sweep *s, const char *name, const char *path)
{
    unsigned long long of_path, source;
    unsigned layout;
    int end = 0;
    double age;
    (void)sscanf(name, "%16llx-%16llx-%*16x-%u.packed%n", &of_path, &source, &layout, &end);
    if (end == 0) return false;
    if (name[end] != '\0') return os_is_leftover(path, name + end);
    if (!os_file_age(path, &age)) return false;
    bool outdated = source != s->key->source || layout < PACK_LAYOUT;
    return age > LONGEST_UNUSED || (of_path == s->key->path && outdated);
}

static void remove_stale(void *arg, const char *name)
{
    const struct sweep *s = arg;
    char path[PACKFILE_PATH_ROOM];
    int n = snprintf(path, sizeof path, "%s/%s", s->folder, name);
    if (n > 0 && n < PACKFILE_PATH_ROOM && is_stale(s, name, path)) (void)remove(path); // S5
}

static zp_status write_all(struct os_file *f, const struct packfile_key *key, const uint8_t *head,
                           const uint8_t *packed, zp_err *err)
{
    f->unsynced = true; /* S1: a file that was torn by a loss of power is seen as damaged */
    ZP_TRY(os_file_write(f, head, head_bytes(key->bytes), err));
    ZP_TRY(os_file_write(f, packed, key->bytes, err)); /* in one piece: large pages in the cache */
    return os_file_commit(f, err);
}

zp_status packfile_write(const char *folder, const struct packfile_key *key, const uint8_t *packed,
                         struct pool *pool, zp_err *err)
{
    char path[PACKFILE_PATH_ROOM];
    struct os_file file;
    size_t head_size = head_bytes(key->bytes);
    ZP_FAIL_IF(!packfile_path(folder, key, path), err, ZP_BAD_INPUT,
               "the path of the cache folder is too long");
    ZP_TRY(os_make_folders(folder, err));
    ZP_TRY(os_file_create_over_link(&file, path, head_size + key->bytes, err)); // S5
    uint8_t *head = mem_zalloc(MEM_META, head_size);
    if (head == NULL) {
        os_file_abort(&file);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for the head of a side file");
    }
    struct head fields = head_of(key);
    struct chunks all = { .bytes = packed,
                          .size = key->bytes,
                          .hashes = (uint64_t *)(void *)(head + sizeof fields) };
    memcpy(head, &fields, sizeof fields);
    pool_run(pool, each_chunk, &all);
    uint64_t hash = hash_xxh64(head, head_size - sizeof hash, 0);
    memcpy(head + head_size - sizeof hash, &hash, sizeof hash);
    zp_status status = write_all(&file, key, head, packed, err);
    os_file_abort(&file);
    mem_free(head);
    if (status == ZP_OK)
        status = os_each_entry(folder, remove_stale, &(struct sweep){ folder, key }, err);
    return status;
}

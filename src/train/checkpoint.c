/* checkpoint.c: one checkpoint file, written and read. Folders: checkpoint_folder.c.
 * Owns: the mapping of an open file. Does not know: what sections mean.
 * Threads: a struct belongs to one.
 * H1 nothing of a file is used before its lengths and hashes were checked (I7).
 * H2 each byte of a file is hashed or must be zero: no damage goes unseen. */
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "train/checkpoint_file.h"

_Static_assert(sizeof(struct checkpoint_header) == 72, "the header has no gaps");
_Static_assert(sizeof(struct checkpoint_entry) == 80, "entries have no gaps");

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [CHECKPOINT_U8] = { "u8", 1 },   [CHECKPOINT_U32] = { "u32", 4 },
    [CHECKPOINT_U64] = { "u64", 8 }, [CHECKPOINT_F32] = { "f32", 4 },
    [CHECKPOINT_F64] = { "f64", 8 }, [CHECKPOINT_BF16] = { "bf16", 2 },
};

static bool is_type(uint32_t type)
{
    return type >= 1 && type < ZP_COUNT(types);
}

static const char *type_name(uint32_t type)
{
    return is_type(type) ? types[type].name : "an unknown type";
}

static size_t tables_bytes(size_t n_sections)
{
    return sizeof(struct checkpoint_header) + n_sections * sizeof(struct checkpoint_entry);
}

static uint64_t hash_tables(const void *data, size_t n_sections)
{
    size_t from = offsetof(struct checkpoint_header, file_bytes);
    return hash_xxh64((const uint8_t *)data + from, tables_bytes(n_sections) - from, 0);
}

/* *at, which is at most SIZE_MAX / 2, moved to the next multiple of CHECKPOINT_ALIGN, then past
 * count elements; false when that would be more. */
static bool place(uint64_t *at, uint32_t type, uint64_t count, uint64_t *offset)
{
    const uint64_t most = SIZE_MAX / 2;
    *offset = (*at + CHECKPOINT_ALIGN - 1) / CHECKPOINT_ALIGN * CHECKPOINT_ALIGN;
    if (*offset > most || count > (most - *offset) / types[type].bytes) return false;
    *at = *offset + count * types[type].bytes;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* 1 to CHECKPOINT_NAME - 1 printable characters, then zeros. */
static bool is_name(const char name[CHECKPOINT_NAME])
{
    size_t n = 0;
    while (n < CHECKPOINT_NAME && name[n] > ' ' && name[n] < 127) n++;
    if (n == 0 || n == CHECKPOINT_NAME) return false;
    for (size_t i = n; i < CHECKPOINT_NAME; i++)
        if (name[i] != '\0') return false;
    return true;
}

static zp_status fill_entry(struct checkpoint_entry *e, const struct checkpoint_part *p,
                            uint64_t *at, const char *path, zp_err *err)
{
    size_t length = strlen(p->name);
    if (length < CHECKPOINT_NAME) memcpy(e->name, p->name, length);
    ZP_FAIL_IF(!is_name(e->name), err, ZP_USAGE,
               "%s: '%s' cannot be a section's name (1 to %d printable characters)", path, p->name,
               CHECKPOINT_NAME - 1);
    e->type = (uint32_t)p->type;
    e->count = p->count;
    ZP_FAIL_IF(!is_type(e->type), err, ZP_USAGE, "%s: section %s has no type", path, p->name);
    ZP_FAIL_IF(!place(at, e->type, e->count, &e->offset), err, ZP_USAGE,
               "%s: section %s of %zu elements is too large", path, p->name, p->count);
    e->hash = hash_xxh64(p->count ? p->data : "", p->count * types[e->type].bytes, 0);
    return ZP_OK;
}

static zp_status fill_tables(uint8_t *tables, uint64_t step, const struct checkpoint_key *key,
                             const struct checkpoint_part *parts, size_t n, const char *path,
                             zp_err *err)
{
    struct checkpoint_header *h = (void *)tables;
    struct checkpoint_entry *e = (void *)(tables + sizeof *h);
    uint64_t at = tables_bytes(n);
    for (size_t i = 0; i < n; i++) {
        ZP_TRY(fill_entry(&e[i], &parts[i], &at, path, err));
        for (size_t j = 0; j < i; j++)
            ZP_FAIL_IF(strcmp(e[i].name, e[j].name) == 0, err, ZP_USAGE,
                       "%s: section %s is given twice", path, e[i].name);
    }
    memcpy(h->magic, CHECKPOINT_MAGIC, sizeof h->magic);
    h->version = CHECKPOINT_VERSION;
    h->byte_order = CHECKPOINT_BYTE_ORDER;
    h->file_bytes = at;
    h->step = step;
    h->key = *key;
    h->n_sections = n;
    h->hash = hash_tables(tables, n);
    return ZP_OK;
}

static zp_status write_all(struct os_file *f, const char *path, const uint8_t *tables,
                           const struct checkpoint_part *parts, zp_err *err)
{
    static const uint8_t zeros[CHECKPOINT_ALIGN];
    const struct checkpoint_header *h = (const void *)tables;
    const struct checkpoint_entry *e = (const void *)(tables + sizeof *h);
    uint64_t at = tables_bytes(h->n_sections);
    ZP_TRY(os_file_create(f, path, h->file_bytes, err));
    ZP_TRY(os_file_write(f, tables, at, err));
    for (size_t i = 0; i < h->n_sections; i++) {
        size_t bytes = parts[i].count * types[parts[i].type].bytes;
        ZP_TRY(os_file_write(f, zeros, e[i].offset - at, err));
        ZP_TRY(os_file_write(f, parts[i].data, bytes, err));
        at = e[i].offset + bytes;
    }
    return os_file_finish(f, err);
}

zp_status checkpoint_prepare(struct os_file *f, const char *path, uint64_t step,
                             const struct checkpoint_key *key, const struct checkpoint_part *parts,
                             size_t n, zp_err *err)
{
    *f = (struct os_file){ .fd = -1 };
    ZP_FAIL_IF(n > CHECKPOINT_MOST, err, ZP_USAGE, "%s: %zu sections, at most %d are possible",
               path, n, CHECKPOINT_MOST);
    uint8_t *tables = mem_zalloc(MEM_TRAIN, tables_bytes(n));
    ZP_FAIL_IF(tables == NULL, err, ZP_NO_MEMORY, "%s: not enough memory to write it", path);
    zp_status status = fill_tables(tables, step, key, parts, n, path, err);
    if (status == ZP_OK) status = write_all(f, path, tables, parts, err);
    mem_free(tables);
    return status;
}

zp_status checkpoint_write(const char *path, uint64_t step, const struct checkpoint_key *key,
                           const struct checkpoint_part *parts, size_t n, zp_err *err)
{
    struct os_file f;
    ZP_TRY(checkpoint_prepare(&f, path, step, key, parts, n, err));
    return os_file_commit(&f, err);
}

/* ---- checking -------------------------------------------------------------------------------- */

static zp_status check_header(const struct checkpoint *c, size_t size,
                              struct checkpoint_header *h, zp_err *err)
{
    ZP_FAIL_IF(size < sizeof *h || memcmp(c->data, CHECKPOINT_MAGIC, sizeof h->magic) != 0, err,
               ZP_BAD_FILE, "%s: is no checkpoint (%zu bytes; one begins with %s)", c->name, size,
               CHECKPOINT_MAGIC);
    memcpy(h, c->data, sizeof *h);
    ZP_FAIL_IF(h->byte_order != CHECKPOINT_BYTE_ORDER, err, ZP_BAD_FILE,
               "%s: was written on a machine of another byte order (mark %08x, expected %08x)",
               c->name, h->byte_order, CHECKPOINT_BYTE_ORDER);
    ZP_FAIL_IF(h->version != CHECKPOINT_VERSION, err, ZP_BAD_FILE,
               "%s: format version %u, this program reads %d", c->name, h->version,
               CHECKPOINT_VERSION);
    ZP_FAIL_IF(h->file_bytes != size, err, ZP_BAD_FILE,
               "%s: has %zu bytes, its header says %llu: it was cut or something was added",
               c->name, size, (unsigned long long)h->file_bytes);
    ZP_FAIL_IF(h->n_sections > CHECKPOINT_MOST || tables_bytes(h->n_sections) > size ||
                   hash_tables(c->data, h->n_sections) != h->hash,
               err, ZP_BAD_FILE, "%s: its header is damaged", c->name);
    return ZP_OK;
}

static zp_status check_key(const struct checkpoint *c, const struct checkpoint_key *expected,
                           zp_err *err)
{
    const struct {
        const char *what;
        uint64_t found, expected;
    } keys[] = {
        { "a model of another shape", c->key.shape, expected->shape },
        { "another tokenizer", c->key.tokenizer, expected->tokenizer },
        { "another training configuration", c->key.config, expected->config },
    };
    for (size_t i = 0; i < ZP_COUNT(keys); i++)
        ZP_FAIL_IF(keys[i].found && keys[i].expected && keys[i].found != keys[i].expected, err,
                   ZP_BAD_INPUT,
                   "%s: was written with %s (hash %016llx, this run has %016llx); resume with what "
                   "it was written with, or start a new run",
                   c->name, keys[i].what, (unsigned long long)keys[i].found,
                   (unsigned long long)keys[i].expected);
    return ZP_OK;
}

static bool are_zeros(const uint8_t *data, uint64_t from, uint64_t to)
{
    for (; from < to; from++)
        if (data[from] != 0) return false;
    return true;
}

/* Names, types and places; sections follow each other without a hole that is not zero (H2). */
static zp_status check_entries(const struct checkpoint *c, size_t size, zp_err *err)
{
    uint64_t at = tables_bytes(c->n_sections), before = at, offset;
    for (size_t i = 0; i < c->n_sections; i++) {
        const struct checkpoint_entry *e = &c->entries[i];
        ZP_FAIL_IF(!is_name(e->name), err, ZP_BAD_FILE, "%s: the name of section %zu is unreadable",
                   c->name, i);
        ZP_FAIL_IF(checkpoint_find(c, e->name) != e, err, ZP_BAD_FILE,
                   "%s: section %s is there twice", c->name, e->name);
        ZP_FAIL_IF(!is_type(e->type) || e->zero != 0, err, ZP_BAD_FILE,
                   "%s: section %s has type %u, which is unknown", c->name, e->name, e->type);
        ZP_FAIL_IF(!place(&at, e->type, e->count, &offset) || at > size || e->offset != offset, err,
                   ZP_BAD_FILE, "%s: section %s of %llu elements at %llu does not fit the file",
                   c->name, e->name, (unsigned long long)e->count, (unsigned long long)e->offset);
        ZP_FAIL_IF(!are_zeros(c->data, before, offset), err, ZP_BAD_FILE,
                   "%s: what stands before section %s is damaged", c->name, e->name);
        before = at;
    }
    ZP_FAIL_IF(at != size, err, ZP_BAD_FILE, "%s: has %zu bytes, its sections end at %llu", c->name,
               size, (unsigned long long)at);
    return ZP_OK;
}

static zp_status check_sections(const struct checkpoint *c, zp_err *err)
{
    for (size_t i = 0; i < c->n_sections; i++) {
        const struct checkpoint_entry *e = &c->entries[i];
        size_t bytes = (size_t)e->count * types[e->type].bytes;
        ZP_FAIL_IF(hash_xxh64(c->data + e->offset, bytes, 0) != e->hash, err, ZP_BAD_FILE,
                   "%s: section %s is damaged", c->name, e->name);
    }
    return ZP_OK;
}

zp_status checkpoint_view(struct checkpoint *c, const void *data, size_t size, const char *name,
                          const struct checkpoint_key *expected, zp_err *err)
{
    struct checkpoint_header h;
    *c = (struct checkpoint){ .data = data };
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    ZP_TRY(check_header(c, size, &h, err));
    c->step = h.step;
    c->key = h.key;
    c->n_sections = (size_t)h.n_sections;
    c->entries = (const void *)(c->data + sizeof h);
    if (expected != NULL) ZP_TRY(check_key(c, expected, err));
    ZP_TRY(check_entries(c, size, err));
    return check_sections(c, err);
}

zp_status checkpoint_open(struct checkpoint *c, const char *path,
                          const struct checkpoint_key *expected, zp_err *err)
{
    struct os_map map;
    *c = (struct checkpoint){ 0 };
    ZP_TRY(os_map_file(&map, path, err));
    zp_status status = checkpoint_view(c, map.data, map.size, path, expected, err);
    c->map = map;
    if (status != ZP_OK) checkpoint_close(c);
    return status;
}

void checkpoint_close(struct checkpoint *c)
{
    os_unmap(&c->map);
    *c = (struct checkpoint){ 0 };
}

/* ---- reading --------------------------------------------------------------------------------- */

const struct checkpoint_entry *checkpoint_find(const struct checkpoint *c, const char *name)
{
    for (size_t i = 0; i < c->n_sections; i++)
        if (strncmp(c->entries[i].name, name, CHECKPOINT_NAME) == 0) return &c->entries[i];
    return NULL;
}

zp_status checkpoint_read(const struct checkpoint *c, const char *name, enum checkpoint_type type,
                          void *out, size_t count, zp_err *err)
{
    const struct checkpoint_entry *e = checkpoint_find(c, name);
    ZP_FAIL_IF(e == NULL, err, ZP_BAD_INPUT, "%s: has no section %s", c->name, name);
    ZP_FAIL_IF(e->type != (uint32_t)type || e->count != count, err, ZP_BAD_INPUT,
               "%s: section %s holds %llu of %s, expected %zu of %s", c->name, name,
               (unsigned long long)e->count, type_name(e->type), count, type_name((uint32_t)type));
    if (count) memcpy(out, c->data + e->offset, count * types[e->type].bytes);
    return ZP_OK;
}

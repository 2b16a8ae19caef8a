/* shards.c: reads and writes files of token documents.
 * Owns: the mapping of an open file; the lists of one being written. Does not know: rows, batches.
 * Threads: an open file is read by any number.
 * S1 nothing of a file is used before its sizes and hashes were checked; hashes find damage, not
 *    malice, so ids, places and names are checked one by one as well. */
#include "train/shards.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

_Static_assert(sizeof(struct shards_header) == 88, "the header has no gaps");
_Static_assert(sizeof(struct shards_doc) == 48, "a document's row has no gaps");

enum { TABLES_BEGIN = offsetof(struct shards_header, version) };

static size_t align_up(size_t x)
{
    return (x + SHARDS_ALIGN - 1) / SHARDS_ALIGN * SHARDS_ALIGN;
}

static uint32_t bytes_of_id(uint32_t n_vocab)
{
    return n_vocab <= 65536 ? 2 : 4;
}

/* ---- tokenizers ---- */

uint64_t shards_hash_tokenizer(const struct tokenizer *t)
{
    const struct tokenizer_info *info = tokenizer_get_info(t);
    uint64_t h = hash_xxh64(info->model, strlen(info->model), 0);
    h = hash_xxh64(info->pre, strlen(info->pre), h);
    for (int32_t id = 0; id < info->n_vocab; id++) {
        size_t size;
        const char *text = tokenizer_token_text(t, id, &size);
        struct { float score; uint32_t kind; } facts = { tokenizer_token_score(t, id),
                                                         tokenizer_token_kind(t, id) };
        h = hash_xxh64(text, size, h);
        h = hash_xxh64(&facts, sizeof facts, h);
    }
    return h;
}

int32_t shards_separator_of(const struct tokenizer *t)
{
    static const char text[] = "<|endoftext|>";
    const struct tokenizer_info *info = tokenizer_get_info(t);
    int32_t id = tokenizer_find_token(t, text, sizeof text - 1);
    if (id != TOKEN_NONE) return id;
    return info->bos != TOKEN_NONE ? info->bos : info->eos;
}

zp_status shards_check_tokenizer(const struct shards *s, const struct tokenizer *t,
                                 const char *name, zp_err *err)
{
    uint64_t hash = shards_hash_tokenizer(t);
    ZP_FAIL_IF(hash != s->head.tokenizer, err, ZP_BAD_INPUT,
               "the corpus was made with another tokenizer (%u tokens, %016llx) than that of %s "
               "(%d tokens, %016llx); make it again with --tokenizer",
               s->head.n_vocab, (unsigned long long)s->head.tokenizer, name,
               tokenizer_get_info(t)->n_vocab, (unsigned long long)hash);
    return ZP_OK;
}

double shards_held_rank(uint64_t text_hash)
{
    uint64_t mixed = hash_xxh64(&text_hash, sizeof text_hash, 0x68656c64);
    return (double)(mixed >> 11) * 0x1p-53;
}

/* ---- reading ---- */

static zp_status check_head(const struct shards_header *h, size_t size, const char *name,
                            zp_err *err)
{
    ZP_FAIL_IF(h->byte_order != SHARDS_BYTE_ORDER, err, ZP_UNSUPPORTED,
               "%s: written on a machine of another byte order", name);
    ZP_FAIL_IF(h->version != SHARDS_VERSION, err, ZP_UNSUPPORTED,
               "%s: a corpus of version %u (this program reads %d)", name, h->version,
               SHARDS_VERSION);
    ZP_FAIL_IF(h->file_bytes != size, err, ZP_BAD_FILE, "%s: has %zu bytes, was written with %llu",
               name, size, (unsigned long long)h->file_bytes);
    ZP_FAIL_IF(h->n_vocab == 0 || h->n_vocab > INT32_MAX || h->id_bytes != bytes_of_id(h->n_vocab),
               err, ZP_BAD_FILE, "%s: %u tokens of %u bytes each", name, h->n_vocab, h->id_bytes);
    ZP_FAIL_IF(h->separator < 0 || (uint32_t)h->separator >= h->n_vocab, err, ZP_BAD_FILE,
               "%s: the separator is token %d of %u", name, h->separator, h->n_vocab);
    /* Counts are 32 bits wide, so that this sum cannot pass 64. */
    uint64_t tables = sizeof *h + (uint64_t)h->n_docs * sizeof(struct shards_doc) + h->names_bytes;
    ZP_FAIL_IF(h->n_docs == 0 || tables > size || h->ids_at != align_up((size_t)tables) ||
                   h->ids_at > size || (size - h->ids_at) % h->id_bytes != 0 ||
                   (size - h->ids_at) / h->id_bytes != h->n_tokens,
               err, ZP_BAD_FILE, "%s: %u documents and %llu tokens do not fit its %zu bytes", name,
               h->n_docs, (unsigned long long)h->n_tokens, size);
    return ZP_OK;
}

/* H1, H2, and that names lie in the table of names. */
static zp_status check_docs(const struct shards *s, const char *name, zp_err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->head.n_docs; i++) {
        const struct shards_doc *d = &s->docs[i];
        ZP_FAIL_IF(d->at != at || d->n == 0 || d->n > s->head.n_tokens - at, err, ZP_BAD_FILE,
                   "%s: document %u lies at token %llu with %llu (expected at %llu of %llu)", name,
                   i, (unsigned long long)d->at, (unsigned long long)d->n, (unsigned long long)at,
                   (unsigned long long)s->head.n_tokens);
        ZP_FAIL_IF((uint64_t)d->name_at + d->name_size > s->head.names_bytes || d->held > 1, err,
                   ZP_BAD_FILE, "%s: document %u has no name or part", name, i);
        at += d->n;
    }
    ZP_FAIL_IF(at != s->head.n_tokens, err, ZP_BAD_FILE, "%s: %llu tokens belong to no document",
               name, (unsigned long long)(s->head.n_tokens - at));
    return ZP_OK;
}

static zp_status check_ids(const struct shards *s, const char *name, zp_err *err)
{
    uint32_t most = 0;
    const uint16_t *narrow = s->ids;
    const uint32_t *wide = s->ids;
    if (s->head.id_bytes == 2)
        for (uint64_t i = 0; i < s->head.n_tokens; i++) most = narrow[i] > most ? narrow[i] : most;
    else
        for (uint64_t i = 0; i < s->head.n_tokens; i++) most = wide[i] > most ? wide[i] : most;
    ZP_FAIL_IF(most >= s->head.n_vocab, err, ZP_BAD_FILE, "%s: token %u of %u", name, most,
               s->head.n_vocab);
    return ZP_OK;
}

static zp_status fill(struct shards *s, const uint8_t *data, size_t size, const char *name,
                      zp_err *err)
{
    struct shards_header *h = &s->head;
    ZP_FAIL_IF(size < sizeof *h || memcmp(data, SHARDS_MAGIC, sizeof h->magic) != 0, err,
               ZP_BAD_FILE, "%s: is no token corpus (%zu bytes; one begins with %s)", name, size,
               SHARDS_MAGIC);
    ZP_FAIL_IF((uintptr_t)data % 8 != 0, err, ZP_BAD_INPUT, "%s: begins at an odd address", name);
    memcpy(h, data, sizeof *h);
    ZP_TRY(check_head(h, size, name, err));
    uint64_t tables = hash_xxh64(data + TABLES_BEGIN, (size_t)h->ids_at - TABLES_BEGIN, 0);
    ZP_FAIL_IF(tables != h->tables_hash, err, ZP_BAD_FILE,
               "%s: its list of documents is damaged; make the corpus again", name);
    s->docs = (const void *)(data + sizeof *h);
    s->names = (const char *)(s->docs + h->n_docs);
    s->ids = data + h->ids_at;
    ZP_FAIL_IF(hash_xxh64(s->ids, size - (size_t)h->ids_at, 0) != h->ids_hash, err, ZP_BAD_FILE,
               "%s: its tokens are damaged; make the corpus again", name);
    ZP_TRY(check_docs(s, name, err));
    return check_ids(s, name, err);
}

zp_status shards_open_bytes(struct shards *s, const void *data, size_t size, const char *name,
                            zp_err *err)
{
    memset(s, 0, sizeof *s);
    zp_status status = fill(s, data, size, name, err);
    if (status != ZP_OK) memset(s, 0, sizeof *s);
    return status;
}

zp_status shards_open(struct shards *s, const char *path, zp_err *err)
{
    struct os_map map;
    memset(s, 0, sizeof *s);
    ZP_TRY(os_map_file(&map, path, err));
    zp_status status = shards_open_bytes(s, map.data, map.size, path, err);
    if (status == ZP_OK) s->map = map;
    else os_unmap(&map);
    return status;
}

void shards_close(struct shards *s)
{
    if (s->map.data) os_unmap(&s->map);
    memset(s, 0, sizeof *s);
}

void shards_read(const struct shards *s, uint32_t doc, uint64_t first, size_t n, int32_t *out)
{
    const struct shards_doc *d = &s->docs[doc];
    assert(doc < s->head.n_docs && first <= d->n && n <= d->n - first);
    for (size_t i = 0; i < n; i++) out[i] = shards_id(s, d->at + first + i);
}

/* ---- writing ---- */

zp_status shards_writer_open(struct shards_writer *w, const struct tokenizer *t, zp_err *err)
{
    uint32_t n_vocab = (uint32_t)tokenizer_get_info(t)->n_vocab;
    *w = (struct shards_writer){
        .head = { .version = SHARDS_VERSION,
                  .byte_order = SHARDS_BYTE_ORDER,
                  .tokenizer = shards_hash_tokenizer(t),
                  .n_vocab = n_vocab,
                  .id_bytes = bytes_of_id(n_vocab),
                  .separator = shards_separator_of(t) },
        .docs = buffer_with_max(MEM_TRAIN, (size_t)UINT32_MAX * sizeof(struct shards_doc)),
        .names = buffer_with_max(MEM_TRAIN, UINT32_MAX),
        .ids = buffer_with_max(MEM_TRAIN, SIZE_MAX / 4),
    };
    memcpy(w->head.magic, SHARDS_MAGIC, sizeof w->head.magic);
    ZP_FAIL_IF(w->head.separator == TOKEN_NONE, err, ZP_UNSUPPORTED,
               "the tokenizer has no <|endoftext|>, BOS or EOS token to part documents with");
    return ZP_OK;
}

static zp_status append_ids(struct shards_writer *w, const int32_t *ids, size_t n, zp_err *err)
{
    enum { CHUNK = 4096 };
    uint16_t narrow[CHUNK];
    if (w->head.id_bytes == 4) return buffer_append(&w->ids, ids, n * sizeof *ids, err);
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t m = n - i < CHUNK ? n - i : CHUNK;
        for (size_t j = 0; j < m; j++) narrow[j] = (uint16_t)ids[i + j];
        ZP_TRY(buffer_append(&w->ids, narrow, m * sizeof *narrow, err));
    }
    return ZP_OK;
}

zp_status shards_writer_add(struct shards_writer *w, const char *name, uint64_t text_hash,
                            uint64_t text_bytes, const int32_t *ids, size_t n, bool held,
                            zp_err *err)
{
    assert(n >= 1); // H1
    for (size_t i = 0; i < n; i++) assert(ids[i] >= 0 && (uint32_t)ids[i] < w->head.n_vocab); // H1
    struct shards_doc d = { .at = w->head.n_tokens,
                            .n = n,
                            .text_hash = text_hash,
                            .text_bytes = text_bytes,
                            .name_at = (uint32_t)w->names.size,
                            .name_size = (uint32_t)strlen(name),
                            .held = held };
    ZP_FAIL_IF(w->head.n_docs == UINT32_MAX, err, ZP_BAD_INPUT, "more than %u documents",
               UINT32_MAX);
    ZP_TRY(buffer_append(&w->names, name, d.name_size, err));
    ZP_TRY(append_ids(w, ids, n, err));
    ZP_TRY(buffer_append(&w->docs, &d, sizeof d, err));
    w->head.n_docs++;
    w->head.n_tokens += n;
    return ZP_OK;
}

struct shards_doc *shards_writer_docs(struct shards_writer *w)
{
    return (void *)w->docs.data;
}

/* Header, documents, names and zeros as one block of ids_at bytes. */
static zp_status make_tables(struct shards_writer *w, uint8_t **out, zp_err *err)
{
    struct shards_header *h = &w->head;
    size_t size = sizeof *h + w->docs.size + w->names.size;
    h->names_bytes = (uint32_t)w->names.size;
    h->ids_at = align_up(size);
    h->file_bytes = h->ids_at + w->ids.size;
    h->ids_hash = hash_xxh64(w->ids.data, w->ids.size, 0);
    *out = mem_zalloc(MEM_TRAIN, (size_t)h->ids_at);
    ZP_FAIL_IF(!*out, err, ZP_NO_MEMORY, "not enough memory for the list of %u documents",
               h->n_docs);
    memcpy(*out, h, sizeof *h);
    memcpy(*out + sizeof *h, w->docs.data, w->docs.size);
    if (w->names.size) memcpy(*out + sizeof *h + w->docs.size, w->names.data, w->names.size);
    h->tables_hash = hash_xxh64(*out + TABLES_BEGIN, (size_t)h->ids_at - TABLES_BEGIN, 0);
    memcpy(*out, h, sizeof *h);
    return ZP_OK;
}

zp_status shards_writer_save(struct shards_writer *w, const char *path, zp_err *err)
{
    struct os_file f;
    uint8_t *tables;
    ZP_FAIL_IF(w->head.n_docs == 0, err, ZP_BAD_INPUT, "%s: no documents to write", path);
    ZP_TRY(make_tables(w, &tables, err));
    zp_status status = os_file_create(&f, path, w->head.file_bytes, err);
    if (status == ZP_OK) status = os_file_write(&f, tables, (size_t)w->head.ids_at, err);
    if (status == ZP_OK) status = os_file_write(&f, w->ids.data, w->ids.size, err);
    if (status == ZP_OK) status = os_file_commit(&f, err);
    mem_free(tables);
    return status;
}

void shards_writer_free(struct shards_writer *w)
{
    buffer_free(&w->docs);
    buffer_free(&w->names);
    buffer_free(&w->ids);
}

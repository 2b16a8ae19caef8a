/* snapshot.c: writes a sequence into a file and makes one of a file.
 * Owns: nothing. Does not know: how pages are computed, or what the ids mean.
 * Threads: the engine's caller; hashes are computed by all workers.
 * S1 nothing of a file is used before its hashes were checked, and nothing is allocated by its word
 *    beyond the file's size (I7). Pages behind the beginning that is wanted are not looked at.
 * S2 a restored sequence goes on with the bits of the saved one (I1): whatever they depend on
 *    stands in the header and is the engine's. SNAPSHOT_VERSION is raised when a tile's layout
 *    changes. */
#include "model/snapshot.h"

#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/os.h"

_Static_assert(sizeof(struct snapshot_header) == 208, "the header has no gaps");

/* The pages of a sequence in the file's order, open ones last. */
struct page_list {
    const void **at; /* (n_pages + n_open) */
    size_t n_pages, n_open, page_bytes, open_bytes;
};

static size_t page_size(const struct page_list *p, size_t i)
{
    return i < p->n_pages ? p->page_bytes : p->open_bytes;
}

static size_t page_place(const struct page_list *p, size_t i)
{
    size_t n = i < p->n_pages ? i : p->n_pages;
    return n * p->page_bytes + (i - n) * p->open_bytes;
}

/* Tiles of a head: [0, sinks) and [from, end). */
struct head_tiles {
    uint32_t sinks, from, end;
};

static struct head_tiles tiles_of(const struct kvcache *c, uint32_t head, uint32_t length,
                                  uint32_t from)
{
    uint32_t end = kvcache_tiles(c, length), sinks = kvcache_reach(c, head, length).sinks;
    return (struct head_tiles){ sinks < from ? sinks : from, from, end };
}

static size_t count_tiles(struct head_tiles t)
{
    return (size_t)t.sinks + t.end - t.from;
}

static size_t count_open(const struct kvcache *c, uint32_t length)
{
    return c->form == KV_Q8 && length % KERN_TILE != 0 ? c->n_heads : 0;
}

/* (n_heads) the first tiles in `from`. */
static void list_pages(struct page_list *p, const struct kv_table *t, const struct kvcache *c,
                       const uint32_t *from)
{
    size_t n = 0;
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct head_tiles tiles = tiles_of(c, h, t->length, from[h]);
        for (uint32_t i = 0; i < tiles.end; i++)
            if (i < tiles.sinks || i >= tiles.from) p->at[n++] = t->k[kv_table_at(t, h, i)];
    }
    for (uint32_t h = 0; h < p->n_open; h++) p->at[n++] = t->open[h];
}

/* ---- what must be the same ------------------------------------------------------------------- */

/* The table of tensors does not tell two trainings of one model apart. */
static uint64_t hash_weights(const struct zp_model *m)
{
    enum { BEGINNING = 4096 };
    uint64_t hash = 0;
    for (uint32_t i = 0; i < m->gguf.n_tensors; i++) {
        const struct gguf_tensor *t = &m->gguf.tensors[i];
        hash = hash_xxh64(t->data, t->bytes < BEGINNING ? (size_t)t->bytes : BEGINNING, hash);
    }
    return hash;
}

/* The header of a sequence that this engine's sequences can go on from; sizes are left open. */
static struct snapshot_header header_of(const struct zp_engine *e)
{
    const struct kvcache *c = &e->kv;
    struct snapshot_header h = { .version = SNAPSHOT_VERSION,
                                 .byte_order = SNAPSHOT_BYTE_ORDER,
                                 .weights = hash_weights(e->model),
                                 .kv_type = (uint32_t)e->options.kv_type,
                                 .exact = e->options.exact,
                                 .n_layer = e->position.n_layer,
                                 .n_kv = e->position.n_kv,
                                 .d_head = e->position.d_head,
                                 .n_ctx = e->angles ? e->options.n_ctx : 0,
                                 .page_bytes = c->pages.page_bytes,
                                 .open_bytes = c->open.page_bytes };
    memcpy(h.magic, SNAPSHOT_MAGIC, sizeof h.magic);
    memcpy(h.model, zp_model_sha256(e->model), sizeof h.model);
    const char *level = kern_level_name(e->kern.level);
    memcpy(h.level, level, strlen(level));
    return h;
}

/* Bytes before the pages: header, hashes, first tiles, ids. The counts are sane. */
static size_t size_tables(const struct snapshot_header *h, size_t n_heads)
{
    size_t n_ids = (size_t)h->length + h->n_pending;
    size_t bytes = sizeof *h + (h->n_pages + h->n_open) * sizeof(uint64_t) +
                   (n_heads + n_ids) * sizeof(uint32_t);
    return (bytes + SNAPSHOT_ALIGN - 1) / SNAPSHOT_ALIGN * SNAPSHOT_ALIGN;
}

static uint64_t hash_tables(const void *data, size_t payload_at)
{
    size_t begin = offsetof(struct snapshot_header, payload_at);
    return hash_xxh64((const uint8_t *)data + begin, payload_at - begin, 0);
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* The first tile of a head that a later query may see and that is there, with all behind it. */
static uint32_t first_tile(const struct kv_table *t, const struct kvcache *c, uint32_t head)
{
    uint32_t first = kvcache_tiles(c, t->length);
    while (first > kvcache_reach(c, head, t->length).gone && t->k[kv_table_at(t, head, first - 1)])
        first--;
    return first;
}

struct hash_job {
    const struct page_list *pages;
    uint64_t *hashes;
};

static void hash_pages(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct hash_job *job = arg;
    size_t i, end;
    pool_share(job->pages->n_pages + job->pages->n_open, 1, thread, n_threads, &i, &end);
    for (; i < end; i++)
        job->hashes[i] = hash_xxh64(job->pages->at[i], page_size(job->pages, i), 0);
}

/* Everything before the pages, in a block of *size bytes, and the list of pages. */
static zp_status make_tables(const zp_seq *s, uint8_t **tables, size_t *size, struct page_list *p,
                             zp_err *err)
{
    const struct kvcache *c = &s->engine->kv;
    struct snapshot_header h = header_of(s->engine);
    h.mode = s->mode, h.offset = s->offset, h.salt = s->salt;
    h.length = s->kv.length, h.n_pending = s->n_pending, h.moved_at = s->moved_at;
    h.n_open = count_open(c, h.length);
    for (uint32_t i = 0; i < c->n_heads; i++)
        h.n_pages += count_tiles(tiles_of(c, i, h.length, first_tile(&s->kv, c, i)));
    *p = (struct page_list){ NULL, h.n_pages, h.n_open, h.page_bytes, h.open_bytes };
    *size = h.payload_at = size_tables(&h, c->n_heads);
    h.file_bytes = h.payload_at + page_place(p, h.n_pages + h.n_open);
    ZP_ALLOC(p->at, MEM_SCRATCH, h.n_pages + h.n_open, err, "the list of pages to save");
    *tables = mem_zalloc(MEM_SCRATCH, *size);
    ZP_FAIL_IF(!*tables, err, ZP_NO_MEMORY, "not enough memory for %zu bytes to save", *size);
    uint64_t *hashes = (void *)(*tables + sizeof h);
    uint32_t *from = (void *)(hashes + h.n_pages + h.n_open);
    for (uint32_t i = 0; i < c->n_heads; i++) from[i] = first_tile(&s->kv, c, i);
    list_pages(p, &s->kv, c, from);
    memcpy(from + c->n_heads, s->ids, zp_seq_length(s) * sizeof *s->ids);
    pool_run(s->engine->pool, hash_pages, &(struct hash_job){ p, hashes });
    memcpy(*tables, &h, sizeof h);
    h.hash = hash_tables(*tables, *size);
    memcpy(*tables, &h, sizeof h);
    return ZP_OK;
}

static zp_status write_file(const char *path, const uint8_t *tables, size_t size,
                            const struct page_list *p, zp_err *err)
{
    struct os_file f;
    size_t n = p->n_pages + p->n_open;
    ZP_TRY(os_file_create(&f, path, size + page_place(p, n), err));
    ZP_TRY(os_file_write(&f, tables, size, err));
    for (size_t i = 0; i < n; i++) ZP_TRY(os_file_write(&f, p->at[i], page_size(p, i), err));
    return os_file_commit(&f, err);
}

static zp_status check_kind(const zp_seq *s, zp_err *err)
{
    ZP_FAIL_IF(s->n_anchors != 0, err, ZP_UNSUPPORTED,
               "a sequence with anchors cannot be saved: its file could not tell of them");
    return ZP_OK;
}

zp_status zp_seq_save(const zp_seq *s, const char *path, zp_err *err)
{
    uint8_t *tables = NULL;
    struct page_list pages = { 0 };
    size_t size = 0;
    ZP_TRY(check_kind(s, err));
    zp_status status = make_tables(s, &tables, &size, &pages, err);
    if (status == ZP_OK) status = write_file(path, tables, size, &pages, err);
    mem_free(pages.at);
    mem_free(tables);
    return status;
}

/* Bytes of the file of a sequence of n computed tokens; less where it has lost pages by a cut. */
static uint64_t count_bytes(const struct kvcache *c, uint32_t n)
{
    struct snapshot_header h = { .length = n, .n_open = count_open(c, n) };
    for (uint32_t i = 0; i < c->n_heads; i++)
        h.n_pages += count_tiles(tiles_of(c, i, n, kvcache_reach(c, i, n).gone));
    struct page_list p = { NULL, h.n_pages, h.n_open, c->pages.page_bytes, c->open.page_bytes };
    return size_tables(&h, c->n_heads) + page_place(&p, h.n_pages + h.n_open);
}

zp_status zp_seq_check_save(const zp_seq *s, uint32_t n, const char *path, zp_err *err)
{
    struct os_file f;
    ZP_TRY(check_kind(s, err));
    ZP_FAIL_IF(n > s->engine->options.n_ctx, err, ZP_BAD_INPUT,
               "a sequence of %u tokens does not fit into the context of %u positions; raise "
               "--ctx-size",
               n, s->engine->options.n_ctx);
    ZP_TRY(os_file_create(&f, path, count_bytes(&s->engine->kv, n), err));
    os_file_abort(&f);
    return ZP_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* What is taken of a file: all, or a beginning. */
struct taken {
    uint32_t length, n_pending; /* tokens with keys, tokens behind them without */
    size_t n_pages, n_open;
};

/* A file whose tables are whole. */
struct snapshot {
    const char *name;
    const uint8_t *data;
    size_t size;
    struct snapshot_header h;
    const uint64_t *hashes; /* (n_pages + n_open) */
    const uint32_t *from;   /* (n_heads) */
    const int32_t *ids;     /* (length + n_pending) */
    struct taken taken;
};

#define AGAIN "; delete it to have the tokens computed again"

/* Magic, sizes, hash of the tables: the file is what was written. */
static zp_status check_whole(struct snapshot *f, zp_err *err)
{
    struct snapshot_header *h = &f->h;
    ZP_FAIL_IF(f->size < sizeof *h || memcmp(f->data, SNAPSHOT_MAGIC, sizeof h->magic) != 0, err,
               ZP_BAD_FILE, "%s: is no saved sequence (%zu bytes; one begins with %s)", f->name,
               f->size, SNAPSHOT_MAGIC);
    memcpy(h, f->data, sizeof *h);
    ZP_FAIL_IF(h->byte_order != SNAPSHOT_BYTE_ORDER, err, ZP_BAD_FILE,
               "%s: was saved on a machine of another byte order (mark %08x, expected %08x)" AGAIN,
               f->name, h->byte_order, SNAPSHOT_BYTE_ORDER);
    ZP_FAIL_IF(h->version != SNAPSHOT_VERSION, err, ZP_BAD_FILE,
               "%s: format version %u, this program reads %d" AGAIN, f->name, h->version,
               SNAPSHOT_VERSION);
    ZP_FAIL_IF(h->file_bytes != f->size, err, ZP_BAD_FILE,
               "%s: has %zu bytes, its header says %llu: it was cut or something was added" AGAIN,
               f->name, f->size, (unsigned long long)h->file_bytes);
    ZP_FAIL_IF(h->payload_at < sizeof *h || h->payload_at > f->size ||
                   hash_tables(f->data, (size_t)h->payload_at) != h->hash,
               err, ZP_BAD_FILE, "%s: its header is damaged" AGAIN, f->name);
    return ZP_OK;
}

static zp_status check_number(const struct snapshot *f, const char *what, uint64_t found,
                              uint64_t expected, zp_err *err)
{
    ZP_FAIL_IF(found != expected, err, ZP_BAD_INPUT,
               "%s: was saved with %s %llu, the engine has %llu; use the same model and options",
               f->name, what, (unsigned long long)found, (unsigned long long)expected);
    return ZP_OK;
}

/* found: shown, so it must be letters and digits, as what is expected. */
static zp_status check_text(const struct snapshot *f, const char *what, const char *found,
                            const char *expected, int size, const char *remedy, zp_err *err)
{
    for (int i = 0; i < size && found[i]; i++)
        ZP_FAIL_IF((found[i] < '0' || found[i] > '9') && (found[i] < 'a' || found[i] > 'z'), err,
                   ZP_BAD_FILE, "%s: the name of its %s is unreadable" AGAIN, f->name, what);
    ZP_FAIL_IF(memcmp(found, expected, (size_t)size) != 0, err, ZP_BAD_INPUT,
               "%s: was saved with %s %.*s, the engine has %.*s; use %s, or another file",
               f->name, what, size, found, size, expected, remedy);
    return ZP_OK;
}

/* The engine computes what the saved one did (S2). */
static zp_status check_engine(const struct snapshot *f, const struct zp_engine *e, zp_err *err)
{
    static const char *const kv_types[] = { "default", "f32", "bf16", "q8" };
    const struct snapshot_header *h = &f->h, own = header_of(e);
    ZP_TRY(check_text(f, "model", h->model, own.model, sizeof h->model, "that model", err));
    ZP_FAIL_IF(h->weights != own.weights, err, ZP_BAD_INPUT,
               "%s: was saved with other weights of the same model; use the file it was saved with",
               f->name);
    ZP_FAIL_IF(h->kv_type != own.kv_type, err, ZP_BAD_INPUT,
               "%s: was saved with keys and values in %s, the engine has %s; use the same type",
               f->name, h->kv_type < ZP_COUNT(kv_types) ? kv_types[h->kv_type] : "another type",
               kv_types[own.kv_type]);
    ZP_TRY(check_number(f, "exact", h->exact, own.exact, err));
    ZP_TRY(check_text(f, "kernels", h->level, own.level, sizeof h->level,
                      "that kernel level (--cpu)", err));
    ZP_TRY(check_number(f, "a context that scales its rotation of", h->n_ctx, own.n_ctx, err));
    ZP_TRY(check_number(f, "layers", h->n_layer, own.n_layer, err));
    ZP_TRY(check_number(f, "KV heads", h->n_kv, own.n_kv, err));
    ZP_TRY(check_number(f, "head size", h->d_head, own.d_head, err));
    ZP_TRY(check_number(f, "page bytes", h->page_bytes, own.page_bytes, err));
    return check_number(f, "open page bytes", h->open_bytes, own.open_bytes, err);
}

/* Counts and sizes follow from each other; after it f's arrays are inside the file. */
static zp_status check_sizes(struct snapshot *f, const struct zp_engine *e, zp_err *err)
{
    const struct snapshot_header *h = &f->h;
    const struct kvcache *c = &e->kv;
    uint64_t n_ids = (uint64_t)h->length + h->n_pending;
    bool pending = h->n_pending < KERN_TILE &&
                   (h->n_pending == 0 || (c->form == KV_Q8 && h->length % KERN_TILE == 0));
    bool counts = n_ids <= INT32_MAX &&
                  h->n_pages <= (uint64_t)c->n_heads * kvcache_tiles(c, h->length) &&
                  h->n_open == count_open(c, h->length);
    struct page_list p = { NULL, counts ? h->n_pages : 0, counts ? h->n_open : 0, h->page_bytes,
                           h->open_bytes };
    ZP_FAIL_IF(!pending || !counts || h->payload_at != size_tables(h, c->n_heads) ||
                   f->size - h->payload_at != page_place(&p, p.n_pages + p.n_open),
               err, ZP_BAD_FILE, "%s: its header contradicts itself" AGAIN, f->name);
    f->hashes = (const void *)(f->data + sizeof *h);
    f->from = (const void *)(f->hashes + h->n_pages + h->n_open);
    f->ids = (const void *)(f->from + c->n_heads);
    return ZP_OK;
}

/* The tables' values: the tiles that the next query sees are there, and ids are the model's. */
static zp_status check_values(const struct snapshot *f, const struct zp_engine *e, zp_err *err)
{
    const struct snapshot_header *h = &f->h;
    const struct kvcache *c = &e->kv;
    uint64_t n_pages = 0;
    for (uint32_t i = 0; i < c->n_heads; i++) {
        struct kv_reach reach = kvcache_reach(c, i, h->length);
        uint32_t end = kvcache_tiles(c, h->length), from = f->from[i];
        uint32_t most = reach.first > reach.sinks ? reach.first : reach.sinks;
        ZP_FAIL_IF(from > end || from > most, err, ZP_BAD_FILE,
                   "%s: head %u begins at tile %u of %u, at most %u is expected" AGAIN, f->name, i,
                   from, end, most);
        n_pages += count_tiles(tiles_of(c, i, h->length, from));
    }
    ZP_FAIL_IF(n_pages != h->n_pages, err, ZP_BAD_FILE,
               "%s: has %llu pages, its heads ask for %llu" AGAIN, f->name,
               (unsigned long long)h->n_pages, (unsigned long long)n_pages);
    for (uint32_t i = 0; i < h->length + h->n_pending; i++)
        ZP_FAIL_IF(f->ids[i] < 0 || (uint32_t)f->ids[i] >= e->model->h.n_vocab, err, ZP_BAD_FILE,
                   "%s: id %d at %u is outside the vocabulary of %u" AGAIN, f->name, f->ids[i], i,
                   e->model->h.n_vocab);
    bool moved = h->moved_at % KERN_TILE == 0 && h->moved_at < h->length;
    ZP_FAIL_IF(h->moved_at != NEVER_MOVED && !moved, err, ZP_BAD_FILE,
               "%s: tokens from %u on were computed elsewhere, of %u" AGAIN, f->name, h->moved_at,
               h->length);
    ZP_FAIL_IF(h->mode > ZP_MODE_HALF, err, ZP_BAD_FILE, "%s: position mode %u is unknown" AGAIN,
               f->name, h->mode);
    return seq_check_mode(e, (zp_mode)h->mode, err);
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* The tiles of a head that the file has. */
static struct head_tiles tiles_in(const struct snapshot *f, const struct kvcache *c, uint32_t head)
{
    return tiles_of(c, head, f->h.length, f->from[head]);
}

static bool has_tile(struct head_tiles t, uint32_t i)
{
    return i < t.end && (i < t.sinks || i >= t.from);
}

/* Whether the file has all that a query at this length may read. */
static bool has_reach(const struct snapshot *f, const struct kvcache *c, uint32_t length)
{
    uint32_t end = kvcache_tiles(c, length);
    for (uint32_t h = 0; h < c->n_heads; h++)
        for (uint32_t i = kvcache_reach(c, h, length).first; i < end; i++)
            if (!has_tile(tiles_in(f, c, h), i)) return false;
    return true;
}

/* The beginning shared with ids (n), as zp_seq_truncate would leave it; all without ids. */
static void choose(struct snapshot *f, const struct kvcache *c, const int32_t *ids, size_t n)
{
    const struct kv_table whole = { .length = f->h.length };
    uint32_t all = f->h.length + f->h.n_pending, shared = ids ? 0 : all;
    while (ids && shared < n && shared < all && ids[shared] == f->ids[shared]) shared++;
    uint32_t cut = kv_table_cut(&whole, c, shared < whole.length ? shared : whole.length);
    if (ids && !has_reach(f, c, cut)) shared = cut = 0;
    f->taken = (struct taken){ .length = cut,
                               .n_pending = shared - cut,
                               .n_open = count_open(c, cut) };
    for (uint32_t h = 0; h < c->n_heads; h++)
        for (uint32_t i = 0; i < kvcache_tiles(c, cut); i++)
            f->taken.n_pages += has_tile(tiles_in(f, c, h), i);
}

static zp_status check_room(const struct snapshot *f, const struct zp_engine *e, zp_err *err)
{
    uint32_t n = f->taken.length + f->taken.n_pending;
    ZP_FAIL_IF(n > e->options.n_ctx, err, ZP_BAD_INPUT,
               "%s: holds %u tokens, the context %u; raise --ctx-size", f->name, n,
               e->options.n_ctx);
    ZP_TRY(pagepool_check(&e->kv.pages, f->taken.n_pages, err));
    return pagepool_check(&e->kv.open, f->taken.n_open, err);
}

struct copy_job {
    const struct snapshot *f;
    const struct page_list *pages;
    const size_t *from; /* their numbers in the file */
    atomic_size_t bad;  /* number of a page whose hash is wrong, or SIZE_MAX */
};

static size_t place_in_file(const struct snapshot *f, size_t page)
{
    const struct page_list all = { NULL, f->h.n_pages, f->h.n_open, f->h.page_bytes,
                                   f->h.open_bytes };
    return f->h.payload_at + page_place(&all, page);
}

/* A page is hashed where it will be used, so that nothing can change between. */
static void copy_pages(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct copy_job *job = arg;
    const struct page_list *p = job->pages;
    size_t i, end;
    pool_share(p->n_pages + p->n_open, 1, thread, n_threads, &i, &end);
    for (; i < end; i++) {
        void *to = (void *)(uintptr_t)p->at[i]; /* own: nobody else has it yet (K1) */
        size_t from = job->from[i];
        memcpy(to, job->f->data + place_in_file(job->f, from), page_size(p, i));
        if (hash_xxh64(to, page_size(p, i), 0) != job->f->hashes[from])
            atomic_store(&job->bad, from);
    }
}

/* Pages for what is taken, of which there are enough, and where each comes from. */
static void take_pages(zp_seq *s, const struct snapshot *f, struct page_list *p, size_t *from)
{
    struct kvcache *c = &s->engine->kv;
    struct kv_table *t = &s->kv;
    size_t n = 0, page = 0;
    t->length = f->taken.length;
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct head_tiles tiles = tiles_in(f, c, h);
        for (uint32_t i = 0; i < tiles.end; i++) {
            if (!has_tile(tiles, i)) continue;
            size_t number = page++;
            if (i >= kvcache_tiles(c, t->length)) continue;
            kv_table_take(t, c, h, i);
            from[n] = number;
            p->at[n++] = t->k[kv_table_at(t, h, i)];
        }
    }
    for (uint32_t h = 0; h < p->n_open; h++) {
        t->open[h] = pagepool_take(&c->open, NULL, 1);
        from[n] = f->h.n_pages + h;
        p->at[n++] = t->open[h];
    }
}

static zp_status fill(zp_seq *s, const struct snapshot *f, struct page_list *p, size_t **from,
                      zp_err *err)
{
    const struct taken *t = &f->taken;
    *p = (struct page_list){ NULL, t->n_pages, t->n_open, f->h.page_bytes, f->h.open_bytes };
    ZP_ALLOC(p->at, MEM_SCRATCH, t->n_pages + t->n_open, err, "the list of pages to restore");
    ZP_ALLOC(*from, MEM_SCRATCH, t->n_pages + t->n_open, err, "the list of pages to restore");
    prefix_make_room(&s->engine->kv.prefix, &s->engine->kv, t->n_pages);
    take_pages(s, f, p, *from);
    struct copy_job job = { .f = f, .pages = p, .from = *from };
    atomic_init(&job.bad, SIZE_MAX);
    pool_run(s->engine->pool, copy_pages, &job);
    size_t bad = atomic_load(&job.bad);
    ZP_FAIL_IF(bad != SIZE_MAX, err, ZP_BAD_FILE,
               "%s: page %zu of %llu, at byte %zu, is damaged" AGAIN, f->name, bad,
               (unsigned long long)(f->h.n_pages + f->h.n_open), place_in_file(f, bad));
    memcpy(s->ids, f->ids, ((size_t)t->length + t->n_pending) * sizeof *s->ids);
    s->n_pending = t->n_pending;
    s->moved_at = f->h.moved_at < t->length ? f->h.moved_at : NEVER_MOVED;
    return ZP_OK;
}

zp_status snapshot_restore(zp_seq **out, zp_engine *e, const void *data, size_t size,
                           const char *name, const int32_t *ids, size_t n, zp_err *err)
{
    struct snapshot f = { .name = name, .data = data, .size = size };
    struct page_list pages = { 0 };
    size_t *from = NULL;
    *out = NULL;
    ZP_TRY(check_whole(&f, err));
    ZP_TRY(check_engine(&f, e, err));
    ZP_TRY(check_sizes(&f, e, err));
    ZP_TRY(check_values(&f, e, err));
    choose(&f, &e->kv, ids, n);
    ZP_TRY(check_room(&f, e, err));
    const zp_seq_options o = { .mode = (zp_mode)f.h.mode, .position_offset = f.h.offset,
                               .salt = f.h.salt };
    ZP_TRY(seq_open(out, e, &o, err));
    zp_status status = fill(*out, &f, &pages, &from, err);
    mem_free(pages.at);
    mem_free(from);
    if (status == ZP_OK) return ZP_OK;
    zp_seq_close(*out);
    *out = NULL;
    return status;
}

zp_status zp_seq_restore(zp_seq **out, zp_engine *e, const char *path, const int32_t *ids,
                         size_t n, zp_err *err)
{
    struct os_map map;
    *out = NULL;
    ZP_FAIL_IF(!ids && n, err, ZP_USAGE, "the ids are missing");
    zp_status status = os_map_file(&map, path, err);
    if (status == ZP_BAD_FILE) status_add_hint(err, ": it was cut" AGAIN); /* empty */
    ZP_TRY(status);
    status = snapshot_restore(out, e, map.data, map.size, path, ids, n, err);
    if (status == ZP_OK) seq_keep_prefix(*out);
    os_unmap(&map);
    return status;
}

/* test_snapshot.c: saved sequences go on with the same bits; files that are damaged, hostile or of
 * another engine are refused, nothing stays behind, and a beginning needs no more than its own.
 * Bits of more models: test_same_bits. */
#include "same_bits.h"

#include <stddef.h>

#include "base/hash.h"
#include "base/os.h"
#include "base/rng.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "model/gguf_write.h"
#include "model/snapshot.h"

enum { SEED = 41, LENGTH = 150, CTX = 192 };

static int32_t ids[CTX];

/* An engine, and the file of a sequence of it. */
struct fixture {
    zp_model *m;
    zp_engine *e;
    uint8_t *data;
    size_t size;
};

static void append(zp_engine *e, zp_seq *s, const int32_t *from, size_t n)
{
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, from, n, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
}

static void read_back(struct fixture *f, const char *path)
{
    struct buffer b = buffer_with_max(MEM_META, 64 << 20);
    GOLDEN_OK(os_read_file(path, &b, err));
    f->size = b.size;
    f->data = malloc(b.size);
    assert_non_null(f->data);
    memcpy(f->data, b.data, b.size);
    buffer_free(&b);
}

static void open_fixture(struct fixture *f, const char *name, zp_kv_type kv)
{
    const char *path = in_folder("saved");
    f->m = golden_small(name);
    f->e = golden_engine(
        f->m, (zp_engine_options){ .n_ctx = CTX, .n_seq = 2, .n_threads = 2, .kv_type = kv });
    for (int i = 0; i < CTX; i++) ids[i] = i * 37 % (int)f->m->h.n_vocab;
    zp_seq *s = bits_seq(f->e);
    append(f->e, s, ids, LENGTH);
    GOLDEN_OK(zp_seq_save(s, path, err));
    zp_seq_close(s);
    read_back(f, path);
}

static void close_fixture(struct fixture *f)
{
    free(f->data);
    zp_engine_close(f->e);
    zp_model_close(f->m);
}

static struct snapshot_header *header(struct fixture *f)
{
    return (void *)f->data;
}

/* Makes the hash of a changed header right again, where it says what is hashed. */
static void seal(struct fixture *f)
{
    size_t from = offsetof(struct snapshot_header, payload_at), to = header(f)->payload_at;
    if (to < from || to > f->size) return;
    header(f)->hash = hash_xxh64(f->data + from, to - from, 0);
}

/* The file is refused, says why, and leaves pages and memory as they were. */
static void refuse_in(zp_engine *e, struct fixture *f, size_t size, zp_status code,
                      const char *part)
{
    zp_seq *s = (zp_seq *)f;
    zp_err err = { 0 };
    uint64_t live = live_bytes();
    size_t n_free = e->kv.pages.n_free;
    uint8_t *copy = malloc(size ? size : 1); /* so that a sanitizer sees what is read past it */
    assert_non_null(copy);
    memcpy(copy, f->data, size);
    zp_status status = snapshot_restore(&s, e, copy, size, "file", NULL, 0, &err);
    free(copy);
    if (status != code || !strstr(err.message, part))
        fail_msg("%s: '%s' lacks '%s'", zp_status_name(status), err.message, part);
    assert_null(s);
    assert_int_equal(live_bytes(), live);
    assert_int_equal(e->kv.pages.n_free, n_free);
}

static void refuse(struct fixture *f, zp_status code, const char *part)
{
    refuse_in(f->e, f, f->size, code, part);
}

/* ---- files that are not whole ---------------------------------------------------------------- */

static void check_damage(const char *name, zp_kv_type kv)
{
    struct fixture f;
    open_fixture(&f, name, kv);
    size_t payload = header(&f)->payload_at;
    for (size_t at = 0; at < f.size; at += at < sizeof(struct snapshot_header) ? 1 : 97) {
        bool in_hash = at >= 16 && at < 24;
        f.data[at] ^= 0x10;
        refuse(&f, ZP_BAD_FILE,
               at < 8                ? "is no saved sequence"
               : at < 12             ? "format version"
               : at < 16             ? "byte order"
               : at >= 32 && at < 40 ? "its header says"
               : at >= payload       ? "page"
               : in_hash             ? "header is damaged"
                                     : "damaged");
        f.data[at] ^= 0x10;
    }
    const size_t cuts[] = { 0, 1, 7, 8, sizeof(struct snapshot_header) - 1,
                            sizeof(struct snapshot_header), payload - 1, payload, payload + 1,
                            f.size - 4096, f.size - 1 };
    for (size_t i = 0; i < ZP_COUNT(cuts); i++)
        refuse_in(f.e, &f, cuts[i], ZP_BAD_FILE,
                  cuts[i] < sizeof(struct snapshot_header) ? "no saved sequence" : "was cut");
    f.data = realloc(f.data, f.size + 100);
    assert_non_null(f.data);
    memset(f.data + f.size, 0, 100);
    refuse_in(f.e, &f, f.size + 1, ZP_BAD_FILE, "something was added");
    refuse_in(f.e, &f, f.size + 100, ZP_BAD_FILE, "something was added");
    zp_seq *s = NULL; /* and the file itself is good */
    GOLDEN_OK(snapshot_restore(&s, f.e, f.data, f.size, "file", NULL, 0, err));
    zp_seq_close(s);
    close_fixture(&f);
}

static void test_every_damaged_byte_is_found(void **state)
{
    (void)state;
    check_damage("gguf-llama-yarn", ZP_KV_BF16);
    check_damage("zerope-local", ZP_KV_Q8);
}

/* ---- files that are whole and wrong ---------------------------------------------------------- */

/* Each field of the header with another value and a right hash. */
#define FIELD(name, value, code, part)                                                             \
    do {                                                                                           \
        struct snapshot_header was = *header(&f);                                                  \
        header(&f)->name = (value);                                                                \
        seal(&f);                                                                                  \
        refuse(&f, code, part);                                                                    \
        *header(&f) = was;                                                                         \
    } while (0)

static void check_fields(zp_kv_type kv)
{
    struct fixture f;
    open_fixture(&f, "zerope-local", kv);
    const struct snapshot_header h = *header(&f);
    static const uint64_t wrong[] = { 0, 1, 3, 1 << 16, UINT32_MAX, UINT64_MAX, UINT64_MAX / 2 };
    for (size_t i = 0; i < ZP_COUNT(wrong); i++) {
        uint64_t x = wrong[i];
        FIELD(file_bytes, x, ZP_BAD_FILE, "its header says");
        FIELD(payload_at, x, ZP_BAD_FILE, "damaged");
        FIELD(weights, x, ZP_BAD_INPUT, "other weights of the same model");
        FIELD(kv_type, (uint32_t)x == kv ? 77 : (uint32_t)x, ZP_BAD_INPUT, "the engine has ");
        FIELD(exact, (uint32_t)x | 2, ZP_BAD_INPUT, "exact");
        FIELD(n_layer, (uint32_t)x, ZP_BAD_INPUT, "layers");
        FIELD(n_kv, (uint32_t)x, ZP_BAD_INPUT, "KV heads");
        FIELD(d_head, (uint32_t)x, ZP_BAD_INPUT, "head size");
        FIELD(n_ctx, (uint32_t)x | 4, ZP_BAD_INPUT, "context that scales");
        FIELD(page_bytes, x, ZP_BAD_INPUT, "page bytes");
        FIELD(open_bytes, x | 1, ZP_BAD_INPUT, "open page bytes");
        FIELD(n_pages, x, ZP_BAD_FILE, "contradicts itself");
        FIELD(n_open, x == h.n_open ? 5 : x, ZP_BAD_FILE, "contradicts itself");
        FIELD(mode, (uint32_t)x | 8, ZP_BAD_FILE, "position mode");
    }
    FIELD(payload_at, h.payload_at - 4096, ZP_BAD_FILE, "");
    FIELD(payload_at, h.payload_at + 4096, ZP_BAD_FILE, "contradicts itself");
    FIELD(payload_at, f.size, ZP_BAD_FILE, "contradicts itself");
    FIELD(length, LENGTH - 64, ZP_BAD_FILE, "");
    FIELD(length, LENGTH - 128, ZP_BAD_FILE, "");
    FIELD(length, 0, ZP_BAD_FILE, "contradicts itself");
    static const uint32_t lengths[] = { CTX + 1, 1u << 20, INT32_MAX, 1u << 31, UINT32_MAX - 62,
                                        UINT32_MAX };
    for (size_t i = 0; i < ZP_COUNT(lengths); i++)
        FIELD(length, lengths[i], ZP_BAD_FILE, i ? "contradicts itself" : "its heads ask for");
    FIELD(n_pending, UINT32_MAX, ZP_BAD_FILE, "contradicts itself");
    FIELD(n_pending, UINT32_MAX - LENGTH + 1, ZP_BAD_FILE, "contradicts itself");
    FIELD(n_pending, 64, ZP_BAD_FILE, "contradicts itself");
    FIELD(n_pending, 5, ZP_BAD_FILE, "contradicts itself");
    FIELD(moved_at, 63, ZP_BAD_FILE, "computed elsewhere");
    FIELD(moved_at, 192, ZP_BAD_FILE, "computed elsewhere");
    FIELD(moved_at, UINT32_MAX - 1, ZP_BAD_FILE, "computed elsewhere");
    FIELD(n_pages, h.n_pages - 1, ZP_BAD_FILE, "contradicts itself");
    FIELD(n_pages, h.n_pages + 1, ZP_BAD_FILE, "contradicts itself");
    FIELD(mode, ZP_MODE_ZERO, ZP_BAD_INPUT, "no passing evidence");
    FIELD(mode, ZP_MODE_HALF, ZP_BAD_INPUT, "no plan for position mode half");
    FIELD(model[0], 'x', ZP_BAD_INPUT, "was saved with model x");
    FIELD(model[63], 'x', ZP_BAD_INPUT, "was saved with model");
    FIELD(level[0], 'x', ZP_BAD_INPUT, "was saved with kernels x");
    FIELD(level[7], 'x', ZP_BAD_INPUT, "was saved with kernels");
    FIELD(level[0], '\n', ZP_BAD_FILE, "kernels is unreadable");
    FIELD(model[3], (char)0xff, ZP_BAD_FILE, "model is unreadable");
    close_fixture(&f);
}

static void test_each_field_of_the_header_is_checked(void **state)
{
    (void)state;
    for (int kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++) check_fields((zp_kv_type)kv);
}

/* First tiles and ids out of range, behind a right hash. */
static void test_tables_behind_the_header_are_checked(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "zerope-local", ZP_KV_Q8);
    const struct snapshot_header *h = header(&f);
    size_t n_heads = (size_t)h->n_layer * h->n_kv, n_hashes = h->n_pages + h->n_open;
    uint32_t *from = (void *)(f.data + sizeof *h + n_hashes * sizeof(uint64_t));
    int32_t *held = (void *)(from + n_heads);
    assert_int_equal(held[0], ids[0]);
    assert_int_equal(held[LENGTH - 1], ids[LENGTH - 1]);
    static const uint32_t wrong[] = { 1, 2, 3, 1u << 20, UINT32_MAX };
    for (size_t i = 0; i < n_heads; i++)
        for (size_t k = 0; k < ZP_COUNT(wrong); k++) {
            uint32_t was = from[i];
            if (wrong[k] == was) continue;
            from[i] = wrong[k], seal(&f);
            refuse(&f, ZP_BAD_FILE, "");
            from[i] = was;
        }
    static const int32_t bad[] = { -1, 272, INT32_MAX, INT32_MIN };
    for (size_t k = 0; k < ZP_COUNT(bad); k++) {
        held[LENGTH - 1] = bad[k], seal(&f);
        refuse(&f, ZP_BAD_FILE, "outside the vocabulary of 272");
    }
    close_fixture(&f);
}

/* ---- other engines --------------------------------------------------------------------------- */

static void refuse_elsewhere(struct fixture *f, const zp_model *m, zp_engine_options o,
                             zp_status code, const char *part)
{
    if (o.n_ctx == 0) o.n_ctx = CTX;
    zp_engine *e = golden_engine(m, o);
    refuse_in(e, f, f->size, code, part);
    zp_engine_close(e);
}

/* The model with one byte of one weight changed: the same table of keys and tensors. */
static zp_model *open_other_weights(const char *name)
{
    char path[512];
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    zp_model *m = NULL;
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", name);
    GOLDEN_OK(os_read_file(path, &b, err));
    b.data[b.size - 40] ^= 1;
    GOLDEN_OK(os_write_file(in_folder("other.gguf"), b.data, b.size, err));
    buffer_free(&b);
    GOLDEN_OK(zp_model_open(&m, in_folder("other.gguf"), NULL, err));
    return m;
}

static void test_other_engines_refuse_the_file(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_BF16);
    zp_model *linear = golden_small("gguf-llama-linear");
    zp_model *other = open_other_weights("gguf-llama-yarn");
    assert_string_equal(zp_model_sha256(other), zp_model_sha256(f.m));
    refuse_elsewhere(&f, linear, (zp_engine_options){ 0 }, ZP_BAD_INPUT, "was saved with model");
    refuse_elsewhere(&f, other, (zp_engine_options){ 0 }, ZP_BAD_INPUT, "other weights");
    refuse_elsewhere(&f, f.m, (zp_engine_options){ .kv_type = ZP_KV_Q8 }, ZP_BAD_INPUT,
                     "keys and values in bf16, the engine has q8");
    refuse_elsewhere(&f, f.m, (zp_engine_options){ .kv_type = ZP_KV_F32 }, ZP_BAD_INPUT,
                     "keys and values in bf16, the engine has f32");
    refuse_elsewhere(&f, f.m, (zp_engine_options){ .exact = true }, ZP_BAD_INPUT, "f32");
    if (f.e->kern.level != KERN_REF)
        refuse_elsewhere(&f, f.m, (zp_engine_options){ .level = ZP_LEVEL_REF }, ZP_BAD_INPUT,
                         "the engine has ref");
    refuse_elsewhere(&f, f.m, (zp_engine_options){ .n_ctx = LENGTH - 1 }, ZP_BAD_INPUT,
                     "holds 150 tokens, the context 149; raise --ctx-size");
    refuse_elsewhere(&f, f.m,
                     (zp_engine_options){ .kv_bytes = 2 * f.e->kv.n_heads *
                                                      f.e->kv.pages.page_bytes },
                     ZP_NO_MEMORY, "KV budget is used up");
    zp_seq *s = NULL; /* the length fits exactly */
    zp_engine *e = golden_engine(f.m, (zp_engine_options){ .n_ctx = LENGTH, .micro_batch = 7 });
    GOLDEN_OK(snapshot_restore(&s, e, f.data, f.size, "file", NULL, 0, err));
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(linear);
    zp_model_close(other);
    close_fixture(&f);
}

/* Exact f32 and inexact f32 keys and values differ. */
static void test_exact_flag_is_part_of_the_file(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_F32);
    refuse_elsewhere(&f, f.m, (zp_engine_options){ .exact = true }, ZP_BAD_INPUT, "with exact 0");
    close_fixture(&f);
}

/* The angles of dynamic NTK follow from the context of the engine. */
static void test_context_of_dynamic_scaling_is_part_of_the_file(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_BF16);
    assert_int_equal(header(&f)->n_ctx, 0);
    close_fixture(&f);
    struct gguf g;
    struct gguf_edit edit;
    zp_model *m = NULL;
    GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/gguf-llama-linear.gguf", err));
    GOLDEN_OK(gguf_edit_init(&edit, &g, err));
    GOLDEN_OK(gguf_edit_set_str(&edit, "%.rope.scaling.type", "dynamic", err));
    GOLDEN_OK(gguf_edit_write(&edit, in_folder("dynamic.gguf"), err));
    gguf_edit_free(&edit);
    gguf_close(&g);
    GOLDEN_OK(zp_model_open(&m, in_folder("dynamic.gguf"), NULL, err));
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = CTX });
    zp_seq *s = bits_seq(e);
    append(e, s, ids, 70);
    GOLDEN_OK(zp_seq_save(s, in_folder("saved"), err));
    zp_seq_close(s);
    GOLDEN_OK(zp_seq_restore(&s, e, in_folder("saved"), NULL, 0, err));
    zp_seq_close(s);
    zp_engine_close(e);
    e = golden_engine(m, (zp_engine_options){ .n_ctx = CTX + 1 });
    zp_err err = { 0 };
    assert_int_equal(zp_seq_restore(&s, e, in_folder("saved"), NULL, 0, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "192, the engine has 193"));
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* Mode, offset, salt, ids, and the tokens that a cut has left to compute again. */
static void test_restored_sequence_is_the_saved_one(void **state)
{
    (void)state;
    static const uint32_t cuts[] = { 150, 131, 128, 100, 64, 1, 0 };
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine_options o = { .n_ctx = CTX, .n_seq = 2, .kv_type = ZP_KV_Q8,
                            .allow_unverified_mode = true };
    zp_engine *e = golden_engine(m, o);
    for (size_t i = 0; i < ZP_COUNT(cuts); i++) {
        zp_seq_options so = { .mode = ZP_MODE_ZERO, .position_offset = 12345678901, .salt = ~1ull };
        zp_seq *s = NULL, *again = NULL;
        zp_seq_info was, is;
        GOLDEN_OK(zp_seq_open(&s, e, &so, err));
        append(e, s, ids, LENGTH);
        GOLDEN_OK(zp_seq_truncate(s, cuts[i], err));
        GOLDEN_OK(zp_seq_save(s, in_folder("saved"), err));
        GOLDEN_OK(zp_seq_restore(&again, e, in_folder("saved"), NULL, 0, err));
        zp_seq_describe(s, &was);
        zp_seq_describe(again, &is);
        assert_int_equal(is.length, cuts[i]);
        assert_int_equal(is.mode, ZP_MODE_ZERO);
        assert_int_equal(is.position_offset, was.position_offset);
        assert_int_equal(is.salt, ~1ull);
        assert_int_equal(again->n_pending, s->n_pending);
        assert_memory_equal(is.ids, ids, cuts[i] * sizeof *ids);
        zp_seq_close(again);
        zp_seq_close(s);
    }
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

/* Restores what is shared with ids (n); *length: of the result, whose pages are counted. */
static zp_status restore_beginning(struct fixture *f, zp_engine *e, const int32_t *wanted, size_t n,
                                   uint32_t *length, size_t *pages, zp_err *err)
{
    zp_seq *s = NULL;
    size_t n_free = e->kv.pages.n_free;
    uint8_t *copy = malloc(f->size);
    assert_non_null(copy);
    memcpy(copy, f->data, f->size);
    zp_status status = snapshot_restore(&s, e, copy, f->size, "file", wanted, n, err);
    *pages = n_free - e->kv.pages.n_free;
    if (status != ZP_OK) assert_null(s);
    *length = s ? zp_seq_length(s) : 0;
    for (uint32_t i = 0; i < *length; i++) assert_int_equal(s->ids[i], ids[i]);
    free(copy);
    zp_seq_close(s);
    return status;
}

/* Tokens, and pages no more than they need. */
static void test_shared_beginning_is_taken(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 0, 1, 63, 64, 65, 100, 127, 128, 129, 149, 150 };
    for (int kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++) {
        struct fixture f;
        open_fixture(&f, "gguf-llama-yarn", (zp_kv_type)kv);
        for (size_t i = 0; i < ZP_COUNT(counts); i++) {
            int32_t other[CTX];
            uint32_t length, n = counts[i], tiles = (n + 63) / 64;
            size_t pages;
            if (kv == ZP_KV_Q8) tiles = n / 64;
            GOLDEN_OK(restore_beginning(&f, f.e, ids, n, &length, &pages, err));
            assert_int_equal(length, n);
            assert_int_equal(pages, tiles * f.e->kv.n_heads);
            memcpy(other, ids, sizeof other); /* more is asked for than is shared */
            other[n]++;
            GOLDEN_OK(restore_beginning(&f, f.e, other, CTX, &length, &pages, err));
            assert_int_equal(length, n);
            assert_int_equal(pages, tiles * f.e->kv.n_heads);
        }
        close_fixture(&f);
    }
}

/* Mode, offset and salt stay those of the file, even where no token does. */
static void test_nothing_shared_is_an_empty_sequence(void **state)
{
    (void)state;
    struct fixture f;
    zp_seq *s = NULL;
    zp_seq_info info;
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_Q8);
    const zp_seq_options o = { .position_offset = 77, .salt = 5 };
    GOLDEN_OK(zp_seq_open(&s, f.e, &o, err));
    append(f.e, s, ids, LENGTH);
    GOLDEN_OK(zp_seq_save(s, in_folder("saved"), err));
    zp_seq_close(s);
    GOLDEN_OK(zp_seq_restore(&s, f.e, in_folder("saved"), ids + 1, 100, err));
    zp_seq_describe(s, &info);
    assert_int_equal(info.length, 0);
    assert_int_equal(info.position_offset, 77);
    assert_int_equal(info.salt, 5);
    append(f.e, s, ids + 1, 100);
    zp_seq_close(s);
    zp_err err = { 0 };
    s = (zp_seq *)&f;
    assert_int_equal(zp_seq_restore(&s, f.e, in_folder("saved"), NULL, 3, &err), ZP_USAGE);
    assert_null(s);
    close_fixture(&f);
}

/* A file that is longer than the context, or than the KV budget, serves a shorter prompt. */
static void test_only_what_is_wanted_needs_room(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t length;
    size_t pages;
    zp_err why = { 0 };
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_BF16);
    zp_engine *e = golden_engine(f.m, (zp_engine_options){ .n_ctx = 100 });
    GOLDEN_OK(restore_beginning(&f, e, ids, 100, &length, &pages, err));
    assert_int_equal(length, 100);
    assert_int_equal(restore_beginning(&f, e, ids, 101, &length, &pages, &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "holds 101 tokens, the context 100; raise --ctx-size"));
    refuse_in(e, &f, f.size, ZP_BAD_INPUT, "holds 150 tokens, the context 100; raise --ctx-size");
    zp_engine_close(e);
    uint64_t bytes = 2 * f.e->kv.n_heads * f.e->kv.pages.page_bytes;
    e = golden_engine(f.m, (zp_engine_options){ .n_ctx = CTX, .kv_bytes = bytes });
    GOLDEN_OK(restore_beginning(&f, e, ids, 128, &length, &pages, err));
    assert_int_equal(length, 128);
    why = (zp_err){ 0 };
    assert_int_equal(restore_beginning(&f, e, ids, 129, &length, &pages, &why), ZP_NO_MEMORY);
    zp_engine_close(e);
    close_fixture(&f);
}

/* Each page in turn is damaged: it matters if, and only if, it is taken. */
static void check_read(const char *name, zp_kv_type kv)
{
    static const uint32_t counts[] = { 0, 20, 64, 100, 128, 140, 150 };
    struct fixture f;
    open_fixture(&f, name, kv);
    const struct snapshot_header *h = header(&f);
    size_t whole = h->n_pages / f.e->kv.n_heads, n_bad = 0, n_good = 0; /* tiles of a head */
    for (size_t page = 0; page < h->n_pages + h->n_open; page++) {
        bool open = page >= h->n_pages;
        size_t at = h->payload_at + (open ? h->n_pages : page) * h->page_bytes +
                    (open ? page - h->n_pages : 0) * h->open_bytes;
        for (size_t i = 0; i < ZP_COUNT(counts); i++) {
            uint32_t length, n = counts[i], tiles = kv == ZP_KV_Q8 ? n / 64 : (n + 63) / 64;
            size_t pages;
            zp_err why = { 0 };
            bool taken = open ? n > 128 : page % whole < tiles;
            f.data[at + 5] ^= 1;
            zp_status status = restore_beginning(&f, f.e, ids, n, &length, &pages, &why);
            f.data[at + 5] ^= 1;
            if (status != (taken ? ZP_BAD_FILE : ZP_OK))
                fail_msg("page %zu, %u tokens: %s", page, n, zp_status_name(status));
            if (taken) assert_non_null(strstr(why.message, "is damaged"));
            n_bad += taken, n_good += !taken;
        }
    }
    assert_true(n_bad > 0 && n_good > 0);
    close_fixture(&f);
}

static void test_only_what_is_taken_is_read(void **state)
{
    (void)state;
    check_read("gguf-llama-yarn", ZP_KV_BF16);
    check_read("gguf-llama-yarn", ZP_KV_Q8);
    check_read("zerope-local", ZP_KV_Q8); /* at this length its windows have dropped nothing */
}

/* Where the whole sequence could not be cut, nothing is taken of it. */
static void check_windows(zp_kv_type kv)
{
    enum { N = 900 };
    zp_model *m = golden_small("zerope-local");
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_seq = 3, .kv_type = kv });
    int32_t *text = malloc(N * sizeof *text);
    unsigned n_cut = 0, n_none = 0;
    assert_non_null(text);
    for (int i = 0; i < N; i++) text[i] = i * 31 % (int)m->h.n_vocab;
    zp_seq *s = bits_seq(e), *cut = NULL, *part = NULL;
    append(e, s, text, N / 2);
    append(e, s, text + N / 2, N / 2);
    GOLDEN_OK(zp_seq_save(s, in_folder("saved"), err));
    for (uint32_t n = 0; n <= N; n += 50) {
        GOLDEN_OK(zp_seq_restore(&cut, e, in_folder("saved"), NULL, 0, err));
        zp_status status = zp_seq_truncate(cut, n, NULL);
        GOLDEN_OK(zp_seq_restore(&part, e, in_folder("saved"), text, n, err));
        assert_int_equal(zp_seq_length(part), status == ZP_OK ? n : 0);
        if (status == ZP_OK) assert_int_equal(part->n_pending, cut->n_pending);
        n_cut += status == ZP_OK, n_none += status != ZP_OK;
        zp_seq_close(part);
        zp_seq_close(cut);
    }
    assert_true(n_cut > 3 && n_none > 3);
    zp_seq_close(s);
    free(text);
    zp_engine_close(e);
    zp_model_close(m);
}

static void test_windows_keep_only_late_beginnings(void **state)
{
    (void)state;
    for (int kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++) check_windows((zp_kv_type)kv);
}

/* ---- disks ----------------------------------------------------------------------------------- */

static void test_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    struct fixture f, now;
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_BF16);
    zp_seq *s = bits_seq(f.e);
    append(f.e, s, ids + 1, 100);
    const uint64_t room[] = { 0, 1, 5000, f.size / 2 };
    for (size_t i = 0; i < ZP_COUNT(room); i++) {
        uint64_t live = live_bytes();
        os_fail_writes_after(room[i]);
        zp_status status = zp_seq_save(s, in_folder("saved"), NULL);
        os_fail_writes_after(UINT64_MAX);
        assert_int_equal(status, ZP_NO_SPACE);
        assert_int_equal(live_bytes(), live);
        char **names;
        size_t n;
        GOLDEN_OK(os_list_files(folder, &names, &n, err));
        for (size_t k = 0; k < n; k++) assert_null(strstr(names[k], ".tmp."));
        os_list_free(names, n);
        read_back(&now, in_folder("saved"));
        assert_int_equal(now.size, f.size);
        assert_memory_equal(now.data, f.data, f.size);
        free(now.data);
    }
    zp_seq_close(s);
    close_fixture(&f);
}

/* What a sequence of n tokens takes is known before they are computed: to the byte, windows and
 * open tiles included, and at most that after a cut. */
static void check_room_for(const char *name, zp_kv_type kv)
{
    enum { N = 700 };
    static const uint32_t counts[] = { 1, 63, 64, 65, 128, 300, 639, 640, 700 };
    zp_model *m = golden_small(name);
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_seq = 2, .kv_type = kv });
    int32_t *text = malloc(N * sizeof *text);
    const char *path = in_folder("room");
    assert_non_null(text);
    for (int i = 0; i < N; i++) text[i] = i * 31 % (int)m->h.n_vocab;
    for (size_t i = 0; i < ZP_COUNT(counts); i++) {
        uint64_t live = live_bytes(), size;
        zp_err why = { 0 };
        zp_seq *s = bits_seq(e);
        append(e, s, text, counts[i]);
        GOLDEN_OK(zp_seq_save(s, path, err));
        GOLDEN_OK(os_file_size(path, &size, err));
        os_pretend_space(size - 1);
        zp_status tight = zp_seq_check_save(s, counts[i], path, &why);
        os_pretend_space(size);
        zp_status fits = zp_seq_check_save(s, counts[i], path, NULL);
        os_pretend_space(UINT64_MAX);
        if (tight != ZP_NO_SPACE || fits != ZP_OK)
            fail_msg("%s, kv %d, %u tokens: %s", name, kv, counts[i], zp_status_name(fits));
        assert_non_null(strstr(why.message, "are needed but the disk has"));
        GOLDEN_OK(zp_seq_truncate(s, counts[i] - counts[i] / 70, err));
        GOLDEN_OK(zp_seq_save(s, path, err));
        GOLDEN_OK(os_file_size(path, &size, err));
        os_pretend_space(size - 1);
        tight = zp_seq_check_save(s, zp_seq_length(s), path, NULL);
        os_pretend_space(UINT64_MAX);
        assert_int_equal(tight, ZP_NO_SPACE);
        zp_seq_close(s);
        assert_int_equal(live_bytes(), live);
    }
    free(text);
    zp_engine_close(e);
    zp_model_close(m);
}

static void test_room_is_known_before_the_work(void **state)
{
    (void)state;
    for (int kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++) {
        check_room_for("gguf-llama-yarn", (zp_kv_type)kv);
        check_room_for("zerope-local", (zp_kv_type)kv);
    }
}

/* Everything else that saving would fail for; and nothing is left or changed. */
static void test_places_that_cannot_be_saved_to_are_known(void **state)
{
    (void)state;
    struct fixture f, now;
    zp_err why = { 0 };
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_BF16);
    zp_seq *s = bits_seq(f.e);
    assert_int_equal(zp_seq_check_save(s, 10, "/nowhere/file", NULL), ZP_BAD_INPUT);
    assert_int_equal(zp_seq_check_save(s, 10, folder, NULL), ZP_BAD_INPUT);
    assert_int_equal(zp_seq_check_save(s, 10, "/dev/full", NULL), ZP_BAD_INPUT);
    assert_int_equal(zp_seq_check_save(s, CTX + 1, in_folder("new"), &why), ZP_BAD_INPUT);
    assert_non_null(strstr(why.message, "193 tokens does not fit into the context of 192"));
    GOLDEN_OK(zp_seq_check_save(s, CTX, in_folder("new"), err));
    assert_false(os_exists(in_folder("new")));
    os_pretend_space(1000);
    assert_int_equal(zp_seq_check_save(s, 10, in_folder("saved"), NULL), ZP_NO_SPACE);
    os_pretend_space(UINT64_MAX);
    read_back(&now, in_folder("saved"));
    assert_int_equal(now.size, f.size);
    assert_memory_equal(now.data, f.data, f.size);
    free(now.data);
    char **names;
    size_t n;
    GOLDEN_OK(os_list_files(folder, &names, &n, err));
    for (size_t k = 0; k < n; k++) assert_null(strstr(names[k], ".tmp."));
    os_list_free(names, n);
    zp_seq_close(s);
    close_fixture(&f);
}

static void test_files_that_are_none(void **state)
{
    (void)state;
    struct fixture f;
    zp_seq *s = NULL;
    open_fixture(&f, "gguf-llama-yarn", ZP_KV_BF16);
    assert_int_equal(zp_seq_restore(&s, f.e, in_folder("missing"), NULL, 0, NULL), ZP_BAD_INPUT);
    assert_int_equal(zp_seq_restore(&s, f.e, folder, NULL, 0, NULL), ZP_BAD_INPUT);
    assert_int_equal(zp_seq_restore(&s, f.e, "/dev/null", NULL, 0, NULL), ZP_BAD_INPUT);
    GOLDEN_OK(os_write_file(in_folder("empty"), "", 0, err));
    zp_err why = { 0 };
    assert_int_equal(zp_seq_restore(&s, f.e, in_folder("empty"), NULL, 0, &why), ZP_BAD_FILE);
    assert_non_null(strstr(why.message, "is empty (0 bytes): it was cut; delete it"));
    GOLDEN_OK(os_write_file(in_folder("text"), "hello", 5, err));
    assert_int_equal(zp_seq_restore(&s, f.e, in_folder("text"), NULL, 0, NULL), ZP_BAD_FILE);
    assert_null(s);
    s = bits_seq(f.e);
    append(f.e, s, ids, 10);
    assert_int_not_equal(zp_seq_save(s, "/dev/full", NULL), ZP_OK);
    assert_int_not_equal(zp_seq_save(s, folder, NULL), ZP_OK);
    assert_int_not_equal(zp_seq_save(s, "/nowhere/file", NULL), ZP_OK);
    zp_seq_close(s);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_damaged_byte_is_found),
        cmocka_unit_test(test_each_field_of_the_header_is_checked),
        cmocka_unit_test(test_tables_behind_the_header_are_checked),
        cmocka_unit_test(test_other_engines_refuse_the_file),
        cmocka_unit_test(test_exact_flag_is_part_of_the_file),
        cmocka_unit_test(test_context_of_dynamic_scaling_is_part_of_the_file),
        cmocka_unit_test(test_restored_sequence_is_the_saved_one),
        cmocka_unit_test(test_shared_beginning_is_taken),
        cmocka_unit_test(test_nothing_shared_is_an_empty_sequence),
        cmocka_unit_test(test_only_what_is_wanted_needs_room),
        cmocka_unit_test(test_only_what_is_taken_is_read),
        cmocka_unit_test(test_windows_keep_only_late_beginnings),
        cmocka_unit_test(test_full_disk_leaves_the_old_file),
        cmocka_unit_test(test_room_is_known_before_the_work),
        cmocka_unit_test(test_places_that_cannot_be_saved_to_are_known),
        cmocka_unit_test(test_files_that_are_none),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

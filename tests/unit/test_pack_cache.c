/* test_pack_cache.c: engines with a folder of packed weights compute, bit for bit, what engines
 * without one compute, whatever lies in the folder and whatever happens to the model file. */
#include "golden.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "in_folder.h"
#include "kern/pack.h"
#include "model/engine.h"
#include "model/packfile.h"

enum { N_IDS = 90 };

static const char *cache(void)
{
    return in_folder("cache");
}

/* ---- models ---------------------------------------------------------------------------------- */

static zp_model *model_at(const char *path)
{
    zp_model *m = NULL;
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    return m;
}

static const char *small_file(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, ZP_TEST_DATA "/arch/gguf/%s.gguf", name);
    return path;
}

static const char *const quantised[] = { "Q4_1", "Q8_0", "Q5_0", "BF16" };

/* Copies of a model in several types, made before all tests: what was changed within the last two
 * seconds gets no side file. */
static int start(void **state)
{
    if (make_folder(state) != 0) return -1;
    for (size_t i = 0; i < ZP_COUNT(quantised); i++) {
        char *json = NULL;
        GOLDEN_OK(zp_quantize(small_file("gguf-llama-yarn"), in_folder(quantised[i]), quantised[i],
                              NULL, &json, err));
        zp_free(json);
    }
    static const char *const copies[] = { "touched", "changed", "longer", "replaced" };
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    GOLDEN_OK(os_read_file(small_file("gguf-llama-yarn"), &b, err));
    for (size_t i = 0; i < ZP_COUNT(copies); i++)
        GOLDEN_OK(os_write_file(in_folder(copies[i]), b.data, b.size, err));
    buffer_free(&b);
    usleep(2200000);
    return 0;
}

/* ---- engines --------------------------------------------------------------------------------- */

/* Opens an engine and computes; *from: whether its weights came from the folder. (N_IDS, n_vocab),
 * released with free(). */
static float *compute(const zp_model *m, zp_engine_options o, const char *folder_of_packed,
                      bool *from)
{
    int32_t ids[N_IDS];
    zp_engine_stats stats;
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + 11) % (int)m->h.n_vocab;
    o.n_ctx = 128;
    o.pack_cache = folder_of_packed;
    zp_engine *e = golden_engine(m, o);
    zp_engine_describe(e, &stats);
    float *logits = golden_logits(e, m, ids, N_IDS);
    zp_engine_close(e);
    if (from) *from = stats.from_pack_cache;
    return logits;
}

static void expect(const zp_model *m, zp_engine_options o, const float *right, bool expected_from,
                   const char *what)
{
    bool from;
    float *logits = compute(m, o, cache(), &from);
    if (memcmp(logits, right, N_IDS * m->h.n_vocab * sizeof *right) != 0)
        fail_msg("%s: other logits", what);
    if (from != expected_from) fail_msg("%s: the side file was %sused", what, from ? "" : "not ");
    free(logits);
}

static void clear_cache(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", cache());
    assert_int_equal(system(command), 0);
}

/* Files in the cache folder, and the path of the last. */
static size_t side_files(char path[1024])
{
    char **names;
    size_t n;
    if (!os_is_folder(cache())) return 0;
    GOLDEN_OK(os_list_files(cache(), &names, &n, err));
    if (n) snprintf(path, 1024, "%s", names[n - 1]);
    os_list_free(names, n);
    return n;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_same_bits(const zp_model *m, const char *name)
{
    zp_engine_options o = { .n_threads = 2 };
    char path[1024];
    float *right = compute(m, o, NULL, NULL);
    clear_cache();
    expect(m, o, right, false, name);
    assert_int_equal(side_files(path), 1);
    expect(m, o, right, true, name);
    packfile_pretend_small_pages(true);
    expect(m, o, right, true, name);
    packfile_pretend_small_pages(false);
    for (o.n_threads = 1; o.n_threads <= 3; o.n_threads += 2) expect(m, o, right, true, name);
    free(right);
    /* One file for all levels; in float matrices the reference level's bits are its own. */
    o = (zp_engine_options){ .n_threads = 2, .level = ZP_LEVEL_REF };
    right = compute(m, o, NULL, NULL);
    expect(m, o, right, true, name);
    free(right);
    assert_int_equal(side_files(path), 1);
}

static void test_same_bits_with_and_without(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3",  "gguf-qwen2",
                                          "gguf-qwen3",      "gguf-granite", "zerope-mixed",
                                          "zerope-qwen3",    "zerope-local-scaled",
                                          "llama",           "qwen3" };
    for (size_t i = 0; i < ZP_COUNT(models) + ZP_COUNT(quantised); i++) {
        bool small = i < ZP_COUNT(models);
        const char *name = small ? models[i] : quantised[i - ZP_COUNT(models)];
        zp_model *m = small ? golden_small(name) : model_at(in_folder(name));
        check_same_bits(m, name);
        zp_model_close(m);
    }
}

static void test_exact_weights_are_not_kept(void **state)
{
    (void)state;
    zp_model *m = golden_small("zerope-mixed");
    zp_engine_options o = { .n_threads = 1, .exact = true };
    float *right = compute(m, o, NULL, NULL);
    char path[1024];
    clear_cache();
    for (int i = 0; i < 2; i++) expect(m, o, right, false, "exact");
    assert_int_equal(side_files(path), 0);
    zp_engine_close(golden_engine(m, (zp_engine_options){ .n_ctx = 8, .pack_cache = cache() }));
    expect(m, o, right, false, "exact beside a side file");
    assert_int_equal(side_files(path), 1);
    free(right);
    zp_model_close(m);
}

/* How a model's matrices, gains and biases follow each other (test_kern_pack holds the bytes of
 * each type). When this test fails, and rightly so, PACK_LAYOUT takes a new number: files of the
 * old one are then left alone. */
static void test_layout_is_that_of_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool exact;
        uint64_t hash;
    } rows[] = {
        { "gguf-llama-yarn", false, 0x68b70816e14e7979u },
        { "gguf-llama-yarn", true, 0x10e6c2844297755fu },
        { "gguf-gemma3", false, 0x5fbf22fe948f9977u },
        { "gguf-qwen2", false, 0x62e216baefbd99cau },
        { "zerope-qwen3", false, 0xfc3d5e2882bd8fa6u },
        { "llama", false, 0x38395db357ad98edu },
    };
    assert_int_equal(PACK_LAYOUT, 2);
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        zp_model *m = golden_small(rows[i].name);
        zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 8, .exact = rows[i].exact });
        uint64_t hash = hash_xxh64(e->weights.packed, e->weights.packed_bytes, 0);
        if (hash != rows[i].hash)
            fail_msg("%s%s: 0x%016llxu", rows[i].name, rows[i].exact ? ", exact" : "",
                     (unsigned long long)hash);
        zp_engine_close(e);
        zp_model_close(m);
    }
}

/* ---- what may lie in the folder -------------------------------------------------------------- */

struct damage {
    const char *what;
    long at;   /* a byte to change, or -1 */
    long size; /* else the length to give it */
};

static void spoil(const char *path, const struct damage *d)
{
    uint8_t byte;
    if (d->at < 0) {
        assert_int_equal(truncate(path, d->size), 0);
        return;
    }
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, d->at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, d->at), 1);
    close(fd);
}

static void test_damaged_files_are_replaced(void **state)
{
    (void)state;
    zp_model *m = model_at(in_folder("Q4_1"));
    zp_engine_options o = { .n_threads = 2 };
    float *right = compute(m, o, NULL, NULL);
    char path[1024];
    uint64_t size;
    clear_cache();
    expect(m, o, right, false, "first");
    assert_int_equal(side_files(path), 1);
    GOLDEN_OK(os_file_size(path, &size, err));
    const struct damage rows[] = {
        { "magic", 3, 0 },          { "format", 8, 0 },
        { "layout", 12, 0 },        { "path", 20, 0 },
        { "source", 31, 0 },        { "matrices", 32, 0 },
        { "size of the head", 41, 0 }, { "size", 48, 0 },
        { "size of a piece", 58, 0 },  { "hash of a piece", 66, 0 },
        { "zeros", 2000, 0 },       { "hash of the head", 4090, 0 },
        { "first byte", 4096, 0 },  { "a byte", 4096 + ((long)size - 4096) / 2, 0 },
        { "last byte", (long)size - 1, 0 },
        { "empty", -1, 0 },         { "half a head", -1, 40 },
        { "a head alone", -1, 4096 },  { "one byte less", -1, (long)size - 1 },
        { "one byte more", -1, (long)size + 1 },
    };
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        spoil(path, &rows[i]);
        expect(m, o, right, false, rows[i].what);
        expect(m, o, right, true, rows[i].what); /* it was written again */
    }
    free(right);
    zp_model_close(m);
}

static void test_what_cannot_be_replaced_is_left(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    zp_engine_options o = { .n_threads = 1 };
    float *right = compute(m, o, NULL, NULL);
    char path[1024];
    clear_cache();
    expect(m, o, right, false, "first");
    assert_int_equal(side_files(path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < 2; i++) expect(m, o, right, false, "a folder in its place");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0);
    for (int i = 0; i < 2; i++) expect(m, o, right, false, "a pipe in its place");
    free(right);
    zp_model_close(m);
}

/* Nobody loses a file to a link in the folder, least of all the model. */
static void test_model_that_a_link_leads_to_stays(void **state)
{
    (void)state;
    zp_model *m = model_at(in_folder("Q5_0"));
    zp_engine_options o = { .n_threads = 1 };
    float *right = compute(m, o, NULL, NULL);
    char path[1024];
    struct os_stamp before, after;
    struct stat st;
    clear_cache();
    expect(m, o, right, false, "first");
    assert_int_equal(side_files(path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(in_folder("Q5_0"), path), 0);
    GOLDEN_OK(os_stamp_of(in_folder("Q5_0"), &before, err));
    expect(m, o, right, false, "a link to the model in its place");
    GOLDEN_OK(os_stamp_of(in_folder("Q5_0"), &after, err));
    assert_true(os_stamp_equal(&before, &after));
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    expect(m, o, right, true, "after it");
    free(right);
    zp_model_close(m);
}

static void test_engines_do_without_a_folder(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    zp_engine_options o = { .n_threads = 1 };
    float *right = compute(m, o, NULL, NULL);
    char below[300], longest[5000], path[1024];
    bool from;
    clear_cache();
    GOLDEN_OK(os_write_file(in_folder("file"), "x", 1, err));
    snprintf(below, sizeof below, "%s/packed", in_folder("file"));
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *const folders[] = { below, longest, "", "/proc/nowhere", in_folder("closed") };
    assert_int_equal(mkdir(in_folder("closed"), 0555), 0); /* root may write there all the same */
    for (size_t i = 0; i < ZP_COUNT(folders); i++) {
        float *logits = compute(m, o, folders[i], &from);
        assert_memory_equal(logits, right, N_IDS * m->h.n_vocab * sizeof *right);
        free(logits);
        assert_false(from);
    }
    os_fail_writes_after(2000); /* a full disk */
    for (int i = 0; i < 2; i++) expect(m, o, right, false, "full disk");
    os_fail_writes_after(UINT64_MAX);
    assert_int_equal(side_files(path), 0);
    free(right);
    zp_model_close(m);
}

/* ---- what may happen to the model ------------------------------------------------------------ */

static void set_time(const char *path, const struct stat *like, long add)
{
    struct timespec times[2] = { like->st_atim, like->st_mtim };
    times[1].tv_sec += add;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Place of a weight of the last matrix in the file. */
static long place_of_weight(const char *path)
{
    struct gguf g;
    const struct gguf_tensor *t;
    GOLDEN_OK(gguf_open(&g, path, err));
    GOLDEN_OK(gguf_get_tensor(&g, "blk.0.ffn_down.weight", &t, err));
    long at = (long)t->offset;
    gguf_close(&g);
    return at;
}

static void change_model(const char *name)
{
    char path[128];
    struct stat before;
    snprintf(path, sizeof path, "%s", in_folder(name));
    assert_int_equal(stat(path, &before), 0);
    if (strcmp(name, "touched") == 0) {
        set_time(path, &before, 1);
    } else if (strcmp(name, "changed") == 0) { /* the size and the time stay */
        const uint8_t half[2] = { 0, 0x42 };  /* 3.0 as f16 */
        long at = place_of_weight(path);
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, half, 2, at), 2);
        close(fd);
        set_time(path, &before, 0);
    } else if (strcmp(name, "longer") == 0) {
        assert_int_equal(truncate(path, before.st_size + 64), 0);
        set_time(path, &before, 0);
    } else { /* another file under its name, of the same size and time */
        assert_int_equal(rename(in_folder("changed"), path), 0);
        set_time(path, &before, 0);
    }
}

/* The order matters: "replaced" takes the file "changed". */
static void test_changed_models_are_packed_anew(void **state)
{
    (void)state;
    static const struct { const char *name; bool other_weights; } rows[] = {
        { "touched", false }, { "longer", false }, { "changed", true }, { "replaced", true }
    };
    zp_engine_options o = { .n_threads = 1 };
    char first[1024], second[1024];
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        zp_model *m = model_at(in_folder(rows[i].name));
        float *old = compute(m, o, NULL, NULL);
        clear_cache();
        expect(m, o, old, false, rows[i].name);
        expect(m, o, old, true, rows[i].name);
        assert_int_equal(side_files(first), 1);
        zp_model_close(m);

        change_model(rows[i].name);
        m = model_at(in_folder(rows[i].name));
        float *right = compute(m, o, NULL, NULL);
        bool same = memcmp(old, right, N_IDS * m->h.n_vocab * sizeof *old) == 0;
        assert_int_equal(same, !rows[i].other_weights);
        expect(m, o, right, false, rows[i].name);
        usleep(2200000); /* until it may be written */
        expect(m, o, right, false, rows[i].name);
        expect(m, o, right, true, rows[i].name);
        assert_int_equal(side_files(second), 1); /* that of the earlier state is gone */
        assert_string_not_equal(first, second);
        free(old);
        free(right);
        zp_model_close(m);
    }
}

static void test_models_in_memory_have_no_side_file(void **state)
{
    (void)state;
    struct gguf g;
    struct packfile_key key;
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    GOLDEN_OK(os_read_file(small_file("gguf-qwen2"), &b, err));
    GOLDEN_OK(gguf_open_bytes(&g, b.data, b.size, "bytes", err));
    assert_int_equal(packfile_key_of(&g, 0, 1, &key, NULL), ZP_BAD_INPUT);
    gguf_close(&g);
    buffer_free(&b);
}

/* The time of the last change would not tell the next change from this one. */
static void test_fresh_models_have_no_key(void **state)
{
    (void)state;
    struct gguf g;
    struct packfile_key key;
    zp_err why = { 0 };
    GOLDEN_OK(gguf_open(&g, in_folder("Q4_1"), err));
    GOLDEN_OK(packfile_key_of(&g, 0, 1, &key, err));
    static const int64_t older[] = { 0, 500000000, -5000000000 }; /* a clock that was set back */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < ZP_COUNT(older); i++) {
        g.maps[0].changed = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - older[i];
        assert_int_equal(packfile_key_of(&g, 0, 1, &key, &why), ZP_BAD_INPUT);
        assert_non_null(strstr(why.message, "changed just now"));
    }
    gguf_close(&g);
}

/* ---- several engines ------------------------------------------------------------------------- */

struct opener {
    const zp_model *m;
    const float *right;
    unsigned n_wrong, n_from;
};

static void *open_again_and_again(void *arg)
{
    struct opener *t = arg;
    for (int i = 0; i < 12; i++) {
        bool from;
        float *logits = compute(t->m, (zp_engine_options){ .n_threads = 1 }, cache(), &from);
        t->n_wrong += memcmp(logits, t->right, N_IDS * t->m->h.n_vocab * sizeof *logits) != 0;
        t->n_from += from;
        free(logits);
    }
    return NULL;
}

static void test_engines_at_the_same_time(void **state)
{
    (void)state;
    zp_model *m = model_at(in_folder("Q8_0"));
    float *right = compute(m, (zp_engine_options){ .n_threads = 1 }, NULL, NULL);
    struct opener of[4];
    pthread_t threads[4];
    char path[1024];
    clear_cache();
    for (int i = 0; i < 4; i++) {
        of[i] = (struct opener){ m, right, 0, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, open_again_and_again, &of[i]), 0);
    }
    unsigned from = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(of[i].n_wrong, 0);
        from += of[i].n_from;
    }
    assert_true(from >= 4 * 12 - 4); /* each packs once at most */
    assert_int_equal(side_files(path), 1);
    free(right);
    zp_model_close(m);
}

/* A mapped side file may go or be replaced while an engine uses it. */
static void test_engine_outlives_its_side_file(void **state)
{
    (void)state;
    zp_model *m = model_at(in_folder("Q8_0"));
    zp_engine_options o = { .n_ctx = 128, .n_threads = 1, .pack_cache = cache() };
    int32_t ids[N_IDS] = { 0 };
    float *logits[2];
    clear_cache();
    zp_engine_close(golden_engine(m, o));
    zp_engine *e = golden_engine(m, o);
    assert_non_null(e->weights.side.data);
    logits[0] = golden_logits(e, m, ids, N_IDS);
    clear_cache();
    zp_engine_close(golden_engine(m, o)); /* written again */
    logits[1] = golden_logits(e, m, ids, N_IDS);
    assert_memory_equal(logits[0], logits[1], N_IDS * m->h.n_vocab * sizeof **logits);
    for (int i = 0; i < 2; i++) free(logits[i]);
    zp_engine_close(e);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_with_and_without),
        cmocka_unit_test(test_exact_weights_are_not_kept),
        cmocka_unit_test(test_layout_is_that_of_its_number),
        cmocka_unit_test(test_damaged_files_are_replaced),
        cmocka_unit_test(test_what_cannot_be_replaced_is_left),
        cmocka_unit_test(test_model_that_a_link_leads_to_stays),
        cmocka_unit_test(test_engines_do_without_a_folder),
        cmocka_unit_test(test_changed_models_are_packed_anew),
        cmocka_unit_test(test_models_in_memory_have_no_side_file),
        cmocka_unit_test(test_fresh_models_have_no_key),
        cmocka_unit_test(test_engines_at_the_same_time),
        cmocka_unit_test(test_engine_outlives_its_side_file),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}

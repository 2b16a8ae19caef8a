/* test_safetensors.c: reading and writing safetensors: coverage, hostile headers, shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/status.h"
#include "model/safetensors_write.h"
#include "live_bytes.h"

static char folder[64];

static void ok(zp_status status, const zp_err *err)
{
    if (status != ZP_OK) fail_msg("%s", err->message);
}

/* A file of this header and this many data bytes. */
static struct {
    uint8_t data[8192];
    size_t size;
} file;

static void make(const char *header, size_t data_bytes)
{
    uint64_t size = strlen(header);
    memcpy(file.data, &size, 8);
    memcpy(file.data + 8, header, size);
    for (size_t i = 0; i < data_bytes; i++) file.data[8 + size + i] = (uint8_t)(i * 5 + 1);
    file.size = 8 + size + data_bytes;
}

static void assert_refused(const char *header, size_t data_bytes, zp_status code, const char *part)
{
    struct safetensors s;
    zp_err err = {0};
    make(header, data_bytes);
    assert_int_equal(safetensors_open_bytes(&s, file.data, file.size, "t", &err), code);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    assert_null(s.tensors);
}

#define TWO                                                                                        \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                       \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[6,30]},"                           \
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}   "

static void test_a_file_is_read(void **state)
{
    (void)state;
    struct safetensors s;
    zp_err err = {0};
    make(TWO, 30);
    ok(safetensors_open_bytes(&s, file.data, file.size, "t", &err), &err);
    assert_int_equal(s.n_tensors, 2);
    const struct safetensors_tensor *a = safetensors_find(&s, "a"), *b = safetensors_find(&s, "b");
    assert_int_equal(a->dtype, ST_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 24);
    assert_ptr_equal(b->data, a->data + 6);
    assert_int_equal(a->data[1], 6);
    assert_null(safetensors_find(&s, "__metadata__"));
    safetensors_close(&s);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_wrong_entries_are_refused_by_name(void **state)
{
    (void)state;
    assert_refused(ONE("\"F64\"", "[1]", "[0,8]"), 8, ZP_UNSUPPORTED, "tensor t has dtype F64");
    assert_refused(ONE("1", "[1]", "[0,8]"), 8, ZP_BAD_FILE, "tensor t has no dtype");
    assert_refused(ONE("\"F32\"", "[-1]", "[0,4]"), 4, ZP_BAD_FILE, "tensor t: dimension 0");
    assert_refused(ONE("\"F32\"", "[1.0]", "[0,4]"), 4, ZP_BAD_FILE, "tensor t: dimension 0");
    assert_refused(ONE("\"F32\"", "4", "[0,4]"), 4, ZP_BAD_FILE, "tensor t: shape");
    assert_refused(ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, ZP_BAD_FILE,
                   "tensor t: shape");
    assert_refused(ONE("\"F32\"", "[4611686018427387904,4]", "[0,4]"), 4, ZP_BAD_FILE, "overflows");
    assert_refused(ONE("\"F32\"", "[1]", "[0]"), 4, ZP_BAD_FILE, "tensor t: data_offsets is not");
    assert_refused(ONE("\"F32\"", "[1]", "[4,0]"), 4, ZP_BAD_FILE, "are not a range");
    assert_refused(ONE("\"F32\"", "[1]", "[-4,0]"), 4, ZP_BAD_FILE, "are not a range");
    assert_refused(ONE("\"F32\"", "[2]", "[0,4]"), 4, ZP_BAD_FILE,
                   "hold 4 bytes, shape and dtype need 8");
    assert_refused(ONE("\"F32\"", "[2]", "[0,8]"), 4, ZP_BAD_FILE,
                   "tensor t ends at 8 of the data but the file has 4 bytes of it: the download is "
                   "incomplete");
    assert_refused("{\"t\":3}", 0, ZP_BAD_FILE, "tensor t is not an object");
    assert_refused("{\"__metadata__\":{\"n\":1}}", 0, ZP_BAD_FILE,
                   "__metadata__ n is not a string");
    assert_refused("[1]", 0, ZP_BAD_FILE, "not a JSON object");
    assert_refused("{\"t\":", 0, ZP_BAD_FILE, "not valid JSON at line 1");
}

#define TENSOR(name, n, begin, end)                                                                \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":[" begin "," end "]}"

static void test_gaps_overlaps_and_duplicates_are_refused(void **state)
{
    (void)state;
    assert_refused("{" TENSOR("a", "4", "0", "4") "," TENSOR("b", "4", "3", "7") "}", 7,
                   ZP_BAD_FILE, "tensors a and b overlap");
    assert_refused("{" TENSOR("a", "4", "0", "4") "," TENSOR("b", "4", "0", "4") "}", 4,
                   ZP_BAD_FILE, "overlap");
    assert_refused("{" TENSOR("a", "4", "0", "4") "," TENSOR("b", "4", "5", "9") "}", 9,
                   ZP_BAD_FILE, "1 bytes before tensor b belong to no tensor");
    assert_refused("{" TENSOR("a", "4", "1", "5") "}", 5, ZP_BAD_FILE, "1 bytes before tensor a");
    assert_refused("{" TENSOR("a", "4", "0", "4") "}", 6, ZP_BAD_FILE,
                   "2 bytes after the last tensor");
    assert_refused("{" TENSOR("a", "4", "0", "4") "," TENSOR("a", "4", "4", "8") "}", 8,
                   ZP_BAD_FILE, "duplicate");
}

static void test_hostile_header_sizes_are_refused(void **state)
{
    (void)state;
    struct safetensors s;
    static const uint64_t sizes[] = {UINT64_MAX, (100u << 20) + 1, 100u << 20, 31};
    for (size_t i = 0; i < 4; i++) {
        zp_err err = {0};
        make("{}", 20);
        memcpy(file.data, &sizes[i], 8);
        assert_int_equal(safetensors_open_bytes(&s, file.data, 30, "t", &err), ZP_BAD_FILE);
    }
    for (size_t size = 0; size < 8; size++)
        assert_int_equal(safetensors_open_bytes(&s, file.data, size, "t", NULL), ZP_BAD_FILE);
}

static void test_every_prefix_and_flipped_bit_is_survived(void **state)
{
    (void)state;
    struct safetensors s;
    make(TWO, 30);
    for (size_t size = 0; size < file.size; size++) {
        uint8_t *copy = malloc(size + 1);
        memcpy(copy, file.data, size);
        assert_int_not_equal(safetensors_open_bytes(&s, copy, size, "t", NULL), ZP_OK);
        free(copy);
    }
    for (size_t bit = 0; bit < (file.size - 30) * 8; bit++) {
        file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)safetensors_open_bytes(&s, file.data, file.size, "t", NULL);
        for (uint32_t i = 0; i < s.n_tensors; i++)
            assert_true(s.tensors[i].data + s.tensors[i].bytes <= file.data + file.size);
        safetensors_close(&s);
        file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* ---- writing */

static const float numbers[6] = {1, 2, 3, 4, 5, 6};

static zp_status fill_numbers(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    if (arg != NULL) ZP_FAIL(err, ZP_INTERRUPTED, "interrupted");
    memcpy(out, numbers + 3 * first, (size_t)n * 12);
    return ZP_OK;
}

static const struct safetensors_out outs[] = {
    {.name = "second", .dtype = ST_F32, .n_dims = 2, .shape = {2, 3}, .data = numbers},
    {.name = "filled", .dtype = ST_F32, .n_dims = 2, .shape = {2, 3}, .fill = fill_numbers},
    {.name = "scalar", .dtype = ST_I32, .n_dims = 0, .data = numbers},
    {.name = "odd \"name\" \xc3\xa9", .dtype = ST_U8, .n_dims = 1, .shape = {3}, .data = numbers},
};

static const char *path_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void check_outs(const struct safetensors *s)
{
    assert_int_equal(s->n_tensors, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct safetensors_tensor *t = safetensors_find(s, outs[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, outs[i].dtype);
        assert_int_equal(t->n_dims, outs[i].n_dims);
        assert_memory_equal(t->data, numbers, t->bytes);
    }
}

static void test_what_is_written_is_read_back(void **state)
{
    (void)state;
    struct safetensors s;
    zp_err err = {0};
    ok(safetensors_write(path_of("x.safetensors"), outs, 4, &err), &err);
    ok(safetensors_open(&s, path_of("x.safetensors"), &err), &err);
    check_outs(&s);
    assert_int_equal((uintptr_t)safetensors_find(&s, "second")->data % 8, 0);
    safetensors_close(&s);
    unlink(path_of("x.safetensors"));
}

static void test_shards_are_read_as_one(void **state)
{
    (void)state;
    struct safetensors s;
    zp_err err = {0};
    ok(safetensors_write_folder(folder, outs, 4, 30, &err), &err);
    assert_true(os_exists(path_of("model-00003-of-00003.safetensors")));
    ok(safetensors_open_folder(&s, folder, &err), &err);
    assert_int_equal(s.n_maps, 3);
    check_outs(&s);
    safetensors_close(&s);
    ok(safetensors_write_folder(folder, outs, 4, 0, &err), &err);
    assert_int_equal(safetensors_write_folder(folder, outs, 4, 30, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "would hide the shards"));
    unlink(path_of("model.safetensors"));
}

static void write_index(const char *text)
{
    zp_err err = {0};
    ok(os_write_file(path_of("model.safetensors.index.json"), text, strlen(text), &err), &err);
}

static void assert_index_refused(const char *text, const char *part)
{
    struct safetensors s;
    zp_err err = {0};
    write_index(text);
    assert_int_equal(safetensors_open_folder(&s, folder, &err), ZP_BAD_FILE);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
}

static void test_a_wrong_index_is_refused(void **state)
{
    (void)state;
    zp_err err = {0};
    ok(safetensors_write(path_of("p.safetensors"), outs, 2, &err), &err);
    ok(safetensors_write(path_of("q.safetensors"), outs + 1, 2, &err), &err);
    static const char *const escapes[] = {"../x.safetensors",
                                          "/tmp/x.safetensors",
                                          "a/b.safetensors",
                                          ".safetensors",
                                          "..safetensors",
                                          "x.bin",
                                          "",
                                          "a\\\\b.safetensors"};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", escapes[i]);
        assert_index_refused(text, "is not the plain name");
    }
    assert_index_refused("{\"weight_map\":{\"a\":3}}", "is not the plain name");
    assert_index_refused("{\"weight_map\":[]}", "weight_map is missing");
    assert_index_refused(
        "{\"weight_map\":{\"second\":\"p.safetensors\",\"scalar\":\"q.safetensors\"}}",
        "tensor filled is in two files");
    assert_index_refused("{\"weight_map\":{\"scalar\":\"p.safetensors\"}}",
                         "tensor scalar is not in p.safetensors");
    struct safetensors s;
    write_index("{\"weight_map\":{\"a\":\"missing.safetensors\"}}");
    assert_int_equal(safetensors_open_folder(&s, folder, &err), ZP_BAD_INPUT);
    unlink(path_of("model.safetensors.index.json"));
    err = (zp_err){0};
    assert_int_equal(safetensors_open_folder(&s, folder, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "neither model.safetensors nor"));
    unlink(path_of("p.safetensors"));
    unlink(path_of("q.safetensors"));
}

static void test_failed_writing_leaves_the_old_file(void **state)
{
    (void)state;
    struct safetensors s;
    zp_err err = {0};
    struct safetensors_out broken[2] = {outs[0], outs[1]};
    char path[160];
    snprintf(path, sizeof path, "%s", path_of("x.safetensors"));
    broken[1].fill_arg = &err;
    ok(safetensors_write(path, outs, 4, &err), &err);
    assert_int_equal(safetensors_write(path, broken, 2, &err), ZP_INTERRUPTED);
    os_fail_writes_after(100);
    assert_int_equal(safetensors_write(path, outs, 2, NULL), ZP_NO_SPACE);
    os_fail_writes_after(UINT64_MAX);
    err = (zp_err){0};
    broken[1] = broken[0];
    assert_int_equal(safetensors_write(path, broken, 2, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "second appears twice"));
    ok(safetensors_open(&s, path, NULL), &err);
    check_outs(&s);
    safetensors_close(&s);
    unlink(path);
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    uint64_t before = live_bytes();
    unsigned n = 1;
    for (;; n++) {
        struct safetensors s = {0};
        mem_fail_at(n, false);
        zp_err err = {0};
        zp_status status = safetensors_write_folder(folder, outs, 4, 30, &err);
        if (status == ZP_OK) status = safetensors_open_folder(&s, folder, &err);
        bool injected = mem_fail_count() > 0;
        mem_fail_at(0, false);
        safetensors_close(&s);
        assert_int_equal(live_bytes(), before);
        if (!injected) break;
        assert_int_equal(status, ZP_NO_MEMORY);
    }
    assert_true(n > 10);
}

static int make_folder(void **state)
{
    (void)state;
    zp_err err;
    snprintf(folder, sizeof folder, "/tmp/zp-safetensors-%d", (int)getpid());
    return os_make_folders(folder, &err) == ZP_OK ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char **names;
    size_t count;
    if (os_list_files(folder, &names, &count, NULL) != ZP_OK) return -1;
    for (size_t i = 0; i < count; i++) unlink(names[i]);
    os_list_free(names, count);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_read),
        cmocka_unit_test(test_wrong_entries_are_refused_by_name),
        cmocka_unit_test(test_gaps_overlaps_and_duplicates_are_refused),
        cmocka_unit_test(test_hostile_header_sizes_are_refused),
        cmocka_unit_test(test_every_prefix_and_flipped_bit_is_survived),
        cmocka_unit_test(test_what_is_written_is_read_back),
        cmocka_unit_test(test_shards_are_read_as_one),
        cmocka_unit_test(test_a_wrong_index_is_refused),
        cmocka_unit_test(test_failed_writing_leaves_the_old_file),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

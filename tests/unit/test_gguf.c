/* test_gguf.c: reading GGUF: values, limits, hostile bytes, splits, the two real models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "model/gguf.h"
#include "gguf_bytes.h"
#include "live_bytes.h"
#include "models.h"

static struct bytes file; /* the one being built */

static void open_file(struct gguf *g)
{
    zp_err err = {0};
    zp_status status = gguf_open_bytes(g, file.data, file.size, "t.gguf", &err);
    if (status != ZP_OK) fail_msg("%s", err.message);
}

/* The file must be refused with this code and a text that holds `part`. */
static void assert_refused(zp_status code, const char *part)
{
    struct gguf g;
    zp_err err = {0};
    assert_int_equal(gguf_open_bytes(&g, file.data, file.size, "t.gguf", &err), code);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    assert_null(g.kvs);
}

/* ---- values */

static void test_every_value_type_is_read(void **state)
{
    (void)state;
    struct gguf g;
    uint64_t u64;
    int16_t i16 = -300;
    int64_t i64 = -5;
    double f64 = 0.1;
    put_head(&file, 3, 0, 9);
    put_kv(&file, "u8", 0), put_u8(&file, 200);
    put_kv(&file, "i8", 1), put_u8(&file, 0xff);
    put_kv(&file, "u16", 2), put(&file, &(uint16_t){65535}, 2);
    put_kv(&file, "i16", 3), put(&file, &i16, 2);
    put_kv(&file, "i32", 5), put_u32(&file, (uint32_t)-70000);
    put_kv(&file, "bool", 7), put_u8(&file, 1);
    put_kv(&file, "u64", 10), put_u64(&file, UINT64_MAX);
    put_kv(&file, "i64", 11), put(&file, &i64, 8);
    put_kv(&file, "f64", 12), put(&file, &f64, 8);
    open_file(&g);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "u8"), 0), 200);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "i8"), 0), -1);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "u16"), 0), 65535);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "i16"), 0), -300);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "i32"), 0), -70000);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "bool"), 0), 1);
    assert_true(gguf_item_int(gguf_find_key(&g, "u64"), 0) == INT64_MAX);
    assert_int_equal(gguf_get_u64(&g, "u64", &u64, NULL), ZP_OK);
    assert_true(u64 == UINT64_MAX);
    assert_int_equal(gguf_item_int(gguf_find_key(&g, "i64"), 0), -5);
    assert_true(gguf_item_float(gguf_find_key(&g, "f64"), 0) == 0.1);
    gguf_close(&g);
}

static void test_small_file_is_read_whole(void **state)
{
    (void)state;
    struct gguf g;
    const struct gguf_kv *kv;
    make_small_file(&file);
    open_file(&g);
    assert_int_equal(g.version, 3);
    assert_string_equal(g.arch, "llama");
    assert_int_equal(g.file_bytes, file.size);
    assert_int_equal(gguf_get_array(&g, "tokenizer.ggml.tokens", GGUF_STRS, &kv, NULL), ZP_OK);
    assert_int_equal(kv->count, 3);
    assert_true(gguf_str_is(gguf_item_str(kv, 0), "one"));
    assert_true(gguf_str_is(gguf_item_str(kv, 1), ""));
    assert_true(gguf_str_is(gguf_item_str(kv, 2), "three"));
    assert_false(gguf_str_is(gguf_item_str(kv, 2), "thre"));
    assert_int_equal(gguf_get_array(&g, "tokenizer.ggml.scores", GGUF_ANY_FLOAT, &kv, NULL), ZP_OK);
    assert_true(gguf_item_float(kv, 1) == -2.0);
    const struct gguf_tensor *a = gguf_find_tensor(&g, "a"), *b = gguf_find_tensor(&g, "b");
    assert_int_equal(a->bytes, 256);
    assert_int_equal(a->ne[2], 1);
    assert_int_equal(gguf_tensor_rows(a), 2);
    assert_int_equal(gguf_tensor_row_bytes(a), 128);
    assert_int_equal(b->bytes, 34);
    assert_ptr_equal(b->data, a->data + 256);
    assert_int_equal(b->data[1], (256 + 1) * 7 % 256 + 3);
    char shape[64];
    assert_string_equal(gguf_tensor_shape(a, shape, sizeof shape), "32 x 2");
    assert_null(gguf_find_tensor(&g, "c"));
    assert_null(gguf_find_key(&g, "llama.none"));
    gguf_close(&g);
}

static void test_percent_stands_for_the_architecture(void **state)
{
    (void)state;
    struct gguf g;
    uint32_t n;
    make_small_file(&file);
    open_file(&g);
    assert_int_equal(gguf_get_u32(&g, "%.block_count", &n, NULL), ZP_OK);
    assert_int_equal(n, 7);
    gguf_close(&g);
}

/* ---- getters */

static void test_missing_key_is_named(void **state)
{
    (void)state;
    struct gguf g;
    uint32_t n = 9;
    zp_err err = {0};
    make_small_file(&file);
    open_file(&g);
    assert_int_equal(gguf_get_u32(&g, "%.context_length", &n, &err), ZP_BAD_FILE);
    assert_string_equal(err.message, "t.gguf: key llama.context_length is missing");
    assert_int_equal(gguf_get_u32_or(&g, "%.context_length", 5, &n, NULL), ZP_OK);
    assert_int_equal(n, 5);
    err = (zp_err){0};
    const struct gguf_tensor *t;
    assert_int_equal(gguf_get_tensor(&g, "blk.0.x", &t, &err), ZP_BAD_FILE);
    assert_string_equal(err.message, "t.gguf: tensor blk.0.x is missing");
    gguf_close(&g);
}

static void test_wrong_type_is_named(void **state)
{
    (void)state;
    struct gguf g;
    uint32_t n;
    bool b;
    const struct gguf_kv *kv;
    zp_err err = {0};
    make_small_file(&file);
    open_file(&g);
    assert_int_equal(gguf_get_u32_or(&g, "a.flag", 1, &n, &err), ZP_BAD_FILE);
    assert_string_equal(err.message, "t.gguf: key a.flag holds a bool, expected an integer");
    err = (zp_err){0};
    assert_int_equal(gguf_get_bool(&g, "%.block_count", &b, &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "holds a u32, expected a bool"));
    err = (zp_err){0};
    assert_int_equal(gguf_get_array(&g, "tokenizer.ggml.tokens", GGUF_ANY_INT, &kv, &err),
                     ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "holds an array of string, expected an array of integers"));
    assert_null(kv);
    gguf_close(&g);
}

static void test_any_integer_type_in_range_counts(void **state)
{
    (void)state;
    struct gguf g;
    uint32_t n = 0;
    float f = 0;
    zp_err err = {0};
    put_head(&file, 3, 0, 4);
    put_kv(&file, "a", 11), put_u64(&file, 32);
    put_kv(&file, "b", 5), put_u32(&file, (uint32_t)-1);
    put_kv(&file, "c", 10), put_u64(&file, 1ull << 32);
    put_kv(&file, "d", 6), put_u32(&file, 0x7fc00000); /* NaN */
    open_file(&g);
    assert_int_equal(gguf_get_u32(&g, "a", &n, NULL), ZP_OK);
    assert_int_equal(n, 32);
    assert_int_equal(gguf_get_f32(&g, "a", &f, NULL), ZP_OK);
    assert_true(f == 32.0f);
    assert_int_equal(gguf_get_u32(&g, "b", &n, &err), ZP_BAD_FILE);
    assert_string_equal(err.message, "t.gguf: key b is -1, expected 0 to 4294967295");
    assert_int_equal(gguf_get_u32(&g, "c", &n, NULL), ZP_BAD_FILE);
    assert_int_equal(gguf_get_f32(&g, "d", &f, NULL), ZP_BAD_FILE);
    gguf_close(&g);
}

static void test_one_number_or_one_per_layer(void **state)
{
    (void)state;
    struct gguf g;
    uint32_t u[3];
    float f[3];
    bool found;
    put_head(&file, 3, 0, 3);
    put_kv_u32(&file, "one", 4);
    put_kv_array(&file, "each", 7, 3);
    put_u8(&file, 1), put_u8(&file, 0), put_u8(&file, 1);
    put_kv_array(&file, "f", 6, 3);
    put_f32(&file, 1), put_f32(&file, 2), put_f32(&file, 3);
    open_file(&g);
    assert_int_equal(gguf_get_u32_layers(&g, "one", 3, u, &found, NULL), ZP_OK);
    assert_true(found && u[0] == 4 && u[2] == 4);
    assert_int_equal(gguf_get_u32_layers(&g, "each", 3, u, &found, NULL), ZP_OK);
    assert_true(u[0] == 1 && u[1] == 0 && u[2] == 1);
    assert_int_equal(gguf_get_u32_layers(&g, "each", 2, u, &found, NULL), ZP_BAD_FILE);
    assert_int_equal(gguf_get_f32_layers(&g, "f", 3, f, &found, NULL), ZP_OK);
    assert_true(f[0] == 1 && f[2] == 3);
    assert_int_equal(gguf_get_u32_layers(&g, "f", 3, u, &found, NULL), ZP_BAD_FILE);
    assert_int_equal(gguf_get_f32_layers(&g, "none", 3, f, &found, NULL), ZP_OK);
    assert_false(found);
    gguf_close(&g);
}

/* ---- damaged files */

static void test_truncated_file_names_the_tensor(void **state)
{
    (void)state;
    put_head(&file, 3, 2, 0);
    put_tensor(&file, "blk.7.ffn_up.weight", 32, 80, 0, 0);
    put_tensor(&file, "blk.7.ffn_down.weight", 32, 80, 0, 10240);
    put_padding(&file, 32);
    size_t begin = file.size;
    put_data(&file, 10240);
    char expected[256];
    file.size = begin + 10239;
    snprintf(expected, sizeof expected,
             "tensor blk.7.ffn_up.weight ends at %zu,%03zu but the file has %zu,%03zu bytes: the "
             "download is incomplete",
             (begin + 10240) / 1000, (begin + 10240) % 1000, file.size / 1000, file.size % 1000);
    assert_refused(ZP_BAD_FILE, expected);
    file.size = begin + 10240;
    assert_refused(ZP_BAD_FILE, "tensor blk.7.ffn_down.weight ends at");
}

static void test_every_prefix_is_refused(void **state)
{
    (void)state;
    struct gguf g;
    make_small_file(&file);
    size_t full = file.size - 30; /* the padding after the last tensor is not needed */
    for (size_t size = 0; size < full; size++) {
        uint8_t *copy = malloc(size + 1); /* so that a sanitizer sees the first byte beyond */
        zp_err err = {0};
        memcpy(copy, file.data, size);
        if (gguf_open_bytes(&g, copy, size, "t", &err) == ZP_OK) fail_msg("%zu bytes pass", size);
        assert_int_not_equal(err.code, ZP_OK);
        free(copy);
    }
}

static void test_single_flipped_bits_never_break_the_reader(void **state)
{
    (void)state;
    struct gguf g;
    make_small_file(&file);
    size_t refused = 0, header = file.size - 320;
    for (size_t bit = 0; bit < header * 8; bit++) {
        file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        zp_err err = {0};
        if (gguf_open_bytes(&g, file.data, file.size, "t", &err) != ZP_OK) {
            assert_true(err.message[0] != 0);
            refused++;
        }
        for (uint32_t i = 0; i < g.n_tensors; i++) { // G2
            assert_true(g.tensors[i].data >= file.data);
            assert_true(g.tensors[i].data + g.tensors[i].bytes <= file.data + file.size);
        }
        gguf_close(&g);
        file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(refused > header * 8 / 4); /* flips inside names and values change only those */
}

static void test_huge_counts_take_no_memory(void **state)
{
    (void)state;
    struct mem_stats stats;
    uint64_t before = live_bytes();
    put_head(&file, 3, 0, UINT64_MAX);
    assert_refused(ZP_BAD_FILE, "18,446,744,073,709,551,615 keys, at most 65,536");
    put_head(&file, 3, 1u << 21, 0);
    assert_refused(ZP_BAD_FILE, "2,097,152 tensors, at most 1,048,576");
    put_head(&file, 3, 1u << 20, 0);
    assert_refused(ZP_BAD_FILE, "1,048,576 tensors do not fit into the 0 bytes left");
    put_head(&file, 3, 0, 1);
    put_kv_array(&file, "k", 10, 1ull << 61);
    assert_refused(ZP_BAD_FILE, "key k: 2,305,843,009,213,693,952 items of type u64");
    put_head(&file, 3, 0, 1);
    put_kv_array(&file, "k", 8, 1ull << 30);
    assert_refused(ZP_BAD_FILE, "key k: 1,073,741,824 items of type string");
    assert_int_equal(live_bytes(), before);
    mem_stats_read(&stats);
    assert_true(stats.peak[MEM_META] < 1 << 20);
}

static void test_oversized_strings_are_refused(void **state)
{
    (void)state;
    put_head(&file, 3, 0, 1);
    put_kv(&file, "k", 8), put_u64(&file, (16 << 20) + 1);
    assert_refused(ZP_BAD_FILE, "key k: a string of 16,777,217 bytes, at most 16,777,216");
    put_head(&file, 3, 0, 1);
    put_kv(&file, "k", 8), put_u64(&file, 1000);
    assert_refused(ZP_BAD_FILE, "a string");
    put_head(&file, 3, 0, 1); /* longer by name, but then the bytes must be there */
    put_kv(&file, "tokenizer.chat_template", 8), put_u64(&file, 17 << 20);
    assert_refused(ZP_BAD_FILE, "cut short");
    put_head(&file, 3, 0, 1);
    put_u64(&file, 65536), put_data(&file, 16);
    assert_refused(ZP_BAD_FILE, "a key name of 65,536 bytes");
}

static void test_wrong_values_are_refused(void **state)
{
    (void)state;
    put_head(&file, 3, 0, 1);
    put_kv(&file, "k", 7), put_u8(&file, 2);
    assert_refused(ZP_BAD_FILE, "key k: bool 0 has the value 2");
    put_head(&file, 3, 0, 1);
    put_kv_array(&file, "k", 7, 2), put_u8(&file, 1), put_u8(&file, 7);
    assert_refused(ZP_BAD_FILE, "key k: bool 1 has the value 7");
    put_head(&file, 3, 0, 1);
    put_kv_array(&file, "k", 9, 1), put_data(&file, 20);
    assert_refused(ZP_BAD_FILE, "key k: an array of arrays");
    put_head(&file, 3, 0, 1);
    put_kv(&file, "k", 13), put_data(&file, 8);
    assert_refused(ZP_BAD_FILE, "key k: value type 13");
    put_head(&file, 3, 0, 2);
    put_kv_u32(&file, "k", 1), put_kv_str(&file, "k", "again");
    assert_refused(ZP_BAD_FILE, "key k appears twice");
    put_head(&file, 3, 0, 1);
    put_kv_u32(&file, "a\nb", 1);
    assert_refused(ZP_BAD_FILE, "not printable UTF-8");
    put_head(&file, 3, 0, 1);
    put_kv_str(&file, "general.architecture", "no such arch!");
    assert_refused(ZP_BAD_FILE, "general.architecture is not a name");
}

static void test_other_versions_are_refused_by_name(void **state)
{
    (void)state;
    put_head(&file, 1, 0, 0);
    assert_refused(ZP_UNSUPPORTED, "GGUF version 1");
    put_head(&file, 4, 0, 0);
    assert_refused(ZP_UNSUPPORTED, "GGUF version 4");
    put_head(&file, 0, 0, 0);
    assert_refused(ZP_UNSUPPORTED, "GGUF version 0");
    put_head(&file, 0x03000000, 0, 0);
    assert_refused(ZP_UNSUPPORTED, "big-endian");
    put_head(&file, 3, 0, 0);
    memcpy(file.data, "GGML", 4);
    assert_refused(ZP_BAD_FILE, "not a GGUF file");
}

static void test_version_2_is_read(void **state)
{
    (void)state;
    struct gguf g;
    make_small_file(&file);
    file.data[4] = 2;
    open_file(&g);
    assert_int_equal(g.version, 2);
    gguf_close(&g);
}

static void test_alignment_is_checked(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1, 4, 24, 1u << 21, 0x80000000u};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_head(&file, 3, 0, 1);
        put_kv_u32(&file, "general.alignment", bad[i]);
        assert_refused(ZP_BAD_FILE, "expected a power of two from 8 to 1048576");
    }
    put_head(&file, 3, 0, 1);
    put_kv(&file, "general.alignment", 10), put_u64(&file, 32);
    assert_refused(ZP_BAD_FILE, "general.alignment has the type u64, expected u32");
    struct gguf g;
    put_head(&file, 3, 1, 1);
    put_kv_u32(&file, "general.alignment", 256);
    put_tensor(&file, "t", 4, 0, 0, 0);
    put_padding(&file, 256);
    put_data(&file, 16);
    open_file(&g);
    assert_int_equal(g.tensors[0].offset, 256);
    gguf_close(&g);
}

/* ---- wrong tensors */

/* One tensor with these fields, 4 KiB of data behind. */
static void one_tensor(const char *name, uint64_t ne0, uint64_t ne1, uint32_t type, uint64_t offset)
{
    put_head(&file, 3, 1, 0);
    put_tensor(&file, name, ne0, ne1, type, offset);
    put_padding(&file, 32);
    put_data(&file, 4096);
}

static void test_wrong_tensors_are_refused_by_name(void **state)
{
    (void)state;
    static const uint32_t unknown[] = {4, 5, 31, 36, 99, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        one_tensor("odd", 32, 0, unknown[i], 0);
        assert_refused(ZP_UNSUPPORTED, "tensor odd has the unknown type number");
    }
    one_tensor("t", 0, 4, 0, 0);
    assert_refused(ZP_BAD_FILE, "tensor t: dimension 0 is 0");
    one_tensor("t", 33, 2, 8, 0);
    assert_refused(ZP_BAD_FILE, "tensor t: rows of 33 weights are not a multiple of 32");
    one_tensor("t", 1ull << 40, 1ull << 40, 0, 0);
    assert_refused(ZP_BAD_FILE, "tensor t: its size overflows");
    one_tensor("t", 1ull << 62, 2, 0, 0);
    assert_refused(ZP_BAD_FILE, "tensor t: its size overflows");
    one_tensor("t", UINT64_MAX, 0, 0, 0);
    assert_refused(ZP_BAD_FILE, "tensor t: dimension 0 is");
    one_tensor("t", 4, 0, 0, 16);
    assert_refused(ZP_BAD_FILE, "tensor t begins at 16, not a multiple of the alignment 32");
    one_tensor("t", 4, 0, 0, UINT64_MAX - 31);
    assert_refused(ZP_BAD_FILE, "tensor t: its place overflows");
    one_tensor("t", 4, 0, 0, 4096);
    assert_refused(ZP_BAD_FILE, "tensor t ends at");
    char name[65];
    memset(name, 'n', 64);
    name[64] = 0;
    one_tensor(name, 4, 0, 0, 0);
    assert_refused(ZP_BAD_FILE, "a tensor name of 64 bytes");
    put_head(&file, 3, 1, 0);
    put_str(&file, "t"), put_u32(&file, 5), put_data(&file, 64);
    assert_refused(ZP_BAD_FILE, "tensor t has 5 dimensions");
    put_head(&file, 3, 1, 0);
    put_str(&file, "t"), put_u32(&file, 0), put_data(&file, 64);
    assert_refused(ZP_BAD_FILE, "tensor t has 0 dimensions");
}

static void test_overlapping_tensors_are_refused(void **state)
{
    (void)state;
    static const uint64_t offsets[][3] = {{0, 64, 32}, {0, 0, 256}, {256, 0, 224}, {64, 128, 96}};
    for (size_t i = 0; i < 4; i++) {
        put_head(&file, 3, 3, 0);
        put_tensor(&file, "a", 16, 0, 0, offsets[i][0]);
        put_tensor(&file, "b", 16, 0, 0, offsets[i][1]);
        put_tensor(&file, "c", 16, 0, 0, offsets[i][2]);
        put_padding(&file, 32);
        put_data(&file, 512);
        assert_refused(ZP_BAD_FILE, "overlap");
    }
    put_head(&file, 3, 2, 0);
    put_tensor(&file, "same", 16, 0, 0, 0);
    put_tensor(&file, "same", 16, 0, 0, 64);
    put_padding(&file, 32);
    put_data(&file, 128);
    assert_refused(ZP_BAD_FILE, "tensor same appears twice");
}

static void test_tensors_in_any_order_are_fine(void **state)
{
    (void)state;
    struct gguf g;
    put_head(&file, 3, 3, 0);
    put_tensor(&file, "a", 16, 0, 0, 128);
    put_tensor(&file, "b", 16, 0, 0, 0);
    put_tensor(&file, "c", 16, 0, 0, 64);
    put_padding(&file, 32);
    put_data(&file, 192);
    open_file(&g);
    assert_string_equal(g.tensors[0].name, "a");
    assert_true(g.tensors[0].data > g.tensors[2].data);
    gguf_close(&g);
}

/* ---- files */

static void write_bytes(const char *path)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(file.data, 1, file.size, f), file.size);
    fclose(f);
}

static void test_what_is_no_file_is_said(void **state)
{
    (void)state;
    struct gguf g;
    zp_err err = {0};
    assert_int_equal(gguf_open(&g, "/tmp", &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "folder"));
    err = (zp_err){0};
    assert_int_equal(gguf_open(&g, "/nonexistent/x.gguf", &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "/nonexistent/x.gguf"));
    char path[64];
    snprintf(path, sizeof path, "/tmp/zp-empty-%d.gguf", (int)getpid());
    file.size = 0;
    write_bytes(path);
    err = (zp_err){0};
    assert_int_equal(gguf_open(&g, path, &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "is empty (0 bytes): the download may have failed"));
    unlink(path);
}

static char folder[64];

static const char *part_path(unsigned no, unsigned count)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", folder, no, count);
    return path;
}

/* Part no (from 0) of count, with one tensor of its own. */
static void write_part(unsigned no, unsigned count, uint16_t said_no, uint16_t said_count,
                       uint32_t total)
{
    char name[16];
    put_head(&file, 3, 1, 4);
    put_kv_str(&file, "general.architecture", "llama");
    put_kv(&file, "split.no", 2), put(&file, &said_no, 2);
    put_kv(&file, "split.count", 2), put(&file, &said_count, 2);
    put_kv(&file, "split.tensors.count", 5), put_u32(&file, total);
    snprintf(name, sizeof name, "t%u", no);
    put_tensor(&file, name, 8, 0, 0, 0);
    put_padding(&file, 32);
    put_data(&file, 32);
    write_bytes(part_path(no + 1, count));
}

static void assert_split_refused(unsigned no, const char *part)
{
    struct gguf g;
    zp_err err = {0};
    assert_int_not_equal(gguf_open(&g, part_path(no, 3), &err), ZP_OK);
    if (strstr(err.message, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
}

static void test_a_split_is_one_model(void **state)
{
    (void)state;
    struct gguf g;
    zp_err err = {0};
    for (unsigned i = 0; i < 3; i++) write_part(i, 3, (uint16_t)i, 3, 3);
    for (unsigned opened = 1; opened <= 3; opened++) {
        if (gguf_open(&g, part_path(opened, 3), &err) != ZP_OK) fail_msg("%s", err.message);
        assert_int_equal(g.n_tensors, 3);
        assert_int_equal(g.n_kv, 4);
        assert_int_equal(g.n_maps, 3);
        assert_int_equal(gguf_find_tensor(&g, "t2")->shard, 2);
        assert_int_equal(g.file_bytes, 3 * file.size);
        gguf_close(&g);
    }
}

/* Part 2 of 2 with one key more than it needs; part 1 is a llama with a base of 10000. */
static void write_two_parts(void (*put_key)(void))
{
    for (unsigned i = 0; i < 2; i++) {
        uint16_t no = (uint16_t)i, count = 2;
        put_head(&file, 3, 0, i == 0 || put_key != NULL ? 4 : 3);
        put_kv(&file, "split.no", 2), put(&file, &no, 2);
        put_kv(&file, "split.count", 2), put(&file, &count, 2);
        if (i == 0) put_kv_str(&file, "general.architecture", "llama");
        if (i == 0) put_kv(&file, "llama.rope.freq_base", 6), put_f32(&file, 10000.0f);
        if (i == 1) put_kv_u32(&file, "general.alignment", 64); /* a file's own matter */
        if (i == 1 && put_key != NULL) put_key();
        put_padding(&file, 64);
        write_bytes(part_path(i + 1, 2));
    }
}

static void put_arch(void) { put_kv_str(&file, "general.architecture", "qwen2"); }
static void put_base(void) { put_kv(&file, "llama.rope.freq_base", 6), put_f32(&file, 5e5f); }
static void put_total(void) { put_kv_u32(&file, "split.tensors.count", 7); }
static void put_list(void) { put_kv_array(&file, "llama.rope.freq_base", 4, 0); }
static void put_same(void) { put_kv(&file, "llama.rope.freq_base", 6), put_f32(&file, 1e4f); }

static void test_later_parts_say_what_the_first_says(void **state)
{
    (void)state;
    static const struct {
        void (*put_key)(void);
        const char *said;
    } cases[] = {
        {put_arch, "key general.architecture is 'qwen2', but part 1 says 'llama'"},
        {put_base, "key llama.rope.freq_base is 500000, but part 1 says 10000"},
        {put_list, "key llama.rope.freq_base is 0 items of u32, but part 1 says 10000"},
        {put_total, "key split.tensors.count is 7, but part 1 does not have it"},
        {put_same, NULL},
        {NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf g;
        zp_err err = {0};
        write_two_parts(cases[i].put_key);
        zp_status status = gguf_open(&g, part_path(1, 2), &err);
        if (cases[i].said == NULL && status != ZP_OK) fail_msg("%s", err.message);
        if (cases[i].said != NULL && (status != ZP_BAD_FILE || !strstr(err.message, cases[i].said)))
            fail_msg("%s: %s", cases[i].said, err.message);
        gguf_close(&g);
    }
    unlink(part_path(1, 2)), unlink(part_path(2, 2));
}

static void test_an_inconsistent_split_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) write_part(i, 3, (uint16_t)i, 3, 4);
    assert_split_refused(1, "the parts hold 3 tensors, split.tensors.count says 4");
    write_part(0, 3, 0, 3, 3);
    write_part(1, 3, 2, 3, 3);
    assert_split_refused(1, "split.no is 2, but the file name says part 1");
    write_part(1, 3, 1, 5, 3);
    assert_split_refused(2, "split.count is 5, but the file name says 3");
    make_small_file(&file);
    write_bytes(part_path(2, 3));
    assert_split_refused(1, "named like part 2 of 3, but split.no or split.count is missing");
    write_part(1, 3, 1, 3, 3);
    assert_int_equal(unlink(part_path(3, 3)), 0);
    assert_split_refused(1, "m-00003-of-00003.gguf");
    char renamed[128];
    zp_err err = {0};
    struct gguf g;
    snprintf(renamed, sizeof renamed, "%s/renamed.gguf", folder);
    assert_int_equal(rename(part_path(1, 3), renamed), 0);
    assert_int_equal(gguf_open(&g, renamed, &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "one of 3 parts"));
    unlink(renamed);
    static const char *const names[] = { "m-00000-of-00000.gguf", "m-00000-of-00003.gguf",
                                         "m-00004-of-00003.gguf", "m-00001-of-00000.gguf" };
    make_small_file(&file);
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        snprintf(renamed, sizeof renamed, "%s/%s", folder, names[i]);
        write_bytes(renamed);
        err = (zp_err){ 0 };
        assert_int_equal(gguf_open(&g, renamed, &err), ZP_BAD_FILE);
        assert_non_null(strstr(err.message, "which there cannot be"));
        unlink(renamed);
    }
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    struct gguf g;
    for (unsigned i = 0; i < 3; i++) write_part(i, 3, (uint16_t)i, 3, 3);
    uint64_t before = live_bytes();
    unsigned n = 1;
    for (;; n++) {
        zp_err err = {0};
        mem_fail_at(n, false);
        zp_status status = gguf_open(&g, part_path(1, 3), &err);
        bool injected = mem_fail_count() > 0;
        mem_fail_at(0, false);
        gguf_close(&g);
        assert_int_equal(live_bytes(), before);
        if (!injected) break;
        assert_int_equal(status, ZP_NO_MEMORY);
        assert_int_equal(err.code, ZP_NO_MEMORY);
    }
    assert_true(n > 5);
}

/* ---- the real models */

static void check_model(const char *name, const char *arch, uint32_t n_kv, uint32_t n_tensors,
                        uint32_t n_layer, uint32_t n_vocab)
{
    struct gguf g;
    zp_err err = {0};
    uint32_t layers;
    const struct gguf_kv *tokens;
    if (gguf_open(&g, test_model_path(name), &err) != ZP_OK) fail_msg("%s", err.message);
    assert_string_equal(g.arch, arch);
    assert_int_equal(g.n_kv, n_kv);
    assert_int_equal(g.n_tensors, n_tensors);
    assert_int_equal(gguf_get_u32(&g, "%.block_count", &layers, &err), ZP_OK);
    assert_int_equal(layers, n_layer);
    assert_int_equal(gguf_get_array(&g, "tokenizer.ggml.tokens", GGUF_STRS, &tokens, &err), ZP_OK);
    assert_int_equal(tokens->count, n_vocab);
    assert_int_equal(gguf_find_tensor(&g, "token_embd.weight")->ne[1], n_vocab);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g.n_tensors; i++) bytes += g.tensors[i].bytes;
    assert_true(bytes < g.file_bytes && bytes > g.file_bytes / 10 * 9);
    gguf_close(&g);
}

static void test_the_real_models_open(void **state)
{
    (void)state;
    check_model(SMOLLM2_FILE, "llama", 33, 272, 30, 49152);
    check_model(GEMMA3_FILE, "gemma3", 33, 236, 18, 262144);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/zp-gguf-%d", (int)getpid());
    zp_err err;
    return os_make_folders(folder, &err) == ZP_OK ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 3; i++) unlink(part_path(i, 3));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_huge_counts_take_no_memory), /* first: looks at peak memory */
        cmocka_unit_test(test_every_value_type_is_read),
        cmocka_unit_test(test_small_file_is_read_whole),
        cmocka_unit_test(test_percent_stands_for_the_architecture),
        cmocka_unit_test(test_missing_key_is_named),
        cmocka_unit_test(test_wrong_type_is_named),
        cmocka_unit_test(test_any_integer_type_in_range_counts),
        cmocka_unit_test(test_one_number_or_one_per_layer),
        cmocka_unit_test(test_truncated_file_names_the_tensor),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_single_flipped_bits_never_break_the_reader),
        cmocka_unit_test(test_oversized_strings_are_refused),
        cmocka_unit_test(test_wrong_values_are_refused),
        cmocka_unit_test(test_other_versions_are_refused_by_name),
        cmocka_unit_test(test_version_2_is_read),
        cmocka_unit_test(test_alignment_is_checked),
        cmocka_unit_test(test_wrong_tensors_are_refused_by_name),
        cmocka_unit_test(test_overlapping_tensors_are_refused),
        cmocka_unit_test(test_tensors_in_any_order_are_fine),
        cmocka_unit_test(test_what_is_no_file_is_said),
        cmocka_unit_test(test_a_split_is_one_model),
        cmocka_unit_test(test_an_inconsistent_split_is_refused),
        cmocka_unit_test(test_later_parts_say_what_the_first_says),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
        cmocka_unit_test(test_the_real_models_open),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_gguf_write.c: editing and writing: identical bytes, order, atomicity, callbacks. */
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
#include "model/gguf_write.h"
#include "gguf_bytes.h"
#include "live_bytes.h"
#include "models.h"

static char folder[64], out_path[96], in_path[96];

static void ok(zp_status status, const zp_err *err)
{
    if (status != ZP_OK) fail_msg("%s", err->message);
}

static void write_small_file(void)
{
    static struct bytes b;
    zp_err err = {0};
    make_small_file(&b);
    ok(os_write_file(in_path, b.data, b.size, &err), &err);
}

static void rewrite(const char *from, const char *to)
{
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    ok(gguf_open(&g, from, &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    ok(gguf_edit_write(&e, to, &err), &err);
    gguf_edit_free(&e);
    gguf_close(&g);
}

static void assert_same_files(const char *a, const char *b)
{
    struct os_map x, y;
    zp_err err = {0};
    ok(os_map_file(&x, a, &err), &err);
    ok(os_map_file(&y, b, &err), &err);
    assert_int_equal(x.size, y.size);
    assert_int_equal(memcmp(x.data, y.data, x.size), 0);
    os_unmap(&x);
    os_unmap(&y);
}

/* Names of all files of the folder, joined: a temporary left behind would show. */
static const char *files_there(void)
{
    static char text[512];
    char **names;
    size_t count;
    zp_err err = {0};
    ok(os_list_files(folder, &names, &count, &err), &err);
    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        const char *base = strrchr(names[i], '/');
        strncat(text, base + 1, sizeof text - strlen(text) - 1);
        strncat(text, " ", sizeof text - strlen(text) - 1);
    }
    os_list_free(names, count);
    return text;
}

/* ---- whole files */

static void test_rewriting_gives_identical_bytes(void **state)
{
    (void)state;
    write_small_file();
    rewrite(in_path, out_path);
    assert_same_files(in_path, out_path); /* the file was written by hand, by the same rules */
}

static void test_rewriting_real_models_gives_identical_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {SMOLLM2_FILE, GEMMA3_FILE};
    for (size_t i = 0; i < 2; i++) {
        rewrite(test_model_path(names[i]), out_path);
        assert_same_files(test_model_path(names[i]), out_path);
    }
    unlink(out_path);
}

static void test_foreign_layouts_keep_every_tensor_and_unknown_keys(void **state)
{
    (void)state;
    static struct bytes b;
    struct gguf g, h;
    struct gguf_edit e;
    zp_err err = {0};
    put_head(&b, 2, 2, 2); /* version 2, tensors out of order with a gap, unknown key of odd type */
    put_kv(&b, "someone.elses", 1), put_u8(&b, 0x80);
    put_kv_array(&b, "empty", 8, 0);
    put_tensor(&b, "late", 16, 0, 0, 256);
    put_tensor(&b, "early", 16, 0, 0, 64);
    put_padding(&b, 32);
    put_data(&b, 320);
    ok(gguf_open_bytes(&g, b.data, b.size, "t", &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    ok(gguf_edit_write(&e, out_path, &err), &err);
    ok(gguf_open(&h, out_path, &err), &err);
    assert_int_equal(h.version, 3);
    assert_int_equal(h.n_kv, 2);
    assert_string_equal(h.kvs[0].name, "someone.elses");
    assert_int_equal(h.kvs[0].type, GGUF_I8);
    assert_int_equal(gguf_item_int(&h.kvs[0], 0), -128);
    assert_int_equal(h.kvs[1].count, 0);
    assert_string_equal(h.tensors[0].name, "late");
    assert_ptr_equal(h.tensors[1].data, h.tensors[0].data + 64); /* contiguous now */
    for (int i = 0; i < 2; i++)
        assert_memory_equal(h.tensors[i].data, g.tensors[i].data, g.tensors[i].bytes);
    gguf_close(&h);
    gguf_edit_free(&e);
    gguf_close(&g);
    rewrite(out_path, in_path);
    assert_same_files(in_path, out_path);
}

static void test_output_may_be_the_mapped_input(void **state)
{
    (void)state;
    struct gguf g, h;
    struct gguf_edit e;
    zp_err err = {0};
    write_small_file();
    ok(gguf_open(&g, in_path, &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    ok(gguf_edit_set_str(&e, "general.name", "longer than before, so that all offsets move", &err),
       &err);
    ok(gguf_edit_write(&e, in_path, &err), &err);
    ok(gguf_open(&h, in_path, &err), &err);
    assert_int_equal(h.n_kv, g.n_kv + 1);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(h.tensors[i].data, g.tensors[i].data, g.tensors[i].bytes);
    gguf_close(&h);
    gguf_edit_free(&e);
    gguf_close(&g);
}

static void test_a_split_becomes_one_file(void **state)
{
    (void)state;
    char part[2][128], name[8];
    static struct bytes b;
    zp_err err = {0};
    struct gguf g;
    for (uint16_t i = 0; i < 2; i++) {
        put_head(&b, 3, 1, 3);
        put_kv(&b, "split.no", 2), put(&b, &i, 2);
        put_kv(&b, "split.count", 2), put(&b, &(uint16_t){2}, 2);
        put_kv_str(&b, "general.architecture", "llama");
        snprintf(name, sizeof name, "t%u", i);
        put_tensor(&b, name, 8 + 8 * i, 0, 0, 0);
        put_padding(&b, 32);
        put_data(&b, 64);
        snprintf(part[i], sizeof part[i], "%s/s-%05u-of-00002.gguf", folder, i + 1u);
        ok(os_write_file(part[i], b.data, b.size, &err), &err);
    }
    rewrite(part[1], out_path);
    ok(gguf_open(&g, out_path, &err), &err);
    assert_int_equal(g.n_kv, 1);
    assert_int_equal(g.n_tensors, 2);
    assert_int_equal(gguf_find_tensor(&g, "t1")->ne[0], 16);
    gguf_close(&g);
    unlink(part[0]);
    unlink(part[1]);
}

/* ---- edits */

static void test_edits_keep_places_and_reach_the_file(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    static const int32_t ids[3] = {-1, 0, 7};
    static const float values[2] = {0.5f, -0.0f};
    static const uint8_t flags[2] = {1, 0};
    static const struct gguf_str words[2] = {{"a\0b", 3}, {"", 0}};
    write_small_file();
    ok(gguf_open(&g, in_path, &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    ok(gguf_edit_set_f32(&e, "%.block_count", 2.5f, &err), &err); /* the type may change */
    ok(gguf_edit_set_u64(&e, "new.u64", UINT64_MAX, &err), &err);
    ok(gguf_edit_set_i32(&e, "new.i32", -5, &err), &err);
    ok(gguf_edit_set_bool(&e, "new.bool", true, &err), &err);
    ok(gguf_edit_set_array(&e, "new.ids", GGUF_I32, ids, 3, &err), &err);
    ok(gguf_edit_set_array(&e, "new.values", GGUF_F32, values, 2, &err), &err);
    ok(gguf_edit_set_array(&e, "new.flags", GGUF_BOOL, flags, 2, &err), &err);
    ok(gguf_edit_set_strs(&e, "new.words", words, 2, &err), &err);
    ok(gguf_edit_set_array(&e, "new.none", GGUF_U32, NULL, 0, &err), &err);
    assert_true(gguf_edit_remove_key(&e, "tokenizer.ggml.tokens"));
    assert_false(gguf_edit_remove_key(&e, "tokenizer.ggml.tokens"));
    ok(gguf_edit_write(&e, out_path, &err), &err);
    gguf_edit_free(&e);
    gguf_close(&g);

    float f;
    const struct gguf_kv *kv;
    ok(gguf_open(&g, out_path, &err), &err);
    assert_string_equal(g.kvs[1].name, "llama.block_count");
    assert_string_equal(g.kvs[2].name, "tokenizer.ggml.scores");
    ok(gguf_get_f32(&g, "%.block_count", &f, &err), &err);
    assert_true(f == 2.5f);
    ok(gguf_get_array(&g, "new.ids", GGUF_ANY_INT, &kv, &err), &err);
    assert_int_equal(gguf_item_int(kv, 0), -1);
    ok(gguf_get_array(&g, "new.flags", GGUF_BOOLS, &kv, &err), &err);
    assert_int_equal(gguf_item_int(kv, 0), 1);
    ok(gguf_get_array(&g, "new.words", GGUF_STRS, &kv, &err), &err);
    assert_int_equal(gguf_item_str(kv, 0).size, 3);
    assert_int_equal(gguf_item_str(kv, 0).data[2], 'b');
    ok(gguf_get_array(&g, "new.none", GGUF_ANY_INT, &kv, &err), &err);
    assert_int_equal(kv->count, 0);
    gguf_close(&g);
}

static void test_architecture_is_renamed_with_its_keys(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    write_small_file();
    ok(gguf_open(&g, in_path, &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    ok(gguf_edit_set_u32(&e, "llama2.block_count", 1, &err), &err); /* only looks alike */
    ok(gguf_edit_rename_arch(&e, "zerope-llama", &err), &err);
    assert_non_null(gguf_edit_find_key(&e, "zerope-llama.block_count"));
    assert_ptr_equal(gguf_edit_find_key(&e, "%.block_count"), &e.kvs[1]);
    assert_null(gguf_edit_find_key(&e, "llama.block_count"));
    assert_non_null(gguf_edit_find_key(&e, "llama2.block_count"));
    ok(gguf_edit_set_u32(&e, "qwen3.block_count", 1, &err), &err);
    assert_int_equal(gguf_edit_rename_arch(&e, "qwen3", &err), ZP_BAD_INPUT);
    err = (zp_err){0};
    assert_int_equal(gguf_edit_rename_arch(&e, "not a name", &err), ZP_BAD_FILE);
    gguf_edit_free(&e);
    gguf_close(&g);
}

static void test_alignment_key_moves_the_tensors(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    write_small_file();
    ok(gguf_open(&g, in_path, &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    assert_int_equal(gguf_edit_set_u32(&e, "general.alignment", 48, &err), ZP_BAD_FILE);
    err = (zp_err){0};
    ok(gguf_edit_set_u32(&e, "general.alignment", 4096, &err), &err);
    ok(gguf_edit_write(&e, out_path, &err), &err);
    gguf_edit_free(&e);
    gguf_close(&g);
    ok(gguf_open(&g, out_path, &err), &err);
    assert_int_equal(g.alignment, 4096);
    assert_int_equal(g.tensors[1].offset % 4096, 0);
    assert_int_equal(g.file_bytes % 4096, 0);
    gguf_close(&g);
}

static void test_tensors_are_added_replaced_and_removed(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err err = {0};
    static const float ones[4] = {1, 2, 3, 4};
    static const uint64_t ne[2] = {2, 2};
    uint64_t predicted;
    write_small_file();
    ok(gguf_open(&g, in_path, &err), &err);
    ok(gguf_edit_init(&e, &g, &err), &err);
    ok(gguf_edit_set_tensor_f32(&e, "rope_freqs.weight", 2, ne, ones, &err), &err);
    ok(gguf_edit_set_tensor_f32(&e, "a", 1, ne, ones, &err), &err);
    assert_true(gguf_edit_remove_tensor(&e, "b"));
    assert_false(gguf_edit_remove_tensor(&e, "b"));
    ok(gguf_edit_file_bytes(&e, &predicted, &err), &err);
    ok(gguf_edit_write(&e, out_path, &err), &err);
    gguf_edit_free(&e);
    gguf_close(&g);
    ok(gguf_open(&g, out_path, &err), &err);
    assert_int_equal(g.file_bytes, predicted);
    assert_int_equal(g.n_tensors, 2);
    assert_string_equal(g.tensors[0].name, "a");
    assert_int_equal(g.tensors[0].bytes, 8);
    assert_memory_equal(g.tensors[1].data, ones, 16);
    gguf_close(&g);
}

static void test_wrong_tensors_are_not_accepted(void **state)
{
    (void)state;
    struct gguf_edit e;
    zp_err err = {0};
    struct gguf_edit_tensor t = {.name = "t", .type = 8, .n_dims = 1, .ne = {33}, .data = "x"};
    ok(gguf_edit_init(&e, NULL, &err), &err);
    assert_int_equal(gguf_edit_set_tensor(&e, &t, &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "not a multiple of 32"));
    t.type = 4;
    assert_int_equal(gguf_edit_set_tensor(&e, &t, NULL), ZP_UNSUPPORTED);
    t.type = 0;
    t.name = "0123456789012345678901234567890123456789012345678901234567890123";
    assert_int_equal(gguf_edit_set_tensor(&e, &t, NULL), ZP_BAD_FILE);
    assert_int_equal(e.n_tensors, 0);
    gguf_edit_free(&e);
}

/* ---- callbacks */

struct rows {
    uint64_t next, fail_at;
};

static zp_status fill_rows(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    struct rows *r = arg;
    if (first != r->next) ZP_FAIL(err, ZP_RUN, "row %d out of order", (int)first);
    if (first + n > r->fail_at) ZP_FAIL(err, ZP_INTERRUPTED, "interrupted");
    float *to = out;
    for (uint64_t row = first; row < first + n; row++)
        for (int c = 0; c < 300; c++) *to++ = (float)(row * 300 + (uint64_t)c);
    r->next = first + n;
    return ZP_OK;
}

static void test_callback_writes_the_same_as_a_view(void **state)
{
    (void)state;
    struct gguf_edit e;
    zp_err err = {0};
    enum { ROWS = 2500 }; /* 3 MB: several calls */
    float *all = malloc(ROWS * 300 * sizeof *all);
    struct rows r = {.fail_at = UINT64_MAX};
    for (int i = 0; i < ROWS * 300; i++) all[i] = (float)i;
    struct gguf_edit_tensor t = {.name = "t", .n_dims = 3, .ne = {300, 50, 50}, .data = all};
    ok(gguf_edit_init(&e, NULL, &err), &err);
    ok(gguf_edit_set_tensor(&e, &t, &err), &err);
    ok(gguf_edit_write(&e, in_path, &err), &err);
    t.data = NULL;
    t.fill = fill_rows;
    t.fill_arg = &r;
    ok(gguf_edit_set_tensor(&e, &t, &err), &err);
    ok(gguf_edit_write(&e, out_path, &err), &err);
    assert_same_files(in_path, out_path);
    assert_int_equal(r.next, ROWS);
    gguf_edit_free(&e);
    free(all);
}

/* ---- failures leave the old file */

static void assert_old_file_survives(struct gguf_edit *e, uint64_t disk_bytes, zp_status expected)
{
    zp_err err = {0};
    struct buffer before = buffer_with_max(MEM_META, 1 << 20);
    struct buffer after = buffer_with_max(MEM_META, 1 << 20);
    write_small_file();
    ok(os_read_file(in_path, &before, &err), &err);
    os_fail_writes_after(disk_bytes);
    assert_int_equal(gguf_edit_write(e, in_path, &err), expected);
    assert_int_equal(err.code, expected);
    os_fail_writes_after(UINT64_MAX);
    ok(os_read_file(in_path, &after, NULL), &err);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, before.size);
    assert_string_equal(files_there(), "in.gguf ");
    buffer_free(&before);
    buffer_free(&after);
}

static void test_full_disk_and_interruption_leave_the_old_file(void **state)
{
    (void)state;
    struct gguf_edit e;
    struct rows r = {.fail_at = 1000};
    zp_err err = {0};
    static const uint64_t limits[] = {0, 10, 100000, 2000000};
    unlink(out_path);
    ok(gguf_edit_init(&e, NULL, &err), &err);
    ok(gguf_edit_set_str(&e, "general.architecture", "llama", &err), &err);
    struct gguf_edit_tensor t = {
        .name = "t", .n_dims = 2, .ne = {300, 2500}, .fill = fill_rows, .fill_arg = &r};
    ok(gguf_edit_set_tensor(&e, &t, &err), &err);
    assert_old_file_survives(&e, UINT64_MAX, ZP_INTERRUPTED);
    for (size_t i = 0; i < 4; i++) {
        r = (struct rows){.fail_at = UINT64_MAX};
        assert_old_file_survives(&e, limits[i], ZP_NO_SPACE);
    }
    gguf_edit_free(&e);
}

static zp_status edit_and_write(void)
{
    struct gguf g;
    struct gguf_edit e = {0};
    zp_err err = {0};
    static const float ones[2] = {1, 1};
    static const uint64_t ne[1] = {2};
    static const struct gguf_str words[1] = {{"w", 1}};
    zp_status status = gguf_open(&g, in_path, &err);
    if (status == ZP_OK) status = gguf_edit_init(&e, &g, &err);
    if (status == ZP_OK) status = gguf_edit_rename_arch(&e, "zerope-llama", &err);
    if (status == ZP_OK) status = gguf_edit_set_strs(&e, "words", words, 1, &err);
    if (status == ZP_OK) status = gguf_edit_set_tensor_f32(&e, "t", 1, ne, ones, &err);
    if (status == ZP_OK) status = gguf_edit_write(&e, out_path, &err);
    assert_int_equal(status, err.code);
    gguf_edit_free(&e);
    gguf_close(&g);
    return status;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    write_small_file();
    uint64_t before = live_bytes();
    unsigned n = 1;
    for (;; n++) {
        mem_fail_at(n, false);
        zp_status status = edit_and_write();
        bool injected = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(live_bytes(), before);
        if (!injected) break;
        assert_int_equal(status, ZP_NO_MEMORY);
        assert_string_equal(files_there(), "in.gguf ");
    }
    assert_true(n > 10);
}

static int make_folder(void **state)
{
    (void)state;
    zp_err err;
    snprintf(folder, sizeof folder, "/tmp/zp-gguf-write-%d", (int)getpid());
    snprintf(in_path, sizeof in_path, "%s/in.gguf", folder);
    snprintf(out_path, sizeof out_path, "%s/out.gguf", folder);
    return os_make_folders(folder, &err) == ZP_OK ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(in_path);
    unlink(out_path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewriting_gives_identical_bytes),
        cmocka_unit_test(test_foreign_layouts_keep_every_tensor_and_unknown_keys),
        cmocka_unit_test(test_output_may_be_the_mapped_input),
        cmocka_unit_test(test_a_split_becomes_one_file),
        cmocka_unit_test(test_edits_keep_places_and_reach_the_file),
        cmocka_unit_test(test_architecture_is_renamed_with_its_keys),
        cmocka_unit_test(test_alignment_key_moves_the_tensors),
        cmocka_unit_test(test_tensors_are_added_replaced_and_removed),
        cmocka_unit_test(test_wrong_tensors_are_not_accepted),
        cmocka_unit_test(test_callback_writes_the_same_as_a_view),
        cmocka_unit_test(test_full_disk_and_interruption_leave_the_old_file),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
        cmocka_unit_test(test_rewriting_real_models_gives_identical_bytes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

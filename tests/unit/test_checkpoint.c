/* test_checkpoint.c: checkpoints come back bit by bit; damaged and hostile files and those of other
 * models are refused; a full disk leaves the last good one; folders keep the last few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <utime.h>

#include <cmocka.h>

#include "base/hash.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "train/checkpoint.h"

static const struct checkpoint_key key = { 0x1111, 0x2222, 0x3333 };
static float weights[1000];
static uint64_t counters[3] = { 5, UINT64_MAX, 7 };
static const char config[] = "{\"steps\":100}";

static const struct checkpoint_part parts[] = {
    { "weights", CHECKPOINT_F32, weights, 1000 },
    { "config", CHECKPOINT_U8, config, sizeof config - 1 },
    { "nothing", CHECKPOINT_F64, NULL, 0 },
    { "counters", CHECKPOINT_U64, counters, 3 },
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static void ok(zp_status status, const zp_err *err)
{
    if (status != ZP_OK) fail_msg("%s: %s", zp_status_name(status), err->message);
}

static void refused(zp_status status, zp_status code, const zp_err *err, const char *part)
{
    if (status != code || !strstr(err->message, part))
        fail_msg("%s: '%s' lacks '%s'", zp_status_name(status), err->message, part);
}

static void set_weights(float first)
{
    for (int i = 0; i < 1000; i++) weights[i] = first + (float)i / 7;
}

/* Bytes of a written file, at a multiple of 8. */
struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes read_bytes(const char *path)
{
    zp_err err = { 0 };
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    ok(os_read_file(path, &b, &err), &err);
    return (struct bytes){ b.data, b.size };
}

static struct bytes written(void)
{
    zp_err err = { 0 };
    const char *path = in_folder("one.zpck");
    set_weights(1);
    ok(checkpoint_write(path, 42, &key, parts, N_PARTS, &err), &err);
    return read_bytes(path);
}

static void test_sections_come_back_bit_by_bit(void **state)
{
    (void)state;
    static float again[1000];
    uint64_t numbers[3];
    char text[sizeof config] = "";
    zp_err err = { 0 };
    struct checkpoint c;
    uint64_t live = live_bytes();
    struct bytes b = written();
    mem_free(b.data);
    ok(checkpoint_open(&c, in_folder("one.zpck"), &key, &err), &err);
    assert_int_equal(c.step, 42);
    assert_int_equal(c.n_sections, N_PARTS);
    ok(checkpoint_read(&c, "weights", CHECKPOINT_F32, again, 1000, &err), &err);
    assert_memory_equal(again, weights, sizeof weights);
    ok(checkpoint_read(&c, "counters", CHECKPOINT_U64, numbers, 3, &err), &err);
    assert_memory_equal(numbers, counters, sizeof counters);
    ok(checkpoint_read(&c, "config", CHECKPOINT_U8, text, checkpoint_find(&c, "config")->count,
                       &err), &err);
    assert_string_equal(text, config);
    ok(checkpoint_read(&c, "nothing", CHECKPOINT_F64, NULL, 0, &err), &err);
    assert_int_equal((uintptr_t)(c.data + checkpoint_find(&c, "weights")->offset) % 64, 0);
    refused(checkpoint_read(&c, "weight", CHECKPOINT_F32, again, 1000, &err), ZP_BAD_INPUT, &err,
            "no section weight");
    err.code = ZP_OK;
    refused(checkpoint_read(&c, "weights", CHECKPOINT_F32, again, 999, &err), ZP_BAD_INPUT, &err,
            "1000 of f32, expected 999 of f32");
    err.code = ZP_OK;
    refused(checkpoint_read(&c, "weights", CHECKPOINT_U32, again, 1000, &err), ZP_BAD_INPUT, &err,
            "expected 1000 of u32");
    checkpoint_close(&c);
    assert_int_equal(live_bytes(), live);
}

static void test_another_models_checkpoint_is_refused_by_name(void **state)
{
    (void)state;
    const struct {
        struct checkpoint_key key;
        const char *part;
    } others[] = {
        { { 0x1112, 0x2222, 0x3333 }, "a model of another shape" },
        { { 0x1111, 0x2223, 0x3333 }, "another tokenizer" },
        { { 0x1111, 0x2222, 0x3334 }, "another training configuration" },
    };
    struct bytes b = written();
    struct checkpoint c;
    for (size_t i = 0; i < ZP_COUNT(others); i++) {
        zp_err err = { 0 };
        refused(checkpoint_view(&c, b.data, b.size, "file", &others[i].key, &err), ZP_BAD_INPUT,
                &err, others[i].part);
    }
    const struct checkpoint_key unknown = { 0x1111, 0, 0 };
    assert_int_equal(checkpoint_view(&c, b.data, b.size, "file", &unknown, NULL), ZP_OK);
    assert_int_equal(checkpoint_view(&c, b.data, b.size, "file", NULL, NULL), ZP_OK);
    mem_free(b.data);
}

static void test_every_damaged_byte_is_found(void **state)
{
    (void)state;
    struct bytes b = written();
    struct checkpoint c;
    for (size_t at = 0; at < b.size; at++) {
        zp_err err = { 0 };
        b.data[at] ^= 0x10;
        zp_status status = checkpoint_view(&c, b.data, b.size, "file", &key, &err);
        if (status != ZP_BAD_FILE || err.message[0] == '\0')
            fail_msg("byte %zu: %s %s", at, zp_status_name(status), err.message);
        b.data[at] ^= 0x10;
    }
    for (size_t size = 0; size < b.size; size += size < 600 ? 1 : 97) {
        uint8_t *cut = test_malloc(size + 1);
        memcpy(cut, b.data, size);
        assert_int_equal(checkpoint_view(&c, cut, size, "file", &key, NULL), ZP_BAD_FILE);
        test_free(cut);
    }
    assert_int_equal(checkpoint_view(&c, b.data, b.size, "file", &key, NULL), ZP_OK);
    mem_free(b.data);
}

/* Makes the header's hash right again. */
static void seal(struct bytes b)
{
    struct checkpoint_header *h = (void *)b.data;
    size_t from = offsetof(struct checkpoint_header, file_bytes);
    h->hash = hash_xxh64(b.data + from,
                         sizeof *h + N_PARTS * sizeof(struct checkpoint_entry) - from, 0);
}

static void test_sealed_lies_are_refused(void **state)
{
    (void)state;
    struct bytes b = written();
    struct checkpoint_header *h = (void *)b.data;
    struct checkpoint_entry *e = (void *)(b.data + sizeof *h), good[N_PARTS];
    memcpy(good, e, sizeof good);
    for (int lie = 0; lie < 12; lie++) {
        struct checkpoint c;
        zp_err err = { 0 };
        memcpy(e, good, sizeof good);
        switch (lie) {
        case 0: e[0].count = UINT64_MAX; break;
        case 1: e[0].count = UINT64_MAX / 4 + 2; break; /* 4 * count wraps to 4 */
        case 2: e[0].offset += 64; break;
        case 3: e[0].offset = UINT64_MAX - 63; break;
        case 4: e[3].count = 4; break;
        case 5: e[3].count = 2; break;
        case 6: e[1].type = 0; break;
        case 7: e[1].type = 7; break;
        case 8: e[1].zero = 1; break;
        case 9: memset(e[2].name, 'x', sizeof e[2].name); break;
        case 10: strcpy(e[2].name, "weights"); break;
        case 11: e[2].name[3] = '\n'; break;
        }
        seal(b);
        zp_status status = checkpoint_view(&c, b.data, b.size, "file", &key, &err);
        if (status != ZP_BAD_FILE) fail_msg("lie %d: %s", lie, zp_status_name(status));
    }
    mem_free(b.data);
}

static void test_wrong_sections_are_not_written(void **state)
{
    (void)state;
    const char *path = in_folder("never");
    const struct checkpoint_part twice[] = { parts[0], parts[1], parts[0] };
    struct checkpoint_part one = parts[0];
    zp_err err = { 0 };
    refused(checkpoint_write(path, 1, &key, twice, 3, &err), ZP_USAGE, &err, "twice");
    const char *names[] = { "", "two words", "a-name-of-48-characters-is-one-too-many-for-a-file-"
    };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        one.name = names[i];
        assert_int_equal(checkpoint_write(path, 1, &key, &one, 1, NULL), ZP_USAGE);
    }
    one = parts[0];
    one.type = (enum checkpoint_type)0;
    assert_int_equal(checkpoint_write(path, 1, &key, &one, 1, NULL), ZP_USAGE);
    assert_false(os_exists(path));
}

/* ---- folders --------------------------------------------------------------------------------- */

static void save(const char *path, uint64_t step, size_t keep)
{
    zp_err err = { 0 };
    set_weights((float)step);
    ok(checkpoint_save(path, step, &key, parts, N_PARTS, keep, &err), &err);
}

static void check_files(const char *path, size_t n, const char *const *names)
{
    char **found, expected[200];
    size_t count;
    assert_int_equal(os_list_files(path, &found, &count, NULL), ZP_OK);
    assert_int_equal(count, n);
    for (size_t i = 0; i < n; i++) {
        snprintf(expected, sizeof expected, "%s/%s", path, names[i]);
        assert_string_equal(found[i], expected);
    }
    os_list_free(found, count);
}

static void check_last(const char *path, uint64_t step)
{
    struct checkpoint c;
    float first;
    zp_err err = { 0 };
    ok(checkpoint_open_last(&c, path, &key, &err), &err);
    assert_int_equal(c.step, step);
    memcpy(&first, c.data + checkpoint_find(&c, "weights")->offset, sizeof first);
    assert_true(first == (float)step);
    checkpoint_close(&c);
}

#define STEP(n) "step-0000000000" #n ".zpck"

static void test_folder_keeps_the_last_ones(void **state)
{
    (void)state;
    const char *path = in_folder("deep/keeps");
    for (uint64_t step = 10; step <= 50; step += 10) save(path, step, 3);
    check_files(path, 4, (const char *[]){ "latest", STEP(30), STEP(40), STEP(50) });
    check_last(path, 50);
    /* rolled back to 40: what came after it is of a past that was given up */
    save(path, 45, 3);
    check_files(path, 4, (const char *[]){ "latest", STEP(30), STEP(40), STEP(45) });
    check_last(path, 45);
    save(path, 45, 1); /* the same step again */
    check_files(path, 2, (const char *[]){ "latest", STEP(45) });
    check_last(path, 45);
    save(path, 60, 0);
    check_files(path, 3, (const char *[]){ "latest", STEP(45), STEP(60) });
}

static void damage(const char *path, const char *name, size_t at)
{
    char file[200];
    snprintf(file, sizeof file, "%s/%s", path, name);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    fputc('!', f);
    fclose(f);
}

static void test_damaged_last_one_gives_way_to_an_older(void **state)
{
    (void)state;
    const char *path = in_folder("damaged");
    struct checkpoint c;
    zp_err err = { 0 };
    for (uint64_t step = 10; step <= 30; step += 10) save(path, step, 0);
    damage(path, STEP(30), 1000);
    check_last(path, 20);
    damage(path, "latest", 0); /* then all are looked at */
    check_last(path, 20);
    damage(path, STEP(20), 1000);
    damage(path, STEP(10), 0);
    refused(checkpoint_open_last(&c, path, &key, &err), ZP_BAD_FILE, &err, STEP(30));
    /* another model's is no reason to look further back */
    const struct checkpoint_key other = { 9, 9, 9 };
    save(path, 40, 0);
    err.code = ZP_OK;
    refused(checkpoint_open_last(&c, path, &other, &err), ZP_BAD_INPUT, &err, "another shape");
    assert_null(c.entries);
}

static void test_folders_without_a_checkpoint_say_so(void **state)
{
    (void)state;
    struct checkpoint c;
    zp_err err = { 0 };
    const char *path = in_folder("empty");
    assert_int_not_equal(checkpoint_open_last(&c, path, &key, NULL), ZP_OK);
    assert_int_equal(os_make_folders(path, NULL), ZP_OK);
    refused(checkpoint_open_last(&c, path, &key, &err), ZP_BAD_INPUT, &err, "no checkpoint");
}

static void test_full_disk_leaves_the_last_good_one(void **state)
{
    (void)state;
    const char *path = in_folder("full");
    const char *const names[] = { "latest", STEP(10) };
    struct checkpoint c;
    save(path, 10, 2);
    set_weights(11);
    uint64_t budget = 0;
    for (;; budget += budget < 5000 ? 500 : 1) {
        zp_err err = { 0 };
        os_fail_writes_after(budget);
        zp_status status = checkpoint_save(path, 11, &key, parts, N_PARTS, 2, &err);
        os_fail_writes_after(UINT64_MAX);
        if (status == ZP_OK) break;
        refused(status, ZP_NO_SPACE, &err, "full");
        check_files(path, 2, names);
        check_last(path, 10);
    }
    assert_true(budget > 4000);
    check_last(path, 11);
    zp_err err = { 0 };
    os_pretend_space(1000); /* known before the first byte */
    refused(checkpoint_save(path, 12, &key, parts, N_PARTS, 2, &err), ZP_NO_SPACE, &err,
            "are needed");
    os_pretend_space(UINT64_MAX);
    check_last(path, 11);
    assert_int_equal(checkpoint_open_last(&c, path, NULL, NULL), ZP_OK);
    checkpoint_close(&c);
}

static void test_what_killed_writers_left_is_removed(void **state)
{
    (void)state;
    const char *path = in_folder("leftovers");
    const char *const left[] = { STEP(10) ".tmp.77.0", "latest.tmp.77.1", STEP(10) ".tmp.78.0",
                                 "mine.tmp.77.0" };
    char file[200];
    save(path, 20, 3);
    for (size_t i = 0; i < ZP_COUNT(left); i++) {
        snprintf(file, sizeof file, "%s/%s", path, left[i]);
        assert_int_equal(os_write_file(file, "x", 1, NULL), ZP_OK);
        if (i != 2) utime(file, &(struct utimbuf){ 1, 1 }); /* that one is still written to */
    }
    save(path, 30, 3);
    check_files(path, 5, (const char *[]){ "latest", "mine.tmp.77.0", STEP(10) ".tmp.78.0",
                                           STEP(20), STEP(30) });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sections_come_back_bit_by_bit),
        cmocka_unit_test(test_another_models_checkpoint_is_refused_by_name),
        cmocka_unit_test(test_every_damaged_byte_is_found),
        cmocka_unit_test(test_sealed_lies_are_refused),
        cmocka_unit_test(test_wrong_sections_are_not_written),
        cmocka_unit_test(test_folder_keeps_the_last_ones),
        cmocka_unit_test(test_damaged_last_one_gives_way_to_an_older),
        cmocka_unit_test(test_folders_without_a_checkpoint_say_so),
        cmocka_unit_test(test_full_disk_leaves_the_last_good_one),
        cmocka_unit_test(test_what_killed_writers_left_is_removed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

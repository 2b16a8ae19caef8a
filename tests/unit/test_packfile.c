/* test_packfile.c: side files of packed weights by themselves: what is written is read, every
 * damaged byte is seen, nothing half-written has a name, and stale files go. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "in_folder.h"
#include "kern/pack.h"
#include "model/packfile.h"

enum { MIB = 1 << 20, BYTES = 5 * MIB + 12345, HEAD = 4096 };

static struct pool *pool;
static uint8_t *packed; /* (BYTES) */
static const struct packfile_key key = {
    .path = 0x1111, .source = 0x2222, .layout = 0x3333, .bytes = BYTES
};

static int start(void **state)
{
    uint64_t x = 88172645463325252u;
    packed = malloc(BYTES);
    for (size_t i = 0; packed && i < BYTES; i++) { /* xorshift64, Marsaglia 2003 */
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        packed[i] = (uint8_t)x;
    }
    return packed == NULL || pool_open(&pool, 2, NULL) != ZP_OK || make_folder(state);
}

static int stop(void **state)
{
    pool_close(pool);
    free(packed);
    return remove_folder(state);
}

#define FINE(call)                                                                                 \
    do {                                                                                           \
        zp_err fine_err_ = { 0 }, *err = &fine_err_;                                               \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, fine_err_.message);                         \
    } while (0)

static const char *path_of(const struct packfile_key *k)
{
    static char path[PACKFILE_PATH_ROOM];
    assert_true(packfile_path(folder, k, path));
    return path;
}

static void write_side_file(const struct packfile_key *k)
{
    FINE(packfile_write(folder, k, packed, pool, err));
}

/* Whether it is there and right; why: what else is said. */
static bool reads(const struct packfile_key *k, const char *why)
{
    struct packfile f;
    zp_err err = { 0 };
    zp_status status = packfile_open(&f, folder, k, pool, &err);
    if (status == ZP_OK) {
        assert_memory_equal(f.packed, packed, k->bytes);
        assert_int_equal((uintptr_t)f.packed % 4096, 0);
    } else {
        assert_null(f.map.data);
        if (why && !strstr(err.message, why)) fail_msg("'%s' is not in: %s", why, err.message);
    }
    packfile_close(&f);
    return status == ZP_OK;
}

static void poke(const char *path, long at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

static uint8_t peek(const char *path, long at)
{
    uint8_t byte;
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    close(fd);
    return byte;
}

/* Files in the folder; temporary ones counted apart. */
static void count_files(size_t *whole, size_t *temporary)
{
    char **names;
    size_t n;
    FINE(os_list_files(folder, &names, &n, err));
    *whole = *temporary = 0;
    for (size_t i = 0; i < n; i++) ++*(strstr(names[i], ".tmp.") ? temporary : whole);
    os_list_free(names, n);
}

static void clear_folder(void)
{
    char **names;
    size_t n;
    FINE(os_list_files(folder, &names, &n, err));
    for (size_t i = 0; i < n; i++) unlink(names[i]);
    os_list_free(names, n);
}

/* Gives a file of the folder, or a link itself, an age in seconds. */
static void make_old(const char *path, long age)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = time(NULL) - age } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* ---- reading what was written ---------------------------------------------------------------- */

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 63, 64, MIB - 1, MIB, MIB + 1, 2 * MIB, BYTES };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct packfile_key k = key;
        struct stat st;
        k.bytes = sizes[i];
        write_side_file(&k);
        assert_true(reads(&k, NULL));
        assert_int_equal(stat(path_of(&k), &st), 0);
        assert_int_equal(st.st_size, HEAD + k.bytes);
    }
}

static void test_copies_are_the_same(void **state)
{
    (void)state;
    struct packfile f;
    uint8_t *copy = malloc(BYTES);
    assert_non_null(copy);
    write_side_file(&key);
    packfile_pretend_small_pages(true);
    FINE(packfile_open(&f, folder, &key, pool, err));
    packfile_pretend_small_pages(false);
    assert_true(f.small_pages);
    packfile_copy(&f, &key, copy, pool);
    assert_memory_equal(copy, packed, BYTES);
    packfile_close(&f);
    free(copy);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void test_every_damaged_byte_is_seen(void **state)
{
    (void)state;
    long places[HEAD + 64], n = 0;
    write_side_file(&key);
    for (long at = 0; at < 256; at++) places[n++] = at; /* fields, hashes, zeros */
    for (long at = 256; at < HEAD; at += 97) places[n++] = at;
    for (long at = HEAD - 8; at < HEAD; at++) places[n++] = at;
    for (long i = 0; i < 6; i++) { /* both ends and the middle of each MiB */
        long begin = HEAD + i * MIB, size = i < 5 ? MIB : BYTES - 5 * MIB;
        places[n++] = begin, places[n++] = begin + size / 2, places[n++] = begin + size - 1;
    }
    for (long i = 0; i < n; i++) {
        uint8_t good = peek(path_of(&key), places[i]), bad = good ^ (uint8_t)(1u << i % 8);
        char told[64];
        poke(path_of(&key), places[i], &bad, 1);
        snprintf(told, sizeof told, "is damaged in MiB %ld of 6", (places[i] - HEAD) / MIB + 1);
        if (reads(&key, places[i] < HEAD ? NULL : told)) fail_msg("byte %ld", places[i]);
        poke(path_of(&key), places[i], &good, 1);
    }
    assert_true(reads(&key, NULL));
}

static void test_exchanged_pieces_are_seen(void **state)
{
    (void)state;
    write_side_file(&key);
    poke(path_of(&key), HEAD, packed + MIB, MIB);
    poke(path_of(&key), HEAD + MIB, packed, MIB);
    assert_false(reads(&key, "MiB 1 of 6"));
}

static void test_other_lengths_are_seen(void **state)
{
    (void)state;
    static const long sizes[] = { 0, 1, 63, 64, 71, 72, 112, 120, HEAD - 1, HEAD, HEAD + 1,
                                  HEAD + MIB, HEAD + BYTES - 1, HEAD + BYTES + 1,
                                  HEAD + BYTES + 4096, 9 * MIB };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_side_file(&key);
        assert_int_equal(truncate(path_of(&key), sizes[i]), 0);
        if (reads(&key, "bytes")) fail_msg("%ld bytes", sizes[i]);
    }
    zp_err err = { 0 }; /* nothing was downloaded */
    struct packfile f;
    assert_int_equal(truncate(path_of(&key), 0), 0);
    assert_int_equal(packfile_open(&f, folder, &key, pool, &err), ZP_BAD_FILE);
    assert_string_equal(strrchr(err.message, ':'), ": is empty (0 bytes)");
}

/* A head that is whole but says something else: the hash is right, the fields must be looked at. */
static void test_every_field_of_the_head_counts(void **state)
{
    (void)state;
    static const struct { long at, size; const char *says; } fields[] = {
        { 0, 8, "no side file" },     { 8, 4, "format" },         { 12, 4, "layout" },
        { 16, 8, "another model" },   { 24, 8, "another model" }, { 32, 8, "another model" },
        { 40, 8, "another model" },   { 48, 8, "another model" }, { 56, 8, "another model" },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint8_t head[HEAD];
        write_side_file(&key);
        int fd = open(path_of(&key), O_RDONLY);
        assert_int_equal(read(fd, head, HEAD), HEAD);
        close(fd);
        head[fields[i].at + fields[i].size - 1] ^= 1;
        uint64_t hash = hash_xxh64(head, HEAD - 8, 0);
        memcpy(head + HEAD - 8, &hash, 8);
        poke(path_of(&key), 0, head, HEAD);
        if (reads(&key, fields[i].says)) fail_msg("field at %ld", fields[i].at);
    }
}

static void test_files_of_other_keys_are_not_taken(void **state)
{
    (void)state;
    static const struct packfile_key others[] = {
        { .path = 0x1112, .source = 0x2222, .layout = 0x3333, .bytes = BYTES },
        { .path = 0x1111, .source = 0x2223, .layout = 0x3333, .bytes = BYTES },
        { .path = 0x1111, .source = 0x2222, .layout = 0x3334, .bytes = BYTES },
        { .path = 0x1111, .source = 0x2222, .layout = 0x3333, .bytes = BYTES - 1 },
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char name[PACKFILE_PATH_ROOM];
        clear_folder();
        write_side_file(&key);
        snprintf(name, sizeof name, "%s", path_of(&key));
        if (strcmp(name, path_of(&others[i])) != 0) {
            assert_false(reads(&others[i], "No such file"));
            assert_int_equal(rename(name, path_of(&others[i])), 0);
        }
        assert_false(reads(&others[i], "another"));
    }
}

static void test_what_is_no_file_is_refused(void **state)
{
    (void)state;
    zp_err err = { 0 };
    unlink(path_of(&key));
    assert_false(reads(&key, "No such file"));
    assert_int_equal(mkdir(path_of(&key), 0777), 0);
    assert_false(reads(&key, "is a folder"));
    assert_int_equal(packfile_write(folder, &key, packed, pool, &err), ZP_BAD_INPUT);
    assert_int_equal(rmdir(path_of(&key)), 0);
    assert_int_equal(mkfifo(path_of(&key), 0666), 0);
    assert_false(reads(&key, "pipe"));
    assert_int_equal(unlink(path_of(&key)), 0);
    assert_int_equal(symlink(path_of(&key), path_of(&key)), 0); /* leads to itself */
    assert_false(reads(&key, "cannot be opened"));
    write_side_file(&key); /* takes the link's place */
    assert_true(reads(&key, NULL));
    if (geteuid() == 0) return; /* who may read everything */
    assert_int_equal(chmod(path_of(&key), 0), 0);
    assert_false(reads(&key, "Permission denied"));
}

/* ---- writing --------------------------------------------------------------------------------- */

static void test_full_disk_leaves_nothing(void **state)
{
    (void)state;
    static const uint64_t room[] = { 0, 1, HEAD - 1, HEAD, HEAD + MIB, HEAD + BYTES - 1 };
    size_t whole, temporary;
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        zp_err err = { 0 };
        clear_folder();
        os_fail_writes_after(room[i]);
        assert_int_equal(packfile_write(folder, &key, packed, pool, &err), ZP_NO_SPACE);
        os_fail_writes_after(UINT64_MAX);
        count_files(&whole, &temporary);
        assert_int_equal(whole + temporary, 0);
    }
    os_fail_writes_after(HEAD + BYTES);
    write_side_file(&key);
    os_fail_writes_after(UINT64_MAX);
    assert_true(reads(&key, NULL));
}

static void test_folders_that_cannot_be_written(void **state)
{
    (void)state;
    zp_err err = { 0 };
    char below[300], longest[5000];
    snprintf(below, sizeof below, "%s/deep/er", in_folder("a file"));
    assert_int_equal(close(open(in_folder("a file"), O_CREAT | O_WRONLY, 0666)), 0);
    assert_int_equal(packfile_write(below, &key, packed, pool, &err), ZP_BAD_INPUT);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    err = (zp_err){ 0 };
    assert_int_equal(packfile_write(longest, &key, packed, pool, &err), ZP_BAD_INPUT);
    if (geteuid() == 0) return; /* who may write everywhere */
    assert_int_equal(mkdir(in_folder("closed"), 0555), 0);
    err = (zp_err){ 0 };
    assert_int_equal(packfile_write(in_folder("closed"), &key, packed, pool, &err), ZP_IO);
}

static void test_folders_are_made(void **state)
{
    (void)state;
    struct packfile f;
    char below[300];
    snprintf(below, sizeof below, "%s/b/c", in_folder("a"));
    FINE(packfile_write(below, &key, packed, pool, err));
    FINE(packfile_open(&f, below, &key, pool, err));
    packfile_close(&f);
}

/* Killed while it writes, a process leaves a whole file of the name, or none. */
static void test_kill_leaves_a_whole_file_or_none(void **state)
{
    (void)state;
    unsigned killed_before = 0;
    for (unsigned i = 0; i < 40; i++) {
        size_t whole, temporary;
        clear_folder();
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct pool *own;
            if (pool_open(&own, 1, NULL) != ZP_OK) _exit(1);
            _exit(packfile_write(folder, &key, packed, own, NULL) != ZP_OK);
        }
        usleep(i * 500);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        count_files(&whole, &temporary);
        killed_before += whole == 0;
        assert_int_equal(reads(&key, NULL), whole == 1);
    }
    assert_true(killed_before > 0); /* else nothing was tested */
}

static void test_two_writers_and_a_reader(void **state)
{
    (void)state;
    pid_t child[2];
    clear_folder();
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] != 0) continue;
        struct pool *own;
        bool bad = pool_open(&own, 1, NULL) != ZP_OK;
        for (int k = 0; k < 10 && !bad; k++)
            bad = packfile_write(folder, &key, packed, own, NULL) != ZP_OK;
        _exit(bad);
    }
    unsigned found = 0;
    for (int left = 2; left > 0;) {
        int status;
        found += reads(&key, "No such file"); /* or the right bytes, nothing else */
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended <= 0) continue;
        left--;
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_true(found > 0);
    size_t whole, temporary;
    count_files(&whole, &temporary);
    assert_int_equal(whole, 1);
    assert_int_equal(temporary, 0);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* A file beside the cache that nobody may change: "precious", 9 days old. */
static void put_precious(void)
{
    FINE(os_write_file(in_folder("precious"), "precious", 8, err));
    make_old(in_folder("precious"), 9 * 86400);
}

static void check_precious(const char *when)
{
    struct buffer b = buffer_with_max(MEM_META, 1 << 24);
    double age;
    FINE(os_read_file(in_folder("precious"), &b, err));
    if (b.size != 8 || memcmp(b.data, "precious", 8) != 0) fail_msg("%s: it was written to", when);
    if (!os_file_age(in_folder("precious"), &age) || age < 8 * 86400)
        fail_msg("%s: it was touched", when);
    buffer_free(&b);
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

static void test_links_are_replaced_and_not_followed(void **state)
{
    (void)state;
    clear_folder();
    put_precious();
    assert_int_equal(mkdir(in_folder("some folder"), 0777), 0);
    assert_int_equal(mkfifo(in_folder("some pipe"), 0666), 0);
    const char *const targets[] = { "precious", in_folder("precious"), "some folder", "some pipe",
                                    "nowhere",  "/dev/null",           path_of(&key) };
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(symlink(targets[i], path_of(&key)), 0);
        assert_false(reads(&key, NULL));
        write_side_file(&key);
        assert_false(is_link(path_of(&key)));
        assert_true(reads(&key, NULL));
        assert_int_equal(unlink(path_of(&key)), 0);
        check_precious(targets[i]);
    }
    assert_false(os_exists(in_folder("nowhere")));
    assert_int_equal(link(in_folder("precious"), path_of(&key)), 0); /* a second name of the file */
    write_side_file(&key);
    assert_true(reads(&key, NULL));
    check_precious("hard link");
    assert_int_equal(rmdir(in_folder("some folder")), 0);
}

/* A whole side file may be read through a link; its times are those of another folder's file. */
static void test_what_is_read_through_a_link_is_not_touched(void **state)
{
    (void)state;
    double age;
    clear_folder();
    write_side_file(&key);
    assert_int_equal(rename(path_of(&key), in_folder("elsewhere")), 0);
    make_old(in_folder("elsewhere"), 3 * 86400);
    assert_int_equal(symlink("elsewhere", path_of(&key)), 0);
    assert_true(reads(&key, NULL));
    assert_true(os_file_age(in_folder("elsewhere"), &age) && age > 2 * 86400);
}

/* Stale names that are none of our files: links, folders, pipes. */
static void test_sweeping_leaves_links_alone(void **state)
{
    (void)state;
    static const char *const stale[] = {
        "0000000000001111-0000000000002221-0000000000003333-2.packed",
        "0000000000001111-0000000000002222-0000000000003333-1.packed",
        "0000000000001112-0000000000002221-0000000000003334-2.packed",
        "0000000000001111-0000000000002222-0000000000003333-2.packed.tmp.123.4",
        "0000000000001112-0000000000002221-0000000000003334-2.packed.tmp.123.4",
    };
    clear_folder();
    put_precious();
    for (int kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < sizeof stale / sizeof *stale; i++) {
            const char *path = in_folder(stale[i]);
            int made = kind == 0   ? symlink("precious", path)
                       : kind == 1 ? symlink("nowhere", path)
                       : kind == 2 ? mkdir(path, 0777)
                                   : mkfifo(path, 0666);
            assert_int_equal(made, 0);
            make_old(path, 9 * 86400);
        }
        write_side_file(&key);
        assert_true(reads(&key, NULL));
        for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
            if (remove(in_folder(stale[i])) != 0) fail_msg("kind %d: %s has gone", kind, stale[i]);
        check_precious("sweep");
    }
}

static void test_folder_may_be_a_link(void **state)
{
    (void)state;
    struct packfile f;
    clear_folder();
    assert_int_equal(symlink(folder, in_folder("door")), 0);
    FINE(packfile_write(in_folder("door"), &key, packed, pool, err));
    assert_true(is_link(in_folder("door")));
    FINE(packfile_open(&f, in_folder("door"), &key, pool, err));
    packfile_close(&f);
    assert_true(reads(&key, NULL));
    assert_int_equal(unlink(in_folder("door")), 0);
}

/* ---- stale files ----------------------------------------------------------------------------- */

static void test_stale_files_go(void **state)
{
    (void)state;
#define OLDER "0000000000001111-0000000000002221-"
#define SAME "0000000000001111-0000000000002222-"
#define OTHER "0000000000001112-0000000000002221-"
    enum { DAY = 86400 };
    static const struct { const char *name; long age; bool stays; } rows[] = {
        /* earlier states of the model and earlier layouts */
        { OLDER "0000000000003333-2.packed", 0, false },
        { OLDER "0000000000003334-2.packed", 0, false },
        { SAME "0000000000003333-1.packed", 0, false },
        /* other options, later layouts, other models: while they are used */
        { SAME "0000000000003334-2.packed", 6 * DAY, true },
        { SAME "0000000000003335-2.packed", 8 * DAY, false },
        { SAME "0000000000003333-3.packed", 6 * DAY, true },
        { OTHER "0000000000003333-2.packed", 6 * DAY, true },
        { OTHER "0000000000003333-1.packed", 6 * DAY, true },
        { OTHER "0000000000003334-2.packed", 8 * DAY, false },
        /* of processes that died, and of those that may still write */
        { SAME "0000000000003333-2.packed.tmp.123.4", 4000, false },
        { OTHER "0000000000003334-2.packed.tmp.123.4", 4000, false },
        { OLDER "0000000000003333-2.packed.tmp.123.4", 1000, true },
        { SAME "0000000000003333-2.packed.tmp.123.x", 99 * DAY, true },
        { SAME "0000000000003333-2.packed.tmp.bak", 99 * DAY, true },
        /* not ours */
        { OLDER "0000000000003333-2.packed.bak", 99 * DAY, true },
        { OLDER "0000000000003333-1", 99 * DAY, true },
        { OLDER "0000000000003333.packed", 99 * DAY, true },
        { "notes.packed", 99 * DAY, true },
    };
    assert_int_equal(PACK_LAYOUT, 2); /* the names above */
    clear_folder();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FINE(os_write_file(in_folder(rows[i].name), "x", 1, err));
        make_old(in_folder(rows[i].name), rows[i].age);
    }
    write_side_file(&key);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (os_exists(in_folder(rows[i].name)) != rows[i].stays) fail_msg("%s", rows[i].name);
    assert_true(reads(&key, NULL));
}

static void test_use_keeps_a_file(void **state)
{
    (void)state;
    struct packfile_key other = key;
    other.path++;
    write_side_file(&key);
    make_old(path_of(&key), 8 * 86400);
    assert_true(reads(&key, NULL));
    write_side_file(&other);
    assert_true(reads(&key, NULL));
    make_old(path_of(&key), 8 * 86400);
    write_side_file(&other);
    assert_false(reads(&key, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_copies_are_the_same),
        cmocka_unit_test(test_every_damaged_byte_is_seen),
        cmocka_unit_test(test_exchanged_pieces_are_seen),
        cmocka_unit_test(test_other_lengths_are_seen),
        cmocka_unit_test(test_every_field_of_the_head_counts),
        cmocka_unit_test(test_files_of_other_keys_are_not_taken),
        cmocka_unit_test(test_what_is_no_file_is_refused),
        cmocka_unit_test(test_full_disk_leaves_nothing),
        cmocka_unit_test(test_folders_that_cannot_be_written),
        cmocka_unit_test(test_folders_are_made),
        cmocka_unit_test(test_kill_leaves_a_whole_file_or_none),
        cmocka_unit_test(test_two_writers_and_a_reader),
        cmocka_unit_test(test_links_are_replaced_and_not_followed),
        cmocka_unit_test(test_what_is_read_through_a_link_is_not_touched),
        cmocka_unit_test(test_sweeping_leaves_links_alone),
        cmocka_unit_test(test_folder_may_be_a_link),
        cmocka_unit_test(test_stale_files_go),
        cmocka_unit_test(test_use_keeps_a_file),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

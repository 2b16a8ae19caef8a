/* test_os.c: files are mapped, read, listed and written atomically; each failure names its reason
 * and leaves nothing. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os.h"

static char folder[64]; /* fresh for each test, the working directory while it runs */

static int enter_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/zerope-os-XXXXXX");
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int leave_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") != 0 || system(command) != 0;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static void assert_content(const char *path, const char *text)
{
    struct buffer b = buffer_with_max(MEM_SCRATCH, 1 << 20);
    assert_int_equal(os_read_file(path, &b, NULL), ZP_OK);
    assert_string_equal((char *)b.data, text);
    buffer_free(&b);
}

static size_t count_files(void)
{
    char **names;
    size_t count;
    assert_int_equal(os_list_files(".", &names, &count, NULL), ZP_OK);
    os_list_free(names, count);
    return count;
}

static void make_old(const char *path, long age)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = time(NULL) - age } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* ---- reading ---- */

static void test_mapped_file_shows_its_bytes(void **state)
{
    (void)state;
    struct os_map map;
    put("a", "some bytes");
    assert_int_equal(os_map_file(&map, "a", NULL), ZP_OK);
    assert_int_equal(map.size, 10);
    assert_memory_equal(map.data, "some bytes", 10);
    os_map_drop(&map, 0, SIZE_MAX);
    os_map_drop(&map, 11, 1);
    assert_memory_equal(map.data, "some bytes", 10);
    os_unmap(&map);
    os_unmap(&map);
    assert_null(map.data);
}

static void test_mapped_file_knows_its_times(void **state)
{
    (void)state;
    struct os_map before, after;
    put("a", "some bytes");
    assert_int_equal(os_map_file(&before, "a", NULL), ZP_OK);
    os_map_huge(&before);
    assert_memory_equal(before.data, "some bytes", 10);
    assert_true(os_seconds_since(before.modified) < 60 && os_seconds_since(before.modified) > -60);
    /* What a program can set, and what it cannot. */
    struct timespec old[2] = { { .tv_sec = 5 }, { .tv_sec = 1000, .tv_nsec = 7 } };
    usleep(20000);
    assert_int_equal(utimensat(AT_FDCWD, "a", old, 0), 0);
    assert_int_equal(os_map_file(&after, "a", NULL), ZP_OK);
    assert_int_equal(after.modified, 1000000000007);
    assert_true(after.changed > before.changed);
    os_unmap(&before);
    os_unmap(&after);
    os_touch("a");
    os_touch("nowhere");
    assert_int_equal(os_map_file(&after, "a", NULL), ZP_OK);
    assert_true(os_seconds_since(after.modified) < 60);
    os_unmap(&after);
}

static void test_unreadable_paths_say_what_they_are(void **state)
{
    (void)state;
    put("empty", "");
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(mkfifo("pipe", 0666), 0); /* opening it must not wait for a writer */
    static const struct {
        const char *path, *says;
        zp_status status;
    } rows[] = {
        { "nowhere", "No such file", ZP_BAD_INPUT },
        { "empty/below", "Not a directory", ZP_BAD_INPUT },
        { "folder", "is a folder", ZP_BAD_INPUT },
        { "pipe", "device, pipe or socket", ZP_BAD_INPUT },
        { "/dev/zero", "device, pipe or socket", ZP_BAD_INPUT },
        { "empty", "is empty", ZP_BAD_FILE },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct os_map map;
        zp_err err = { 0 };
        assert_int_equal(os_map_file(&map, rows[i].path, &err), rows[i].status);
        assert_non_null(strstr(err.message, rows[i].path));
        assert_non_null(strstr(err.message, rows[i].says));
        assert_null(map.data);
        uint64_t size;
        if (rows[i].status == ZP_BAD_INPUT)
            assert_int_equal(os_file_size(rows[i].path, &size, NULL), ZP_BAD_INPUT);
    }
}

static void test_reading_respects_the_limit(void **state)
{
    (void)state;
    put("a", "0123456789");
    struct buffer b = buffer_with_max(MEM_SCRATCH, 10);
    assert_int_equal(os_read_file("a", &b, NULL), ZP_OK);
    assert_string_equal((char *)b.data, "0123456789");
    buffer_free(&b);
    b = buffer_with_max(MEM_SCRATCH, 9);
    zp_err err = { 0 };
    assert_int_equal(os_read_file("a", &b, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "limit of 9"));
    err = (zp_err){ 0 };
    assert_int_equal(os_read_file("/dev/zero", &b, &err), ZP_BAD_INPUT);
    buffer_free(&b);
    b = buffer_with_max(MEM_SCRATCH, 9);
    assert_int_equal(os_read_file(".", &b, &err), ZP_BAD_INPUT);
    assert_int_equal(os_read_file("nowhere", &b, &err), ZP_BAD_INPUT);
    put("empty", "");
    assert_int_equal(os_read_file("empty", &b, NULL), ZP_OK);
    assert_string_equal((char *)b.data, "");
    buffer_free(&b);
}

static void test_dash_reads_standard_input(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "from a pipe", 11), 11);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    struct buffer b = buffer_with_max(MEM_SCRATCH, 100);
    assert_int_equal(os_read_file("-", &b, NULL), ZP_OK);
    assert_string_equal((char *)b.data, "from a pipe");
    buffer_free(&b);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
}

static void ring(int number)
{
    (void)number;
}

static void test_signal_ends_a_waiting_read(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[0], STDIN_FILENO);
    struct sigaction on = { .sa_handler = ring }, before;
    sigaction(SIGALRM, &on, &before);
    /* Repeated, so that one that comes before the read does no harm. */
    struct itimerval soon = { { 0, 20000 }, { 0, 20000 } }, off = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &soon, NULL);
    struct buffer b = buffer_with_max(MEM_SCRATCH, 100);
    assert_int_equal(os_read_file("-", &b, NULL), ZP_INTERRUPTED);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &before, NULL);
    buffer_free(&b);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

/* Handlers with SA_RESTART repeat open and read by themselves. */
static void test_signal_ends_the_wait_for_a_fifo(void **state)
{
    (void)state;
    struct sigaction on = { .sa_handler = ring, .sa_flags = SA_RESTART }, before;
    struct itimerval soon = { { 0, 20000 }, { 0, 20000 } }, off = { { 0, 0 }, { 0, 0 } };
    assert_int_equal(mkfifo("fifo", 0600), 0);
    sigaction(SIGALRM, &on, &before);
    for (int writer = 0; writer < 2; writer++) { /* nobody writes; a writer that is silent */
        int end = writer ? open("fifo", O_RDWR) : -1;
        struct buffer b = buffer_with_max(MEM_SCRATCH, 100);
        setitimer(ITIMER_REAL, &soon, NULL);
        assert_int_equal(os_read_file("fifo", &b, NULL), ZP_INTERRUPTED);
        setitimer(ITIMER_REAL, &off, NULL);
        buffer_free(&b);
        if (writer) close(end);
    }
    sigaction(SIGALRM, &before, NULL);
}

static void test_fifo_is_read_to_its_end(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(system("(sleep 0.1; printf 'one '; sleep 0.1; printf two) >fifo &"), 0);
    assert_content("fifo", "one two");
}

static void test_regular_reading_refuses_pipes_and_devices_at_once(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    static const char *const others[] = { "fifo", "/dev/zero", "." };
    for (size_t i = 0; i < ZP_COUNT(others); i++) {
        zp_err err = { 0 };
        struct buffer b = buffer_with_max(MEM_SCRATCH, 100);
        assert_int_equal(os_read_regular(others[i], &b, &err), ZP_BAD_INPUT);
        assert_non_null(strstr(err.message, "expected a regular file"));
        buffer_free(&b);
    }
}

/* ---- which file a path names ---- */

static void test_one_file_has_many_names(void **state)
{
    (void)state;
    assert_int_equal(mkdir("sub", 0777), 0);
    put("file", "x");
    put("other", "x");
    assert_int_equal(symlink("../file", "sub/link"), 0);
    assert_int_equal(symlink("sub", "door"), 0);
    assert_int_equal(link("file", "hard"), 0);
    static const struct {
        const char *a, *b;
        bool same;
    } cases[] = {
        { "file", "./file", true },
        { "file", "sub/../file", true },
        { "file", "sub/link", true },
        { "file", "door/link", true },
        { "file", "hard", true },
        { "file", "other", false },
        { "sub", "sub/", true },
        { "sub", "door", true },
        { "sub", ".", false },
        { "new", "./new", true },
        { "new", "sub/../new", true },
        { "new", "sub/new", false },
        { "sub/new", "door/new", true },
        { "new/", "new", true },
        { "new", "newer", false },
        { "none/new", "none/new", true },
        { "none/new", "./none/new", false }, /* unknown before the folder is there */
        { "file", "new", false },
    };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        bool same = os_same_file(cases[i].a, cases[i].b),
             back = os_same_file(cases[i].b, cases[i].a);
        if (same != cases[i].same || back != same) fail_msg("%s and %s", cases[i].a, cases[i].b);
    }
    assert_true(os_is_below("sub/link", ".") && os_is_below("file", "door/.."));
    assert_false(os_is_below("file", "sub") || os_is_below("sub", "sub"));
    assert_false(os_is_below("sub/link", "sub")); /* it leads out of it */
    assert_true(os_is_below("sub/new", "sub") && os_is_below("door/new/", "sub"));
    assert_true(os_is_below("sub/none/new", "sub") && os_is_below("new", "."));
    assert_false(os_is_below("new", "sub") || os_is_below("sub/../new", "sub"));
    assert_false(os_is_below("newer", "new") || os_is_below("sub/new", "file"));
}

/* ---- folders ---- */

static void count_entry(void *arg, const char *name)
{
    size_t *n = arg;
    n[0]++;
    n[1] += strcmp(name, "b") == 0;
}

static void test_each_entry_is_shown_once(void **state)
{
    (void)state;
    size_t n[2] = { 0 };
    put("a", "1");
    put("b", "2");
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(os_each_entry(".", count_entry, n, NULL), ZP_OK);
    assert_int_equal(n[0], 5); /* "." and ".." as well */
    assert_int_equal(n[1], 1);
    assert_int_equal(os_each_entry("nowhere", count_entry, n, NULL), ZP_BAD_INPUT);
}

static void test_real_paths_follow_links(void **state)
{
    (void)state;
    char real[4096], small[8];
    put("a", "1");
    assert_int_equal(symlink("a", "link"), 0);
    assert_true(os_real_path("./link", real, sizeof real));
    assert_int_equal(real[0], '/');
    assert_string_equal(strrchr(real, '/'), "/a");
    assert_false(os_real_path("link", small, sizeof small));
    assert_false(os_real_path("nowhere", real, sizeof real));
}

static void test_folders_are_made_with_their_parents(void **state)
{
    (void)state;
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/x/y", folder);
    assert_int_equal(os_make_folders("a/b//c/", NULL), ZP_OK);
    assert_int_equal(os_make_folders("a/b/c", NULL), ZP_OK);
    assert_int_equal(os_make_folders(absolute, NULL), ZP_OK);
    assert_true(os_is_folder("a/b/c") && os_is_folder("x/y"));
    put("a/file", "");
    assert_true(os_exists("a/file") && !os_is_folder("a/file"));
    zp_err err = { 0 };
    assert_int_equal(os_make_folders("a/file/d", &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "there is a file where a folder is needed"));
    assert_int_equal(os_make_folders("a/file", NULL), ZP_BAD_INPUT);
    assert_false(os_exists("a/nowhere"));
}

static void test_files_below_a_folder_come_sorted(void **state)
{
    (void)state;
    assert_int_equal(os_make_folders("top/sub/deep", NULL), ZP_OK);
    put("top/b", "");
    put("top/a", "");
    put("top/sub/deep/c", "");
    put("outside", "");
    assert_int_equal(symlink("..", "top/sub/circle"), 0);
    assert_int_equal(symlink("../outside", "top/link"), 0);
    assert_int_equal(symlink("missing", "top/dangling"), 0);
    assert_int_equal(mkfifo("top/pipe", 0666), 0);
    static const char *const expected[] = { "top/a", "top/b", "top/link", "top/sub/deep/c" };
    for (int slash = 0; slash < 2; slash++) {
        char **names;
        size_t count;
        assert_int_equal(os_list_files(slash ? "top/" : "top", &names, &count, NULL), ZP_OK);
        assert_int_equal(count, 4);
        for (size_t i = 0; i < 4; i++) assert_string_equal(names[i], expected[i]);
        os_list_free(names, count);
    }
    char **names;
    size_t count;
    assert_int_equal(os_list_files("nowhere", &names, &count, NULL), ZP_BAD_INPUT);
    assert_int_equal(os_list_files("", &names, &count, NULL), ZP_BAD_INPUT);
    assert_int_equal(os_list_files("outside", &names, &count, NULL), ZP_BAD_INPUT);
}

static void test_listing_survives_each_lack_of_memory(void **state)
{
    (void)state;
    assert_int_equal(os_make_folders("top/sub", NULL), ZP_OK);
    put("top/a", "");
    put("top/sub/b", "");
    struct mem_stats before, after;
    mem_stats_read(&before);
    zp_status status = ZP_NO_MEMORY;
    for (uint64_t n = 1; status != ZP_OK && n < 20; n++) {
        char **names;
        size_t count;
        mem_fail_at(n, false);
        status = os_list_files("top", &names, &count, NULL);
        assert_true(status == ZP_OK || status == ZP_NO_MEMORY);
        mem_fail_at(0, false);
        os_list_free(names, count);
    }
    assert_int_equal(status, ZP_OK);
    mem_stats_read(&after);
    assert_int_equal(before.live[MEM_META], after.live[MEM_META]);
}

/* ---- writing ---- */

static void test_file_appears_whole_at_commit(void **state)
{
    (void)state;
    struct os_file f;
    put("out", "old");
    assert_int_equal(os_file_create(&f, "out", 10, NULL), ZP_OK);
    assert_int_equal(os_file_write(&f, "new ", 4, NULL), ZP_OK);
    assert_int_equal(os_file_write(&f, "text", 4, NULL), ZP_OK);
    assert_int_equal(os_file_write(&f, NULL, 0, NULL), ZP_OK);
    assert_content("out", "old");
    assert_int_equal(count_files(), 2);
    assert_int_equal(os_file_commit(&f, NULL), ZP_OK);
    assert_content("out", "new text");
    assert_int_equal(count_files(), 1);
    os_file_abort(&f);
    assert_content("out", "new text");
    assert_int_equal(os_file_write(&f, "x", 1, NULL), ZP_RUN);
    assert_int_equal(os_file_commit(&f, NULL), ZP_RUN);
}

static void test_unsynced_file_appears_whole_as_well(void **state)
{
    (void)state;
    struct os_file f;
    assert_int_equal(os_file_create(&f, "a", 5, NULL), ZP_OK);
    f.unsynced = true;
    assert_int_equal(os_file_write(&f, "whole", 5, NULL), ZP_OK);
    assert_false(os_exists("a"));
    assert_int_equal(os_file_commit(&f, NULL), ZP_OK);
    assert_content("a", "whole");
    assert_int_equal(count_files(), 1);
}

static void test_large_pieces_keep_their_order(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    uint8_t *data = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) data[i] = (uint8_t)(i * 2654435761u >> 24);
    struct os_file f;
    assert_int_equal(os_file_create(&f, "big", SIZE, NULL), ZP_OK);
    for (size_t at = 0, step = 1; at < SIZE; at += step, step = (step * 5 + 1) % 1500000 + 1) {
        if (step > SIZE - at) step = SIZE - at;
        assert_int_equal(os_file_write(&f, data + at, step, NULL), ZP_OK);
    }
    assert_int_equal(os_file_commit(&f, NULL), ZP_OK);
    struct os_map map;
    assert_int_equal(os_map_file(&map, "big", NULL), ZP_OK);
    assert_int_equal(map.size, SIZE);
    assert_memory_equal(map.data, data, SIZE);
    os_unmap(&map);
    free(data);
}

static void test_abort_leaves_the_old_file(void **state)
{
    (void)state;
    struct os_file f, never = { 0 };
    put("out", "old");
    assert_int_equal(os_file_create(&f, "out", 0, NULL), ZP_OK);
    assert_int_equal(os_file_write(&f, "new", 3, NULL), ZP_OK);
    os_file_abort(&f);
    os_file_abort(&f);
    os_file_abort(&never); /* must not close descriptor 0 */
    assert_int_not_equal(fcntl(0, F_GETFD), -1);
    assert_content("out", "old");
    assert_int_equal(count_files(), 1);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

static void test_permissions_follow_umask_or_the_replaced_file(void **state)
{
    (void)state;
    mode_t before = umask(027);
    assert_int_equal(os_write_file("fresh", "x", 1, NULL), ZP_OK);
    put("private", "y");
    assert_int_equal(chmod("private", 0600), 0);
    assert_int_equal(os_write_file("private", "z", 1, NULL), ZP_OK);
    umask(before);
    assert_int_equal(mode_of("fresh"), 0640);
    assert_int_equal(mode_of("private"), 0600);
    assert_content("private", "z");
}

static void test_writing_through_a_link_keeps_the_link(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(os_make_folders("elsewhere", NULL), ZP_OK);
    put("elsewhere/real", "old");
    assert_int_equal(symlink("elsewhere/real", "link"), 0);
    assert_int_equal(os_write_file("link", "new", 3, NULL), ZP_OK);
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_content("elsewhere/real", "new");
}

static void test_a_link_may_be_replaced_itself(void **state)
{
    (void)state;
    static const char *const targets[] = { "real", "folder", "nowhere", "link", "/dev/null" };
    struct os_file f;
    put("real", "old");
    assert_int_equal(chmod("real", 0400), 0);
    assert_int_equal(mkdir("folder", 0777), 0);
    for (size_t i = 0; i < ZP_COUNT(targets); i++) {
        struct stat st;
        assert_int_equal(symlink(targets[i], "link"), 0);
        assert_int_equal(os_file_create_over_link(&f, "link", 3, NULL), ZP_OK);
        assert_int_equal(os_file_write(&f, "new", 3, NULL), ZP_OK);
        assert_int_equal(os_file_commit(&f, NULL), ZP_OK);
        assert_int_equal(lstat("link", &st), 0);
        assert_true(S_ISREG(st.st_mode) && (st.st_mode & 0200));
        assert_content("link", "new");
        assert_content("real", "old");
        assert_false(os_exists("nowhere"));
        assert_int_equal(remove("link"), 0);
    }
    zp_err err = { 0 }; /* without a link it is os_file_create */
    assert_int_equal(os_file_create_over_link(&f, "folder", 3, &err), ZP_BAD_INPUT);
    assert_int_equal(os_file_create_over_link(&f, "real", 3, NULL), geteuid() ? ZP_IO : ZP_OK);
    os_file_abort(&f);
    assert_content("real", "old");
}

/* Not those of what it leads to. */
static void test_touching_a_link_sets_its_own_times(void **state)
{
    (void)state;
    double age;
    put("a", "x");
    make_old("a", 5000);
    assert_int_equal(symlink("a", "link"), 0);
    os_touch("link");
    assert_true(os_file_age("a", &age) && age > 4000);
    assert_false(os_file_age("link", &age) || os_file_age("nowhere", &age) ||
                 os_file_age(".", &age));
    os_touch("a");
    assert_true(os_file_age("a", &age) && age < 1000);
}

static void test_impossible_targets_are_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(mkfifo("pipe", 0666), 0);
    put("file", "");
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const struct {
        const char *path, *says;
    } rows[] = {
        { "folder", "is a folder" },
        { "folder/", "names a folder" },
        { "", "empty" },
        { "pipe", "device, pipe or socket" },
        { "/dev/null", "device, pipe or socket" },
        { "nowhere/file", "the folder does not exist" },
        { "file/below", "Not a directory" },
        { name, "File name too long" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        zp_err err = { 0 };
        assert_int_equal(os_write_file(rows[i].path, "x", 1, &err), ZP_BAD_INPUT);
        assert_non_null(strstr(err.message, rows[i].says));
    }
    assert_int_equal(count_files(), 1);
}

static void test_full_disk_keeps_the_old_file_and_no_partial(void **state)
{
    (void)state;
    enum { SIZE = 2500000 };
    char *data = calloc(1, SIZE);
    put("out", "old");
    const uint64_t rooms[] = { 0, 1, SIZE / 2, SIZE - 1 };
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        zp_err err = { 0 };
        os_fail_writes_after(rooms[i]);
        zp_status status = os_write_file("out", data, SIZE, &err);
        os_fail_writes_after(UINT64_MAX);
        assert_int_equal(status, ZP_NO_SPACE);
        assert_non_null(strstr(err.message, "needed"));
        assert_non_null(strstr(err.message, "available"));
        assert_content("out", "old");
        assert_int_equal(count_files(), 1);
    }
    os_fail_writes_after(SIZE);
    assert_int_equal(os_write_file("out", data, SIZE, NULL), ZP_OK);
    os_fail_writes_after(UINT64_MAX);
    free(data);
}

static void test_space_is_checked_before_writing(void **state)
{
    (void)state;
    struct os_file f;
    zp_err err = { 0 };
    assert_int_equal(os_file_create(&f, "out", (uint64_t)1 << 60, &err), ZP_NO_SPACE);
    assert_non_null(strstr(err.message, "1.0 EiB are needed"));
    assert_non_null(strstr(err.message, "available"));
    assert_int_equal(count_files(), 0);
    os_pretend_space(4095);
    err = (zp_err){ 0 };
    assert_int_equal(os_file_create(&f, "out", 4096, &err), ZP_NO_SPACE);
    assert_non_null(strstr(err.message, "4.0 KiB are needed but the disk has 4.0 KiB available"));
    assert_int_equal(os_file_create(&f, "out", 4095, NULL), ZP_OK);
    os_pretend_space(UINT64_MAX);
    os_file_abort(&f);
    assert_int_equal(count_files(), 0);
}

static void test_refused_write_removes_the_partial_file(void **state)
{
    (void)state;
    static char data[100000];
    struct rlimit before, small;
    struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
    sigaction(SIGXFSZ, &ignore, &old);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){ .rlim_cur = 4096, .rlim_max = before.rlim_max };
    put("out", "old");
    zp_err err = { 0 };
    setrlimit(RLIMIT_FSIZE, &small);
    zp_status status = os_write_file("out", data, sizeof data, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    sigaction(SIGXFSZ, &old, NULL);
    assert_int_equal(status, ZP_IO);
    assert_non_null(strstr(err.message, "File too large"));
    assert_content("out", "old");
    assert_int_equal(count_files(), 1);
}

static void test_writing_survives_each_lack_of_memory(void **state)
{
    (void)state;
    struct mem_stats before, after;
    put("out", "old");
    mem_stats_read(&before);
    zp_status status = ZP_NO_MEMORY;
    for (uint64_t n = 1; status != ZP_OK && n < 20; n++) {
        mem_fail_at(n, false);
        status = os_write_file("out", "new", 3, NULL);
        mem_fail_at(0, false);
        assert_true(status == ZP_OK || status == ZP_NO_MEMORY);
        assert_content("out", status == ZP_OK ? "new" : "old");
        assert_int_equal(count_files(), 1);
    }
    assert_int_equal(status, ZP_OK);
    mem_stats_read(&after);
    assert_int_equal(before.live[MEM_META], after.live[MEM_META]);
}

static void test_left_over_temporary_names_are_passed_over(void **state)
{
    (void)state;
    char name[64];
    for (int n = 0; n < 300; n++) {
        snprintf(name, sizeof name, "out.tmp.%ld.%d", (long)getpid(), n);
        put(name, "left over");
    }
    assert_int_equal(os_write_file("out", "new", 3, NULL), ZP_OK);
    assert_content("out", "new");
    assert_int_equal(count_files(), 301);
}

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void test_leftovers_of_the_dead_go_after_an_hour(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        long age;
        bool stays;
    } rows[] = {
        { "out.tmp.1.2", 3700, false },
        { "out.tmp.4194304.4294967295", 3700, false },
        { "out.tmp.1.2.tmp.3.4", 3700, false }, /* of a file that was reserved beside it */
        /* somebody may still write it */
        { "out.tmp.1.3", 3500, true },
        { "out.tmp.1.3.tmp.3.4", 0, true },
        { "out.tmp.1.4", -3700, true },
        /* other names */
        { "out", 3700, true },
        { "out.tmp", 3700, true },
        { "out.tmp.", 3700, true },
        { "out.tmp.1", 3700, true },
        { "out.tmp.1.", 3700, true },
        { "out.tmp..2", 3700, true },
        { "out.tmp.1.2.", 3700, true },
        { "out.tmp.1.2.3", 3700, true },
        { "out.tmp.1.2.bak", 3700, true },
        { "out.tmp.1.2.tmp.3", 3700, true },
        { "out.tmp.1.2.tmp.3.4.tmp.5.6", 3700, true },
        { "out.tmp.-1.2", 3700, true },
        { "out.tmp. 1.2", 3700, true },
        { "out.tmp.1.0x2", 3700, true },
        { "out.tmp.a.2", 3700, true },
        { "out.TMP.1.2", 3700, true },
        { "out.bak.1.2", 3700, true },
        { "xout.tmp.1.2", 3700, true },
        { "out2.tmp.1.2", 3700, true },
        { "ou.tmp.1.2", 3700, true },
        { ".tmp.1.2", 3700, true },
        { "sub/out.tmp.1.2", 3700, true },
    };
    assert_int_equal(os_make_folders("sub", NULL), ZP_OK);
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        put(rows[i].name, "x");
        make_old(rows[i].name, rows[i].age);
    }
    /* what is no regular file, and what links lead to */
    put("precious", "1");
    make_old("precious", 3700);
    assert_int_equal(symlink("precious", "out.tmp.5.1"), 0);
    assert_int_equal(symlink("nowhere", "out.tmp.5.2"), 0);
    assert_int_equal(mkdir("out.tmp.5.3", 0777), 0);
    assert_int_equal(mkfifo("out.tmp.5.4", 0666), 0);
    static const char *const others[] = { "precious", "out.tmp.5.1", "out.tmp.5.2", "out.tmp.5.3",
                                          "out.tmp.5.4" };
    for (size_t i = 1; i < ZP_COUNT(others); i++) make_old(others[i], 3700);
    assert_int_equal(os_write_file("out", "new", 3, NULL), ZP_OK);
    assert_content("out", "new");
    for (size_t i = 0; i < ZP_COUNT(rows); i++)
        if (is_there(rows[i].name) != rows[i].stays) fail_msg("%s", rows[i].name);
    for (size_t i = 0; i < ZP_COUNT(others); i++)
        if (!is_there(others[i])) fail_msg("%s", others[i]);
}

/* A process that is killed while it writes; names that are cut for their suffix; a link, whose
 * temporary files lie where it leads to; absolute paths. */
static void test_leftovers_of_every_kind_of_path_go(void **state)
{
    (void)state;
    char longest[256], absolute[128];
    memset(longest, 'n', 255);
    longest[255] = '\0';
    snprintf(absolute, sizeof absolute, "%s/abs", folder);
    assert_int_equal(os_make_folders("sub", NULL), ZP_OK);
    put("sub/real", "old");
    assert_int_equal(symlink("sub/real", "link"), 0);
    const char *const paths[] = { "out", "./out", "sub/out", absolute, longest, "link" };
    for (size_t i = 0; i < ZP_COUNT(paths); i++) {
        size_t before = count_files() + !os_exists(paths[i]);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct os_file f;
            if (os_file_create(&f, paths[i], 5, NULL) == ZP_OK) raise(SIGKILL);
            _exit(1);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        char **names;
        size_t n;
        assert_int_equal(os_list_files(".", &names, &n, NULL), ZP_OK);
        for (size_t k = 0; k < n; k++)
            if (strstr(names[k], ".tmp.")) make_old(names[k], 3700);
        os_list_free(names, n);
        assert_int_equal(os_write_file(paths[i], "new", 3, NULL), ZP_OK);
        assert_content(paths[i], "new");
        if (count_files() > before) fail_msg("%s", paths[i]);
    }
}

/* The suffix of a temporary name must not make a name too long that is allowed. */
static void test_longest_names_are_written(void **state)
{
    (void)state;
    static const size_t sizes[] = { 199, 200, 201, 239, 240, 254, 255 };
    for (size_t i = 0; i < ZP_COUNT(sizes); i++) {
        char name[256], *beside;
        memset(name, 'n', sizes[i]);
        memcpy(name, "\xc3\xa4", 2);
        memcpy(name + 198, "\xc3\xa4\xc3", 1); /* a character where the name may be cut */
        name[sizes[i]] = '\0';
        assert_int_equal(os_write_file(name, "new", 3, NULL), ZP_OK);
        assert_content(name, "new");
        assert_int_equal(os_reserve_beside(name, &beside, NULL), ZP_OK);
        assert_int_equal(os_write_file(beside, "trial", 5, NULL), ZP_OK);
        assert_content(name, "new");
        assert_int_equal(remove(beside), 0);
        mem_free(beside);
        assert_int_equal(count_files(), 1);
        assert_int_equal(remove(name), 0);
    }
}

static void test_reserved_names_are_new_each_time(void **state)
{
    (void)state;
    char *a, *b;
    assert_int_equal(os_reserve_beside("out", &a, NULL), ZP_OK);
    assert_int_equal(os_reserve_beside("out", &b, NULL), ZP_OK);
    assert_string_not_equal(a, b);
    assert_content(a, "");
    mem_free(a);
    mem_free(b);
    assert_int_equal(count_files(), 2);
    assert_int_not_equal(os_reserve_beside("none/out", &a, NULL), ZP_OK);
    assert_null(a);
}

/* ---- machine ---- */

static void test_machine_facts_are_plausible(void **state)
{
    (void)state;
    double wall = os_now(), cpu = os_cpu_seconds();
    volatile double sink = 0;
    for (int i = 0; i < 2000000; i++) sink += i;
    assert_true(sink > 0);
    assert_true(os_now() > wall);
    assert_true(os_cpu_seconds() > cpu);
    assert_true(os_cpu_count() >= 1);
    assert_true(os_core_count() >= 1 && os_core_count() <= os_cpu_count());
    assert_true(os_cpu_leads_core(0)); /* the first of its core on every Linux */
    assert_true(os_cpu_leads_core(1 << 20)); /* unknown */
    assert_true(os_rss_bytes() > 100000);
    assert_true(os_peak_rss_bytes() > 100000);
    uint64_t faults = os_page_faults();
    uint8_t *pages = mem_alloc_huge(MEM_SCRATCH, 1 << 20); /* less than a huge page */
    for (size_t i = 0; i < 1 << 20; i += 4096) pages[i] = 1;
    assert_true(os_page_faults() > faults);
    mem_free_huge(MEM_SCRATCH, pages, 1 << 20);
    assert_true(os_memory_available() > 1 << 20);
    assert_true(os_memory_available() < UINT64_MAX);
    assert_true(os_load_average() >= 0);
    char model[80];
    assert_true(strlen(os_cpu_model(model, sizeof model)) > 0);
    assert_null(strchr(model, '\n'));
}

#define FS_TEST(f) cmocka_unit_test_setup_teardown(f, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FS_TEST(test_mapped_file_shows_its_bytes),
        FS_TEST(test_mapped_file_knows_its_times),
        FS_TEST(test_unreadable_paths_say_what_they_are),
        FS_TEST(test_reading_respects_the_limit),
        FS_TEST(test_dash_reads_standard_input),
        FS_TEST(test_signal_ends_a_waiting_read),
        FS_TEST(test_signal_ends_the_wait_for_a_fifo),
        FS_TEST(test_fifo_is_read_to_its_end),
        FS_TEST(test_regular_reading_refuses_pipes_and_devices_at_once),
        FS_TEST(test_one_file_has_many_names),
        FS_TEST(test_each_entry_is_shown_once),
        FS_TEST(test_real_paths_follow_links),
        FS_TEST(test_folders_are_made_with_their_parents),
        FS_TEST(test_files_below_a_folder_come_sorted),
        FS_TEST(test_listing_survives_each_lack_of_memory),
        FS_TEST(test_file_appears_whole_at_commit),
        FS_TEST(test_unsynced_file_appears_whole_as_well),
        FS_TEST(test_large_pieces_keep_their_order),
        FS_TEST(test_abort_leaves_the_old_file),
        FS_TEST(test_permissions_follow_umask_or_the_replaced_file),
        FS_TEST(test_writing_through_a_link_keeps_the_link),
        FS_TEST(test_a_link_may_be_replaced_itself),
        FS_TEST(test_touching_a_link_sets_its_own_times),
        FS_TEST(test_impossible_targets_are_refused),
        FS_TEST(test_full_disk_keeps_the_old_file_and_no_partial),
        FS_TEST(test_space_is_checked_before_writing),
        FS_TEST(test_refused_write_removes_the_partial_file),
        FS_TEST(test_writing_survives_each_lack_of_memory),
        FS_TEST(test_left_over_temporary_names_are_passed_over),
        FS_TEST(test_leftovers_of_the_dead_go_after_an_hour),
        FS_TEST(test_leftovers_of_every_kind_of_path_go),
        FS_TEST(test_longest_names_are_written),
        FS_TEST(test_reserved_names_are_new_each_time),
        cmocka_unit_test(test_machine_facts_are_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

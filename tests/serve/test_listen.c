/* test_listen.c: socket files that are replaced or left, sockets from systemd that are none, and
 * what systemd is told. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "serve/listen.h"
#include "serve/notify.h"

static void expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("not there: %s\nin: %s", part, text);
}

static void test_stale_socket_file_is_replaced(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    const char *path = in_folder("stale.sock");
    struct listen_socket first, second, third;
    zp_err err = { 0 };
    assert_int_equal(listen_unix(path, 0, &first, &err), ZP_OK);
    assert_int_equal(listen_port(&first), 0);
    assert_int_equal(listen_unix(path, 0, &second, &err), ZP_RUN); /* somebody listens */
    expect_in(err.message, "another program listens there");
    close(first.fd); /* as if the process were killed: the file stays */
    first.fd = -1;
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(listen_unix(path, 0, &third, NULL), ZP_OK);
    listen_close(&third);
    assert_int_not_equal(access(path, F_OK), 0);
    listen_close(&first); /* of its memory: there is no file any more */
    assert_int_equal(listen_unix(path, 0, &first, NULL), ZP_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(os_write_file(path, "keep", 4, NULL), ZP_OK);
    listen_close(&first); /* what is there now is not what it made */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(live_bytes(), live);
}

static void test_other_files_are_left(void **state)
{
    (void)state;
    uint64_t live = live_bytes();
    const char *path = in_folder("file");
    struct listen_socket s;
    zp_err err = { 0 };
    assert_int_equal(os_write_file(path, "keep", 4, NULL), ZP_OK);
    assert_int_equal(listen_unix(path, 0, &s, &err), ZP_RUN);
    expect_in(err.message, "not a socket");
    assert_int_equal(access(path, F_OK), 0);
    err.code = ZP_OK;
    assert_int_not_equal(listen_unix(in_folder("no/folder.sock"), 0, &s, &err), ZP_OK);
    expect_in(err.message, "no/folder.sock: cannot listen");
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(listen_unix(longest, 0, &s, NULL), ZP_USAGE);
    assert_int_equal(listen_unix("", 0, &s, NULL), ZP_USAGE);
    assert_int_equal(live_bytes(), live);
}

static void expect_refused(const char *pid, const char *fds, const char *words)
{
    struct listen_socket s[LISTEN_MOST];
    size_t n = 7;
    zp_err err = { 0 };
    assert_int_equal(listen_systemd(pid, fds, s, &n, &err), ZP_USAGE);
    assert_int_equal(n, 0);
    expect_in(err.message, words);
}

static void test_descriptors_that_are_no_listeners(void **state)
{
    (void)state;
    char self[32];
    snprintf(self, sizeof self, "%ld", (long)getpid());
    expect_refused("", "1", "LISTEN_PID is \"\"");
    expect_refused("-5", "1", "LISTEN_PID is \"-5\"");
    expect_refused("99999999999999999999", "1", "LISTEN_PID");
    expect_refused(self, "", "LISTEN_FDS is \"\"");
    expect_refused(self, "1x", "LISTEN_FDS is \"1x\"");
    expect_refused(self, "17", "up to 16");
    int fd = open("/dev/null", O_RDONLY); /* is 3, or 3 is something else that is no listener */
    expect_refused(self, "1", "descriptor 3 from systemd is not a stream socket that listens");
    close(fd);
}

static int open_manager(const char *name, bool abstract)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", name);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    if (abstract) a.sun_path[0] = '\0';
    assert_int_equal(bind(fd, (struct sockaddr *)&a, size), 0);
    return fd;
}

static const char *receive(int fd)
{
    static char text[1024];
    ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static void test_systemd_is_told(void **state)
{
    (void)state;
    char name[100];
    for (int abstract = 0; abstract <= 1; abstract++) {
        snprintf(name, sizeof name, "%s%s", abstract ? "@zerope" : "", in_folder("notify"));
        int fd = open_manager(name, abstract);
        assert_int_equal(notify_send(name, NOTIFY_READY, NULL, NULL), ZP_OK);
        assert_string_equal(receive(fd), "READY=1");
        assert_int_equal(notify_send(name, NOTIFY_STOPPING, "3 requests\nREADY=1", NULL), ZP_OK);
        assert_string_equal(receive(fd), "STOPPING=1\nSTATUS=3 requests");
        assert_int_equal(notify_send(name, NOTIFY_WATCHDOG, NULL, NULL), ZP_OK);
        assert_string_equal(receive(fd), "WATCHDOG=1");
        assert_int_equal(notify_send(name, NOTIFY_RELOADING, NULL, NULL), ZP_OK);
        const char *text = receive(fd);
        assert_int_equal(strncmp(text, "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
        assert_true(strtoll(text + 27, NULL, 10) > 0);
        close(fd);
    }
    assert_int_equal(notify_send(NULL, NOTIFY_READY, NULL, NULL), ZP_OK);
    assert_int_equal(notify_send("", NOTIFY_READY, NULL, NULL), ZP_OK);
    zp_err err = { 0 };
    assert_int_equal(notify_send("relative", NOTIFY_READY, NULL, &err), ZP_USAGE);
    err.code = ZP_OK;
    assert_int_equal(notify_send(in_folder("nobody"), NOTIFY_READY, NULL, &err), ZP_IO);
    expect_in(err.message, "cannot notify");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stale_socket_file_is_replaced),
        cmocka_unit_test(test_other_files_are_left),
        cmocka_unit_test(test_descriptors_that_are_no_listeners),
        cmocka_unit_test(test_systemd_is_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

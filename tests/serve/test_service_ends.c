/* test_service_ends.c: how requests and the server end: clients that go away in each phase,
 * deadlines, cancellation by hand, draining, a second stop, what the service manager is told. */
#include "golden.h"

#include "in_folder.h"
#include "service_fixture.h"

static const char text_path[] = "/v1/completions";
/* Longer than any test: it ends because somebody ends it. */
static const char endless[] =
    "{\"prompt\":\"Hello\",\"max_tokens\":60000,\"ignore_eos\":true,\"stream\":true}";

static zp_serve_options long_options(uint32_t n_seq)
{
    zp_serve_options o = live_options();
    o.engine.n_ctx = 65536;
    o.engine.n_seq = n_seq;
    o.kv_tokens = 65536 + 1024;
    return o;
}

static void check_phase(const struct live *l, const char *outcome, const char *phase, int n)
{
    char line[200];
    struct reply r = live_ask(l, "GET", "/metrics", "", NULL);
    snprintf(line, sizeof line, "zerope_requests_phase_total{variant=\"baseline\",outcome=\"%s\","
             "phase=\"%s\"} %d\n", outcome, phase, n);
    if (strstr(r.body, line) == NULL) fail_msg("there is no %s", line);
    reply_free(&r);
}

/* While it waits, and while it draws: nothing is computed for it any more. */
static void test_clients_that_go_away_end_their_requests(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, long_options(1));
    int first = live_begin_ask(&l, "POST", text_path, "", endless);
    (void)client_read(first, "\"text\":");
    int second = live_begin_ask(&l, "POST", text_path, "", endless);
    live_until(&l, "scheduler.waiting", 1);
    client_reset(second);
    live_until(&l, "requests.under_way", 1);
    check_phase(&l, "cancelled", "queue", 1);
    close(first);
    live_until(&l, "requests.under_way", 0);
    check_phase(&l, "cancelled", "decode", 1);
    live_until(&l, "scheduler.running", 0);
    assert_int_equal(live_figure(&l, "requests.cancelled"), 2);
    live_check_books(&l);
    live_end(&l);
}

/* One that never reads its answer, in the middle of its prompt. */
static void test_a_client_that_goes_away_during_its_prompt(void **state)
{
    enum { SIZE = 60000 };
    struct live l;
    (void)state;
    char *body = malloc(SIZE + 200);
    assert_non_null(body);
    int n = sprintf(body, "{\"max_tokens\":5,\"prompt\":\"");
    for (int i = 0; i < SIZE; i++) body[n++] = (char)('a' + i * 7 % 26);
    sprintf(body + n, "\"}");
    live_begin(&l, long_options(1));
    int fd = live_begin_ask(&l, "POST", text_path, "", body);
    live_until(&l, "scheduler.running", 1);
    close(fd);
    live_until(&l, "requests.under_way", 0);
    assert_int_equal(live_figure(&l, "requests.cancelled"), 1);
    check_phase(&l, "cancelled", "prefill", 1);
    live_check_books(&l);
    live_end(&l);
    free(body);
}

static void test_deadlines_fail_requests(void **state)
{
    static const char whole[] = "{\"prompt\":\"Hello\",\"max_tokens\":60000,\"ignore_eos\":true,"
                                "\"timeout\":0.05}",
                      stream[] = "{\"prompt\":\"Hello\",\"max_tokens\":60000,\"ignore_eos\":true,"
                                 "\"timeout\":0.3,\"stream\":true}";
    struct live l;
    (void)state;
    live_begin(&l, long_options(2));
    json_t *j = live_json(&l, "POST", text_path, "", whole, 504);
    assert_string_equal(text_in(j, "error.code"), "deadline_exceeded");
    json_decref(j);
    struct reply r = live_ask(&l, "POST", text_path, "", stream);
    assert_non_null(strstr(r.body, "deadline_exceeded"));
    assert_null(strstr(r.body, "[DONE]"));
    reply_free(&r);
    assert_int_equal(live_figure(&l, "requests.failed"), 2);
    live_check_books(&l);
    live_end(&l);
}

static void test_requests_are_cancelled_by_hand(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, long_options(2));
    int fd = live_begin_ask(&l, "POST", text_path, "x-request-id: one\r\n", endless);
    (void)client_read(fd, "\"text\":");
    json_t *j = live_get(&l, "/admin/requests");
    assert_string_equal(text_in(j, "requests.0.id"), "one");
    assert_string_equal(text_in(j, "requests.0.phase"), "decode");
    json_decref(j);
    json_decref(live_json(&l, "POST", "/admin/requests/cancel", "", "{\"id\":\"two\"}", 404));
    json_decref(live_post(&l, "/admin/requests/cancel", "{\"id\":\"one\"}"));
    size_t size;
    char *rest = live_read_all(fd, &size);
    close(fd);
    assert_non_null(strstr(rest, "the request was cancelled"));
    free(rest);
    live_check_books(&l);
    assert_int_equal(live_figure(&l, "requests.cancelled"), 1);
    live_end(&l);
}

/* ---- the end of the server ------------------------------------------------------------------- */

static void test_what_is_under_way_is_finished_when_it_stops(void **state)
{
    static const char body[] = "{\"prompt\":\"Hello\",\"max_tokens\":2000,\"ignore_eos\":true,"
                               "\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
    zp_serve_options o = long_options(2);
    struct live l;
    (void)state;
    o.drain_timeout = 1000;
    live_begin(&l, o);
    int fd = live_begin_ask(&l, "POST", text_path, "", body);
    (void)client_read(fd, "\"text\":");
    zp_serve_stop(l.s);
    size_t size;
    char *rest = live_read_all(fd, &size);
    close(fd);
    assert_non_null(strstr(rest, "\"completion_tokens\":2000"));
    assert_non_null(strstr(rest, "data: [DONE]"));
    free(rest);
    while (live_logged(&l, "\"outcome\":\"completed\"") == 0) sched_yield();
    live_join(&l);
}

/* Its time is over, or it is told twice: streams get an error in place of their end. */
static void check_cut(double drain_timeout, int n_stops)
{
    zp_serve_options o = long_options(2);
    struct live l;
    o.drain_timeout = drain_timeout;
    live_begin(&l, o);
    int fd = live_begin_ask(&l, "POST", text_path, "", endless);
    (void)client_read(fd, "\"text\":");
    for (int i = 0; i < n_stops; i++) zp_serve_stop(l.s);
    size_t size;
    char *rest = live_read_all(fd, &size);
    close(fd);
    assert_non_null(strstr(rest, "the server shut down before the request was finished"));
    assert_null(strstr(rest, "[DONE]"));
    free(rest);
    live_join(&l);
}

static void test_what_is_not_finished_in_time_is_told(void **state)
{
    (void)state;
    check_cut(0.05, 1);
    check_cut(1000, 2);
}

static void test_draining_refuses_new_requests(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, long_options(2));
    int fd = live_begin_ask(&l, "POST", text_path, "", endless), other = client_dial(l.port);
    (void)client_read(fd, "\"text\":");
    client_say(other, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /v1/completions HTTP/1.1"
                      "\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"");
    (void)client_read(other, "{\"status\":\"ok\"}");
    json_decref(live_post(&l, "/admin/drain", "{\"seconds\":1000}"));
    client_say(other, "}");
    const char *answer = client_read(other, NULL);
    assert_non_null(strstr(answer, "HTTP/1.1 503"));
    assert_non_null(strstr(answer, "\"code\":\"draining\""));
    assert_non_null(strstr(answer, "retry-after: "));
    close(other);
    close(fd);
    live_join(&l);
}

static int notify_socket(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct timeval most = { .tv_sec = PATIENCE };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void expect_notice(int fd, const char *words)
{
    char text[600];
    ssize_t n;
    do {
        n = recv(fd, text, sizeof text - 1, 0);
        if (n <= 0) fail_msg("%s never came", words);
        text[n] = '\0';
    } while (strncmp(text, "WATCHDOG=1", 10) == 0 && strncmp(words, "WATCHDOG", 8) != 0);
    if (strncmp(text, words, strlen(words)) != 0) fail_msg("%s instead of %s", text, words);
}

static void test_the_service_manager_is_told(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    int fd = notify_socket(in_folder("notify"));
    o.notify_socket = in_folder("notify");
    o.watchdog_usec = "300000";
    live_begin(&l, o);
    expect_notice(fd, "READY=1");
    expect_notice(fd, "WATCHDOG=1");
    zp_serve_reload(l.s);
    expect_notice(fd, "RELOADING=1");
    expect_notice(fd, "READY=1");
    zp_serve_stop(l.s);
    expect_notice(fd, "STOPPING=1");
    live_join(&l);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clients_that_go_away_end_their_requests),
        cmocka_unit_test(test_a_client_that_goes_away_during_its_prompt),
        cmocka_unit_test(test_deadlines_fail_requests),
        cmocka_unit_test(test_requests_are_cancelled_by_hand),
        cmocka_unit_test(test_what_is_under_way_is_finished_when_it_stops),
        cmocka_unit_test(test_what_is_not_finished_in_time_is_told),
        cmocka_unit_test(test_draining_refuses_new_requests),
        cmocka_unit_test(test_the_service_manager_is_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

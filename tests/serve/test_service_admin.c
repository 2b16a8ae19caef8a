/* test_service_admin.c: who may use the server, and how much: keys, their limits, reloading, the
 * door of /admin, and its documents. */
#include "golden.h"

#include "in_folder.h"
#include "serve/servetrace.h"
#include "service_fixture.h"

static const char text_path[] = "/v1/completions", small[] = "{\"prompt\":\"x\",\"max_tokens\":2}";

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int status_of(const struct live *l, const char *method, const char *path,
                     const char *headers, const char *body)
{
    struct reply r = live_ask(l, method, path, headers, body);
    int status = r.status;
    reply_free(&r);
    return status;
}

static int use(const struct live *l, const char *headers)
{
    return status_of(l, "POST", text_path, headers, small);
}

#define BEARER(key) "Authorization: Bearer " key "\r\n"

static void test_keys_are_asked_for_and_reloaded(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.api_keys = in_folder("keys");
    write_file(o.api_keys, "# who\nann first-secret\nbob sha256:"
               "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n");
    live_begin(&l, o);
    assert_int_equal(use(&l, ""), 401);
    assert_int_equal(use(&l, BEARER("first-secreT")), 401);
    assert_int_equal(use(&l, BEARER("first-secret")), 200);
    assert_int_equal(use(&l, "x-api-key: first-secret\r\n"), 200);
    assert_int_equal(use(&l, BEARER("test")), 200); /* by its hash */
    json_t *j = live_json(&l, "POST", "/v1/messages", "", "{}", 401);
    assert_string_equal(text_in(j, "error.type"), "authentication_error");
    json_decref(j);
    assert_int_equal(status_of(&l, "GET", "/v1/models", "", NULL), 401);
    assert_int_equal(status_of(&l, "GET", "/readyz", "", NULL), 200);
    assert_int_equal(status_of(&l, "GET", "/metrics", "", NULL), 200);
    write_file(o.api_keys, "ann second-secret\n");
    zp_serve_reload(l.s);
    while (live_logged(&l, "\"event\":\"reload\"") == 0) json_decref(live_get(&l, "/healthz"));
    assert_int_equal(use(&l, BEARER("first-secret")), 401);
    assert_int_equal(use(&l, BEARER("second-secret")), 200);
    write_file(o.api_keys, "short\n"); /* no good: the old ones stay */
    zp_serve_reload(l.s);
    while (live_logged(&l, "\"event\":\"reload\"") == 1) json_decref(live_get(&l, "/healthz"));
    assert_int_equal(use(&l, BEARER("second-secret")), 200);
    assert_int_equal(live_logged(&l, "first-secret") + live_logged(&l, "second-secret"), 0);
    live_check_books(&l);
    live_end(&l);
}

static void test_keys_have_limits(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.api_keys = in_folder("keys");
    write_file(o.api_keys, "ann first-secret requests=2\nbob second-secret tokens=3\n");
    live_begin(&l, o);
    struct reply r = live_ask(&l, "POST", text_path, BEARER("first-secret"), small);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "\r\nx-ratelimit-limit-requests: 2\r\n"));
    assert_non_null(strstr(r.head, "\r\nx-ratelimit-remaining-requests: 1\r\n"));
    reply_free(&r);
    assert_int_equal(use(&l, BEARER("first-secret")), 200);
    r = live_ask(&l, "POST", text_path, BEARER("first-secret"), small);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "\r\nretry-after: "));
    json_t *j = reply_json(&r);
    assert_string_equal(text_in(j, "error.code"), "rate_limit_exceeded");
    assert_string_equal(text_in(j, "error.type"), "rate_limit_error");
    json_decref(j);
    reply_free(&r);
    assert_int_equal(use(&l, BEARER("second-secret")), 200); /* its last tokens */
    assert_int_equal(use(&l, BEARER("second-secret")), 429);
    r = live_ask(&l, "GET", "/metrics", "", NULL);
    assert_non_null(strstr(r.body, "zerope_requests_refused_total{endpoint=\"completions\","
                                   "reason=\"rate_limit\"} 2\n"));
    reply_free(&r);
    live_end(&l);
}

static void test_the_door_of_admin(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.admin_open = false;
    live_begin(&l, o);
    assert_int_equal(status_of(&l, "GET", "/admin/status", "", NULL), 403);
    live_end(&l);
    o.admin_open = true; /* to this machine, by its own name */
    live_begin(&l, o);
    assert_int_equal(status_of(&l, "GET", "/admin/status", "", NULL), 200);
    int fd = client_dial(l.port);
    client_say(fd, "GET /admin/status HTTP/1.1\r\nHost: rebound.example\r\n"
                   "Connection: close\r\n\r\n");
    struct reply r = live_finish(fd);
    assert_int_equal(r.status, 403);
    reply_free(&r);
    live_end(&l);
    o.admin_keys = in_folder("admin");
    o.api_keys = in_folder("keys");
    write_file(o.admin_keys, "chief admin-secret\n");
    write_file(o.api_keys, "ann first-secret\n");
    live_begin(&l, o);
    assert_int_equal(status_of(&l, "GET", "/admin/status", "", NULL), 401);
    assert_int_equal(status_of(&l, "GET", "/admin/status", BEARER("first-secret"), NULL), 401);
    assert_int_equal(status_of(&l, "GET", "/admin/status", BEARER("admin-secret"), NULL), 200);
    assert_int_equal(status_of(&l, "POST", "/admin/breaker", BEARER("admin-secret"),
                               "{\"action\":\"open\",\"why\":\"a try\"}"), 200);
    assert_int_equal(live_count(l.audit, "\"actor\": \"chief\""), 1);
    live_end(&l);
}

static void test_documents_of_admin(void **state)
{
    struct live l;
    (void)state;
    live_begin(&l, live_options());
    json_t *j = live_get(&l, "/admin/status");
    assert_string_equal(text_in(j, "server.state"), "ready");
    assert_string_equal(text_in(j, "models.baseline.arch"), "llama");
    assert_int_equal(number_in(j, "models.baseline.n_layer"), 4);
    assert_string_equal(text_in(j, "rollout.breaker.state"), "closed");
    (void)number_in(j, "latency.baseline.inter_token_seconds.count");
    (void)number_in(j, "scheduler.baseline.kv_pages");
    json_decref(j);
    j = live_get(&l, "/admin/gates");
    assert_int_equal(json_array_size(json_in(j, "baseline.layers")), 4);
    assert_int_equal(number_in(j, "baseline.layers.0.open_pairs.1"), 8);
    assert_true(json_is_null(json_in(j, "candidate")));
    json_decref(j);
    j = live_get(&l, "/admin/audit");
    assert_string_equal(text_in(j, "lines.0.what"), "baseline_loaded");
    json_decref(j);
    json_decref(live_json(&l, "POST", "/admin/canary", "", "{\"action\":\"set\",\"percent\":5}",
                          400)); /* there is no candidate */
    j = live_json(&l, "POST", "/admin/canary", "", "{\"action\":\"jump\"}", 400);
    assert_string_equal(text_in(j, "error.param"), "action");
    json_decref(j);
    json_decref(live_json(&l, "POST", "/admin/models", "", "{\"action\":\"load-candidate\"}", 400));
    json_decref(live_json(&l, "POST", "/admin/drain", "", "{\"seconds\":-1}", 400));
    live_end(&l);
}

/* The second of two equal prompts is reused, unless the cache was dropped between them, or it is
 * another tenant's. */
static void test_what_is_reused(void **state)
{
    zp_serve_options o = live_options();
    struct live l;
    char body[300];
    (void)state;
    o.api_keys = in_folder("keys");
    write_file(o.api_keys, "ann first-secret\nbob second-secret\n");
    snprintf(body, sizeof body, "{\"max_tokens\":2,\"prompt\":\"%0200d\"}", 7);
    live_begin(&l, o);
    static const struct {
        const char *key;
        bool drops;
        double cached;
    } steps[] = { { BEARER("first-secret"), false, 0 }, { BEARER("first-secret"), false, 192 },
                  { BEARER("second-secret"), false, 0 }, { BEARER("first-secret"), true, 0 },
                  { BEARER("first-secret"), false, 192 } };
    for (size_t i = 0; i < ZP_COUNT(steps); i++) {
        if (steps[i].drops) json_decref(live_post(&l, "/admin/cache", "{\"action\":\"drop\"}"));
        json_t *j = live_json(&l, "POST", text_path, steps[i].key, body, 200);
        assert_int_equal(number_in(j, "usage.prompt_tokens_details.cached_tokens"),
                         steps[i].cached);
        json_decref(j);
    }
    live_end(&l);
}

/* ---- traces ---------------------------------------------------------------------------------- */

static int collector_socket(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof a;
    int fd = client_socket(AF_INET);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void test_traces_reach_the_collector(void **state)
{
    static const char trace[] =
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        "\r\n";
    zp_serve_options o = live_options();
    struct live l;
    uint16_t port;
    char url[64];
    (void)state;
    int listener = collector_socket(&port);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    o.otlp = url;
    live_begin(&l, o);
    assert_int_equal(use(&l, trace), 200);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    const char *text = client_read(fd, "zerope.");
    assert_memory_equal(text, "POST /v1/traces HTTP/1.1\r\n", 26);
    assert_non_null(strstr(text, "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_non_null(strstr(text, "00f067aa0ba902b7"));
    client_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    close(fd);
    bool sent = false;
    while (!sent) {
        struct reply r = live_ask(&l, "GET", "/metrics", "", NULL);
        sent = strstr(r.body, "zerope_trace_spans_total{result=\"sent\"} 0\n") == NULL;
        reply_free(&r);
    }
    close(listener);
    live_end(&l);
}

static void test_addresses_of_collectors(void **state)
{
    static const char *const wrong[] = { "", "https://a", "http://", "http://a:", "http://a:b",
                                         "http://a:123456", "http://[::1", "http://a/b c" };
    struct servetrace_place p;
    (void)state;
    assert_int_equal(servetrace_read_url("http://a", &p, NULL), ZP_OK);
    assert_string_equal(p.host, "a");
    assert_string_equal(p.port, "4318");
    assert_string_equal(p.path, "/v1/traces");
    assert_int_equal(servetrace_read_url("http://[::1]:99/x/y", &p, NULL), ZP_OK);
    assert_string_equal(p.host, "::1");
    assert_string_equal(p.port, "99");
    assert_string_equal(p.path, "/x/y");
    for (size_t i = 0; i < ZP_COUNT(wrong); i++)
        assert_int_equal(servetrace_read_url(wrong[i], &p, NULL), ZP_USAGE);
}

/* Mode half is offered to the SLA only with a gain that was measured here; of this model none can
 * be. */
static void test_the_gain_of_mode_half_is_told(void **state)
{
    static const char *const sla[] = { "short:300:2000" };
    zp_serve_options o = live_options();
    struct live l;
    (void)state;
    o.sla = (zp_serve_list){ sla, 1 };
    live_begin(&l, o);
    json_t *j = live_get(&l, "/admin/status");
    assert_true(json_is_null(json_in(j, "models.baseline.half_gain.short")));
    assert_non_null(strstr(text_in(j, "models.baseline.half_gain.why"), "position mode half"));
    assert_true(json_is_null(json_in(j, "rollout.sla.short.half_gain")));
    json_decref(j);
    assert_int_equal(live_count(l.audit, "\"what\": \"half_gain_measured\""), 1);
    assert_int_equal(live_logged(&l, "\"event\":\"half_gain\""), 1);
    live_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_asked_for_and_reloaded),
        cmocka_unit_test(test_keys_have_limits),
        cmocka_unit_test(test_the_door_of_admin),
        cmocka_unit_test(test_documents_of_admin),
        cmocka_unit_test(test_what_is_reused),
        cmocka_unit_test(test_traces_reach_the_collector),
        cmocka_unit_test(test_addresses_of_collectors),
        cmocka_unit_test(test_the_gain_of_mode_half_is_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

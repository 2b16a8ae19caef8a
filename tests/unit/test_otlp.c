/* test_otlp.c: spans of requests as OTLP's JSON, to the last byte; what has no room is dropped
 * whole and counted. */
#include "golden.h"

#include "base/bytes.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "live_bytes.h"
#include "obs/otlp.h"

static const uint8_t caller[8] = { 0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31 };

/* Clock: os_now() 0 is second 1900000000 since 1970. */
static void open_spans(struct otlp *o, size_t most)
{
    zp_err err = { 0 };
    const struct otlp_options options = { .version = "0.1.0", .instance = "a:1", .most_bytes = most,
                                          .seed = 1 };
    if (otlp_open(o, &options, &err) != ZP_OK) fail_msg("%s", err.message);
    otlp_set_clock(o, 1000, 1900001000000000000);
}

static struct otlp_request request(void)
{
    struct otlp_request r = { .method = "POST", .route = "/v1/messages", .arrived = 2000 };
    r.ended = 2001.5;
    assert_true(traceparent_read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                                 &r.trace));
    return r;
}

static char *take(struct otlp *o, size_t *n)
{
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 24);
    assert_int_equal(otlp_take(o, &out, n, NULL), ZP_OK);
    return (char *)out.data; /* released with mem_free */
}

/* ---- documents ------------------------------------------------------------------------------- */

#define COUNT(key, n) "{\"key\": \"" key "\", \"value\": {\"intValue\": \"" n "\"}}"
#define TEXT(key, text) "{\"key\": \"" key "\", \"value\": {\"stringValue\": \"" text "\"}}"

/* A request that was refused: no phase but the first, no parent, nothing known of a model. */
static void test_exact_document(void **state)
{
    (void)state;
    struct otlp o;
    struct otlp_request r = request();
    size_t n;
    open_spans(&o, 0);
    r.error = "no \"room\"";
    r.status = 503;
    otlp_add(&o, &r);
    char *text = take(&o, &n), id[17] = "";
    assert_int_equal(n, 2);
    /* The child's id is random: it is looked up, and must be another one. */
    const char *at = strstr(text, "\"accept\"");
    assert_non_null(at);
    while (strncmp(at, "\"spanId\": \"", 11) != 0) at--;
    memcpy(id, at + 11, 16);
    assert_string_not_equal(id, "00f067aa0ba902b7");
    assert_int_equal(strspn(id, "0123456789abcdef"), 16);
    char wanted[4096];
    snprintf(
        wanted, sizeof wanted,
        "{\"resourceSpans\": [{\"resource\": {\"attributes\": [" TEXT("service.name", "zerope") ", "
        TEXT("service.version", "0.1.0") ", " TEXT("service.instance.id", "a:1") "]}, "
        "\"scopeSpans\": [{\"scope\": {\"name\": \"zerope\", \"version\": \"0.1.0\"}, \"spans\": ["
        "{\"traceId\": \"4bf92f3577b34da6a3ce929d0e0e4736\", \"spanId\": \"00f067aa0ba902b7\", "
        "\"kind\": 2, \"startTimeUnixNano\": \"1900002000000000000\", "
        "\"endTimeUnixNano\": \"1900002001500000000\", \"name\": \"POST /v1/messages\", "
        "\"attributes\": [" TEXT("http.request.method", "POST") ", "
        TEXT("http.route", "/v1/messages") ", " COUNT("http.response.status_code", "503") ", "
        COUNT("gen_ai.usage.input_tokens", "0") ", " COUNT("gen_ai.usage.output_tokens", "0") ", "
        COUNT("zerope.reused_tokens", "0") "], "
        "\"status\": {\"code\": 2, \"message\": \"no \\\"room\\\"\"}}, "
        "{\"traceId\": \"4bf92f3577b34da6a3ce929d0e0e4736\", \"spanId\": \"%s\", "
        "\"parentSpanId\": \"00f067aa0ba902b7\", \"kind\": 1, "
        "\"startTimeUnixNano\": \"1900002000000000000\", "
        "\"endTimeUnixNano\": \"1900002001500000000\", \"name\": \"accept\"}]}]}]}",
        id);
    assert_string_equal(text, wanted);
    mem_free(text);
    otlp_free(&o);
}

static json_t *spans_of(json_t *doc)
{
    json_t *resource = json_array_get(json_object_get(doc, "resourceSpans"), 0);
    json_t *scope = json_array_get(json_object_get(resource, "scopeSpans"), 0);
    return json_object_get(scope, "spans");
}

static const char *member(json_t *span, const char *key)
{
    return json_string_value(json_object_get(span, key));
}

static json_t *read_doc(char *text)
{
    json_t *doc;
    zp_err err = { 0 };
    if (json_tree_read(text, strlen(text), "x", ZP_BAD_INPUT, &doc, &err) != ZP_OK)
        fail_msg("%s", err.message);
    mem_free(text);
    return doc;
}

static void test_phases_follow_each_other(void **state)
{
    (void)state;
    static const struct {
        const char *name, *begin, *end;
    } wanted[] = { { "POST /v1/messages", "1900002000000000000", "1900002001500000000" },
                   { "accept", "1900002000000000000", "1900002000125000000" },
                   { "queue", "1900002000125000000", "1900002000250000000" },
                   { "prefill", "1900002000250000000", "1900002000500000000" },
                   { "decode", "1900002000500000000", "1900002001250000000" },
                   { "stream", "1900002000625000000", "1900002001500000000" } };
    struct otlp o;
    struct otlp_request r = request();
    size_t n;
    open_spans(&o, 0);
    r.parent = caller;
    r.accepted = 2000.125, r.begun = 2000.25, r.first_token = 2000.5, r.last_token = 2001.25;
    r.stream = 2000.625;
    otlp_add(&o, &r);
    json_t *doc = read_doc(take(&o, &n)), *spans = spans_of(doc);
    assert_int_equal(n, 6);
    assert_int_equal(json_array_size(spans), 6);
    for (size_t i = 0; i < 6; i++) {
        json_t *span = json_array_get(spans, i);
        assert_string_equal(member(span, "name"), wanted[i].name);
        assert_string_equal(member(span, "startTimeUnixNano"), wanted[i].begin);
        assert_string_equal(member(span, "endTimeUnixNano"), wanted[i].end);
        assert_string_equal(member(span, "parentSpanId"),
                            i == 0 ? "b7ad6b7169203331" : "00f067aa0ba902b7");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(member(span, "spanId"),
                                    member(json_array_get(spans, k), "spanId"));
    }
    json_decref(doc);
    otlp_free(&o);
}

/* One that was cancelled while it was computed: the phase ends with the request. */
static void test_an_unfinished_phase_ends_with_its_request(void **state)
{
    (void)state;
    struct otlp o;
    struct otlp_request r = request();
    size_t n;
    open_spans(&o, 0);
    r.accepted = 2000.125, r.begun = 2000.25;
    otlp_add(&o, &r);
    json_t *doc = read_doc(take(&o, &n)), *last = json_array_get(spans_of(doc), 3);
    assert_int_equal(n, 4);
    assert_string_equal(member(last, "name"), "prefill");
    assert_string_equal(member(last, "endTimeUnixNano"), "1900002001500000000");
    json_decref(doc);
    otlp_free(&o);
}

static void test_what_is_not_sampled_leaves_nothing(void **state)
{
    (void)state;
    struct otlp o;
    struct otlp_request r = request();
    size_t n = 9;
    open_spans(&o, 0);
    r.trace.sampled = false;
    otlp_add(&o, &r);
    assert_null(take(&o, &n));
    assert_int_equal(n, 0);
    assert_int_equal(o.n_dropped, 0);
    otlp_free(&o);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void test_what_has_no_room_is_dropped_and_counted(void **state)
{
    (void)state;
    struct otlp o;
    struct otlp_request r = request();
    size_t n, fitted;
    open_spans(&o, 8000);
    for (int i = 0; i < 100; i++) {
        otlp_add(&o, &r);
        assert_true(o.spans.size <= 8000);
        assert_int_equal(o.n_waiting + o.n_dropped, 2u * (unsigned)(i + 1));
    }
    fitted = o.n_waiting;
    assert_in_range(fitted, 4, 60);
    json_t *doc = read_doc(take(&o, &n));
    assert_int_equal(n, fitted);
    assert_int_equal(json_array_size(spans_of(doc)), fitted);
    json_decref(doc);
    otlp_add(&o, &r); /* there is room again */
    doc = read_doc(take(&o, &n));
    assert_int_equal(json_array_size(spans_of(doc)), 2);
    json_decref(doc);
    otlp_free(&o);
}

/* Whichever allocation fails while spans are added, the document is whole. */
static void test_adding_survives_each_lack_of_memory(void **state)
{
    (void)state;
    uint64_t before = live_bytes();
    for (uint64_t fail = 1;; fail++) {
        struct otlp o;
        struct otlp_request r = request();
        size_t n, added = 0;
        open_spans(&o, 0);
        mem_fail_at(fail, false);
        for (; added < 20; added++) otlp_add(&o, &r);
        bool failed = mem_fail_count() != 0;
        mem_fail_at(0, false);
        json_t *doc = read_doc(take(&o, &n));
        assert_int_equal(json_array_size(spans_of(doc)), n);
        assert_int_equal(n + o.n_dropped, 2 * added);
        assert_true(failed ? o.n_dropped <= 2 : o.n_dropped == 0);
        json_decref(doc);
        otlp_free(&o);
        assert_int_equal(live_bytes(), before);
        if (!failed) break;
    }
}

static void test_opening_and_taking_survive_lack_of_memory(void **state)
{
    (void)state;
    uint64_t before = live_bytes();
    struct otlp o;
    struct otlp_request r = request();
    const struct otlp_options options = { .version = "0.1.0" };
    zp_status status = ZP_NO_MEMORY;
    for (uint64_t n = 1; status != ZP_OK; n++) {
        mem_fail_at(n, false);
        status = otlp_open(&o, &options, NULL);
        mem_fail_at(0, false);
        if (status != ZP_OK) assert_int_equal(live_bytes(), before);
    }
    otlp_add(&o, &r);
    struct buffer out = buffer_with_max(MEM_SERVE, 1 << 20);
    size_t n;
    mem_fail_at(1, false);
    assert_int_equal(otlp_take(&o, &out, &n, NULL), ZP_NO_MEMORY);
    mem_fail_at(0, false);
    assert_int_equal(o.n_waiting, 2);
    assert_int_equal(otlp_take(&o, &out, &n, NULL), ZP_OK);
    assert_int_equal(n, 2);
    buffer_free(&out);
    otlp_free(&o);
    assert_int_equal(live_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_document),
        cmocka_unit_test(test_phases_follow_each_other),
        cmocka_unit_test(test_an_unfinished_phase_ends_with_its_request),
        cmocka_unit_test(test_what_is_not_sampled_leaves_nothing),
        cmocka_unit_test(test_what_has_no_room_is_dropped_and_counted),
        cmocka_unit_test(test_adding_survives_each_lack_of_memory),
        cmocka_unit_test(test_opening_and_taking_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

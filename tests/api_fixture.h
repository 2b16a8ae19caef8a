/* api_fixture.h: what the tests of the server's APIs share: JSON written with ` in place of ",
 * requests that are read or refused, and events that are collected as a client gets them. */
#ifndef TESTS_API_FIXTURE_H
#define TESTS_API_FIXTURE_H

#include "golden.h"

#include "base/bytes.h"
#include "serve/api_anthropic.h"
#include "serve/api_openai.h"

/* The text with " in place of `; released with free(). */
static inline char *api_json(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *p = copy; *p != '\0'; p++)
        if (*p == '`') *p = '"';
    return copy;
}

typedef zp_status (*api_reader)(struct api_request *r, const char *body, size_t size,
                                const struct api_limits *limits, struct apifault *fault);
static const struct api_limits api_no_limits = { 0 };

/* The bytes alone, so that a sanitizer sees who reads on. */
static inline zp_status api_try(api_reader read, const char *text, const struct api_limits *limits,
                                struct api_request *r, struct apifault *fault)
{
    char *json = api_json(text);
    size_t size = strlen(json);
    char *body = malloc(size ? size : 1);
    assert_non_null(body);
    memcpy(body, json, size);
    *fault = (struct apifault){ 0 };
    zp_status status = read(r, body, size, limits, fault);
    free(body);
    free(json);
    return status;
}

/* A request that is read; to apirequest_free. */
static inline struct api_request api_read_with(api_reader read, const char *text,
                                               const struct api_limits *limits)
{
    struct api_request r;
    struct apifault fault;
    if (api_try(read, text, limits, &r, &fault) != ZP_OK)
        fail_msg("%s\n refused: %s", text, fault.message);
    assert_int_equal(fault.status, 0);
    return r;
}

static inline struct api_request api_read(api_reader read, const char *text)
{
    return api_read_with(read, text, &api_no_limits);
}

/* A request that is refused: 400 with this field, code and message. */
static inline void api_refused_with(api_reader read, const char *text,
                                    const struct api_limits *limits, const char *param,
                                    const char *code, const char *message)
{
    struct api_request r;
    struct apifault fault;
    char *expected = api_json(message);
    if (api_try(read, text, limits, &r, &fault) == ZP_OK) fail_msg("%s\n is taken", text);
    apirequest_free(&r);
    assert_int_equal(fault.status, 400);
    if (strcmp(fault.message, expected) != 0)
        fail_msg("%s\n refused: %s\n expected %s", text, fault.message, message);
    assert_string_equal(fault.param, param);
    assert_string_equal(fault.code, code);
    free(expected);
}

static inline void api_refused(api_reader read, const char *text, const char *param,
                               const char *code, const char *message)
{
    api_refused_with(read, text, &api_no_limits, param, code, message);
}

/* A value of each type of JSON, and some of their special cases, each with a letter. */
static const struct {
    char letter;
    const char *json;
} api_samples[] = {
    { 'n', "null" }, { 't', "true" }, { 'f', "false" }, { 'i', "1" }, { 'm', "-5" }, { 'r', "0.5" },
    { 's', "`x`" },  { 'e', "``" },   { 'a', "[]" },    { 'l', "[`a`]" },
    { 'o', "{}" },   { 'p', "{`zz`:1}" },
};

static inline void api_member_is(const json_t *object, const char *key, const char *expected)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strcmp(text, expected) != 0)
        fail_msg("%s: %s, expected %s", key, text ? text : "no text", expected);
}

/* What a client is told of a field that is wrong, in both shapes. */
static inline void api_fault_names(const struct apifault *f, const char *name)
{
    static const char *const codes[] = { "invalid_value", "unsupported_value",
                                         "missing_required_parameter" };
    size_t size = strlen(name), n = 0;
    for (size_t i = 0; i < ZP_COUNT(codes); i++) n += strcmp(f->code, codes[i]) == 0;
    if (n != 1 || f->status != 400) fail_msg("%s: %d %s", name, f->status, f->code);
    if (strncmp(f->param, name, size) != 0 || (f->param[size] && !strchr(".[", f->param[size])))
        fail_msg("%s: param %s", name, f->param);
    for (int api = API_OPENAI; api <= API_ANTHROPIC; api++) {
        struct buffer b = buffer_with_max(MEM_META, 1 << 20);
        GOLDEN_OK(apifault_write(f, (enum api)api, "req_1", &b, err));
        json_t *body = json_loads((const char *)b.data, 0, NULL);
        const json_t *error = json_object_get(body, "error");
        api_member_is(error, "type", "invalid_request_error");
        api_member_is(error, "message", f->message);
        if (api == API_OPENAI) {
            api_member_is(error, "param", f->param);
            api_member_is(error, "code", f->code);
        } else {
            api_member_is(body, "type", "error");
            api_member_is(body, "request_id", "req_1");
        }
        json_decref(body);
        buffer_free(&b);
    }
}

/* The template's input of a request, as JSON text without blanks. */
static inline void api_input_is(api_reader read, const char *text, const char *expected)
{
    struct api_request r = api_read(read, text);
    char *got = json_dumps(r.input, JSON_COMPACT), *want = api_json(expected);
    if (strcmp(got, want) != 0) fail_msg("%s\n gives    %s\n expected %s", text, got, want);
    free(got);
    free(want);
    apirequest_free(&r);
}

/* ---- answers --------------------------------------------------------------------------------- */

static const struct api_identity api_who = { .id = "ID", .seed = "seed", .created = 1700000000,
                                             .model = "m", .fingerprint = "fp" };

/* Events as they go over the wire. */
static inline void api_take_event(void *arg, const char *event, const char *data, size_t size)
{
    struct buffer *b = arg;
    assert_null(memchr(data, '\n', size));
    if (event != NULL) GOLDEN_OK(buffer_printf(b, err, "event: %s\n", event));
    GOLDEN_OK(buffer_append_text(b, "data: ", err));
    GOLDEN_OK(buffer_append(b, data, size, err));
    GOLDEN_OK(buffer_append_text(b, "\n\n", err));
}

/* What a buffer holds, which is emptied. */
static inline void api_text_is(struct buffer *b, const char *expected)
{
    char *want = api_json(expected);
    const char *got = b->size ? (const char *)b->data : "";
    if (strcmp(got, want) != 0) fail_msg("got\n%s\nexpected\n%s", got, want);
    free(want);
    buffer_clear(b);
}

static inline struct api_part api_part(enum api_part_kind kind, const char *text)
{
    return (struct api_part){ kind, text, strlen(text) };
}

#endif

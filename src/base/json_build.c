/* json_build.c: JSON text over a buffer. Owns: its own buffer until json_build_finish.
 * B1 what it writes is one JSON document whatever the values are.  B2 the first failure is the one
 * reported, and nothing is appended after it. */
#include "json_build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jsontext.h"
#include "numtext.h"

#define MAX_DOCUMENT ((size_t)1 << 30)

void json_build_open(struct json_build *w, zp_err *err)
{
    *w = (struct json_build){ .out = buffer_with_max(MEM_META, MAX_DOCUMENT), .err = err };
}

zp_status json_build_finish(struct json_build *w, char **out)
{
    zp_status status = w->status;
    if (out != NULL) *out = NULL;
    if (status == ZP_OK && out != NULL) *out = (char *)w->out.data;
    else buffer_free(&w->out);
    *w = (struct json_build){ .status = status };
    return status;
}

void json_build_append(struct json_build *w, struct buffer *to, zp_err *err)
{
    *w = (struct json_build){ .to = to, .err = err, .compact = true };
}

static void put(struct json_build *w, const char *text, size_t size)
{
    struct buffer *to = w->to != NULL ? w->to : &w->out;
    if (w->status == ZP_OK) w->status = buffer_append(to, text, size, w->err);
}

static void put_string(struct json_build *w, const char *text, size_t size)
{
    struct jsontext pieces = jsontext_of(text, size);
    const char *piece;
    put(w, "\"", 1);
    while (jsontext_next(&pieces, &piece, &size)) put(w, piece, size);
    put(w, "\"", 1);
}

static void put_comma(struct json_build *w)
{
    if (w->comma) put(w, ", ", w->compact ? 1 : 2);
}

void json_build_key(struct json_build *w, const char *key, size_t size)
{
    put_comma(w);
    put_string(w, key, size);
    put(w, ": ", w->compact ? 1 : 2);
    w->comma = false;
}

static void begin_value(struct json_build *w, const char *key)
{
    if (key != NULL) json_build_key(w, key, strlen(key));
    else put_comma(w);
    w->comma = true;
}

static void open_nest(struct json_build *w, const char *key, const char *bracket)
{
    begin_value(w, key);
    put(w, bracket, 1);
    w->comma = false;
}

static void close_nest(struct json_build *w, const char *bracket)
{
    put(w, bracket, 1);
    w->comma = true;
}

void json_build_object(struct json_build *w, const char *key)
{
    open_nest(w, key, "{");
}

void json_build_object_end(struct json_build *w)
{
    close_nest(w, "}");
}

void json_build_array(struct json_build *w, const char *key)
{
    open_nest(w, key, "[");
}

void json_build_array_end(struct json_build *w)
{
    close_nest(w, "]");
}

void json_build_bytes(struct json_build *w, const char *key, const char *text, size_t size)
{
    begin_value(w, key);
    put_string(w, text, size);
}

void json_build_text(struct json_build *w, const char *key, const char *text)
{
    if (text == NULL) json_build_null(w, key);
    else json_build_bytes(w, key, text, strlen(text));
}

static void put_number(struct json_build *w, const char *key, const char *text, int size)
{
    begin_value(w, key);
    put(w, text, (size_t)size);
}

void json_build_raw(struct json_build *w, const char *key, const char *json, size_t size)
{
    begin_value(w, key);
    put(w, json, size);
}

void json_build_int(struct json_build *w, const char *key, int64_t x)
{
    char text[32];
    put_number(w, key, text, snprintf(text, sizeof text, "%lld", (long long)x));
}

void json_build_uint(struct json_build *w, const char *key, uint64_t x)
{
    char text[32];
    put_number(w, key, text, snprintf(text, sizeof text, "%llu", (unsigned long long)x));
}

void json_build_real(struct json_build *w, const char *key, double x, int digits)
{
    char text[48];
    if (!isfinite(x)) {
        json_build_null(w, key);
        return;
    }
    int size = numtext_printf(text, sizeof text, "%.*g", digits, x);
    bool whole = strcspn(text, ".e") == (size_t)size;
    /* ".0" keeps it a real number for readers that tell 2 and 2.0 apart. */
    if (whole) size = numtext_printf(text, sizeof text, "%.*g.0", digits, x);
    put_number(w, key, text, size);
}

void json_build_bool(struct json_build *w, const char *key, bool x)
{
    begin_value(w, key);
    put(w, x ? "true" : "false", x ? 4 : 5);
}

void json_build_null(struct json_build *w, const char *key)
{
    begin_value(w, key);
    put(w, "null", 4);
}

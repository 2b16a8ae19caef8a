/* cli_view.c: JSON documents as text for people: aligned values, then sections, then tables.
 * Works from the document's own keys, so that what --json has and what a reader sees cannot drift
 * apart. Keys ending in _bytes or _seconds are shown with units; long arrays are cut, and the cut
 * says so, but not what was asked for by name (tensors). */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 48
#define MAX_COLUMNS 24
#define MAX_CELL 72    /* characters of a text in a table */
#define MAX_LINE 400   /* elsewhere */
#define MAX_LIST 64    /* longer lists show their length */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_bytes_key(const char *key)
{
    return ends_with(key, "_bytes") || strcmp(key, "bytes") == 0 ||
           strncmp(key, "bytes_", 6) == 0 || strstr(key, "_bytes_") != NULL;
}

static void add_grouped(struct text *out, long long x)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%lld", x < 0 ? -x : x);
    if (x < 0)
        text_append(out, "-", 1);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text_append(out, ",", 1);
        text_append(out, digits + i, 1);
    }
}

static void add_bytes(struct text *out, double x)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t u = 0;
    while (x >= 1024 && u + 1 < CLI_COUNT(units))
        x /= 1024, u++;
    text_printf(out, u == 0 ? "%.0f %s" : "%.1f %s", x, units[u]);
}

static void add_real(struct text *out, const char *key, double x)
{
    double size = fabs(x);
    if (ends_with(key, "_seconds"))
        text_printf(out, "%.3g s", x);
    else if (is_bytes_key(key))
        add_bytes(out, x);
    else if (size != 0 && (size < 1e-3 || size >= 1e7))
        text_printf(out, "%.3g", x);
    else if (size >= 1000 && x == floor(x))
        add_grouped(out, (long long)x);
    else if (size >= 1000)
        text_printf(out, "%.1f", x);
    else
        text_printf(out, "%.4g", x);
}

/* Text on one line: control characters as escapes, cut at `max` characters. */
static void add_line(struct text *out, const char *s, size_t size, size_t max)
{
    size_t width = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char b = (unsigned char)s[i];
        if ((b & 0xC0) != 0x80 && width++ == max) {
            text_append(out, "...", 3);
            return;
        }
        if (b == '\n' || b == '\t' || b == '\r')
            text_printf(out, "\\%c", b == '\n' ? 'n' : b == '\t' ? 't' : 'r');
        else if (b < 0x20 || b == 0x7F)
            text_printf(out, "\\x%02x", b);
        else
            text_append(out, &s[i], 1);
    }
}

/* A list in a list: "(1,0,7)". */
static void add_tuple(struct text *out, const char *key, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        text_append(out, i > 0 ? "," : "(", 1);
        view_text_cell(out, key, json_array_get(list, i));
    }
    text_append(out, json_array_size(list) > 0 ? ")" : "()", json_array_size(list) > 0 ? 1 : 2);
}

/* An array of numbers: runs of consecutive integers are joined (0-29). */
static void add_numbers(struct text *out, const char *key, const json_t *list)
{
    size_t n = json_array_size(list), shown = 0;
    if (n > MAX_LIST || (n > 8 && json_is_array(json_array_get(list, 0)))) {
        text_printf(out, "(%zu values)", n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        size_t run = i;
        while (json_is_integer(v) && run + 1 < n &&
               json_is_integer(json_array_get(list, run + 1)) &&
               json_integer_value(json_array_get(list, run + 1)) ==
                   json_integer_value(json_array_get(list, run)) + 1)
            run++;
        if (shown++ == 16) {
            text_printf(out, " ... (%zu in all)", n);
            return;
        }
        if (i > 0)
            text_append(out, " ", 1);
        if (json_is_array(v))
            add_tuple(out, key, v);
        else
            view_text_cell(out, key, v);
        if (run >= i + 2) {
            text_append(out, "-", 1);
            view_text_cell(out, key, json_array_get(list, run));
            i = run;
        }
    }
    if (n == 0)
        text_append(out, "-", 1);
}

static void add_object(struct text *out, const json_t *object)
{
    const char *key;
    json_t *v;
    bool first = true;
    json_object_foreach((json_t *)object, key, v)
    {
        text_printf(out, "%s%s ", first ? "" : ", ", key);
        view_text_cell(out, key, v);
        first = false;
    }
}

/* Texts whose blanks or line ends matter are quoted. */
static void add_string(struct text *out, const json_t *value, size_t max)
{
    const char *s = json_string_value(value);
    size_t n = json_string_length(value);
    bool quote = n == 0 || s[0] == ' ' || s[n - 1] == ' ' || memchr(s, '\n', n) != NULL;
    text_append(out, "\"", quote ? 1 : 0);
    add_line(out, s, n, max);
    text_append(out, "\"", quote ? 1 : 0);
}

static bool is_plain_number(const char *key)
{
    return strcmp(key, "id") == 0 || strcmp(key, "ids") == 0 || strcmp(key, "greedy") == 0 ||
           ends_with(key, "seed");
}

void view_text_cell(struct text *out, const char *key, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: add_string(out, value, MAX_CELL); break;
    case JSON_INTEGER:
        if (is_bytes_key(key))
            add_bytes(out, (double)json_integer_value(value));
        else if (is_plain_number(key))
            text_printf(out, "%lld", (long long)json_integer_value(value));
        else
            add_grouped(out, json_integer_value(value));
        break;
    case JSON_REAL: add_real(out, key, json_real_value(value)); break;
    case JSON_TRUE: text_append(out, "yes", 3); break;
    case JSON_FALSE: text_append(out, "no", 2); break;
    case JSON_NULL: text_append(out, "-", 1); break;
    case JSON_ARRAY: add_numbers(out, key, value); break;
    case JSON_OBJECT: add_object(out, value); break;
    }
}

static size_t text_width(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static void pad(FILE *f, size_t n)
{
    while (n-- > 0)
        fputc(' ', f);
}

/* ---- tables ------------------------------------------------------------------------------ */
struct table {
    const char *keys[MAX_COLUMNS];
    size_t n_columns, n_rows;
    char **cells; /* (n_rows + 1, n_columns), row 0 the heads */
    size_t width[MAX_COLUMNS];
    bool number[MAX_COLUMNS];
};

static void add_columns(struct table *t, const json_t *row)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)row, key, v)
    {
        size_t i = 0;
        while (i < t->n_columns && strcmp(t->keys[i], key) != 0)
            i++;
        if (i == t->n_columns && i < MAX_COLUMNS) {
            t->keys[t->n_columns] = key;
            t->number[t->n_columns++] = json_is_number(v);
        }
    }
}

/* Rows that differ only in the first, counting column become one: "0-29". Returns the last row of
 * the run. */
static size_t same_run(const json_t *rows, size_t first, const char *counter)
{
    const json_t *a = json_array_get(rows, first);
    if (!json_is_integer(json_object_get(a, counter)))
        return first;
    json_t *plain = json_copy((json_t *)a);
    json_object_del(plain, counter);
    size_t last = first;
    bool same = true;
    while (same && last + 1 < json_array_size(rows)) {
        json_t *b = json_copy(json_array_get(rows, last + 1));
        json_int_t next = json_integer_value(json_object_get(b, counter));
        json_object_del(b, counter);
        same = json_equal(plain, b) && next == json_integer_value(json_object_get(a, counter)) +
                                                   (json_int_t)(last + 1 - first);
        json_decref(b);
        last += same;
    }
    json_decref(plain);
    return last;
}

static void fill_row(struct table *t, const json_t *row, const json_t *end)
{
    t->n_rows++;
    t->cells = cli_resize(t->cells, (t->n_rows + 1) * t->n_columns * sizeof *t->cells);
    for (size_t k = 0; k < t->n_columns; k++) {
        struct text cell = { 0 };
        text_append(&cell, "", 0);
        const json_t *v = json_object_get(row, t->keys[k]);
        if (v != NULL)
            view_text_cell(&cell, t->keys[k], v);
        if (k == 0 && end != NULL) {
            text_append(&cell, "-", 1);
            view_text_cell(&cell, t->keys[0], json_object_get(end, t->keys[0]));
        }
        t->cells[t->n_rows * t->n_columns + k] = cell.data;
        size_t w = text_width(cell.data);
        t->width[k] = w > t->width[k] ? w : t->width[k];
    }
}

static void print_table(FILE *f, struct table *t, int indent)
{
    for (size_t r = 0; r <= t->n_rows; r++) {
        pad(f, (size_t)indent);
        for (size_t k = 0; k < t->n_columns; k++) {
            const char *cell = t->cells[r * t->n_columns + k];
            size_t fill = t->width[k] - text_width(cell);
            bool last = k + 1 == t->n_columns;
            if (t->number[k])
                pad(f, fill);
            fputs(cell, f);
            if (!last)
                pad(f, (t->number[k] ? 0 : fill) + 2);
        }
        fputc('\n', f);
    }
}

static void view_rows(FILE *f, const json_t *rows, int indent, size_t most)
{
    struct table t = { 0 };
    size_t n = json_array_size(rows), i = 0;
    for (size_t k = 0; k < n; k++)
        add_columns(&t, json_array_get(rows, k));
    t.cells = cli_alloc((t.n_columns + 1) * sizeof *t.cells);
    for (size_t k = 0; k < t.n_columns; k++) {
        t.cells[k] = cli_strdup(t.keys[k]);
        t.width[k] = text_width(t.keys[k]);
    }
    while (i < n && t.n_rows < most) {
        size_t last = t.n_columns > 0 ? same_run(rows, i, t.keys[0]) : i;
        fill_row(&t, json_array_get(rows, i), last > i ? json_array_get(rows, last) : NULL);
        i = last + 1;
    }
    print_table(f, &t, indent);
    if (i < n) {
        pad(f, (size_t)indent);
        fprintf(f, "... %zu more (--json has all)\n", n - i);
    }
    for (size_t k = 0; k < (t.n_rows + 1) * t.n_columns; k++)
        free(t.cells[k]);
    free(t.cells);
}

/* ---- documents --------------------------------------------------------------------------- */
/* A list of sentences (notes): one line each. */
static bool is_prose(const json_t *v)
{
    size_t size = 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        size += json_string_length(json_array_get(v, i));
    return json_array_size(v) <= MAX_LIST && size > 90;
}

static void view_prose(FILE *f, const json_t *list, int indent)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct text line = { 0 };
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v))
            add_line(&line, json_string_value(v), json_string_length(v), 2000);
        else
            view_text_cell(&line, "", v);
        pad(f, (size_t)indent);
        fprintf(f, "- %s\n", line.data != NULL ? line.data : "");
        text_free(&line);
    }
}

static bool is_inline(const json_t *v)
{
    if (json_is_object(v) || is_prose(v))
        return false;
    return !json_is_array(v) || !json_is_object(json_array_get(v, 0));
}

static void view_object(FILE *f, const json_t *object, int indent)
{
    const char *key;
    json_t *v;
    size_t width = 0;
    json_object_foreach((json_t *)object, key, v)
    {
        if (is_inline(v) && strlen(key) > width)
            width = strlen(key);
    }
    json_object_foreach((json_t *)object, key, v)
    {
        if (!is_inline(v))
            continue;
        struct text cell = { 0 };
        text_append(&cell, "", 0);
        if (json_is_string(v))
            add_string(&cell, v, MAX_LINE);
        else
            view_text_cell(&cell, key, v);
        pad(f, (size_t)indent);
        fprintf(f, "%-*s  %s\n", (int)width, key, cell.data);
        text_free(&cell);
    }
    json_object_foreach((json_t *)object, key, v)
    {
        if (is_inline(v) || (json_is_object(v) && json_object_size(v) == 0))
            continue;
        fputc('\n', f);
        pad(f, (size_t)indent);
        fprintf(f, "%s\n", key);
        if (is_prose(v))
            view_prose(f, v, indent + 2);
        else if (json_is_array(v))
            view_rows(f, v, indent + 2, strcmp(key, "tensors") == 0 ? SIZE_MAX : MAX_ROWS);
        else
            view_object(f, v, indent + 2);
    }
}

void view_document(FILE *f, const json_t *doc)
{
    if (json_is_object(doc))
        view_object(f, doc, 0);
    else if (json_is_array(doc))
        view_rows(f, doc, 0, MAX_ROWS);
}

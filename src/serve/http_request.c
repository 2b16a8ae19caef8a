/* http_request.c: what handlers look up in a request. */
#include "http.h"

#include <string.h>

#include "httptarget.h"

const char *http_header(const struct http_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_headers; i++)
        if (strcmp(r->headers[i].name, name) == 0) return r->headers[i].value;
    return NULL;
}

static bool read_field(const char *value, size_t size, char *out, size_t room)
{
    if (size >= room) return false;
    size_t n = httptarget_decode(value, size, true, out);
    if (n == SIZE_MAX || memchr(out, '\0', n) != NULL || !utf8_is_valid(out, n, NULL)) return false;
    out[n] = '\0';
    return true;
}

bool http_query(const struct http_request *r, const char *name, char *out, size_t room)
{
    size_t name_size = strlen(name);
    const char *field = r->query;
    while (*field != '\0') {
        size_t size = strcspn(field, "&");
        bool same = size >= name_size && strncmp(field, name, name_size) == 0;
        if (same && size == name_size) return read_field("", 0, out, room);
        if (same && field[name_size] == '=')
            return read_field(field + name_size + 1, size - name_size - 1, out, room);
        field += size + (field[size] == '&');
    }
    return false;
}

/* httptarget.c: one path per resource: what the route table compares is decoded once and has no
 * parts that lead elsewhere. An encoded "/" is refused rather than decoded: proxies in front differ
 * in what they make of it. */
#include "httptarget.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t httptarget_decode(const char *text, size_t size, bool plus, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < size; at++) {
        char c = text[at];
        if (c == '%') {
            int high = size - at > 2 ? hex_value(text[at + 1]) : -1;
            int low = high >= 0 ? hex_value(text[at + 2]) : -1;
            if (low < 0) return SIZE_MAX;
            c = (char)(high * 16 + low);
            at += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        out[n++] = c;
    }
    return n;
}

/* "%2f" anywhere in the path. */
static bool hides_slash(const char *text, size_t size)
{
    for (size_t at = 0; at + 2 < size; at++)
        if (text[at] == '%' && text[at + 1] == '2' && (text[at + 2] | 0x20) == 'f') return true;
    return false;
}

/* Takes "." and ".." parts out of a path that begins with "/". False: above the root. */
static bool remove_dots(char *path, size_t *size)
{
    size_t n = 0, at = 0;
    while (at < *size) {
        size_t end = at + 1; /* path[at] is the part's "/" */
        while (end < *size && path[end] != '/') end++;
        size_t part = end - at - 1;
        bool dot = part == 1 && path[at + 1] == '.';
        bool up = part == 2 && path[at + 1] == '.' && path[at + 2] == '.';
        if (up) {
            if (n == 0) return false;
            while (path[--n] != '/') {
            }
        } else if (!dot) {
            memmove(path + n, path + at, end - at);
            n += end - at;
        }
        /* A path that ends in "." or ".." is that of a folder. */
        if ((dot || up) && end == *size) path[n++] = '/';
        at = end;
    }
    *size = n;
    return true;
}

/* Decodes the path of `size` bytes in place and ends it. */
static bool read_path(char *path, size_t size)
{
    if (hides_slash(path, size)) return false;
    size_t n = httptarget_decode(path, size, false, path);
    if (n == SIZE_MAX || !utf8_is_valid(path, n, NULL)) return false;
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)path[i] < 0x20 || path[i] == 0x7f) return false;
    if (!remove_dots(path, &n)) return false;
    path[n] = '\0';
    return true;
}

/* "http://host:8080/path": moves *text to the path and leaves the authority in front of it, ended.
 * The URL may have no path: then the "/" takes a place that the scheme has left. */
static bool read_url(char **text, struct httptarget *out)
{
    size_t scheme = strncasecmp(*text, "http://", 7) == 0    ? 7
                    : strncasecmp(*text, "https://", 8) == 0 ? 8
                                                             : 0;
    if (scheme == 0) return false;
    char *authority = *text + scheme;
    size_t size = strcspn(authority, "/?");
    if (size == 0 || memchr(authority, '@', size) != NULL) return false;
    /* Two bytes forward: room for the NUL and, where there is none, for the "/" of the path. */
    out->authority = memmove(authority - 2, authority, size);
    out->authority[size] = '\0';
    char *path = authority + size;
    if (*path != '/') *--path = '/';
    *text = path;
    return true;
}

bool httptarget_read(char *text, size_t size, struct httptarget *out)
{
    *out = (struct httptarget){ .path = text, .query = text + size };
    text[size] = '\0';
    if (strcmp(text, "*") == 0) return true;
    if (text[0] != '/' && !read_url(&text, out)) return false;
    out->path = text;
    char *mark = strchr(text, '?');
    if (mark != NULL) {
        *mark = '\0';
        out->query = mark + 1;
    }
    return read_path(text, strlen(text));
}

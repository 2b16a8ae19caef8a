/* httptarget.h: request targets, taken apart and made normal. */
#ifndef SERVE_HTTPTARGET_H
#define SERVE_HTTPTARGET_H

#include <stdbool.h>
#include <stddef.h>

struct httptarget {
    char *path;      /* "*", or begins with "/": UTF-8, decoded once, without "." and ".." parts */
    char *query;     /* as it came, without "?"; "": none */
    char *authority; /* of an http URL: "host:port"; NULL: the target was a path */
};
/* Works in place: text[size] must be writable. False: it is neither "*", nor a path, nor an http or
 * https URL; or it has a bad %-code, one of a control byte or of "/", no UTF-8, or a way above the
 * root. */
bool httptarget_read(char *text, size_t size, struct httptarget *out);
/* Decodes %-codes, and with `plus` "+" as blank, into out; returns the size, SIZE_MAX for a bad
 * code. out may be text itself: nothing grows. */
size_t httptarget_decode(const char *text, size_t size, bool plus, char *out);

#endif

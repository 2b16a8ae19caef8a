/* markup.h: a checker of well-formed mark-up: tags nest, attributes are quoted, & begins an entity.
 * Include after cmocka.h. */
#ifndef TESTS_MARKUP_H
#define TESTS_MARKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static inline size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) n++;
    return n;
}

static inline const char *skip_tag(const char *at, char *name, size_t size, bool *closing,
                                   bool *empty)
{
    size_t n = 0;
    *closing = *at == '/';
    if (*closing) at++;
    while (*at && !strchr(" \n/>", *at) && n + 1 < size) name[n++] = *at++;
    name[n] = '\0';
    char quote = 0, last = 0;
    for (; *at && (quote || *at != '>'); last = *at++) {
        if (!quote && *at == '<') fail_msg("a tag inside a tag: %.40s", at);
        if (quote && *at == quote) quote = 0;
        else if (!quote && (*at == '"' || *at == '\'')) quote = *at;
    }
    *empty = last == '/' || strcmp(name, "meta") == 0 || name[0] == '!';
    assert_int_equal(*at, '>');
    return at + 1;
}

static inline void check_markup(const char *text)
{
    static char stack[64][32];
    size_t depth = 0;
    for (const char *at = text; *at;) {
        char name[32];
        bool closing, empty;
        if (*at == '&') {
            size_t n = strcspn(at, "; <");
            if (at[n] != ';' || n > 8) fail_msg("no entity: %.20s", at);
        }
        if (*at != '<') {
            at++;
            continue;
        }
        at = skip_tag(at + 1, name, sizeof name, &closing, &empty);
        if (closing) {
            if (depth == 0 || strcmp(stack[depth - 1], name) != 0)
                fail_msg("</%s> closes <%s>", name, depth ? stack[depth - 1] : "nothing");
            depth--;
        } else if (!empty) {
            assert_true(depth < 64);
            snprintf(stack[depth++], sizeof stack[0], "%.31s", name);
        }
    }
    if (depth) fail_msg("<%s> is never closed", stack[depth - 1]);
}

#endif

/* jsontext.h: the inside of a JSON string, piece by piece, for writers of any kind. */
#ifndef BASE_JSONTEXT_H
#define BASE_JSONTEXT_H

#include <stdbool.h>
#include <stddef.h>

struct jsontext {
    const char *text;
    size_t size, at, good; /* [at, good) is well-formed */
    char escape[6];
};
struct jsontext jsontext_of(const char *text, size_t size);
/* The next piece, false at the end: a run of bytes that stand for themselves (it may be cut between
 * two characters), an escape, or U+FFFD in place of a byte that is not UTF-8. Valid until the next
 * call. */
bool jsontext_next(struct jsontext *t, const char **piece, size_t *size);

#endif

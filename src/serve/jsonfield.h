/* jsonfield.h: members of a JSON object into a struct, by a table: names, types, ranges. A member
 * that is null counts as absent. Faults name the member and say what was expected. */
#ifndef SERVE_JSONFIELD_H
#define SERVE_JSONFIELD_H

#include <stdbool.h>
#include <stddef.h>
#include "serve/apifault.h"

enum jsonfield_kind {
    FIELD_BOOL,
    FIELD_U32,     /* least .. most; 5.0 is a whole number, too */
    FIELD_F32,     /* least .. most */
    FIELD_F64,
    FIELD_TEXT,    /* const char *, which lives as long as the object; least .. most bytes */
    FIELD_NAME,    /* one of `names`: its index as an int */
    FIELD_OBJECT,  /* const json_t * */
    FIELD_CUSTOM,  /* `read` */
    FIELD_KNOWN,   /* read elsewhere, or of no consequence here: any value */
    FIELD_REFUSED, /* what it asks for is not done here: only null, false, 0, "", [] and {} pass */
};

struct jsonfield {
    const char *name;
    enum jsonfield_kind kind;
    unsigned sets; /* bits: the objects it may be in */
    size_t at;     /* offset in the struct */
    double least, most;
    const char *const *names; /* ends with NULL */
    zp_status (*read)(void *out, const json_t *value, const char *path, struct apifault *fault);
};

/* Reads the members of the rows whose `sets` have the bit `set`. path: where the object stands
 * ("stream_options"), "": at the top. *n_found: members that are in the table. */
zp_status jsonfield_read(const struct jsonfield *fields, size_t n, unsigned set,
                         const json_t *object, const char *path, void *out, size_t *n_found,
                         struct apifault *fault);
/* Whether a row of the set has that name. */
bool jsonfield_has(const struct jsonfield *fields, size_t n, unsigned set, const char *name);

/* A whole number of least .. most in *out; false: it is none. */
bool jsonfield_whole(const json_t *value, int64_t least, int64_t most, int64_t *out);
/* Whether it is that text. */
bool jsonfield_is(const json_t *value, const char *text);
/* "PATH.NAME", "NAME" where path is empty, "PATH[7]" where name is NULL; returns room->text. */
struct jsonfield_path {
    char text[APIFAULT_PARAM];
};
const char *jsonfield_path(struct jsonfield_path *room, const char *path, const char *name,
                           size_t index);

#endif

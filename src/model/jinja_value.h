/* jinja_value.h: the values of a chat template, with Python's meaning, and one rendering's state.
 * Owns: struct jinja (limits, memory, position for messages), struct jv and its containers.
 * V1 all memory of a rendering is its arena's and lives until the rendering ends.
 * V2 the bytes of a string never change; concatenation may append behind them in the same block.
 * V3 a template after opening is read only: any number of threads may render it at once. */
#ifndef MODEL_JINJA_VALUE_H
#define MODEL_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/mem.h"
#include "base/status.h"

struct jtext;
struct jscope;
struct jinja_program;

enum jkind {
    J_MISSING,
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_VIEW,
    J_DICT,
    J_RANGE,
    J_ITER,
    J_NAMESPACE,
    J_LOOP,
    J_CYCLER,
    J_JOINER,
    J_MACRO,
    J_BUILTIN,
    J_KINDS
};

/* Where the bytes of a string came from: the template (trusted) or the caller's input. */
enum jorigin { ORIGIN_TEMPLATE, ORIGIN_USER, ORIGIN_MIXED };

struct jstr {
    const char *data; /* UTF-8, not NUL-terminated */
    size_t size;
    size_t n_char; /* code points; SIZE_MAX = not counted yet */
    enum jorigin origin;
    const uint8_t *marks; /* (size) ORIGIN_* of each byte, only for ORIGIN_MIXED */
    struct jblock *block; /* the growable block this string fills wholly, or NULL */
};

struct jv {
    uint8_t kind;  /* enum jkind */
    uint8_t owner; /* J_UNDEFINED: kind of the object that lacked the item, or J_MISSING */
    union {
        bool b;
        int64_t i;
        double f;
        const struct jstr *s;
        struct jlist *list; /* J_LIST J_TUPLE J_VIEW */
        struct jdict *dict; /* J_DICT J_NAMESPACE */
        const struct jrange *range;
        struct jiter *iter;
        struct jloop *loop;
        struct jcycler *cycler;
        struct joiner *joiner; /* J_JOINER */
        const struct jmacro *macro;
        const struct jbound *bound; /* J_BUILTIN */
        const char *missing;        /* J_UNDEFINED: the name that was looked for */
    } u;
};

struct jlist {
    struct jv *items;
    size_t n, room;
    const char *view; /* J_VIEW: "dict_keys" ... */
};
struct jpair {
    struct jv key, value;
};
struct jdict {
    struct jpair *pairs;
    size_t n, room;
    uint32_t *index;
    size_t n_index;
};
struct jrange {
    int64_t start, step, n;
};
struct jiter {
    struct jlist *items;
    size_t at;
}; /* a Python generator, already computed; read once */
/* A joiner's first call gives nothing, later ones the separator. */
struct joiner {
    bool called;
    struct jv separator;
};
struct jcycler {
    struct jlist *items;
    size_t at;
};
struct jmacro {
    const struct jnode *node;
    struct jscope *scope;
};

struct jkeyword {
    const struct jstr *name;
    struct jv value;
};
struct jargs {
    struct jv *pos;
    size_t n_pos;
    struct jkeyword *kw;
    size_t n_kw;
};

struct jinja;
/* One filter, test, method or function. arg holds one value for each name in params, J_MISSING
 * where absent; variadic ones read `all` instead. self: the value filtered or tested, or the
 * method's object. */
typedef zp_status (*jbuiltin_fn)(struct jinja *c, struct jv self, const struct jv *arg,
                                 const struct jargs *all, struct jv *out);
#define JBUILTIN_MAX_PARAMS 6
struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;
    const char *params; /* "name name name"; NULL = variadic */
    uint8_t n_required;
};
struct jbound {
    const struct jbuiltin *builtin;
    struct jv self;
};

struct jinja {
    struct arena arena;
    const struct jinja_program *program;
    zp_err *err;
    uint32_t at;               /* byte offset in the source of what is being evaluated */
    size_t bytes, max_bytes;   /* arena bytes taken by this rendering */
    size_t max_text;           /* longest string or output */
    uint64_t steps, max_steps; /* loop rounds, comparisons, evaluated nodes */
    uint32_t depth, max_depth; /* nested evaluations: bounds the C stack */
    struct jscope *scope;
    struct jtext *out;  /* where output statements write */
    struct jv *globals; /* (n_names) input variables and built-in functions by name number */
    int64_t now;        /* seconds since 1970, already in the wanted time zone, for strftime_now */
};

/* Records "NAME:LINE:COLUMN: text" and returns the code. J_FAIL uses ZP_BAD_INPUT. */
zp_status jinja_fail(struct jinja *c, zp_status code, const char *file, int line, const char *fmt,
                     ...) ZP_PRINTF(5, 6);
#define J_FAIL(c, ...) return jinja_fail((c), ZP_BAD_INPUT, __FILE__, __LINE__, __VA_ARGS__)
#define J_FAIL_IF(cond, c, ...)                                                                    \
    do {                                                                                           \
        if (cond) J_FAIL(c, __VA_ARGS__);                                                          \
    } while (0)
/* Zeroed arena memory within the limits. */
zp_status jinja_take(struct jinja *c, size_t count, size_t size, void **out);
#define J_NEW(ptr, c, count)                                                                       \
    do {                                                                                           \
        void *j_new;                                                                               \
        ZP_TRY(jinja_take((c), (count), sizeof *(ptr), &j_new));                                   \
        (ptr) = j_new;                                                                             \
    } while (0)
zp_status jinja_step(struct jinja *c, uint64_t n);
/* Steps for looking through `bytes` of text: what allocates is bounded by memory, this bounds the
 * rest. */
ZP_INLINE zp_status jinja_scan(struct jinja *c, size_t bytes)
{
    return bytes < 256 ? ZP_OK : jinja_step(c, bytes / 256);
}
zp_status jinja_enter(struct jinja *c); /* depth + 1; pair with jinja_leave */
ZP_INLINE void jinja_leave(struct jinja *c)
{
    c->depth--;
}

ZP_INLINE struct jv jv_missing(void)
{
    return (struct jv){ .kind = J_MISSING };
}
ZP_INLINE struct jv jv_none(void)
{
    return (struct jv){ .kind = J_NONE };
}
ZP_INLINE struct jv jv_bool(bool b)
{
    return (struct jv){ .kind = J_BOOL, .u.b = b };
}
ZP_INLINE struct jv jv_int(int64_t i)
{
    return (struct jv){ .kind = J_INT, .u.i = i };
}
ZP_INLINE struct jv jv_float(double f)
{
    return (struct jv){ .kind = J_FLOAT, .u.f = f };
}
ZP_INLINE struct jv jv_str(const struct jstr *s)
{
    return (struct jv){ .kind = J_STR, .u.s = s };
}
ZP_INLINE struct jv jv_list(struct jlist *l)
{
    return (struct jv){ .kind = J_LIST, .u.list = l };
}
ZP_INLINE struct jv jv_tuple(struct jlist *l)
{
    return (struct jv){ .kind = J_TUPLE, .u.list = l };
}
ZP_INLINE struct jv jv_dict(struct jdict *d)
{
    return (struct jv){ .kind = J_DICT, .u.dict = d };
}
/* name must live as long as the rendering; owner = J_MISSING for a plain variable. */
ZP_INLINE struct jv jv_undefined(enum jkind owner, const char *name)
{
    return (struct jv){ .kind = J_UNDEFINED, .owner = (uint8_t)owner, .u.missing = name };
}
ZP_INLINE bool jv_is_listlike(struct jv v)
{
    return v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_VIEW;
}
ZP_INLINE bool jv_is_number(struct jv v)
{
    return v.kind == J_BOOL || v.kind == J_INT || v.kind == J_FLOAT;
}
ZP_INLINE bool jv_is_integer(struct jv v)
{
    return v.kind == J_BOOL || v.kind == J_INT;
}
ZP_INLINE int64_t jv_as_int(struct jv v)
{
    return v.kind == J_BOOL ? v.u.b : v.u.i;
}
ZP_INLINE double jv_as_float(struct jv v)
{
    return v.kind == J_FLOAT ? v.u.f : (double)jv_as_int(v);
}

const char *jv_type_name(struct jv v); /* Python's: "str", "NoneType", "dict" */
zp_status jv_fail_undefined(struct jinja *c,
                            struct jv v); /* the error of using an undefined value */
bool jv_truth(struct jv v);
zp_status jv_equal(struct jinja *c, struct jv a, struct jv b, bool *out);
zp_status jv_compare(struct jinja *c, struct jv a, struct jv b,
                     int *out); /* < 0, 0, > 0; 2 = unordered (NaN) */
zp_status jv_length(struct jinja *c, struct jv v, size_t *out);
bool jv_has_length(struct jv v);

zp_status jlist_new(struct jinja *c, size_t room, struct jlist **out);
zp_status jlist_append(struct jinja *c, struct jlist *l, struct jv v);
zp_status jdict_new(struct jinja *c, struct jdict **out);
zp_status jdict_set(struct jinja *c, struct jdict *d, struct jv key, struct jv value);
/* NULL in *out if absent; fails on unhashable keys. */
zp_status jdict_find(struct jinja *c, const struct jdict *d, struct jv key, struct jpair **out);
struct jpair *jdict_find_text(const struct jdict *d, const char *text, size_t size);

#endif

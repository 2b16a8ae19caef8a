/* jinja_builtin.c: finding built-in filters, tests, methods and functions, and binding their
 * arguments. */
#include "model/jinja_builtin.h"

#include <string.h>

#include "model/jinja_text.h"

static const struct jbuiltin *find_row(const struct jbuiltin_table *table, const char *name,
                                       size_t size)
{
    for (size_t i = 0; i < table->n; i++)
        if (strlen(table->rows[i].name) == size && memcmp(table->rows[i].name, name, size) == 0)
            return &table->rows[i];
    return NULL;
}

const struct jbuiltin *jinja_find_filter(const char *name, size_t size)
{
    const struct jbuiltin *row = find_row(&jinja_text_filters, name, size);
    return row != NULL ? row : find_row(&jinja_list_filters, name, size);
}

const struct jbuiltin *jinja_find_test(const char *name, size_t size)
{
    return find_row(&jinja_tests, name, size);
}

const struct jbuiltin *jinja_find_method(enum jkind kind, const char *name, size_t size)
{
    const struct jbuiltin_table *table = kind == J_STR      ? &jinja_str_methods
                                         : kind == J_LIST   ? &jinja_list_methods
                                         : kind == J_TUPLE  ? &jinja_tuple_methods
                                         : kind == J_DICT   ? &jinja_dict_methods
                                         : kind == J_LOOP   ? &jinja_loop_methods
                                         : kind == J_CYCLER ? &jinja_cycler_methods
                                                            : NULL;
    return table == NULL ? NULL : find_row(table, name, size);
}

const struct jbuiltin *jinja_find_global(const char *name, size_t size)
{
    return find_row(&jinja_globals, name, size);
}

/* Number of the parameter of that name in "a b c", SIZE_MAX if it is none of them. *n = how many
 * there are. */
static size_t find_parameter(const char *params, const struct jstr *name, size_t *n)
{
    size_t found = SIZE_MAX;
    *n = 0;
    for (const char *p = params; *p != '\0';) {
        size_t size = strcspn(p, " ");
        if (name != NULL && name->size == size && memcmp(p, name->data, size) == 0) found = *n;
        ++*n;
        p += size + (p[size] == ' ');
    }
    return found;
}

static zp_status bind(struct jinja *c, const struct jbuiltin *b, const char *what,
                      const struct jargs *args, struct jv slot[JBUILTIN_MAX_PARAMS])
{
    size_t n;
    find_parameter(b->params, NULL, &n);
    J_FAIL_IF(args->n_pos > n, c, "the %s '%s' takes at most %zu arguments, found %zu", what,
              b->name, n, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) slot[i] = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jstr *name = args->kw[i].name;
        size_t at = find_parameter(b->params, name, &n);
        J_FAIL_IF(at == SIZE_MAX, c, "the %s '%s' has no argument '%.*s'; it has: %s", what,
                  b->name, (int)(name->size < 60 ? name->size : 60), name->data,
                  n == 0 ? "none" : b->params);
        J_FAIL_IF(slot[at].kind != J_MISSING, c, "the %s '%s' got two values for '%.*s'", what,
                  b->name, (int)name->size, name->data);
        slot[at] = args->kw[i].value;
    }
    for (size_t i = 0; i < b->n_required; i++)
        J_FAIL_IF(slot[i].kind == J_MISSING, c, "the %s '%s' needs %u arguments: %s", what, b->name,
                  b->n_required, b->params);
    return ZP_OK;
}

zp_status jinja_call_builtin(struct jinja *c, const struct jbuiltin *b, const char *what,
                             struct jv self, const struct jargs *args, struct jv *out)
{
    struct jv slot[JBUILTIN_MAX_PARAMS] = { 0 }; /* kind 0 is J_MISSING */
    if (self.kind == J_STR) ZP_TRY(jinja_scan(c, self.u.s->size));
    if (b->params != NULL) ZP_TRY(bind(c, b, what, args, slot));
    else if (args->n_pos < b->n_required)
        J_FAIL(c, "the %s '%s' needs at least %u arguments", what, b->name, b->n_required);
    return b->fn(c, self, slot, args, out);
}

zp_status jarg_int(struct jinja *c, struct jv v, const char *name, int64_t *out)
{
    if (v.kind == J_MISSING) return ZP_OK;
    if (v.kind == J_UNDEFINED) return jv_fail_undefined(c, v);
    J_FAIL_IF(!jv_is_integer(v), c, "the argument '%s' is not an integer but '%s'", name,
              jv_type_name(v));
    *out = jv_as_int(v);
    return ZP_OK;
}

zp_status jarg_str(struct jinja *c, struct jv v, const char *name, const struct jstr **out)
{
    if (v.kind == J_MISSING) return ZP_OK;
    if (v.kind == J_UNDEFINED) return jv_fail_undefined(c, v);
    J_FAIL_IF(v.kind != J_STR, c, "the argument '%s' is not a text but '%s'", name,
              jv_type_name(v));
    *out = v.u.s;
    return ZP_OK;
}

/* jinja_is.c: the tests of chat templates ("x is string"). */
#include "model/jinja_is.h"

#include "model/jinja_iter.h"
#include "model/jinja_ops.h"
#include "model/jinja_print.h"

#define TEST(name)                                                                                 \
    static zp_status name(struct jinja *c, struct jv self, const struct jv *arg,                   \
                          const struct jargs *all, struct jv *out)

/* A test that only looks at the value. */
#define SIMPLE_TEST(name, condition)                                                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        ZP_UNUSED(c);                                                                              \
        ZP_UNUSED(self);                                                                           \
        ZP_UNUSED(arg);                                                                            \
        ZP_UNUSED(all);                                                                            \
        *out = jv_bool(condition);                                                                 \
        return ZP_OK;                                                                              \
    }

SIMPLE_TEST(is_defined, self.kind != J_UNDEFINED)
SIMPLE_TEST(is_undefined, self.kind == J_UNDEFINED)
SIMPLE_TEST(is_none, self.kind == J_NONE)
SIMPLE_TEST(is_boolean, self.kind == J_BOOL)
SIMPLE_TEST(is_true, self.kind == J_BOOL && self.u.b)
SIMPLE_TEST(is_false, self.kind == J_BOOL && !self.u.b)
SIMPLE_TEST(is_integer, self.kind == J_INT)
SIMPLE_TEST(is_float, self.kind == J_FLOAT)
SIMPLE_TEST(is_number, jv_is_number(self))
SIMPLE_TEST(is_string, self.kind == J_STR)
SIMPLE_TEST(is_mapping, self.kind == J_DICT)
SIMPLE_TEST(is_iterable, jv_is_iterable(self) || self.kind == J_LOOP)
SIMPLE_TEST(is_sequence, jv_has_length(self) && self.kind != J_VIEW)
SIMPLE_TEST(is_callable, self.kind == J_BUILTIN || self.kind == J_MACRO || self.kind == J_LOOP ||
                             self.kind == J_JOINER || self.kind == J_UNDEFINED)
SIMPLE_TEST(is_escaped, false)

static zp_status test_remainder(struct jinja *c, struct jv self, int64_t by, int64_t wanted,
                                struct jv *out)
{
    struct jv rest;
    if (self.kind == J_UNDEFINED) return jv_fail_undefined(c, self);
    J_FAIL_IF(!jv_is_number(self), c, "expected a number to test, found '%s'", jv_type_name(self));
    ZP_TRY(jinja_modulo(c, self, jv_int(by), &rest));
    *out = jv_bool(jv_as_float(rest) == (double)wanted);
    return ZP_OK;
}

TEST(is_odd)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return test_remainder(c, self, 2, 1, out);
}

TEST(is_even)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return test_remainder(c, self, 2, 0, out);
}

TEST(is_divisibleby)
{
    ZP_UNUSED(all);
    int64_t by = 1;
    ZP_TRY(jarg_int(c, arg[0], "num", &by));
    return test_remainder(c, self, by, 0, out);
}

/* True when there are cased letters and all of them have this case. */
static zp_status test_case(struct jinja *c, struct jv self, bool upper, struct jv *out)
{
    const struct jstr *s;
    bool any = false, all_so = true;
    size_t size;
    ZP_TRY(jv_to_str(c, self, &s));
    for (size_t at = 0; at < s->size; at += size) {
        uint32_t cp = jstr_char_at(s, at, &size);
        bool is_upper = jchar_is_upper(cp), is_lower = jchar_is_lower(cp);
        any |= upper ? is_upper : is_lower;
        all_so &= !(upper ? is_lower : is_upper) && !jchar_is_title(cp);
    }
    *out = jv_bool(any && all_so);
    return ZP_OK;
}

TEST(is_upper)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return test_case(c, self, true, out);
}

TEST(is_lower)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return test_case(c, self, false, out);
}

static zp_status test_relation(struct jinja *c, enum jnode_op op, struct jv a, struct jv b,
                               struct jv *out)
{
    bool holds;
    ZP_TRY(jinja_relation(c, op, a, b, &holds));
    *out = jv_bool(holds);
    return ZP_OK;
}

#define RELATION_TEST(name, op)                                                                    \
    TEST(name)                                                                                     \
    {                                                                                              \
        ZP_UNUSED(all);                                                                            \
        return test_relation(c, op, self, arg[0], out);                                            \
    }
RELATION_TEST(is_eq, OP_EQ)
RELATION_TEST(is_ne, OP_NE)
RELATION_TEST(is_lt, OP_LT)
RELATION_TEST(is_le, OP_LE)
RELATION_TEST(is_gt, OP_GT)
RELATION_TEST(is_ge, OP_GE)
RELATION_TEST(is_in, OP_IN)

/* Python's `is`: the same object. Numbers and texts, which have no identity here, are the same when
 * equal. */
TEST(is_sameas)
{
    ZP_UNUSED(all);
    struct jv other = arg[0];
    bool same = self.kind == other.kind;
    if (same && (self.kind == J_LIST || self.kind == J_TUPLE || self.kind == J_VIEW))
        same = self.u.list == other.u.list;
    else if (same && self.kind == J_DICT) same = self.u.dict == other.u.dict;
    else if (same) ZP_TRY(jv_equal(c, self, other, &same));
    *out = jv_bool(same);
    return ZP_OK;
}

static zp_status test_known(struct jinja *c, struct jv self, bool test, struct jv *out)
{
    const struct jstr *name = NULL;
    ZP_TRY(jarg_str(c, self, "name", &name));
    *out = jv_bool((test ? jinja_find_test(name->data, name->size)
                         : jinja_find_filter(name->data, name->size)) != NULL);
    return ZP_OK;
}

TEST(is_filter)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return test_known(c, self, false, out);
}

TEST(is_test)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return test_known(c, self, true, out);
}

static const struct jbuiltin test_rows[] = {
    { "defined", is_defined, "", 0 },    { "undefined", is_undefined, "", 0 },
    { "none", is_none, "", 0 },          { "boolean", is_boolean, "", 0 },
    { "true", is_true, "", 0 },          { "false", is_false, "", 0 },
    { "integer", is_integer, "", 0 },    { "float", is_float, "", 0 },
    { "number", is_number, "", 0 },      { "string", is_string, "", 0 },
    { "mapping", is_mapping, "", 0 },    { "iterable", is_iterable, "", 0 },
    { "sequence", is_sequence, "", 0 },  { "callable", is_callable, "", 0 },
    { "escaped", is_escaped, "", 0 },    { "odd", is_odd, "", 0 },
    { "even", is_even, "", 0 },          { "divisibleby", is_divisibleby, "num", 1 },
    { "upper", is_upper, "", 0 },        { "lower", is_lower, "", 0 },
    { "eq", is_eq, "other", 1 },         { "equalto", is_eq, "other", 1 },
    { "==", is_eq, "other", 1 },         { "ne", is_ne, "other", 1 },
    { "!=", is_ne, "other", 1 },         { "lt", is_lt, "other", 1 },
    { "lessthan", is_lt, "other", 1 },   { "<", is_lt, "other", 1 },
    { "le", is_le, "other", 1 },         { "<=", is_le, "other", 1 },
    { "gt", is_gt, "other", 1 },         { "greaterthan", is_gt, "other", 1 },
    { ">", is_gt, "other", 1 },          { "ge", is_ge, "other", 1 },
    { ">=", is_ge, "other", 1 },         { "in", is_in, "seq", 1 },
    { "sameas", is_sameas, "other", 1 }, { "filter", is_filter, "", 0 },
    { "test", is_test, "", 0 },
};
const struct jbuiltin_table jinja_tests = { test_rows, ZP_COUNT(test_rows) };

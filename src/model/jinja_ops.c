/* jinja_ops.c: operators of template values: arithmetic, joining, repetition and relations, with
 * Python's meaning. Integers are 64 bits wide; where Python would grow them we fail instead of
 * wrapping. No state. */
#include "model/jinja_ops.h"

#include <math.h>
#include <string.h>

#include "model/jinja_format.h"
#include "model/jinja_iter.h"
#include "model/jinja_text.h"

static zp_status fail_operands(struct jinja *c, const char *op, struct jv a, struct jv b)
{
    if (a.kind == J_UNDEFINED) return jv_fail_undefined(c, a);
    if (b.kind == J_UNDEFINED) return jv_fail_undefined(c, b);
    J_FAIL(c, "'%s' does not go with '%s' and '%s'%s", op, jv_type_name(a), jv_type_name(b),
           op[0] == '+' && (a.kind == J_STR || b.kind == J_STR) ? "; join texts with '~'" : "");
}

static zp_status add(struct jinja *c, struct jv a, struct jv b, struct jv *out)
{
    if (a.kind == J_STR && b.kind == J_STR) return jstr_concat(c, a.u.s, b.u.s, out);
    if (jv_is_integer(a) && jv_is_integer(b)) {
        int64_t sum;
        J_FAIL_IF(__builtin_add_overflow(jv_as_int(a), jv_as_int(b), &sum), c,
                  "the sum does not fit 64 bits");
        *out = jv_int(sum);
        return ZP_OK;
    }
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = jv_float(jv_as_float(a) + jv_as_float(b));
        return ZP_OK;
    }
    if ((a.kind != J_LIST && a.kind != J_TUPLE) || a.kind != b.kind)
        return fail_operands(c, "+", a, b);
    struct jlist *list;
    ZP_TRY(jlist_new(c, a.u.list->n + b.u.list->n, &list));
    for (size_t i = 0; i < a.u.list->n; i++) ZP_TRY(jlist_append(c, list, a.u.list->items[i]));
    for (size_t i = 0; i < b.u.list->n; i++) ZP_TRY(jlist_append(c, list, b.u.list->items[i]));
    *out = (struct jv){ .kind = a.kind, .u.list = list };
    return ZP_OK;
}

static zp_status subtract(struct jinja *c, struct jv a, struct jv b, struct jv *out)
{
    if (!jv_is_number(a) || !jv_is_number(b)) return fail_operands(c, "-", a, b);
    int64_t difference;
    if (!jv_is_integer(a) || !jv_is_integer(b)) {
        *out = jv_float(jv_as_float(a) - jv_as_float(b));
        return ZP_OK;
    }
    J_FAIL_IF(__builtin_sub_overflow(jv_as_int(a), jv_as_int(b), &difference), c,
              "the difference does not fit 64 bits");
    *out = jv_int(difference);
    return ZP_OK;
}

static zp_status repeat(struct jinja *c, struct jv v, int64_t times, struct jv *out)
{
    if (times < 0) times = 0;
    if (v.kind == J_STR) {
        struct jtext t = { .c = c };
        for (int64_t i = 0; i < times && v.u.s->size != 0; i++) {
            ZP_TRY(jinja_step(c, 1));
            ZP_TRY(jtext_append_str(&t, v.u.s));
        }
        return jtext_finish(&t, out);
    }
    struct jlist *list;
    ZP_TRY(jlist_new(c, 0, &list));
    for (int64_t i = 0; i < times && v.u.list->n != 0; i++) {
        ZP_TRY(jinja_step(c, v.u.list->n));
        for (size_t k = 0; k < v.u.list->n; k++) ZP_TRY(jlist_append(c, list, v.u.list->items[k]));
    }
    *out = (struct jv){ .kind = v.kind, .u.list = list };
    return ZP_OK;
}

static bool repeats(struct jv v)
{
    return v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE;
}

static zp_status multiply(struct jinja *c, struct jv a, struct jv b, struct jv *out)
{
    if (repeats(a) && jv_is_integer(b)) return repeat(c, a, jv_as_int(b), out);
    if (repeats(b) && jv_is_integer(a)) return repeat(c, b, jv_as_int(a), out);
    if (!jv_is_number(a) || !jv_is_number(b)) return fail_operands(c, "*", a, b);
    int64_t product;
    if (!jv_is_integer(a) || !jv_is_integer(b)) {
        *out = jv_float(jv_as_float(a) * jv_as_float(b));
        return ZP_OK;
    }
    J_FAIL_IF(__builtin_mul_overflow(jv_as_int(a), jv_as_int(b), &product), c,
              "the product does not fit 64 bits");
    *out = jv_int(product);
    return ZP_OK;
}

static zp_status check_divisor(struct jinja *c, const char *op, struct jv a, struct jv b)
{
    if (!jv_is_number(a) || !jv_is_number(b)) return fail_operands(c, op, a, b);
    J_FAIL_IF(jv_as_float(b) == 0, c, "division by zero");
    return ZP_OK;
}

static zp_status floor_divide(struct jinja *c, struct jv a, struct jv b, struct jv *out)
{
    ZP_TRY(check_divisor(c, "//", a, b));
    if (!jv_is_integer(a) || !jv_is_integer(b)) {
        double x = jv_as_float(a), y = jv_as_float(b), r = fmod(x, y);
        double q = (x - r) / y; /* exact up to rounding; then to the floor, as CPython does */
        if (r != 0 && (y < 0) != (r < 0)) q -= 1;
        double whole = floor(q);
        if (q - whole > 0.5) whole += 1;
        *out = jv_float(q == 0 ? copysign(0, x / y) : whole);
        return ZP_OK;
    }
    int64_t x = jv_as_int(a), y = jv_as_int(b);
    J_FAIL_IF(x == INT64_MIN && y == -1, c, "the quotient does not fit 64 bits");
    int64_t q = x / y;
    *out = jv_int(q - (x % y != 0 && (x % y < 0) != (y < 0)));
    return ZP_OK;
}

zp_status jinja_modulo(struct jinja *c, struct jv a, struct jv b, struct jv *out)
{
    ZP_TRY(check_divisor(c, "%", a, b));
    if (!jv_is_integer(a) || !jv_is_integer(b)) {
        double y = jv_as_float(b), r = fmod(jv_as_float(a), y);
        if (r != 0) r += (y < 0) != (r < 0) ? y : 0;
        else r = copysign(0, y);
        *out = jv_float(r);
        return ZP_OK;
    }
    int64_t x = jv_as_int(a), y = jv_as_int(b);
    int64_t r = y == -1 ? 0 : x % y;
    *out = jv_int(r != 0 && (r < 0) != (y < 0) ? r + y : r);
    return ZP_OK;
}

static zp_status integer_power(struct jinja *c, int64_t base, int64_t exponent, struct jv *out)
{
    int64_t result = 1;
    bool fits = true;
    while (exponent > 0 && fits) {
        if (exponent & 1) fits = !__builtin_mul_overflow(result, base, &result);
        exponent >>= 1;
        if (exponent > 0 && fits) fits = !__builtin_mul_overflow(base, base, &base);
    }
    J_FAIL_IF(!fits, c, "the power does not fit 64 bits");
    *out = jv_int(result);
    return ZP_OK;
}

static zp_status power(struct jinja *c, struct jv a, struct jv b, struct jv *out)
{
    if (!jv_is_number(a) || !jv_is_number(b)) return fail_operands(c, "**", a, b);
    if (jv_is_integer(a) && jv_is_integer(b) && jv_as_int(b) >= 0)
        return integer_power(c, jv_as_int(a), jv_as_int(b), out);
    double x = jv_as_float(a), y = jv_as_float(b);
    J_FAIL_IF(x == 0 && y < 0, c, "zero cannot be raised to a negative power");
    double result = pow(x, y);
    J_FAIL_IF(isnan(result) && !isnan(x) && !isnan(y), c, "the power is not a real number");
    J_FAIL_IF(isinf(result) && isfinite(x) && isfinite(y), c, "the power is too large for a float");
    *out = jv_float(result);
    return ZP_OK;
}

zp_status jinja_binary(struct jinja *c, enum jnode_op op, struct jv a, struct jv b, struct jv *out)
{
    switch (op) {
    case OP_ADD: return add(c, a, b, out);
    case OP_SUB: return subtract(c, a, b, out);
    case OP_MUL: return multiply(c, a, b, out);
    case OP_DIV:
        ZP_TRY(check_divisor(c, "/", a, b));
        *out = jv_float(jv_as_float(a) / jv_as_float(b));
        return ZP_OK;
    case OP_FLOORDIV: return floor_divide(c, a, b, out);
    case OP_MOD:
        if (a.kind == J_STR) return jinja_percent_format(c, a.u.s, b, out);
        return jinja_modulo(c, a, b, out);
    case OP_POW: return power(c, a, b, out);
    default: J_FAIL(c, "not an arithmetic operator");
    }
}

zp_status jinja_relation(struct jinja *c, enum jnode_op op, struct jv a, struct jv b, bool *out)
{
    int order = 0;
    if (op == OP_EQ || op == OP_NE) {
        ZP_TRY(jv_equal(c, a, b, out));
        *out ^= op == OP_NE;
        return ZP_OK;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        ZP_TRY(jv_contains(c, b, a, out));
        *out ^= op == OP_NOT_IN;
        return ZP_OK;
    }
    ZP_TRY(jv_compare(c, a, b, &order));
    *out = order != 2 && (op == OP_LT   ? order < 0
                          : op == OP_LE ? order <= 0
                          : op == OP_GT ? order > 0
                                        : order >= 0);
    return ZP_OK;
}

zp_status jinja_negate(struct jinja *c, struct jv v, struct jv *out)
{
    if (v.kind == J_UNDEFINED) return jv_fail_undefined(c, v);
    J_FAIL_IF(!jv_is_number(v), c, "'-' does not go with '%s'", jv_type_name(v));
    J_FAIL_IF(v.kind == J_INT && v.u.i == INT64_MIN, c, "the number does not fit 64 bits");
    *out = v.kind == J_FLOAT ? jv_float(-v.u.f) : jv_int(-jv_as_int(v));
    return ZP_OK;
}

/* jinja_global.c: functions every chat template may call, and the objects they make. */
#include "model/jinja_global.h"

#include <string.h>
#include <time.h>

#include "model/jinja_iter.h"
#include "model/jinja_print.h"

#define MAX_RANGE 100000 /* as Jinja's sandbox */
#define MAX_DATE_TEXT 4096

/* The template refuses its input: the message is the template's own words and nothing else. */
static zp_status raise_exception(struct jinja *c, struct jv self, const struct jv *arg,
                                 const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(self);
    ZP_UNUSED(all);
    ZP_UNUSED(out);
    const struct jstr *s;
    ZP_TRY(jv_to_str(c, arg[0], &s));
    int size = (int)(s->size < 4096 ? s->size : 4096);
    ZP_FAIL(c->err, ZP_BAD_INPUT, "%.*s", size, s->data);
}

static zp_status fill_dict(struct jinja *c, const struct jargs *all, struct jdict *dict)
{
    J_FAIL_IF(all->n_pos > 1, c, "expected at most one value in front of the named ones");
    struct jlist *pairs = NULL;
    if (all->n_pos == 1 && all->pos[0].kind == J_DICT) {
        const struct jdict *from = all->pos[0].u.dict;
        for (size_t i = 0; i < from->n; i++)
            ZP_TRY(jdict_set(c, dict, from->pairs[i].key, from->pairs[i].value));
    } else if (all->n_pos == 1) {
        ZP_TRY(jv_to_list(c, all->pos[0], &pairs));
    }
    for (size_t i = 0; pairs != NULL && i < pairs->n; i++) {
        struct jlist *pair;
        ZP_TRY(jv_to_list(c, pairs->items[i], &pair));
        J_FAIL_IF(pair->n != 2, c, "a dictionary is made of pairs, found %zu values", pair->n);
        ZP_TRY(jdict_set(c, dict, pair->items[0], pair->items[1]));
    }
    for (size_t i = 0; i < all->n_kw; i++)
        ZP_TRY(jdict_set(c, dict, jv_str(all->kw[i].name), all->kw[i].value));
    return ZP_OK;
}

static zp_status make_dict(struct jinja *c, struct jv self, const struct jv *arg,
                           const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(self);
    ZP_UNUSED(arg);
    struct jdict *dict;
    ZP_TRY(jdict_new(c, &dict));
    ZP_TRY(fill_dict(c, all, dict));
    *out = jv_dict(dict);
    return ZP_OK;
}

static zp_status make_namespace(struct jinja *c, struct jv self, const struct jv *arg,
                                const struct jargs *all, struct jv *out)
{
    ZP_TRY(make_dict(c, self, arg, all, out));
    out->kind = J_NAMESPACE;
    return ZP_OK;
}

static zp_status make_range(struct jinja *c, struct jv self, const struct jv *arg,
                            const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(self);
    ZP_UNUSED(all);
    int64_t start = 0, stop = 0, step = 1;
    bool only_stop = arg[1].kind == J_MISSING;
    ZP_TRY(jarg_int(c, arg[0], only_stop ? "stop" : "start", only_stop ? &stop : &start));
    if (!only_stop) ZP_TRY(jarg_int(c, arg[1], "stop", &stop));
    ZP_TRY(jarg_int(c, arg[2], "step", &step));
    J_FAIL_IF(step == 0, c, "the step of range() is zero");
    bool any = step > 0 ? start < stop : start > stop;
    uint64_t distance =
        step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = any ? (distance - 1) / size + 1 : 0;
    J_FAIL_IF(n > MAX_RANGE, c, "range() of more than %d numbers", MAX_RANGE);
    struct jrange *range;
    J_NEW(range, c, 1);
    *range = (struct jrange){ start, step, (int64_t)n };
    *out = (struct jv){ .kind = J_RANGE, .u.range = range };
    return ZP_OK;
}

static zp_status strftime_now(struct jinja *c, struct jv self, const struct jv *arg,
                              const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(self);
    ZP_UNUSED(all);
    const struct jstr *format = NULL;
    ZP_TRY(jarg_str(c, arg[0], "format", &format));
    char *pattern, *text;
    J_FAIL_IF(format->size > MAX_DATE_TEXT / 32, c,
              "the format of strftime_now() has more than %d bytes", MAX_DATE_TEXT / 32);
    /* A character in front tells an empty date from one that does not fit. */
    J_NEW(pattern, c, format->size + 2);
    J_NEW(text, c, MAX_DATE_TEXT);
    pattern[0] = '>';
    memcpy(pattern + 1, format->data, format->size);
    time_t now = (time_t)c->now;
    struct tm parts;
    J_FAIL_IF(gmtime_r(&now, &parts) == NULL, c, "the time cannot be written as a date");
    size_t n = strftime(text, MAX_DATE_TEXT, pattern, &parts);
    J_FAIL_IF(n == 0, c, "the date of strftime_now() has more than %d bytes", MAX_DATE_TEXT);
    struct jtext t = { .c = c };
    ZP_TRY(jtext_append(&t, text + 1, n - 1, ORIGIN_TEMPLATE, NULL));
    return jtext_finish(&t, out);
}

static zp_status make_cycler(struct jinja *c, struct jv self, const struct jv *arg,
                             const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(self);
    ZP_UNUSED(arg);
    struct jcycler *cycler;
    J_NEW(cycler, c, 1);
    ZP_TRY(jlist_new(c, all->n_pos, &cycler->items));
    for (size_t i = 0; i < all->n_pos; i++) ZP_TRY(jlist_append(c, cycler->items, all->pos[i]));
    *out = (struct jv){ .kind = J_CYCLER, .u.cycler = cycler };
    return ZP_OK;
}

static zp_status cycler_next(struct jinja *c, struct jv self, const struct jv *arg,
                             const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(c);
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jcycler *cycler = self.u.cycler;
    *out = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->n;
    return ZP_OK;
}

static zp_status cycler_reset(struct jinja *c, struct jv self, const struct jv *arg,
                              const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(c);
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    self.u.cycler->at = 0;
    *out = jv_none();
    return ZP_OK;
}

static zp_status make_joiner(struct jinja *c, struct jv self, const struct jv *arg,
                             const struct jargs *all, struct jv *out)
{
    ZP_UNUSED(self);
    ZP_UNUSED(all);
    struct joiner *joiner;
    J_NEW(joiner, c, 1);
    joiner->separator = arg[0];
    if (arg[0].kind == J_MISSING) ZP_TRY(jstr_value(c, ", ", &joiner->separator));
    *out = (struct jv){ .kind = J_JOINER, .u.joiner = joiner };
    return ZP_OK;
}

zp_status jinja_call_joiner(struct jinja *c, struct jv v, struct jv *out)
{
    struct joiner *joiner = v.u.joiner;
    if (joiner->called) *out = joiner->separator;
    else ZP_TRY(jstr_value(c, "", out));
    joiner->called = true;
    return ZP_OK;
}

static const struct jbuiltin global_rows[] = {
    { "raise_exception", raise_exception, "message", 1 },
    { "namespace", make_namespace, NULL, 0 },
    { "dict", make_dict, NULL, 0 },
    { "range", make_range, "start stop step", 1 },
    { "strftime_now", strftime_now, "format", 1 },
    { "cycler", make_cycler, NULL, 1 },
    { "joiner", make_joiner, "sep", 0 },
};
const struct jbuiltin_table jinja_globals = { global_rows, ZP_COUNT(global_rows) };

static const struct jbuiltin cycler_rows[] = {
    { "next", cycler_next, "", 0 },
    { "reset", cycler_reset, "", 0 },
};
const struct jbuiltin_table jinja_cycler_methods = { cycler_rows, ZP_COUNT(cycler_rows) };

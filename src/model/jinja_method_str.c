/* jinja_method_str.c: methods of Python's str. Positions in arguments and results count characters,
 * inside bytes. */
#include "model/jinja_method_str.h"

#include "model/jinja_filter_list.h"
#include "model/jinja_filter_text.h"
#include "model/jinja_format.h"
#include "model/jinja_iter.h"

#define METHOD(name)                                                                               \
    static zp_status name(struct jinja *c, struct jv self, const struct jv *arg,                   \
                          const struct jargs *all, struct jv *out)

static bool is_none(struct jv v)
{
    return v.kind == J_MISSING || v.kind == J_NONE;
}

METHOD(str_upper)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return jstr_to_case(c, self.u.s, CASE_UPPER, out);
}

METHOD(str_lower)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return jstr_to_case(c, self.u.s, CASE_LOWER, out);
}

METHOD(str_capitalize)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    return jstr_capitalize(c, self.u.s, out);
}

METHOD(str_title)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jtext t = { .c = c };
    bool inside = false;
    size_t size;
    for (size_t at = 0; at < self.u.s->size; at += size) {
        uint32_t cp = jstr_char_at(self.u.s, at, &size);
        ZP_TRY(jtext_append_cased(&t, self.u.s, at, inside ? CASE_LOWER : CASE_TITLE, &size));
        inside = jchar_is_upper(cp) || jchar_is_lower(cp) || jchar_is_title(cp);
    }
    return jtext_finish(&t, out);
}

METHOD(str_swapcase)
{
    ZP_UNUSED(arg);
    ZP_UNUSED(all);
    struct jtext t = { .c = c };
    size_t size;
    for (size_t at = 0; at < self.u.s->size; at += size) {
        uint32_t cp = jstr_char_at(self.u.s, at, &size);
        if (jchar_is_upper(cp)) ZP_TRY(jtext_append_cased(&t, self.u.s, at, CASE_LOWER, &size));
        else if (jchar_is_lower(cp))
            ZP_TRY(jtext_append_cased(&t, self.u.s, at, CASE_UPPER, &size));
        else ZP_TRY(jtext_append_slice(&t, self.u.s, at, size));
    }
    return jtext_finish(&t, out);
}

static zp_status strip_side(struct jinja *c, struct jv self, struct jv chars_arg,
                            enum jstrip_side side, struct jv *out)
{
    const struct jstr *chars = NULL;
    if (!is_none(chars_arg)) ZP_TRY(jarg_str(c, chars_arg, "chars", &chars));
    return jstr_strip(c, self.u.s, chars, side, out);
}

METHOD(str_strip)
{
    ZP_UNUSED(all);
    return strip_side(c, self, arg[0], STRIP_BOTH, out);
}

METHOD(str_lstrip)
{
    ZP_UNUSED(all);
    return strip_side(c, self, arg[0], STRIP_LEFT, out);
}

METHOD(str_rstrip)
{
    ZP_UNUSED(all);
    return strip_side(c, self, arg[0], STRIP_RIGHT, out);
}

/* ---- splitting ---- */

static zp_status append_part(struct jinja *c, struct jlist *list, const struct jstr *s, size_t at,
                             size_t end)
{
    struct jv part;
    ZP_TRY(jinja_step(c, 1));
    ZP_TRY(jstr_slice(c, s, at, end - at, &part));
    return jlist_append(c, list, part);
}

static size_t skip_spaces(const struct jstr *s, size_t at, bool wanted)
{
    size_t size;
    while (at < s->size && jchar_is_space(jstr_char_at(s, at, &size)) == wanted) at += size;
    return at;
}

static size_t skip_spaces_back(const struct jstr *s, size_t end, bool wanted)
{
    size_t size;
    while (end > 0 && jchar_is_space(jstr_char_before(s, end, &size)) == wanted) end -= size;
    return end;
}

static zp_status split_spaces(struct jinja *c, const struct jstr *s, int64_t limit,
                              struct jlist *list)
{
    size_t at = skip_spaces(s, 0, true);
    for (int64_t n = 0; at < s->size; n++) {
        bool rest = limit >= 0 && n >= limit;
        size_t end =
            rest ? s->size : skip_spaces(s, at, false); /* the rest keeps its white space */
        ZP_TRY(append_part(c, list, s, at, end));
        at = skip_spaces(s, end, true);
    }
    return ZP_OK;
}

static zp_status rsplit_spaces(struct jinja *c, const struct jstr *s, int64_t limit,
                               struct jlist *list)
{
    size_t end = skip_spaces_back(s, s->size, true);
    for (int64_t n = 0; end > 0; n++) {
        bool rest = limit >= 0 && n >= limit;
        size_t at = rest ? 0 : skip_spaces_back(s, end, false);
        ZP_TRY(append_part(c, list, s, at, end));
        end = skip_spaces_back(s, at, true);
    }
    return ZP_OK;
}

static zp_status split_text(struct jinja *c, const struct jstr *s, const struct jstr *by,
                            int64_t limit, struct jlist *list)
{
    size_t at = 0, hit;
    for (int64_t n = 0; (limit < 0 || n < limit) && (hit = jstr_find(s, by, at)) != SIZE_MAX; n++) {
        ZP_TRY(append_part(c, list, s, at, hit));
        at = hit + by->size;
    }
    return append_part(c, list, s, at, s->size);
}

static zp_status rsplit_text(struct jinja *c, const struct jstr *s, const struct jstr *by,
                             int64_t limit, struct jlist *list)
{
    size_t end = s->size, hit;
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        ZP_TRY(jstr_find_last(c, s, by, end, &hit));
        if (hit == SIZE_MAX) break;
        ZP_TRY(append_part(c, list, s, hit + by->size, end));
        end = hit;
    }
    return append_part(c, list, s, 0, end);
}

static zp_status split(struct jinja *c, const struct jstr *s, const struct jv *arg, bool from_right,
                       struct jv *out)
{
    const struct jstr *by = NULL;
    int64_t limit = -1;
    struct jlist *list;
    if (!is_none(arg[0])) ZP_TRY(jarg_str(c, arg[0], "sep", &by));
    ZP_TRY(jarg_int(c, arg[1], "maxsplit", &limit));
    J_FAIL_IF(by != NULL && by->size == 0, c, "a text cannot be split by the empty text");
    ZP_TRY(jlist_new(c, 0, &list));
    if (by == NULL)
        ZP_TRY(from_right ? rsplit_spaces(c, s, limit, list) : split_spaces(c, s, limit, list));
    else
        ZP_TRY(from_right ? rsplit_text(c, s, by, limit, list) : split_text(c, s, by, limit, list));
    if (from_right) ZP_TRY(jinja_reversed(c, jv_list(list), &list));
    *out = jv_list(list);
    return ZP_OK;
}

METHOD(str_split)
{
    ZP_UNUSED(all);
    return split(c, self.u.s, arg, false, out);
}

METHOD(str_rsplit)
{
    ZP_UNUSED(all);
    return split(c, self.u.s, arg, true, out);
}

METHOD(str_splitlines)
{
    ZP_UNUSED(all);
    const struct jstr *s = self.u.s;
    struct jlist *list;
    bool keep = jarg_truth(arg[0], false);
    ZP_TRY(jlist_new(c, 0, &list));
    for (size_t at = 0, next; at < s->size; at = next) {
        size_t end = jstr_line_end(s, at, &next);
        ZP_TRY(append_part(c, list, s, at, keep ? next : end));
    }
    *out = jv_list(list);
    return ZP_OK;
}

static zp_status partition(struct jinja *c, const struct jstr *s, struct jv sep, bool last,
                           struct jv *out)
{
    const struct jstr *by = NULL;
    struct jlist *list;
    ZP_TRY(jarg_str(c, sep, "sep", &by));
    J_FAIL_IF(by->size == 0, c, "a text cannot be split by the empty text");
    size_t hit = jstr_find(s, by, 0);
    if (last) ZP_TRY(jstr_find_last(c, s, by, s->size, &hit));
    size_t cut[4] = { 0, hit, hit + by->size, s->size };
    if (hit == SIZE_MAX) cut[1] = cut[2] = last ? 0 : s->size;
    ZP_TRY(jlist_new(c, 3, &list));
    for (int i = 0; i < 3; i++) ZP_TRY(append_part(c, list, s, cut[i], cut[i + 1]));
    *out = jv_tuple(list);
    return ZP_OK;
}

METHOD(str_partition)
{
    ZP_UNUSED(all);
    return partition(c, self.u.s, arg[0], false, out);
}

METHOD(str_rpartition)
{
    ZP_UNUSED(all);
    return partition(c, self.u.s, arg[0], true, out);
}

/* ---- searching ---- */

/* The part of s between two positions in characters that may be absent or negative; *at = where it
 * begins. */
static zp_status narrow(struct jinja *c, const struct jstr *s, struct jv start, struct jv end,
                        const struct jstr **out, size_t *at, bool *empty)
{
    int64_t n = (int64_t)jstr_chars(s), from = 0, to = n;
    struct jv part;
    if (!is_none(start)) ZP_TRY(jarg_int(c, start, "start", &from));
    if (!is_none(end)) ZP_TRY(jarg_int(c, end, "end", &to));
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    if (to > n) to = n;
    *empty = from > to; /* not even the empty text is found there */
    if (*empty) from = to = 0;
    *at = jstr_byte_of(s, (size_t)from);
    ZP_TRY(jstr_slice(c, s, *at, jstr_byte_of(s, (size_t)to) - *at, &part));
    *out = part.u.s;
    return ZP_OK;
}

static zp_status find(struct jinja *c, struct jv self, const struct jv *arg, bool last, bool must,
                      struct jv *out)
{
    const struct jstr *part, *needle = NULL;
    size_t at, hit;
    bool empty;
    ZP_TRY(jarg_str(c, arg[0], "sub", &needle));
    ZP_TRY(narrow(c, self.u.s, arg[1], arg[2], &part, &at, &empty));
    hit = empty ? SIZE_MAX : jstr_find(part, needle, 0);
    if (last && !empty) ZP_TRY(jstr_find_last(c, part, needle, part->size, &hit));
    J_FAIL_IF(hit == SIZE_MAX && must, c, "index: the text is not there");
    *out = jv_int(hit == SIZE_MAX ? -1 : (int64_t)jchar_count(self.u.s->data, at + hit));
    return ZP_OK;
}

METHOD(str_find)
{
    ZP_UNUSED(all);
    return find(c, self, arg, false, false, out);
}

METHOD(str_rfind)
{
    ZP_UNUSED(all);
    return find(c, self, arg, true, false, out);
}

METHOD(str_index)
{
    ZP_UNUSED(all);
    return find(c, self, arg, false, true, out);
}

METHOD(str_rindex)
{
    ZP_UNUSED(all);
    return find(c, self, arg, true, true, out);
}

METHOD(str_count)
{
    ZP_UNUSED(all);
    const struct jstr *part, *needle = NULL;
    size_t at, hit = 0;
    bool empty;
    int64_t n = 0;
    ZP_TRY(jarg_str(c, arg[0], "sub", &needle));
    ZP_TRY(narrow(c, self.u.s, arg[1], arg[2], &part, &at, &empty));
    if (needle->size == 0) n = empty ? 0 : (int64_t)jstr_chars(part) + 1;
    else
        for (; !empty && (hit = jstr_find(part, needle, hit)) != SIZE_MAX; hit += needle->size) n++;
    *out = jv_int(n);
    return ZP_OK;
}

static zp_status affix(struct jinja *c, struct jv self, const struct jv *arg, bool end,
                       struct jv *out)
{
    const struct jstr *part;
    size_t at;
    bool empty, found = false;
    ZP_TRY(narrow(c, self.u.s, arg[1], arg[2], &part, &at, &empty));
    size_t n = arg[0].kind == J_TUPLE ? arg[0].u.list->n : 1;
    for (size_t i = 0; i < n; i++) {
        const struct jstr *with = NULL;
        ZP_TRY(jarg_str(c, arg[0].kind == J_TUPLE ? arg[0].u.list->items[i] : arg[0],
                        "prefix or suffix", &with));
        ZP_TRY(jinja_step(c, 1 + with->size / 256));
        if (empty || with->size > part->size) continue;
        found |= jstr_starts(part, end ? part->size - with->size : 0, with);
    }
    *out = jv_bool(found);
    return ZP_OK;
}

METHOD(str_startswith)
{
    ZP_UNUSED(all);
    return affix(c, self, arg, false, out);
}

METHOD(str_endswith)
{
    ZP_UNUSED(all);
    return affix(c, self, arg, true, out);
}

METHOD(str_removeprefix)
{
    ZP_UNUSED(all);
    const struct jstr *s = self.u.s, *with = NULL;
    ZP_TRY(jarg_str(c, arg[0], "prefix", &with));
    size_t cut = jstr_starts(s, 0, with) ? with->size : 0;
    return jstr_slice(c, s, cut, s->size - cut, out);
}

METHOD(str_removesuffix)
{
    ZP_UNUSED(all);
    const struct jstr *s = self.u.s, *with = NULL;
    ZP_TRY(jarg_str(c, arg[0], "suffix", &with));
    bool ends = with->size <= s->size && jstr_starts(s, s->size - with->size, with);
    return jstr_slice(c, s, 0, ends ? s->size - with->size : s->size, out);
}

/* ---- making ---- */

METHOD(str_replace)
{
    ZP_UNUSED(all);
    const struct jstr *from = NULL, *to = NULL;
    int64_t limit = -1;
    ZP_TRY(jarg_str(c, arg[0], "old", &from));
    ZP_TRY(jarg_str(c, arg[1], "new", &to));
    ZP_TRY(jarg_int(c, arg[2], "count", &limit));
    return jstr_replace(c, self.u.s, from, to, limit, out);
}

METHOD(str_join)
{
    ZP_UNUSED(all);
    return jinja_join(c, arg[0], self.u.s, true, out);
}

METHOD(str_format)
{
    ZP_UNUSED(arg);
    return jinja_brace_format(c, self.u.s, all, out);
}

static zp_status justify(struct jinja *c, struct jv self, const struct jv *arg, bool left,
                         struct jv *out)
{
    int64_t width = 0, n = (int64_t)jstr_chars(self.u.s);
    const struct jstr *fill = NULL;
    ZP_TRY(jarg_int(c, arg[0], "width", &width));
    ZP_TRY(jarg_str(c, arg[1], "fillchar", &fill));
    int64_t missing = width > n ? width - n : 0;
    return jstr_pad(c, self.u.s, left ? 0 : missing, left ? missing : 0, fill, out);
}

METHOD(str_ljust)
{
    ZP_UNUSED(all);
    return justify(c, self, arg, true, out);
}

METHOD(str_rjust)
{
    ZP_UNUSED(all);
    return justify(c, self, arg, false, out);
}

METHOD(str_center)
{
    ZP_UNUSED(all);
    int64_t width = 0;
    const struct jstr *fill = NULL;
    ZP_TRY(jarg_int(c, arg[0], "width", &width));
    ZP_TRY(jarg_str(c, arg[1], "fillchar", &fill));
    return jstr_center(c, self.u.s, width, fill, out);
}

METHOD(str_zfill)
{
    ZP_UNUSED(all);
    const struct jstr *s = self.u.s;
    int64_t width = 0, n = (int64_t)jstr_chars(s);
    struct jtext t = { .c = c };
    ZP_TRY(jarg_int(c, arg[0], "width", &width));
    size_t sign = s->size != 0 && (s->data[0] == '-' || s->data[0] == '+');
    ZP_TRY(jtext_append_slice(&t, s, 0, sign));
    for (; n < width; n++) ZP_TRY(jtext_append_ascii(&t, "0"));
    ZP_TRY(jtext_append_slice(&t, s, sign, s->size - sign));
    return jtext_finish(&t, out);
}

/* ---- asking ---- */

static bool is_alnum(uint32_t cp)
{
    return jchar_is_letter(cp) || jchar_is_digit(cp);
}

static zp_status all_chars(struct jv self, bool (*holds)(uint32_t cp), struct jv *out)
{
    bool so = self.u.s->size != 0;
    size_t size;
    for (size_t at = 0; at < self.u.s->size && so; at += size)
        so = holds(jstr_char_at(self.u.s, at, &size));
    *out = jv_bool(so);
    return ZP_OK;
}

#define ASKING(name, holds)                                                                        \
    METHOD(name)                                                                                   \
    {                                                                                              \
        ZP_UNUSED(c);                                                                              \
        ZP_UNUSED(arg);                                                                            \
        ZP_UNUSED(all);                                                                            \
        return all_chars(self, holds, out);                                                        \
    }
ASKING(str_isdigit, jchar_is_digit)
ASKING(str_isalpha, jchar_is_letter)
ASKING(str_isalnum, is_alnum)
ASKING(str_isspace, jchar_is_space)

static zp_status ask_test(struct jinja *c, struct jv self, const char *test, size_t size,
                          const struct jargs *all, struct jv *out)
{
    return jinja_call_builtin(c, jinja_find_test(test, size), "test", self, all, out);
}

METHOD(str_isupper)
{
    ZP_UNUSED(arg);
    return ask_test(c, self, "upper", 5, all, out);
}

METHOD(str_islower)
{
    ZP_UNUSED(arg);
    return ask_test(c, self, "lower", 5, all, out);
}

static const struct jbuiltin str_rows[] = {
    { "upper", str_upper, "", 0 },
    { "lower", str_lower, "", 0 },
    { "capitalize", str_capitalize, "", 0 },
    { "title", str_title, "", 0 },
    { "swapcase", str_swapcase, "", 0 },
    { "strip", str_strip, "chars", 0 },
    { "lstrip", str_lstrip, "chars", 0 },
    { "rstrip", str_rstrip, "chars", 0 },
    { "split", str_split, "sep maxsplit", 0 },
    { "rsplit", str_rsplit, "sep maxsplit", 0 },
    { "splitlines", str_splitlines, "keepends", 0 },
    { "partition", str_partition, "sep", 1 },
    { "rpartition", str_rpartition, "sep", 1 },
    { "find", str_find, "sub start end", 1 },
    { "rfind", str_rfind, "sub start end", 1 },
    { "index", str_index, "sub start end", 1 },
    { "rindex", str_rindex, "sub start end", 1 },
    { "count", str_count, "sub start end", 1 },
    { "startswith", str_startswith, "prefix start end", 1 },
    { "endswith", str_endswith, "suffix start end", 1 },
    { "removeprefix", str_removeprefix, "prefix", 1 },
    { "removesuffix", str_removesuffix, "suffix", 1 },
    { "replace", str_replace, "old new count", 2 },
    { "join", str_join, "iterable", 1 },
    { "format", str_format, NULL, 0 },
    { "ljust", str_ljust, "width fillchar", 1 },
    { "rjust", str_rjust, "width fillchar", 1 },
    { "center", str_center, "width fillchar", 1 },
    { "zfill", str_zfill, "width", 1 },
    { "isdigit", str_isdigit, "", 0 },
    { "isdecimal", str_isdigit, "", 0 },
    { "isnumeric", str_isdigit, "", 0 },
    { "isalpha", str_isalpha, "", 0 },
    { "isalnum", str_isalnum, "", 0 },
    { "isspace", str_isspace, "", 0 },
    { "isupper", str_isupper, "", 0 },
    { "islower", str_islower, "", 0 },
};
const struct jbuiltin_table jinja_str_methods = { str_rows, ZP_COUNT(str_rows) };

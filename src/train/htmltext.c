/* htmltext.c: one pass over a page's bytes.
 * Owns: the tables of elements and entities. Does not know: files.
 * White space is written late (pending), when the text behind it comes: so there is none at the
 * beginning, none at line ends, and the widest gap wins. */
#include "train/htmltext.h"

#include <stdlib.h>
#include <string.h>

enum gap { GAP_NONE, GAP_BLANK, GAP_LINE, GAP_PARAGRAPH };
enum { NAME_MAX_SIZE = 16 };

struct strip {
    const char *at, *end;
    struct buffer *out;
    size_t begin; /* of our text in out */
    enum gap pending;
    bool bullet;              /* a list item begins where the next text does */
    unsigned pre;             /* open <pre> elements */
    const char *silent;       /* element whose contents are left out, or NULL */
    unsigned silent_depth;    /* of elements of that name */
};

/* Element names, each between blanks. */
static const char silent[] = " head script style nav footer template svg noscript ";
static const char raw[] = " script style ";
static const char paragraphs[] =
    " p div section article main aside header h1 h2 h3 h4 h5 h6 ul ol dl table blockquote pre hr "
    "figure figcaption address form fieldset details body ";
static const char lines[] = " br li dt dd tr caption option summary ";
static const char blanks[] = " td th ";

static const char *find_name(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at++)
        if (at[-1] == ' ' && at[n] == ' ' && n > 0) return at;
    return NULL;
}

static bool same_name(const char *in_list, const char *name)
{
    size_t n = strlen(name);
    return strncmp(in_list, name, n) == 0 && in_list[n] == ' ';
}

/* ---- text ---- */

static void ask_gap(struct strip *s, enum gap gap)
{
    if (gap > s->pending) s->pending = gap;
}

static zp_status flush_gap(struct strip *s, zp_err *err)
{
    static const char *const texts[] = { "", " ", "\n", "\n\n" };
    bool empty = s->out->size == s->begin;
    if (!empty) ZP_TRY(buffer_append_text(s->out, texts[s->pending], err));
    s->pending = GAP_NONE;
    if (s->bullet) ZP_TRY(buffer_append(s->out, "- ", 2, err));
    s->bullet = false;
    return ZP_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

static zp_status put_text(struct strip *s, const char *text, size_t size, zp_err *err)
{
    if (s->silent) return ZP_OK;
    for (size_t i = 0; i < size;) {
        size_t n = 0;
        while (i + n < size && (s->pre ? text[i + n] != '\r' : !is_space(text[i + n]))) n++;
        if (n > 0) {
            ZP_TRY(flush_gap(s, err));
            ZP_TRY(buffer_append(s->out, text + i, n, err));
        }
        i += n;
        if (i < size && !s->pre) ask_gap(s, GAP_BLANK);
        i += i < size;
    }
    return ZP_OK;
}

/* ---- entities ---- */

struct entity {
    const char *name;
    uint32_t code;
};
/* Sorted by strcmp. */
static const struct entity entities[] = {
    { "Agrave", 192 }, { "Auml", 196 }, { "Ccedil", 199 }, { "Eacute", 201 }, { "Ouml", 214 },
    { "Uuml", 220 }, { "aacute", 225 }, { "acirc", 226 }, { "acute", 180 }, { "aelig", 230 },
    { "agrave", 224 }, { "alpha", 945 }, { "amp", '&' }, { "apos", '\'' }, { "aring", 229 },
    { "atilde", 227 }, { "auml", 228 }, { "beta", 946 }, { "bull", 8226 }, { "ccedil", 231 },
    { "cent", 162 }, { "copy", 169 }, { "darr", 8595 }, { "deg", 176 }, { "delta", 948 },
    { "divide", 247 }, { "eacute", 233 }, { "ecirc", 234 }, { "egrave", 232 }, { "emsp", 8195 },
    { "ensp", 8194 }, { "euml", 235 }, { "euro", 8364 }, { "frac12", 189 }, { "frac14", 188 },
    { "frac34", 190 }, { "gamma", 947 }, { "ge", 8805 }, { "gt", '>' }, { "hellip", 8230 },
    { "iacute", 237 }, { "icirc", 238 }, { "iuml", 239 }, { "lambda", 955 }, { "laquo", 171 },
    { "larr", 8592 }, { "ldquo", 8220 }, { "le", 8804 }, { "lsaquo", 8249 }, { "lsquo", 8216 },
    { "lt", '<' }, { "mdash", 8212 }, { "micro", 181 }, { "middot", 183 }, { "minus", 8722 },
    { "mu", 956 }, { "nbsp", ' ' }, { "ndash", 8211 }, { "ne", 8800 }, { "not", 172 },
    { "ntilde", 241 }, { "oacute", 243 }, { "ocirc", 244 }, { "oelig", 339 }, { "ograve", 242 },
    { "oslash", 248 }, { "ouml", 246 }, { "para", 182 }, { "pi", 960 }, { "plusmn", 177 },
    { "pound", 163 }, { "quot", '"' }, { "raquo", 187 }, { "rarr", 8594 }, { "rdquo", 8221 },
    { "reg", 174 }, { "rsaquo", 8250 }, { "rsquo", 8217 }, { "sect", 167 }, { "shy", 173 },
    { "sigma", 963 }, { "sup2", 178 }, { "sup3", 179 }, { "szlig", 223 }, { "thinsp", 8201 },
    { "times", 215 }, { "trade", 8482 }, { "uacute", 250 }, { "uarr", 8593 }, { "ucirc", 251 },
    { "ugrave", 249 }, { "uml", 168 }, { "uuml", 252 }, { "yen", 165 },
};

static int compare_entity(const void *key, const void *entry)
{
    return strcmp(key, ((const struct entity *)entry)->name);
}

/* What pages mean by 128 to 159: windows-1252 (HTML 13.2.5.80). */
static const uint16_t windows_1252[32] = {
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178,
};

static size_t write_utf8(uint32_t c, char out[4])
{
    if (c >= 128 && c < 160) c = windows_1252[c - 128];
    if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    if (c == 160) c = ' ';
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

/* &#123; or &#x7B; at `at`, which is the '#'; returns its end, or NULL. */
static const char *read_number(const char *at, const char *end, uint32_t *code)
{
    bool hex = ++at < end && (*at == 'x' || *at == 'X');
    int base = hex ? 16 : 10;
    const char *first = at += hex;
    *code = 0;
    for (; at < end && digit_value(*at) < base; at++)
        if (*code <= 0x10FFFF) *code = *code * (uint32_t)base + (uint32_t)digit_value(*at);
    if (at == first) return NULL;
    return at < end && *at == ';' ? at + 1 : at;
}

static const char *read_named(const char *at, const char *end, uint32_t *code)
{
    char name[NAME_MAX_SIZE];
    size_t n = 0;
    while (at + n < end && n < sizeof name - 1 && at[n] != ';') name[n] = at[n], n++;
    name[n] = '\0';
    if (at + n >= end || at[n] != ';') return NULL;
    const struct entity *e = bsearch(name, entities, ZP_COUNT(entities), sizeof *entities,
                                     compare_entity);
    if (e) *code = e->code;
    return e ? at + n + 1 : NULL;
}

/* At an '&': the character, or the '&' itself where nothing known follows. */
static zp_status put_entity(struct strip *s, zp_err *err)
{
    char text[4] = "&";
    uint32_t code;
    const char *next = s->at + 1;
    const char *end = next < s->end && *next == '#' ? read_number(next, s->end, &code)
                                                    : read_named(next, s->end, &code);
    size_t n = end ? write_utf8(code, text) : 1;
    s->at = end ? end : next;
    return put_text(s, text, n, err);
}

/* ---- tags ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Behind the '>' that ends the tag; one inside quotes does not. */
static const char *tag_end(const char *at, const char *end)
{
    for (char quote = 0; at < end; at++) {
        if (quote) quote = *at == quote ? 0 : quote;
        else if (*at == '"' || *at == '\'') quote = *at;
        else if (*at == '>') return at + 1;
    }
    return end;
}

static const char *find_text(const char *at, const char *end, const char *text)
{
    const char *found = memmem(at, (size_t)(end - at), text, strlen(text));
    return found ? found + strlen(text) : end;
}

/* Behind the contents of a script or style: at its "</name". */
static const char *raw_end(const char *at, const char *end, const char *name)
{
    size_t n = strlen(name);
    for (; (size_t)(end - at) > n + 2; at++) {
        if (at[0] != '<' || at[1] != '/') continue;
        size_t same = 0;
        while (same < n && (at[2 + same] | 0x20) == name[same]) same++;
        if (same == n) return at;
    }
    return end;
}

static void open_element(struct strip *s, const char *name, bool closed_itself)
{
    const char *in_silent = find_name(silent, name);
    if (s->silent) {
        s->silent_depth += !closed_itself && same_name(s->silent, name);
    } else if (in_silent && !closed_itself) {
        s->silent = in_silent;
        s->silent_depth = 1;
    }
    if (find_name(raw, name) && !closed_itself) s->at = raw_end(s->at, s->end, name);
    if (s->silent) return;
    if (strcmp(name, "li") == 0) s->bullet = true;
    if (strcmp(name, "pre") == 0) s->pre++;
}

static void close_element(struct strip *s, const char *name)
{
    if (s->silent && same_name(s->silent, name) && --s->silent_depth == 0) s->silent = NULL;
    if (s->silent) return;
    if (strcmp(name, "li") == 0) s->bullet = false; /* of an empty item */
    if (strcmp(name, "pre") == 0 && s->pre) s->pre--;
}

/* White space that the element stands for. In <pre> a <br> is a line of its own. */
static zp_status put_gap(struct strip *s, const char *name, zp_err *err)
{
    if (s->silent) return ZP_OK;
    if (s->pre && strcmp(name, "br") == 0) return put_text(s, "\n", 1, err);
    if (find_name(paragraphs, name)) ask_gap(s, GAP_PARAGRAPH);
    else if (find_name(lines, name)) ask_gap(s, GAP_LINE);
    else if (find_name(blanks, name)) ask_gap(s, GAP_BLANK);
    return ZP_OK;
}

/* At a '<'. */
static zp_status take_tag(struct strip *s, zp_err *err)
{
    char name[NAME_MAX_SIZE];
    const char *at = s->at + 1;
    size_t n = 0;
    if (at + 2 < s->end && memcmp(at, "!--", 3) == 0) {
        s->at = find_text(at + 3, s->end, "-->");
        return ZP_OK;
    }
    bool closing = at < s->end && *at == '/';
    at += closing;
    bool special = at < s->end && (*at == '!' || *at == '?');
    if (at >= s->end || (!special && !is_letter(*at))) { /* "a < b" */
        s->at++;
        return put_text(s, "<", 1, err);
    }
    while (at < s->end && n < sizeof name - 1 && (is_letter(*at) || (*at >= '0' && *at <= '9')))
        name[n++] = is_letter(*at) ? (char)(*at | 0x20) : *at, at++;
    name[n] = '\0';
    s->at = tag_end(at, s->end);
    if (special) return ZP_OK;
    bool closed_itself = s->at - at >= 2 && s->at[-1] == '>' && s->at[-2] == '/';
    if (closing) close_element(s, name);
    ZP_TRY(put_gap(s, name, err));
    if (!closing) open_element(s, name, closed_itself);
    return ZP_OK;
}

zp_status htmltext_strip(const char *html, size_t size, struct buffer *out, zp_err *err)
{
    struct strip s = { .at = html, .end = html + size, .out = out, .begin = out->size };
    while (s.at < s.end) {
        const char *from = s.at;
        while (s.at < s.end && *s.at != '<' && *s.at != '&') s.at++;
        ZP_TRY(put_text(&s, from, (size_t)(s.at - from), err));
        if (s.at >= s.end) break;
        ZP_TRY(*s.at == '<' ? take_tag(&s, err) : put_entity(&s, err));
    }
    return s.out->size > s.begin ? buffer_append(out, "\n", 1, err) : ZP_OK;
}

/* jsontext.c: the inside of a JSON string (RFC 8259), piece by piece.
 * J1 the pieces of any bytes, put together, are UTF-8 without control characters (DEL and U+0080 to
 * U+009F among them: terminals obey those), and without a quote or backslash that is not part of an
 * escape. */
#include "jsontext.h"

#include "bytes.h"

struct jsontext jsontext_of(const char *text, size_t size)
{
    return (struct jsontext){ .text = text, .size = size };
}

/* Of the character that begins at p, which is well-formed. */
static bool is_plain(const unsigned char *p)
{
    return *p >= 0x20 && *p != '"' && *p != '\\' && *p != 0x7f && !(*p == 0xc2 && p[1] < 0xa0);
}

static size_t escape(char out[6], unsigned char c)
{
    static const char hex[] = "0123456789abcdef", shorts[] = "\"\"\\\\\nn\tt\rr\bb\ff";
    out[0] = '\\';
    for (const char *s = shorts; *s != '\0'; s += 2) {
        if ((unsigned char)*s != c) continue;
        out[1] = s[1];
        return 2;
    }
    out[1] = 'u', out[2] = out[3] = '0', out[4] = hex[c >> 4], out[5] = hex[c & 15];
    return 6;
}

bool jsontext_next(struct jsontext *t, const char **piece, size_t *size)
{
    size_t bad = 0, from = t->at;
    if (from == t->size) return false;
    if (from == t->good)
        t->good = utf8_is_valid(t->text + from, t->size - from, &bad) ? t->size : from + bad;
    if (from == t->good) {
        *piece = "\xef\xbf\xbd", *size = 3;
        t->good = ++t->at;
        return true;
    }
    const unsigned char *p = (const unsigned char *)t->text;
    while (t->at < t->good && is_plain(p + t->at)) t->at++;
    if (t->at > from) {
        *piece = t->text + from, *size = t->at - from;
        return true;
    }
    t->at += p[t->at] == 0xc2; /* the character is its second byte */
    *piece = t->escape, *size = escape(t->escape, p[t->at++]);
    return true;
}

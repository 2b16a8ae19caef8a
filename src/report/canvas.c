/* canvas.c: what both kinds of canvas share: escaping and the colour ramp. */
#include "report/canvas.h"

#include <math.h>
#include <string.h>

/* ---- text */

/* Characters XML 1.0 has no place for: controls but tab, newline, return; surrogates cannot occur
 * in UTF-8; U+FFFE and U+FFFF. */
static bool is_foreign(const unsigned char *s)
{
    if (s[0] < 0x20) return s[0] != '\t' && s[0] != '\n' && s[0] != '\r';
    return s[0] == 0x7f || (s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe);
}

static const char *entity(unsigned char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

zp_status canvas_escape(struct buffer *out, const char *text, zp_err *err)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        const char *other = is_foreign(s) ? "\xef\xbf\xbd" : entity(*s);
        size_t n = 0;
        if (other) {
            ZP_TRY(buffer_append_text(out, other, err));
            s += *s == 0xef ? 3 : 1;
            continue;
        }
        while (s[n] && !is_foreign(s + n) && !entity(s[n])) n++;
        ZP_TRY(buffer_append(out, s, n, err));
        s += n;
    }
    return ZP_OK;
}

/* ---- colours */

struct color canvas_ramp(double t)
{
    /* Indigo, blue, teal, green, yellow; lightness rises in even steps. */
    static const struct color stops[] = {
        { 38, 20, 72 },   { 50, 48, 118 },  { 48, 80, 140 },  { 38, 112, 146 }, { 32, 142, 144 },
        { 54, 171, 131 }, { 108, 197, 106 }, { 175, 217, 82 }, { 245, 231, 90 },
    };
    const int last = (int)ZP_COUNT(stops) - 1;
    double at = fmin(1.0, fmax(0.0, t)) * last;
    int i = (int)at < last ? (int)at : last - 1;
    double f = at - i;
    const struct color *a = &stops[i], *b = &stops[i + 1];
    return (struct color){
        .r = (uint8_t)lround(a->r + f * (b->r - a->r)),
        .g = (uint8_t)lround(a->g + f * (b->g - a->g)),
        .b = (uint8_t)lround(a->b + f * (b->b - a->b)),
    };
}

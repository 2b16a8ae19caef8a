/* canvas.c: what figures share: writing them to files, labels, escaping, the colour ramp. */
#include "report/canvas.h"

#include <math.h>
#include <string.h>

#include "base/os.h"

/* ---- files */

static zp_status write_svg(const struct canvas_figure *f, const char *path, zp_err *err)
{
    struct buffer out = buffer_with_max(MEM_META, (size_t)1 << 30);
    struct canvas c;
    canvas_svg_open(&c, f->width, f->height, f->label, &out, err);
    f->draw(f->of, &c);
    zp_status status = canvas_svg_finish(&c);
    if (status == ZP_OK) status = os_write_file(path, out.data, out.size, err);
    buffer_free(&out);
    return status;
}

static zp_status write_png(const struct canvas_figure *f, const char *path, zp_err *err)
{
    struct canvas c;
    ZP_TRY(canvas_png_open(&c, f->width, f->height, err));
    f->draw(f->of, &c);
    return canvas_png_finish(&c, path);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

zp_status canvas_write(const struct canvas_figure *f, const char *path, zp_err *err)
{
    if (ends_with(path, ".svg")) return write_svg(f, path, err);
    if (ends_with(path, ".png")) return write_png(f, path, err);
    ZP_FAIL(err, ZP_USAGE, "%s: a picture's name ends in .svg or .png", path);
}

/* ---- drawing */

void canvas_label(struct canvas *c, double x, double y, double size, enum canvas_anchor anchor,
                  const char *text)
{
    struct canvas_text at = { .x = x, .y = y, .size = size, .anchor = anchor };
    c->ops->text(c, &at, text);
}

void canvas_file_name(const char *path, char *out, size_t room)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash && slash[1] ? slash + 1 : path ? path : "";
    size_t n = strlen(name), size = utf8_complete_prefix(name, n < room ? n : room - 1);
    memcpy(out, name, size);
    out[size] = '\0';
}

double canvas_step(double room)
{
    double step = pow(10, floor(log10(room)));
    return room / step > 5 ? 2 * step : room / step < 2 ? step / 2 : step;
}

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

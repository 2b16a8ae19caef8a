/* canvas_svg.c: drawing calls as SVG elements. Text stays text. Classes ink, rule and paper let a
 * page around the picture give it other colours than those written here. */
#include "report/canvas.h"

#include <stdio.h>

/* Every element is appended under this: nothing after the first failure. */
static void put(struct canvas *c, const char *text)
{
    if (c->status == ZP_OK) c->status = buffer_append_text(c->out, text, c->err);
}

static void put_escaped(struct canvas *c, const char *text)
{
    if (c->status == ZP_OK) c->status = canvas_escape(c->out, text, c->err);
}

/* Numbers with at most two digits behind the point, and a point in every locale. */
static void put_number(struct canvas *c, double x)
{
    char text[40];
    long long hundredths = (long long)(x < 0 ? x * 100 - 0.5 : x * 100 + 0.5);
    long long whole = hundredths / 100, rest = hundredths % 100;
    if (rest < 0) rest = -rest;
    const char *sign = hundredths < 0 && whole == 0 ? "-" : "";
    if (rest == 0) snprintf(text, sizeof text, "%lld", whole);
    else if (rest % 10 == 0) snprintf(text, sizeof text, "%s%lld.%lld", sign, whole, rest / 10);
    else snprintf(text, sizeof text, "%s%lld.%02lld", sign, whole, rest);
    put(c, text);
}

static void put_attribute(struct canvas *c, const char *name, double x)
{
    put(c, " ");
    put(c, name);
    put(c, "=\"");
    put_number(c, x);
    put(c, "\"");
}

static void put_color(struct canvas *c, const char *name, struct color color)
{
    char text[40];
    snprintf(text, sizeof text, " %s=\"#%02x%02x%02x\"", name, color.r, color.g, color.b);
    put(c, text);
}

static void box(struct canvas *c, double x, double y, double w, double h, struct color fill,
                const char *tip)
{
    put(c, "<rect");
    put_attribute(c, "x", x);
    put_attribute(c, "y", y);
    put_attribute(c, "width", w);
    put_attribute(c, "height", h);
    put_color(c, "fill", fill);
    if (tip) {
        put(c, "><title>");
        put_escaped(c, tip);
        put(c, "</title></rect>\n");
    } else {
        put(c, "/>\n");
    }
}

static void text(struct canvas *c, const struct canvas_text *at, const char *what)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    put(c, "<text class=\"ink\" fill=\"#1a1a1a\"");
    put_attribute(c, "x", at->x);
    put_attribute(c, "y", at->y);
    put_attribute(c, "font-size", at->size);
    put(c, " text-anchor=\"");
    put(c, anchors[at->anchor]);
    put(c, at->bold ? "\" font-weight=\"bold\"" : "\"");
    if (at->upwards) {
        put(c, " transform=\"rotate(-90 ");
        put_number(c, at->x);
        put(c, " ");
        put_number(c, at->y);
        put(c, ")\"");
    }
    put(c, ">");
    put_escaped(c, what);
    put(c, "</text>\n");
}

static void line(struct canvas *c, double x0, double y0, double x1, double y1, enum canvas_ink ink)
{
    put(c, ink == CANVAS_RULE ? "<line class=\"rule\" stroke=\"#d0d0d0\""
                              : "<line class=\"line\" stroke=\"#1a1a1a\"");
    put_attribute(c, "x1", x0);
    put_attribute(c, "y1", y0);
    put_attribute(c, "x2", x1);
    put_attribute(c, "y2", y1);
    put(c, "/>\n");
}

static void path(struct canvas *c, const double *points, size_t n, struct color stroke,
                 double width, bool dashed)
{
    put(c, "<polyline fill=\"none\"");
    put_color(c, "stroke", stroke);
    put_attribute(c, "stroke-width", width);
    if (c->opacity < 1) put_attribute(c, "stroke-opacity", c->opacity);
    put(c, dashed ? " stroke-dasharray=\"6 4\" points=\"" : " points=\"");
    for (size_t i = 0; i < n; i++) {
        if (i) put(c, " ");
        put_number(c, points[2 * i]);
        put(c, ",");
        put_number(c, points[2 * i + 1]);
    }
    put(c, "\"/>\n");
}

static const struct canvas_ops svg_ops = { box, text, line, path };

void canvas_svg_open(struct canvas *c, double width, double height, const char *label,
                     struct buffer *out, zp_err *err)
{
    *c = (struct canvas){ .ops = &svg_ops, .width = width, .height = height, .opacity = 1,
                          .out = out, .err = err };
    put(c, "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" font-family=\"system-ui, "
           "'Liberation Sans', Arial, sans-serif\"");
    put_attribute(c, "width", width);
    put_attribute(c, "height", height);
    put(c, " viewBox=\"0 0 ");
    put_number(c, width);
    put(c, " ");
    put_number(c, height);
    put(c, "\" aria-label=\"");
    put_escaped(c, label);
    put(c, "\">\n<title>");
    put_escaped(c, label);
    put(c, "</title>\n<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
}

zp_status canvas_svg_finish(struct canvas *c)
{
    put(c, "</svg>\n");
    return c->status;
}

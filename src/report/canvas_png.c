/* canvas_png.c: drawing calls through cairo into a PNG file; built without cairo it says so.
 * Owns: surface and context between open and finish. */
#include "report/canvas.h"

#include "base/os.h"

#ifndef ZEROPE_HAVE_CAIRO

zp_status canvas_png_open(struct canvas *c, double width, double height, zp_err *err)
{
    *c = (struct canvas){ .width = width, .height = height };
    ZP_FAIL(err, ZP_UNSUPPORTED,
            "PNG pictures need the cairo library, which this build lacks: install libcairo2-dev "
            "and build again, or give a path that ends in .svg");
}

zp_status canvas_png_finish(struct canvas *c, const char *path)
{
    (void)path;
    return c->status;
}

#else

#include <cairo.h>

static const double scale = 2.0; /* of the pixels: sharp text on dense displays */

static void set_color(struct canvas *c, struct color color)
{
    cairo_set_source_rgb(c->cairo, color.r / 255.0, color.g / 255.0, color.b / 255.0);
}

static void box(struct canvas *c, double x, double y, double w, double h, struct color fill,
                const char *tip)
{
    (void)tip;
    set_color(c, fill);
    cairo_rectangle(c->cairo, x, y, w, h);
    cairo_fill(c->cairo);
}

static void text(struct canvas *c, const struct canvas_text *at, const char *what)
{
    cairo_text_extents_t extents;
    set_color(c, (struct color){ 26, 26, 26 });
    cairo_select_font_face(c->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           at->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c->cairo, at->size);
    cairo_text_extents(c->cairo, what, &extents);
    cairo_save(c->cairo);
    cairo_translate(c->cairo, at->x, at->y);
    if (at->upwards) cairo_rotate(c->cairo, -3.14159265358979323846 / 2);
    cairo_move_to(c->cairo, -extents.x_advance * at->anchor / 2.0, 0);
    cairo_show_text(c->cairo, what);
    cairo_restore(c->cairo);
}

static void line(struct canvas *c, double x0, double y0, double x1, double y1, enum canvas_ink ink)
{
    set_color(c, ink == CANVAS_RULE ? (struct color){ 208, 208, 208 }
                                    : (struct color){ 26, 26, 26 });
    cairo_set_line_width(c->cairo, 1.0);
    cairo_move_to(c->cairo, x0, y0);
    cairo_line_to(c->cairo, x1, y1);
    cairo_stroke(c->cairo);
}

static void path(struct canvas *c, const double *points, size_t n, struct color stroke,
                 double width, bool dashed)
{
    const double dashes[] = { 6, 4 };
    cairo_set_source_rgba(c->cairo, stroke.r / 255.0, stroke.g / 255.0, stroke.b / 255.0,
                          c->opacity);
    cairo_set_line_width(c->cairo, width);
    cairo_set_dash(c->cairo, dashes, dashed ? 2 : 0, 0);
    cairo_new_path(c->cairo); /* a text leaves the pen where it ended */
    for (size_t i = 0; i < n; i++) cairo_line_to(c->cairo, points[2 * i], points[2 * i + 1]);
    cairo_stroke(c->cairo);
    cairo_set_dash(c->cairo, dashes, 0, 0);
}

static const struct canvas_ops png_ops = { box, text, line, path };

zp_status canvas_png_open(struct canvas *c, double width, double height, zp_err *err)
{
    *c = (struct canvas){ .ops = &png_ops, .width = width, .height = height, .opacity = 1,
                          .err = err };
    c->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(width * scale),
                                            (int)(height * scale));
    c->cairo = cairo_create(c->surface);
    cairo_status_t bad = cairo_status(c->cairo);
    if (bad != CAIRO_STATUS_SUCCESS) {
        (void)canvas_png_finish(c, NULL);
        ZP_FAIL(err, ZP_NO_MEMORY, "a picture of %.0f x %.0f pixels: %s", width * scale,
                height * scale, cairo_status_to_string(bad));
    }
    cairo_scale(c->cairo, scale, scale);
    cairo_set_antialias(c->cairo, CAIRO_ANTIALIAS_DEFAULT);
    cairo_set_source_rgb(c->cairo, 1, 1, 1);
    cairo_paint(c->cairo);
    return ZP_OK;
}

struct sink {
    struct buffer out;
    zp_status status;
    zp_err *err;
};

static cairo_status_t append_piece(void *arg, const unsigned char *data, unsigned int size)
{
    struct sink *s = arg;
    if (s->status == ZP_OK) s->status = buffer_append(&s->out, data, size, s->err);
    return s->status == ZP_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static zp_status write_file(struct canvas *c, const char *path)
{
    struct sink s = { .out = buffer_with_max(MEM_META, (size_t)1 << 30), .err = c->err };
    cairo_status_t bad = cairo_status(c->cairo);
    if (bad == CAIRO_STATUS_SUCCESS)
        bad = cairo_surface_write_to_png_stream(c->surface, append_piece, &s);
    zp_status status = s.status;
    if (status == ZP_OK && bad != CAIRO_STATUS_SUCCESS)
        status = status_fail(c->err, ZP_RUN, __FILE__, __LINE__, "%s: %s", path,
                             cairo_status_to_string(bad));
    if (status == ZP_OK) status = os_write_file(path, s.out.data, s.out.size, c->err);
    buffer_free(&s.out);
    return status;
}

zp_status canvas_png_finish(struct canvas *c, const char *path)
{
    zp_status status = path && c->status == ZP_OK ? write_file(c, path) : c->status;
    cairo_destroy(c->cairo);
    cairo_surface_destroy(c->surface);
    c->cairo = c->surface = NULL;
    return status;
}

#endif

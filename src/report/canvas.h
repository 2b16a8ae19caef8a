/* canvas.h: drawing calls that become SVG text or a PNG picture; figures are written once, against
 * these. Coordinates in pixels, y downwards. Calls never fail on their own: the first failure is
 * kept and the finish reports it. */
#ifndef REPORT_CANVAS_H
#define REPORT_CANVAS_H

#include <stdbool.h>
#include "base/bytes.h"

struct color { uint8_t r, g, b; };
enum canvas_anchor { CANVAS_START, CANVAS_MIDDLE, CANVAS_END };
/* Ink and paper follow the page's light or dark scheme where the picture stands in one. */
enum canvas_ink { CANVAS_INK, CANVAS_RULE };

struct canvas_text {
    double x, y;              /* of the baseline */
    double size;
    enum canvas_anchor anchor;
    bool upwards;             /* turned by 90 degrees to the left */
    bool bold;
};

struct canvas {
    const struct canvas_ops *ops;
    double width, height;
    double opacity;           /* of paths; 1 until a figure sets it */
    zp_status status;         /* of the first failure */
    zp_err *err;
    struct buffer *out;       /* SVG: where the text goes */
    void *cairo, *surface;    /* PNG */
};

struct canvas_ops {
    /* tip: what a pointer over it shows, or NULL */
    void (*box)(struct canvas *c, double x, double y, double w, double h, struct color fill,
                const char *tip);
    void (*text)(struct canvas *c, const struct canvas_text *at, const char *text);
    void (*line)(struct canvas *c, double x0, double y0, double x1, double y1,
                 enum canvas_ink ink);
    /* n points (x, y) joined by straight lines */
    void (*path)(struct canvas *c, const double *points, size_t n, struct color stroke,
                 double width, bool dashed);
};

/* SVG appended to out; label: what a screen reader says. Finish closes the element. */
void canvas_svg_open(struct canvas *c, double width, double height, const char *label,
                     struct buffer *out, zp_err *err);
zp_status canvas_svg_finish(struct canvas *c);

/* PNG file. Without the cairo library: ZP_UNSUPPORTED, and nothing to finish. */
zp_status canvas_png_open(struct canvas *c, double width, double height, zp_err *err);
/* Writes atomically; path NULL: throws the picture away. */
zp_status canvas_png_finish(struct canvas *c, const char *path);

/* A figure that becomes a file. */
struct canvas_figure {
    double width, height;
    const char *label;
    void (*draw)(const void *of, struct canvas *c);
    const void *of;
};
/* Writes it atomically; path ends in .svg or .png, else ZP_USAGE. */
zp_status canvas_write(const struct canvas_figure *f, const char *path, zp_err *err);

/* Text that is neither bold nor turned; (x, y) of the baseline. */
void canvas_label(struct canvas *c, double x, double y, double size, enum canvas_anchor anchor,
                  const char *text);
/* The last part of a path, whole characters that fit into `room` bytes; NULL gives "". */
void canvas_file_name(const char *path, char *out, size_t room);
/* A round number of which 2 to 5 make up `room` > 0: the distance of lines in a figure. */
double canvas_step(double room);

/* Appends text for XML and HTML, in content and in quoted attributes: & < > " ' become entities,
 * characters that XML does not know become U+FFFD. text: UTF-8 (jansson's strings are). */
zp_status canvas_escape(struct buffer *out, const char *text, zp_err *err);

/* Dark to bright over t in [0, 1]; ordered by lightness, so that no two places look alike to eyes
 * that do not tell colours apart. */
struct color canvas_ramp(double t);

#endif

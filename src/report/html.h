/* html.h: pieces of a page: its head and end, text, values of a document. Calls never fail on their
 * own: the first failure is kept in `status`, and nothing is appended after it. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include <jansson.h>
#include "base/bytes.h"

struct html {
    struct buffer *out;
    zp_err *err;
    zp_status status;
};

/* All up to the content: head, style, title "WHAT NAME" (what ends in a space). */
void html_begin(struct html *p, const char *what, const char *name);
void html_end(struct html *p, const char *note);

void html_put(struct html *p, const char *text);      /* mark-up, as it stands */
void html_put_text(struct html *p, const char *text); /* escaped; a document's text */
void html_put_value(struct html *p, json_t *v);       /* NULL: - */
/* An interval or a short list; long ones are cut, and the cut says so. */
void html_put_list(struct html *p, const json_t *list);
const char *html_text_of(const json_t *object, const char *key, const char *fallback);

#endif

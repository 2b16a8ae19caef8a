/* htmltext.h: the readable text of a web page: tags go, entities become characters. Input cleaning
 * for training text, not a browser: forgiving, no scripts, no styles. */
#ifndef TRAIN_HTMLTEXT_H
#define TRAIN_HTMLTEXT_H

#include "base/bytes.h"

/* Appends the text of html (valid UTF-8, whole or not, well-formed or not): paragraphs with a blank
 * line between, list items as "- item" lines, <pre> as it stands, other white space as one blank;
 * nothing of head, script, style, nav, footer, template, svg. What is appended is valid
 * UTF-8. */
zp_status htmltext_strip(const char *html, size_t size, struct buffer *out, zp_err *err);

#endif

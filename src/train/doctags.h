/* doctags.h: what the bytes of a document are in its structure (enum struct_type), by its text
 * alone: Markdown and reStructuredText, read line by line. The rules are in docs/FORMATS.md. */
#ifndef TRAIN_DOCTAGS_H
#define TRAIN_DOCTAGS_H

#include <stddef.h>
#include <stdint.h>
#include "model/structhead.h"

/* Beside one bit a type: the first byte of a block (paragraph, heading, item, table, code, ...). */
#define DOCTAGS_BEGINS (1u << STRUCT_TYPES)

/* tags (n): set. Any bytes are text; the time is linear in n. */
void doctags_mark(const char *text, size_t n, uint16_t *tags);

#endif

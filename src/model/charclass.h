/* charclass.h: sets of characters (Unicode scalars), and how their bytes are read by a grammar: as
 * UTF-8, or as they stand in a JSON string, escaped where they must be and only there. */
#ifndef MODEL_CHARCLASS_H
#define MODEL_CHARCLASS_H

#include "model/grammar.h"

#define CHARCLASS_MAX 256
#define CHARCLASS_LAST 0x10FFFFu

struct char_range {
    uint32_t low, high;
};
/* Zero-initialise, then add. */
struct charclass {
    struct char_range ranges[CHARCLASS_MAX]; /* after charclass_sort: ascending, apart */
    uint32_t n;
};

/* False: no room for more ranges. */
bool charclass_add(struct charclass *c, uint32_t low, uint32_t high);
void charclass_sort(struct charclass *c);
/* All others, of a sorted class; the result is sorted. False: no room. */
bool charclass_invert(struct charclass *c);

/* One character of the class, which is sorted here. Surrogates (U+D800..DFFF) are left out. */
uint32_t charclass_utf8(struct grammar *g, struct charclass *c, uint32_t next);
/* U+0000 is left out, too: JSON readers do not take it. */
uint32_t charclass_json(struct grammar *g, struct charclass *c, uint32_t next);

/* How JSON writes one character: up to 6 bytes and a NUL. Returns how many. */
size_t charclass_json_text(uint32_t c, char out[8]);
size_t charclass_utf8_text(uint32_t c, char out[8]);
/* The character that begins there, of well-formed UTF-8. *size: its bytes. */
uint32_t charclass_read(const char *text, size_t *size);

#endif

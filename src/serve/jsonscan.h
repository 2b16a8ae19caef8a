/* jsonscan.h: JSON byte by byte, as it comes: where keys and values of an object begin and end, and
 * at which byte it is no JSON any more. Takes RFC 8259, and control characters in strings, which
 * models write. Checks neither UTF-8 nor names that come twice. */
#ifndef SERVE_JSONSCAN_H
#define SERVE_JSONSCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSONSCAN_DEPTH = 128 };

enum jsonscan_state {
    SCAN_VALUE,        /* a value must come */
    SCAN_VALUE_OR_END, /* behind [ */
    SCAN_KEY_OR_END,   /* behind { */
    SCAN_KEY,          /* behind , in an object */
    SCAN_COLON,        /* behind a key */
    SCAN_AFTER,        /* behind a value */
    SCAN_STRING,
    SCAN_ESCAPE,
    SCAN_HEX,
    SCAN_NUMBER,
    SCAN_WORD,
    SCAN_DONE,
    SCAN_BAD
};

/* Zero is: an object or list must come. */
struct jsonscan {
    enum jsonscan_state state;
    uint32_t depth;
    bool objects[JSONSCAN_DEPTH]; /* by depth - 1 */
    bool is_key;                  /* of the string */
    uint8_t n_hex, number;        /* what was read of it */
    const char *word;             /* what is left of it */
};

/* Takes a byte; returns the state. SCAN_DONE: it closed the whole. */
enum jsonscan_state jsonscan_byte(struct jsonscan *s, char c);
bool jsonscan_is_space(char c);

#endif

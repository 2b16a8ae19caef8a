/* jinja_char.h: Unicode characters as Python's str sees them: decoding, classes, full case
 * mappings. */
#ifndef MODEL_JINJA_CHAR_H
#define MODEL_JINJA_CHAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one scalar of valid UTF-8 at p (end > p) and returns its length in bytes. */
size_t jchar_decode(const char *p, const char *end, uint32_t *cp);
size_t jchar_encode(uint32_t cp, char out[4]);
size_t jchar_count(const char *data, size_t size); /* characters of valid UTF-8 */
/* Puts '?' for bytes that are no UTF-8: a message may quote a text cut inside a character. */
void jchar_mend(char *text);

bool jchar_is_space(uint32_t cp);     /* str.isspace */
bool jchar_is_printable(uint32_t cp); /* str.isprintable */
bool jchar_is_letter(uint32_t cp);    /* str.isalpha */
bool jchar_is_digit(uint32_t cp);     /* decimal digits, Nd */
bool jchar_is_upper(uint32_t cp);     /* Lu and Other_Uppercase */
bool jchar_is_lower(uint32_t cp);     /* Ll and Other_Lowercase */
bool jchar_is_title(uint32_t cp);     /* Lt: cased, in neither of the two above */
bool jchar_is_case_ignorable(uint32_t cp);

enum jchar_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
/* The full mapping, one to three scalars; returns how many. Final sigma is the caller's concern. */
size_t jchar_map_case(uint32_t cp, enum jchar_case to, uint32_t out[3]);

#endif

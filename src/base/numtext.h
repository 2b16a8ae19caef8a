/* numtext.h: numbers as text and back with a point in every locale. The program around us may have
 * called setlocale, and then strtod stops at a point and printf writes a comma. Nothing here calls
 * setlocale; any thread may call anything at any time. */
#ifndef BASE_NUMTEXT_H
#define BASE_NUMTEXT_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>
#include "compiler.h"

/* strtod, strtof, snprintf and vsnprintf in the C locale. */
double numtext_double(const char *text, char **end);
float numtext_float(const char *text, char **end);
int numtext_printf(char *out, size_t size, const char *fmt, ...) ZP_PRINTF(3, 4);
int numtext_vprintf(char *out, size_t size, const char *fmt, va_list args) ZP_PRINTF(3, 0);
/* The shortest of %.15g, %.16g, %.17g that gives the same double back: "0.1", "1e+30", "inf". */
struct numtext { char text[32]; };
const char *numtext_shortest(double x, struct numtext *room);

/* For libraries that print: the calling thread is in the C locale until it gives back what it had.
 *     locale_t had = numtext_enter();
 *     ...
 *     numtext_leave(had); */
locale_t numtext_enter(void);
void numtext_leave(locale_t had);

#endif

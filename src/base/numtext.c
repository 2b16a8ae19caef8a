/* numtext.c: numbers as text and back with a point in every locale.
 * Owns: one C locale for the life of the process (glibc's is static and takes no memory). */
#include "numtext.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t made = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Where no locale could be made, uselocale(0) changes nothing. */
locale_t numtext_enter(void)
{
    pthread_once(&made, make);
    return uselocale(c_locale);
}

void numtext_leave(locale_t had)
{
    uselocale(had);
}

double numtext_double(const char *text, char **end)
{
    locale_t had = numtext_enter();
    double x = strtod(text, end);
    numtext_leave(had);
    return x;
}

float numtext_float(const char *text, char **end)
{
    locale_t had = numtext_enter();
    float x = strtof(text, end);
    numtext_leave(had);
    return x;
}

int numtext_vprintf(char *out, size_t size, const char *fmt, va_list args)
{
    locale_t had = numtext_enter();
    int wanted = vsnprintf(out, size, fmt, args);
    numtext_leave(had);
    return wanted;
}

int numtext_printf(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int wanted = numtext_vprintf(out, size, fmt, args);
    va_end(args);
    return wanted;
}

const char *numtext_shortest(double x, struct numtext *room)
{
    for (int digits = 15; digits <= 17; digits++) {
        numtext_printf(room->text, sizeof room->text, "%.*g", digits, x);
        if (numtext_double(room->text, NULL) == x) break;
    }
    return room->text;
}

/* status.c: names, texts and exit codes of statuses, and the recording of the first failure. No
 * state. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "numtext.h"

const char *zp_status_name(zp_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, exit_code, text)                                                  \
    case name: return #name;
        ZP_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "ZP_UNKNOWN";
}

const char *zp_status_text(zp_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, exit_code, text)                                                  \
    case name: return text;
        ZP_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

int zp_status_exit_code(zp_status status)
{
    switch (status) {
#define STATUS_EXIT(name, value, exit_code, text)                                                  \
    case name: return exit_code;
        ZP_STATUS_LIST(STATUS_EXIT)
#undef STATUS_EXIT
    }
    return 1;
}

zp_status status_fail(zp_err *err, zp_status code, const char *file, int line, const char *fmt, ...)
{
    if (err == NULL || err->code != ZP_OK) return code;
    err->code = code;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, fmt);
    int wanted = numtext_vprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    if (wanted < 0) err->message[0] = '\0';
    /* A text cut by the record's size must not end inside a character. */
    if (wanted >= (int)sizeof err->message)
        err->message[utf8_complete_prefix(err->message, sizeof err->message - 1)] = '\0';
    return code;
}

/* Three texts, which may be the message itself. */
static void set_message(zp_err *err, const char *a, const char *b, const char *c)
{
    char text[sizeof err->message];
    int wanted = snprintf(text, sizeof text, "%s%s%s", a, b, c);
    memcpy(err->message, text, sizeof text);
    if (wanted >= (int)sizeof err->message)
        err->message[utf8_complete_prefix(err->message, sizeof err->message - 1)] = '\0';
}

void status_add_path(zp_err *err, const char *path)
{
    if (err == NULL || err->code == ZP_OK || strstr(err->message, path) != NULL) return;
    set_message(err, path, ": ", err->message);
}

void status_add_index(zp_err *err, const char *what, size_t index)
{
    char place[64];
    if (err == NULL || err->code == ZP_OK) return;
    snprintf(place, sizeof place, "%s %zu", what, index);
    set_message(err, place, ": ", err->message);
}

void status_add_hint(zp_err *err, const char *text)
{
    if (err != NULL && err->code != ZP_OK) set_message(err, err->message, text, "");
}

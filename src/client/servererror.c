/* servererror.c: finds the message of an error, and makes it one clean line. */
#include "servererror.h"

#include <string.h>

#include "base/bytes.h"
#include "base/json_tree.h"

/* Runs of blanks and control characters (C1 ones of two bytes, too) become one blank. */
static void copy_clean(const char *text, size_t size, char *out)
{
    size_t n = 0;
    bool blank = false;
    for (size_t i = 0; i < size && n + 5 < SERVERERROR_ROOM; i++) {
        unsigned char b = (unsigned char)text[i];
        bool wide = b == 0xc2 && i + 1 < size && (unsigned char)text[i + 1] < 0xa0;
        i += wide;
        if (b <= ' ' || b == 0x7f || wide) {
            blank = n > 0;
            continue;
        }
        if (blank) out[n++] = ' ';
        blank = false;
        out[n++] = (char)b;
    }
    n = utf8_complete_prefix(out, n);
    out[n] = '\0';
}

bool servererror_of_json(const json_t *document, char *out)
{
    const json_t *error = json_object_get(document, "error");
    const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
    out[0] = '\0';
    if (json_is_string(message))
        copy_clean(json_string_value(message), json_string_length(message), out);
    bool there = error != NULL && !json_is_null(error);
    if (out[0] == '\0') memcpy(out, "no reason", sizeof "no reason");
    return there;
}

/* {"message": "..."} and {"detail": "..."} of others. */
static bool read_others(const json_t *document, char *out)
{
    static const char *const keys[] = { "message", "detail" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(document, keys[i]);
        if (!json_is_string(value)) continue;
        copy_clean(json_string_value(value), json_string_length(value), out);
        return out[0] != '\0';
    }
    return false;
}

void servererror_of_body(const char *body, size_t size, char *out)
{
    json_t *document = NULL;
    bool known = json_tree_read(body, size, "body", ZP_RUN, &document, NULL) == ZP_OK &&
                 (servererror_of_json(document, out) || read_others(document, out));
    json_decref(document);
    if (known) return;
    out[0] = '\0';
    bool page = size > 0 && body[strspn(body, " \t\r\n")] == '<'; /* of a proxy: no words */
    if (!page && utf8_is_valid(body, size, NULL)) copy_clean(body, size, out);
}

/* httpfault.c: the table of the HTTP layer's errors. */
#include "httpfault.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

static const struct httpfault faults[] = {
#define HTTP_FAULT_ROW(name, status, code, closes, text) { status, code, closes, text },
    HTTP_FAULT_LIST(HTTP_FAULT_ROW)
#undef HTTP_FAULT_ROW
};

const struct httpfault *httpfault_get(enum http_fault fault)
{
    return &faults[(unsigned)fault < HTTP_FAULT_COUNT ? fault : HTTP_FAULT_INTERNAL];
}

void httpfault_message(enum http_fault fault, const char *limit, char *out, size_t room)
{
    const char *text = httpfault_get(fault)->text, *mark = strstr(text, "%s");
    int before = mark == NULL ? (int)strlen(text) : (int)(mark - text);
    (void)snprintf(out, room, "%.*s%s%s", before, text, mark == NULL ? "" : limit,
                   mark == NULL ? "" : mark + 2);
}

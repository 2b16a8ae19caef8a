/* fuzz_traceparent.c: any bytes as the header traceparent: what is taken is written and read back
 * the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "obs/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct traceparent t, again;
    char *header = malloc(size + 1), text[TRACEPARENT_ROOM];
    if (header == NULL) return 0;
    if (size != 0) memcpy(header, data, size);
    header[size] = '\0';
    if (traceparent_read(header, &t)) {
        traceparent_write(&t, text);
        if (!traceparent_read(text, &again)) abort();
        if (memcmp(t.trace, again.trace, sizeof t.trace) != 0) abort();
        if (memcmp(t.span, again.span, sizeof t.span) != 0 || t.sampled != again.sampled) abort();
    }
    free(header);
    return 0;
}

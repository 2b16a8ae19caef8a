/* fuzz_doctags.c: any bytes as a document: marks stand on bytes that are seen, and a line of text
 * that goes on behind an empty line changes nothing before it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "train/doctags.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char more[] = "\n\ntext";
    size_t n = size + sizeof more - 1;
    char *text = malloc(n);
    uint16_t *tags = malloc(n * sizeof *tags), *longer = malloc(n * sizeof *longer);
    if (!text || !tags || !longer) abort();
    if (size) memcpy(text, data, size);
    memcpy(text + size, more, sizeof more - 1);
    doctags_mark(text, size, tags);
    doctags_mark(text, n, longer);
    for (size_t i = 0; i < size; i++) {
        bool blank = text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r';
        if (tags[i] != longer[i] || tags[i] >> (STRUCT_TYPES + 1) || (blank && tags[i])) abort();
    }
    free(text);
    free(tags);
    free(longer);
    return 0;
}

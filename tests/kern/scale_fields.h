/* scale_fields.h: where the file blocks of each tensor type hold their f16 scales and mins (float
 * types: the half that holds an exponent). MXFP4 has none: its byte 0 is the exponent. */
#ifndef TESTS_SCALE_FIELDS_H
#define TESTS_SCALE_FIELDS_H

#include <string.h>
#include "base/compiler.h"
#include "kern/quant.h"

struct field {
    const char *name;
    int at[2], n;
};

static inline const struct field *field_of(const struct quant_traits *t)
{
    static const struct field fields[] = {
        { "Q4_0", { 0 }, 1 },      { "Q4_1", { 0, 2 }, 2 }, { "Q5_0", { 0 }, 1 },
        { "Q5_1", { 0, 2 }, 2 },   { "Q8_0", { 0 }, 1 },    { "Q2_K", { 80, 82 }, 2 },
        { "Q3_K", { 108 }, 1 },    { "Q4_K", { 0, 2 }, 2 }, { "Q5_K", { 0, 2 }, 2 },
        { "Q6_K", { 208 }, 1 },    { "IQ4_NL", { 0 }, 1 },  { "IQ4_XS", { 0 }, 1 },
        { "MXFP4", { 0 }, 0 },     { "F16", { 0 }, 1 },     { "BF16", { 0 }, 1 },
        { "F32", { 2 }, 1 }
    };
    for (size_t i = 0; i < ZP_COUNT(fields); i++)
        if (strcmp(fields[i].name, t->name) == 0) return &fields[i];
    fail_msg("%s is not in the table of this test", t->name);
    return NULL;
}

/* One field of a block of a quantised type becomes `half`, MXFP4's exponent `exponent`. */
static inline void set_scale(const struct quant_traits *t, uint8_t *block, int field, uint16_t half,
                             uint8_t exponent)
{
    const struct field *f = field_of(t);
    if (f->n == 0) block[0] = exponent;
    else memcpy(block + f->at[field % f->n], &half, 2);
}

#endif

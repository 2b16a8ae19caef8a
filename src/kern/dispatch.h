/* dispatch.h: which implementations this processor runs. Included by kern.h. */
#ifndef KERN_DISPATCH_H
#define KERN_DISPATCH_H

#include <stddef.h>
#include "kern/kern.h"

/* Fills the table with the best variants this processor has, not above max_level. */
void kern_table_init(struct kern_table *t, enum kern_level max_level);
enum kern_level kern_cpu_level(void); /* by CPUID and XGETBV */
const char *kern_level_name(enum kern_level level);
void kern_cpu_features(char *out,
                       size_t size); /* "avx2 fma f16c avx512f avx512_vnni avx512_bf16 ..." */
size_t kern_op_count(void);
const char *kern_op_name(size_t i); /* NULL past the end */
const char *kern_op_contract(size_t i);

#endif

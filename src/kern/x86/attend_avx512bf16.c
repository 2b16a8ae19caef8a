/* attend_avx512bf16.c: attention over bf16 tiles by vdpbf16ps. */
#include "kern/x86/attend_avx512.h"

void attend_bf16_avx512bf16(const struct kern_attend *a)
{
    attend(a, PAIRS);
}

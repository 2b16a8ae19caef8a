/* live_bytes.h: bytes of the library's tagged memory in use, over all tags: a call that leaks moves
 * it. */
#ifndef TESTS_LIVE_BYTES_H
#define TESTS_LIVE_BYTES_H

#include <stdint.h>

#include "base/mem.h"

static inline uint64_t live_bytes(void)
{
    struct mem_stats stats;
    uint64_t sum = 0;
    mem_stats_read(&stats);
    for (int t = 0; t < MEM_TAG_COUNT; t++) sum += stats.live[t];
    return sum;
}

#endif

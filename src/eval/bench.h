/* bench.h: how fast an engine is, and how near to the memory's limit: zp_bench_json
 * (zerope/eval.h). */
#ifndef EVAL_BENCH_H
#define EVAL_BENCH_H

#include <zerope/eval.h>

#endif

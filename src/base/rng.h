/* rng.h: counter-based random streams: value i of stream (seed, purpose) is a pure function, so
 * draws need no state
 * and threads or resumptions cannot disturb them. Philox4x32-10 (Salmon et al., 2011). */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng { uint64_t seed, stream, at; };
struct rng rng_stream(uint64_t seed, uint64_t stream);
void rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);
double rng_unit(struct rng *r);                 /* [0, 1), 53 bits */
uint64_t rng_below(struct rng *r, uint64_t n);  /* unbiased, n >= 1 */
float rng_normal(struct rng *r);                /* mean 0, variance 1 (Box-Muller) */
/* draw number index of the stream */
double rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index);

#endif

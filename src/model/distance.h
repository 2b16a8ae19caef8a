/* distance.h: where a model's attention lies by distance, and how strongly its queries hold
 * positions, layer by layer, measured on one text. */
#ifndef MODEL_DISTANCE_H
#define MODEL_DISTANCE_H

#include "model/engine.h"

enum {
    DISTANCE_LEAST = 16,  /* tokens of a text */
    DISTANCE_MOST = 2048,
    DISTANCE_BUCKETS = 12, /* 0, 1, 2-3, 4-7, ... 1024-2047 */
    DISTANCE_SAMPLES = 1000 /* pairs of positions of a layer */
};
static inline uint32_t distance_bucket_first(uint32_t bucket)
{
    return bucket == 0 ? 0 : 1u << (bucket - 1);
}

/* Queries are those of tokens 1 to n_tok - 1, with the keys that come before them or are theirs.
 * The first token's key is counted apart: heads that look for nothing rest there, at whatever
 * distance it is. Of each query head one softmax over all keys it sees; a key out of a window's
 * sight has weight 0. */
struct distance_map {
    uint32_t n_layer, n_tok, n_buckets; /* buckets that distances of the text reach */
    zp_mode mode;                       /* resolved */
    uint64_t pairs[DISTANCE_BUCKETS];   /* of a query and a key, of one head */
    double *share;  /* (n_layer, n_buckets) of a query's weight, mean of queries and heads */
    double *weight; /* (n_layer, n_buckets) of one pair, mean of pairs and heads */
    double *first;  /* (n_layer) share of the first token; with its shares a layer has 1 */
    /* (n_layer) over DISTANCE_SAMPLES pairs i != j, each in one query head; q are queries as
     * attention uses them, but for the scale that is the same at all positions. NaN in layers with
     * a distance bias, which queries do not hold. */
    double *strength; /* mean |q at i - the same q at j| / (|q| |i - j|): positions alone */
    double *change;   /* mean |q_i - q_j| / |i - j|: the text's change, too */
};

/* On the caller's thread, with keys and values in f32, on the packed weights of `engine`, which may
 * compute meanwhile; progress is asked after each layer (ZP_INTERRUPTED). ZP_BAD_INPUT: a text that
 * is too short or too long, a mode that the engine refuses. */
zp_status distance_measure(struct distance_map *out, const zp_engine *engine, const int32_t *ids,
                           size_t n, zp_mode mode, const zp_progress *progress, zp_err *err);
void distance_free(struct distance_map *m);
/* Mean of the layers that have one; NaN: none has. */
double distance_strength(const struct distance_map *m);

#endif

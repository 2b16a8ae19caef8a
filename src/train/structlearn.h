/* structlearn.h: how a structure head learns in a run: its detectors against the documents' own
 * structure, and the layers from detectors of which some are not heard.
 * What is not heard follows from (seed, step, row) alone. */
#ifndef TRAIN_STRUCTLEARN_H
#define TRAIN_STRUCTLEARN_H

#include "train/net.h"
#include "train/tagger.h"

struct structlearn_options {
    float tag_weight; /* of the detectors' loss; 0: none */
    float dropout;    /* share of a token's detectors that is not heard in a step */
};

struct structlearn {
    bool on; /* the model has a structure head, and it learns */
    struct structlearn_options options;
    struct tagger tagger;
    uint8_t *keep;    /* (rows) */
    uint32_t dropped; /* of 256 */
    size_t n_rows;
};

/* rows: those of a micro-batch. Does nothing where the head does not learn. */
zp_status structlearn_open(struct structlearn *s, const struct shards *shards,
                           const struct tokenizer *tokenizer, size_t n_rows, bool learns,
                           const struct structlearn_options *o, zp_err *err);
void structlearn_close(struct structlearn *s); /* accepts a zeroed one */
/* The documents' structure for the packer; NULL: nobody asks. */
const struct tagger *structlearn_tagger(const struct structlearn *s);
/* Makes the net ready for micro-batch `micro` of a step; structlearn_rest: for measurements. */
void structlearn_begin(struct structlearn *s, struct net *n, uint64_t seed, uint64_t step,
                       uint32_t micro);
void structlearn_rest(const struct structlearn *s, struct net *n);

#endif

/* packer.h: rows of n_ctx tokens for training, filled with documents, and fixed windows of held-out
 * documents. Batch b is a pure function of (shards, tasks, options, b): to resume takes the number
 * of the step alone, and ranks need no talk.
 * P1 no token of a held-out document is in a batch.
 * P2 every document begins with the separator, and so does the rest of one that was cut: a row's
 *    tokens depend on nothing outside the row.
 * P3 rows of text of one epoch are disjoint. */
#ifndef TRAIN_PACKER_H
#define TRAIN_PACKER_H

#include "train/shards.h"
#include "train/tagger.h"
#include "train/tasks.h"

struct packer_options {
    uint32_t n_ctx;   /* tokens of a row; at least 32 */
    uint32_t n_rows;  /* of a batch, over all ranks */
    uint32_t n_micro; /* micro-batches of a batch; divides n_rows; default 1 */
    uint64_t seed;
    const struct tasks *tasks; /* of training; NULL: none */
    double task_share;         /* of rows; default 1/8 where there are tasks */
    uint64_t ramp; /* rows of tasks until they are as hard as they get; default 1024 */
    const struct tagger *tagger; /* of the documents to train on, for packed.tags; NULL: none */
};

struct packer_place {
    uint64_t at;  /* token of the document */
    uint32_t doc; /* training: place in the order of the epoch; held-out: index in the shards */
};

struct packer {
    const struct shards *shards;
    struct packer_options options; /* resolved */
    uint32_t *docs;                /* (n_docs) those of training */
    uint32_t n_docs;
    uint64_t n_tokens; /* of them */
    uint64_t n_rows;   /* of text in an epoch */
    struct packer_place *rows; /* (n_rows) where each begins, of the epoch asked for last */
    uint64_t epoch;
    struct packer_place *held; /* (n_held) */
    uint32_t n_held;           /* windows of held-out documents, many documents first */
    uint32_t micro_rows;       /* n_rows / n_micro of the options */
    uint32_t task_in_65536;    /* rows of tasks */
    struct task task;
};

/* Rows side by side, in the caller's memory. */
struct packed {
    int32_t *ids;       /* (n_rows, n_ctx) */
    int32_t *targets;   /* (n_rows, n_ctx) next token, or -1: nothing to learn */
    uint32_t *start;    /* (n_rows, n_ctx) where in the row the token's document begins */
    uint32_t *position; /* (n_rows, n_ctx) place - start */
    uint8_t *is_task;   /* (n_rows) */
    /* (n_rows, n_ctx) bits by enum struct_type, or NULL: nobody asks for them */
    uint8_t *tags;
    uint32_t n_rows, n_ctx;
    uint32_t n_targets; /* that are not -1 */
};
zp_status packed_open(struct packed *b, uint32_t n_rows, uint32_t n_ctx, zp_err *err);
/* Bytes that packed_open takes under MEM_TRAIN. */
uint64_t packed_bytes(uint32_t n_rows, uint32_t n_ctx);
/* Room for tags: rows of text then have those of the packer's tagger, all others none. */
zp_status packed_add_tags(struct packed *b, zp_err *err);
void packed_close(struct packed *b);

/* shards and tasks must outlive p. One caller at a time. */
zp_status packer_open(struct packer *p, const struct shards *s,
                      const struct packer_options *options, zp_err *err);
void packer_close(struct packer *p);
/* Micro-batches [*begin, *end) of every batch are the rank's. */
void packer_rank(const struct packer *p, uint32_t rank, uint32_t n_ranks, uint32_t *begin,
                 uint32_t *end);
/* Micro-batch `micro` of batch `batch`: micro_rows rows, for which out has room. */
zp_status packer_micro(struct packer *p, uint64_t batch, uint32_t micro, struct packed *out,
                       zp_err *err);
/* Windows [first, first + out->n_rows) of the fixed list; beyond its end rows have no targets. */
void packer_held(const struct packer *p, uint32_t first, struct packed *out);

/* The keyed permutation of [0, n): where i goes. */
uint64_t packer_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);

#endif

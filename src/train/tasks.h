/* tasks.h: made-up documents that ask for what prose seldom needs: copying, looking up, order,
 * counting, closing brackets. Mixed into training, and probes of what a model can do.
 * Case `index` of a seed is a pure function of (shards, tokenizer, options, seed, index, room,
 * level).
 * T1 filler comes from documents of training; with `probes` from held-out ones.
 * T2 wordings, names and things of probes are in no case of training. */
#ifndef TRAIN_TASKS_H
#define TRAIN_TASKS_H

#include "base/mem.h"
#include "train/shards.h"

enum task_kind {
    TASK_COPY,      /* a span of 4 to 32 tokens stands again after a gap */
    TASK_INDUCTION, /* pairs of tokens; the first of one asks for the second */
    TASK_PASSKEY,   /* five digits somewhere in prose, asked for at the end */
    TASK_MULTIKEY,  /* the same with two to four names */
    TASK_ORDER,     /* which of two things came first */
    TASK_COUNT,     /* how often (1 to 9) a word stands in a list */
    TASK_BRACKETS,  /* all that is open is to be closed */
    TASK_KINDS
};
const char *task_kind_name(enum task_kind kind);

/* Least room of a case. A copy always fits; another kind that does not is a copy instead. */
#define TASKS_LEAST_ROOM 16

struct tasks_options {
    uint32_t share[TASK_KINDS]; /* of cases, in proportion; all 0: 6 3 3 2 1 1 2 */
    bool probes; /* T1, T2; one question a case, at the end; a case that does not fit fails */
};

struct tasks {
    const struct shards *shards;
    const struct tokenizer *tokenizer;
    struct tasks_options options;
    uint32_t total_share;
    uint32_t *docs;       /* (n_docs) the part that filler comes from */
    uint64_t *ends;       /* (n_docs) tokens up to the end of each */
    uint32_t n_docs;
    int32_t *tokens;      /* (n_tokens) those that stand in the part, for random spans */
    uint32_t n_tokens;
    struct token_list brackets[9]; /* four pairs and the mark where closing begins */
};

/* A case without BOS, in memory that serves for one after the other. */
struct task {
    int32_t *ids;   /* (room) */
    uint8_t *learn; /* (room) 1: can be known from what stands before, or is prose */
    uint32_t room;
    uint32_t n;
    uint32_t answer, n_answer; /* ids that tell whether it was solved; learn is 1 there */
    uint32_t distance; /* tokens from what is asked for to the answer */
    enum task_kind kind;
    struct token_list scratch;
    struct buffer bytes;
};
zp_status task_open(struct task *c, uint32_t room, zp_err *err);
void task_close(struct task *c);

/* shards and tokenizer must outlive t, which any number of threads may use. A part without
 * documents is ZP_BAD_INPUT, and so is another tokenizer than that of the shards. */
zp_status tasks_open(struct tasks *t, const struct shards *s, const struct tokenizer *tokenizer,
                     const struct tasks_options *options, zp_err *err);
void tasks_close(struct tasks *t);
/* room: tokens at most, TASKS_LEAST_ROOM to c->room. level: 0 to 1, how far distances, spans and
 * numbers of things reach of what room allows (short ones first makes copying learnable at all);
 * short distances stay the more likely ones. Probes: level is 1, distances are uniform. */
zp_status tasks_make(const struct tasks *t, uint64_t seed, uint64_t index, uint32_t room,
                     double level, struct task *c, zp_err *err);

#endif

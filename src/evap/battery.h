/* battery.h: the measures by which models of one experiment are compared: what each makes of the
 * same held-out windows and of the same made-up questions, up to many times the trained length.
 * The public call is zp_probe_json (zerope/train.h); this is what it is made of. */
#ifndef EVAP_BATTERY_H
#define EVAP_BATTERY_H

#include <zerope/train.h>
#include "evap/trial.h"
#include "train/tagger.h"
#include "train/tasks.h"

enum { BATTERY_LENGTHS = 16, BATTERY_SEED = 1 };

/* A number with its 95 % interval; NaN where there is none. */
struct estimate {
    double value, lo, hi;
};

/* Which tokens are asked for: all, or by what they are in their document's structure. */
enum battery_part {
    BATTERY_ALL,
    BATTERY_BOUNDARY, /* the first of a block */
    BATTERY_MARK,     /* of any type of structure */
    BATTERY_PLAIN,    /* none of these; a separator is of no part */
    BATTERY_TYPE,     /* and behind it: of type 0, 1, ... */
    BATTERY_PARTS = BATTERY_TYPE + STRUCT_TYPES
};

/* Positions [from, to) of the windows of a length. */
struct battery_span {
    uint32_t length, from, to;
    enum battery_part part;
    uint32_t n_windows, n_joined, n_docs; /* documents that are asked about */
    uint64_t n_tokens;
    struct estimate nll, nll_base, change, kl, top1; /* change: of nll against the base */
    struct estimate right, right_base, right_change; /* the token is the most likely one */
};

/* A detector of a structure head on the tokens of the windows of the first length. */
struct battery_detector {
    uint64_t n_tagged, n_found, n_both; /* of its type; it says so (p > 1/2); both */
};

/* Cases of a kind at a length, with the answer at a distance in [from, to); to 0: at any. */
struct battery_score {
    enum task_kind kind;
    uint32_t length, from, to;
    uint32_t n_cases; /* 0: the kind does not fit into the length */
    double nll, nll_base; /* of an answer's token, mean of the cases' means */
    struct estimate right, right_base, change; /* shares of cases; change: right - right_base */
    struct estimate tokens, tokens_base, tokens_change; /* the same of the answers' tokens */
};

struct battery {
    const struct zp_model *m, *base;
    const struct shards *shards;
    zp_probe_options o; /* resolved */
    uint32_t lengths[BATTERY_LENGTHS], n_lengths;
    bool kinds[TASK_KINDS];
    struct tasks tasks[TASK_KINDS]; /* of the kinds asked for */
    struct task task;               /* one being made */
    struct trial_side side;
    struct battery_span whole[BATTERY_LENGTHS];
    struct battery_span spans[BATTERY_LENGTHS * (BATTERY_LENGTHS + 1) / 2];
    struct battery_span structure[BATTERY_LENGTHS * (BATTERY_PARTS - 1)];
    struct battery_detector detectors[STRUCT_TYPES];
    struct tagger tagger; /* of the held-out documents, where structure is asked for */
    struct battery_score scores[TASK_KINDS * BATTERY_LENGTHS];
    struct battery_score distances[TASK_KINDS * BATTERY_LENGTHS * (BATTERY_LENGTHS + 1)];
    uint32_t n_whole, n_spans, n_structure, n_scores, n_distances;
    uint32_t n_held;  /* held-out documents */
    uint64_t longest; /* window they can fill */
    double seconds;
};

/* Length number i, with the engines of b->side: fills whole and spans, or scores and distances. */
zp_status battery_windows(struct battery *b, uint32_t i, zp_err *err);
/* Counts the detectors of b->m on windows. */
struct heldwin_set;
zp_status battery_detect(struct battery *b, const struct heldwin_set *w, zp_err *err);
zp_status battery_cases(struct battery *b, uint32_t i, zp_err *err);
/* Sequences that these two will run at most. */
uint64_t battery_count(const struct battery *b);
/* Kinds whose answers may be far away: asked at each length, the others at the first they fit. */
bool battery_is_far(enum task_kind kind);

/* Mean, by bootstrap over those of n entries that have tokens; moves these to the front. */
struct estimate battery_mean(struct score_mean *entries, uint32_t n, uint64_t seed);

zp_status battery_write(const struct battery *b, const char *corpus, char **json, zp_err *err);

#endif

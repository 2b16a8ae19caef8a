/* ppl.h: NLL and perplexity of a text in windows, by position, and the distance to another model.
 * The public call is zp_ppl_json (zerope/eval.h); this is what it is made of. */
#ifndef EVAL_PPL_H
#define EVAL_PPL_H

#include <zerope/eval.h>
#include "eval/score.h"

/* Windows of n_ctx ids for perplexity. A folder: windows inside its documents, each beginning with
 * BOS where the model wants one; with `contiguous`, and for a single file always, consecutive
 * windows of the joined text, whose first id is replaced by BOS. n_windows 0: all there are. */
zp_status ppl_windows(struct docs *d, const struct zp_model *m, const zp_ppl_options *o,
                      struct windows *out, zp_err *err);

/* Scores the second half of every window: m by e in mode `mode`, and where b is not NULL also
 * KL(base || m) against b in mode full. s must be opened with ppl_range. */
zp_status ppl_score(struct score *s, const struct windows *w, struct zp_engine *e, zp_mode mode,
                    struct zp_engine *b, const zp_progress *progress, zp_err *err);
struct score_range ppl_range(uint32_t n_ctx);

#endif

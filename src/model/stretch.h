/* stretch.h: the usual stretchings of rotations beyond the trained length, in place of what a file
 * says: what a model without positions is compared with. */
#ifndef MODEL_STRETCH_H
#define MODEL_STRETCH_H

#include "model/arch.h"

struct position;

enum { STRETCH_TEXT = 32 };

/* "ntk:S", "linear:S", "yarn:S", S above 1: h becomes what arch_read makes of the file with the
 * keys of that stretching written into it. ntk: rope.freq_base * S^(d / (d - 2)), d rotated
 * channels. linear, yarn: rope.scaling.type and rope.scaling.factor; the length that yarn stretches
 * is the file's own. out: the same text, spelled in one way.
 * ZP_USAGE: another text. ZP_UNSUPPORTED: the file has a scaling of its own. */
zp_status stretch_apply(struct hparams *h, const struct gguf *g, const char *text,
                        char out[STRETCH_TEXT], zp_err *err);
/* ZP_UNSUPPORTED: nothing rotates that the stretching would reach. */
zp_status stretch_check(const struct position *p, const char *text, zp_err *err);

#endif

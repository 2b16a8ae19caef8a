/* seq.h: what the parts of an engine need of a sequence beside the public calls. */
#ifndef MODEL_SEQ_H
#define MODEL_SEQ_H

#include "model/engine.h"

/* o->mode: resolved. */
zp_status seq_open(zp_seq **out, zp_engine *e, const zp_seq_options *o, zp_err *err);
/* The mode that a sequence of about n tokens runs in, or why the engine refuses it. */
zp_status seq_resolve_mode(const struct zp_engine *e, zp_mode asked, uint64_t n, zp_mode *mode,
                           zp_err *err);
/* Whether the engine runs a resolved mode. */
zp_status seq_check_mode(const struct zp_engine *e, zp_mode mode, zp_err *err);
/* Gives the full tiles that its tokens alone have led to to the prefix tree. */
void seq_keep_prefix(struct zp_seq *s);

#endif

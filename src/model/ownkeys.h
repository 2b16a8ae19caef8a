/* ownkeys.h: which keys and tensors of zerope's own a file may carry. */
#ifndef MODEL_OWNKEYS_H
#define MODEL_OWNKEYS_H

#include "model/arch.h"

/* ZP_BAD_FILE: a file of a stock architecture with a key or tensor that only zerope-* files have
 * (other engines do not read those, so the file would be two models under one name), or end tokens
 * that are not in the vocabulary. */
zp_status ownkeys_check(const struct hparams *h, const struct gguf *g, zp_err *err);

#endif

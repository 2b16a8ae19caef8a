/* hfrope.h: the rotation part of config.json, old and new spelling, as GGUF keys and back. */
#ifndef MODEL_HFROPE_H
#define MODEL_HFROPE_H

#include "model/hfkeys.h"

/* rope_theta and rope_scaling at the root (transformers 4), or rope_parameters (5; may be nested by
 * layer type). Where a number stands in several places they must agree. Sets c->n_rot, the rope.*
 * keys and, for llama3, the tensor rope_freqs.weight. */
zp_status hfrope_read(const json_t *root, const char *where, struct gguf_edit *e,
                      struct hf_config *c, zp_err *err);

#endif

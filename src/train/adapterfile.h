/* adapterfile.h: adapters as PEFT keeps them: a folder of adapter_config.json and
 * adapter_model.safetensors, names and order of rows as Hugging Face models have them.
 * F1 what is written and read again has the same floats.
 * F2 each tensor of a folder is used or named in a warning; what would change what adapters mean
 *    (another kind, another scale) is an error. */
#ifndef TRAIN_ADAPTERFILE_H
#define TRAIN_ADAPTERFILE_H

#include "model/safetensors.h"
#include "train/adapter.h"

#define ADAPTERFILE_CONFIG "adapter_config.json"
#define ADAPTERFILE_TENSORS "adapter_model.safetensors"

struct adapterfile {
    const char *folder; /* the caller's; for messages */
    uint32_t rank;
    double alpha;
    uint32_t targets; /* that it has adapters of, in any layer */
    uint64_t hash;    /* of the tensors' file */
    struct safetensors tensors;
};

/* ZP_BAD_FILE, ZP_UNSUPPORTED: what is wrong names itself; no adapter of a known matrix:
 * ZP_BAD_INPUT. */
zp_status adapterfile_open(struct adapterfile *f, const char *folder, zp_err *err);
void adapterfile_close(struct adapterfile *f); /* accepts a half-built or zeroed object */
/* A and B of a's matrices, where f has them; the others stay. What the model has no matrix for, or
 * one of another shape, is left out with a warning in the log. ZP_BAD_INPUT: nothing is left;
 * ZP_BAD_FILE: half an adapter, a number that is not finite; a is not to be used then. */
zp_status adapterfile_load(const struct adapterfile *f, struct adapter *a, zp_err *err);
/* base: name or path of the model, for PEFT. The folder is made where it is not there; each file is
 * written atomically, the configuration last. */
zp_status adapterfile_write(const struct adapter *a, const char *base, const char *folder,
                            zp_err *err);

#endif

/* checkpoint_file.h: what the checkpoint file shows the folder of checkpoints. */
#ifndef TRAIN_CHECKPOINT_FILE_H
#define TRAIN_CHECKPOINT_FILE_H

#include "train/checkpoint.h"

/* All bytes are on the disk under the temporary name, and nothing can fail any more but the rename:
 * os_file_commit or os_file_abort. After a failure there is nothing to abort. */
zp_status checkpoint_prepare(struct os_file *f, const char *path, uint64_t step,
                             const struct checkpoint_key *key, const struct checkpoint_part *parts,
                             size_t n, zp_err *err);

#endif

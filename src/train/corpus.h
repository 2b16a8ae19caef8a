/* corpus.h: texts of files as documents of a token file: the public call is in zerope/train.h. */
#ifndef TRAIN_CORPUS_H
#define TRAIN_CORPUS_H

#include <zerope/train.h>

#include "base/bytes.h"

/* A document of one file. Files are read again when needed: texts are never all in memory. */
struct corpus_source {
    const char *path;
    const char *name; /* below its folder, or the file's own */
    uint64_t hash, bytes; /* of the text; bytes 0: left out (empty) */
    bool duplicate, held;
};

/* Text of a file as training sees it. out->data must be given back. */
zp_status corpus_read(const char *path, struct buffer *out, zp_err *err);

#endif

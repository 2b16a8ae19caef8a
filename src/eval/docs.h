/* docs.h: text documents, their split into planning and held-out ones, and windows of token ids. */
#ifndef EVAL_DOCS_H
#define EVAL_DOCS_H

#include "model/model.h"

/* Which documents a window may come from. PLAN and HELD are disjoint by document. */
enum docs_part { DOCS_ALL, DOCS_PLAN, DOCS_HELD };

struct doc {
    char *name;       /* path, or "path part 3" of a single file */
    const char *text; /* UTF-8, inside the set's memory */
    size_t size;
    uint64_t hash; /* of the text */
    bool held;
    int32_t *ids; /* tokenised on first use */
    size_t n_ids;
    bool tokenised;
};

struct docs {
    struct doc *docs; /* folder: sorted by name */
    size_t n;
    bool single_file;     /* one file was given: its parts stand in for documents */
    struct buffer *files; /* (n_files) */
    size_t n_files;
    uint64_t *seen; /* (n_seen) hashes given to docs_exclude, whether here or not */
    size_t n_seen;
    struct arena arena;
};

/* A window: n ids of one document, BOS first where the model wants one. */
struct window {
    int32_t *ids;
    uint32_t n;
    uint32_t doc;
};
struct windows {
    struct window *at;
    size_t n;
};

/* path: a folder (each file a document) or one file (cut into 24 parts at line ends). Not UTF-8:
 * error that names it. */
zp_status docs_open(struct docs *d, const char *path, zp_err *err);
void docs_close(struct docs *d);

/* Documents that an earlier step has planned with, by hash of their text: never held out from now
 * on, whatever their place. Before the first window. */
zp_status docs_exclude(struct docs *d, const uint64_t *hashes, size_t n, zp_err *err);
/* Hashes of all that must not count as held out later: the excluded ones, and the planning
 * documents windows came from so far. */
zp_status docs_seen(const struct docs *d, struct arena *arena, uint64_t **hashes, size_t *n,
                    zp_err *err);

/* Up to n_windows of n_ctx ids, in turn from as many documents as there are, deterministic. Fewer
 * than `least` is an error that says how much text is missing. */
zp_status docs_windows(struct docs *d, const struct zp_model *m, enum docs_part part,
                       uint32_t n_ctx, size_t n_windows, size_t least, struct windows *out,
                       zp_err *err);
/* Consecutive windows of all text joined, no overlap (as other perplexity tools cut them). */
zp_status docs_contiguous(struct docs *d, const struct zp_model *m, uint32_t n_ctx,
                          size_t n_windows, struct windows *out, zp_err *err);
void windows_free(struct windows *w);

#endif

/* heldwin.h: windows of the held-out documents of a corpus, begun as training begins its rows. */
#ifndef EVAP_HELDWIN_H
#define EVAP_HELDWIN_H

#include "train/shards.h"

struct heldwin {
    int32_t *tokens; /* (length + 1) the separator, then text: each token asks for the next one */
    uint32_t *doc;   /* (length) the document of tokens[1 + i]; a separator is of the one it ends */
    uint64_t *place; /* (length) which id of the corpus tokens[1 + i] is, or HELDWIN_SEPARATOR */
};
#define HELDWIN_SEPARATOR UINT64_MAX

/* First the windows that lie inside documents, window r of every document before window r + 1 of
 * any; then, where those are too few, windows of the documents that are too short for one, joined
 * in their order with separators. The same corpus, length and number give the same windows. */
struct heldwin_set {
    struct heldwin *at; /* (n) */
    uint32_t length, n;
    uint32_t n_joined; /* the last ones: of several documents */
    int32_t *tokens;   /* memory of all */
    uint32_t *docs;
    uint64_t *places;
};

/* At most n_windows; fewer where the documents have no more, 0 where they have no window of that
 * length. */
zp_status heldwin_open(struct heldwin_set *w, const struct shards *s, uint32_t length,
                       uint32_t n_windows, zp_err *err);
void heldwin_close(struct heldwin_set *w);
/* The longest window there is; 0: nothing is held out. *n_docs: held-out documents. */
uint64_t heldwin_longest(const struct shards *s, uint32_t *n_docs);

#endif

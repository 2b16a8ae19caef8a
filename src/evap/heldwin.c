/* heldwin.c: which held-out tokens stand in which window.
 * Owns: the windows' tokens. Does not know: models, scores.
 * W1 a token of text is asked for at most once in all windows of a set.
 * W2 a window begins with the separator, and so does each document in it: what stands before is
 *    what a row of training would have there (train/packer.h, P2). */
#include "evap/heldwin.h"

#include <assert.h>
#include <string.h>

static bool is_held(const struct shards *s, uint32_t doc)
{
    return s->docs[doc].held;
}

uint64_t heldwin_longest(const struct shards *s, uint32_t *n_docs)
{
    uint64_t n = 0;
    *n_docs = 0;
    for (uint32_t i = 0; i < s->head.n_docs; i++)
        if (is_held(s, i)) n += s->docs[i].n + 1, ++*n_docs;
    return n;
}

static void put(struct heldwin *w, uint32_t at, int32_t id, uint32_t doc)
{
    w->tokens[at] = id;
    if (at > 0) w->doc[at - 1] = doc, w->place[at - 1] = HELDWIN_SEPARATOR;
}

static void put_text(struct heldwin *w, uint32_t at, const struct shards *s, uint32_t doc,
                     uint64_t first, uint32_t n)
{
    shards_read(s, doc, first, n, w->tokens + at);
    for (uint32_t i = 0; i < n; i++)
        w->doc[at - 1 + i] = doc, w->place[at - 1 + i] = s->docs[doc].at + first + i;
}

/* ---- inside documents ---- */

static void add_inside(struct heldwin_set *w, const struct shards *s, uint32_t n_windows)
{
    bool any = true;
    for (uint64_t first = 0; any; first += w->length) {
        any = false;
        for (uint32_t i = 0; i < s->head.n_docs && w->n < n_windows; i++) {
            if (!is_held(s, i) || s->docs[i].n < first + w->length) continue;
            put(&w->at[w->n], 0, s->head.separator, i);
            put_text(&w->at[w->n], 1, s, i, first, w->length);
            w->n++;
            any = true;
        }
    }
}

/* ---- of several documents ---- */

struct place {
    uint32_t doc;
    uint64_t at;
};

/* The first document from `doc` on that is held out and too short for a window. */
static struct place next_short(const struct shards *s, uint32_t length, uint32_t doc)
{
    while (doc < s->head.n_docs && (!is_held(s, doc) || s->docs[doc].n >= length)) doc++;
    return (struct place){ doc, 0 };
}

/* False at the end of the documents: what is left fills no window. */
static bool fill_joined(struct heldwin *w, const struct shards *s, uint32_t length,
                        struct place *p)
{
    uint32_t n = 0, last = p->doc;
    while (n <= length && p->doc < s->head.n_docs) {
        put(w, n++, s->head.separator, last);
        uint64_t rest = s->docs[p->doc].n - p->at;
        uint32_t left = length + 1 - n, take = rest < left ? (uint32_t)rest : left;
        put_text(w, n, s, p->doc, p->at, take);
        last = p->doc;
        n += take;
        p->at += take;
        if (take == rest) *p = next_short(s, length, p->doc + 1);
    }
    if (n == length) put(w, n++, s->head.separator, last);
    return n == length + 1;
}

static void add_joined(struct heldwin_set *w, const struct shards *s, uint32_t n_windows)
{
    struct place p = next_short(s, w->length, 0);
    while (w->n < n_windows && fill_joined(&w->at[w->n], s, w->length, &p)) {
        w->n++;
        w->n_joined++;
    }
}

/* ---- sets ---- */

/* As many as there can be, at most n_windows. */
static uint32_t most_windows(const struct shards *s, uint32_t length, uint32_t n_windows)
{
    uint64_t inside = 0, joined = 0;
    for (uint32_t i = 0; i < s->head.n_docs; i++) {
        if (!is_held(s, i)) continue;
        if (s->docs[i].n >= length) inside += s->docs[i].n / length;
        else joined += s->docs[i].n + 1;
    }
    uint64_t all = inside + joined / length + 1; /* and room for one that is not filled */
    return all < n_windows ? (uint32_t)all : n_windows;
}

static zp_status fill(struct heldwin_set *w, const struct shards *s, uint32_t n_windows,
                      zp_err *err)
{
    uint32_t most = most_windows(s, w->length, n_windows);
    size_t row = w->length;
    ZP_ALLOC(w->at, MEM_EVAP, most, err, "held-out windows");
    ZP_ALLOC(w->tokens, MEM_EVAP, most * (row + 1), err, "tokens of held-out windows");
    ZP_ALLOC(w->docs, MEM_EVAP, most * row, err, "documents of held-out windows");
    ZP_ALLOC(w->places, MEM_EVAP, most * row, err, "places of held-out windows");
    for (uint32_t i = 0; i < most; i++)
        w->at[i] = (struct heldwin){ w->tokens + i * (row + 1), w->docs + i * row,
                                     w->places + i * row };
    add_inside(w, s, most);
    add_joined(w, s, most);
    assert(w->n <= most);
    return ZP_OK;
}

zp_status heldwin_open(struct heldwin_set *w, const struct shards *s, uint32_t length,
                       uint32_t n_windows, zp_err *err)
{
    *w = (struct heldwin_set){ .length = length };
    zp_status status = fill(w, s, n_windows, err);
    if (status != ZP_OK) heldwin_close(w);
    return status;
}

void heldwin_close(struct heldwin_set *w)
{
    mem_free(w->at);
    mem_free(w->tokens);
    mem_free(w->docs);
    mem_free(w->places);
    memset(w, 0, sizeof *w);
}

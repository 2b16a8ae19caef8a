/* merger.c: the two merge loops. Both join the leftmost pair of lowest rank first. */
#include "model/merger.h"
#include <string.h>
#include "base/mem.h"

#define SHORT_WORD 32 /* up to here scanning beats the heap (measured on English text) */
#define NO_RANK UINT32_MAX
#define NO_LINK UINT32_MAX

zp_status merger_reserve(struct merger *m, size_t n_symbols, zp_err *err)
{
    m->n = 0;
    if (n_symbols <= m->room) return ZP_OK;
    size_t room = n_symbols + n_symbols / 2 + 64;
    struct merge_symbol *symbols = mem_resize(MEM_SCRATCH, m->symbols, room * sizeof *symbols);
    ZP_FAIL_IF(symbols == NULL, err, ZP_NO_MEMORY,
               "not enough memory to tokenize a word of %zu symbols", n_symbols);
    m->symbols = symbols;
    m->room = room;
    return ZP_OK;
}

void merger_free(struct merger *m)
{
    mem_free(m->symbols);
    mem_free(m->links);
    mem_free(m->heap);
    *m = (struct merger){ 0 };
}

static struct merge_pair find_pair(const struct merger *m, size_t left, size_t right,
                                   const uint8_t *word, merge_find find, const void *rules)
{
    struct merge_pair pair = { NO_RANK, -1 };
    if (!find(rules, word, &m->symbols[left], &m->symbols[right], &pair)) pair.rank = NO_RANK;
    return pair;
}

static void merge_short(struct merger *m, const uint8_t *word, merge_find find, const void *rules)
{
    struct merge_pair pairs[SHORT_WORD]; /* pairs[i] joins symbols i and i + 1 */
    struct merge_symbol *s = m->symbols;
    size_t n = m->n;
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = find_pair(m, i, i + 1, word, find, rules);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i].rank < pairs[best].rank) best = i;
        if (pairs[best].rank == NO_RANK) break;
        s[best] = (struct merge_symbol){ s[best].begin, s[best + 1].end, pairs[best].id };
        n--;
        memmove(&s[best + 1], &s[best + 2], (n - best - 1) * sizeof *s);
        memmove(&pairs[best], &pairs[best + 1], (n - best - 1) * sizeof *pairs);
        if (best > 0) pairs[best - 1] = find_pair(m, best - 1, best, word, find, rules);
        if (best + 1 < n) pairs[best] = find_pair(m, best, best + 1, word, find, rules);
    }
    m->n = n;
}

static bool goes_before(struct merge_candidate a, struct merge_candidate b)
{
    return a.rank < b.rank || (a.rank == b.rank && a.left < b.left);
}

static void sift_down(struct merge_candidate *heap, size_t n, size_t at)
{
    struct merge_candidate item = heap[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && goes_before(heap[child + 1], heap[child])) child++;
        if (!goes_before(heap[child], item)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = item;
}

static void push_candidate(struct merger *m, struct merge_candidate item)
{
    size_t at = m->n_heap++;
    while (at > 0 && goes_before(item, m->heap[(at - 1) / 2])) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = item;
}

static struct merge_candidate pop_candidate(struct merger *m)
{
    struct merge_candidate top = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap > 0) sift_down(m->heap, m->n_heap, 0);
    return top;
}

/* n - 1 candidates at first; each of at most n - 1 joins takes one and adds two: below 2n. */
static zp_status reserve_long(struct merger *m, zp_err *err)
{
    if (m->links_room < m->n) {
        struct merge_link *links = mem_resize(MEM_SCRATCH, m->links, m->n * sizeof *links);
        ZP_FAIL_IF(links == NULL, err, ZP_NO_MEMORY,
                   "not enough memory to tokenize a word of %zu symbols", m->n);
        m->links = links;
        m->links_room = m->n;
    }
    if (m->heap_room < 2 * m->n) {
        struct merge_candidate *heap = mem_resize(MEM_SCRATCH, m->heap, 2 * m->n * sizeof *heap);
        ZP_FAIL_IF(heap == NULL, err, ZP_NO_MEMORY,
                   "not enough memory to tokenize a word of %zu symbols", m->n);
        m->heap = heap;
        m->heap_room = 2 * m->n;
    }
    return ZP_OK;
}

static bool make_candidate(const struct merger *m, uint32_t left, uint32_t right,
                           const uint8_t *word, merge_find find, const void *rules,
                           struct merge_candidate *out)
{
    struct merge_pair pair = find_pair(m, left, right, word, find, rules);
    *out = (struct merge_candidate){ pair.rank, left, m->symbols[right].end, pair.id };
    return pair.rank != NO_RANK;
}

/* A candidate is current while its left symbol still stands and the two still end where they did:
 * symbols only grow to the right, so the same end means the same two symbols. */
static bool is_current(const struct merger *m, struct merge_candidate c)
{
    const struct merge_symbol *left = &m->symbols[c.left];
    uint32_t right = m->links[c.left].next;
    return left->end > left->begin && right != NO_LINK && m->symbols[right].end == c.right_end;
}

static void join(struct merger *m, struct merge_candidate c)
{
    uint32_t right = m->links[c.left].next;
    m->symbols[c.left].end = c.right_end;
    m->symbols[c.left].id = c.id;
    m->symbols[right].end = m->symbols[right].begin; /* gone */
    m->links[c.left].next = m->links[right].next;
    if (m->links[right].next != NO_LINK) m->links[m->links[right].next].prev = c.left;
}

static zp_status merge_long(struct merger *m, const uint8_t *word, merge_find find,
                            const void *rules, zp_err *err)
{
    ZP_TRY(reserve_long(m, err));
    struct merge_candidate c;
    m->n_heap = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        m->links[i] =
            (struct merge_link){ i == 0 ? NO_LINK : i - 1, i + 1 == m->n ? NO_LINK : i + 1 };
        if (i + 1 < m->n && make_candidate(m, i, i + 1, word, find, rules, &c))
            m->heap[m->n_heap++] = c;
    }
    for (size_t i = m->n_heap / 2; i-- > 0;) sift_down(m->heap, m->n_heap, i);
    while (m->n_heap > 0) {
        c = pop_candidate(m);
        if (!is_current(m, c)) continue;
        join(m, c);
        uint32_t left = c.left, prev = m->links[left].prev, next = m->links[left].next;
        if (prev != NO_LINK && make_candidate(m, prev, left, word, find, rules, &c))
            push_candidate(m, c);
        if (next != NO_LINK && make_candidate(m, left, next, word, find, rules, &c))
            push_candidate(m, c);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != NO_LINK; i = m->links[i].next) m->symbols[kept++] = m->symbols[i];
    m->n = kept;
    return ZP_OK;
}

zp_status merger_run(struct merger *m, const uint8_t *word, merge_find find, const void *rules,
                     zp_err *err)
{
    if (m->n <= 1) return ZP_OK;
    if (m->n <= SHORT_WORD) {
        merge_short(m, word, find, rules);
        return ZP_OK;
    }
    return merge_long(m, word, find, rules, err);
}

/* prefix.c: a tree of full tiles: a node is 64 ids and, of every head, the page they led to.
 * Owns: nodes, one reference to each of their pages. Does not know: models, requests.
 * Threads: the engine's caller only.
 * X1 a node stands for all ids from its root on, and they are compared: keys only find candidates.
 * X2 a node has the pages of all heads without a window, and of all sinks. Those of windows may be
 *    gone: a sequence can go on behind a node only where those it would see are there.
 * X3 idle pages can always be had: every node can be given up, leaf by leaf, whoever else uses its
 *    pages. */
#include "model/prefix.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "model/kvcache.h"

#define NO_NODE UINT32_MAX

struct prefix_node {
    uint64_t key;
    struct prefix_space space;
    uint32_t parent, n_children, tile; /* tile: number in the sequence; parent NO_NODE: it is 0 */
    uint32_t next;                     /* of the same bucket, or free */
    uint64_t used, seen; /* last walk that passed; that took or gave pages of windows. 0: free */
};

/* ---- room ------------------------------------------------------------------------------------ */

/* Nodes that the pages suffice for: each takes one of every head without a window (X2). */
static uint32_t count_nodes(const struct position *p, size_t n_pages)
{
    uint32_t full = 0;
    for (uint32_t h = 0; h < p->n_layer * p->n_kv; h++)
        full += position_head_sight(p, h / p->n_kv, h % p->n_kv).window == 0;
    return (uint32_t)(n_pages / (full ? full : 1));
}

static uint32_t count_buckets(uint32_t n_nodes)
{
    uint32_t n = 1;
    while (n < n_nodes && n < 1u << 31) n *= 2;
    return n;
}

uint64_t prefix_plan(const struct position *p, size_t n_pages)
{
    uint32_t n = count_nodes(p, n_pages), n_heads = p->n_layer * p->n_kv;
    size_t node = sizeof(struct prefix_node) + KERN_TILE * sizeof(int32_t) +
                  n_heads * sizeof(void *);
    return (uint64_t)n * node + ((uint64_t)count_buckets(n) + n_heads) * sizeof(uint32_t);
}

zp_status prefix_open(struct prefix *x, const struct kvcache *c, zp_err *err)
{
    uint32_t n = count_nodes(c->position, c->pages.n_pages), n_buckets = count_buckets(n);
    *x = (struct prefix){ .n_heads = c->n_heads,
                          .mask = n_buckets - 1,
                          .bytes = prefix_plan(c->position, c->pages.n_pages),
                          .key_mask = UINT64_MAX };
    ZP_ALLOC(x->nodes, MEM_SCRATCH, n, err, "the prefix tree");
    ZP_ALLOC(x->ids, MEM_SCRATCH, (size_t)n * KERN_TILE, err, "the ids of the prefix tree");
    ZP_ALLOC(x->pages, MEM_SCRATCH, (size_t)n * c->n_heads, err, "the pages of the prefix tree");
    ZP_ALLOC(x->buckets, MEM_SCRATCH, n_buckets, err, "the keys of the prefix tree");
    ZP_ALLOC(x->stay, MEM_SCRATCH, c->n_heads, err, "the heads of the prefix tree");
    x->n_nodes = n;
    for (uint32_t i = 0; i < n; i++)
        x->nodes[i] = (struct prefix_node){ .next = i + 1 < n ? i + 1 : NO_NODE };
    for (size_t i = 0; i < (size_t)n * c->n_heads; i++) x->pages[i] = NULL;
    for (uint32_t i = 0; i < n_buckets; i++) x->buckets[i] = NO_NODE;
    for (uint32_t h = 0; h < c->n_heads; h++) {
        struct kv_reach reach = kvcache_reach(c, h, 0);
        x->stay[h] = reach.windowed ? reach.sinks : UINT32_MAX;
    }
    return ZP_OK;
}

void prefix_free(struct prefix *x)
{
    mem_free(x->nodes);
    mem_free(x->ids);
    mem_free(x->pages);
    mem_free(x->buckets);
    mem_free(x->stay);
    *x = (struct prefix){ 0 };
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int32_t *ids_of(const struct prefix *x, uint32_t node)
{
    return x->ids + (size_t)node * KERN_TILE;
}

static const void **pages_of(const struct prefix *x, uint32_t node)
{
    return x->pages + (size_t)node * x->n_heads;
}

/* Where a walk down the tree stands: behind `node`, whose key stands for all ids so far. */
struct walk {
    const struct prefix_space *space;
    uint32_t node, n_tiles;
    uint64_t key;
};

static struct walk from_root(struct prefix *x, const struct prefix_space *space)
{
    x->now++;
    return (struct walk){ space, NO_NODE, 0, hash_xxh64(space, sizeof *space, 0) };
}

static uint64_t next_key(const struct prefix *x, const struct walk *w, const int32_t *ids)
{
    return hash_xxh64(ids, KERN_TILE * sizeof *ids, w->key) & x->key_mask;
}

/* The child with these ids (X1), or NO_NODE. */
static uint32_t find_child(const struct prefix *x, const struct walk *w, const int32_t *ids)
{
    uint64_t key = next_key(x, w, ids);
    for (uint32_t i = x->buckets[key & x->mask]; i != NO_NODE; i = x->nodes[i].next) {
        const struct prefix_node *n = &x->nodes[i];
        if (n->key == key && n->parent == w->node &&
            memcmp(&n->space, w->space, sizeof n->space) == 0 &&
            memcmp(ids_of(x, i), ids, KERN_TILE * sizeof *ids) == 0)
            return i;
    }
    return NO_NODE;
}

static void step_to(const struct prefix *x, struct walk *w, uint32_t node)
{
    w->node = node;
    w->n_tiles++;
    w->key = x->nodes[node].key;
}

/* A child without pages, as free nodes are. The list of free nodes is not empty. */
static uint32_t add_child(struct prefix *x, const struct walk *w, const int32_t *ids)
{
    uint32_t i = x->free;
    struct prefix_node *n = &x->nodes[i];
    x->free = n->next;
    x->n_used++;
    *n = (struct prefix_node){ .key = next_key(x, w, ids),
                               .space = *w->space,
                               .parent = w->node,
                               .tile = w->n_tiles,
                               .used = x->now,
                               .seen = x->now };
    uint32_t *bucket = &x->buckets[n->key & x->mask];
    n->next = *bucket;
    *bucket = i;
    if (n->parent != NO_NODE) x->nodes[n->parent].n_children++;
    memcpy(ids_of(x, i), ids, KERN_TILE * sizeof *ids);
    return i;
}

static void remove_leaf(struct prefix *x, uint32_t node)
{
    struct prefix_node *n = &x->nodes[node];
    uint32_t *link = &x->buckets[n->key & x->mask];
    assert(n->n_children == 0);
    while (*link != node) link = &x->nodes[*link].next;
    *link = n->next;
    if (n->parent != NO_NODE) x->nodes[n->parent].n_children--;
    *n = (struct prefix_node){ .next = x->free };
    x->free = node;
    x->n_used--;
}

/* ---- giving up ------------------------------------------------------------------------------- */

static bool is_idle(const struct kvcache *c, const void *page)
{
    return pagepool_users(&c->pages, page) == 0;
}

/* Of an inner node the pages of windows can go, but for sinks (X2); of a leaf all. */
static bool may_go(const struct prefix *x, uint32_t node, uint32_t head)
{
    const struct prefix_node *n = &x->nodes[node];
    return n->n_children == 0 || n->tile >= x->stay[head];
}

/* Whether giving the node up makes a page free. */
static bool frees_page(const struct prefix *x, const struct kvcache *c, uint32_t node)
{
    for (uint32_t h = 0; h < x->n_heads; h++) {
        const void *page = pages_of(x, node)[h];
        if (page && may_go(x, node, h) && is_idle(c, page)) return true;
    }
    return false;
}

/* When what can go of a node was last of use. */
static uint64_t age_of(const struct prefix_node *n)
{
    return n->n_children ? n->seen : n->used;
}

/* The node whose giving up frees a page and is missed least, or NO_NODE. */
static uint32_t find_oldest(const struct prefix *x, const struct kvcache *c)
{
    uint32_t oldest = NO_NODE;
    for (uint32_t i = 0; i < x->n_nodes; i++)
        if (x->nodes[i].used &&
            (oldest == NO_NODE || age_of(&x->nodes[i]) < age_of(&x->nodes[oldest])) &&
            frees_page(x, c, i))
            oldest = i;
    return oldest;
}

/* The leaf that was used first, before a time; or NO_NODE. */
static uint32_t find_oldest_leaf(const struct prefix *x, uint64_t before)
{
    uint32_t oldest = NO_NODE;
    for (uint32_t i = 0; i < x->n_nodes; i++) {
        const struct prefix_node *n = &x->nodes[i];
        if (!n->used || n->n_children || n->used >= before) continue;
        oldest = i;
        before = n->used;
    }
    return oldest;
}

static void give_up(struct prefix *x, struct kvcache *c, uint32_t node)
{
    bool leaf = x->nodes[node].n_children == 0;
    for (uint32_t h = 0; h < x->n_heads; h++) {
        const void **page = &pages_of(x, node)[h];
        if (!*page || !may_go(x, node, h) || (!leaf && !is_idle(c, *page))) continue;
        pagepool_unkeep(&c->pages, *page);
        *page = NULL;
    }
    if (leaf) remove_leaf(x, node);
    x->n_evicted++;
}

void prefix_make_room(struct prefix *x, struct kvcache *c, size_t n_pages)
{
    while (c->pages.n_free < n_pages) {
        uint32_t node = find_oldest(x, c);
        if (node == NO_NODE) node = find_oldest_leaf(x, UINT64_MAX);
        assert(node != NO_NODE); /* X3 */
        give_up(x, c, node);
    }
}

/* Where no head is without a window, nodes may run out before pages. What this walk has passed
 * stays. */
static bool make_node(struct prefix *x, struct kvcache *c)
{
    uint32_t leaf = x->free == NO_NODE ? find_oldest_leaf(x, x->now) : NO_NODE;
    if (leaf != NO_NODE) give_up(x, c, leaf);
    return x->free != NO_NODE;
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* A tile's pages in the tree and in a sequence: what one lacks it gets from the other; where both
 * have a page, of the same bits, the sequence's own goes. */
static void merge(struct prefix *x, struct kvcache *c, struct kv_table *t, uint32_t node)
{
    struct prefix_node *n = &x->nodes[node];
    for (uint32_t h = 0; h < x->n_heads; h++) {
        const void **kept = &pages_of(x, node)[h];
        size_t at = kv_table_at(t, h, n->tile);
        const void *own = t->k[at];
        if (!own || own == *kept) continue;
        if (*kept) {
            pagepool_hold(&c->pages, *kept);
            pagepool_put(&c->pages, own);
            kv_table_set(t, c, at, *kept);
        } else {
            pagepool_keep(&c->pages, own);
            *kept = own;
            n->seen = x->now;
        }
    }
    n->used = x->now;
}

void prefix_insert(struct prefix *x, struct kvcache *c, struct kv_table *t,
                   const struct prefix_space *space, const int32_t *ids, uint32_t n)
{
    if (x->n_nodes == 0) return;
    struct walk w = from_root(x, space);
    while (w.n_tiles < n) {
        const int32_t *tile = ids + (size_t)w.n_tiles * KERN_TILE;
        uint32_t node = find_child(x, &w, tile);
        if (node == NO_NODE && make_node(x, c)) node = add_child(x, &w, tile);
        if (node == NO_NODE) return;
        merge(x, c, t, node);
        step_to(x, &w, node);
    }
}

/* Whether a sequence can go on behind the node: its next query's windows are there (X2). */
static bool can_go_on(const struct prefix *x, const struct kvcache *c, uint32_t node)
{
    uint32_t n_tiles = x->nodes[node].tile + 1;
    for (uint32_t h = 0; h < x->n_heads; h++) {
        struct kv_reach reach = kvcache_reach(c, h, n_tiles * KERN_TILE);
        if (!reach.windowed) continue;
        for (uint32_t up = node, i = n_tiles; i-- > reach.first; up = x->nodes[up].parent)
            if (!pages_of(x, up)[h]) return false;
    }
    return true;
}

/* A head's pages up to a node. Of windows those without a gap before the next query: pages behind a
 * gap would not be given back. */
static void take_head(struct prefix *x, struct kvcache *c, struct kv_table *t, uint32_t node,
                      uint32_t head)
{
    uint32_t n_tiles = x->nodes[node].tile + 1;
    struct kv_reach reach = kvcache_reach(c, head, n_tiles * KERN_TILE);
    for (uint32_t up = node, i = n_tiles; i-- > 0; up = x->nodes[up].parent) {
        const void *page = pages_of(x, up)[head];
        x->nodes[up].used = x->now;
        if (!page && i >= reach.gone) reach.gone = i + 1;
        if (i >= reach.sinks && i < reach.gone) continue;
        pagepool_hold(&c->pages, page);
        kv_table_set(t, c, kv_table_at(t, head, i), page);
        if (reach.windowed) x->nodes[up].seen = x->now;
    }
}

uint32_t prefix_reuse(struct prefix *x, struct kvcache *c, struct kv_table *t,
                      const struct prefix_space *space, const int32_t *ids, size_t n)
{
    if (x->n_nodes == 0 || n == 0) return 0;
    struct walk w = from_root(x, space);
    uint32_t node;
    while (w.n_tiles < (n - 1) / KERN_TILE && w.n_tiles < t->n_tiles &&
           (node = find_child(x, &w, ids + (size_t)w.n_tiles * KERN_TILE)) != NO_NODE)
        step_to(x, &w, node);
    node = w.node;
    while (node != NO_NODE && !can_go_on(x, c, node)) node = x->nodes[node].parent;
    if (node == NO_NODE) return 0;
    for (uint32_t h = 0; h < x->n_heads; h++) take_head(x, c, t, node, h);
    t->length = (x->nodes[node].tile + 1) * KERN_TILE;
    return t->length;
}

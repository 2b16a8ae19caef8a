/* automaton.c: states, and the sets of stacks they hold; found when first asked for.
 * Owns: all tables. Does not know: tokens, what the grammar describes.
 * A4 a state's ways are sorted by node, a set's items by (node, count): no two of them are equal.
 * A5 `work` counts looks at nodes and items since automaton_prepare; steps fail beyond MAX_WORK. */
#include "model/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define BOTTOM UINT32_MAX /* node of the item below which there is nothing */
#define NO_STACKS 0u
#define MAX_ITEMS (1u << 18)
#define MAX_SETS (1u << 17)
#define MAX_WAYS (1u << 19)
#define MAX_STATES (1u << 16)
#define MAX_EDGES (1u << 21)
#define MAX_WORK (16u << 20) /* about 0.2 s */
#define N_MEMO 4096u

/* ---- tables --------------------------------------------------------------------------------- */

static zp_status fail_full(zp_err *err)
{
    ZP_FAIL(err, ZP_BAD_INPUT, "the grammar leaves too many ways open at once: fewer alternatives "
            "that begin alike, or smaller bounds of what may be empty, would help");
}

static zp_status make_room(void **array, uint32_t n, uint32_t *room, uint32_t max, size_t size,
                           zp_err *err)
{
    if (n < *room) return ZP_OK;
    if (n >= max) return fail_full(err);
    uint32_t more = *room ? *room * 2 : 256;
    if (more > max) more = max;
    void *grown = mem_resize(MEM_META, *array, more * size);
    ZP_FAIL_IF(grown == NULL, err, ZP_NO_MEMORY, "not enough memory for a grammar (%zu bytes)",
               more * size);
    *array = grown;
    *room = more;
    return ZP_OK;
}

/* MAKE_ROOM(a, items, n, MAX_ITEMS): a->items may take one more. */
#define MAKE_ROOM(a, name, max, err)                                                              \
    do {                                                                                          \
        void *array_ = (a)->name;                                                                 \
        zp_status status_ = make_room(&array_, (a)->n_##name, &(a)->room_##name, (max),           \
                                      sizeof *(a)->name, err);                                    \
        (a)->name = array_;                                                                       \
        ZP_TRY(status_);                                                                          \
    } while (0)

typedef uint64_t hash_fn(const struct automaton *a, uint32_t number);

static uint64_t hash_set(const struct automaton *a, uint32_t number)
{
    const struct stack_set *s = &a->sets[number];
    return hash_bytes(a->items + s->first, s->n * sizeof *a->items, s->n);
}

static uint64_t hash_state(const struct automaton *a, uint32_t number)
{
    const struct automaton_state *s = &a->states[number];
    return hash_bytes(a->ways + s->first, s->n * sizeof *a->ways, s->accepts);
}

static zp_status grow_table(const struct automaton *a, struct number_table *t, hash_fn *hash,
                            zp_err *err)
{
    struct number_table old = *t;
    if (old.slots != NULL && old.used < (old.mask + 1) / 2) return ZP_OK;
    uint32_t n = old.slots ? (old.mask + 1) * 2 : 512;
    t->slots = mem_zalloc(MEM_META, n * sizeof *t->slots);
    if (t->slots == NULL) *t = old;
    ZP_FAIL_IF(t->slots == old.slots, err, ZP_NO_MEMORY, "not enough memory for a grammar");
    t->mask = n - 1;
    for (uint32_t i = 0; old.slots && i <= old.mask; i++) {
        uint32_t number = old.slots[i], at = number ? (uint32_t)hash(a, number) & t->mask : 0;
        while (number && t->slots[at]) at = (at + 1) & t->mask;
        if (number) t->slots[at] = number;
    }
    mem_free(old.slots);
    return ZP_OK;
}

/* ---- sets of stacks ------------------------------------------------------------------------- */

/* The number of the set with the items at the end of `merged` from `mark` on, which leave it. */
static zp_status find_set(struct automaton *a, uint32_t mark, uint32_t *out, zp_err *err)
{
    const struct stack_item *items = a->merged + mark;
    uint32_t n = a->n_merged - mark, depth = 0;
    struct number_table *t = &a->set_table;
    a->n_merged = mark;
    ZP_TRY(grow_table(a, t, hash_set, err));
    uint32_t at = (uint32_t)hash_bytes(items, n * sizeof *items, n) & t->mask;
    for (; (*out = t->slots[at]) != 0; at = (at + 1) & t->mask) {
        const struct stack_set *s = &a->sets[*out];
        if (s->n == n && memcmp(a->items + s->first, items, n * sizeof *items) == 0) return ZP_OK;
    }
    MAKE_ROOM(a, sets, MAX_SETS, err);
    uint32_t first = a->n_items;
    for (uint32_t i = 0; i < n; i++) {
        MAKE_ROOM(a, items, MAX_ITEMS, err);
        a->items[a->n_items++] = items[i];
        uint32_t below = items[i].node == BOTTOM ? 0 : 1 + a->sets[items[i].below].depth;
        depth = below > depth ? below : depth;
    }
    a->sets[a->n_sets] = (struct stack_set){ first, n, depth };
    t->used++;
    *out = t->slots[at] = a->n_sets++;
    return ZP_OK;
}

static zp_status put_item(struct automaton *a, struct stack_item item, zp_err *err)
{
    MAKE_ROOM(a, merged, MAX_ITEMS, err);
    a->merged[a->n_merged++] = item;
    a->work++;
    return ZP_OK;
}

/* The stacks with one more place on top of each. */
static zp_status push(struct automaton *a, uint32_t stacks, uint32_t node, uint32_t count,
                      uint32_t *out, zp_err *err)
{
    uint32_t mark = a->n_merged;
    ZP_TRY(put_item(a, (struct stack_item){ node, count, stacks }, err));
    return find_set(a, mark, out, err);
}

static int compare_items(const struct stack_item *a, const struct stack_item *b)
{
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    return (a->count > b->count) - (a->count < b->count);
}

static zp_status unite(struct automaton *a, uint32_t x, uint32_t y, uint32_t *out, zp_err *err);

static zp_status merge(struct automaton *a, uint32_t x, uint32_t y, uint32_t *out, zp_err *err)
{
    uint32_t mark = a->n_merged, i = 0, k = 0;
    struct stack_set p = a->sets[x], q = a->sets[y];
    while (i < p.n || k < q.n) {
        struct stack_item item = i < p.n ? a->items[p.first + i] : a->items[q.first + k];
        int order = k == q.n ? -1 : i == p.n ? 1 : compare_items(&item, &a->items[q.first + k]);
        if (order > 0) item = a->items[q.first + k];
        if (order == 0)
            ZP_TRY(unite(a, item.below, a->items[q.first + k].below, &item.below, err));
        ZP_TRY(put_item(a, item, err));
        i += order <= 0;
        k += order >= 0;
    }
    return find_set(a, mark, out, err);
}

/* All stacks of both. Depth: that of the stacks. */
static zp_status unite(struct automaton *a, uint32_t x, uint32_t y, uint32_t *out, zp_err *err)
{
    *out = x == NO_STACKS ? y : x;
    if (x == y || x == NO_STACKS || y == NO_STACKS) return ZP_OK;
    if (a->work > MAX_WORK) return fail_full(err); // A5
    uint32_t low = x < y ? x : y, high = x < y ? y : x;
    struct union_memo *m = &a->memo[(low * 0x9E3779B1u ^ high * 0x85EBCA77u) % N_MEMO];
    if (m->a != low || m->b != high) {
        uint32_t result;
        ZP_TRY(merge(a, low, high, &result, err));
        *m = (struct union_memo){ low, high, result };
    }
    *out = m->result;
    return ZP_OK;
}

/* ---- one step ------------------------------------------------------------------------------- */

/* The node can be reached with these stacks, too. */
static zp_status arrive(struct automaton *a, uint32_t node, uint32_t stacks, zp_err *err)
{
    const struct grammar_node *n = &a->g->nodes[node];
    uint32_t before = a->reached[node], after;
    if (++a->work > MAX_WORK) return fail_full(err); // A5
    if (n->height == GRAMMAR_NO_WAY) return ZP_OK;
    if (a->sets[stacks].depth + n->height > GRAMMAR_MAX_DEPTH) return ZP_OK; // A3
    ZP_TRY(unite(a, before, stacks, &after, err));
    if (after == before) return ZP_OK;
    a->reached[node] = after;
    if (before == NO_STACKS) a->touched[a->n_touched++] = node;
    if (n->kind == NODE_BYTES || a->marks[node]) return ZP_OK;
    a->marks[node] = 1;
    a->queue[(a->queue_begin + a->n_queue++) % a->g->n_nodes] = node;
    return ZP_OK;
}

/* At a repetition that was entered `count` times so far, and is left or entered once more. Without
 * an upper bound, counts beyond the lower one make no difference. */
static zp_status repeat(struct automaton *a, uint32_t node, uint32_t count, uint32_t stacks,
                        zp_err *err)
{
    const struct grammar_node *n = &a->g->nodes[node];
    bool bounded = n->max != GRAMMAR_UNBOUNDED;
    if (count >= n->min) ZP_TRY(arrive(a, n->next, stacks, err));
    if (bounded && count == n->max) return ZP_OK;
    if (bounded || count < n->min) count++;
    ZP_TRY(push(a, stacks, node, count, &stacks, err));
    return arrive(a, a->g->rules[n->other].start, stacks, err);
}

/* The end of a rule: goes on where its callers wait. */
static zp_status leave(struct automaton *a, uint32_t stacks, zp_err *err)
{
    for (uint32_t i = 0; i < a->sets[stacks].n; i++) {
        struct stack_item item = a->items[a->sets[stacks].first + i];
        if (item.node == BOTTOM) a->accepts = true;
        else if (a->g->nodes[item.node].kind == NODE_REPEAT)
            ZP_TRY(repeat(a, item.node, item.count, item.below, err));
        else ZP_TRY(arrive(a, item.node, item.below, err));
    }
    return ZP_OK;
}

static zp_status look_at(struct automaton *a, uint32_t node, zp_err *err)
{
    const struct grammar_node *n = &a->g->nodes[node];
    uint32_t stacks = a->reached[node];
    switch ((enum grammar_kind)n->kind) {
    case NODE_BYTES: return ZP_OK;
    case NODE_END: return leave(a, stacks, err);
    case NODE_EITHER:
        ZP_TRY(arrive(a, n->next, stacks, err));
        return arrive(a, n->other, stacks, err);
    case NODE_REPEAT: return repeat(a, node, 0, stacks, err);
    case NODE_CALL: /* at the end of a rule there is nothing to come back to */
        if (a->g->nodes[n->next].kind != NODE_END)
            ZP_TRY(push(a, stacks, n->next, 0, &stacks, err));
        return arrive(a, a->g->rules[n->other].start, stacks, err);
    }
    return ZP_OK;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The number of the state with the last ways from `first` on. */
static zp_status find_state(struct automaton *a, uint32_t first, bool accepts, uint32_t *out,
                            zp_err *err)
{
    uint32_t n = a->n_ways - first;
    size_t bytes = n * sizeof *a->ways, n_class = a->g->n_class;
    struct number_table *t = &a->state_table;
    *out = AUTOMATON_DEAD;
    if (n == 0 && !accepts) return ZP_OK;
    ZP_TRY(grow_table(a, t, hash_state, err));
    uint32_t at = (uint32_t)hash_bytes(a->ways + first, bytes, accepts) & t->mask;
    for (; (*out = t->slots[at]) != 0; at = (at + 1) & t->mask) {
        const struct automaton_state *s = &a->states[*out];
        if (s->n != n || s->accepts != accepts) continue;
        if (memcmp(a->ways + s->first, a->ways + first, bytes) != 0) continue;
        a->n_ways = first;
        return ZP_OK;
    }
    if (a->n_states == a->room_states) {
        uint32_t max = (uint32_t)(MAX_EDGES / n_class), before = a->room_states;
        MAKE_ROOM(a, states, max < MAX_STATES ? max : MAX_STATES, err);
        uint32_t *edges = mem_resize(MEM_META, a->edges, a->room_states * n_class * sizeof *edges);
        if (edges == NULL) a->room_states = before;
        ZP_FAIL_IF(edges == NULL, err, ZP_NO_MEMORY, "not enough memory for a grammar");
        a->edges = edges;
    }
    memset(a->edges + a->n_states * n_class, 0xff, n_class * sizeof *a->edges);
    a->states[a->n_states] = (struct automaton_state){ first, n, accepts };
    t->used++;
    *out = t->slots[at] = a->n_states++;
    return ZP_OK;
}

/* Follows what was arrived at until only nodes that wait for a byte are left. */
static zp_status settle(struct automaton *a, uint32_t *out, zp_err *err)
{
    uint32_t first = a->n_ways;
    while (a->n_queue > 0) {
        uint32_t node = a->queue[a->queue_begin];
        a->queue_begin = (a->queue_begin + 1) % a->g->n_nodes;
        a->n_queue--;
        a->marks[node] = 0;
        ZP_TRY(look_at(a, node, err));
    }
    qsort(a->touched, a->n_touched, sizeof *a->touched, compare_numbers); // A4
    for (uint32_t i = 0; i < a->n_touched; i++) {
        uint32_t node = a->touched[i];
        if (a->g->nodes[node].kind != NODE_BYTES) continue;
        MAKE_ROOM(a, ways, MAX_WAYS, err);
        a->ways[a->n_ways++] = (struct automaton_way){ node, a->reached[node] };
    }
    return find_state(a, first, a->accepts, out, err);
}

static void forget_step(struct automaton *a)
{
    for (uint32_t i = 0; i < a->n_touched; i++) {
        a->reached[a->touched[i]] = NO_STACKS;
        a->marks[a->touched[i]] = 0;
    }
    a->n_touched = a->n_queue = a->n_merged = 0;
    a->accepts = false;
}

zp_status automaton_find_step(struct automaton *a, uint32_t state, uint8_t class, uint32_t *next,
                              zp_err *err)
{
    struct automaton_state s = a->states[state];
    uint8_t byte = a->g->byte_of[class];
    zp_status status = ZP_OK;
    for (uint32_t i = 0; i < s.n && status == ZP_OK; i++) {
        struct automaton_way way = a->ways[s.first + i];
        const struct grammar_node *n = &a->g->nodes[way.node];
        a->work++;
        if (n->low <= byte && byte <= n->high) status = arrive(a, n->next, way.stacks, err);
    }
    uint32_t n_ways = a->n_ways;
    if (status == ZP_OK) status = settle(a, next, err);
    if (status != ZP_OK) a->n_ways = n_ways;
    else a->edges[(size_t)state * a->g->n_class + class] = *next;
    forget_step(a);
    return status;
}

/* ---- life ----------------------------------------------------------------------------------- */

static zp_status fill(struct automaton *a, zp_err *err)
{
    size_t n_nodes = a->g->n_nodes;
    uint32_t bottom;
    ZP_ALLOC(a->reached, MEM_META, n_nodes, err, "a grammar");
    ZP_ALLOC(a->queue, MEM_META, n_nodes, err, "a grammar");
    ZP_ALLOC(a->marks, MEM_META, n_nodes, err, "a grammar");
    ZP_ALLOC(a->touched, MEM_META, n_nodes, err, "a grammar");
    ZP_ALLOC(a->memo, MEM_META, N_MEMO, err, "a grammar");
    memset(a->reached, 0, n_nodes * sizeof *a->reached);
    memset(a->marks, 0, n_nodes);
    memset(a->memo, 0, N_MEMO * sizeof *a->memo);
    MAKE_ROOM(a, ways, MAX_WAYS, err); /* a state may have none: no list is NULL */
    MAKE_ROOM(a, sets, MAX_SETS, err);
    a->sets[a->n_sets++] = (struct stack_set){ 0 };
    MAKE_ROOM(a, states, MAX_STATES, err);
    ZP_ALLOC(a->edges, MEM_META, (size_t)a->room_states * a->g->n_class, err, "a grammar");
    a->states[a->n_states++] = (struct automaton_state){ 0 };
    memset(a->edges, 0, a->g->n_class * sizeof *a->edges); /* the dead stay dead */
    ZP_TRY(push(a, NO_STACKS, BOTTOM, 0, &bottom, err));
    zp_status status = arrive(a, a->g->rules[a->g->root].start, bottom, err);
    if (status == ZP_OK) status = settle(a, &a->start, err);
    forget_step(a);
    return status;
}

zp_status automaton_open(struct automaton *a, const struct grammar *g, zp_err *err)
{
    *a = (struct automaton){ .g = g };
    zp_status status = fill(a, err);
    if (status != ZP_OK) automaton_close(a);
    return status;
}

void automaton_close(struct automaton *a)
{
    mem_free(a->items);
    mem_free(a->sets);
    mem_free(a->ways);
    mem_free(a->states);
    mem_free(a->edges);
    mem_free(a->set_table.slots);
    mem_free(a->state_table.slots);
    mem_free(a->reached);
    mem_free(a->queue);
    mem_free(a->marks);
    mem_free(a->touched);
    mem_free(a->merged);
    mem_free(a->memo);
    *a = (struct automaton){ 0 };
}

void automaton_enter(struct automaton *a, struct automaton_place *p)
{
    *p = (struct automaton_place){ .state = a->start, .next = a->places };
    if (p->next) p->next->previous = p;
    a->places = p;
}

void automaton_leave(struct automaton *a, struct automaton_place *p)
{
    if (p->previous) p->previous->next = p->next;
    else if (a->places == p) a->places = p->next;
    if (p->next) p->next->previous = p->previous;
    *p = (struct automaton_place){ 0 };
}

/* ---- keeping what is in use ------------------------------------------------------------------ */

/* numbers: (n_sets) of `from`: those that the sets have in `to`, 0 = not moved yet. */
static zp_status move_set(const struct automaton *from, struct automaton *to, uint32_t set,
                          uint32_t *numbers, zp_err *err)
{
    const struct stack_set *s = &from->sets[set];
    if (set == NO_STACKS || numbers[set]) return ZP_OK;
    for (uint32_t i = 0; i < s->n; i++)
        ZP_TRY(move_set(from, to, from->items[s->first + i].below, numbers, err));
    uint32_t mark = to->n_merged;
    for (uint32_t i = 0; i < s->n; i++) {
        struct stack_item item = from->items[s->first + i];
        item.below = numbers[item.below];
        ZP_TRY(put_item(to, item, err));
    }
    return find_set(to, mark, &numbers[set], err);
}

static zp_status move_state(const struct automaton *from, struct automaton *to, uint32_t state,
                            uint32_t *numbers, uint32_t *out, zp_err *err)
{
    const struct automaton_state *s = &from->states[state];
    uint32_t first = to->n_ways;
    for (uint32_t i = 0; i < s->n; i++) {
        struct automaton_way way = from->ways[s->first + i];
        ZP_TRY(move_set(from, to, way.stacks, numbers, err));
        MAKE_ROOM(to, ways, MAX_WAYS, err);
        to->ways[to->n_ways++] = (struct automaton_way){ way.node, numbers[way.stacks] };
    }
    return find_state(to, first, s->accepts, out, err);
}

static zp_status move_places(const struct automaton *from, struct automaton *to,
                             uint32_t *states, uint32_t *numbers, zp_err *err)
{
    size_t i = 0;
    for (const struct automaton_place *p = from->places; p; p = p->next)
        ZP_TRY(move_state(from, to, p->state, numbers, &states[i++], err));
    return ZP_OK;
}

/* The states of all places, in fresh tables. When that fails, all stays as it is. */
static zp_status collect(struct automaton *a, zp_err *err)
{
    struct automaton fresh;
    uint32_t *states = NULL, *numbers = mem_zalloc(MEM_SCRATCH, a->n_sets * sizeof *numbers);
    size_t n = 0, i = 0;
    for (const struct automaton_place *p = a->places; p; p = p->next) n++;
    states = mem_array(MEM_SCRATCH, n, sizeof *states);
    zp_status status = automaton_open(&fresh, a->g, err);
    if (status == ZP_OK && (states == NULL || numbers == NULL))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory to tidy up a grammar");
    if (status == ZP_OK) status = move_places(a, &fresh, states, numbers, err);
    if (status == ZP_OK) {
        struct automaton old = *a;
        for (struct automaton_place *p = a->places; p; p = p->next) p->state = states[i++];
        fresh.places = a->places;
        fresh.age = a->age + 1;
        *a = fresh;
        fresh = old;
    }
    mem_free(states);
    mem_free(numbers);
    automaton_close(&fresh);
    return status;
}

zp_status automaton_prepare(struct automaton *a, zp_err *err)
{
    uint32_t most = (uint32_t)(MAX_EDGES / a->g->n_class);
    if (most > MAX_STATES) most = MAX_STATES;
    bool full = a->n_items > MAX_ITEMS / 2 || a->n_sets > MAX_SETS / 2 ||
                a->n_ways > MAX_WAYS / 2 || a->n_states > most / 2;
    if (full) ZP_TRY(collect(a, err));
    a->work = 0;
    return ZP_OK;
}

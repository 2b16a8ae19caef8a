/* grammar_seal.c: what is found out about a whole grammar, once, before it is used.
 * S1 heights above GRAMMAR_MAX_DEPTH are all stored as one more than it, so that a node's height
 *    changes that many times at most while it is looked for. */
#include <assert.h>
#include <string.h>

#include "model/grammar.h"

#define TOO_HIGH (GRAMMAR_MAX_DEPTH + 1)
#define MAX_EMPTY_ROUNDS 64

/* ---- heights and empty texts ----------------------------------------------------------------- */

/* Nodes whose values wait to be computed anew, and for each node those that look at it. */
struct spread {
    struct grammar *g;
    uint32_t *first;             /* (n_nodes + 1): where its list begins in `watchers` */
    uint32_t *watchers, *queue;  /* (2 * n_nodes); (n_nodes), a ring */
    bool *queued;                /* (n_nodes) */
    uint32_t begin, n;           /* of the ring */
};

static uint32_t start_of(const struct grammar *g, uint32_t rule)
{
    return g->rules[rule].start;
}

/* The nodes that a node's values depend on. */
static uint32_t parts_of(const struct grammar *g, uint32_t node, uint32_t part[2])
{
    const struct grammar_node *n = &g->nodes[node];
    if (n->kind == NODE_END) return 0;
    part[0] = n->next;
    if (n->kind == NODE_BYTES) return 1;
    part[1] = n->kind == NODE_EITHER ? n->other : start_of(g, n->other);
    return 2;
}

static zp_status open_spread(struct spread *s, struct grammar *g, zp_err *err)
{
    uint32_t part[2];
    *s = (struct spread){ .g = g };
    ZP_ALLOC(s->first, MEM_SCRATCH, (size_t)g->n_nodes + 2, err, "a grammar");
    ZP_ALLOC(s->watchers, MEM_SCRATCH, 2 * (size_t)g->n_nodes, err, "a grammar");
    ZP_ALLOC(s->queue, MEM_SCRATCH, g->n_nodes, err, "a grammar");
    ZP_ALLOC(s->queued, MEM_SCRATCH, g->n_nodes, err, "a grammar");
    memset(s->first, 0, ((size_t)g->n_nodes + 2) * sizeof *s->first);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = parts_of(g, i, part); k-- > 0;) s->first[part[k] + 2]++;
    for (uint32_t i = 0; i < g->n_nodes; i++) s->first[i + 2] += s->first[i + 1];
    for (uint32_t i = 0; i < g->n_nodes; i++) /* moves first[i + 1] to where list i + 1 begins */
        for (uint32_t k = parts_of(g, i, part); k-- > 0;) s->watchers[s->first[part[k] + 1]++] = i;
    for (uint32_t i = 0; i < g->n_nodes; i++) s->queue[i] = i, s->queued[i] = true;
    s->n = g->n_nodes;
    return ZP_OK;
}

static void close_spread(struct spread *s)
{
    mem_free(s->first);
    mem_free(s->watchers);
    mem_free(s->queue);
    mem_free(s->queued);
}

/* A call keeps a place to go on at, but for one at the very end of its rule. */
static uint32_t call_height(uint32_t callee, uint32_t next, bool last)
{
    if (callee == GRAMMAR_NO_WAY || next == GRAMMAR_NO_WAY) return GRAMMAR_NO_WAY;
    uint32_t inside = last ? callee : callee + 1;
    uint32_t height = inside > next ? inside : next;
    return height < TOO_HIGH ? height : TOO_HIGH; // S1
}

/* The node's values from those it depends on; true: they have changed. */
static bool compute(struct grammar *g, struct grammar_node *n)
{
    const struct grammar_node *next = &g->nodes[n->next], *other = NULL;
    uint32_t height = next->height;
    bool nullable = next->nullable;
    if (n->kind == NODE_EITHER) other = &g->nodes[n->other];
    if (n->kind == NODE_CALL || n->kind == NODE_REPEAT) other = &g->nodes[start_of(g, n->other)];
    switch ((enum grammar_kind)n->kind) {
    case NODE_END:
        height = 0;
        nullable = true;
        break;
    case NODE_BYTES:
        if (n->low > n->high) height = GRAMMAR_NO_WAY;
        nullable = false;
        break;
    case NODE_EITHER:
        height = other->height < height ? other->height : height;
        nullable = nullable || other->nullable;
        break;
    case NODE_CALL:
        height = call_height(other->height, height, next->kind == NODE_END);
        nullable = nullable && other->nullable;
        break;
    case NODE_REPEAT:
        if (n->min > 0) height = call_height(other->height, height, false);
        nullable = nullable && (n->min == 0 || other->nullable);
        break;
    }
    bool changed = height != n->height || nullable != n->nullable;
    n->height = height;
    n->nullable = nullable;
    return changed;
}

static zp_status find_heights(struct grammar *g, zp_err *err)
{
    struct spread s;
    zp_status status = open_spread(&s, g, err);
    for (uint32_t i = 0; i < g->n_nodes; i++) g->nodes[i].height = GRAMMAR_NO_WAY;
    while (status == ZP_OK && s.n > 0) {
        uint32_t node = s.queue[s.begin];
        s.begin = s.begin + 1 == g->n_nodes ? 0 : s.begin + 1;
        s.n--;
        s.queued[node] = false;
        if (!compute(g, &g->nodes[node])) continue;
        for (uint32_t i = s.first[node]; i < s.first[node + 1]; i++) {
            uint32_t watcher = s.watchers[i];
            if (s.queued[watcher]) continue;
            s.queued[watcher] = true;
            s.queue[(s.begin + s.n++) % g->n_nodes] = watcher;
        }
    }
    close_spread(&s);
    return status;
}

/* ---- rules that begin with themselves -------------------------------------------------------- */

/* For each rule those that it may call before its first byte. */
struct firsts {
    const struct grammar *g;
    uint32_t *first, *rules; /* (n_rules + 1); (n_nodes) */
    uint32_t *seen, *stack;  /* (n_nodes): last rule that came by; nodes, later rules, to look at */
    uint32_t *at;            /* (n_rules): where its list is read; UINT32_MAX: done with */
    bool *open;              /* (n_rules): on the stack */
};

static zp_status open_firsts(struct firsts *f, const struct grammar *g, zp_err *err)
{
    size_t n = g->n_nodes > g->n_rules ? g->n_nodes : g->n_rules;
    *f = (struct firsts){ .g = g };
    ZP_ALLOC(f->first, MEM_SCRATCH, (size_t)g->n_rules + 1, err, "a grammar");
    ZP_ALLOC(f->rules, MEM_SCRATCH, g->n_nodes, err, "a grammar");
    ZP_ALLOC(f->seen, MEM_SCRATCH, g->n_nodes, err, "a grammar");
    ZP_ALLOC(f->stack, MEM_SCRATCH, n, err, "a grammar");
    ZP_ALLOC(f->at, MEM_SCRATCH, g->n_rules, err, "a grammar");
    ZP_ALLOC(f->open, MEM_SCRATCH, g->n_rules, err, "a grammar");
    memset(f->seen, 0xff, g->n_nodes * sizeof *f->seen);
    memset(f->open, 0, g->n_rules * sizeof *f->open);
    return ZP_OK;
}

static void close_firsts(struct firsts *f)
{
    mem_free(f->first);
    mem_free(f->rules);
    mem_free(f->seen);
    mem_free(f->stack);
    mem_free(f->at);
    mem_free(f->open);
}

static void look_at(struct firsts *f, uint32_t node, uint32_t rule, uint32_t *n)
{
    if (f->seen[node] == rule) return;
    f->seen[node] = rule;
    f->stack[(*n)++] = node;
}

/* Appends the rules that `rule` may begin with. All lists together have at most as many entries as
 * there are nodes (G2). */
static uint32_t list_firsts(struct firsts *f, uint32_t rule, uint32_t n_listed)
{
    const struct grammar *g = f->g;
    uint32_t n = 0;
    look_at(f, start_of(g, rule), rule, &n);
    while (n > 0) {
        const struct grammar_node *node = &g->nodes[f->stack[--n]];
        bool calls = node->kind == NODE_CALL || node->kind == NODE_REPEAT;
        assert(!calls || n_listed < g->n_nodes); // G2
        if (calls) f->rules[n_listed++] = node->other;
        if (node->kind == NODE_EITHER) look_at(f, node->other, rule, &n);
        bool over = calls && g->nodes[start_of(g, node->other)].nullable;
        if (node->kind == NODE_REPEAT && node->min == 0) over = true;
        if (node->kind == NODE_EITHER || over) look_at(f, node->next, rule, &n);
    }
    return n_listed;
}

static zp_status fail_cycle(const struct firsts *f, uint32_t n, uint32_t rule, zp_err *err)
{
    const struct grammar *g = f->g;
    const char *name = g->rules[rule].name;
    while (name == NULL && n > 0 && f->stack[n - 1] != rule) name = g->rules[f->stack[--n]].name;
    ZP_FAIL(err, ZP_BAD_INPUT, "%s begins with itself, so that it never comes to a first character",
            name ? name : "a rule");
}

/* Goes from rule to first rule, as deep as it goes. */
static zp_status follow(struct firsts *f, uint32_t from, zp_err *err)
{
    uint32_t n = 0;
    if (f->at[from] == UINT32_MAX) return ZP_OK;
    f->stack[n++] = from;
    f->open[from] = true;
    while (n > 0) {
        uint32_t rule = f->stack[n - 1];
        if (f->at[rule] == f->first[rule + 1]) {
            f->at[rule] = UINT32_MAX;
            f->open[rule] = false;
            n--;
            continue;
        }
        uint32_t next = f->rules[f->at[rule]++];
        if (f->open[next]) return fail_cycle(f, n, next, err);
        if (f->at[next] == UINT32_MAX) continue;
        f->stack[n++] = next;
        f->open[next] = true;
    }
    return ZP_OK;
}

static zp_status check_beginnings(const struct grammar *g, zp_err *err)
{
    struct firsts f;
    zp_status status = open_firsts(&f, g, err);
    uint32_t n = 0;
    for (uint32_t i = 0; status == ZP_OK && i < g->n_rules; i++) {
        f.first[i] = f.at[i] = n;
        f.first[i + 1] = n = list_firsts(&f, i, n);
    }
    for (uint32_t i = 0; status == ZP_OK && i < g->n_rules; i++) status = follow(&f, i, err);
    close_firsts(&f);
    return status;
}

/* Rounds that may be empty are all open at once. They need not be counted where there is no upper
 * bound: the lower one is then reached without a byte. */
static zp_status check_repeats(struct grammar *g, zp_err *err)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct grammar_node *n = &g->nodes[i];
        if (n->kind != NODE_REPEAT || !g->nodes[start_of(g, n->other)].nullable) continue;
        n->min = 0;
        ZP_FAIL_IF(n->max != GRAMMAR_UNBOUNDED && n->max > MAX_EMPTY_ROUNDS, err, ZP_BAD_INPUT,
                   "up to %u repetitions of what may be empty; at most %d, or without a bound",
                   n->max, MAX_EMPTY_ROUNDS);
    }
    return ZP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void find_classes(struct grammar *g)
{
    bool begins[257] = { true };
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct grammar_node *n = &g->nodes[i];
        if (n->kind != NODE_BYTES || n->low > n->high) continue;
        begins[n->low] = begins[n->high + 1] = true;
    }
    g->n_class = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (begins[byte]) g->byte_of[g->n_class++] = (uint8_t)byte;
        g->class_of[byte] = (uint8_t)(g->n_class - 1);
    }
}

zp_status grammar_seal(struct grammar *g, uint32_t root)
{
    zp_err *err = g->err;
    if (grammar_failed(g)) return g->status;
    for (uint32_t i = 0; i < g->n_rules; i++)
        ZP_FAIL_IF(!g->rules[i].defined, err, ZP_BAD_INPUT, "%s is called, but not defined",
                   g->rules[i].name ? g->rules[i].name : "a rule");
    g->root = root;
    ZP_TRY(find_heights(g, err));
    ZP_TRY(check_beginnings(g, err));
    ZP_TRY(check_repeats(g, err));
    uint32_t height = g->nodes[start_of(g, root)].height;
    ZP_FAIL_IF(height == GRAMMAR_NO_WAY, err, ZP_BAD_INPUT, "nothing can satisfy the grammar");
    ZP_FAIL_IF(height == TOO_HIGH, err, ZP_BAD_INPUT,
               "the shortest text that satisfies the grammar nests deeper than %u levels",
               GRAMMAR_MAX_DEPTH);
    find_classes(g);
    return ZP_OK;
}

/* rulexpr.c: expressions, and nodes made from them.
 * Where the number of characters is bounded, an expression has a node for each number read so far:
 * a vector of nodes. Without bounds the vector has one.
 * X1 vectors are taken and given back as a stack, and referred to by place: it may move. */
#include "model/rulexpr.h"

#include <string.h>

#define MAX_EXPRS (1u << 20)
#define MAX_TEXT ((size_t)4 << 20)
#define MAX_VECTORS (1u << 22)
#define WRITTEN_OUT 4u       /* repetitions up to here need no rule */

void rulexpr_free(struct rulexpr *r)
{
    mem_free(r->exprs);
    mem_free(r->list);
    mem_free(r->open);
    mem_free(r->vectors);
    buffer_free(&r->text);
    *r = (struct rulexpr){ 0 };
}

/* Room for `more` entries behind n; false: recorded why not. */
static bool make_room(struct rulexpr *r, void **array, uint32_t n, uint32_t more, uint32_t *room,
                      uint32_t max, size_t size)
{
    if (grammar_failed(r->g)) return false;
    if (more <= *room - n) return true;
    uint32_t wanted = *room ? *room : 64;
    while (wanted < max && wanted - n < more) wanted *= 2;
    if (wanted - n < more) {
        grammar_fail(r->g, ZP_BAD_INPUT, "the expression is too large");
        return false;
    }
    void *grown = mem_resize(MEM_SCRATCH, *array, wanted * size);
    if (grown == NULL) grammar_fail(r->g, ZP_NO_MEMORY, "not enough memory for an expression");
    if (grown == NULL) return false;
    *array = grown;
    *room = wanted;
    return true;
}

/* ---- expressions ----------------------------------------------------------------------------- */

static uint32_t add(struct rulexpr *r, struct expr e)
{
    void *exprs = r->exprs;
    if (!make_room(r, &exprs, r->n_exprs, 1, &r->room_exprs, MAX_EXPRS, sizeof e)) return 0;
    r->exprs = exprs;
    r->exprs[r->n_exprs] = e;
    return r->n_exprs++;
}

uint32_t rulexpr_text(struct rulexpr *r, const void *text, size_t size)
{
    uint32_t at = (uint32_t)r->text.size;
    zp_err err = { 0 };
    if (grammar_failed(r->g)) return 0;
    if (size == 0) return rulexpr_list(r, EXPR_SEQUENCE, r->n_open);
    if (r->text.max == 0) r->text = buffer_with_max(MEM_SCRATCH, MAX_TEXT);
    if (buffer_append(&r->text, text, size, &err) != ZP_OK)
        grammar_fail(r->g, err.code, "%s", err.message);
    return add(r, (struct expr){ EXPR_TEXT, .at = at, .n = (uint32_t)size });
}

uint32_t rulexpr_call(struct rulexpr *r, uint32_t rule)
{
    return add(r, (struct expr){ EXPR_CALL, .at = rule });
}

uint32_t rulexpr_repeat(struct rulexpr *r, uint32_t expr, uint32_t min, uint32_t max)
{
    return add(r, (struct expr){ EXPR_REPEAT, .at = expr, .min = min, .max = max });
}

void rulexpr_member(struct rulexpr *r, uint32_t expr)
{
    void *open = r->open;
    if (!make_room(r, &open, r->n_open, 1, &r->room_open, MAX_EXPRS, sizeof *r->open)) return;
    r->open = open;
    r->open[r->n_open++] = expr;
}

uint32_t rulexpr_list(struct rulexpr *r, enum expr_op op, uint32_t mark)
{
    uint32_t n = r->n_open - mark, at = r->n_list;
    void *list = r->list;
    if (n == 1) return r->open[--r->n_open];
    if (!make_room(r, &list, at, n, &r->room_list, MAX_EXPRS, sizeof *r->list)) return 0;
    r->list = list;
    if (n > 0) memcpy(r->list + at, r->open + mark, n * sizeof *r->list);
    r->n_list += n;
    r->n_open = mark;
    return add(r, (struct expr){ (uint8_t)op, .at = at, .n = n });
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A new vector that holds `node`; false: recorded why not. */
static bool take(struct rulexpr *r, uint32_t node, uint32_t *out)
{
    void *vectors = r->vectors;
    if (!make_room(r, &vectors, r->n_vectors, r->n_count, &r->room_vectors, MAX_VECTORS,
                   sizeof *r->vectors))
        return false;
    r->vectors = vectors;
    *out = r->n_vectors;
    r->n_vectors += r->n_count;
    for (uint32_t i = 0; i < r->n_count; i++) r->vectors[*out + i] = node;
    return true;
}

static void copy(struct rulexpr *r, uint32_t to, uint32_t from)
{
    memcpy(r->vectors + to, r->vectors + from, r->n_count * sizeof *r->vectors);
}

/* What follows when one character more than `count` were read. */
static uint32_t after_one(const struct rulexpr *r, uint32_t next, uint32_t count)
{
    if (count + 1 < r->n_count) return r->vectors[next + count + 1];
    return r->max_count == GRAMMAR_UNBOUNDED ? r->vectors[next + count] : GRAMMAR_NEVER;
}

static void make(struct rulexpr *r, uint32_t expr, uint32_t next, uint32_t out);

static void make_item(struct rulexpr *r, const struct expr *e, uint32_t next, uint32_t out)
{
    for (uint32_t i = 0; i < r->n_count; i++) {
        uint32_t then = after_one(r, next, i);
        r->vectors[out + i] = e->op == EXPR_CALL
                                  ? grammar_call(r->g, e->at, then)
                                  : grammar_text(r->g, r->text.data + e->at, e->n, then);
    }
}

static void make_sequence(struct rulexpr *r, const struct expr *e, uint32_t next, uint32_t out)
{
    uint32_t one;
    copy(r, out, next);
    if (!take(r, GRAMMAR_NEVER, &one)) return;
    for (uint32_t i = e->n; i-- > 0 && !grammar_failed(r->g);) {
        make(r, r->list[e->at + i], out, one);
        copy(r, out, one);
    }
}

/* out: what the way `also` does, or what `out` does. */
static void join(struct rulexpr *r, uint32_t also, uint32_t out)
{
    for (uint32_t i = 0; i < r->n_count; i++)
        r->vectors[out + i] = grammar_either(r->g, r->vectors[also + i], r->vectors[out + i]);
}

static void make_choice(struct rulexpr *r, const struct expr *e, uint32_t next, uint32_t out)
{
    uint32_t one;
    for (uint32_t i = 0; i < r->n_count; i++) r->vectors[out + i] = GRAMMAR_NEVER;
    if (!take(r, GRAMMAR_NEVER, &one)) return;
    for (uint32_t i = e->n; i-- > 0 && !grammar_failed(r->g);) {
        make(r, r->list[e->at + i], next, one);
        join(r, one, out);
    }
}

/* out: the expression any number of times, then next. */
static void make_loop(struct rulexpr *r, uint32_t expr, uint32_t next, uint32_t out)
{
    uint32_t once;
    for (uint32_t i = 0; i < r->n_count; i++) r->vectors[out + i] = grammar_open_either(r->g);
    if (!take(r, GRAMMAR_NEVER, &once)) return;
    make(r, expr, out, once);
    for (uint32_t i = 0; i < r->n_count; i++)
        grammar_set_either(r->g, r->vectors[out + i], r->vectors[once + i], r->vectors[next + i]);
}

static void make_written_out(struct rulexpr *r, const struct expr *e, uint32_t next, uint32_t out)
{
    uint32_t once, optional = e->max == GRAMMAR_UNBOUNDED ? 0 : e->max - e->min;
    copy(r, out, next);
    if (e->max == GRAMMAR_UNBOUNDED) make_loop(r, e->at, next, out);
    if (!take(r, GRAMMAR_NEVER, &once)) return;
    for (uint32_t i = 0; i < optional + e->min && !grammar_failed(r->g); i++) {
        make(r, e->at, out, once);
        if (i < optional) join(r, next, once);
        copy(r, out, once);
    }
}

/* Without bounds on the number of characters only: the rule is the same wherever it is called. */
static void make_counted(struct rulexpr *r, const struct expr *e, uint32_t next, uint32_t out)
{
    uint32_t end, start;
    if (!take(r, GRAMMAR_END, &end) || !take(r, GRAMMAR_NEVER, &start)) return;
    make(r, e->at, end, start);
    uint32_t rule = grammar_rule(r->g, r->vectors[start]);
    r->vectors[out] = grammar_repeat(r->g, rule, e->min, e->max, r->vectors[next]);
}

/* Sets the vector out to nodes for the expression, behind which next follows. Depth: that of the
 * expression. */
static void make(struct rulexpr *r, uint32_t expr, uint32_t next, uint32_t out)
{
    if (!grammar_work(r->g, r->n_count)) return;
    const struct expr e = r->exprs[expr];
    uint32_t mark = r->n_vectors;
    bool bounded = r->max_count != GRAMMAR_UNBOUNDED || r->min_count > 0;
    uint32_t times = e.max == GRAMMAR_UNBOUNDED ? e.min : e.max;
    switch ((enum expr_op)e.op) {
    case EXPR_TEXT:
    case EXPR_CALL: make_item(r, &e, next, out); break;
    case EXPR_SEQUENCE: make_sequence(r, &e, next, out); break;
    case EXPR_CHOICE: make_choice(r, &e, next, out); break;
    case EXPR_REPEAT:
        if (!bounded && times > WRITTEN_OUT) make_counted(r, &e, next, out);
        else make_written_out(r, &e, next, out);
        break;
    }
    r->n_vectors = mark;
}

/* The least and the most characters that the expression has. Depth: that of the expression. */
static void find_lengths(const struct rulexpr *r, uint32_t expr, uint32_t *min, uint32_t *max)
{
    const struct expr *e = &r->exprs[expr];
    uint64_t low = 1, high = 1, times = e->max;
    uint32_t a, b;
    if (e->op == EXPR_REPEAT) {
        find_lengths(r, e->at, &a, &b);
        low = (uint64_t)a * e->min;
        high = b == 0 ? 0 : b == GRAMMAR_UNBOUNDED || times == GRAMMAR_UNBOUNDED ? UINT32_MAX
                                                                                 : b * times;
    }
    for (uint32_t i = 0; i < e->n && (e->op == EXPR_SEQUENCE || e->op == EXPR_CHOICE); i++) {
        find_lengths(r, r->list[e->at + i], &a, &b);
        bool adds = e->op == EXPR_SEQUENCE && i > 0;
        low = adds ? low + a : i > 0 && low < a ? low : a;
        high = adds ? high + b : i > 0 && high > b ? high : b;
    }
    if (e->op == EXPR_SEQUENCE && e->n == 0) low = high = 0;
    *min = low < UINT32_MAX ? (uint32_t)low : UINT32_MAX;
    *max = high < UINT32_MAX ? (uint32_t)high : GRAMMAR_UNBOUNDED;
}

uint32_t rulexpr_nodes_of_length(struct rulexpr *r, uint32_t expr, uint32_t min, uint32_t max,
                                 uint32_t next)
{
    uint32_t end, start, least, most;
    if (min > max || grammar_failed(r->g)) return GRAMMAR_NEVER;
    find_lengths(r, expr, &least, &most);
    if (most <= max) max = GRAMMAR_UNBOUNDED; /* bounds that say nothing cost nothing */
    if (least >= min) min = 0;
    r->min_count = min;
    r->max_count = max;
    r->n_count = max == GRAMMAR_UNBOUNDED ? min : max;
    r->n_count += r->n_count < MAX_VECTORS; /* no overflow: what is too large fails in take */
    r->n_vectors = 0;
    if (!take(r, next, &end) || !take(r, GRAMMAR_NEVER, &start)) return GRAMMAR_NEVER;
    for (uint32_t i = 0; i < min; i++) r->vectors[end + i] = GRAMMAR_NEVER;
    make(r, expr, end, start);
    return grammar_failed(r->g) ? GRAMMAR_NEVER : r->vectors[start];
}

uint32_t rulexpr_nodes(struct rulexpr *r, uint32_t expr, uint32_t next)
{
    return rulexpr_nodes_of_length(r, expr, 0, GRAMMAR_UNBOUNDED, next);
}

/* gaterank.c: costs that order single gates.
 * Owns: names of the orders, ranks. Does not know: how the numbers were measured.
 * Numbers of different kinds have no common unit; their ranks do. */
#include "evap/gaterank.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/mem.h"

static const char *const names[] = { "local", "fisher", "sum" };

zp_status gaterank_find(const char *name, enum gaterank *out, zp_err *err)
{
    *out = GATERANK_LOCAL;
    if (!name) return ZP_OK;
    for (size_t i = 0; i < ZP_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum gaterank)i;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_USAGE, "no order of gates named '%.40s'; known: local fisher sum", name);
}

const char *gaterank_name(enum gaterank kind)
{
    return names[kind];
}

struct valued {
    double value;
    size_t at;
};

static int by_value(const void *a, const void *b)
{
    const struct valued *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Adds the rank of each open gate's value to its cost. */
static void add_ranks(struct valued *room, size_t n, const uint8_t *open, const double *value,
                      double *cost)
{
    size_t count = 0, end;
    for (size_t i = 0; i < n; i++)
        if (open[i]) room[count++] = (struct valued){ value[i], i };
    qsort(room, count, sizeof *room, by_value);
    for (size_t begin = 0; begin < count; begin = end) {
        for (end = begin + 1; end < count && room[end].value == room[begin].value;) end++;
        for (size_t i = begin; i < end; i++)
            cost[room[i].at] += (double)begin + (double)(end - begin - 1) / 2;
    }
}

zp_status gaterank_costs(enum gaterank kind, size_t n, const uint8_t *open, const double *local,
                         const double *fisher, double *cost, zp_err *err)
{
    struct valued *room;
    const double *value = kind == GATERANK_FISHER ? fisher : local;
    for (size_t i = 0; i < n; i++) cost[i] = open[i] && kind != GATERANK_SUM ? value[i] : 0.0;
    if (kind != GATERANK_SUM) return ZP_OK;
    ZP_ALLOC(room, MEM_EVAP, n + 1, err, "ranks of gates");
    add_ranks(room, n, open, local, cost);
    add_ranks(room, n, open, fisher, cost);
    mem_free(room);
    return ZP_OK;
}

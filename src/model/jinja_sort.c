/* jinja_sort.c: stable merge sort of template values by a key: comparisons may fail, so the C
 * library's sort will not do. */
#include "model/jinja_sort.h"

#include <string.h>

struct keyed {
    struct jv key, item;
};

static zp_status merge(struct jinja *c, const struct keyed *a, size_t n_a, const struct keyed *b,
                       size_t n_b, struct keyed *out, bool reverse)
{
    size_t i = 0, j = 0;
    while (i < n_a && j < n_b) {
        int order;
        ZP_TRY(jv_compare(c, b[j].key, a[i].key, &order));
        bool take_b =
            order != 2 && (reverse ? order > 0 : order < 0); /* equal ones keep their places */
        *out++ = take_b ? b[j++] : a[i++];
    }
    while (i < n_a) *out++ = a[i++];
    while (j < n_b) *out++ = b[j++];
    return ZP_OK;
}

zp_status jlist_sort(struct jinja *c, struct jlist *list, const struct jv *keys, bool reverse)
{
    size_t n = list->n;
    if (n < 2) return ZP_OK;
    struct keyed *from, *to;
    J_NEW(from, c, n);
    J_NEW(to, c, n);
    for (size_t i = 0; i < n; i++) from[i] = (struct keyed){ keys[i], list->items[i] };
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t n_a = n - at < width ? n - at : width;
            size_t n_b = n - at - n_a < width ? n - at - n_a : width;
            ZP_TRY(merge(c, from + at, n_a, from + at + n_a, n_b, to + at, reverse));
        }
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    for (size_t i = 0; i < n; i++) list->items[i] = from[i].item;
    return ZP_OK;
}

/* numrange.c: reads digits from the left. As long as they are those of a bound, the next one is
 * limited by it ("tight"); once they differ, it is free.
 * R1 a bound that is tight has the same number of digits before the point as the number read. */
#include "model/numrange.h"

#include <stdlib.h>
#include <string.h>

#include "model/jsonrules.h"

#define MOST_WHOLE 18 /* digits before the point */

/* ---- bounds ---------------------------------------------------------------------------------- */

static void set_power(struct decimal *d, uint32_t zeros)
{
    memset(d->whole, 0, sizeof d->whole);
    d->whole[0] = 1;
    d->n_whole = zeros + 1;
    d->n_fraction = 0;
}

/* digits: all of the number, the point standing before number `point`, which may be none of
 * them. */
static bool place_digits(struct decimal *d, const uint8_t *digits, long n, long point)
{
    long first = 0;
    while (first < n && digits[first] == 0) first++;
    while (n > first && digits[n - 1] == 0) n--;
    if (first == n) return true;
    d->excluded = point - first > MOST_WHOLE;
    if (d->excluded) set_power(d, MOST_WHOLE);
    if (d->excluded) return true;
    if (n - point > NUMRANGE_DIGITS) return false;
    for (long i = first; i < point; i++) d->whole[d->n_whole++] = i < n ? digits[i] : 0;
    for (long i = point; i < n; i++) d->fraction[d->n_fraction++] = i < first ? 0 : digits[i];
    return true;
}

bool decimal_read(const json_t *number, struct decimal *out)
{
    char text[JSONRULES_NUMBER];
    uint8_t digits[JSONRULES_NUMBER];
    const char *s = text;
    long n = 0, point = -1;
    *out = (struct decimal){ .is_set = true };
    jsonrules_number(number, text);
    if (*s == '-') out->negative = true, s++;
    for (; (*s >= '0' && *s <= '9') || *s == '.'; s++) {
        if (*s == '.') point = n;
        else digits[n++] = (uint8_t)(*s - '0');
    }
    if (point < 0) point = n;
    if (*s == 'e') point += strtol(s + 1, NULL, 10);
    bool fits = place_digits(out, digits, n, point);
    if (out->n_whole == 0 && out->n_fraction == 0) out->negative = false;
    return fits;
}

static int compare_sizes(const struct decimal *a, const struct decimal *b)
{
    if (a->n_whole != b->n_whole) return a->n_whole < b->n_whole ? -1 : 1;
    int order = memcmp(a->whole, b->whole, a->n_whole);
    uint32_t n = a->n_fraction < b->n_fraction ? a->n_fraction : b->n_fraction;
    if (order == 0) order = memcmp(a->fraction, b->fraction, n);
    if (order == 0) order = (a->n_fraction > b->n_fraction) - (a->n_fraction < b->n_fraction);
    return order < 0 ? -1 : order > 0;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

/* ---- digits ---------------------------------------------------------------------------------- */

/* Numbers without sign from low to high. Nodes are made once for each place and tightness. */
struct reader {
    struct grammar *g;
    struct decimal low, high;
    uint32_t n_whole, max_fraction, next; /* digits before the point now; what follows */
    uint32_t whole[MOST_WHOLE + 2][4], fraction[NUMRANGE_DIGITS + 1][4]; /* + 1; 0: not made */
};
enum { TIGHT_LOW = 1, TIGHT_HIGH = 2 };

static uint8_t digit_of(const uint8_t *digits, uint32_t n, uint32_t at)
{
    return at < n ? digits[at] : 0;
}

/* The number may end when `n` digits of its fraction are read. */
static bool may_end(const struct reader *r, uint32_t n, unsigned tight)
{
    bool at_low = r->low.n_fraction <= n, at_high = r->high.n_fraction <= n;
    if ((tight & TIGHT_LOW) && (!at_low || r->low.excluded)) return false;
    return !((tight & TIGHT_HIGH) && at_high && r->high.excluded);
}

typedef uint32_t reader_fn(struct reader *r, uint32_t at, unsigned tight);

/* A digit of least..most and what then comes: low and high are the bounds' digits here. */
static uint32_t one_digit(struct reader *r, uint8_t least, uint8_t low, uint8_t high, uint32_t at,
                          unsigned tight, reader_fn *then)
{
    uint8_t from = (tight & TIGHT_LOW) ? low : least, to = (tight & TIGHT_HIGH) ? high : 9;
    uint32_t node = GRAMMAR_NEVER;
    for (uint8_t d = from; d <= to;) {
        unsigned still = ((tight & TIGHT_LOW) && d == low ? TIGHT_LOW : 0) |
                         ((tight & TIGHT_HIGH) && d == high ? TIGHT_HIGH : 0);
        uint8_t last = d; /* digits that are free go together */
        while (still == 0 && last < to && !((tight & TIGHT_HIGH) && last + 1 == high)) last++;
        uint32_t rest = then(r, at + 1, still);
        node = grammar_either(r->g, grammar_bytes(r->g, (uint8_t)('0' + d), (uint8_t)('0' + last),
                                                  rest), node);
        d = (uint8_t)(last + 1);
    }
    return node;
}

static uint32_t fraction_digit(struct reader *r, uint32_t at, unsigned tight);

static uint32_t behind_fraction_digit(struct reader *r, uint32_t at, unsigned tight)
{
    uint32_t end = may_end(r, at, tight) ? r->next : GRAMMAR_NEVER;
    if (at >= r->max_fraction) return end;
    return grammar_either(r->g, end, fraction_digit(r, at, tight));
}

static uint32_t fraction_digit(struct reader *r, uint32_t at, unsigned tight)
{
    uint32_t *made = &r->fraction[at][tight];
    if (*made) return *made - 1;
    uint8_t low = digit_of(r->low.fraction, r->low.n_fraction, at);
    uint8_t high = digit_of(r->high.fraction, r->high.n_fraction, at);
    uint32_t node = one_digit(r, 0, low, high, at, tight, behind_fraction_digit);
    *made = node + 1;
    return node;
}

static uint32_t whole_digit(struct reader *r, uint32_t at, unsigned tight)
{
    uint32_t *made = &r->whole[at][tight], node;
    if (*made) return *made - 1;
    if (at == r->n_whole) {
        node = may_end(r, 0, tight) ? r->next : GRAMMAR_NEVER;
        if (r->max_fraction > 0)
            node = grammar_either(r->g, grammar_bytes(r->g, '.', '.', fraction_digit(r, 0, tight)),
                                  node);
    } else {
        uint8_t least = at == 0 && r->n_whole > 1 ? 1 : 0;
        node = one_digit(r, least, digit_of(r->low.whole, r->low.n_whole, at),
                         digit_of(r->high.whole, r->high.n_whole, at), at, tight, whole_digit);
    }
    *made = node + 1;
    return node;
}

/* A bound below 1 has the digit 0 before its point. */
static void fill_whole(struct decimal *d)
{
    if (d->n_whole == 0) d->whole[d->n_whole++] = 0;
}

static uint32_t unsigned_numbers(struct grammar *g, struct decimal low, struct decimal high,
                                 uint32_t max_fraction, uint32_t next)
{
    struct reader r = { .g = g, .low = low, .high = high, .max_fraction = max_fraction,
                        .next = next };
    uint32_t node = GRAMMAR_NEVER;
    fill_whole(&r.low);
    fill_whole(&r.high);
    for (r.n_whole = r.low.n_whole; r.n_whole <= r.high.n_whole && r.n_whole <= MOST_WHOLE + 1;
         r.n_whole++) {
        unsigned tight = (r.n_whole == r.low.n_whole ? TIGHT_LOW : 0) |
                         (r.n_whole == r.high.n_whole ? TIGHT_HIGH : 0); // R1
        memset(r.whole, 0, sizeof r.whole);
        node = grammar_either(g, whole_digit(&r, 0, tight), node);
    }
    return node;
}

uint32_t numrange_nodes(struct grammar *g, const struct numrange *range, uint32_t next)
{
    struct decimal low = range->low, high = range->high;
    struct decimal zero = { .is_set = true }, least = { .is_set = true, .excluded = true };
    uint32_t max = range->max_fraction, negative = GRAMMAR_NEVER, positive = GRAMMAR_NEVER;
    set_power(&least, MOST_WHOLE);
    if (!high.is_set) high = least;
    least.negative = true;
    if (!low.is_set) low = least;
    if (decimal_compare(&low, &high) > 0) return GRAMMAR_NEVER;
    if (low.negative) { /* signs turn around: from -high, or just above 0, to -low */
        struct decimal from = high.negative ? high : zero;
        from.excluded = high.negative ? high.excluded : true;
        negative = grammar_text(g, "-", 1, unsigned_numbers(g, from, low, max, next));
    }
    if (!high.negative) positive = unsigned_numbers(g, low.negative ? zero : low, high, max, next);
    return grammar_either(g, negative, positive);
}

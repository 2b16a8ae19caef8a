/* test_gaterank.c: orders of gates: names, and the costs that each gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "evap/gaterank.h"

enum { N = 6 };
static const uint8_t open[N] = { 1, 1, 0, 1, 1, 1 };
static const double local[N] = { 3e-6, 0, 0, 5e-2, 0, 1e-9 };
static const double fisher[N] = { 7, 2, -1, 4, 9, 4 };

static void check(enum gaterank kind, const double *f, const double *want)
{
    double cost[N];
    assert_int_equal(gaterank_costs(kind, N, open, local, f, cost, NULL), ZP_OK);
    for (size_t i = 0; i < N; i++) assert_true(cost[i] == want[i]);
}

static void test_one_measure_is_the_cost_itself(void **state)
{
    (void)state;
    check(GATERANK_LOCAL, NULL, local);
    check(GATERANK_FISHER, fisher, (const double[N]){ 7, 2, 0, 4, 9, 4 });
}

/* Ranks of local: 3 0.5 - 4 0.5 2, of fisher: 3 0 - 1.5 4 1.5. The closed gate's -1 is no rank. */
static void test_ranks_are_added_and_equals_share_theirs(void **state)
{
    (void)state;
    check(GATERANK_SUM, fisher, (const double[N]){ 6, 0.5, 0, 5.5, 4.5, 3.5 });
}

static void test_names_lead_there_and_back(void **state)
{
    (void)state;
    enum gaterank kind;
    zp_err err = { 0 };
    assert_int_equal(gaterank_find(NULL, &kind, NULL), ZP_OK);
    assert_int_equal(kind, GATERANK_LOCAL);
    for (enum gaterank k = GATERANK_LOCAL; k <= GATERANK_SUM; k++) {
        assert_int_equal(gaterank_find(gaterank_name(k), &kind, NULL), ZP_OK);
        assert_int_equal(kind, k);
    }
    assert_int_equal(gaterank_find("Fisher", &kind, &err), ZP_USAGE);
    assert_non_null(strstr(err.message, "known: local fisher sum"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_measure_is_the_cost_itself),
        cmocka_unit_test(test_ranks_are_added_and_equals_share_theirs),
        cmocka_unit_test(test_names_lead_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

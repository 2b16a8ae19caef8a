/* test_scalefit.c: the search for the least of a function; a fitted scale is in the file and is
 * what its report says; what cannot be fitted says why. */
#include "golden.h"

#include "evap/scalefit.h"
#include "model/model.h"
#include "train/newmodel.h"
#include "in_folder.h"
#include "train_fixture.h"

static struct train_fixture fixture;

struct valley {
    double at;
    int n_calls;
};

static zp_status valley(void *arg, double x, double *value, zp_err *err)
{
    struct valley *v = arg;
    (void)err;
    v->n_calls++;
    *value = fabs(x - v->at) + 0.1 * (x - v->at) * (x - v->at);
    return ZP_OK;
}

static void test_least_is_found_inside_and_at_the_ends(void **state)
{
    (void)state;
    static const double at[] = { 0.3, 0.01, 0.999, -1, 2 };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct valley v = { at[i], 0 };
        double x, want = at[i] < 0 ? 0 : at[i] > 1 ? 1 : at[i];
        FINE(scalefit_least(valley, &v, 0, 1, 0.001, &x, err));
        assert_true(fabs(x - want) <= 0.001);
        assert_true(v.n_calls <= 18); /* one a step: 0.618^n */
    }
}

static zp_status fails_later(void *arg, double x, double *value, zp_err *err)
{
    struct valley *v = arg;
    if (v->n_calls == 5) ZP_FAIL(err, ZP_RUN, "no more");
    return valley(arg, x, value, err);
}

static void test_a_failure_ends_the_search(void **state)
{
    (void)state;
    struct valley v = { 0.4, 0 };
    double x;
    zp_err err = { 0 };
    assert_int_equal(scalefit_least(fails_later, &v, 0, 1, 1e-9, &x, &err), ZP_RUN);
}

static const char *new_model(uint32_t n_ctx)
{
    char config[256];
    snprintf(config, sizeof config,
             "{\"n_layer\":2,\"d_model\":32,\"n_head\":4,\"n_kv\":2,\"d_head\":8,\"d_ff\":48,"
             "\"n_ctx\":%u,\"position\":\"none\"}", n_ctx);
    FINE(newmodel_write(config, "config", in_folder("fixture.gguf"), 7, in_folder("m.gguf"), err));
    return in_folder("m.gguf");
}

static void test_the_file_has_what_the_report_says(void **state)
{
    (void)state;
    char *json;
    zp_model *m;
    zp_scale_options o = { .n_windows = 4, .n_threads = 2 };
    FINE(zp_scale_fit(new_model(32), in_folder("fixture.zpt"), in_folder("s.gguf"), &o, &json,
                      err));
    json_t *root = json_loads(json, 0, NULL);
    double c = json_number_value(json_object_get(root, "c"));
    assert_true(c >= 0 && c <= 1);
    json_t *fitted = json_object_get(root, "fitted");
    double change = 0;
    assert_true(json_array_size(fitted) >= 2);
    for (size_t b = 0; b < json_array_size(fitted); b++) {
        json_t *row = json_array_get(fitted, b);
        double before = json_number_value(json_object_get(row, "nll_before"));
        double after = json_number_value(json_object_get(row, "nll"));
        if (b == 0) assert_true(before == after); /* within the trained length */
        else change += after - before;
    }
    assert_true(c == 0 ? change == 0 : change < 0);
    FINE(zp_model_open(&m, in_folder("s.gguf"), NULL, err));
    for (uint32_t l = 0; l < m->h.n_layer; l++)
        assert_true(fabs((double)m->position.scale_c[l] - c) < 1e-5);
    assert_int_equal(m->position.scale_len, 32);
    zp_model_close(m);
    json_decref(root);
    zp_free(json);
}

static void refused(uint32_t n_ctx, zp_scale_options o, const char *part)
{
    zp_err err = { 0 };
    assert_int_equal(zp_scale_fit(new_model(n_ctx), in_folder("fixture.zpt"), in_folder("no.gguf"),
                                  &o, NULL, &err), ZP_BAD_INPUT);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
    assert_int_not_equal(access(in_folder("no.gguf"), F_OK), 0);
}

static void test_what_cannot_be_fitted_says_why(void **state)
{
    (void)state;
    refused(4096, (zp_scale_options){ 0 }, "twice");
    refused(32, (zp_scale_options){ .length = 40 }, "twice");
    refused(32, (zp_scale_options){ .length = 1 << 20 }, "longest held-out window");
    refused(32, (zp_scale_options){ .n_windows = 1 }, "one held-out window");
}

static int open_fixture(void **state)
{
    static const size_t n_words[] = { 90, 40, 400, 60, 150, 300, 80, 120, 350 };
    int failed = make_folder(state);
    fixture_open(&fixture, 320, n_words, 9);
    return failed;
}

static int close_fixture(void **state)
{
    fixture_close(&fixture);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_is_found_inside_and_at_the_ends),
        cmocka_unit_test(test_a_failure_ends_the_search),
        cmocka_unit_test(test_the_file_has_what_the_report_says),
        cmocka_unit_test(test_what_cannot_be_fitted_says_why),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}

/* test_kern_pack.c: dispatch, packed weights and places of activations. */
#include "kern_cases.h"

#include "base/hash.h"

static void test_every_operation_has_an_implementation_at_every_level(void **state)
{
    (void)state;
    struct kern_table t[KERN_LEVEL_COUNT];
    size_t levels = all_levels(t);
    for (size_t l = 0; l < levels; l++) {
        assert_int_equal(t[l].level, l);
        for (size_t i = 0; i < kern_op_count(); i++) {
            size_t length = strlen(kern_op_name(i));
            assert_non_null(t[l].names[i]);
            assert_memory_equal(t[l].names[i], kern_op_name(i), length);
            assert_int_equal(t[l].names[i][length], '_');
            assert_non_null(kern_op_contract(i));
        }
        for (enum kern_form f = 0; f < KERN_FORM_COUNT; f++)
            assert_non_null(kern_gemm_of(&t[l], f));
        assert_non_null(t[l].kl_row);
    }
    assert_null(kern_op_name(kern_op_count()));
}

static void test_level_mask_limits_the_table(void **state)
{
    (void)state;
    struct kern_table t;
    kern_table_init(&t, KERN_REF);
    for (size_t i = 0; i < kern_op_count(); i++) assert_non_null(strstr(t.names[i], "_ref"));
    kern_table_init(&t, KERN_LEVEL_COUNT);
    assert_int_equal(t.level, kern_cpu_level());
    assert_string_equal(kern_level_name(KERN_AVX512), "avx512");
    char features[256], little[4];
    kern_cpu_features(features, sizeof features);
    if (kern_cpu_level() >= KERN_AVX2) assert_non_null(strstr(features, "avx2 fma"));
    kern_cpu_features(little, sizeof little);
    assert_true(strlen(little) < sizeof little);
}

/* Values of a packed row against the file's; only the sign of zeros may differ. */
static void assert_row(const struct case_mat *c, size_t packed, size_t source)
{
    size_t n = c->m.n_in;
    float *row = guarded(n * sizeof *row);
    kern_mat_unpack_row(&c->m, packed, row);
    assert_guard(row, n * sizeof *row);
    for (size_t k = 0; k < n; k++)
        if (!((double)row[k] == c->weights[source * n + k]))
            fail_msg("%s row %zu column %zu: %g is not %g", c->type->name, packed, k,
                     (double)row[k], c->weights[source * n + k]);
    mem_free(row);
}

static void test_packing_loses_nothing_of_any_type(void **state)
{
    (void)state;
    struct rng r = seeded("pack");
    const struct quant_traits *t;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        for (int exact = 0; exact < 2; exact++) {
            size_t blocks = 1 + rng_below(&r, 5), rows = 1 + rng_below(&r, 40);
            struct case_mat c = make_mat(&r, t, rows, blocks * t->block, exact != 0, false);
            assert_int_equal(c.m.row_group_bytes % 64, 0);
            if (exact) assert_int_equal(c.m.form, KERN_F32);
            for (size_t row = 0; row < rows; row++) assert_row(&c, row, row);
            free_mat(&c);
        }
    }
}

/* Packed bytes are kept between versions of the program (packfile.h). When this test fails, and
 * rightly so, PACK_LAYOUT takes a new number: files of the old one are then left alone. */
static void test_bytes_are_those_of_the_layout_number(void **state)
{
    (void)state;
    static const struct { uint32_t type; uint64_t hash; } rows[] = {
        { QUANT_F32, 0x99963c0f5a4413ddu },
        { QUANT_F16, 0x5ee6ccc133e17099u },
        { QUANT_BF16, 0x5c895d71004bd5edu },
        { QUANT_Q4_0, 0xd624a3c4ccf7a30du },
        { QUANT_Q4_1, 0xdf2e8493dd627f05u },
        { QUANT_Q5_0, 0x07d5f86772957460u },
        { QUANT_Q5_1, 0xe3132019a41395d8u },
        { QUANT_Q8_0, 0x100fbd65f230d7f5u },
        { QUANT_Q2_K, 0xb0e2b94d85040c70u },
        { QUANT_Q3_K, 0x914ee426e4a35f0du },
        { QUANT_Q4_K, 0xc0c8ee52ee8fac33u },
        { QUANT_Q5_K, 0x92bc684c29b584f0u },
        { QUANT_Q6_K, 0xfbc3fbe31bcef9adu },
        { QUANT_IQ4_NL, 0xd624a3c4ccf7a30du },
        { QUANT_IQ4_XS, 0xa2bc9b1020ed01d5u },
        { QUANT_MXFP4, 0x2a4ee3ee1ee338d5u },
    };
    assert_int_equal(PACK_LAYOUT, 2);
    for (size_t i = 0; i < ZP_COUNT(rows); i++) {
        struct rng r = seeded("layout");
        const struct quant_traits *t = quant_traits_find(rows[i].type);
        struct case_mat c = make_mat(&r, t, 20, 1280, false, false); /* two slices */
        uint64_t hash = hash_xxh64(c.m.data, kern_mat_bytes(&c.m), 0);
        if (hash != rows[i].hash) fail_msg("%s: 0x%016llxu", t->name, (unsigned long long)hash);
        free_mat(&c);
    }
}

/* Decode reads no more than the file's bytes + 5 % (2 and 3 bits: + 15 %). */
static void test_packed_bytes_stay_near_those_of_the_file(void **state)
{
    (void)state;
    const size_t widths[] = { 256, 512, 576, 640, 768, 1024, 1536, 2048, 2304, 11008 };
    const struct quant_traits *t;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        double worst = 0, most = t->form == QUANT_FLOAT ? 1 : t->bits <= 3 ? 1.15 : 1.05;
        for (size_t k = 0; k < ZP_COUNT(widths); k++) {
            struct kern_mat m;
            if (widths[k] % t->block) continue;
            assert_int_equal(kern_mat_plan(&m, t->type, 64, widths[k], false, NULL), ZP_OK);
            double ratio = (double)kern_mat_bytes(&m) / (64.0 * quant_row_bytes(t, widths[k]));
            if (ratio > worst) worst = ratio;
        }
        print_message("%-6s packed / file %.3f\n", t->name, worst);
        if (worst > most) fail_msg("%s: %.3f of the file", t->name, worst);
    }
}

static void test_row_map_and_partial_ranges_pack_the_chosen_rows(void **state)
{
    (void)state;
    struct rng r = seeded("row map");
    const struct quant_traits *t = quant_traits_find(QUANT_Q4_1);
    struct case_mat c = make_mat(&r, t, 50, 96, false, false);
    uint32_t map[50];
    for (uint32_t i = 0; i < 50; i++) map[i] = (i * 7 + 3) % 50;
    size_t bytes = kern_mat_bytes(&c.m), group = c.m.row_group_bytes;
    void *scratch = mem_alloc(MEM_SCRATCH, kern_mat_pack_scratch(&c.m));
    assert_int_equal(bytes, 4 * group);
    memset(c.m.data, 0x5a, bytes);
    kern_mat_pack(&c.m, c.rows, t->type, map, 1, 3, scratch);
    for (size_t i = 0; i < group; i++) assert_int_equal(c.m.data[i], 0x5a);
    for (size_t i = 3 * group; i < bytes; i++) assert_int_equal(c.m.data[i], 0x5a);
    kern_mat_pack(&c.m, c.rows, t->type, map, 3, 4, scratch);
    kern_mat_pack(&c.m, c.rows, t->type, map, 0, 1, scratch);
    for (size_t row = 0; row < 50; row++) assert_row(&c, row, map[row]);
    mem_free(scratch);
    free_mat(&c);
}

static void test_set_row_replaces_that_row_only(void **state)
{
    (void)state;
    struct rng r = seeded("set row");
    struct case_mat c = make_mat(&r, quant_traits_find(QUANT_Q8_0), 20, 64, true, false);
    float values[64], got[64];
    for (int k = 0; k < 64; k++) values[k] = uniform(&r, 3);
    kern_mat_set_row_f32(&c.m, 17, values);
    kern_mat_unpack_row(&c.m, 17, got);
    assert_memory_equal(got, values, sizeof got);
    for (size_t row = 0; row < 20; row++)
        if (row != 17) assert_row(&c, row, row);
    free_mat(&c);
}

static void assert_refused(uint32_t type, size_t n_out, size_t n_in, zp_status want,
                           const char *text)
{
    struct kern_mat m;
    zp_err err = { 0 };
    assert_int_equal(kern_mat_plan(&m, type, n_out, n_in, false, &err), want);
    if (!strstr(err.message, text)) fail_msg("\"%s\" lacks \"%s\"", err.message, text);
}

static void test_impossible_matrices_are_refused_by_name(void **state)
{
    (void)state;
    assert_refused(9999, 16, 32, ZP_UNSUPPORTED, "9999");
    assert_refused(QUANT_Q4_K, 16, 576, ZP_BAD_FILE, "multiple of 256");
    assert_refused(QUANT_F32, 0, 32, ZP_BAD_FILE, "empty");
    assert_refused(QUANT_F32, 16, 0, ZP_BAD_FILE, "empty");
    assert_refused(QUANT_F32, SIZE_MAX / 2, 32, ZP_BAD_FILE, "address space");
    assert_refused(QUANT_F32, 1u << 31, SIZE_MAX / 8192, ZP_BAD_FILE, "address space");
}

static void test_activation_places_do_not_overlap(void **state)
{
    (void)state;
    for (size_t n_tok = 1; n_tok < 20; n_tok++)
        for (size_t n_in = 1; n_in < 200; n_in += 9) {
            struct kern_act a = { 0 };
            size_t bytes = kern_act_bytes(n_tok, n_in);
            uint8_t *memory = guarded(bytes);
            kern_act_place(&a, memory, n_tok, n_in);
            assert_int_equal(a.stride % 64, 0);
            assert_true(a.stride >= n_in && a.stride < n_in + 64);
            const void *at[] = { a.q, a.scale, a.scaled32, a.minus32, a.minus16, memory + bytes };
            size_t per32 = n_tok * (a.stride / 32) * 4;
            const size_t sizes[] = { n_tok * a.stride, per32, per32, per32, 2 * per32 };
            assert_ptr_equal(a.q, memory);
            for (int i = 0; i < 5; i++)
                assert_true((const uint8_t *)at[i + 1] >= (const uint8_t *)at[i] + sizes[i]);
            mem_free(memory);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation_has_an_implementation_at_every_level),
        cmocka_unit_test(test_level_mask_limits_the_table),
        cmocka_unit_test(test_packing_loses_nothing_of_any_type),
        cmocka_unit_test(test_bytes_are_those_of_the_layout_number),
        cmocka_unit_test(test_packed_bytes_stay_near_those_of_the_file),
        cmocka_unit_test(test_row_map_and_partial_ranges_pack_the_chosen_rows),
        cmocka_unit_test(test_set_row_replaces_that_row_only),
        cmocka_unit_test(test_impossible_matrices_are_refused_by_name),
        cmocka_unit_test(test_activation_places_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

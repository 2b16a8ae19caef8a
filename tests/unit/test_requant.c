/* test_requant.c: quantising a model file: which tensors change, what is reported, what is kept. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kern/quant.h"
#include "model/gguf_write.h"
#include "model/requant.h"

static char folder[] = "/tmp/zerope-requant-XXXXXX";
static char source[64], result[64], other[64];

#define CHECK(call)                                                        \
    do {                                                                   \
        zp_err check_err = {0}, *err = &check_err;                         \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, check_err.message); \
    } while (0)

struct shape {
    const char *name;
    uint32_t n_dims;
    uint64_t ne[2];
};
static const struct shape shapes[] = {
    {"token_embd.weight", 2, {512, 40}},
    {"blk.0.attn_norm.weight", 1, {512}},
    {"blk.0.attn_q_norm.weight", 2, {32, 8}},
    {"blk.0.attn_q.weight", 2, {512, 64}},
    {"blk.0.attn_q.bias", 1, {64}},
    {"blk.0.ffn_down.weight", 2, {96, 33}},
    {"blk.0.ffn_odd.weight", 2, {40, 5}},
    {"blk.0.ffn_gate_inp.weight", 2, {512, 4}},
    {"blk.0.pos_t5.weight", 2, {32, 8}},
    {"blk.0.pos_alibi.slope", 1, {8}},
    {"blk.0.attn_head_scale", 1, {8}},
    {"struct_head.weight", 2, {512, 8}},
    {"rope_freqs.weight", 1, {16}},
};
#define Q_TENSOR 3

static bool with_evidence = true, with_length = true; /* keys of the source */

/* Writes the source; weights of columns 64..127 of every matrix are zero. */
static void make_source(const char *damaged, float value)
{
    static float data[ZP_COUNT(shapes)][512 * 64];
    struct gguf_edit e;
    struct rng r = rng_stream(5, 5);
    CHECK(gguf_edit_init(&e, NULL, err));
    CHECK(gguf_edit_set_str(&e, "general.architecture", "llama", err));
    CHECK(gguf_edit_set_u32(&e, "general.file_type", 0, err));
    if (with_evidence) CHECK(gguf_edit_set_str(&e, "zerope.evidence", "{}", err));
    if (with_length) CHECK(gguf_edit_set_u32(&e, "zerope.context.validated", 64, err));
    CHECK(gguf_edit_set_str(&e, "somebody.else", "kept", err));
    for (size_t i = 0; i < ZP_COUNT(shapes); i++) {
        const struct shape *s = &shapes[i];
        uint64_t ne[GGUF_MAX_DIMS] = {s->ne[0], s->n_dims > 1 ? s->ne[1] : 1, 1, 1};
        for (size_t k = 0; k < ne[0] * ne[1]; k++)
            data[i][k] = k % ne[0] / 64 == 1 ? 0 : 0.05f * rng_normal(&r);
        if (damaged != NULL && strcmp(damaged, s->name) == 0) data[i][7 * ne[0] + 3] = value;
        CHECK(gguf_edit_set_tensor_f32(&e, s->name, s->n_dims, ne, data[i], err));
    }
    CHECK(gguf_edit_write(&e, source, err));
    gguf_edit_free(&e);
}

static struct requant_report run(const char *in, const char *out, uint32_t type)
{
    struct requant_options o = {.type = type};
    struct requant_report report;
    CHECK(requant_file(in, out, &o, &report, err));
    return report;
}

static void expect_type(const struct requant_report *report, const struct gguf *g,
                        const char *name, uint32_t type, enum requant_why why)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    uint32_t i = 0;
    while (i < report->n_items && strcmp(report->items[i].name, name) != 0) i++;
    assert_true(i < report->n_items);
    if (t->type != type || report->items[i].to != type || report->items[i].why != why)
        fail_msg("%s: type %u, expected %u; why: %s", name, (unsigned)t->type, (unsigned)type,
                 requant_why_text(report->items[i].why));
}

static void test_matrices_change_type_and_everything_else_keeps_its_bytes(void **state)
{
    (void)state;
    struct gguf before, after;
    make_source(NULL, 0);
    struct requant_report report = run(source, result, QUANT_Q4_K);
    CHECK(gguf_open(&before, source, err));
    CHECK(gguf_open(&after, result, err));
    assert_int_equal(after.n_tensors, ZP_COUNT(shapes));
    expect_type(&report, &after, "token_embd.weight", QUANT_Q6_K, REQUANT_OUTPUT);
    expect_type(&report, &after, "blk.0.attn_q.weight", QUANT_Q4_K, REQUANT_TARGET);
    expect_type(&report, &after, "blk.0.ffn_down.weight", QUANT_Q5_0, REQUANT_ROW_LENGTH);
    expect_type(&report, &after, "blk.0.ffn_odd.weight", QUANT_F16, REQUANT_ROW_LENGTH);
    expect_type(&report, &after, "blk.0.attn_norm.weight", QUANT_F32, REQUANT_SMALL);
    expect_type(&report, &after, "blk.0.ffn_gate_inp.weight", QUANT_F32, REQUANT_SMALL);
    expect_type(&report, &after, "blk.0.pos_t5.weight", QUANT_F32, REQUANT_POSITION);
    expect_type(&report, &after, "rope_freqs.weight", QUANT_F32, REQUANT_POSITION);
    size_t kept = 0;
    for (uint32_t i = 0; i < after.n_tensors; i++) {
        const struct gguf_tensor *t = &after.tensors[i];
        if (t->type != QUANT_F32) continue;
        kept++;
        assert_memory_equal(t->data, before.tensors[i].data, (size_t)t->bytes);
    }
    assert_int_equal(kept, ZP_COUNT(shapes) - 4);
    assert_false(report.n_twice || report.n_grown);
    assert_int_equal(report.bytes_before, before.file_bytes);
    assert_int_equal(report.bytes_after, after.file_bytes);
    requant_report_free(&report);
    gguf_close(&before);
    gguf_close(&after);
}

static void test_keys_say_the_new_type_and_old_evidence_is_gone(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_str text;
    uint32_t value;
    make_source(NULL, 0);
    struct requant_report report = run(source, result, QUANT_Q5_1);
    assert_true(report.evidence_dropped);
    CHECK(gguf_open(&g, result, err));
    CHECK(gguf_get_u32(&g, "general.file_type", &value, err));
    assert_int_equal(value, 9);
    CHECK(gguf_get_u32(&g, "general.quantization_version", &value, err));
    assert_int_equal(value, 2);
    assert_null(gguf_find_key(&g, "zerope.evidence"));
    CHECK(gguf_get_str(&g, "somebody.else", &text, err));
    assert_true(gguf_str_is(text, "kept"));
    requant_report_free(&report);
    gguf_close(&g);
}

static void test_what_is_dropped_is_what_is_reported(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct gguf g;
        with_evidence = i & 1, with_length = i & 2;
        bool changes = i & 4;
        make_source(NULL, 0);
        struct requant_report report = run(source, result, changes ? QUANT_Q8_0 : QUANT_F32);
        assert_int_equal(report.evidence_dropped, with_evidence && changes);
        assert_int_equal(report.length_dropped, with_length && changes);
        CHECK(gguf_open(&g, result, err));
        assert_int_equal(gguf_find_key(&g, "zerope.evidence") != NULL, with_evidence && !changes);
        assert_int_equal(gguf_find_key(&g, "zerope.context.validated") != NULL,
                         with_length && !changes);
        gguf_close(&g);
        requant_report_free(&report);
    }
    with_evidence = with_length = true;
}

static void test_closed_columns_stay_zero_and_values_stay_close(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F16,  QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_1,
                                     QUANT_Q5_0, QUANT_Q5_1, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K};
    make_source(NULL, 0);
    for (size_t k = 0; k < ZP_COUNT(types); k++) {
        struct requant_report report = run(source, result, types[k]);
        struct gguf before, after;
        CHECK(gguf_open(&before, source, err));
        CHECK(gguf_open(&after, result, err));
        const struct gguf_tensor *a = &before.tensors[Q_TENSOR], *b = &after.tensors[Q_TENSOR];
        assert_int_equal(b->type, types[k]);
        float x[512], y[512];
        double error = 0, energy = 0;
        for (uint64_t row = 0; row < 64; row++) {
            memcpy(x, a->data + row * sizeof x, sizeof x);
            quant_dequantize_row(quant_traits_find(b->type),
                                 b->data + row * gguf_tensor_row_bytes(b), y, 512);
            for (size_t i = 0; i < 512; i++) {
                if (x[i] == 0) assert_true(y[i] == 0);
                error += pow((double)y[i] - (double)x[i], 2);
                energy += pow((double)x[i], 2);
            }
        }
        assert_true(sqrt(error / energy) < 0.1);
        requant_report_free(&report);
        gguf_close(&before);
        gguf_close(&after);
    }
}

static void test_quantising_again_to_the_same_type_changes_nothing(void **state)
{
    (void)state;
    make_source(NULL, 0);
    struct requant_report report = run(source, result, QUANT_Q4_0);
    requant_report_free(&report);
    report = run(result, other, QUANT_Q4_0);
    assert_int_equal(report.n_twice, 0);
    requant_report_free(&report);
    struct os_map a, b;
    CHECK(os_map_file(&a, result, err));
    CHECK(os_map_file(&b, other, err));
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    os_unmap(&a);
    os_unmap(&b);
}

static void test_a_larger_type_from_quantised_weights_is_reported(void **state)
{
    (void)state;
    make_source(NULL, 0);
    struct requant_report report = run(source, result, QUANT_Q4_0);
    requant_report_free(&report);
    report = run(result, result, QUANT_Q8_0); /* onto itself */
    assert_int_equal(report.n_grown, 3); /* two of Q4_0 and the output of Q6_K, but not F16 */
    assert_int_equal(report.n_twice, 3);
    assert_true(report.bytes_after > report.bytes_before);
    struct buffer json = buffer_with_max(MEM_META, 1 << 20);
    CHECK(requant_report_json(&report, &json, err));
    assert_non_null(strstr((char *)json.data, "\"types\":{\"F32\":9,\"F16\":1,\"Q8_0\":3}"));
    assert_non_null(strstr((char *)json.data, "\"grown\":3"));
    assert_non_null(strstr((char *)json.data, "\"name\":\"blk.0.ffn_odd.weight\""));
    buffer_free(&json);
    requant_report_free(&report);
}

static void test_pure_leaves_no_exception_for_the_output(void **state)
{
    (void)state;
    struct gguf g;
    struct requant_options o = {.type = QUANT_Q4_K, .pure = true};
    struct requant_report report;
    make_source(NULL, 0);
    CHECK(requant_file(source, result, &o, &report, err));
    CHECK(gguf_open(&g, result, err));
    expect_type(&report, &g, "token_embd.weight", QUANT_Q4_K, REQUANT_TARGET);
    requant_report_free(&report);
    gguf_close(&g);
}

static void test_thread_count_changes_no_byte(void **state)
{
    (void)state;
    struct os_map one, many;
    make_source(NULL, 0);
    struct requant_report report = run(source, result, QUANT_Q5_K);
    requant_report_free(&report);
    CHECK(os_map_file(&one, result, err));
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct requant_options o = {.type = QUANT_Q5_K};
        CHECK(pool_open(&o.pool, threads, err));
        CHECK(requant_file(source, other, &o, &report, err));
        requant_report_free(&report);
        pool_close(o.pool);
        CHECK(os_map_file(&many, other, err));
        assert_int_equal(one.size, many.size);
        assert_memory_equal(one.data, many.data, one.size);
        os_unmap(&many);
    }
    os_unmap(&one);
}

static void expect_refusal(zp_status status, const struct requant_options *o, const char *text)
{
    zp_err failure = {0};
    struct requant_report report;
    CHECK(os_write_file(result, "old", 3, err));
    assert_int_equal(requant_file(source, result, o, &report, &failure), status);
    if (strstr(failure.message, text) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", failure.message, text);
    struct os_map old;
    CHECK(os_map_file(&old, result, err));
    assert_int_equal(old.size, 3);
    os_unmap(&old);
}

static void test_damaged_weights_are_refused_by_tensor_and_row(void **state)
{
    (void)state;
    struct requant_options o = {.type = QUANT_Q8_0};
    make_source("blk.0.attn_q.weight", NAN);
    expect_refusal(ZP_BAD_INPUT, &o,
                   "tensor blk.0.attn_q.weight, row 7: weight 3 of the row is NaN");
    CHECK(pool_open(&o.pool, 3, err));
    expect_refusal(ZP_BAD_INPUT, &o,
                   "tensor blk.0.attn_q.weight, row 7: weight 3 of the row is NaN");
    pool_close(o.pool);
    o = (struct requant_options){.type = QUANT_F16};
    make_source("token_embd.weight", 1e6f);
    expect_refusal(ZP_BAD_INPUT, &o,
                   "tensor token_embd.weight, row 7: weight 3 of the row is 1e+06, too large");
}

static bool stop_at_once(void *arg, const char *what, uint64_t done, uint64_t total)
{
    *(uint64_t *)arg = total;
    return what == NULL || done > total;
}

static void test_stopping_keeps_the_old_file(void **state)
{
    (void)state;
    uint64_t total = 0;
    zp_progress stop = {stop_at_once, &total};
    struct requant_options o = {.type = QUANT_Q4_1, .progress = &stop};
    make_source(NULL, 0);
    expect_refusal(ZP_INTERRUPTED, &o, "stopped at tensor token_embd.weight");
    assert_int_equal(total, 512 * 40 + 512 * 64 + 96 * 33 + 40 * 5);
}

static void test_types_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    zp_err err = {0};
    struct requant_options o = {.type = QUANT_IQ4_XS};
    make_source(NULL, 0);
    expect_refusal(ZP_UNSUPPORTED, &o, "IQ4_XS cannot be written");
    o.type = 77;
    expect_refusal(ZP_UNSUPPORTED, &o, "tensor type 77 cannot be written");
    char *json = folder;
    assert_int_equal(zp_quantize(source, result, "Q4_K_M", NULL, &json, &err), ZP_USAGE);
    assert_null(json);
    assert_non_null(strstr(err.message, "Q4_K_M"));
}

static void test_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    struct requant_options o = {.type = QUANT_Q8_0};
    make_source(NULL, 0);
    zp_err failure = {0};
    struct requant_report report;
    CHECK(os_write_file(result, "old", 3, err));
    os_fail_writes_after(1000);
    assert_int_equal(requant_file(source, result, &o, &report, &failure), ZP_NO_SPACE);
    os_fail_writes_after(UINT64_MAX);
    uint64_t size;
    CHECK(os_file_size(result, &size, err));
    assert_int_equal(size, 3);
}

static void test_every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct mem_stats before, after;
    zp_status status = ZP_RUN;
    make_source(NULL, 0);
    mem_stats_read(&before);
    for (uint64_t n = 1; status != ZP_OK; n++) {
        zp_err err = {0};
        char *json = NULL;
        assert_true(n < 10000);
        mem_fail_at(n, false);
        status = zp_quantize(source, result, "q4_k", NULL, &json, &err);
        if (status != ZP_OK) assert_int_equal(status, ZP_NO_MEMORY);
        mem_fail_at(0, false);
        mem_free(json);
        mem_stats_read(&after);
        for (int tag = 0; tag < MEM_TAG_COUNT; tag++)
            assert_int_equal(after.live[tag], before.live[tag]);
    }
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(source, sizeof source, "%s/source.gguf", folder);
    snprintf(result, sizeof result, "%s/result.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(source);
    unlink(result);
    unlink(other);
    return rmdir(folder); /* fails if a temporary was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices_change_type_and_everything_else_keeps_its_bytes),
        cmocka_unit_test(test_keys_say_the_new_type_and_old_evidence_is_gone),
        cmocka_unit_test(test_what_is_dropped_is_what_is_reported),
        cmocka_unit_test(test_closed_columns_stay_zero_and_values_stay_close),
        cmocka_unit_test(test_quantising_again_to_the_same_type_changes_nothing),
        cmocka_unit_test(test_a_larger_type_from_quantised_weights_is_reported),
        cmocka_unit_test(test_pure_leaves_no_exception_for_the_output),
        cmocka_unit_test(test_thread_count_changes_no_byte),
        cmocka_unit_test(test_damaged_weights_are_refused_by_tensor_and_row),
        cmocka_unit_test(test_stopping_keeps_the_old_file),
        cmocka_unit_test(test_types_that_cannot_be_written_are_refused),
        cmocka_unit_test(test_full_disk_keeps_the_old_file),
        cmocka_unit_test(test_every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

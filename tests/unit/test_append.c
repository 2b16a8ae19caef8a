/* test_append.c: pages of another sequence at the end of one: where the result is exact, where it
 * is not and says so, what is refused, and that it reaches no prefix cache. */
#include "same_bits.h"

#include "base/rng.h"
#include "in_folder.h"
#include "live_bytes.h"

enum { SEED = 51, N = 400, A = 128, B = 128, C = N - A - B };

static zp_engine_options options_of(zp_kv_type kv)
{
    return (zp_engine_options){ .n_ctx = N, .n_threads = 2, .n_seq = 3, .kv_type = kv,
                                .prefix_cache = true, .allow_unverified_mode = true };
}

static zp_engine *engine_of(const zp_model *m, zp_kv_type kv)
{
    return golden_engine(m, options_of(kv));
}

static int32_t *random_ids(uint64_t stream, const zp_model *m)
{
    struct rng r = rng_stream(SEED, stream);
    int32_t *ids = malloc(N * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < N; i++) ids[i] = (int32_t)rng_below(&r, m->h.n_vocab);
    return ids;
}

static zp_seq *filled(zp_engine *e, zp_seq_options o, const int32_t *ids, size_t n)
{
    zp_seq *s = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, &o, err));
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, n, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
    return s;
}

static zp_seq_info info_of(const zp_seq *s)
{
    zp_seq_info info;
    zp_seq_describe(s, &info);
    return info;
}

static zp_engine_stats stats_of(const zp_engine *e)
{
    zp_engine_stats stats;
    zp_engine_describe(e, &stats);
    return stats;
}

/* ---- what it computes ------------------------------------------------------------------------ */

/* Tokens that the other sequence computed at the same place, behind the same tokens: the one case
 * in which nothing is lost, so that all tables must be right. */
static void check_same_place(const char *name, zp_kv_type kv)
{
    static const zp_append_options any = { .approximate = true };
    zp_model *m = golden_small(name);
    struct same_bits b;
    bits_open(&b, m, name, random_ids(1, m), N, options_of(kv));
    zp_engine *e = engine_of(m, kv);
    size_t n_pages = e->kv.pages.n_pages;
    zp_seq *whole = filled(e, (zp_seq_options){ .salt = 1 }, b.ids, N);
    zp_seq *s = filled(e, (zp_seq_options){ .salt = 2 }, b.ids, A);
    size_t n_free = e->kv.pages.n_free;
    uint64_t live = live_bytes();
    GOLDEN_OK(zp_seq_append_pages(s, whole, A, B, &any, err));
    assert_int_equal(live_bytes(), live); /* nothing is copied */
    assert_int_equal(e->kv.pages.n_free, n_free);
    assert_int_equal(zp_seq_length(s), A + B);
    assert_memory_equal(info_of(s).ids, b.ids, (A + B) * sizeof *b.ids);
    assert_int_equal(info_of(s).n_exact, A);
    zp_seq_close(whole);
    bits_append(e, s, b.ids + A + B, C, b.room);
    bits_compare(&b, b.room, A + B, C, "behind appended pages, kv", kv);
    /* a cut into a page that was another's copies it or computes it again */
    GOLDEN_OK(zp_seq_truncate(s, A + 70, err));
    bits_append(e, s, b.ids + A + 70, N - A - 70, b.room);
    bits_compare(&b, b.room, A + 70, N - A - 70, "cut inside appended pages, kv", kv);
    zp_seq_close(s);
    assert_int_equal(e->kv.pages.n_free + e->kv.pages.n_idle, n_pages);
    zp_engine_close(e);
    bits_free(&b);
    zp_model_close(m);
}

static void test_pages_of_the_same_place_are_the_same(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-granite-none", "gguf-gemma3",
                                          "zerope-alibi" };
    for (size_t i = 0; i < ZP_COUNT(models); i++)
        for (int kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++)
            check_same_place(models[i], (zp_kv_type)kv);
}

/* Rows of C's tokens behind A's and then B's, which another sequence computed at an offset. */
static void rows_behind(zp_engine *e, uint64_t offset, const zp_append_options *o,
                        const int32_t *ids, float *rows)
{
    zp_seq *from = filled(e, (zp_seq_options){ .position_offset = offset }, ids + A, B);
    zp_seq *s = filled(e, (zp_seq_options){ 0 }, ids, A);
    GOLDEN_OK(zp_seq_append_pages(s, from, 0, B, o, err));
    bits_append(e, s, ids + A + B, C, rows);
    zp_seq_close(from);
    zp_seq_close(s);
}

/* Closed positions: nothing tells where a chunk was computed. Open ones: it does. */
static void test_only_closed_positions_forget_their_place(void **state)
{
    (void)state;
    for (int closed = 0; closed < 2; closed++) {
        const zp_append_options o = { .approximate = !closed };
        const char *name = closed ? "gguf-granite-none" : "gguf-llama-yarn";
        zp_model *m = golden_small(name);
        struct same_bits b;
        bits_open(&b, m, name, random_ids(1, m), N, options_of(ZP_KV_BF16));
        zp_engine *e = engine_of(m, ZP_KV_BF16);
        size_t bytes = C * b.d * sizeof *b.x;
        float *far = malloc(bytes);
        assert_non_null(far);
        rows_behind(e, 0, &o, b.ids, b.room);
        rows_behind(e, 1000000, &o, b.ids, far);
        assert_int_equal(memcmp(b.room, far, bytes) == 0, closed);
        assert_int_not_equal(memcmp(b.room, b.x + (A + B) * b.d, bytes), 0); /* not computed here */
        free(far);
        zp_engine_close(e);
        bits_free(&b);
        zp_model_close(m);
    }
}

static void test_beginnings_can_be_computed_anew(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-granite-none");
    struct same_bits b;
    bits_open(&b, m, "none", random_ids(1, m), N, options_of(ZP_KV_Q8));
    zp_engine *e = engine_of(m, ZP_KV_Q8);
    for (uint32_t k = 0; k <= B; k += 64) {
        const zp_append_options o = { .recompute = k };
        zp_seq *from = filled(e, (zp_seq_options){ 0 }, b.ids + A, B);
        zp_seq *s = filled(e, (zp_seq_options){ 0 }, b.ids, A);
        zp_engine_stats before = stats_of(e);
        GOLDEN_OK(zp_seq_append_pages(s, from, 0, B, &o, err));
        assert_int_equal(stats_of(e).tokens_appended - before.tokens_appended, B - k);
        assert_int_equal(stats_of(e).tokens - before.tokens, k);
        assert_int_equal(info_of(s).n_exact, A + k);
        bits_append(e, s, b.ids + A + B, C, b.room);
        if (k == B) bits_compare(&b, b.room, A + B, C, "all computed anew", k);
        assert_int_equal(info_of(s).n_exact, k == B ? N : A + k);
        zp_seq_close(from);
        zp_seq_close(s);
    }
    zp_engine_close(e);
    bits_free(&b);
    zp_model_close(m);
}

/* ---- what it is marked as -------------------------------------------------------------------- */

static zp_seq *through_a_file(zp_engine *e, const zp_seq *s)
{
    zp_seq *out = NULL;
    GOLDEN_OK(zp_seq_save(s, in_folder("saved"), err));
    GOLDEN_OK(zp_seq_restore(&out, e, in_folder("saved"), NULL, 0, err));
    return out;
}

static void check_marks(zp_kv_type kv)
{
    zp_model *m = golden_small("gguf-granite-none");
    zp_engine *e = engine_of(m, kv);
    int32_t *ids = random_ids(1, m);
    zp_seq *from = filled(e, (zp_seq_options){ 0 }, ids + A, B);
    zp_seq *s = filled(e, (zp_seq_options){ 0 }, ids, A), *other = NULL;
    assert_int_equal(info_of(s).n_exact, A);
    GOLDEN_OK(zp_seq_append_pages(s, from, 0, B, NULL, err));
    other = through_a_file(e, s);
    assert_int_equal(info_of(other).n_exact, A);
    zp_seq_close(other);
    /* a cut behind the border stays marked; one before it, or in the first tile behind it where
     * that is computed again, does not */
    static const uint32_t cuts[] = { A + B, A + 70, A + 10, A, A - 1, 0 };
    for (size_t i = 0; i < ZP_COUNT(cuts); i++) {
        bool marked = cuts[i] > A && !(kv == ZP_KV_Q8 && cuts[i] < A + 64);
        GOLDEN_OK(zp_seq_fork(&other, s, cuts[i], err));
        assert_int_equal(info_of(other).n_exact, marked ? A : cuts[i]);
        zp_seq *copy = through_a_file(e, other);
        assert_int_equal(info_of(copy).n_exact, marked ? A : cuts[i]);
        zp_seq_close(copy);
        zp_seq_close(through_a_file(e, s));
        GOLDEN_OK(zp_seq_restore(&copy, e, in_folder("saved"), info_of(s).ids, cuts[i], err));
        assert_int_equal(info_of(copy).length, cuts[i]);
        assert_int_equal(info_of(copy).n_exact, marked ? A : cuts[i]);
        zp_seq_close(copy);
        zp_seq_close(other);
        GOLDEN_OK(zp_seq_fork(&other, s, A + B, err));
        GOLDEN_OK(zp_seq_truncate(other, cuts[i], err));
        assert_int_equal(info_of(other).n_exact, marked ? A : cuts[i]);
        zp_seq_close(other);
    }
    zp_seq_close(from);
    zp_seq_close(s);
    free(ids);
    zp_engine_close(e);
    zp_model_close(m);
}

static void test_mark_goes_where_the_pages_go(void **state)
{
    (void)state;
    check_marks(ZP_KV_BF16);
    check_marks(ZP_KV_Q8);
}

/* What follows appended pages is not what its tokens lead to: nobody else gets it. */
static void test_prefix_cache_ends_where_appended_pages_begin(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-granite-none");
    zp_engine *e = engine_of(m, ZP_KV_BF16);
    int32_t *ids = random_ids(1, m);
    zp_seq *from = filled(e, (zp_seq_options){ .salt = 1 }, ids + A, B);
    zp_seq *s = filled(e, (zp_seq_options){ 0 }, ids, A), *copy, *t;
    size_t reused;
    GOLDEN_OK(zp_seq_append_pages(s, from, 0, B, NULL, err));
    zp_item item = { s, ids + A + B, C, ZP_WANT_NONE };
    GOLDEN_OK(zp_engine_run(e, &item, 1, NULL, 0, NULL, err));
    copy = through_a_file(e, s);
    for (int restored = 0; restored < 2; restored++) {
        GOLDEN_OK(zp_seq_open(&t, e, NULL, err));
        GOLDEN_OK(zp_seq_reuse(t, ids, N, &reused, err));
        assert_int_equal(reused, A);
        zp_seq_close(t);
        zp_seq_close(restored ? copy : s);
    }
    zp_seq_close(from);
    free(ids);
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuse(zp_seq *to, const zp_seq *from, uint32_t first, uint32_t n,
                   zp_append_options o, zp_status code, const char *part)
{
    zp_err err = { 0 };
    uint32_t length = zp_seq_length(to);
    zp_status status = zp_seq_append_pages(to, from, first, n, &o, &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("%s: '%s' lacks '%s'", zp_status_name(status), err.message, part);
    assert_int_equal(zp_seq_length(to), length);
}

static void test_what_cannot_be_appended_is_refused(void **state)
{
    (void)state;
    const zp_append_options none = { 0 };
    zp_model *m = golden_small("gguf-granite-none");
    zp_engine *e = engine_of(m, ZP_KV_BF16), *elsewhere = engine_of(m, ZP_KV_BF16);
    int32_t *ids = random_ids(1, m);
    zp_seq *from = filled(e, (zp_seq_options){ 0 }, ids, 300);
    zp_seq *s = filled(e, (zp_seq_options){ 0 }, ids, A);
    zp_seq *odd = filled(e, (zp_seq_options){ 0 }, ids, A + 1);
    zp_seq *zero = filled(e, (zp_seq_options){ .mode = ZP_MODE_ZERO }, ids, A);
    zp_seq *far = filled(elsewhere, (zp_seq_options){ 0 }, ids, A);
    refuse(s, s, 0, 64, none, ZP_USAGE, "another sequence");
    refuse(s, far, 0, 64, none, ZP_USAGE, "of the same engine");
    refuse(s, zero, 0, 64, none, ZP_USAGE,
           "mode zero cannot be appended to a sequence in mode full");
    refuse(odd, from, 0, 64, none, ZP_USAGE, "multiples of 64");
    refuse(s, from, 1, 64, none, ZP_USAGE, "multiples of 64");
    refuse(s, from, 0, 65, none, ZP_USAGE, "multiples of 64");
    refuse(s, from, 0, 128, (zp_append_options){ .recompute = 32 }, ZP_USAGE, "multiples of 64");
    refuse(s, from, 0, 64, (zp_append_options){ .recompute = 128 }, ZP_USAGE, "computed anew");
    refuse(s, from, 256, 64, none, ZP_BAD_INPUT, "of 300 tokens, [256, 320) are wanted");
    refuse(s, from, UINT32_MAX / 64 * 64, 64, none, ZP_BAD_INPUT, "are wanted");
    refuse(s, from, 0, UINT32_MAX / 64 * 64, none, ZP_BAD_INPUT, "are wanted");
    GOLDEN_OK(zp_seq_append_pages(s, from, 0, 256, NULL, err));
    refuse(s, from, 0, 64, none, ZP_BAD_INPUT, "do not fit into the context of 400");
    GOLDEN_OK(zp_seq_append_pages(s, from, 0, 0, NULL, err));
    assert_int_equal(zp_seq_length(s), A + 256);
    zp_seq *const all[] = { from, s, odd, zero, far };
    for (size_t i = 0; i < ZP_COUNT(all); i++) zp_seq_close(all[i]);
    zp_engine_close(e);
    zp_engine_close(elsewhere);
    free(ids);
    zp_model_close(m);
}

/* Open pairs, biases and windows hold positions; mode zero closes the pairs only. */
static void test_positions_in_keys_are_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool full, zero; /* free of positions in that mode */
    } cases[] = { { "gguf-granite-none", true, true }, { "gguf-llama-yarn", false, true },
                  { "zerope-partial", false, true },   { "gguf-llama-closed", false, true },
                  { "zerope-mixed", false, false },    { "zerope-alibi", false, false },
                  { "zerope-t5", false, false },       { "zerope-mlp", false, false },
                  { "zerope-local", false, false },    { "gguf-gemma3", false, false },
                  { "zerope-gate", false, false } };
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        zp_model *m = golden_small(cases[i].name);
        zp_engine *e = engine_of(m, ZP_KV_BF16);
        int32_t *ids = random_ids(1, m);
        for (int mode = ZP_MODE_FULL; mode <= ZP_MODE_ZERO; mode++) {
            bool is_free = mode == ZP_MODE_FULL ? cases[i].full : cases[i].zero;
            zp_seq_options o = { .mode = (zp_mode)mode };
            zp_seq *from = filled(e, o, ids, A), *s = filled(e, o, ids + 1, A);
            if (!is_free)
                refuse(s, from, 0, A, (zp_append_options){ 0 }, ZP_UNSUPPORTED,
                       "hold the positions");
            const zp_append_options any = { .approximate = !is_free };
            GOLDEN_OK(zp_seq_append_pages(s, from, 0, A, &any, err));
            zp_seq_close(from);
            zp_seq_close(s);
        }
        free(ids);
        zp_engine_close(e);
        zp_model_close(m);
    }
}

static void test_pages_that_windows_gave_back_are_refused(void **state)
{
    (void)state;
    enum { LONG = 1280 };
    const zp_append_options any = { .approximate = true };
    zp_model *m = golden_small("zerope-local");
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = LONG, .n_seq = 2, .micro_batch = 64 });
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++) ids[i] = i * 37 % (int)m->h.n_vocab;
    zp_seq *from = filled(e, (zp_seq_options){ 0 }, ids, LONG);
    zp_seq *s = filled(e, (zp_seq_options){ 0 }, ids, 64);
    refuse(s, from, 512, 256, any, ZP_UNSUPPORTED, "behind a window");
    GOLDEN_OK(zp_seq_append_pages(s, from, LONG - 192, 192, &any, err));
    zp_item item = { s, ids, LONG - 256, ZP_WANT_NONE };
    GOLDEN_OK(zp_engine_run(e, &item, 1, NULL, 0, NULL, err));
    zp_seq_close(from);
    zp_seq_close(s);
    assert_int_equal(e->kv.pages.n_free, e->kv.pages.n_pages);
    zp_engine_close(e);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_of_the_same_place_are_the_same),
        cmocka_unit_test(test_only_closed_positions_forget_their_place),
        cmocka_unit_test(test_beginnings_can_be_computed_anew),
        cmocka_unit_test(test_mark_goes_where_the_pages_go),
        cmocka_unit_test(test_prefix_cache_ends_where_appended_pages_begin),
        cmocka_unit_test(test_what_cannot_be_appended_is_refused),
        cmocka_unit_test(test_positions_in_keys_are_asked_for),
        cmocka_unit_test(test_pages_that_windows_gave_back_are_refused),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* same_bits.h: the comparisons of I1 (the bits of a sequence's hidden states depend on its tokens
 * only), for any model: micro-batches, threads, levels, ragged batches, pieces, forks, truncation,
 * reuse, snapshots. Rows are the stream after the last layer, (n, d_model): logits are a function
 * of one row. */
#ifndef TESTS_SAME_BITS_H
#define TESTS_SAME_BITS_H

#include "golden.h"

#include "model/engine.h"

struct same_bits {
    const zp_model *m;
    zp_engine_options options; /* of the baseline; n_ctx holds all ids */
    const char *name;          /* for messages */
    int32_t *ids;              /* (n) */
    float *x, *room;           /* (n, d_model): baseline, scratch */
    size_t n, d;
};

static inline zp_seq *bits_seq(zp_engine *e)
{
    zp_seq *s = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    return s;
}

/* Appends ids to s; x (n, d_model). */
static inline void bits_append(zp_engine *e, zp_seq *s, const int32_t *ids, size_t n, float *x)
{
    zp_item item = { s, ids, n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item, .n_items = 1, .x_out = x };
    GOLDEN_OK(engine_run(e, &job, err));
}

/* Rows of positions [from, from + n) against the baseline. */
static inline void bits_compare(const struct same_bits *b, const float *x, size_t from, size_t n,
                                const char *what, size_t number)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(x + i * b->d, b->x + (from + i) * b->d, b->d * sizeof *x) == 0) continue;
        size_t k = 0;
        while (x[i * b->d + k] == b->x[(from + i) * b->d + k]) k++;
        fail_msg("%s, %s %zu: position %zu, channel %zu: %.9g, alone %.9g", b->name, what, number,
                 from + i, k, (double)x[i * b->d + k], (double)b->x[(from + i) * b->d + k]);
    }
}

static inline void bits_whole(const struct same_bits *b, zp_engine_options o, size_t n,
                              const char *what, size_t number)
{
    zp_engine *e = golden_engine(b->m, o);
    zp_seq *s = bits_seq(e);
    bits_append(e, s, b->ids, n, b->room);
    bits_compare(b, b->room, 0, n, what, number);
    zp_seq_close(s);
    zp_engine_close(e);
}

/* Takes ids over. */
static inline void bits_open(struct same_bits *b, const zp_model *m, const char *name, int32_t *ids,
                             size_t n, zp_engine_options options)
{
    zp_model_info info;
    engine_allow_any_threads(true);
    zp_model_describe(m, &info);
    *b = (struct same_bits){
        .m = m, .options = options, .name = name, .ids = ids, .n = n, .d = info.d_model
    };
    b->x = malloc(n * b->d * sizeof *b->x);
    b->room = malloc(2 * n * b->d * sizeof *b->room);
    assert_true(b->x && b->room);
    zp_engine *e = golden_engine(m, options);
    zp_seq *s = bits_seq(e);
    bits_append(e, s, ids, n, b->x);
    zp_seq_close(s);
    zp_engine_close(e);
}

static inline void bits_free(struct same_bits *b)
{
    free(b->x);
    free(b->room);
    free(b->ids);
}

/* ---- the comparisons --------------------------------------------------------------------------
 */

static inline void bits_micro_batches(const struct same_bits *b, const uint32_t *sizes,
                                      size_t n_sizes, size_t n)
{
    for (size_t i = 0; i < n_sizes; i++) {
        zp_engine_options o = b->options;
        o.micro_batch = sizes[i];
        bits_whole(b, o, n, "micro-batch", sizes[i]);
    }
}

static inline void bits_threads(const struct same_bits *b, size_t n)
{
    for (uint32_t t = 1; t <= 3; t++) {
        zp_engine_options o = b->options;
        o.n_threads = t;
        bits_whole(b, o, n, "threads", t);
    }
}

static inline void bits_levels(const struct same_bits *b, zp_level lowest, size_t n)
{
    for (int level = (int)lowest; level <= ZP_LEVEL_AVX512BF16; level++) {
        zp_engine_options o = b->options;
        o.level = (zp_level)level;
        bits_whole(b, o, n, "level", (size_t)level);
    }
}

/* The last `singles` tokens one by one after all others at once. */
static inline void bits_one_by_one(const struct same_bits *b, size_t singles)
{
    zp_engine *e = golden_engine(b->m, b->options);
    zp_seq *s = bits_seq(e);
    size_t first = b->n - singles;
    bits_append(e, s, b->ids, first, b->room);
    for (size_t i = first; i < b->n; i++) {
        bits_append(e, s, b->ids + i, 1, b->room);
        bits_compare(b, b->room, i, 1, "one by one at", i);
    }
    zp_seq_close(s);
    zp_engine_close(e);
}

/* Sequence i of a batch is the first length(i) ids; then `steps` more tokens each, together. */
static inline size_t bits_length(size_t i, size_t most)
{
    return 1 + i * 29 % most;
}

static inline void bits_batch_step(const struct same_bits *b, zp_engine *e, zp_item *items,
                                   size_t batch, const size_t *at, float *x)
{
    struct engine_job job = { .items = items, .n_items = batch, .x_out = x };
    GOLDEN_OK(engine_run(e, &job, err));
    for (size_t i = 0; i < batch; i++) {
        bits_compare(b, x, at[i], items[i].n, "batch of", batch);
        x += items[i].n * b->d;
    }
}

enum { BITS_MOST_BATCH = 64 };

static inline void bits_batch(const struct same_bits *b, zp_engine *e, size_t batch, size_t most,
                              size_t steps, float *x)
{
    zp_item items[BITS_MOST_BATCH];
    size_t at[BITS_MOST_BATCH] = { 0 };
    for (size_t i = 0; i < batch; i++)
        items[i] = (zp_item){ bits_seq(e), b->ids, bits_length(i, most), ZP_WANT_NONE };
    bits_batch_step(b, e, items, batch, at, x);
    for (size_t k = 0; k < steps; k++) {
        for (size_t i = 0; i < batch; i++) {
            at[i] += items[i].n;
            items[i].ids = b->ids + at[i];
            items[i].n = 1;
        }
        bits_batch_step(b, e, items, batch, at, x);
    }
    for (size_t i = 0; i < batch; i++) zp_seq_close(items[i].seq);
}

/* Batches of 1..17, 33 and 64 sequences of mixed length, each row as when computed alone. */
static inline void bits_batches(const struct same_bits *b, size_t most, size_t steps)
{
    zp_engine_options o = b->options;
    o.n_seq = BITS_MOST_BATCH;
    o.n_ctx = (uint32_t)(most + steps + 1);
    assert_true(most + steps < b->n);
    zp_engine *e = golden_engine(b->m, o);
    float *x = malloc(BITS_MOST_BATCH * most * b->d * sizeof *x);
    assert_non_null(x);
    for (size_t batch = 1; batch <= 17; batch++) bits_batch(b, e, batch, most, steps, x);
    bits_batch(b, e, 33, most, steps, x);
    bits_batch(b, e, BITS_MOST_BATCH, most, steps, x);
    free(x);
    zp_engine_close(e);
}

/* A fork of the first n ids goes on as the whole; its parent does too, whatever the fork wrote. */
static inline void bits_forks(const struct same_bits *b, const size_t *points, size_t n_points,
                              size_t more)
{
    zp_engine_options o = b->options;
    o.n_seq = 3;
    zp_engine *e = golden_engine(b->m, o);
    for (size_t k = 0; k < n_points; k++) {
        size_t n = points[k];
        assert_true(n + more <= b->n);
        zp_seq *parent = bits_seq(e), *fork = NULL, *other = NULL;
        bits_append(e, parent, b->ids, n, b->room);
        GOLDEN_OK(zp_seq_fork(&fork, parent, (uint32_t)n, err));
        GOLDEN_OK(zp_seq_fork(&other, parent, (uint32_t)n, err));
        bits_append(e, other, b->ids, more, b->room); /* writes other tokens into its copy */
        bits_append(e, fork, b->ids + n, more, b->room);
        bits_compare(b, b->room, n, more, "fork at", n);
        bits_append(e, parent, b->ids + n, more, b->room);
        bits_compare(b, b->room, n, more, "parent forked at", n);
        zp_seq_close(parent);
        zp_seq_close(fork);
        zp_seq_close(other);
    }
    zp_engine_close(e);
}

/* Cut back to n (from `over` tokens further), then on with the same ids. */
static inline void bits_truncate(const struct same_bits *b, const size_t *points, size_t n_points,
                                 size_t over)
{
    zp_engine *e = golden_engine(b->m, b->options);
    for (size_t k = 0; k < n_points; k++) {
        size_t n = points[k];
        assert_true(n + over <= b->n);
        zp_seq *s = bits_seq(e);
        bits_append(e, s, b->ids, n, b->room);
        bits_append(e, s, b->ids + 1, over, b->room); /* other tokens at those positions */
        GOLDEN_OK(zp_seq_truncate(s, (uint32_t)n, err));
        assert_int_equal(zp_seq_length(s), n);
        bits_append(e, s, b->ids + n, over, b->room);
        bits_compare(b, b->room, n, over, "truncated to", n);
        zp_seq_close(s);
    }
    zp_engine_close(e);
}

static inline zp_seq *bits_salted(zp_engine *e, uint64_t salt)
{
    zp_seq *s = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, &(zp_seq_options){ .salt = salt }, err));
    return s;
}

/* A sequence that begins with what another has computed goes on as the whole, while the other lives
 * (even salts) and when it has gone; a fork of it does too. Under pressure: the points together are
 * more than the pages hold. */
static inline void bits_reuse(const struct same_bits *b, const size_t *points, size_t n_points,
                              size_t more)
{
    zp_engine_options o = b->options;
    o.n_seq = 3;
    o.prefix_cache = true;
    zp_engine *e = golden_engine(b->m, o);
    for (size_t k = 0; k < n_points; k++) {
        size_t n = points[k], reused;
        assert_true(n + more <= b->n);
        zp_seq *first = bits_salted(e, k), *second = bits_salted(e, k), *fork = NULL;
        bits_append(e, first, b->ids, n, b->room);
        bits_compare(b, b->room, 0, n, "computed for others up to", n);
        if (k % 2) zp_seq_close(first);
        GOLDEN_OK(zp_seq_reuse(second, b->ids, n + more, &reused, err));
        assert_int_equal(reused, n / 64 * 64);
        assert_int_equal(zp_seq_length(second), reused);
        GOLDEN_OK(zp_seq_fork(&fork, second, (uint32_t)reused, err));
        bits_append(e, second, b->ids + reused, n + more - reused, b->room);
        bits_compare(b, b->room, reused, n + more - reused, "reused up to", n);
        bits_append(e, fork, b->ids + reused, n + more - reused, b->room);
        bits_compare(b, b->room, reused, n + more - reused, "fork of what was reused up to", n);
        zp_seq_close(fork);
        if (k % 2 == 0) {
            bits_append(e, first, b->ids + n, more, b->room);
            bits_compare(b, b->room, n, more, "reused by others up to", n);
            zp_seq_close(first);
        }
        zp_seq_close(second);
    }
    zp_engine_stats stats;
    zp_engine_describe(e, &stats);
    assert_true(stats.tokens_reused > 0 && stats.prefix_tiles > 0);
    zp_engine_close(e);
}

/* The beginning of a saved sequence that shares n ids goes on as the whole. Windows that have given
 * back what it needs leave nothing of it, as they would refuse to cut the sequence there. */
static inline void bits_restore_beginning(const struct same_bits *b, zp_engine *e, const char *path,
                                          size_t n, size_t more)
{
    zp_seq *s = NULL, *whole = NULL;
    GOLDEN_OK(zp_seq_restore(&s, e, path, b->ids, n, err));
    size_t length = zp_seq_length(s);
    if (length != n) {
        assert_int_equal(length, 0);
        GOLDEN_OK(zp_seq_restore(&whole, e, path, NULL, 0, err));
        assert_int_equal(zp_seq_truncate(whole, (uint32_t)n, NULL), ZP_UNSUPPORTED);
        zp_seq_close(whole);
    }
    bits_append(e, s, b->ids + length, n + more - length, b->room);
    bits_compare(b, b->room, length, n + more - length, "beginning restored up to", n);
    zp_seq_close(s);
}

/* A sequence saved at a point goes on as the whole when it is restored, in its own engine and in
 * one with other threads, micro-batches and context; so does one that was cut before it was saved,
 * what reused its tiles, and a beginning of it. */
static inline void bits_restore(const struct same_bits *b, const char *path, const size_t *points,
                                size_t n_points, size_t more)
{
    zp_engine_options o = b->options, other = b->options;
    o.n_seq = 2;
    other.n_threads = 3;
    other.micro_batch = 50;
    other.n_ctx += 100;
    other.prefix_cache = true;
    zp_engine *e[] = { golden_engine(b->m, o), golden_engine(b->m, other) };
    for (size_t k = 0; k < 2 * n_points; k++) {
        size_t n = points[k / 2], over = k % 2 ? more : 0;
        assert_true(n + more <= b->n);
        zp_seq *s = bits_seq(e[0]);
        bits_append(e[0], s, b->ids, n, b->room);
        if (over) bits_append(e[0], s, b->ids + 1, over, b->room);
        GOLDEN_OK(zp_seq_truncate(s, (uint32_t)n, err));
        GOLDEN_OK(zp_seq_save(s, path, err));
        zp_seq_close(s);
        for (size_t i = 0; i < 2; i++) {
            GOLDEN_OK(zp_seq_restore(&s, e[i], path, NULL, 0, err));
            assert_int_equal(zp_seq_length(s), n);
            bits_append(e[i], s, b->ids + n, more, b->room);
            bits_compare(b, b->room, n, more, "restored at", n);
            zp_seq_close(s);
            if (k % 2 == i) bits_restore_beginning(b, e[i], path, n - n / 3, more);
            if (k % 2 != i && n > 9) bits_restore_beginning(b, e[i], path, n - 9, more);
        }
    }
    zp_engine_close(e[0]);
    zp_engine_close(e[1]);
}

#endif

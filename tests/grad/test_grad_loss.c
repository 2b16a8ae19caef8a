/* test_grad_loss.c: output layer and loss against double arithmetic, gradients against central
 * differences, ignored rows, weights, a teacher of another width, more rows than a chunk, drawn
 * labels; the same bits for 1, 2 and 3 threads. */
#include "grad_cases.h"

#include "train/loss.h"

struct case_loss {
    struct loss_batch b;
    size_t n_vocab;
    double *hidden, *w, *teacher_hidden, *teacher_w, *x, *t;
    double ce, kl;
};

static void log_softmax(double *out, const double *hidden, const double *w, size_t n_vocab,
                        size_t d)
{
    double sum = 0;
    for (size_t v = 0; v < n_vocab; v++) {
        out[v] = 0;
        for (size_t i = 0; i < d; i++) out[v] += hidden[i] * w[v * d + i];
        sum += exp(out[v]);
    }
    for (size_t v = 0; v < n_vocab; v++) out[v] -= log(sum);
}

static double whole_loss(void *ctx)
{
    struct case_loss *c = ctx;
    const struct loss_batch *b = &c->b;
    c->ce = c->kl = 0;
    for (size_t r = 0; r < b->n_rows; r++) {
        if (b->target[r] < 0) continue;
        double weight = b->weight ? (double)b->weight[r] : 1;
        log_softmax(c->x, c->hidden + r * b->d, c->w, c->n_vocab, b->d);
        c->ce -= weight * c->x[b->target[r]];
        if (!b->teacher_hidden) continue;
        log_softmax(c->t, c->teacher_hidden + r * b->teacher_d, c->teacher_w, c->n_vocab,
                    b->teacher_d);
        for (size_t v = 0; v < c->n_vocab; v++)
            c->kl += weight * exp(c->t[v]) * (c->t[v] - c->x[v]);
    }
    return (double)b->grad_scale * ((double)b->ce_weight * c->ce + (double)b->kl_weight * c->kl);
}

static struct loss_batch make_batch(struct rng *r, size_t n_rows, size_t d, size_t n_vocab,
                                    size_t teacher_d, bool weights)
{
    struct loss_batch b = { .n_rows = n_rows, .d = d, .ce_weight = 0.7f, .kl_weight = 0.4f,
                            .grad_scale = 0.5f, .teacher_d = teacher_d };
    b.hidden = numbers(r, n_rows * d, 2);
    b.w_out.w = numbers(r, n_vocab * d, 1);
    int32_t *target = room(n_rows * sizeof *target);
    for (size_t i = 0; i < n_rows; i++)
        target[i] = rng_below(r, 4) ? (int32_t)rng_below(r, n_vocab) : -1;
    b.target = target;
    float *weight = numbers(r, n_rows, 1);
    for (size_t i = 0; i < n_rows; i++) weight[i] = i % 5 ? weight[i] + 1 : 0;
    if (weights) b.weight = weight;
    if (teacher_d) b.teacher_hidden = numbers(r, n_rows * teacher_d, 2);
    if (teacher_d) b.teacher_w_out.w = numbers(r, n_vocab * teacher_d, 1);
    b.dhidden = zeros(n_rows * d);
    b.dw_out = zeros(n_vocab * d);
    return b;
}

static struct loss_sums run(const struct loss_batch *b, size_t n_vocab, uint32_t n_threads)
{
    struct pool *pool = pool_of(n_threads);
    struct gemm *g;
    struct loss *l = NULL;
    struct loss_sums sums;
    struct loss_shape shape = { .n_vocab = n_vocab, .d = b->d,
                                .teacher_d = b->teacher_hidden ? b->teacher_d : 0,
                                .in_pieces = !b->w_out.w };
    struct mem_stats before, after;
    zp_err err = { 0 };
    if (gemm_open(&g, pool, GEMM_F32, &err) != ZP_OK) fail_msg("%s", err.message);
    mem_stats_read(&before);
    if (loss_open(&l, g, &shape, &err) != ZP_OK) fail_msg("%s", err.message);
    mem_stats_read(&after);
    assert_int_equal(after.live[MEM_PRODUCT] - before.live[MEM_PRODUCT], loss_bytes(&shape));
    loss_run(l, b, &sums);
    loss_close(l);
    gemm_close(g);
    pool_close(pool);
    return sums;
}

static void check_top(const struct case_loss *c, const struct loss_sums *sums)
{
    size_t same = 0, count = 0;
    for (size_t r = 0; r < c->b.n_rows; r++) {
        if (c->b.target[r] < 0 || (c->b.weight && c->b.weight[r] == 0)) continue;
        count++;
        if (!c->b.teacher_hidden) continue;
        size_t x = 0, t = 0;
        log_softmax(c->x, c->hidden + r * c->b.d, c->w, c->n_vocab, c->b.d);
        log_softmax(c->t, c->teacher_hidden + r * c->b.teacher_d, c->teacher_w, c->n_vocab,
                    c->b.teacher_d);
        for (size_t v = 0; v < c->n_vocab; v++) {
            if (c->x[v] > c->x[x]) x = v;
            if (c->t[v] > c->t[t]) t = v;
        }
        same += x == t;
    }
    assert_int_equal(sums->n_rows, count);
    assert_int_equal(sums->same_top, same);
}

static void check_loss(struct rng *r, size_t n_rows, size_t d, size_t n_vocab, size_t teacher_d,
                       bool weights)
{
    struct loss_batch b = make_batch(r, n_rows, d, n_vocab, teacher_d, weights);
    float *dw = numbers(r, n_vocab * d, 1), *before = copy_of(dw, n_vocab * d);
    b.dw_out = dw;
    struct loss_sums sums = run(&b, n_vocab, 2);
    for (size_t i = 0; i < n_vocab * d; i++) dw[i] -= before[i];
    struct case_loss c = { .b = b, .n_vocab = n_vocab };
    c.hidden = doubles_of(b.hidden, n_rows * d);
    c.w = doubles_of(b.w_out.w, n_vocab * d);
    if (teacher_d) {
        c.teacher_hidden = doubles_of(b.teacher_hidden, n_rows * teacher_d);
        c.teacher_w = doubles_of(b.teacher_w_out.w, n_vocab * teacher_d);
    }
    c.x = room(n_vocab * sizeof *c.x);
    c.t = room(n_vocab * sizeof *c.t);
    whole_loss(&c);
    assert_true(fabs(sums.ce - c.ce) <= 1e-5 * (fabs(c.ce) + 1));
    assert_true(fabs(sums.kl - c.kl) <= 1e-5 * (fabs(c.kl) + 1));
    check_top(&c, &sums);
    assert_gradient("dhidden", whole_loss, &c, c.hidden, n_rows * d, b.dhidden);
    assert_gradient("dw_out", whole_loss, &c, c.w, n_vocab * d, dw);
}

static void test_gradients(void **state)
{
    (void)state;
    struct rng r = seeded("loss");
    check_loss(&r, 1, 1, 1, 0, false);
    check_loss(&r, 7, 5, 11, 0, true);
    check_loss(&r, 20, 6, 33, 4, false);
    check_loss(&r, 33, 3, 17, 3, true);
    check_loss(&r, 530, 2, 5, 2, true); /* more than a chunk */
}

static void test_nothing_but_sums_without_gradients(void **state)
{
    (void)state;
    struct rng r = seeded("loss sums");
    struct loss_batch b = make_batch(&r, 40, 6, 30, 5, true);
    struct loss_sums with = run(&b, 30, 2);
    b.dw_out = NULL;
    struct loss_sums frozen = run(&b, 30, 2);
    b.dhidden = NULL;
    struct loss_sums without = run(&b, 30, 2);
    assert_memory_equal(&with, &frozen, sizeof with);
    assert_memory_equal(&with, &without, sizeof with);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    enum { ROWS = 700, D = 9, VOCAB = 300 };
    struct rng r = seeded("loss threads");
    struct loss_batch b = make_batch(&r, ROWS, D, VOCAB, 5, true);
    struct loss_sums first = run(&b, VOCAB, 1);
    for (uint32_t n = 2; n <= THREADS_MOST; n++) {
        struct loss_batch more = b;
        more.dhidden = zeros(ROWS * D);
        more.dw_out = zeros(VOCAB * D);
        struct loss_sums sums = run(&more, VOCAB, n);
        assert_memory_equal(&sums, &first, sizeof sums);
        assert_same_bits(more.dhidden, b.dhidden, ROWS * D, "dhidden");
        assert_same_bits(more.dw_out, b.dw_out, VOCAB * D, "dw_out");
    }
}

/* ---- output matrices in pieces --------------------------------------------------------------- */

struct pieces {
    const float *w;
    size_t d, next, n_vocab;
};

/* Rows come in ascending order, all of them; what the room held before is gone. */
static const float *copy_rows(void *arg, size_t first, size_t n, float *room)
{
    struct pieces *p = arg;
    assert_int_equal(first, p->next);
    assert_true(n > 0 && n <= p->n_vocab - first);
    memcpy(room, p->w + first * p->d, n * p->d * sizeof *room);
    p->next = first + n == p->n_vocab ? 0 : first + n;
    return room;
}

/* dhidden of a row, in double, from what the loss is by definition. */
static void check_dhidden(const struct loss_batch *b, size_t row, size_t n_vocab)
{
    double *w = doubles_of(b->w_out.w, n_vocab * b->d), *x = room(n_vocab * sizeof *x);
    double *t = room(n_vocab * sizeof *t), *want = room(b->d * sizeof *want);
    double *teacher = doubles_of(b->teacher_w_out.w, n_vocab * b->teacher_d);
    double scale = (double)b->grad_scale * (double)b->weight[row];
    log_softmax(x, doubles_of(b->hidden + row * b->d, b->d), w, n_vocab, b->d);
    log_softmax(t, doubles_of(b->teacher_hidden + row * b->teacher_d, b->teacher_d), teacher,
                n_vocab, b->teacher_d);
    memset(want, 0, b->d * sizeof *want);
    for (size_t v = 0; v < n_vocab; v++) {
        double hit = (size_t)b->target[row] == v;
        double dx = scale * ((double)b->ce_weight * (exp(x[v]) - hit) +
                             (double)b->kl_weight * (exp(x[v]) - exp(t[v])));
        for (size_t i = 0; i < b->d; i++) want[i] += dx * w[v * b->d + i];
    }
    assert_near("dhidden", b->dhidden + row * b->d, want, b->d, 1e-4);
}

/* More than a panel of either matrix: whole and in pieces alike. */
static void test_pieces_change_no_bit(void **state)
{
    (void)state;
    enum { ROWS = 20, D = 64, TEACHER_D = 80, VOCAB = 70001 };
    struct rng r = seeded("loss pieces");
    struct loss_batch b = make_batch(&r, ROWS, D, VOCAB, TEACHER_D, true), parts = b;
    struct pieces mine = { b.w_out.w, D, 0, VOCAB }, other = { b.teacher_w_out.w, TEACHER_D, 0,
                                                               VOCAB };
    parts.w_out = (struct loss_matrix){ .rows = copy_rows, .arg = &mine };
    parts.teacher_w_out = (struct loss_matrix){ .rows = copy_rows, .arg = &other };
    parts.dhidden = zeros(ROWS * D), parts.dw_out = zeros(VOCAB * D);
    struct loss_sums whole = run(&b, VOCAB, 2), sums = run(&parts, VOCAB, 2);
    assert_memory_equal(&sums, &whole, sizeof sums);
    assert_same_bits(parts.dhidden, b.dhidden, ROWS * D, "dhidden");
    assert_same_bits(parts.dw_out, b.dw_out, VOCAB * D, "dw_out");
    size_t row = 0;
    while (b.target[row] < 0 || b.weight[row] == 0) row++;
    check_dhidden(&b, row, VOCAB);
}

/* ---- drawn labels ---------------------------------------------------------------------------- */

/* Loss and gradients are those of targets that are what was drawn. */
static void test_drawn_labels_count_as_targets(void **state)
{
    (void)state;
    enum { ROWS = 530, D = 6, VOCAB = 33 };
    struct rng r = seeded("loss draw");
    struct loss_batch b = make_batch(&r, ROWS, D, VOCAB, 0, true), given = b;
    int32_t *label = room(ROWS * sizeof *label), *again = room(ROWS * sizeof *again);
    struct loss_draw draw = { 5, 7, label }, other = { 5, 8, again };
    b.draw = &draw;
    struct loss_sums drawn = run(&b, VOCAB, 1);
    for (size_t i = 0; i < ROWS; i++) {
        bool counts = b.target[i] >= 0 && b.weight[i] != 0;
        assert_true(counts ? label[i] >= 0 && label[i] < VOCAB : label[i] == -1);
    }
    given.target = label;
    given.dhidden = zeros(ROWS * D), given.dw_out = zeros(VOCAB * D);
    struct loss_sums sums = run(&given, VOCAB, 3);
    assert_memory_equal(&sums, &drawn, sizeof sums);
    assert_same_bits(given.dhidden, b.dhidden, ROWS * D, "dhidden");
    assert_same_bits(given.dw_out, b.dw_out, VOCAB * D, "dw_out");
    b.draw = &other;
    run(&b, VOCAB, 2);
    assert_memory_not_equal(label, again, ROWS * sizeof *label);
}

/* Many rows of the same logits: how often each token comes, within 4.5 standard deviations. */
static void test_labels_follow_the_softmax(void **state)
{
    (void)state;
    enum { ROWS = 40000, VOCAB = 7 };
    static const float logit[VOCAB] = { -1, 2, -200, 0.5f, 1, -3, 0 };
    float *ones = zeros(ROWS), *w = copy_of(logit, VOCAB);
    int32_t *target = room(ROWS * sizeof *target), *label = room(ROWS * sizeof *label);
    size_t n[VOCAB] = { 0 };
    double p[VOCAB], sum = 0;
    for (size_t i = 0; i < ROWS; i++) ones[i] = 1, target[i] = 0;
    struct loss_draw draw = { 1, 2, label };
    run(&(struct loss_batch){ .n_rows = ROWS, .d = 1, .hidden = ones, .w_out.w = w,
                              .target = target, .draw = &draw },
        VOCAB, 2);
    for (size_t i = 0; i < ROWS; i++) n[label[i]]++;
    for (size_t v = 0; v < VOCAB; v++) sum += p[v] = exp((double)logit[v]);
    for (size_t v = 0; v < VOCAB; v++) {
        double share = p[v] / sum, want = ROWS * share;
        assert_true(fabs((double)n[v] - want) <= 4.5 * sqrt(want * (1 - share)) + 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients),
        GRAD_TEST(test_nothing_but_sums_without_gradients),
        GRAD_TEST(test_threads_do_not_change_bits),
        GRAD_TEST(test_pieces_change_no_bit),
        GRAD_TEST(test_drawn_labels_count_as_targets),
        GRAD_TEST(test_labels_follow_the_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

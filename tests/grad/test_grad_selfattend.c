/* test_grad_selfattend.c: attention of packed rows against double arithmetic and its gradients
 * against central differences: shared KV heads, short documents, windows with sinks, biases, wide
 * keys, many tiles; the same bits for 1, 2 and 3 threads; both backends. */
#include "grad_cases.h"

#include "train/selfattend.h"

/* loss = sum weight o. */
struct case_attend {
    struct selfattend_shape shape;
    struct selfattend_batch b;
    double *q, *k, *v, *bias, *key_bias, *weight, *o, *p;
};

static bool sees(const struct selfattend_batch *b, size_t kv, size_t i, size_t j)
{
    size_t first = b->first[kv * b->first_stride + i];
    bool sink = b->n_sink && j >= b->doc_start[i] && j < b->doc_start[i] + b->n_sink[kv];
    return j <= i && (j >= first || sink);
}

static double attend_head(const struct case_attend *c, size_t i, size_t h)
{
    const struct selfattend_shape *s = &c->shape;
    size_t kv = h / (s->n_head / s->n_kv);
    double most = -INFINITY, sum = 0, loss = 0;
    double factor = (double)c->b.scale * (c->b.row_scale ? (double)c->b.row_scale[i] : 1);
    for (size_t j = 0; j <= i; j++) {
        if (!sees(&c->b, kv, i, j)) continue;
        double dot = 0;
        for (size_t d = 0; d < s->dk; d++)
            dot += c->q[(i * s->n_head + h) * s->dk + d] * c->k[(j * s->n_kv + kv) * s->dk + d];
        c->p[j] = dot * factor + (c->bias ? c->bias[h * s->n_bias + i - j] : 0);
        if (c->key_bias) c->p[j] += c->key_bias[h * c->b.n_rows + j];
        most = fmax(most, c->p[j]);
    }
    double *o = c->o + (i * s->n_head + h) * s->dv;
    for (size_t d = 0; d < s->dv; d++) o[d] = 0;
    for (size_t j = 0; j <= i; j++) {
        if (!sees(&c->b, kv, i, j)) continue;
        double weight = exp(c->p[j] - most);
        sum += weight;
        for (size_t d = 0; d < s->dv; d++) o[d] += weight * c->v[(j * s->n_kv + kv) * s->dv + d];
    }
    for (size_t d = 0; d < s->dv; d++) {
        o[d] /= sum;
        loss += o[d] * c->weight[(i * s->n_head + h) * s->dv + d];
    }
    return loss;
}

static double attend_loss(void *ctx)
{
    const struct case_attend *c = ctx;
    double loss = 0;
    for (size_t i = 0; i < c->b.n_rows; i++)
        for (size_t h = 0; h < c->shape.n_head; h++) loss += attend_head(c, i, h);
    return loss;
}

struct recipe {
    size_t n_rows, n_head, n_kv, dk, dv;
    size_t document; /* longest; documents are of random length */
    size_t window;   /* 0: none; odd KV heads have twice as much */
    uint32_t n_sink; /* of KV head 0, then one less each */
    bool bias, row_scale, key_bias;
};

static const struct recipe recipes[] = {
    { 1, 1, 1, 2, 2, 1, 0, 0, false, false, false },
    { 23, 4, 2, 6, 3, 23, 0, 0, true, true, true },
    { 19, 2, 2, 5, 5, 1, 0, 0, true, false, true },
    { 30, 6, 2, 3, 7, 9, 0, 0, false, true, true },
    { 29, 3, 3, 4, 4, 17, 4, 2, true, false, false },
    { 150, 2, 1, 4, 3, 150, 0, 0, true, true, false },
    { 301, 3, 1, 5, 4, 140, 0, 0, false, false, true },
    { 290, 4, 2, 4, 2, 290, 20, 3, true, true, true },
    { 400, 1, 1, 3, 3, 7, 0, 0, true, false, false },
};

struct rows {
    float *q, *k, *v, *bias, *key_bias, *weight;
    struct selfattend_shape shape;
    struct selfattend_batch b;
};

static void place_documents(struct rng *r, const struct recipe *c, struct selfattend_batch *b)
{
    uint32_t *first = room(c->n_rows * c->n_kv * sizeof *first), *start;
    start = room(c->n_rows * sizeof *start);
    for (uint32_t at = 0; at < c->n_rows;) {
        uint32_t n = 1 + (uint32_t)rng_below(r, c->document);
        for (uint32_t i = at; i < at + n && i < c->n_rows; i++) start[i] = at;
        at += n;
    }
    for (size_t kv = 0; kv < c->n_kv; kv++)
        for (uint32_t i = 0; i < c->n_rows; i++) {
            uint32_t window = (uint32_t)(c->window << kv % 2), far = start[i];
            if (window && i + 1 > window && i + 1 - window > far) far = i + 1 - window;
            first[kv * c->n_rows + i] = far;
        }
    b->first = first;
    b->first_stride = c->window ? c->n_rows : 0;
    if (!c->n_sink) return;
    uint32_t *n_sink = room(c->n_kv * sizeof *n_sink);
    for (uint32_t kv = 0; kv < c->n_kv; kv++) n_sink[kv] = c->n_sink > kv ? c->n_sink - kv : 0;
    b->n_sink = n_sink;
    b->doc_start = start;
}

static struct rows make_rows(struct rng *r, const struct recipe *c)
{
    struct rows a = { .shape = { c->n_rows, c->n_head, c->n_kv, c->dk, c->dv, c->n_rows } };
    a.q = numbers(r, c->n_rows * c->n_head * c->dk, 2);
    a.k = numbers(r, c->n_rows * c->n_kv * c->dk, 2);
    a.v = numbers(r, c->n_rows * c->n_kv * c->dv, 2);
    a.weight = numbers(r, c->n_rows * c->n_head * c->dv, 1);
    a.bias = c->bias ? numbers(r, c->n_head * c->n_rows, 1) : NULL;
    a.key_bias = c->key_bias ? numbers(r, c->n_head * c->n_rows, 2) : NULL;
    float *factor = numbers(r, c->n_rows, 1);
    for (size_t i = 0; i < c->n_rows; i++) factor[i] += 1.5f;
    a.b = (struct selfattend_batch){ .n_rows = c->n_rows, .scale = 0.7f,
                                     .row_scale = c->row_scale ? factor : NULL, .bias = a.bias,
                                     .key_bias = a.key_bias,
                                     .q = a.q, .k = a.k, .v = a.v };
    place_documents(r, c, &a.b);
    return a;
}

struct results {
    float *o, *lse, *dq, *dk, *dv, *dbias, *dkey_bias;
    size_t n_o, n_q, n_k, n_v, n_bias, n_key_bias;
};

static struct results attend(const struct rows *a, uint32_t n_threads, bool own)
{
    const struct selfattend_shape *s = &a->shape;
    struct results out = { .n_o = s->most_rows * s->n_head * s->dv,
                           .n_q = s->most_rows * s->n_head * s->dk,
                           .n_k = s->most_rows * s->n_kv * s->dk,
                           .n_v = s->most_rows * s->n_kv * s->dv,
                           .n_bias = s->n_head * s->n_bias,
                           .n_key_bias = s->n_head * s->most_rows };
    out.o = zeros(out.n_o), out.lse = zeros(s->most_rows * s->n_head);
    out.dq = zeros(out.n_q), out.dk = zeros(out.n_k), out.dv = zeros(out.n_v);
    out.dbias = zeros(out.n_bias), out.dkey_bias = zeros(out.n_key_bias);
    struct pool *pool = pool_of(n_threads);
    struct gemm *g = NULL;
    struct selfattend *attention = NULL;
    zp_err err = { 0 };
    if (gemm_open_with(&g, pool, &(struct gemm_options){ .own = own }, &err) != ZP_OK ||
        selfattend_open(&attention, g, s, &err) != ZP_OK)
        fail_msg("%s", err.message);
    selfattend_forward(attention, &a->b, out.o, out.lse);
    selfattend_backward(attention, &a->b, out.o, out.lse, a->weight, out.dq, out.dk, out.dv,
                        a->bias ? out.dbias : NULL, a->key_bias ? out.dkey_bias : NULL);
    selfattend_close(attention);
    gemm_close(g);
    pool_close(pool);
    return out;
}

static void check_recipe(struct rng *r, const struct recipe *recipe, bool own)
{
    struct rows a = make_rows(r, recipe);
    struct results got = attend(&a, 2, own);
    struct case_attend c = { .shape = a.shape, .b = a.b };
    c.q = doubles_of(a.q, got.n_q);
    c.k = doubles_of(a.k, got.n_k);
    c.v = doubles_of(a.v, got.n_v);
    c.bias = a.bias ? doubles_of(a.bias, got.n_bias) : NULL;
    c.key_bias = a.key_bias ? doubles_of(a.key_bias, got.n_key_bias) : NULL;
    c.weight = doubles_of(a.weight, got.n_o);
    c.o = doubles_of(got.o, got.n_o);
    c.p = doubles_of(got.lse, recipe->n_rows);
    attend_loss(&c);
    assert_near("o", got.o, c.o, got.n_o, 2e-6);
    assert_gradient("dq", attend_loss, &c, c.q, got.n_q, got.dq);
    assert_gradient("dk", attend_loss, &c, c.k, got.n_k, got.dk);
    assert_gradient("dv", attend_loss, &c, c.v, got.n_v, got.dv);
    if (a.bias) assert_gradient("dbias", attend_loss, &c, c.bias, got.n_bias, got.dbias);
    if (a.key_bias)
        assert_gradient("dkey_bias", attend_loss, &c, c.key_bias, got.n_key_bias, got.dkey_bias);
}

static void test_gradients(void **state)
{
    (void)state;
    struct rng r = seeded("selfattend");
    for (size_t i = 0; i < ZP_COUNT(recipes); i++) check_recipe(&r, &recipes[i], i % 2 != 0);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    struct rng r = seeded("selfattend threads");
    static const struct recipe packed = { 700, 4, 2, 8, 4, 200, 50, 2, true, true, true };
    struct rows a = make_rows(&r, &packed);
    for (int own = 0; own < 2; own++) {
        struct results one = attend(&a, 1, own != 0);
        for (uint32_t n = 2; n <= THREADS_MOST; n++) {
            struct results more = attend(&a, n, own != 0);
            assert_same_bits(more.o, one.o, one.n_o, "o");
            assert_same_bits(more.dq, one.dq, one.n_q, "dq");
            assert_same_bits(more.dk, one.dk, one.n_k, "dk");
            assert_same_bits(more.dv, one.dv, one.n_v, "dv");
            assert_same_bits(more.dbias, one.dbias, one.n_bias, "dbias");
        }
    }
}

static void test_open_survives_any_lack_of_memory(void **state)
{
    (void)state;
    struct pool *pool = pool_of(2);
    struct gemm *g;
    zp_err err = { 0 };
    assert_int_equal(gemm_open(&g, pool, GEMM_F32, &err), ZP_OK);
    for (uint64_t n = 1;; n++) {
        struct selfattend *s;
        err.code = ZP_OK;
        mem_fail_at(n, false);
        zp_status status =
            selfattend_open(&s, g, &(struct selfattend_shape){ 300, 4, 2, 8, 4, 30 }, &err);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        assert_int_equal(status, failed ? ZP_NO_MEMORY : ZP_OK);
        selfattend_close(s);
        if (!failed) break;
    }
    gemm_close(g);
    pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_gradients),
        GRAD_TEST(test_threads_do_not_change_bits),
        GRAD_TEST(test_open_survives_any_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

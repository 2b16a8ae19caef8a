/* test_grad_net.c: whole small models of every position kind: hidden rows against the engine's
 * exact path, gradients against central differences along random directions, the same bits for any
 * number of threads and with recomputation, planned bytes against counted ones. */
#include "golden.h"
#include "grad_cases.h"

#include "model/engine.h"
#include "train/net.h"
#include "train/pic.h"

enum { ROWS = 3, CTX = 150 };
/* Sanitizers slow this ten times down; they look for races and overruns, which every fifth model
 * shows as well. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP = 5 };
#else
enum { STEP = 1 };
#endif

/* oneDNN's cache of primitives takes locks that the thread sanitizer does not see. */
#ifdef __SANITIZE_THREAD__
enum { may_emulate = false };
#else
enum { may_emulate = true };
#endif

static const char *const models[] = {
    "gguf-llama-yarn", "gguf-granite", "gguf-gemma3",    "gguf-qwen2",   "gguf-qwen3",
    "gguf-smollm3",    "zerope-alibi", "zerope-gemma3",  "zerope-local", "zerope-mixed",
    "zerope-mlp",      "zerope-partial", "zerope-qwen3", "zerope-t5",    "zerope-scaled",
    "zerope-gate",     "zerope-struct",  "zerope-alibi-struct", "zerope-gemma3-struct",
};

struct bench_net {
    zp_model *m;
    struct netparam p;
    struct pool *pool;
    struct gemm *g;
    struct net *net;
    struct packed batch;
    float *w, *dw, *hidden, *dhidden;
    size_t n_hidden;
};

static void open_net_with(struct bench_net *b, const char *name, uint32_t n_threads,
                          const struct net_options *o, const struct gemm_options *products)
{
    *b = (struct bench_net){ .m = golden_small(name), .pool = pool_of(n_threads) };
    GOLDEN_OK(gemm_open_with(&b->g, b->pool, products, err));
    GOLDEN_OK(netparam_open(&b->p, b->m, err));
    GOLDEN_OK(net_open(&b->net, &b->p, b->g, o, err));
    GOLDEN_OK(packed_open(&b->batch, ROWS, CTX, err));
    b->w = zeros(b->p.n), b->dw = zeros(b->p.n);
    b->n_hidden = (size_t)ROWS * CTX * b->m->h.d_model;
    b->hidden = zeros(b->n_hidden);
    GOLDEN_OK(netparam_read(&b->p, b->w, err));
}

static void open_net(struct bench_net *b, const char *name, uint32_t n_threads,
                     const struct net_options *o)
{
    open_net_with(b, name, n_threads, o, &(struct gemm_options){ .precision = GEMM_F32 });
}

static void close_net(struct bench_net *b)
{
    packed_close(&b->batch);
    net_close(b->net);
    netparam_close(&b->p);
    gemm_close(b->g);
    pool_close(b->pool);
    zp_model_close(b->m);
}

/* Documents of 1 to 140 tokens, side by side. */
static void fill_batch(struct rng *r, struct bench_net *b)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t start = 0, end = 0;
        for (uint32_t i = 0; i < CTX; i++) {
            size_t at = (size_t)row * CTX + i;
            if (i == end) start = end, end += row == 0 ? CTX : 1 + rng_below(r, 140);
            b->batch.ids[at] = (int32_t)rng_below(r, b->m->h.n_vocab);
            b->batch.start[at] = start;
            b->batch.position[at] = i - start;
        }
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One document's rows by the engine, and the norm that stands before the output matrix. */
static void compare_document(const struct bench_net *b, const char *name, size_t at, size_t n)
{
    zp_engine_options o = { .n_ctx = CTX, .n_threads = 1, .exact = true, .kv_type = ZP_KV_F32 };
    zp_engine *e = golden_engine(b->m, o);
    zp_seq *s = NULL;
    struct kern_table t;
    size_t d = b->m->h.d_model;
    float *x = zeros(n * d), *row = zeros(d);
    const float *gain = b->w + netparam_find(&b->p, "output_norm.weight", 0)->at;
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    zp_item item = { s, b->batch.ids + at, n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item, .n_items = 1, .x_out = x };
    GOLDEN_OK(engine_run(e, &job, err));
    for (size_t i = 0; i < n; i++) {
        t.rmsnorm(x + i * d, gain, b->m->h.norm_eps, d, row);
        for (size_t c = 0; c < d; c++) row[c] *= b->m->h.logit_scale;
        assert_near(name, b->hidden + (at + i) * d, doubles_of(row, d), d, 2e-5);
    }
    zp_seq_close(s);
    zp_engine_close(e);
}

static void test_hidden_rows_are_the_engines(void **state)
{
    (void)state;
    struct rng r = seeded("net forward");
    for (size_t i = 0; i < ZP_COUNT(models); i += STEP) {
        struct bench_net b;
        open_net(&b, models[i], 2,
                 &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX, .forward_only = true });
        fill_batch(&r, &b);
        net_forward(b.net, b.w, NULL, &b.batch, b.hidden);
        for (size_t at = 0, n; at < (size_t)ROWS * CTX; at += n) {
            for (n = 1; at + n < (size_t)ROWS * CTX && b.batch.position[at + n] != 0;) n++;
            compare_document(&b, models[i], at, n);
        }
        close_net(&b);
        release_all(NULL);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* sum of hidden times fixed weights. */
static double loss_of(struct bench_net *b, const struct net_gates *gates)
{
    double loss = 0;
    net_forward(b->net, b->w, gates, &b->batch, b->hidden);
    for (size_t i = 0; i < b->n_hidden; i++)
        loss += (double)b->hidden[i] * (double)b->dhidden[i];
    return loss;
}

/* x (n) along a random direction: the difference of losses against the gradient's part. */
static void check_direction(struct rng *r, struct bench_net *b, const struct net_gates *gates,
                            float *x, const float *dx, size_t n, const char *model,
                            const char *what)
{
    double size = 0, norm = 0, want = 0;
    float *before = copy_of(x, n), *u = zeros(n);
    for (size_t i = 0; i < n; i++) {
        size += (double)x[i] * (double)x[i] / (double)n;
        norm += (double)dx[i] * (double)dx[i];
        u[i] = rng_below(r, 2) ? 1.0f : -1.0f;
    }
    float step = (float)(4e-3 * (sqrt(size) + 1e-2));
    for (size_t i = 0; i < n; i++) want += (double)dx[i] * (double)u[i];
    for (size_t i = 0; i < n; i++) x[i] = before[i] + step * u[i];
    double up = loss_of(b, gates);
    for (size_t i = 0; i < n; i++) x[i] = before[i] - step * u[i];
    double got = (up - loss_of(b, gates)) / (2 * (double)step);
    memcpy(x, before, n * sizeof *x);
    if (!(fabs(got - want) <= 4e-3 * sqrt(norm) + 1e-3))
        fail_msg("%s, %s: the loss changes by %g, its gradient says %g (norm %g)", model, what,
                 got, want, sqrt(norm));
}

static void test_gradients_of_all_parameters(void **state)
{
    (void)state;
    struct rng r = seeded("net backward");
    for (size_t i = 0; i < ZP_COUNT(models); i += STEP) {
        struct bench_net b;
        open_net(&b, models[i], 2, &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX });
        fill_batch(&r, &b);
        b.dhidden = numbers(&r, b.n_hidden, 0.05f);
        loss_of(&b, NULL);
        net_backward(b.net, b.w, NULL, &b.batch, b.dhidden, &(struct net_gradients){ .w = b.dw });
        for (size_t t = 0; t < b.p.n_tensors; t++) {
            const struct netparam_tensor *p = &b.p.tensors[t];
            if (strstr(p->name, "attn_head_scale")) continue; /* no gradient, by contract */
            check_direction(&r, &b, NULL, b.w + p->at, b.dw + p->at, p->n, models[i], p->name);
        }
        close_net(&b);
        release_all(NULL);
    }
}

/* ---- gates ----------------------------------------------------------------------------------- */

static void test_gradients_of_gates(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-llama-yarn", "gguf-qwen3", "zerope-partial",
                                         "zerope-mixed", "zerope-struct" };
    struct rng r = seeded("net gates");
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        struct bench_net b;
        open_net(&b, names[i], 2,
                 &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX, .mix = true });
        const struct position *p = &b.m->position;
        size_t n_mix = (size_t)p->n_layer * p->n_kv * p->n_pair, n_bias = p->n_layer * p->n_head;
        float *mix = numbers(&r, n_mix, 1), *bias = numbers(&r, n_bias, 1);
        float *dmix = zeros(n_mix), *dbias = zeros(n_bias);
        struct net_gates gates = { .mix = mix, .bias = bias };
        for (size_t g = 0; g < n_mix; g++) mix[g] = fabsf(mix[g]);
        fill_batch(&r, &b);
        b.dhidden = numbers(&r, b.n_hidden, 0.05f);
        loss_of(&b, &gates);
        net_backward(b.net, b.w, &gates, &b.batch, b.dhidden,
                     &(struct net_gradients){ .w = b.dw, .mix = dmix, .bias = dbias });
        check_direction(&r, &b, &gates, mix, dmix, n_mix, names[i], "score mix");
        check_direction(&r, &b, &gates, bias, dbias, n_bias, names[i], "bias gates");
        for (size_t t = 0; t < b.p.n_tensors; t++) {
            const struct netparam_tensor *at = &b.p.tensors[t];
            check_direction(&r, &b, &gates, b.w + at->at, b.dw + at->at, at->n, names[i],
                            at->name);
        }
        close_net(&b);
        release_all(NULL);
    }
}

/* A mix at 0 and 1 is what closed and open pairs are; a closed gate's own gradient is asked for by
 * nobody and stays 0. */
static void test_mix_meets_hard_gates_at_both_ends(void **state)
{
    (void)state;
    struct rng r = seeded("net ends");
    struct bench_net b;
    open_net(&b, "gguf-llama-yarn", 2,
             &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX, .mix = true });
    const struct position *p = &b.m->position;
    size_t n = (size_t)p->n_layer * p->n_kv * p->n_pair;
    uint8_t *open = room(n);
    float *mix = zeros(n), *hard = zeros(b.n_hidden);
    for (size_t i = 0; i < n; i++) mix[i] = open[i] = (uint8_t)rng_below(&r, 2);
    fill_batch(&r, &b);
    net_forward(b.net, b.w, &(struct net_gates){ .open = open }, &b.batch, hard);
    net_forward(b.net, b.w, &(struct net_gates){ .mix = mix }, &b.batch, b.hidden);
    assert_near("mix of 0 and 1", b.hidden, doubles_of(hard, b.n_hidden), b.n_hidden, 2e-5);
    close_net(&b);
}

/* ---- one layer's attention ------------------------------------------------------------------- */

struct match_case {
    struct bench_net *b;
    uint32_t layer;
    const struct net_gates *gates;
    float *x, *target;
    struct net_match found;
};

static void run_match(struct match_case *c, const struct net_gradients *out)
{
    net_begin(c->b->net, c->b->w, &c->b->batch);
    net_match_attention(c->b->net, c->b->w, c->gates, c->layer, (size_t)ROWS * CTX, c->x,
                        c->target, 1, out, &c->found);
}

/* The error along a random direction of a tensor against its gradient. */
static void check_match(struct rng *r, struct match_case *c, const struct netparam_tensor *t)
{
    float *w = c->b->w + t->at, *before = copy_of(w, t->n), *u = zeros(t->n);
    double want = 0, norm = 0, size = 0;
    for (size_t i = 0; i < t->n; i++) {
        double d = (double)c->b->dw[t->at + i];
        u[i] = rng_below(r, 2) ? 1.0f : -1.0f;
        want += d * (double)u[i], norm += d * d;
        size += (double)w[i] * (double)w[i] / (double)t->n;
    }
    float step = (float)(4e-3 * (sqrt(size) + 1e-2));
    double off[2];
    for (int way = 0; way < 2; way++) {
        for (size_t i = 0; i < t->n; i++) w[i] = before[i] + (way ? step : -step) * u[i];
        run_match(c, &(struct net_gradients){ 0 });
        off[way] = c->found.off;
    }
    memcpy(w, before, t->n * sizeof *w);
    double got = (off[1] - off[0]) / (2 * (double)step);
    /* The errors are sums of many f32, whose rounding leaves about a billionth. */
    double rounding = 2e-9 * fabs(off[0]) / (double)step;
    if (!(fabs(got - want) <= 6e-3 * sqrt(norm) + 1e-3 + rounding))
        fail_msg("%s: the error changes by %g, its gradient says %g (norm %g)", t->name, got, want,
                 sqrt(norm));
}

static void test_gradients_of_a_matched_layer(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-gemma3", "gguf-qwen2", "zerope-local",
                                         "zerope-gate" };
    struct rng r = seeded("net match");
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        struct bench_net b;
        open_net(&b, names[i], 2,
                 &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX, .recompute = true });
        size_t n = (size_t)ROWS * CTX * b.m->h.d_model;
        struct match_case c = { &b, 1, NULL, numbers(&r, n, 1), numbers(&r, n, 1), { 0, 0 } };
        fill_batch(&r, &b);
        run_match(&c, &(struct net_gradients){ .w = b.dw });
        for (size_t t = 0; t < b.p.n_tensors; t++) {
            const struct netparam_tensor *p = &b.p.tensors[t];
            bool has = strstr(p->name, "blk.1.attn_") && !strstr(p->name, "attn_norm");
            has |= strstr(p->name, "blk.1.post_attention_norm") != NULL;
            if (has) check_match(&r, &c, p);
            for (size_t k = 0; !has && k < p->n; k++) assert_true(b.dw[p->at + k] == 0.0f);
        }
        close_net(&b);
        release_all(NULL);
    }
}

/* What the hook shows of a layer, matched with itself, is off by nothing; windows given from
 * outside are those of a file. */
struct seen {
    float *x, *sum;
    uint32_t layer;
};

static void keep_layer(void *arg, uint32_t layer, size_t n_rows, const float *x, const float *sum)
{
    struct seen *s = arg;
    if (layer != s->layer) return;
    size_t d = (size_t)n_rows * 32;
    memcpy(s->x, x, d * sizeof *x);
    memcpy(s->sum, sum, d * sizeof *sum);
}

static void test_a_layer_matches_itself(void **state)
{
    (void)state;
    struct rng r = seeded("net itself");
    struct bench_net b;
    open_net(&b, "zerope-local", 2, &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX });
    assert_int_equal(b.m->h.d_model, 32);
    const struct position *p = &b.m->position;
    size_t n = (size_t)ROWS * CTX * 32, n_heads = (size_t)p->n_layer * p->n_kv;
    struct seen seen = { zeros(n), zeros(n), 1 };
    uint32_t *window = room(n_heads * sizeof *window);
    for (size_t i = 0; i < n_heads; i++) window[i] = p->heads[i].window;
    struct net_gates gates = { .window = window, .n_sink = p->n_sink };
    fill_batch(&r, &b);
    net_hook_attention(b.net, keep_layer, &seen);
    net_forward(b.net, b.w, NULL, &b.batch, b.hidden);
    struct match_case c = { &b, 1, &gates, seen.x, seen.sum, { 0, 0 } };
    run_match(&c, &(struct net_gradients){ 0 });
    assert_true(c.found.off == 0 && c.found.size > 0);
    window[p->n_kv] += 5;
    run_match(&c, &(struct net_gradients){ 0 });
    assert_true(c.found.off > 0);
    close_net(&b);
}

/* ---- the bridge ------------------------------------------------------------------------------ */

static void bridge_add(void *arg, uint32_t layer, size_t n_rows, const int32_t *index, float *sum)
{
    pic_add(arg, layer, n_rows, index, sum);
}

static void bridge_back(void *arg, uint32_t layer, size_t n_rows, const int32_t *index,
                        const float *dsum)
{
    pic_back(arg, layer, n_rows, index, dsum);
}

static double bridged_loss(struct bench_net *b, struct pic *pic)
{
    pic_begin(pic, 0.7f);
    return loss_of(b, NULL);
}

static void test_gradients_of_the_bridge(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-gemma3", "gguf-granite" };
    struct rng r = seeded("net bridge");
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        struct bench_net b;
        struct pic pic;
        open_net(&b, names[i], 2, &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX });
        GOLDEN_OK(pic_open(&pic, b.pool, b.m->h.n_layer, b.m->h.d_model, CTX, 3, err));
        net_set_bridge(b.net, &(struct net_bridge){ bridge_add, bridge_back, &pic });
        fill_batch(&r, &b);
        b.dhidden = numbers(&r, b.n_hidden, 0.05f);
        double before = loss_of(&b, NULL);
        assert_true(bridged_loss(&b, &pic) == before); /* it begins by adding nothing */
        for (size_t k = 0; k < pic.n; k++) pic.p[k] += 0.1f * rng_normal(&r);
        assert_true(bridged_loss(&b, &pic) != before);
        net_backward(b.net, b.w, NULL, &b.batch, b.dhidden, &(struct net_gradients){ .w = b.dw });
        double got, want = 0, norm = 0;
        float *u = zeros(pic.n), step = 1e-3f;
        for (size_t k = 0; k < pic.n; k++) {
            u[k] = rng_below(&r, 2) ? 1.0f : -1.0f;
            want += (double)pic.dp[k] * (double)u[k], norm += (double)pic.dp[k] * (double)pic.dp[k];
        }
        for (size_t k = 0; k < pic.n; k++) pic.p[k] += step * u[k];
        double up = bridged_loss(&b, &pic);
        for (size_t k = 0; k < pic.n; k++) pic.p[k] -= 2 * step * u[k];
        got = (up - bridged_loss(&b, &pic)) / (2 * (double)step);
        if (!(norm > 0 && fabs(got - want) <= 4e-3 * sqrt(norm) + 1e-3))
            fail_msg("%s: the loss changes by %g, the bridge's gradient says %g", names[i], got,
                     want);
        pic_free(&pic);
        close_net(&b);
        release_all(NULL);
    }
}

/* ---- bits and bytes -------------------------------------------------------------------------- */

static void test_threads_and_recomputation_do_not_change_bits(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-gemma3", "zerope-mixed", "zerope-local",
                                         "zerope-struct" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        float *hidden = NULL, *dw = NULL;
        for (uint32_t n_threads = 1; n_threads <= THREADS_MOST; n_threads++) {
            struct rng r = seeded("net bits");
            struct bench_net b;
            open_net(&b, names[i], n_threads,
                     &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX,
                                            .recompute = n_threads == 2 });
            fill_batch(&r, &b);
            b.dhidden = numbers(&r, b.n_hidden, 0.05f);
            loss_of(&b, NULL);
            net_backward(b.net, b.w, NULL, &b.batch, b.dhidden,
                         &(struct net_gradients){ .w = b.dw });
            if (!hidden) hidden = b.hidden, dw = b.dw;
            assert_same_bits(b.hidden, hidden, b.n_hidden, names[i]);
            assert_same_bits(b.dw, dw, b.p.n, names[i]);
            close_net(&b);
        }
        release_all(NULL);
    }
}

static void test_frozen_tensors_get_nothing(void **state)
{
    (void)state;
    struct rng r = seeded("net frozen");
    struct bench_net b;
    open_net(&b, "gguf-qwen2", 2, &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX });
    uint8_t *frozen = room(b.p.n_tensors);
    fill_batch(&r, &b);
    b.dhidden = numbers(&r, b.n_hidden, 0.05f);
    for (size_t t = 0; t < b.p.n_tensors; t++) frozen[t] = (uint8_t)(t % 3 != 0);
    loss_of(&b, NULL);
    net_backward(b.net, b.w, NULL, &b.batch, b.dhidden,
                 &(struct net_gradients){ .w = b.dw, .frozen = frozen });
    for (size_t t = 0; t < b.p.n_tensors; t++) {
        const struct netparam_tensor *p = &b.p.tensors[t];
        bool any = false;
        for (size_t i = 0; i < p->n; i++) any |= b.dw[p->at + i] != 0.0f;
        if (any == (frozen[t] != 0)) fail_msg("%s: gradient of %s", p->name, any ? "some" : "none");
    }
    close_net(&b);
}

static void test_planned_bytes_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i += STEP)
        for (int kind = 0; kind < 3; kind++) {
            struct net_options o = { .n_rows = 2, .n_ctx = 65, .forward_only = kind == 1,
                                     .recompute = kind == 2, .mix = kind == 2 };
            struct bench_net b;
            struct mem_stats before, after;
            struct net *net;
            uint64_t planned;
            open_net(&b, models[i], 3, &o);
            if (kind > 0) netparam_leave(&b.p, NULL, NULL);
            mem_stats_read(&before);
            GOLDEN_OK(net_open(&net, &b.p, b.g, &o, err));
            mem_stats_read(&after);
            GOLDEN_OK(net_plan(&b.p, 3, &o, &planned, err));
            assert_int_equal(after.live[MEM_ACTIVATION] - before.live[MEM_ACTIVATION], planned);
            net_close(net);
            close_net(&b);
            release_all(NULL);
        }
}

/* Whatever a pass multiplies, its operands have room since net_open. */
static void test_products_in_bf16_have_their_room(void **state)
{
    (void)state;
    static const struct gemm_options products = { .precision = GEMM_BF16,
                                                  .emulate = may_emulate };
    struct rng r = seeded("net room");
    for (int recompute = 0; recompute < 2; recompute++) {
        struct net_options o = { .n_rows = ROWS, .n_ctx = CTX, .recompute = recompute };
        struct bench_net b;
        open_net_with(&b, "gguf-gemma3", 2, &o, &products);
        uint64_t reserved = gemm_bytes(b.g, 0);
        bool in_bf16 = gemm_precision_used(b.g) == GEMM_BF16;
        assert_true(in_bf16 == (gemm_bytes(b.g, net_operands(&b.p, &o) + 1) > reserved));
        fill_batch(&r, &b);
        b.dhidden = numbers(&r, b.n_hidden, 0.05f);
        loss_of(&b, NULL);
        net_backward(b.net, b.w, NULL, &b.batch, b.dhidden,
                     &(struct net_gradients){ .w = b.dw });
        assert_int_equal(gemm_bytes(b.g, 0), reserved);
        close_net(&b);
        release_all(NULL);
    }
}

static void test_norms_are_watched(void **state)
{
    (void)state;
    struct rng r = seeded("net norms");
    struct bench_net b;
    struct guard_norms norms[64] = { 0 };
    open_net(&b, "gguf-qwen3", 2, &(struct net_options){ .n_rows = ROWS, .n_ctx = CTX });
    fill_batch(&r, &b);
    net_watch(b.net, norms);
    net_forward(b.net, b.w, NULL, &b.batch, b.hidden);
    for (uint32_t l = 0; l < b.m->h.n_layer; l++)
        assert_true(norms[l].q > 0 && isfinite(norms[l].q) && norms[l].k > 0);
    const struct netparam_tensor *gain = netparam_find(&b.p, "blk.%u.attn_k_norm.weight", 1);
    double before = norms[1].k;
    for (size_t i = 0; i < gain->n; i++) b.w[gain->at + i] *= 3.0f;
    net_forward(b.net, b.w, NULL, &b.batch, b.hidden);
    assert_true(fabs(norms[1].k / before - 3) < 1e-3);
    b.w[gain->at] = NAN;
    net_forward(b.net, b.w, NULL, &b.batch, b.hidden);
    assert_true(isnan(norms[1].k));
    close_net(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_hidden_rows_are_the_engines),
        GRAD_TEST(test_gradients_of_all_parameters),
        GRAD_TEST(test_gradients_of_gates),
        GRAD_TEST(test_mix_meets_hard_gates_at_both_ends),
        GRAD_TEST(test_gradients_of_a_matched_layer),
        GRAD_TEST(test_a_layer_matches_itself),
        GRAD_TEST(test_gradients_of_the_bridge),
        GRAD_TEST(test_threads_and_recomputation_do_not_change_bits),
        GRAD_TEST(test_frozen_tensors_get_nothing),
        GRAD_TEST(test_planned_bytes_are_taken),
        GRAD_TEST(test_products_in_bf16_have_their_room),
        GRAD_TEST(test_norms_are_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_grad_fisher.c: first order and Fisher information of gates against central differences of a
 * loss computed in double, window by window and label by label; closed gates; the same bits for any
 * number of threads. */
#include "golden.h"
#include "grad_cases.h"

#include "train/fisher.h"
#include "train/net.h"

enum { CTX = 40, BEGIN = 12, WINDOWS = 3, SEED = 9 };

/* Norms and windows of their own (gemma3), biases (qwen2), norms of q and k (qwen3), heads that are
 * closed in part. */
static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3", "gguf-qwen2",
                                      "gguf-qwen3", "zerope-partial" };

static size_t count_gates(const zp_model *m)
{
    return (size_t)m->position.n_layer * m->position.n_kv * m->position.n_pair;
}

static int32_t *make_ids(const char *name, const zp_model *m)
{
    struct rng r = seeded(name);
    int32_t *ids = room(sizeof *ids * WINDOWS * CTX);
    for (size_t i = 0; i < WINDOWS * CTX; i++) ids[i] = (int32_t)rng_below(&r, m->h.n_vocab);
    return ids;
}

static void measure(const zp_model *m, const int32_t *ids, uint32_t n_threads, double *fisher,
                    double *first_order)
{
    struct fisher *f;
    struct fisher_options o = { CTX, BEGIN, n_threads, SEED };
    GOLDEN_OK(fisher_open(&f, m, &o, err));
    for (size_t w = 0; w < WINDOWS; w++) fisher_add(f, ids + w * CTX);
    fisher_values(f, fisher, first_order);
    fisher_close(f);
}

/* ---- the slow way ---------------------------------------------------------------------------- */

struct slow {
    const zp_model *m;
    struct netparam p;
    struct pool *pool;
    struct gemm *g;
    struct net *net;
    struct packed batch;
    float *w, *hidden, *mix;
    double *logp; /* (n_vocab) of one row */
    int32_t drawn[CTX];
};

static void open_slow(struct slow *s, const zp_model *m)
{
    *s = (struct slow){ .m = m, .pool = pool_of(1) };
    struct net_options o = { .n_rows = 1, .n_ctx = CTX, .forward_only = true, .mix = true };
    GOLDEN_OK(gemm_open(&s->g, s->pool, GEMM_F32, err));
    GOLDEN_OK(netparam_open(&s->p, m, err));
    GOLDEN_OK(net_open(&s->net, &s->p, s->g, &o, err));
    GOLDEN_OK(packed_open(&s->batch, 1, CTX, err));
    s->w = zeros(s->p.n);
    s->hidden = zeros((size_t)CTX * m->h.d_model);
    s->mix = zeros(count_gates(m));
    s->logp = room(m->h.n_vocab * sizeof *s->logp);
    GOLDEN_OK(netparam_read(&s->p, s->w, err));
    const struct position *p = &m->position;
    for (size_t h = 0; h < (size_t)p->n_layer * p->n_kv; h++)
        for (uint32_t i = 0; i < p->heads[h].n_open; i++)
            s->mix[h * p->n_pair + p->heads[h].pair[i]] = 1;
    for (uint32_t t = 0; t < CTX; t++) s->batch.start[t] = 0, s->batch.position[t] = t;
}

static void close_slow(struct slow *s)
{
    packed_close(&s->batch);
    net_close(s->net);
    netparam_close(&s->p);
    gemm_close(s->g);
    pool_close(s->pool);
}

/* s->logp of a position of the last forward pass. */
static void log_softmax(struct slow *s, uint32_t t)
{
    size_t d = s->m->h.d_model, n = s->m->h.n_vocab;
    const float *x = s->hidden + t * d, *w = s->w + net_output(s->net)->at;
    double sum = 0;
    for (size_t v = 0; v < n; v++) {
        s->logp[v] = 0;
        for (size_t i = 0; i < d; i++) s->logp[v] += (double)x[i] * (double)w[v * d + i];
        sum += exp(s->logp[v]);
    }
    for (size_t v = 0; v < n; v++) s->logp[v] -= log(sum);
}

static void forward(struct slow *s)
{
    net_forward(s->net, s->w, &(struct net_gates){ .mix = s->mix }, &s->batch, s->hidden);
}

static void draw_labels(struct slow *s, uint64_t window)
{
    forward(s);
    for (uint32_t t = BEGIN; t + 1 < CTX; t++) {
        double left = rng_unit_at(SEED, FISHER_STREAM + window, t);
        int32_t label = 0;
        log_softmax(s, t);
        while ((left -= exp(s->logp[label])) >= 0) label++;
        s->drawn[t] = label;
    }
}

/* Loss of the window at hand: [0] with the text's labels, [1] with those drawn. */
static void losses(struct slow *s, double loss[2])
{
    loss[0] = loss[1] = 0;
    forward(s);
    for (uint32_t t = BEGIN; t + 1 < CTX; t++) {
        log_softmax(s, t);
        loss[0] -= s->logp[s->batch.ids[t + 1]];
        loss[1] -= s->logp[s->drawn[t]];
    }
}

static void measure_slowly(struct slow *s, const int32_t *ids, double *fisher, double *first_order)
{
    const float step = 0.05f;
    const double n = WINDOWS * (CTX - 1 - BEGIN), width = (double)(1 + step) - (double)(1 - step);
    for (size_t w = 0; w < WINDOWS; w++) {
        memcpy(s->batch.ids, ids + w * CTX, CTX * sizeof *ids);
        draw_labels(s, w);
        for (size_t i = 0; i < count_gates(s->m); i++) {
            double up[2], down[2];
            if (s->mix[i] == 0) continue;
            s->mix[i] = 1 + step;
            losses(s, up);
            s->mix[i] = 1 - step;
            losses(s, down);
            s->mix[i] = 1;
            first_order[i] += (up[0] - down[0]) / width / n;
            fisher[i] += pow((up[1] - down[1]) / width, 2) / n;
        }
    }
    for (size_t i = 0; i < count_gates(s->m); i++) first_order[i] = fabs(first_order[i]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Forward passes in f32 and the width of a step leave up to 1 % of the largest value. */
static void check_values(const char *model, const char *what, const double *got,
                         const double *want, size_t n)
{
    const double share = 0.03;
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, want[i]);
    assert_true(most > 0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= share * most))
            fail_msg("%s, %s: gate %zu of %zu is worth %g, expected %g (largest %g)", model, what,
                     i, n, got[i], want[i], most);
}

static void test_values_are_those_of_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct slow s;
        zp_model *m = golden_small(models[i]);
        size_t n = count_gates(m), bytes = n * sizeof(double);
        double *got[2] = { room(bytes), room(bytes) }, *want[2] = { room(bytes), room(bytes) };
        int32_t *ids = make_ids(models[i], m);
        measure(m, ids, 2, got[0], got[1]);
        open_slow(&s, m);
        measure_slowly(&s, ids, want[0], want[1]);
        check_values(models[i], "fisher", got[0], want[0], n);
        check_values(models[i], "first order", got[1], want[1], n);
        close_slow(&s);
        zp_model_close(m);
        release_all(NULL);
    }
}

/* What the file has closed, by pair or because the layer has no rotation, is worth nothing. */
static void test_only_open_gates_are_worth_something(void **state)
{
    (void)state;
    static const char *const names[] = { "zerope-partial", "zerope-mixed", "zerope-alibi" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        zp_model *m = golden_small(names[i]);
        const struct position *p = &m->position;
        size_t n = count_gates(m), n_open = 0, n_worth = 0;
        double *fisher = room(n * sizeof *fisher), *first = room(n * sizeof *first);
        measure(m, make_ids(names[i], m), 1, fisher, first);
        for (size_t h = 0; h < (size_t)p->n_layer * p->n_kv; h++) n_open += p->heads[h].n_open;
        for (size_t g = 0; g < n; g++) {
            assert_int_equal(fisher[g] > 0, first[g] > 0);
            n_worth += fisher[g] > 0;
        }
        assert_int_equal(n_worth, n_open);
        zp_model_close(m);
        release_all(NULL);
    }
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-gemma3", "zerope-partial" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        zp_model *m = golden_small(names[i]);
        size_t bytes = count_gates(m) * sizeof(double);
        double *first[2] = { room(bytes), room(bytes) }, *more[2] = { room(bytes), room(bytes) };
        int32_t *ids = make_ids(names[i], m);
        measure(m, ids, 1, first[0], first[1]);
        for (uint32_t n_threads = 2; n_threads <= THREADS_MOST; n_threads++) {
            measure(m, ids, n_threads, more[0], more[1]);
            for (int k = 0; k < 2; k++) assert_memory_equal(more[k], first[k], bytes);
        }
        zp_model_close(m);
        release_all(NULL);
    }
}

static void test_windows_without_a_label_are_refused(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    const struct fisher_options bad[] = { { .n_ctx = 0 }, { .n_ctx = 1 },
                                          { .n_ctx = 8, .begin = 7 } };
    for (size_t i = 0; i < ZP_COUNT(bad); i++) {
        struct fisher *f;
        assert_int_equal(fisher_open(&f, m, &bad[i], NULL), ZP_USAGE);
        assert_null(f);
    }
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_values_are_those_of_differences),
        GRAD_TEST(test_only_open_gates_are_worth_something),
        GRAD_TEST(test_threads_do_not_change_bits),
        GRAD_TEST(test_windows_without_a_label_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_distance.c: attention by distance and positional strength are those of a plain reference,
 * which turns vectors by angles and weighs keys by the definition, for every kind of position; and
 * the measuring engine neither has weights of its own nor disturbs the one it stands beside. */
#include "golden.h"

#include "live_bytes.h"
#include "model/distance.h"

enum { N = 70 };

struct qk {
    const struct zp_model *m;
    float *q, *k; /* (n_layer, N, heads, d) */
};

static void keep(void *arg, uint32_t layer, size_t n_tok, const float *q, const float *k,
                 const float *v)
{
    struct qk *x = arg;
    size_t nq = N * x->m->h.n_head * x->m->h.d_head, nk = N * x->m->h.n_kv * x->m->h.d_head;
    (void)v;
    assert_int_equal(n_tok, N);
    memcpy(x->q + layer * nq, q, nq * sizeof *q);
    memcpy(x->k + layer * nk, k, nk * sizeof *k);
}

static void fill_ids(const zp_model *m, int32_t *ids)
{
    for (int i = 0; i < N; i++) ids[i] = (int32_t)((unsigned)(i * i * 7 + i * 31) % m->h.n_vocab);
}

/* Channel pair of slot s turns by its angle. */
static void turn(const struct position *p, zp_mode mode, uint32_t layer, uint32_t kv, uint32_t at,
                 const float *from, double *to)
{
    const struct position_head *h = &p->heads[layer * p->n_kv + kv];
    for (uint32_t i = 0; i < p->d_head; i++) to[i] = (double)from[i];
    for (uint32_t s = 0; s < h->n_open && mode != ZP_MODE_ZERO; s++) {
        uint32_t pair = h->pair[s];
        if (mode == ZP_MODE_HALF && !h->half_open[pair]) continue;
        double a = p->angle[p->angle_set[layer]][pair] * at, c = cos(a), z = sin(a);
        double x = to[2 * s], y = to[2 * s + 1];
        to[2 * s] = x * c - y * z;
        to[2 * s + 1] = x * z + y * c;
    }
}

static bool sees(const struct position *p, uint32_t layer, uint32_t kv, uint32_t at, uint32_t j)
{
    struct position_sight s = position_head_sight(p, layer, kv);
    return j <= at && (s.window == 0 || at - j < s.window || j < s.n_sink);
}

static double scale_of(const struct position *p, uint32_t layer, uint32_t head, uint32_t at)
{
    uint32_t kv = head / (p->n_head / p->n_kv), n = 0;
    for (uint32_t j = 0; j <= at; j++) n += sees(p, layer, kv, at, j);
    return (double)position_query_scale(p, layer, head, n) *
           (double)position_gate_factor(p, layer, head, at);
}

static void weights(const struct qk *x, const zp_seq *seq, uint32_t layer, uint32_t head,
                    uint32_t at, double *w)
{
    const struct position *p = &x->m->position;
    uint32_t d = p->d_head, kv = head / (p->n_head / p->n_kv);
    const float *listens = structhead_bias(&x->m->structure, layer);
    double q[256], k[256], sum = 0.0;
    float bias[N] = { 0 };
    if (position_layer_has_bias(p, layer)) position_bias_fill(p, layer, head, N, bias);
    turn(p, seq->mode, layer, kv, at, x->q + (((size_t)layer * N + at) * p->n_head + head) * d, q);
    for (uint32_t j = 0; j <= at; j++) {
        double logit = 0.0;
        turn(p, seq->mode, layer, kv, j, x->k + (((size_t)layer * N + j) * p->n_kv + kv) * d, k);
        for (uint32_t i = 0; i < d; i++) logit += q[i] * k[i];
        logit = logit * scale_of(p, layer, head, at) + (double)bias[N - 1 - (at - j)];
        for (uint32_t i = 0; listens && i < STRUCT_TYPES; i++)
            logit += (double)listens[head * STRUCT_TYPES + i] *
                     (double)seq->detected[i * forward_detected_step(N) + j];
        w[j] = sees(p, layer, kv, at, j) ? exp(logit) : 0.0; /* small logits: no maximum needed */
        sum += w[j];
    }
    for (uint32_t j = 0; j <= at; j++) w[j] /= sum;
}

static void near(double got, double want, const char *name, const char *what, uint32_t layer)
{
    if (!(fabs(got - want) <= 2e-5 * (1e-3 + fabs(want))))
        fail_msg("%s, layer %u: %s %.9g, expected %.9g", name, layer, what, got, want);
}

static void check_shares(const char *name, const struct distance_map *map, const struct qk *x,
                         const zp_seq *seq, uint32_t layer)
{
    const struct position *p = &x->m->position;
    double sum[DISTANCE_BUCKETS] = { 0 }, first = 0.0, all, w[N];
    uint64_t pairs[DISTANCE_BUCKETS] = { 0 };
    for (uint32_t head = 0; head < p->n_head; head++)
        for (uint32_t at = 1; at < N; at++) {
            weights(x, seq, layer, head, at, w);
            first += w[0];
            for (uint32_t j = 1; j <= at; j++)
                for (uint32_t b = 0; b < DISTANCE_BUCKETS; b++)
                    if (at - j >= distance_bucket_first(b) &&
                        at - j < distance_bucket_first(b + 1))
                        sum[b] += w[j], pairs[b]++;
        }
    double rows = (double)p->n_head * (N - 1);
    all = map->first[layer];
    near(map->first[layer], first / rows, name, "first", layer);
    for (uint32_t b = 0; b < map->n_buckets; b++) {
        size_t at = (size_t)layer * map->n_buckets + b;
        assert_int_equal(map->pairs[b] * p->n_head, pairs[b]);
        near(map->share[at], sum[b] / rows, name, "share", layer);
        near(map->weight[at], sum[b] / (double)pairs[b], name, "weight", layer);
        all += map->share[at];
    }
    for (uint32_t b = map->n_buckets; b < DISTANCE_BUCKETS; b++) assert_int_equal(pairs[b], 0);
    near(all, 1.0, name, "sum", layer);
}

/* Turning by an angle a moves a pair of length l by 2 l |sin(a / 2)|: the mean over all pairs of
 * positions and heads, which the samples' mean must be close to. */
static double strength_of_all(const struct qk *x, zp_mode mode, uint32_t layer)
{
    const struct position *p = &x->m->position;
    uint32_t d = p->d_head;
    double sum = 0.0;
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < N; j++)
            for (uint32_t head = 0; i != j && head < p->n_head; head++) {
                uint32_t kv = head / (p->n_head / p->n_kv);
                const struct position_head *h = &p->heads[layer * p->n_kv + kv];
                const float *q = x->q + (((size_t)layer * N + i) * p->n_head + head) * d;
                double moved = 0.0, size = 0.0, far = fabs((double)i - j);
                for (uint32_t c = 0; c < d; c++) size += (double)q[c] * (double)q[c];
                for (uint32_t s = 0; s < h->n_open && mode != ZP_MODE_ZERO; s++) {
                    if (mode == ZP_MODE_HALF && !h->half_open[h->pair[s]]) continue;
                    double a = p->angle[p->angle_set[layer]][h->pair[s]] * far,
                           l = hypot((double)q[2 * s], (double)q[2 * s + 1]);
                    moved += 4.0 * l * l * sin(a / 2) * sin(a / 2);
                }
                sum += sqrt(moved / size) / far;
            }
    return sum / ((double)N * (N - 1) * p->n_head);
}

static void check_strength(const char *name, const struct distance_map *map, const struct qk *x,
                           zp_mode mode, uint32_t layer)
{
    const struct position *p = &x->m->position;
    if (position_layer_has_bias(p, layer)) {
        assert_true(isnan(map->strength[layer]) && isnan(map->change[layer]));
        return;
    }
    assert_true(map->change[layer] > 0.0);
    if (p->scale_c || position_has_gate(p)) { /* positions in the lengths of queries, too */
        assert_true(map->strength[layer] > 0.0);
        return;
    }
    double all = strength_of_all(x, mode, layer), got = map->strength[layer];
    if (all == 0.0) assert_true(got == 0.0);
    /* 1000 of 4830 pairs; the largest is some times the mean */
    else if (!(fabs(got - all) <= 0.15 * all))
        fail_msg("%s, layer %u: strength %g, of all pairs %g", name, layer, got, all);
}

static void check(const char *name, zp_mode mode)
{
    zp_model *m = golden_small(name);
    zp_engine *served = golden_engine(m, (zp_engine_options){ .n_ctx = 256, .n_threads = 2,
                                                              .allow_unverified_mode = true });
    zp_engine *plain = golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_threads = 1,
                                                             .kv_type = ZP_KV_F32,
                                                             .allow_unverified_mode = true });
    struct qk x = { .m = m };
    struct distance_map map;
    int32_t ids[N];
    zp_seq *seq;
    fill_ids(m, ids);
    x.q = calloc((size_t)m->h.n_layer * N * m->h.n_head * m->h.d_head, sizeof *x.q);
    x.k = calloc((size_t)m->h.n_layer * N * m->h.n_kv * m->h.d_head, sizeof *x.k);
    assert_true(x.q != NULL && x.k != NULL);
    plain->forward.hooks = (struct forward_hooks){ .arg = &x, .at_qkv = keep };
    GOLDEN_OK(zp_seq_open(&seq, plain, &(zp_seq_options){ .mode = mode }, err));
    zp_item item = { seq, ids, N, ZP_WANT_NONE };
    GOLDEN_OK(zp_engine_run(plain, &item, 1, NULL, 0, NULL, err));
    GOLDEN_OK(distance_measure(&map, served, ids, N, mode, NULL, err));
    assert_int_equal(map.mode, seq->mode);
    assert_int_equal(map.n_layer, m->h.n_layer);
    assert_int_equal(map.n_buckets, 8); /* 64 to 127 is the last: 68 */
    for (uint32_t l = 0; l < m->h.n_layer; l++) {
        check_shares(name, &map, &x, seq, l);
        check_strength(name, &map, &x, seq->mode, l);
    }
    distance_free(&map);
    zp_seq_close(seq);
    free(x.q), free(x.k);
    zp_engine_close(plain);
    zp_engine_close(served);
    zp_model_close(m);
}

static void test_every_kind_of_position(void **state)
{
    static const char *const names[] = {
        "llama", "gguf-llama-yarn", "gguf-llama-closed", "gguf-qwen3", "zerope-partial",
        "zerope-mixed", "zerope-alibi", "zerope-t5", "zerope-mlp", "zerope-local",
        "zerope-local-scaled", "zerope-scaled", "zerope-gate", "zerope-struct",
        "zerope-alibi-struct", "zerope-gemma3", "gguf-granite-none"
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check(names[i], ZP_MODE_FULL);
}

static void test_modes(void **state)
{
    (void)state;
    check("llama", ZP_MODE_ZERO);
    check("zerope-partial", ZP_MODE_ZERO);
}

static void test_beside_an_engine(void **state)
{
    (void)state;
    zp_model *m = golden_small("llama");
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_threads = 1 }), *beside;
    int32_t ids[N];
    fill_ids(m, ids);
    float *before = golden_logits(e, m, ids, N);
    uint64_t bytes = live_bytes();
    GOLDEN_OK(engine_open_beside(&beside, e, &(zp_engine_options){ .n_ctx = N, .n_threads = 1 },
                                 err));
    assert_ptr_equal(beside->weights.packed, e->weights.packed);
    float *own = golden_logits(beside, m, ids, N);
    assert_memory_equal(own, before, N * m->h.n_vocab * sizeof *own);
    zp_engine_close(beside);
    assert_int_equal(live_bytes(), bytes);
    float *after = golden_logits(e, m, ids, N);
    assert_memory_equal(after, before, N * m->h.n_vocab * sizeof *after);
    free(before), free(own), free(after);
    zp_engine_close(e);
    zp_model_close(m);
}

static bool stop_after_one(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)total;
    *(uint64_t *)arg = done;
    return false;
}

static void test_what_is_refused(void **state)
{
    struct distance_map map;
    int32_t ids[N];
    uint64_t done = 0;
    const zp_progress progress = { stop_after_one, &done };
    zp_err err = { 0 };
    (void)state;
    zp_model *m = golden_small("llama");
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_threads = 1 });
    uint64_t bytes = live_bytes();
    fill_ids(m, ids);
    assert_int_equal(distance_measure(&map, e, ids, DISTANCE_LEAST - 1, ZP_MODE_FULL, NULL, &err),
                     ZP_BAD_INPUT);
    assert_int_equal(distance_measure(&map, e, ids, N, ZP_MODE_HALF, NULL, &err), ZP_BAD_INPUT);
    assert_int_equal(distance_measure(&map, e, ids, N, ZP_MODE_FULL, &progress, &err),
                     ZP_INTERRUPTED);
    assert_int_equal(done, 1);
    ids[3] = -1;
    assert_int_equal(distance_measure(&map, e, ids, N, ZP_MODE_FULL, NULL, &err), ZP_BAD_INPUT);
    assert_int_equal(live_bytes(), bytes);
    zp_engine_close(e);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_position),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_beside_an_engine),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

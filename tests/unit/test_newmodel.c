/* test_newmodel.c: models made from nothing open, run and train alike whatever their position kind,
 * have the initial values that were promised, and wrong configs say what is wrong. */
#include "golden.h"
#include "grad/grad_cases.h"

#include "base/hash.h"
#include "model/engine.h"
#include "train/net.h"
#include "train/newmodel.h"
#include "in_folder.h"
#include "train_fixture.h"

enum { ROWS = 2, CTX = 70, SEED = 11 };

#define SIZES                                                                                      \
    "\"n_layer\":2,\"d_model\":48,\"n_head\":6,\"n_kv\":2,\"d_head\":8,\"d_ff\":40,\"n_ctx\":80"
#define OF_KIND(kind) "{" SIZES ",\"position\":\"" kind "\"}"

static const struct made {
    const char *name, *config, *arch;
} kinds[] = {
    { "rope.gguf", OF_KIND("rope"), "llama" },
    { "partial.gguf", "{" SIZES ",\"position\":\"partial\",\"n_rot\":4}", "llama" },
    { "alibi.gguf", OF_KIND("alibi"), "zerope-llama" },
    { "t5.gguf", OF_KIND("t5"), "zerope-llama" },
    { "t5b.gguf", "{" SIZES ",\"position\":\"t5\",\"buckets\":8,\"max_distance\":20}",
      "zerope-llama" },
    { "mlp.gguf", OF_KIND("mlp"), "zerope-llama" },
    { "none.gguf", OF_KIND("none"), "zerope-llama" },
    { "rope-n.gguf", "{" SIZES ",\"position\":\"rope\",\"rope_base\":500,\"qk_norm\":true}",
      "qwen3" },
    { "partial-n.gguf", "{" SIZES ",\"position\":\"partial\",\"n_rot\":6,\"qk_norm\":true}",
      "qwen3" },
    { "alibi-n.gguf", "{" SIZES ",\"position\":\"alibi\",\"qk_norm\":true}", "zerope-qwen3" },
    { "t5-n.gguf", "{" SIZES ",\"position\":\"t5\",\"qk_norm\":true}", "zerope-qwen3" },
    { "mlp-n.gguf", "{" SIZES ",\"position\":\"mlp\",\"qk_norm\":true}", "zerope-qwen3" },
    { "none-n.gguf", "{" SIZES ",\"position\":\"none\",\"qk_norm\":true}", "zerope-qwen3" },
    /* sizes that no vector register likes, defaults, and matrices of one row */
    { "odd.gguf",
      "{\"n_layer\":1,\"d_model\":30,\"n_head\":3,\"d_ff\":1,\"n_ctx\":80,\"position\":\"rope\"}",
      "llama" },
    { "least.gguf",
      "{\"n_layer\":1,\"d_model\":1,\"n_head\":1,\"d_head\":2,\"d_ff\":1,\"n_ctx\":80,"
      "\"position\":\"t5\"}",
      "zerope-llama" },
};

static void make(const struct made *m, uint64_t seed)
{
    GOLDEN_OK(newmodel_write(m->config, "config.json", in_folder("fixture.gguf"), seed,
                             in_folder(m->name), err));
}

static zp_model *open_made(const struct made *m)
{
    zp_model *model = NULL;
    make(m, SEED);
    GOLDEN_OK(zp_model_open(&model, in_folder(m->name), NULL, err));
    return model;
}

static const struct made *made_named(const char *name)
{
    size_t i = 0;
    while (strcmp(kinds[i].name, name) != 0) i++;
    return &kinds[i];
}

/* ---- they run -------------------------------------------------------------------------------- */

struct bench_made {
    zp_model *m;
    struct netparam p;
    struct pool *pool;
    struct gemm *g;
    struct net *net;
    struct packed batch;
    float *w, *hidden;
};

/* Row 0 is one document, row 1 has two. */
static void fill_batch(struct rng *r, struct bench_made *b)
{
    for (uint32_t i = 0; i < ROWS * CTX; i++) {
        uint32_t at = i % CTX, start = i >= CTX && at >= 30 ? 30 : 0;
        b->batch.ids[i] = (int32_t)rng_below(r, b->m->h.n_vocab);
        b->batch.start[i] = start;
        b->batch.position[i] = at - start;
    }
}

static void open_bench(struct bench_made *b, const struct made *made)
{
    *b = (struct bench_made){ .m = open_made(made), .pool = pool_of(2) };
    struct net_options o = { .n_rows = ROWS, .n_ctx = CTX };
    GOLDEN_OK(gemm_open(&b->g, b->pool, GEMM_F32, err));
    GOLDEN_OK(netparam_open(&b->p, b->m, err));
    GOLDEN_OK(net_open(&b->net, &b->p, b->g, &o, err));
    GOLDEN_OK(packed_open(&b->batch, ROWS, CTX, err));
    b->w = zeros(b->p.n);
    b->hidden = zeros((size_t)ROWS * CTX * b->m->h.d_model);
    GOLDEN_OK(netparam_read(&b->p, b->w, err));
}

static void close_bench(struct bench_made *b)
{
    packed_close(&b->batch);
    net_close(b->net);
    netparam_close(&b->p);
    gemm_close(b->g);
    pool_close(b->pool);
    zp_model_close(b->m);
}

/* Rows of one document by the engine, and the norm that stands before the output matrix. */
static void compare_document(const struct bench_made *b, const char *name, size_t at, size_t n)
{
    zp_engine_options o = { .n_ctx = CTX, .n_threads = 1, .exact = true, .kv_type = ZP_KV_F32 };
    zp_engine *e = golden_engine(b->m, o);
    zp_seq *s = NULL;
    struct kern_table t;
    size_t d = b->m->h.d_model;
    float *x = zeros(n * d), *row = zeros(d);
    kern_table_init(&t, KERN_LEVEL_COUNT - 1);
    GOLDEN_OK(zp_seq_open(&s, e, NULL, err));
    zp_item item = { s, b->batch.ids + at, n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item, .n_items = 1, .x_out = x };
    GOLDEN_OK(engine_run(e, &job, err));
    for (size_t i = 0; i < n; i++) {
        t.rmsnorm(x + i * d, b->w + netparam_find(&b->p, "output_norm.weight", 0)->at,
                  b->m->h.norm_eps, d, row);
        assert_near(name, b->hidden + (at + i) * d, doubles_of(row, d), d, 2e-5);
    }
    zp_seq_close(s);
    zp_engine_close(e);
}

static void test_every_kind_runs_in_net_and_engine_alike(void **state)
{
    (void)state;
    struct rng r = seeded("new models");
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        struct bench_made b;
        open_bench(&b, &kinds[i]);
        assert_string_equal(b.m->gguf.arch, kinds[i].arch);
        fill_batch(&r, &b);
        net_forward(b.net, b.w, NULL, &b.batch, b.hidden);
        compare_document(&b, kinds[i].name, 0, CTX);
        compare_document(&b, kinds[i].name, CTX, 30);
        compare_document(&b, kinds[i].name, CTX + 30, CTX - 30);
        close_bench(&b);
        release_all(NULL);
    }
}

static void test_configs_are_what_the_model_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        zp_model *m = open_made(&kinds[i]);
        const struct position *p = &m->position;
        const char *kind = position_kind_name(p->kind[0]), *name = kinds[i].name;
        /* a stock file with fewer rotated channels has all of its pairs open */
        bool rotates = strstr(name, "rope") || strstr(name, "partial") || strstr(name, "odd");
        if (!strstr(name, "odd") && !strstr(name, "least") && !strstr(name, "partial"))
            assert_memory_equal(name, kind, strlen(kind));
        for (uint32_t h = 0; h < p->n_layer * p->n_kv; h++)
            assert_int_equal(p->heads[h].n_open, rotates ? m->h.n_rot / 2 : 0);
        assert_int_equal(m->h.n_ctx_train, 80);
        zp_model_close(m);
    }
    zp_model *partial = open_made(made_named("partial-n.gguf"));
    assert_int_equal(partial->h.n_rot, 6);
    zp_model_close(partial);
    zp_model *rope = open_made(made_named("rope-n.gguf")), *t5 = open_made(made_named("t5b.gguf"));
    assert_true(rope->h.rope_base == 500.0f);
    assert_int_equal(t5->position.t5_buckets, 8);
    assert_int_equal(t5->position.t5_max, 20);
    zp_model_close(rope);
    zp_model_close(t5);
}

static void test_the_tokenizer_comes_along(void **state)
{
    (void)state;
    static const char text[] = "kalo mine sutaro.\nvi";
    struct gguf g;
    struct tokenizer *own;
    struct token_list want = { 0 };
    zp_model *m = open_made(&kinds[0]);
    int32_t *ids = NULL;
    size_t n = 0;
    GOLDEN_OK(gguf_open(&g, in_folder("fixture.gguf"), err));
    GOLDEN_OK(tokenizer_open_gguf(&own, &g, NULL, err));
    GOLDEN_OK(tokenizer_encode(own, text, strlen(text), TOKENIZE_AUTO, &want, err));
    GOLDEN_OK(zp_tokenize(m, text, strlen(text), ZP_TOKENS_BOS, &ids, &n, err));
    assert_int_equal(n, want.count);
    assert_memory_equal(ids, want.ids, n * sizeof *ids);
    assert_int_equal(m->h.n_vocab, tokenizer_get_info(own)->n_vocab);
    for (uint32_t i = 0; i < g.n_kv; i++) {
        const struct gguf_kv *kv = gguf_find_key(&m->gguf, g.kvs[i].name);
        assert_true(kv && kv->bytes == g.kvs[i].bytes);
        assert_memory_equal(kv->data, g.kvs[i].data, kv->bytes);
    }
    zp_free(ids);
    token_list_free(&want);
    tokenizer_close(own);
    gguf_close(&g);
    zp_model_close(m);
}

/* ---- values ---------------------------------------------------------------------------------- */

static const float *values_of(const zp_model *m, const char *name, size_t *n)
{
    const struct gguf_tensor *t = gguf_find_tensor(&m->gguf, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->type, QUANT_F32);
    *n = (size_t)(t->bytes / sizeof(float));
    return (const float *)(const void *)t->data;
}

static void test_twins_share_all_other_weights(void **state)
{
    (void)state;
    size_t n_compared = 0;
    zp_model *first = open_made(&kinds[0]);
    for (size_t i = 1; i < ZP_COUNT(kinds) - 2; i++) {
        zp_model *twin = open_made(&kinds[i]);
        for (uint32_t t = 0; t < first->gguf.n_tensors; t++) {
            const struct gguf_tensor *a = &first->gguf.tensors[t];
            const struct gguf_tensor *b = gguf_find_tensor(&twin->gguf, a->name);
            assert_true(b && b->bytes == a->bytes);
            assert_memory_equal(a->data, b->data, a->bytes);
            n_compared++;
        }
        for (uint32_t t = 0; t < twin->gguf.n_tensors; t++) {
            const char *name = twin->gguf.tensors[t].name;
            bool own = strstr(name, ".pos_") || strstr(name, "_q_norm.") ||
                       strstr(name, "_k_norm.");
            assert_true(own == !gguf_find_tensor(&first->gguf, name));
        }
        zp_model_close(twin);
    }
    assert_true(n_compared > 200);
    zp_model_close(first);
}

/* As arrays of parameters, too, which stand by original pair: where files have one order. */
static void test_twins_share_parameters(void **state)
{
    (void)state;
    zp_model *rope = open_made(&kinds[0]), *none = open_made(made_named("none.gguf"));
    struct netparam a, b;
    GOLDEN_OK(netparam_open(&a, rope, err));
    GOLDEN_OK(netparam_open(&b, none, err));
    assert_int_equal(a.n, b.n);
    float *x = zeros(a.n), *y = zeros(b.n);
    GOLDEN_OK(netparam_read(&a, x, err));
    GOLDEN_OK(netparam_read(&b, y, err));
    assert_same_bits(x, y, a.n, "parameters");
    netparam_close(&a);
    netparam_close(&b);
    zp_model_close(rope);
    zp_model_close(none);
}

/* A1, written out. */
static void test_a_value_depends_on_seed_name_and_place(void **state)
{
    (void)state;
    static const char name[] = "blk.1.ffn_up.weight";
    size_t n;
    zp_model *m = open_made(&kinds[0]);
    const float *x = values_of(m, name, &n);
    const double std = 1 / sqrt((double)m->h.d_model);
    for (size_t i = 0; i < n; i++) {
        struct rng r = { SEED, hash_xxh64(name, strlen(name), 0), i };
        assert_true(x[i] == (float)(std * (double)rng_normal(&r)));
    }
    zp_model_close(m);
}

/* Mean and deviation of n values, in units of their errors. */
static void assert_normal_values(const float *x, size_t n, const char *name, double std)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    double mean = sum / (double)n, got = sqrt(squares / (double)n);
    if (fabs(mean) > 4 * std / sqrt((double)n) || fabs(got / std - 1) > 4 / sqrt(2.0 * (double)n))
        fail_msg("%s: mean %g, deviation %g; expected 0, %g", name, mean, got, std);
}

static void assert_normal(const zp_model *m, const char *name, double std)
{
    size_t n;
    const float *x = values_of(m, name, &n);
    assert_normal_values(x, n, name, std);
}

/* Heads begin by looking for their like and by passing on what they see: what is left of queries
 * without their keys, and of the output without its values, is noise. */
static void check_heads(const zp_model *m)
{
    enum { D = 48, HEAD = 8, GROUP = 3, LAYERS = 2 };
    size_t n_q, n_o, n;
    const float *q = values_of(m, "blk.1.attn_q.weight", &n_q);
    const float *k = values_of(m, "blk.1.attn_k.weight", &n);
    const float *o = values_of(m, "blk.1.attn_output.weight", &n_o);
    const float *v = values_of(m, "blk.1.attn_v.weight", &n);
    float rest_q[D * D], rest_o[D * D];
    assert_true(n_q == D * D && n_o == D * D && n == D * D / GROUP);
    for (size_t at = 0; at < D; at++) /* channel of a query head */
        for (size_t i = 0; i < D; i++) {
            size_t kv = at / HEAD / GROUP * HEAD + at % HEAD;
            rest_q[at * D + i] = q[at * D + i] - k[kv * D + i];
            rest_o[at * D + i] = o[i * D + at] - 0.1f * v[kv * D + i];
        }
    assert_normal_values(rest_q, D * D, "queries without keys", 0.5 / sqrt(D));
    assert_normal_values(rest_o, D * D, "output without values", 0.5 / sqrt(D * 2.0 * LAYERS));
}

static void assert_all(const zp_model *m, const char *name, float value)
{
    size_t n;
    const float *x = values_of(m, name, &n);
    for (size_t i = 0; i < n; i++) assert_true(x[i] == value);
}

static void test_initial_values(void **state)
{
    (void)state;
    zp_model *m = open_made(made_named("mlp-n.gguf")), *t5 = open_made(made_named("t5.gguf"));
    assert_normal(m, "token_embd.weight", 0.02);
    assert_normal(m, "blk.0.attn_k.weight", 1 / sqrt(48));
    assert_normal(m, "blk.1.attn_v.weight", 1 / sqrt(48));
    assert_normal(m, "blk.1.ffn_gate.weight", 1 / sqrt(48));
    assert_normal(m, "blk.1.ffn_down.weight", 0.5 / sqrt(40)); /* 2 layers */
    check_heads(m);
    assert_normal(m, "blk.0.pos_mlp.0.weight", 0.5);
    assert_normal(m, "blk.1.pos_mlp.1.weight", 0.02);
    assert_normal(t5, "blk.0.pos_t5.weight", 0.02);
    assert_all(m, "blk.0.pos_mlp.0.bias", 0);
    assert_all(m, "blk.1.pos_mlp.1.bias", 0);
    assert_all(m, "blk.0.attn_norm.weight", 1);
    assert_all(m, "blk.1.ffn_norm.weight", 1);
    assert_all(m, "blk.1.attn_q_norm.weight", 1);
    assert_all(m, "blk.1.attn_k_norm.weight", 1);
    assert_all(m, "output_norm.weight", 1);
    assert_null(gguf_find_tensor(&m->gguf, "output.weight"));
    zp_model_close(m);
    zp_model_close(t5);
}

static void check_slopes(const char *config, const double *exponents, size_t n_head)
{
    struct made made = { "slopes.gguf", config, "zerope-llama" };
    zp_model *m = open_made(&made);
    size_t n;
    const float *slope = values_of(m, "blk.0.pos_alibi.slope", &n);
    assert_int_equal(n, n_head);
    for (size_t h = 0; h < n; h++) assert_true(slope[h] == (float)exp2(exponents[h]));
    zp_model_close(m);
}

/* Of 8 heads: Press et al. 2021, section 3; of 6 and 12: get_slopes in their attention_with_linear_
 * biases repository, fairseq/models/transformer.py, worked out by hand. */
static void test_alibi_slopes_are_the_papers(void **state)
{
    (void)state;
#define SMALL                                                                                      \
    "{\"n_layer\":1,\"d_model\":24,\"d_head\":2,\"d_ff\":4,\"n_ctx\":8,\"position\":\"alibi\","
    check_slopes(SMALL "\"n_head\":8}", (const double[]){ -1, -2, -3, -4, -5, -6, -7, -8 }, 8);
    check_slopes(SMALL "\"n_head\":1}", (const double[]){ -8 }, 1);
    check_slopes(SMALL "\"n_head\":6}", (const double[]){ -2, -4, -6, -8, -1, -3 }, 6);
    check_slopes(SMALL "\"n_head\":12}", (const double[]){ -1, -2, -3, -4, -5, -6, -7, -8, -0.5,
                                                           -1.5, -2.5, -3.5 }, 12);
}

static void read_made(const struct made *m, uint64_t seed, struct buffer *b)
{
    make(m, seed);
    buffer_clear(b);
    GOLDEN_OK(os_read_file(in_folder(m->name), b, err));
}

static void test_same_seed_same_bytes(void **state)
{
    (void)state;
    struct buffer a = buffer_with_max(MEM_META, 16 << 20), b = a;
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        read_made(&kinds[i], 3, &a);
        read_made(&kinds[i], 3, &b);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        read_made(&kinds[i], 4, &b);
        assert_int_equal(a.size, b.size);
        assert_memory_not_equal(a.data, b.data, a.size);
    }
    buffer_free(&a);
    buffer_free(&b);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses(const char *config, zp_status code, const char *message)
{
    zp_err err = { 0 };
    zp_status status = newmodel_write(config, "my.json", in_folder("fixture.gguf"), 1,
                                      in_folder("refused.gguf"), &err);
    if (status != code || !strstr(err.message, message))
        fail_msg("%s\ngave %s: %s\nexpected %s", config, zp_status_name(status), err.message,
                 message);
    assert_false(os_exists(in_folder("refused.gguf")));
}

/* The good config with one member more, or another value of it. */
static void refuses_member(const char *member, const char *message)
{
    static const struct {
        const char *key, *value;
    } good[] = { { "n_layer", "2" }, { "d_model", "48" }, { "n_head", "6" },
                 { "n_kv", "2" },    { "d_head", "8" },   { "d_ff", "40" },
                 { "n_ctx", "80" },  { "position", "\"rope\"" } };
    char config[1024] = "{", key[32];
    size_t at = 1;
    bool silent = strchr(member, ':') == NULL; /* the member is left out */
    for (size_t i = 0; i < ZP_COUNT(good); i++) {
        snprintf(key, sizeof key, "\"%s\"", good[i].key);
        if (strstr(member, key)) continue;
        at += (size_t)snprintf(config + at, sizeof config - at, "%s:%s,", key, good[i].value);
    }
    if (silent) config[at - 1] = '}';
    else snprintf(config + at, sizeof config - at, "%s}", member);
    refuses(config, ZP_BAD_FILE, message);
}

static void test_wrong_members_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *member, *message;
    } wrong[] = {
        { "\"n_layers\":3", "my.json: unknown member 'n_layers'; known: n_layer d_model" },
        { "\"n_layer\"", "my.json: n_layer is missing; expected an integer, 1 to 1024" },
        { "\"n_layer\":0", "my.json: n_layer is 0; expected an integer, 1 to 1024" },
        { "\"n_layer\":1025", "n_layer is 1025; expected an integer, 1 to 1024" },
        { "\"n_layer\":-1", "n_layer is -1; expected" },
        { "\"n_layer\":2.0", "n_layer is the real number 2; expected an integer" },
        { "\"n_layer\":\"2\"", "n_layer is '2'; expected an integer" },
        { "\"n_layer\":null", "n_layer is null; expected an integer" },
        { "\"n_layer\":[2]", "n_layer is an array; expected an integer" },
        { "\"n_layer\":{}", "n_layer is an object; expected an integer" },
        { "\"n_layer\":true", "n_layer is true; expected an integer" },
        { "\"n_layer\":9223372036854775807", "n_layer is 9223372036854775807; expected" },
        { "\"d_model\"", "d_model is missing" },
        { "\"d_model\":131073", "d_model is 131073; expected an integer, 1 to 131072" },
        { "\"n_head\":1025", "n_head is 1025; expected an integer, 1 to 1024" },
        { "\"n_head\"", "n_head is missing" },
        { "\"n_kv\":4", "n_kv is 4; expected a divisor of n_head, 6" },
        { "\"n_kv\":7", "n_kv is 7; expected an integer, 1 to 6" },
        { "\"d_head\":7", "d_head is 7; expected an even number, 2 to 1024" },
        { "\"d_head\":1026", "d_head is 1026; expected an integer, 2 to 1024" },
        { "\"d_ff\":0", "d_ff is 0; expected an integer, 1 to 1048576" },
        { "\"n_ctx\":16777217", "n_ctx is 16777217; expected an integer, 1 to 16777216" },
        { "\"n_ctx\"", "n_ctx is missing" },
        { "\"position\"", "position is missing; expected rope, partial, alibi, t5, mlp or none" },
        { "\"position\":\"learned\"", "position is 'learned'; expected rope, partial" },
        { "\"position\":3", "position is 3; expected rope" },
        { "\"rope_base\":1", "rope_base is 1; expected a number above 1, at most 1e20" },
        { "\"rope_base\":1.5e20", "rope_base is the real number 1.5e+20; expected" },
        { "\"rope_base\":\"big\"", "rope_base is 'big'; expected a number" },
        { "\"rope_base\":1e400", "my.json" }, /* no JSON number of ours */
        { "\"qk_norm\":1", "qk_norm is 1; expected true or false" },
        { "\"qk_norm\":null", "qk_norm is null; expected true or false" },
        { "\"n_rot\":4", "n_rot means nothing to position rope; leave it out" },
        { "\"buckets\":4", "buckets means nothing to position rope; leave it out" },
        { "\"position\":\"partial\"", "n_rot is missing; expected an integer, 2 to" },
        { "\"position\":\"partial\",\"n_rot\":8",
          "n_rot is 8; expected an even number below d_head, 8" },
        { "\"position\":\"partial\",\"n_rot\":3",
          "n_rot is 3; expected an even number below d_head, 8" },
        { "\"position\":\"alibi\",\"rope_base\":10000",
          "rope_base means nothing to position alibi" },
        { "\"position\":\"mlp\",\"max_distance\":9", "max_distance means nothing to position mlp" },
        { "\"position\":\"t5\",\"buckets\":1", "buckets is 1; expected an integer, 2 to 4096" },
        { "\"position\":\"t5\",\"buckets\":4097", "buckets is 4097; expected" },
        { "\"position\":\"t5\",\"max_distance\":16",
          "max_distance is 16; expected more than half of buckets, 32" },
    };
    for (size_t i = 0; i < ZP_COUNT(wrong); i++)
        refuses_member(wrong[i].member, wrong[i].message);
    /* 48 channels of the model give no even number to each of 7 or 16 heads */
#define OF_HEADS(n)                                                                             \
    "{\"n_layer\":2,\"d_model\":48,\"d_ff\":4,\"n_ctx\":8,\"position\":\"none\",\"n_head\":" n "}"
    refuses(OF_HEADS("7"), ZP_BAD_FILE, "d_head is missing; expected an integer, 2 to 1024");
    refuses(OF_HEADS("16"), ZP_BAD_FILE, "d_head is missing");
}

static void refuses_tokenizer(const char *tokenizer, const char *out, zp_status code)
{
    zp_err err = { 0 };
    zp_status status = newmodel_write(kinds[0].config, "my.json", tokenizer, 1, out, &err);
    if (status != code || !strstr(err.message, tokenizer))
        fail_msg("%s: %s: %s", tokenizer, zp_status_name(status), err.message);
}

static void test_what_is_no_config_or_tokenizer(void **state)
{
    (void)state;
    char fixture[128], out[128];
    struct gguf_edit e;
    struct gguf g;
    snprintf(fixture, sizeof fixture, "%s", in_folder("fixture.gguf"));
    snprintf(out, sizeof out, "%s", in_folder("refused.gguf"));
    refuses("[1]", ZP_BAD_FILE, "my.json: not a JSON object");
    refuses("{\"n_layer\":2", ZP_BAD_FILE, "my.json: not valid JSON");
    refuses("{" SIZES ",\"n_layer\":2,\"position\":\"rope\"}", ZP_BAD_FILE, "my.json");
    refuses("", ZP_BAD_FILE, "my.json");
    refuses_tokenizer(fixture, fixture, ZP_USAGE);
    GOLDEN_OK(gguf_open(&g, fixture, err)); /* still there */
    gguf_close(&g);
    refuses_tokenizer(in_folder("gone.gguf"), out, ZP_BAD_INPUT);
    GOLDEN_OK(gguf_edit_init(&e, NULL, err));
    GOLDEN_OK(gguf_edit_set_str(&e, "general.name", "no words", err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("dumb.gguf"), err));
    gguf_edit_free(&e);
    refuses_tokenizer(in_folder("dumb.gguf"), out, ZP_BAD_FILE);
    assert_false(os_exists(out));
}

static int make_tokenizer(void **state)
{
    struct train_fixture f = { 0 };
    if (make_folder(state) != 0) return -1;
    fixture_tokenizer(&f, 320);
    tokenizer_close(f.tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_every_kind_runs_in_net_and_engine_alike),
        cmocka_unit_test(test_configs_are_what_the_model_says),
        cmocka_unit_test(test_the_tokenizer_comes_along),
        cmocka_unit_test(test_twins_share_all_other_weights),
        GRAD_TEST(test_twins_share_parameters),
        cmocka_unit_test(test_a_value_depends_on_seed_name_and_place),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_alibi_slopes_are_the_papers),
        cmocka_unit_test(test_same_seed_same_bytes),
        cmocka_unit_test(test_wrong_members_are_named),
        cmocka_unit_test(test_what_is_no_config_or_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_tokenizer, remove_folder);
}

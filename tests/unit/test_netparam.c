/* test_netparam.c: a model's parameters go into an array and back into a file without a bit being
 * lost, stand by original pair there, are the same where they stay in the file, and what cannot be
 * trained or written says so. */
#include "golden.h"
#include "grad/grad_cases.h"

#include "kern/quant.h"
#include "model/gguf_write.h"
#include "train/net.h"
#include "train/newmodel.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "train_fixture.h"

enum { N_IDS = 70 };

static const char *const models[] = {
    "gguf-gemma3",  "gguf-granite", "gguf-granite-none", "gguf-llama-closed", "gguf-llama-linear",
    "gguf-llama-llama3", "gguf-llama-yarn", "gguf-qwen2", "gguf-qwen3", "gguf-smollm3",
    "zerope-alibi", "zerope-gemma3", "zerope-local", "zerope-local-scaled", "zerope-mixed",
    "zerope-mlp", "zerope-partial", "zerope-qwen3", "zerope-scaled", "zerope-t5",
    "zerope-gate",
    /* folders */
    "gemma3", "llama", "qwen2", "qwen3",
};

static zp_model *open_path(const char *path)
{
    zp_model *m = NULL;
    GOLDEN_OK(zp_model_open(&m, path, NULL, err));
    return m;
}

/* The parameters of a model; released with the test. */
static float *read_all(struct netparam *p, const zp_model *m)
{
    GOLDEN_OK(netparam_open(p, m, err));
    float *w = zeros(p->n);
    GOLDEN_OK(netparam_read(p, w, err));
    return w;
}

/* Logits of the exact path: (N_IDS, n_vocab). */
static float *logits_of(const zp_model *m)
{
    zp_engine_options o = { .n_ctx = N_IDS, .n_threads = 1, .exact = true, .kv_type = ZP_KV_F32 };
    zp_engine *e = golden_engine(m, o);
    int32_t ids[N_IDS];
    struct rng r = rng_stream(5, 5);
    for (size_t i = 0; i < N_IDS; i++) ids[i] = (int32_t)rng_below(&r, m->h.n_vocab);
    float *out = golden_logits(e, m, ids, N_IDS);
    zp_engine_close(e);
    return out;
}

static void assert_same_logits(const zp_model *a, const zp_model *b, const char *name)
{
    float *x = logits_of(a), *y = logits_of(b);
    assert_same_bits(x, y, (size_t)N_IDS * a->h.n_vocab, name);
    free(x);
    free(y);
}

/* The same floats in the same places. */
static void assert_same_parameters(const struct netparam *a, const float *x,
                                   const struct netparam *b, const float *y, const char *name)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (size_t t = 0; t < a->n_tensors; t++) {
        const struct netparam_tensor *s = &a->tensors[t], *u = &b->tensors[t];
        if (strcmp(s->name, u->name) != 0 || s->at != u->at || s->n != u->n ||
            s->n_in != u->n_in || s->n_out != u->n_out || s->layer != u->layer ||
            s->rows != u->rows || s->matrix != u->matrix)
            fail_msg("%s: tensor %s is laid out in another way", name, s->name);
    }
    assert_same_bits(x, y, a->n, name);
}

/* ---- there and back -------------------------------------------------------------------------- */

/* f16 and wider gains become f32 without a change of value, so that even logits keep their bits. */
static void test_files_give_the_floats_they_were_given(void **state)
{
    (void)state;
    struct rng r = seeded("parameters");
    const char *path = in_folder("out.gguf");
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct netparam p, q;
        zp_model *m = golden_small(models[i]);
        float *w = read_all(&p, m);
        GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, path, err));
        zp_model *copy = open_path(path);
        assert_same_parameters(&p, w, &q, read_all(&q, copy), models[i]);
        assert_same_logits(m, copy, models[i]);
        netparam_close(&q);
        zp_model_close(copy);
        /* any values: no row is written twice, none is forgotten */
        for (size_t t = 0; t < p.n_tensors; t++)
            for (size_t k = 0; k < p.tensors[t].n; k++) w[p.tensors[t].at + k] = uniform(&r, 1);
        GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, path, err));
        copy = open_path(path);
        assert_same_parameters(&p, w, &q, read_all(&q, copy), models[i]);
        netparam_close(&q);
        netparam_close(&p);
        zp_model_close(copy);
        zp_model_close(m);
        release_all(NULL);
    }
}

static void test_places_do_not_overlap(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct netparam p;
        zp_model *m = golden_small(models[i]);
        float *w = read_all(&p, m);
        size_t end = 0;
        for (size_t t = 0; t < p.n_tensors; t++) {
            const struct netparam_tensor *at = &p.tensors[t];
            assert_true(at->at % 16 == 0 && at->at >= end && at->n == at->n_in * at->n_out);
            for (; end < at->at; end++) assert_true(w[end] == 0); // P3
            end = at->at + at->n;
            assert_ptr_equal(netparam_find(&p, at->name, 0), at);
        }
        assert_true(end <= p.n);
        netparam_close(&p);
        zp_model_close(m);
        release_all(NULL);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Row `row` of a tensor in the file, as floats. */
static void file_row_of(const zp_model *m, const char *name, size_t row, float *out)
{
    const struct gguf_tensor *t = gguf_find_tensor(&m->gguf, name);
    quant_dequantize_row(quant_traits_find(t->type),
                         t->data + row * (size_t)gguf_tensor_row_bytes(t), out, (size_t)t->ne[0]);
}

/* P2, from what the formats say: where in its head channel c of original pair i stands. */
static size_t channel_in_file(const zp_model *m, uint32_t layer, uint32_t kv, size_t pair, size_t c)
{
    const struct position_head *head = &m->position.heads[layer * m->h.n_kv + kv];
    if (!m->position.reordered)
        return m->h.arch->pairing == ARCH_HALVES ? pair + c * m->h.n_rot / 2 : 2 * pair + c;
    size_t slot = 0;
    while (head->pair[slot] != pair) slot++;
    return 2 * slot + c;
}

static void check_rows(const zp_model *m, const struct netparam *p, const float *w, uint32_t layer,
                       const char *format, uint32_t n_heads)
{
    const struct netparam_tensor *t = netparam_find(p, format, layer);
    float *row = zeros(t->n_in);
    for (uint32_t h = 0; h < n_heads; h++)
        for (size_t c = 0; c < m->h.n_rot; c++) {
            uint32_t kv = h / (n_heads / m->h.n_kv);
            size_t at = h * m->h.d_head;
            file_row_of(m, t->name, at + channel_in_file(m, layer, kv, c / 2, c % 2), row);
            assert_same_bits(row, w + t->at + (at + c) * t->n_in, t->n_in, t->name);
        }
}

static void test_rows_stand_by_original_pair(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-qwen3", "gguf-llama-yarn", "zerope-partial",
                                         "zerope-qwen3", "zerope-gemma3" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        struct netparam p;
        zp_model *m = golden_small(names[i]);
        float *w = read_all(&p, m);
        for (uint32_t l = 0; l < m->h.n_layer; l++) {
            check_rows(m, &p, w, l, "blk.%u.attn_q.weight", m->h.n_head);
            check_rows(m, &p, w, l, "blk.%u.attn_k.weight", m->h.n_kv);
        }
        netparam_close(&p);
        zp_model_close(m);
        release_all(NULL);
    }
}

/* zerope-qwen3 with the first head's gains for all, in the order of the file: its heads have
 * different orders. */
static void make_shared_gains(const char *path)
{
    struct gguf_edit e;
    zp_model *m = golden_small("zerope-qwen3");
    GOLDEN_OK(gguf_edit_init(&e, &m->gguf, err));
    for (uint32_t l = 0; l < m->h.n_layer; l++)
        for (int i = 0; i < 2; i++) {
            char name[64];
            float *gains = zeros(m->h.d_head);
            uint64_t n = m->h.d_head;
            snprintf(name, sizeof name, "blk.%u.attn_%c_norm.weight", l, "qk"[i]);
            file_row_of(m, name, 0, gains);
            GOLDEN_OK(gguf_edit_set_tensor_f32(&e, name, 1, &n, gains, err));
        }
    GOLDEN_OK(gguf_edit_write(&e, path, err));
    gguf_edit_free(&e);
    zp_model_close(m);
}

static void test_shared_gains_become_one_row_a_head(void **state)
{
    (void)state;
    struct netparam p, q;
    make_shared_gains(in_folder("shared.gguf"));
    zp_model *m = open_path(in_folder("shared.gguf"));
    float *w = read_all(&p, m);
    uint32_t n_widened = 0;
    GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, in_folder("wide.gguf"), err));
    zp_model *copy = open_path(in_folder("wide.gguf"));
    for (uint32_t l = 0; l < m->h.n_layer; l++) {
        const struct netparam_tensor *t = netparam_find(&p, "blk.%u.attn_q_norm.weight", l);
        assert_true(!t->matrix && t->n_in == 1 && t->rows == NETPARAM_QUERY_HEADS);
        n_widened += t->n == (size_t)m->h.n_head * m->h.d_head;
        assert_int_equal(gguf_find_tensor(&copy->gguf, t->name)->ne[0], t->n);
    }
    assert_true(n_widened > 0);
    assert_same_parameters(&p, w, &q, read_all(&q, copy), "shared gains");
    assert_same_logits(m, copy, "shared gains");
    netparam_close(&p);
    netparam_close(&q);
    zp_model_close(m);
    zp_model_close(copy);
}

/* More than the writer asks for at a time (1 MiB), in two dimensions. */
static void test_gains_of_many_heads_are_written_in_pieces(void **state)
{
    (void)state;
    enum { D_HEAD = 1024, N_HEAD = 300 };
    static const char config[] = "{\"n_layer\":1,\"d_model\":2,\"n_head\":300,\"n_kv\":1,"
                                 "\"d_head\":1024,\"d_ff\":2,\"n_ctx\":80,\"qk_norm\":true,"
                                 "\"position\":\"rope\"}";
    const char *path = in_folder("heads.gguf"), *name = "blk.0.attn_q_norm.weight";
    struct rng r = seeded("many heads");
    float *gains = numbers(&r, (size_t)D_HEAD * N_HEAD, 1);
    struct gguf_edit e;
    struct netparam p, q;
    GOLDEN_OK(newmodel_write(config, "config", in_folder("fixture.gguf"), 1, path, err));
    zp_model *m = open_path(path);
    GOLDEN_OK(gguf_edit_init(&e, &m->gguf, err));
    GOLDEN_OK(gguf_edit_set_tensor_f32(&e, name, 2, (const uint64_t[]){ D_HEAD, N_HEAD }, gains,
                                       err));
    GOLDEN_OK(gguf_edit_write(&e, path, err));
    gguf_edit_free(&e);
    zp_model_close(m);
    m = open_path(path);
    float *w = read_all(&p, m);
    GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, in_folder("heads2.gguf"), err));
    zp_model *copy = open_path(in_folder("heads2.gguf"));
    assert_same_parameters(&p, w, &q, read_all(&q, copy), "many heads");
    const struct gguf_tensor *t = gguf_find_tensor(&copy->gguf, name);
    assert_same_bits(t->data, gains, (size_t)D_HEAD * N_HEAD, name);
    netparam_close(&p);
    netparam_close(&q);
    zp_model_close(copy);
    zp_model_close(m);
}

/* ---- what stays in the file ------------------------------------------------------------------ */

static uint64_t live_weights(void)
{
    struct mem_stats stats;
    mem_stats_read(&stats);
    return stats.live[MEM_WEIGHTS];
}

static bool makes_queries(void *arg, const struct netparam_tensor *t)
{
    (void)arg;
    return strstr(t->name, ".attn_q.") != NULL;
}

/* The same model with what does not learn left in the file. */
static float *leave_all(struct netparam *p, const zp_model *m, netparam_learns_fn learns)
{
    GOLDEN_OK(netparam_open(p, m, err));
    netparam_leave(p, learns, NULL);
    float *w = zeros(p->n);
    GOLDEN_OK(netparam_read(p, w, err));
    return w;
}

/* The floats of tensor t of q, by all ways there are to them. */
static void check_left(const struct netparam *q, const float *left, const struct netparam_tensor *t,
                       const float *want, struct pool *pool)
{
    float *out = zeros(t->n);
    if (!t->in_file) {
        assert_same_bits(left + t->at, want, t->n, t->name);
        return;
    }
    for (size_t row = 0, n; row < t->n_out; row += n) {
        n = t->n_out - row < 7 ? t->n_out - row : 7;
        float *to = out + row * t->n_in;
        assert_ptr_equal(netparam_rows(q, left, t, row % 2 ? pool : NULL, row, n, to), to);
    }
    assert_same_bits(out, want, t->n, t->name);
    if (t->layer == q->model->h.n_layer) return;
    memset(out, 0, t->n * sizeof *out);
    assert_true(t->n <= netparam_room(q));
    netparam_matrix(q, left, t, pool, out);
    assert_same_bits(out, want, t->n, t->name);
}

static void check_gathered(const struct netparam *q, const float *want, struct pool *pool,
                           struct rng *r)
{
    const struct netparam_tensor *t = netparam_find(q, "token_embd.weight", 0);
    int32_t ids[9];
    float *out = zeros(ZP_COUNT(ids) * t->n_in);
    for (size_t i = 0; i < ZP_COUNT(ids); i++) ids[i] = (int32_t)rng_below(r, t->n_out);
    netparam_gather(q, t, pool, ZP_COUNT(ids), ids, out);
    for (size_t i = 0; i < ZP_COUNT(ids); i++)
        assert_same_bits(out + i * t->n_in, want + (size_t)ids[i] * t->n_in, t->n_in, t->name);
}

static void test_what_stays_in_the_file_has_the_same_floats(void **state)
{
    (void)state;
    struct rng r = seeded("left in the file");
    struct pool *pool = pool_of(3);
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct netparam p, q;
        zp_model *m = golden_small(models[i]);
        float *w = read_all(&p, m);
        uint64_t before = live_weights(), bytes = 0;
        float *left = leave_all(&q, m, i % 2 ? NULL : makes_queries);
        for (size_t t = 0; t < q.n_tensors; t++) {
            const struct netparam_tensor *of = &q.tensors[t];
            bool stays = of->matrix && !strstr(of->name, ".pos_") &&
                         (i % 2 || !strstr(of->name, ".attn_q."));
            if (of->in_file != stays) fail_msg("%s: %s", models[i], of->name);
            if (stays) bytes += of->file->bytes;
            check_left(&q, left, of, w + p.tensors[t].at, pool);
        }
        check_gathered(&q, w + netparam_find(&p, "token_embd.weight", 0)->at, pool, &r);
        assert_true(q.n < p.n);
        assert_int_equal(live_weights() - before, bytes);
        netparam_close(&q);
        assert_int_equal(live_weights(), before);
        netparam_close(&p);
        zp_model_close(m);
        release_all(NULL);
    }
    pool_close(pool);
}

static void add_one(void *arg, const struct netparam_tensor *t, float *w)
{
    for (size_t i = 0; strstr(t->name, arg) && i < t->n; i++) w[i] += 1;
}

/* The file that is written of one that was left is that of all floats, changed ones too. */
static void test_what_stays_in_the_file_is_written(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-llama-yarn", "gguf-qwen3", "zerope-mixed", "llama" };
    static char changed[] = ".attn_k.weight";
    for (size_t i = 0; i < ZP_COUNT(names); i++)
        for (int change = 0; change < 2; change++) {
            struct netparam p, q;
            struct buffer a = buffer_with_max(MEM_META, 1 << 26), b = a;
            zp_model *m = golden_small(names[i]);
            float *w = read_all(&p, m), *left = leave_all(&q, m, makes_queries);
            if (change) netparam_set_change(&q, add_one, changed);
            for (size_t t = 0; change && t < p.n_tensors; t++)
                add_one(changed, &p.tensors[t], w + p.tensors[t].at);
            uint32_t type = i % 2 ? QUANT_Q8_0 : QUANT_F32;
            GOLDEN_OK(netparam_write(&p, w, type, "{}", in_folder("floats.gguf"), err));
            GOLDEN_OK(netparam_write(&q, left, type, "{}", in_folder("left.gguf"), err));
            GOLDEN_OK(os_read_file(in_folder("floats.gguf"), &a, err));
            GOLDEN_OK(os_read_file(in_folder("left.gguf"), &b, err));
            assert_int_equal(a.size, b.size);
            assert_memory_equal(a.data, b.data, a.size);
            buffer_free(&a);
            buffer_free(&b);
            netparam_close(&q);
            netparam_close(&p);
            zp_model_close(m);
            release_all(NULL);
        }
}

/* ---- what else is in the file ---------------------------------------------------------------- */

static void check_keys(const zp_model *m, const zp_model *copy)
{
    static const char *const changed[] = { "general.file_type", "zerope.evidence", "zerope.recipe",
                                           "zerope.context.validated",
                                           "general.quantization_version" };
    for (uint32_t i = 0; i < m->gguf.n_kv; i++) {
        const struct gguf_kv *kv = &m->gguf.kvs[i], *now = gguf_find_key(&copy->gguf, kv->name);
        bool own = false;
        for (size_t k = 0; k < ZP_COUNT(changed); k++) own |= strcmp(changed[k], kv->name) == 0;
        if (own) continue;
        if (!now || now->bytes != kv->bytes || memcmp(now->data, kv->data, kv->bytes) != 0)
            fail_msg("key %s is another", kv->name);
    }
}

static void test_evidence_goes_and_all_else_stays(void **state)
{
    (void)state;
    struct gguf_edit e;
    struct netparam p;
    struct gguf_str recipe;
    zp_model *m = golden_small("gguf-llama-llama3"); /* it has rope_freqs */
    float angles[64] = { 0 };
    uint64_t n = m->h.n_rot / 2;
    GOLDEN_OK(gguf_edit_init(&e, &m->gguf, err));
    GOLDEN_OK(gguf_edit_set_str(&e, "zerope.evidence", "{}", err));
    GOLDEN_OK(gguf_edit_set_u32(&e, "zerope.context.validated", 64, err));
    GOLDEN_OK(gguf_edit_set_str(&e, "zerope.recipe", "{\"old\":1}", err));
    GOLDEN_OK(gguf_edit_set_tensor_f32(&e, "blk.1.attn_rot_embd.weight", 1, &n, angles, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("in.gguf"), err));
    gguf_edit_free(&e);
    zp_model_close(m);
    m = open_path(in_folder("in.gguf"));
    float *w = read_all(&p, m);
    assert_null(netparam_find(&p, "rope_freqs.weight", 0)); // P1
    assert_null(netparam_find(&p, "blk.%u.attn_rot_embd.weight", 1));
    assert_int_equal(p.n_tensors, m->gguf.n_tensors - 2);
    for (int given = 0; given < 2; given++) {
        const char *text = given ? "{\"new\":2}" : NULL;
        GOLDEN_OK(netparam_write(&p, w, QUANT_BF16, text, in_folder("out.gguf"), err));
        zp_model *copy = open_path(in_folder("out.gguf"));
        check_keys(m, copy);
        assert_null(gguf_find_key(&copy->gguf, "zerope.evidence"));
        assert_null(gguf_find_key(&copy->gguf, "zerope.context.validated"));
        GOLDEN_OK(gguf_get_str(&copy->gguf, "zerope.recipe", &recipe, err));
        assert_true(gguf_str_is(recipe, given ? "{\"new\":2}" : "{\"old\":1}"));
        for (uint32_t t = 0; t < m->gguf.n_tensors; t++)
            assert_string_equal(m->gguf.tensors[t].name, copy->gguf.tensors[t].name);
        assert_memory_equal(copy->h.rope_freqs->data, m->h.rope_freqs->data, n * sizeof(float));
        zp_model_close(copy);
    }
    netparam_close(&p);
    zp_model_close(m);
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Rows of a tensor as the type holds them. */
static void through(const struct quant_traits *type, const struct netparam_tensor *t,
                    const float *w, float *out)
{
    size_t bytes = quant_row_bytes(type, t->n_in);
    uint8_t *row = room(bytes);
    for (size_t r = 0; r < t->n_out; r++) {
        GOLDEN_OK(quant_quantize_row(type, w + t->at + r * t->n_in, row, t->n_in, err));
        quant_dequantize_row(type, row, out + r * t->n_in, t->n_in);
    }
}

/* Each matrix whose rows fit is in the type, and holds what it can; all else is as it was. */
static void check_values(const struct netparam *p, const float *w, uint32_t type,
                         const zp_model *copy)
{
    const struct quant_traits *traits = quant_traits_find(type);
    struct netparam q;
    float *got = read_all(&q, copy);
    uint32_t n_in_type = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct netparam_tensor *t = &p->tensors[i];
        bool fits = t->matrix && t->n_in % traits->block == 0 && !strstr(t->name, ".pos_");
        float *want = zeros(t->n);
        memcpy(want, w + t->at, t->n * sizeof *want);
        if (fits) through(traits, t, w, want);
        assert_same_bits(got + t->at, want, t->n, t->name);
        assert_int_equal(gguf_find_tensor(&copy->gguf, t->name)->type, fits ? type : QUANT_F32);
        n_in_type += fits;
    }
    assert_true(n_in_type > 0);
    netparam_close(&q);
}

static void check_type(const struct netparam *p, const float *w, uint32_t type)
{
    const struct quant_traits *traits = quant_traits_find(type);
    uint32_t file_type, version;
    GOLDEN_OK(netparam_write(p, w, type, NULL, in_folder("typed.gguf"), err));
    zp_model *copy = open_path(in_folder("typed.gguf"));
    check_values(p, w, type, copy);
    GOLDEN_OK(gguf_get_u32(&copy->gguf, "general.file_type", &file_type, err));
    assert_int_equal(file_type, traits->file_type);
    GOLDEN_OK(gguf_get_u32_or(&copy->gguf, "general.quantization_version", 0, &version, err));
    assert_int_equal(version, traits->form == QUANT_FLOAT ? 0 : 2);
    free(logits_of(copy)); /* it runs */
    zp_model_close(copy);
}

/* d_ff 96: rows of ffn_down fit blocks of 32, and none of 256. */
static void test_each_type_that_can_be_written(void **state)
{
    (void)state;
    static const char *const positions[] = { "rope", "t5", "mlp" };
    for (size_t i = 0; i < ZP_COUNT(positions); i++) {
        struct netparam p;
        char config[256];
        snprintf(config, sizeof config,
                 "{\"n_layer\":2,\"d_model\":256,\"n_head\":4,\"n_kv\":2,\"d_ff\":96,\"n_ctx\":80,"
                 "\"position\":\"%s\",\"qk_norm\":true}", positions[i]);
        GOLDEN_OK(newmodel_write(config, "config", in_folder("fixture.gguf"), 1,
                                 in_folder("new.gguf"), err));
        zp_model *m = open_path(in_folder("new.gguf"));
        float *w = read_all(&p, m);
        const struct quant_traits *t;
        for (size_t k = 0; (t = quant_traits_at(k)) != NULL; k++)
            if (t->can_write) check_type(&p, w, t->type);
        netparam_close(&p);
        zp_model_close(m);
        release_all(NULL);
    }
}

/* ---- over a file ----------------------------------------------------------------------------- */

static size_t n_files(void)
{
    char **names;
    size_t n;
    GOLDEN_OK(os_list_files(folder, &names, &n, err));
    os_list_free(names, n);
    return n;
}

static void test_a_model_is_written_over_its_own_file(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-qwen3", "zerope-mixed" };
    for (size_t i = 0; i < ZP_COUNT(names); i++) {
        struct netparam p, q;
        zp_model *m = golden_small(names[i]);
        float *w = read_all(&p, m);
        GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, in_folder("own.gguf"), err));
        netparam_close(&p);
        zp_model_close(m);
        m = open_path(in_folder("own.gguf"));
        w = read_all(&p, m);
        float *old = copy_of(w, p.n), *again = zeros(p.n);
        size_t before = n_files();
        for (size_t k = 0; k < p.n; k++) w[k] *= 0.5f;
        GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, in_folder("own.gguf"), err));
        assert_int_equal(n_files(), before);
        zp_model *copy = open_path(in_folder("own.gguf"));
        assert_same_parameters(&p, w, &q, read_all(&q, copy), names[i]);
        GOLDEN_OK(netparam_read(&p, again, err)); /* who has the old one open keeps it */
        assert_same_bits(again, old, p.n, names[i]);
        netparam_close(&p);
        netparam_close(&q);
        zp_model_close(copy);
        zp_model_close(m);
        release_all(NULL);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses_values(const struct netparam *p, float *w, const char *name, size_t at,
                           float value, uint32_t type, const char *message)
{
    const struct netparam_tensor *t = netparam_find(p, name, 0);
    zp_err err = { 0 };
    float before = w[t->at + at];
    w[t->at + at] = value;
    uint64_t live = live_bytes();
    zp_status status = netparam_write(p, w, type, NULL, in_folder("old.gguf"), &err);
    if (status != ZP_BAD_INPUT || !strstr(err.message, name) || !strstr(err.message, message))
        fail_msg("%s: %s: %s", name, zp_status_name(status), err.message);
    assert_int_equal(live_bytes(), live);
    w[t->at + at] = before;
}

static void test_values_that_are_no_weights_are_not_written(void **state)
{
    (void)state;
    struct netparam p, q;
    zp_model *m = golden_small("gguf-qwen2");
    float *w = read_all(&p, m);
    size_t d = m->h.d_model;
    GOLDEN_OK(netparam_write(&p, w, QUANT_F32, NULL, in_folder("old.gguf"), err));
    size_t before = n_files();
    refuses_values(&p, w, "token_embd.weight", 3 * d + 2, NAN, QUANT_F32, "row 3: weight 2");
    refuses_values(&p, w, "blk.0.ffn_norm.weight", 5, INFINITY, QUANT_F32, "weight 5");
    refuses_values(&p, w, "blk.0.attn_q.bias", 0, NAN, QUANT_F16, "weight 0");
    refuses_values(&p, w, "blk.0.ffn_up.weight", 0, 1e6f, QUANT_F16, "too large for F16");
    assert_int_equal(n_files(), before);
    zp_model *old = open_path(in_folder("old.gguf"));
    assert_same_parameters(&p, w, &q, read_all(&q, old), "the old file");
    netparam_close(&p);
    netparam_close(&q);
    zp_model_close(old);
    zp_model_close(m);
}

static void test_types_that_cannot_be_written(void **state)
{
    (void)state;
    static const uint32_t types[] = { QUANT_Q2_K, QUANT_MXFP4, 4, 999 };
    struct netparam p;
    zp_model *m = golden_small("gguf-qwen2");
    float *w = read_all(&p, m);
    for (size_t i = 0; i < ZP_COUNT(types); i++) {
        zp_err why = { 0 };
        assert_int_equal(netparam_write(&p, w, types[i], NULL, in_folder("no.gguf"), &why),
                         ZP_USAGE);
        assert_false(os_exists(in_folder("no.gguf")));
    }
    netparam_close(&p);
    zp_model_close(m);
}

/* The model with the tensor in place of its own, or as one more. */
static zp_model *open_with(const char *model, const char *name, uint64_t n_in, uint64_t n_out,
                           const float *values)
{
    struct gguf_edit e;
    uint64_t ne[] = { n_in, n_out };
    zp_model *m = golden_small(model);
    GOLDEN_OK(gguf_edit_init(&e, &m->gguf, err));
    GOLDEN_OK(gguf_edit_set_tensor_f32(&e, name, n_out ? 2 : 1, ne, values, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("with.gguf"), err));
    gguf_edit_free(&e);
    zp_model_close(m);
    return open_path(in_folder("with.gguf"));
}

static void test_damaged_values_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "token_embd.weight", "blk.1.ffn_down.weight",
                                         "blk.1.attn_k.bias", "output_norm.weight" };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < ZP_COUNT(names); i++)
        for (size_t k = 0; k < ZP_COUNT(bad); k++) {
            struct netparam p;
            zp_err err = { 0 };
            zp_model *m = golden_small("gguf-qwen2");
            const struct gguf_tensor *t = gguf_find_tensor(&m->gguf, names[i]);
            uint64_t n_in = t->ne[0], n_out = t->n_dims > 1 ? t->ne[1] : 0;
            size_t n = (size_t)(n_in * (n_out ? n_out : 1));
            float *values = zeros(n);
            zp_model_close(m);
            values[n - 1] = bad[k];
            m = open_with("gguf-qwen2", names[i], n_in, n_out, values);
            if (netparam_open(&p, m, &err) != ZP_OK) fail_msg("%s", err.message);
            float *w = zeros(p.n);
            for (int left = 0; left < 2; left++) {
                if (left) netparam_leave(&p, NULL, NULL);
                uint64_t live = live_bytes();
                err = (zp_err){ 0 };
                assert_int_equal(netparam_read(&p, w, &err), ZP_BAD_FILE);
                assert_non_null(strstr(err.message, names[i]));
                assert_int_equal(live_bytes(), live);
            }
            netparam_close(&p);
            zp_model_close(m);
        }
}

static void refuses_model(const char *model, const char *name, uint64_t n_in, uint64_t n_out,
                          zp_status code)
{
    struct netparam p;
    zp_err err = { 0 };
    float *values = zeros((size_t)(n_in * (n_out ? n_out : 1)));
    zp_model *m = open_with(model, name, n_in, n_out, values);
    uint64_t live = live_bytes();
    zp_status status = netparam_open(&p, m, &err);
    if (status != code || !strstr(err.message, name))
        fail_msg("%s: %s: %s", name, zp_status_name(status), err.message);
    assert_int_equal(live_bytes(), live);
    zp_model_close(m);
}

/* Such rows would be looked up beyond the table of heads. */
static void test_tensors_that_fit_no_head_are_refused(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-qwen2");
    uint64_t d = m->h.d_model, head = m->h.d_head, q = m->h.n_head * head, kv = m->h.n_kv * head;
    assert_true(kv < q && head < kv);
    zp_model_close(m);
    refuses_model("gguf-qwen2", "blk.0.attn_q.weight", d, q + head, ZP_BAD_FILE);
    refuses_model("gguf-qwen2", "blk.1.attn_q.weight", d, q - head, ZP_BAD_FILE);
    refuses_model("gguf-qwen2", "blk.1.attn_k.weight", d, q, ZP_BAD_FILE);
    refuses_model("gguf-qwen2", "blk.1.attn_k.weight", d, 1, ZP_BAD_FILE);
    refuses_model("gguf-qwen2", "blk.1.attn_q.bias", head, 0, ZP_BAD_FILE);
    refuses_model("gguf-qwen2", "blk.0.attn_k_norm.weight", head + 2, 0, ZP_BAD_FILE);
    refuses_model("gguf-qwen2", "blk.7.attn_q.weight", d, q, ZP_UNSUPPORTED);
    refuses_model("gguf-qwen2", "other.attn_q.weight", d, q, ZP_UNSUPPORTED);
}

/* Computing without it would train another model. */
static void test_tensors_nobody_reads_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "output.bias", "blk.0.ffn_gate_inp.weight",
                                         "blk.0.attn_sub_norm.weight", "blk.01.attn_q.bias" };
    for (size_t i = 0; i < ZP_COUNT(names); i++)
        refuses_model("gguf-llama-yarn", names[i], 8, 0, ZP_UNSUPPORTED);
}

static int make_tokenizer(void **state)
{
    struct train_fixture f = { 0 };
    if (make_folder(state) != 0) return -1;
    fixture_tokenizer(&f, 300);
    tokenizer_close(f.tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_files_give_the_floats_they_were_given),
        GRAD_TEST(test_places_do_not_overlap),
        GRAD_TEST(test_rows_stand_by_original_pair),
        GRAD_TEST(test_shared_gains_become_one_row_a_head),
        GRAD_TEST(test_gains_of_many_heads_are_written_in_pieces),
        GRAD_TEST(test_what_stays_in_the_file_has_the_same_floats),
        GRAD_TEST(test_what_stays_in_the_file_is_written),
        GRAD_TEST(test_evidence_goes_and_all_else_stays),
        GRAD_TEST(test_each_type_that_can_be_written),
        GRAD_TEST(test_a_model_is_written_over_its_own_file),
        GRAD_TEST(test_values_that_are_no_weights_are_not_written),
        GRAD_TEST(test_types_that_cannot_be_written),
        GRAD_TEST(test_damaged_values_are_refused),
        GRAD_TEST(test_tensors_that_fit_no_head_are_refused),
        GRAD_TEST(test_tensors_nobody_reads_are_refused),
    };
    return cmocka_run_group_tests(tests, make_tokenizer, remove_folder);
}

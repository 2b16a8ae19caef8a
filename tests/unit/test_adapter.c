/* test_adapter.c: low-rank adapters: how they begin, that what they stand on stays as it is, PEFT's
 * folders written, read and refused, and runs of zp_train_run with them. */
#include "golden.h"
#include "in_folder.h"
#include "train_fixture.h"

#include <zerope/train.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/num.h"
#include "model/hftensors.h"
#include "model/safetensors_write.h"
#include "train/adapterfile.h"

#define LLAMA "gguf-llama-linear"

/* ---- models and adapters --------------------------------------------------------------------- */

struct bench {
    zp_model *m;
    struct netparam p;
    struct pool *pool;
    struct gemm *g;
    float *w;
};

static void open_bench(struct bench *b, const char *name)
{
    *b = (struct bench){ .m = golden_small(name) };
    FINE(pool_open(&b->pool, 2, err));
    FINE(gemm_open(&b->g, b->pool, GEMM_F32, err));
    FINE(netparam_open(&b->p, b->m, err));
    b->w = test_calloc(b->p.n, sizeof *b->w);
    FINE(netparam_read(&b->p, b->w, err));
}

static void close_bench(struct bench *b)
{
    test_free(b->w);
    netparam_close(&b->p);
    gemm_close(b->g);
    pool_close(b->pool);
    zp_model_close(b->m);
}

static uint32_t targets_of(const char *list)
{
    uint32_t targets;
    FINE(adapter_read_targets(list, &targets, err));
    return targets;
}

static struct adapter open_adapter(const struct bench *b, uint32_t rank, const char *targets)
{
    struct adapter a;
    struct adapter_options o = { rank, 2.5 * rank, targets_of(targets), 3 };
    FINE(adapter_open(&a, &b->p, &o, err));
    FINE(adapter_begin(&a, b->g, err));
    return a;
}

/* A and B as after some steps. */
static void fill(struct adapter *a, uint64_t seed)
{
    struct rng r = rng_stream(seed, 1);
    for (size_t i = 0; i < a->n_matrices; i++) {
        const struct adapter_matrix *m = &a->matrices[i];
        for (size_t k = 0; k < a->options.rank * m->of->n_in; k++)
            a->x[m->a + k] = 0.1f * rng_normal(&r);
        for (size_t k = 0; k < a->options.rank * m->of->n_out; k++)
            a->x[m->b + k] = 0.1f * rng_normal(&r);
    }
}

/* The matrices in w, W0, become W. */
static void merge(const struct adapter *a, float *w)
{
    for (size_t t = 0; t < a->param->n_tensors; t++)
        adapter_add(a, &a->param->tensors[t], w + a->param->tensors[t].at);
}

static const struct adapter_matrix *matrix_of(const struct adapter *a, const char *name)
{
    for (size_t i = 0; i < a->n_matrices; i++)
        if (strcmp(a->matrices[i].of->name, name) == 0) return &a->matrices[i];
    fail_msg("%s has no adapter", name);
    return NULL;
}

#define REFUSED(call, code_wanted, part)                                                     \
    do {                                                                                     \
        zp_err refused_err_ = { 0 }, *err = &refused_err_;                                   \
        zp_status refused_ = (call);                                                         \
        if (refused_ != (code_wanted) || !strstr(refused_err_.message, part))                \
            fail_msg("%s: %s: %s", #call, zp_status_name(refused_), refused_err_.message);   \
    } while (0)

/* ---- how they begin -------------------------------------------------------------------------- */

static void test_targets_are_a_list_of_names(void **state)
{
    (void)state;
    char list[ADAPTER_LIST];
    uint32_t targets;
    adapter_write_targets(targets_of("v,q"), list);
    assert_string_equal(list, "q,v");
    adapter_write_targets(targets_of("down,q,k,v,o,gate,up"), list);
    assert_string_equal(list, "q,k,v,o,gate,up,down");
    REFUSED(adapter_read_targets("q,kv", &targets, err), ZP_USAGE, "'kv' are unknown");
    REFUSED(adapter_read_targets("", &targets, err), ZP_USAGE, "'' are unknown");
    REFUSED(adapter_read_targets("q,", &targets, err), ZP_USAGE, "'' are unknown");
    REFUSED(adapter_read_targets("q,v,q", &targets, err), ZP_USAGE, "q are asked for twice");
}

static void test_ranks_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct bench b;
    struct adapter a;
    struct adapter_options o = { .rank = 0, .alpha = 1, .targets = targets_of("q,v") };
    open_bench(&b, LLAMA);
    REFUSED(adapter_open(&a, &b.p, &o, err), ZP_USAGE, "rank 0");
    o.rank = 17;
    REFUSED(adapter_open(&a, &b.p, &o, err), ZP_USAGE, "attn_v.weight (16 x 32)");
    o.rank = UINT32_MAX;
    REFUSED(adapter_open(&a, &b.p, &o, err), ZP_USAGE, "rank 4294967295");
    o.rank = 2, o.alpha = 0;
    REFUSED(adapter_open(&a, &b.p, &o, err), ZP_USAGE, "alpha");
    o.alpha = NAN;
    REFUSED(adapter_open(&a, &b.p, &o, err), ZP_USAGE, "alpha");
    o.alpha = 1, o.targets = 0;
    REFUSED(adapter_open(&a, &b.p, &o, err), ZP_USAGE, "no matrix");
    close_bench(&b);
}

/* L2: neither the rank nor what else has adapters matters to a value; W is W0 at first. */
static void test_they_begin_as_nothing(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, LLAMA);
    struct adapter small = open_adapter(&b, 2, "v"), large = open_adapter(&b, 5, "q,v,down");
    const struct adapter_matrix *s = matrix_of(&small, "blk.1.attn_v.weight");
    const struct adapter_matrix *l = matrix_of(&large, "blk.1.attn_v.weight");
    size_t n_in = s->of->n_in;
    assert_memory_equal(small.x + s->a, large.x + l->a, 2 * n_in * sizeof(float));
    float most = 0;
    for (size_t i = 0; i < 5 * n_in; i++) most = fmaxf(most, fabsf(large.x[l->a + i]));
    assert_true((double)most * sqrt((double)n_in) <= 1 && (double)most * sqrt((double)n_in) > 0.95);
    const struct adapter_matrix *other = matrix_of(&large, "blk.0.attn_v.weight");
    assert_memory_not_equal(large.x + l->a, large.x + other->a, n_in * sizeof(float));
    float *w = test_malloc(b.p.n * sizeof *w);
    memcpy(w, b.w, b.p.n * sizeof *w);
    merge(&large, w);
    for (size_t i = 0; i < b.p.n; i++) assert_true(w[i] == b.w[i]);
    test_free(w);
    adapter_close(&small);
    adapter_close(&large);
    close_bench(&b);
}

/* W is W0 + alpha / rank * B A, all else stays. */
static void test_merged_is_the_sum(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, LLAMA);
    struct adapter a = open_adapter(&b, 4, "q,v,down");
    float *w = test_malloc(b.p.n * sizeof *w);
    memcpy(w, b.w, b.p.n * sizeof *w);
    fill(&a, 2);
    merge(&a, w);
    for (size_t t = 0; t < b.p.n_tensors; t++) {
        const struct netparam_tensor *of = &b.p.tensors[t];
        if (!adapter_has(&a, of)) {
            assert_memory_equal(w + of->at, b.w + of->at, of->n * sizeof *w);
            continue;
        }
        const struct adapter_matrix *m = matrix_of(&a, of->name);
        for (size_t i = 0; i < of->n; i++) {
            size_t row = i / of->n_in, column = i % of->n_in;
            double want = (double)b.w[of->at + i];
            for (size_t r = 0; r < 4; r++)
                want += 2.5 * (double)a.x[m->b + row * 4 + r] *
                        (double)a.x[m->a + r * of->n_in + column];
            assert_true(fabs((double)w[of->at + i] - want) < 1e-6);
        }
    }
    test_free(w);
    adapter_close(&a);
    close_bench(&b);
}

/* ---- folders --------------------------------------------------------------------------------- */

static void test_a_folder_gives_back_the_same_floats(void **state)
{
    (void)state;
    static const char *const models[] = { LLAMA, "gguf-qwen2", "zerope-mixed" };
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct bench b;
        struct adapterfile f;
        open_bench(&b, models[i]);
        struct adapter a = open_adapter(&b, 3, "q,k,v,o,gate,up,down");
        struct adapter again = open_adapter(&b, 3, "q,k,v,o,gate,up,down");
        fill(&a, i);
        FINE(adapterfile_write(&a, "base", in_folder("peft"), err));
        FINE(adapterfile_open(&f, in_folder("peft"), err));
        assert_int_equal(f.rank, 3);
        assert_true(f.alpha == 7.5);
        assert_int_equal(f.targets, a.options.targets);
        FINE(adapterfile_load(&f, &again, err));
        assert_memory_equal(again.x, a.x, a.n * sizeof *a.x);
        adapterfile_close(&f);
        adapter_close(&a);
        adapter_close(&again);
        close_bench(&b);
    }
}

static float first_of_row(const struct safetensors_tensor *t, size_t row)
{
    float f;
    uint16_t bits;
    size_t at = row * t->shape[1];
    if (t->dtype == ST_F32) {
        memcpy(&f, t->data + 4 * at, 4);
        return f;
    }
    assert_int_equal(t->dtype, ST_BF16);
    memcpy(&bits, t->data + 2 * at, 2);
    return bf16_to_f32(bits);
}

/* Rows of B stand as those of the matrix in the model's own Hugging Face folder. */
static void test_rows_have_the_order_of_hugging_face(void **state)
{
    (void)state;
    static const char *const models[] = { "llama", "qwen2" };
    static const char *const names[] = { "q", "k", "v" };
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        struct bench b;
        struct safetensors model, adapters;
        char path[1024], name[128];
        open_bench(&b, models[i]);
        struct adapter a = open_adapter(&b, 1, "q,k,v");
        for (size_t k = 0; k < a.n_matrices; k++) { /* B: the first column of the matrix */
            const struct adapter_matrix *m = &a.matrices[k];
            for (size_t r = 0; r < m->of->n_out; r++)
                a.x[m->b + r] = b.w[m->of->at + r * m->of->n_in];
        }
        FINE(adapterfile_write(&a, "base", in_folder("rows"), err));
        snprintf(path, sizeof path, ZP_TEST_DATA "/arch/%s", models[i]);
        FINE(safetensors_open_folder(&model, path, err));
        FINE(safetensors_open(&adapters, in_folder("rows/" ADAPTERFILE_TENSORS), err));
        for (size_t k = 0; k < ZP_COUNT(names); k++) {
            snprintf(name, sizeof name, "model.layers.1.self_attn.%s_proj.weight", names[k]);
            const struct safetensors_tensor *w = safetensors_find(&model, name);
            snprintf(name, sizeof name,
                     "base_model.model.model.layers.1.self_attn.%s_proj.lora_B.weight", names[k]);
            const struct safetensors_tensor *lora = safetensors_find(&adapters, name);
            assert_true(w && lora && lora->shape[0] == w->shape[0] && lora->shape[1] == 1);
            for (size_t r = 0; r < w->shape[0]; r++) {
                float want = first_of_row(w, r);
                assert_memory_equal(lora->data + 4 * r, &want, 4);
            }
        }
        safetensors_close(&model);
        safetensors_close(&adapters);
        adapter_close(&a);
        close_bench(&b);
    }
}

static char warnings[4096];

static void keep_warning(void *arg, enum log_level level, const char *text)
{
    (void)arg;
    if (level == LOG_WARN && strlen(warnings) + strlen(text) + 2 < sizeof warnings)
        strcat(strcat(warnings, text), "\n");
}

/* Loads what stands in "made" into new adapters of q and v. */
static zp_status load_made(const struct bench *b, struct adapter *a, zp_err *err)
{
    struct adapterfile f;
    struct adapter_options o = { 2, 2, targets_of("q,v"), 3 };
    *a = (struct adapter){ 0 };
    ZP_TRY(adapterfile_open(&f, in_folder("made"), err));
    zp_status status = adapter_open(a, &b->p, &o, err);
    if (status == ZP_OK) status = adapter_begin(a, b->g, err);
    if (status == ZP_OK) status = adapterfile_load(&f, a, err);
    adapterfile_close(&f);
    if (status != ZP_OK) adapter_close(a);
    return status;
}

static void put_config(const char *text)
{
    FINE(os_make_folders(in_folder("made"), err));
    FINE(os_write_file(in_folder("made/" ADAPTERFILE_CONFIG), text, strlen(text), err));
}

#define GOOD "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 2"

static float ones[4096];
#define LAYER(n) "base_model.model.model.layers." #n "."
#define ENTRY(n, type, rows, columns) \
    { .name = n, .dtype = type, .n_dims = 2, .shape = { rows, columns }, .data = ones }

static void put_tensors(const struct safetensors_out *t, uint32_t n)
{
    FINE(os_make_folders(in_folder("made"), err));
    FINE(safetensors_write(in_folder("made/" ADAPTERFILE_TENSORS), t, n, err));
}

/* What an evaporation has taken away, or made another shape of, is left out and named; the rest
 * counts. */
static void test_what_does_not_fit_is_left_out(void **state)
{
    (void)state;
    struct bench b;
    struct adapter a;
    const struct safetensors_out tensors[] = {
        ENTRY(LAYER(0) "self_attn.v_proj.lora_A.weight", ST_F32, 2, 32),
        ENTRY(LAYER(0) "self_attn.v_proj.lora_B.weight", ST_F32, 16, 2),
        ENTRY(LAYER(1) "self_attn.v_proj.lora_A.weight", ST_F32, 2, 32),
        ENTRY(LAYER(1) "self_attn.v_proj.lora_B.weight", ST_F32, 8, 2),
        ENTRY(LAYER(99) "self_attn.q_proj.lora_A.weight", ST_F32, 2, 32),
        ENTRY("base_model.model.lm_head.lora_A.weight", ST_F32, 2, 32),
    };
    open_bench(&b, LLAMA);
    put_config(GOOD "}");
    put_tensors(tensors, ZP_COUNT(tensors));
    warnings[0] = '\0';
    log_set_sink(keep_warning, NULL, LOG_WARN);
    FINE(load_made(&b, &a, err));
    log_set_sink(NULL, NULL, LOG_ERROR);
    const struct adapter_matrix *v0 = matrix_of(&a, "blk.0.attn_v.weight");
    const struct adapter_matrix *v1 = matrix_of(&a, "blk.1.attn_v.weight");
    for (size_t i = 0; i < 2 * 32; i++) assert_true(a.x[v0->a + i] == 1 && a.x[v1->a + i] != 1);
    for (size_t i = 0; i < 16 * 2; i++) assert_true(a.x[v0->b + i] == 1 && a.x[v1->b + i] == 0);
    assert_non_null(strstr(warnings, LAYER(1) "self_attn.v_proj"));
    assert_non_null(strstr(warnings, "lm_head"));
    assert_non_null(strstr(warnings, LAYER(99)));
    assert_null(strstr(warnings, LAYER(0)));
    adapter_close(&a);

    put_tensors(tensors + 2, 4); /* nothing is left */
    REFUSED(load_made(&b, &a, err), ZP_BAD_INPUT, "none of its 4 tensors fits");
    put_tensors(tensors + 5, 1);
    REFUSED(load_made(&b, &a, err), ZP_BAD_INPUT, "is an adapter known here");
    close_bench(&b);
}

static void test_configurations_that_mean_something_else_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
        zp_status status;
    } cases[] = {
        { "{", "not valid JSON", ZP_BAD_FILE },
        { "[]", "is no object", ZP_BAD_FILE },
        { "{}", "peft_type is missing", ZP_UNSUPPORTED },
        { "{\"peft_type\": \"IA3\"}", "peft_type is IA3", ZP_UNSUPPORTED },
        { "{\"peft_type\": 3}", "peft_type", ZP_BAD_FILE },
        { "{\"peft_type\": \"LORA\"}", "(r) is missing", ZP_BAD_FILE },
        { "{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 1}", "(r) is 0", ZP_BAD_FILE },
        { "{\"peft_type\": \"LORA\", \"r\": -2}", "r is -2", ZP_BAD_FILE },
        { "{\"peft_type\": \"LORA\", \"r\": 2.5}", "r is a number with a fraction", ZP_BAD_FILE },
        { "{\"peft_type\": \"LORA\", \"r\": 2}", "lora_alpha is missing", ZP_BAD_FILE },
        { "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 0}", "lora_alpha is 0",
          ZP_BAD_FILE },
        { GOOD ", \"use_dora\": true}", "use_dora", ZP_UNSUPPORTED },
        { GOOD ", \"use_rslora\": true}", "use_rslora", ZP_UNSUPPORTED },
        { GOOD ", \"bias\": \"all\"}", "bias is all", ZP_UNSUPPORTED },
        { GOOD ", \"rank_pattern\": {\"q_proj\": 4}}", "rank_pattern", ZP_UNSUPPORTED },
        { GOOD ", \"modules_to_save\": [\"lm_head\"]}", "modules_to_save", ZP_UNSUPPORTED },
    };
    const struct safetensors_out tensors[] = {
        ENTRY(LAYER(0) "self_attn.v_proj.lora_A.weight", ST_F32, 2, 32),
        ENTRY(LAYER(0) "self_attn.v_proj.lora_B.weight", ST_F32, 16, 2),
    };
    struct adapterfile f;
    put_tensors(tensors, 2);
    for (size_t i = 0; i < ZP_COUNT(cases); i++) {
        put_config(cases[i].text);
        REFUSED(adapterfile_open(&f, in_folder("made"), err), cases[i].status, cases[i].part);
    }
    put_config(GOOD ", \"bias\": \"none\", \"use_dora\": false, \"rank_pattern\": {}, "
                    "\"modules_to_save\": null, \"target_modules\": \"all-linear\"}");
    FINE(adapterfile_open(&f, in_folder("made"), err));
    adapterfile_close(&f);
    REFUSED(adapterfile_open(&f, in_folder("nowhere"), err), ZP_BAD_INPUT, "adapter_config.json");
}

static void test_damaged_tensors_are_refused(void **state)
{
    (void)state;
    struct bench b;
    struct adapter a;
    struct adapterfile f;
    struct buffer bytes = buffer_with_max(MEM_META, 1 << 20);
    char path[128];
    struct safetensors_out tensors[] = {
        ENTRY(LAYER(0) "self_attn.v_proj.lora_A.weight", ST_F32, 2, 32),
        ENTRY(LAYER(0) "self_attn.v_proj.lora_B.weight", ST_F32, 16, 2),
    };
    snprintf(path, sizeof path, "%s/made/" ADAPTERFILE_TENSORS, folder);
    open_bench(&b, LLAMA);
    put_config(GOOD "}");
    put_tensors(tensors, 1);
    REFUSED(load_made(&b, &a, err), ZP_BAD_FILE, "but not " LAYER(0) "self_attn.v_proj.lora_B");
    tensors[0].dtype = ST_I32;
    put_tensors(tensors, 2);
    REFUSED(load_made(&b, &a, err), ZP_UNSUPPORTED, "dtype I32");
    tensors[0].dtype = ST_F32;
    ones[40] = NAN;
    put_tensors(tensors, 2);
    REFUSED(load_made(&b, &a, err), ZP_BAD_FILE, "lora_A.weight holds nan at 1, 8");
    ones[40] = 1;
    put_tensors(tensors, 2);
    FINE(os_read_file(path, &bytes, err));
    FINE(os_write_file(path, bytes.data, bytes.size - 5, err));
    REFUSED(adapterfile_open(&f, in_folder("made"), err), ZP_BAD_FILE, "incomplete");
    FINE(os_write_file(path, "", 0, err));
    REFUSED(adapterfile_open(&f, in_folder("made"), err), ZP_BAD_FILE, "adapter_model");
    assert_int_equal(remove(path), 0);
    REFUSED(adapterfile_open(&f, in_folder("made"), err), ZP_BAD_INPUT, "adapter_model");
    buffer_free(&bytes);
    close_bench(&b);
}

/* Half-precision files, as trainers elsewhere write them. */
static void test_bf16_and_f16_are_read(void **state)
{
    (void)state;
    struct bench b;
    struct adapter a;
    uint16_t a_bits[2 * 32], b_bits[16 * 2];
    for (size_t i = 0; i < ZP_COUNT(a_bits); i++) a_bits[i] = f32_to_bf16((float)i);
    for (size_t i = 0; i < ZP_COUNT(b_bits); i++) b_bits[i] = f32_to_f16(0.5f * (float)i);
    struct safetensors_out tensors[] = {
        ENTRY(LAYER(1) "self_attn.v_proj.lora_A.weight", ST_BF16, 2, 32),
        ENTRY(LAYER(1) "self_attn.v_proj.lora_B.weight", ST_F16, 16, 2),
    };
    tensors[0].data = a_bits, tensors[1].data = b_bits;
    open_bench(&b, LLAMA);
    put_config(GOOD "}");
    put_tensors(tensors, 2);
    FINE(load_made(&b, &a, err));
    const struct adapter_matrix *m = matrix_of(&a, "blk.1.attn_v.weight");
    for (size_t i = 0; i < 2 * 32; i++) assert_true(a.x[m->a + i] == (float)i);
    for (size_t i = 0; i < 16 * 2; i++) assert_true(a.x[m->b + i] == 0.5f * (float)i);
    adapter_close(&a);
    close_bench(&b);
}

/* ---- runs ------------------------------------------------------------------------------------ */

#define MODEL ZP_TEST_DATA "/arch/gguf/" LLAMA ".gguf"

static void make_corpus(const char *out)
{
    struct buffer text = buffer_with_max(MEM_META, 1 << 20);
    char paths[6][64];
    const char *inputs[6];
    for (uint32_t i = 0; i < ZP_COUNT(inputs); i++) {
        snprintf(paths[i], sizeof paths[i], "%s/t%u.txt", folder, i);
        inputs[i] = paths[i];
        fixture_text(&text, i, 120);
        FINE(os_write_file(inputs[i], text.data, text.size, err));
    }
    zp_corpus_options o = { .tokenizer = MODEL, .held_share = 0.3 };
    FINE(zp_corpus_make(inputs, ZP_COUNT(inputs), out, &o, NULL, err));
    buffer_free(&text);
}

static zp_train_options three_steps(void)
{
    return (zp_train_options){ .tokens = 3 * 4 * 32, .n_ctx = 32, .batch_rows = 4, .n_threads = 1,
                               .micro_batches = 2, .learning_rate = 0.02, .lora_rank = 2,
                               .lora_alpha = 3, .lora_targets = "q,v,up", .eval_windows = 2 };
}

static void assert_same_file(const char *a, const char *b)
{
    struct buffer x = buffer_with_max(MEM_META, 1 << 24), y = x;
    FINE(os_read_file(a, &x, err));
    FINE(os_read_file(b, &y, err));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    buffer_free(&x);
    buffer_free(&y);
}

/* The file holds W0 + alpha / rank * B A with the A and B of the folder, to the bit as they are
 * merged here, and everything else as it was. */
static void check_written(const char *out, const char *adapters)
{
    struct bench before;
    zp_model *m;
    struct netparam p;
    struct adapterfile f;
    open_bench(&before, LLAMA);
    FINE(zp_model_open(&m, out, NULL, err));
    FINE(netparam_open(&p, m, err));
    assert_int_equal(p.n, before.p.n);
    float *w = test_malloc(p.n * sizeof *w);
    FINE(netparam_read(&p, w, err));
    FINE(adapterfile_open(&f, adapters, err));
    assert_true(f.rank == 2 && f.alpha == 3);
    struct adapter_options o = { 2, 3, f.targets, 1 };
    struct adapter a;
    FINE(adapter_open(&a, &before.p, &o, err));
    FINE(adapter_begin(&a, before.g, err));
    FINE(adapterfile_load(&f, &a, err));
    const struct adapter_matrix *q = matrix_of(&a, "blk.0.attn_q.weight");
    assert_true(a.x[q->b] != 0);
    float first = before.w[q->of->at];
    merge(&a, before.w);
    assert_true(first != before.w[q->of->at]);
    assert_memory_equal(w, before.w, p.n * sizeof *w);
    adapter_close(&a);
    adapterfile_close(&f);
    test_free(w);
    netparam_close(&p);
    zp_model_close(m);
    close_bench(&before);
}

static void test_a_run_writes_what_it_learned(void **state)
{
    (void)state;
    const char *corpus = in_folder("c.zpt"), *one = in_folder("one.gguf");
    const char *two = in_folder("two.gguf");
    char *json;
    make_corpus(corpus);
    zp_train_options o = three_steps();
    o.adapter_out = in_folder("learned");
    FINE(zp_train_run(MODEL, corpus, one, &o, &json, err));
    assert_non_null(strstr(json, "\"lora\""));
    zp_free(json);
    check_written(one, o.adapter_out);

    o.n_threads = 3, o.adapter_out = NULL;
    FINE(zp_train_run(MODEL, corpus, two, &o, NULL, err));
    assert_same_file(one, two);
}

static bool stop_at_two(void *arg, const char *phase, uint64_t done, uint64_t total)
{
    (void)arg, (void)total;
    return strcmp(phase, "train") != 0 || done < 2;
}

static void test_a_stopped_run_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    const char *corpus = in_folder("c.zpt"), *out = in_folder("resumed.gguf");
    make_corpus(corpus);
    zp_train_options o = three_steps();
    o.run = in_folder("run");
    o.progress = (zp_progress){ .fn = stop_at_two };
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_INTERRUPTED, "step 2 of 3");
    o.progress = (zp_progress){ 0 };
    o.resume = true, o.lora_alpha = 4;
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_BAD_INPUT, "lora-alpha");
    o.lora_alpha = 3;
    FINE(zp_train_run(MODEL, corpus, out, &o, NULL, err));
    assert_same_file(out, in_folder("one.gguf"));
}

/* Adapters of an earlier run are where the next begins: rank, alpha and targets are theirs. */
static void test_a_run_begins_with_a_folder(void **state)
{
    (void)state;
    const char *corpus = in_folder("c.zpt"), *learned = in_folder("learned");
    const char *out = in_folder("same.gguf");
    make_corpus(corpus);
    zp_train_options o = three_steps();
    o.lora_rank = 0, o.lora_alpha = 0, o.lora_targets = NULL, o.adapter_in = learned;
    o.learning_rate = 1e-30; /* no step moves a float */
    o.weight_decay = -1;
    o.adapter_out = in_folder("kept");
    FINE(zp_train_run(MODEL, corpus, out, &o, NULL, err));
    assert_same_file(out, in_folder("one.gguf"));
    assert_same_file(in_folder("kept/" ADAPTERFILE_TENSORS),
                     in_folder("learned/" ADAPTERFILE_TENSORS));
    o.lora_rank = 3;
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "have rank 2 and alpha 3");
}

static void test_options_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const char *corpus = in_folder("c.zpt"), *out = in_folder("no.gguf");
    make_corpus(corpus);
    zp_train_options o = three_steps();
    o.learn = "qk";
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "--lora-targets");
    o.learn = NULL, o.lora_targets = "q,w";
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "'w' are unknown");
    o.lora_targets = NULL, o.lora_rank = 4000;
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "rank 4000");
    o.lora_rank = 0;
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "--lora-rank");
    o.lora_alpha = 0, o.adapter_out = corpus;
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "--lora-rank");
    o.lora_rank = 1;
    REFUSED(zp_train_run(MODEL, corpus, out, &o, NULL, err), ZP_USAGE, "is no folder");
    assert_false(os_exists(out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets_are_a_list_of_names),
        cmocka_unit_test(test_ranks_that_make_no_sense_are_refused),
        cmocka_unit_test(test_they_begin_as_nothing),
        cmocka_unit_test(test_merged_is_the_sum),
        cmocka_unit_test(test_a_folder_gives_back_the_same_floats),
        cmocka_unit_test(test_rows_have_the_order_of_hugging_face),
        cmocka_unit_test(test_what_does_not_fit_is_left_out),
        cmocka_unit_test(test_configurations_that_mean_something_else_are_refused),
        cmocka_unit_test(test_damaged_tensors_are_refused),
        cmocka_unit_test(test_bf16_and_f16_are_read),
        cmocka_unit_test(test_a_run_writes_what_it_learned),
        cmocka_unit_test(test_a_stopped_run_goes_on_with_the_same_bits),
        cmocka_unit_test(test_a_run_begins_with_a_folder),
        cmocka_unit_test(test_options_that_do_not_fit_are_refused),
    };
    for (size_t i = 0; i < ZP_COUNT(ones); i++) ones[i] = 1;
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_alloc_failures_train.c: saving and opening checkpoints, making models, reading and writing
 * their parameters, finding the structure of documents, and opening all that a training run holds
 * when allocation number n fails, for all n: ZP_NO_MEMORY, no byte stays behind, the folder is as
 * it was, and it works afterwards. */
#include "alloc_failures.h"

#include "in_folder.h"
#include "kern/quant.h"
#include "train/checkpoint.h"
#include "train/netparam.h"
#include "train/newmodel.h"
#include "train/structlearn.h"
#include "train/trainer.h"
#include "train_fixture.h"

static const float weights[100] = { 1, 2, 3 };
static const struct checkpoint_part parts[] = { { "weights", CHECKPOINT_F32, weights, 100 },
                                                { "m", CHECKPOINT_F32, weights, 50 } };
static const struct checkpoint_key key = { 1, 2, 3 };

static zp_status save(void *arg, zp_err *why)
{
    return checkpoint_save(arg, 20, &key, parts, ZP_COUNT(parts), 3, why);
}

static zp_status open_last(void *arg, zp_err *why)
{
    struct checkpoint c;
    ZP_TRY(checkpoint_open_last(&c, arg, &key, why));
    checkpoint_close(&c);
    return ZP_OK;
}

static void test_checkpoints(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", in_folder("run"));
    for (uint64_t step = 0; step < 40; step += 10) /* 30 is what a roll-back gives up */
        GOLDEN_OK(checkpoint_save(path, step, &key, parts, ZP_COUNT(parts), 0, err));
    struct fail_call calls[] = {
        { .what = "checkpoint_save", .run = save, .arg = path, .folder = path },
        { .what = "checkpoint_open_last", .run = open_last, .arg = path, .folder = path },
    };
    GOLDEN_OK(save(path, err));
    fail_each(&calls[0], 6);
    fail_each(&calls[1], 2);
}

/* Compiled expressions of the pre-tokeniser are a convenience: matching works without. */
enum { EXPRESSIONS = 32 };

static zp_status make(void *arg, zp_err *why)
{
    static const char config[] = "{\"n_layer\":2,\"d_model\":16,\"n_head\":2,\"n_kv\":1,"
                                 "\"d_ff\":8,\"n_ctx\":80,\"position\":\"t5\",\"qk_norm\":true}";
    (void)arg;
    return newmodel_write(config, "config", in_folder("fixture.gguf"), 1,
                          in_folder("models/new.gguf"), why);
}

static const zp_model *model;

static zp_status copy(void *arg, zp_err *why)
{
    struct netparam p;
    (void)arg;
    ZP_TRY(netparam_open(&p, model, why));
    float *w = mem_array(MEM_TRAIN, p.n, sizeof *w);
    zp_status status = w ? netparam_read(&p, w, why) : ZP_NO_MEMORY;
    if (status == ZP_OK)
        status = netparam_write(&p, w, QUANT_BF16, "{}", in_folder("models/copy.gguf"), why);
    mem_free(w);
    netparam_close(&p);
    return status == ZP_NO_MEMORY && !w
               ? status_fail(why, ZP_NO_MEMORY, __FILE__, __LINE__, "no memory for the array")
               : status;
}

struct documents {
    struct shards shards;
    const struct tokenizer *tokenizer;
};

static zp_status learn_structure(void *arg, zp_err *why)
{
    const struct documents *d = arg;
    const struct structlearn_options o = { 1, 0.3f };
    struct structlearn s;
    zp_status status = structlearn_open(&s, &d->shards, d->tokenizer, 64, true, &o, why);
    structlearn_close(&s);
    return status;
}

static void test_structure(void **state)
{
    (void)state;
    struct documents d;
    zp_model *open = golden_small("gguf-qwen2");
    char path[128];
    GOLDEN_OK(model_tokenizer(open, &d.tokenizer, err));
    snprintf(path, sizeof path, "%s", in_folder("texts"));
    GOLDEN_OK(os_make_folders(path, err));
    fixture_structured_corpus(in_folder("texts/structured.zpt"), d.tokenizer, 6);
    GOLDEN_OK(shards_open(&d.shards, in_folder("texts/structured.zpt"), err));
    struct fail_call call = { .what = "structlearn_open", .run = learn_structure, .arg = &d,
                              .folder = path };
    fail_each(&call, 4);
    shards_close(&d.shards);
    zp_model_close(open);
}

static void test_models(void **state)
{
    (void)state;
    struct train_fixture f = { 0 };
    zp_model *open = golden_small("gguf-qwen2");
    char path[128];
    snprintf(path, sizeof path, "%s", in_folder("models"));
    GOLDEN_OK(os_make_folders(path, err));
    fixture_tokenizer(&f, 270);
    tokenizer_close(f.tokenizer);
    model = open;
    struct fail_call calls[] = {
        { .what = "newmodel_write", .run = make, .arg = path, .folder = path,
          .may_do_without = EXPRESSIONS },
        { .what = "netparam", .run = copy, .arg = path, .folder = path },
    };
    GOLDEN_OK(make(path, err));
    fail_each(&calls[0], 60);
    fail_each(&calls[1], 30);
    zp_model_close(open);
}

struct wish {
    const struct zp_model *model;
    const struct shards *shards;
    struct dist *dist;
    struct trainer_options options;
};

static zp_status open_all(void *arg, zp_err *why)
{
    const struct wish *w = arg;
    struct trainer t;
    ZP_TRY(trainer_open(&t, w->model, w->shards, w->dist, &w->options, why));
    trainer_close(&t);
    return ZP_OK;
}

static void test_trainers(void **state)
{
    (void)state;
    enum { CONVENIENCES = EXPRESSIONS + 1 }; /* oneDNN is one */
    static const size_t n_words[] = { 90, 40, 200 };
    struct train_fixture f;
    zp_model *open;
    fixture_open(&f, 270, n_words, ZP_COUNT(n_words));
    GOLDEN_OK(os_make_folders(in_folder("models"), err));
    GOLDEN_OK(make(NULL, err));
    GOLDEN_OK(zp_model_open(&open, in_folder("models/new.gguf"), NULL, err));
    struct wish w = { .model = open, .shards = &f.shards };
    w.options = (struct trainer_options){
        .n_ctx = 48, .n_rows = 2, .n_micro = 2, .n_threads = 2, .task_share = 0.5, .teacher = open,
        .ce_weight = 1, .kl_weight = 1, .pic_steps = 2, .gates.policy = GATES_L1,
        .schedule = { .peak = 1e-3, .steps = 9 }
    };
    GOLDEN_OK(dist_open(&w.dist, "single", NULL, err));
    for (int adapters = 0; adapters < 2; adapters++) {
        struct fail_call call = { .what = adapters ? "trainer with adapters" : "trainer",
                                  .run = open_all, .arg = &w, .may_do_without = CONVENIENCES };
        if (adapters) w.options.adapter = (struct adapter_options){ 2, 2, 1 << ADAPTER_Q, 1 };
        GOLDEN_OK(open_all(&w, err)); /* the tokenizer stays */
        fail_each(&call, 60);
    }
    dist_close(w.dist);
    zp_model_close(open);
    fixture_close(&f);
}

int main(void)
{
    fail_watch_jansson();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_checkpoints),
                                        cmocka_unit_test(test_models),
                                        cmocka_unit_test(test_structure),
                                        cmocka_unit_test(test_trainers) };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

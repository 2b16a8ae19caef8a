/* test_trainer.c: whole training runs on small models: the loss falls, gates close and are absent
 * from the file, stopped runs go on with the same bits, steps that are not finite are not taken. */
#include "golden.h"
#include "grad/grad_cases.h"

#include "evap/anneal.h"
#include "train/newmodel.h"
#include "train/trainrun.h"
#include "in_folder.h"
#include "train_fixture.h"

enum { CTX = 48, BATCH_ROWS = 4, N_STEPS = 12 };

static struct train_fixture fixture;
static const char *tokens_path;

static const char *new_model(const char *kind)
{
    char config[256];
    const char *path = in_folder(kind);
    snprintf(config, sizeof config,
             "{\"n_layer\":2,\"d_model\":32,\"n_head\":4,\"n_kv\":2,\"d_head\":8,\"d_ff\":48,"
             "\"n_ctx\":64,\"position\":\"%s\"}", kind);
    FINE(newmodel_write(config, "config", in_folder("fixture.gguf"), 7, path, err));
    return path;
}

/* A trainer of a fresh model, and what it stands on. */
struct bench_trainer {
    zp_model *m;
    struct dist *dist;
    struct trainer t;
};

static struct trainer_options usual(void)
{
    return (struct trainer_options){
        .n_ctx = CTX, .n_rows = BATCH_ROWS, .n_micro = 2, .n_threads = 2, .seed = 3,
        .schedule = { .kind = SCHEDULE_WSD, .peak = 3e-3, .floor = 0.1, .steps = N_STEPS,
                      .warmup = 2, .decay_share = 0.2 },
        .opt = { .clip_norm = 1, .weight_decay = 0.1 }, .ce_weight = 1
    };
}

static void open_trainer(struct bench_trainer *b, const char *kind, struct trainer_options o)
{
    FINE(zp_model_open(&b->m, new_model(kind), NULL, err));
    FINE(dist_open(&b->dist, "single", NULL, err));
    if (o.kl_weight > 0) o.teacher = b->m;
    FINE(trainer_open(&b->t, b->m, &fixture.shards, b->dist, &o, err));
}

static void close_trainer(struct bench_trainer *b)
{
    trainer_close(&b->t);
    dist_close(b->dist);
    zp_model_close(b->m);
}

static struct trainer_step take_steps(struct bench_trainer *b, uint64_t to)
{
    struct trainer_step s = { 0 };
    while (b->t.step < to) FINE(trainer_run_step(&b->t, &s, err));
    return s;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void test_loss_falls(void **state)
{
    (void)state;
    struct bench_trainer b;
    struct trainer_options o = usual();
    struct trainer_quality before, after;
    o.schedule.steps = 60, o.task_share = 0.25;
    open_trainer(&b, "rope", o);
    trainer_measure(&b.t, 0, &before);
    take_steps(&b, 60);
    trainer_measure(&b.t, 0, &after);
    assert_true(after.sums.ce < 0.9 * before.sums.ce);
    assert_int_equal(after.sums.n_rows, before.sums.n_rows);
    close_trainer(&b);
}

static void test_threads_do_not_change_bits(void **state)
{
    (void)state;
    float *first = NULL;
    for (uint32_t n = 1; n <= THREADS_MOST; n++) {
        struct bench_trainer b;
        struct trainer_options o = usual();
        o.n_threads = n, o.kl_weight = 1, o.gates.policy = GATES_L1, o.pic_steps = 3;
        open_trainer(&b, "rope", o);
        take_steps(&b, 8);
        float *w = copy_of(b.t.w, b.t.param.n);
        if (!first) first = w;
        assert_same_bits(w, first, b.t.param.n, "parameters");
        close_trainer(&b);
    }
}

static void test_resumed_run_gives_the_same_bits(void **state)
{
    (void)state;
    static const enum gates_policy policies[] = { GATES_ABRUPT, GATES_DROPOUT, GATES_L1, GATES_L0 };
    for (size_t i = 0; i < ZP_COUNT(policies); i++) {
        struct bench_trainer a, b;
        struct trainer_options o = usual();
        char name[16];
        o.gates.policy = policies[i], o.kl_weight = 0.5f, o.pic_steps = i % 2 ? 2 : 0;
        snprintf(name, sizeof name, "state-%zu", i);
        open_trainer(&a, "mlp", o);
        take_steps(&a, 5);
        FINE(trainer_save(&a.t, in_folder(name), 2, err));
        take_steps(&a, N_STEPS);
        open_trainer(&b, "mlp", o);
        FINE(trainer_resume(&b.t, in_folder(name), err));
        assert_int_equal(b.t.step, 5);
        take_steps(&b, N_STEPS);
        assert_same_bits(b.t.w, a.t.w, a.t.param.n, "parameters");
        assert_memory_equal(b.t.gates.closed, a.t.gates.closed, a.t.gates.n);
        close_trainer(&a);
        close_trainer(&b);
    }
}

static void test_other_options_do_not_resume(void **state)
{
    (void)state;
    struct bench_trainer a, b;
    struct trainer_options o = usual();
    zp_err error = { 0 };
    o.config = 1;
    open_trainer(&a, "rope", o);
    FINE(trainer_save(&a.t, in_folder("other"), 2, err));
    o.config = 2;
    open_trainer(&b, "rope", o);
    assert_int_equal(trainer_resume(&b.t, in_folder("other"), &error), ZP_BAD_INPUT);
    close_trainer(&b);
    o.config = 1;
    open_trainer(&b, "t5", o);
    error = (zp_err){ 0 };
    assert_int_equal(trainer_resume(&b.t, in_folder("other"), &error), ZP_BAD_INPUT);
    close_trainer(&a);
    close_trainer(&b);
}

static void test_steps_that_are_not_finite_are_not_taken(void **state)
{
    (void)state;
    struct bench_trainer b;
    struct trainer_step s;
    open_trainer(&b, "rope", usual());
    take_steps(&b, 3);
    FINE(trainer_save(&b.t, in_folder("good"), 2, err));
    float *good = copy_of(b.t.w, b.t.param.n);
    const struct netparam_tensor *gain = netparam_find(&b.t.param, "output_norm.weight", 0);
    b.t.w[gain->at] = NAN;
    float *bad = copy_of(b.t.w, b.t.param.n);
    for (int i = 0; i < 3; i++) {
        FINE(trainer_run_step(&b.t, &s, err));
        assert_true(s.opt.skipped);
        assert_int_equal(s.verdict, i < 2 ? GUARD_SKIP : GUARD_ROLL_BACK);
        assert_memory_equal(b.t.w, bad, b.t.param.n * sizeof *bad);
    }
    FINE(trainer_roll_back(&b.t, in_folder("good"), err));
    assert_same_bits(b.t.w, good, b.t.param.n, "rolled back");
    assert_int_equal(b.t.step, 3);
    assert_int_equal(b.t.data_shift, 3); /* other batches than those that failed */
    FINE(trainer_run_step(&b.t, &s, err));
    assert_int_equal(s.verdict, GUARD_GO);
    close_trainer(&b);
}

/* ---- closed means closed --------------------------------------------------------------------- */

static void test_closed_biases_have_no_gradient(void **state)
{
    (void)state;
    static const char *const kinds[] = { "alibi", "t5", "mlp" };
    for (size_t i = 0; i < ZP_COUNT(kinds); i++) {
        struct bench_trainer b;
        struct trainer_options o = usual();
        o.gates.policy = GATES_ABRUPT;
        open_trainer(&b, kinds[i], o);
        for (uint64_t step = 1; step <= N_STEPS; step++) {
            take_steps(&b, step);
            for (size_t t = 0; t < b.t.param.n_tensors; t++) {
                const struct netparam_tensor *p = &b.t.param.tensors[t];
                bool of_bias = strstr(p->name, ".pos_") != NULL;
                for (size_t k = 0; of_bias && k < p->n; k++)
                    assert_true(b.t.sum[p->at + k] == 0.0f);
            }
        }
        close_trainer(&b);
    }
}

static void test_matching_brings_attention_back(void **state)
{
    (void)state;
    struct bench_trainer b;
    struct trainer_options o = usual();
    struct trainer_step first, last;
    o.kl_weight = 1, o.match = true, o.schedule.steps = 60, o.opt.weight_decay = 0;
    o.gates.policy = GATES_ABRUPT, o.gates.share = 0.5;
    open_trainer(&b, "rope", o);
    for (size_t i = 0; i < b.t.param.n; i++) b.t.w[i] *= 1.5f; /* away from the original */
    first = take_steps(&b, 1);
    last = take_steps(&b, 60);
    assert_true(first.loss > 0 && last.loss < 0.7 * first.loss);
    close_trainer(&b);
}

/* ---- public calls ---------------------------------------------------------------------------- */

static json_t *document(char *json)
{
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    zp_free(json);
    return root;
}

static void check_closed_file(const char *path, const char *kind)
{
    zp_model *m;
    uint32_t total, closed, none, heads, local;
    FINE(zp_model_open(&m, path, NULL, err));
    position_gates(&m->position, &total, &closed, &none, &heads, &local);
    assert_int_equal(closed, total);
    assert_int_equal(none, m->h.n_layer);
    assert_true(position_is_free(&m->position, ZP_MODE_FULL));
    for (uint32_t i = 0; i < m->gguf.n_tensors; i++)
        if (strstr(m->gguf.tensors[i].name, "pos_") || strstr(m->gguf.tensors[i].name, "rope"))
            fail_msg("%s: %s is still there", kind, m->gguf.tensors[i].name);
    zp_model_close(m);
}

static void test_every_policy_writes_a_file_without_positions(void **state)
{
    (void)state;
    static const char *const kinds[] = { "rope", "alibi", "t5", "mlp" };
    static const char *const policies[] = { "abrupt", "staged", "dropout", "l1", "l0" };
    static const char *const types[] = { "F32", "F16", "Q8_0", "F32", "F32" };
    for (size_t k = 0; k < ZP_COUNT(kinds); k++)
        for (size_t p = 0; p < ZP_COUNT(policies); p++) {
            char *json, out[64];
            const char *model = new_model(kinds[k]);
            snprintf(out, sizeof out, "%s-%s.gguf", kinds[k], policies[p]);
            zp_anneal_options o = { .policy = policies[p],
                                    .train = { .tokens = 15 * BATCH_ROWS * CTX, .n_ctx = CTX,
                                               .batch_rows = BATCH_ROWS, .original = model,
                                               .type = types[p], .n_threads = 2 } };
            FINE(zp_anneal_run(model, tokens_path, in_folder(out), &o, &json, err));
            json_t *report = document(json);
            assert_int_equal(json_integer_value(json_object_get(report, "closed")),
                             json_integer_value(json_object_get(report, "total")));
            json_decref(report);
            check_closed_file(in_folder(out), kinds[k]);
            assert_int_not_equal(access(in_folder("rope-abrupt.gguf.trained"), F_OK), 0);
        }
}

/* Stops the run after so many questions whether to go on. */
static bool stop_later(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    return --*(int *)arg > 0;
}

static void same_files(const char *one, const char *other)
{
    struct os_map a, b;
    FINE(os_map_file(&a, one, err));
    FINE(os_map_file(&b, other, err));
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    os_unmap(&a);
    os_unmap(&b);
}

static void test_interrupted_run_goes_on_to_the_same_file(void **state)
{
    (void)state;
    const char *model = new_model("rope");
    int left = 5;
    zp_err error = { 0 };
    zp_train_options o = { .tokens = N_STEPS * BATCH_ROWS * CTX, .n_ctx = CTX,
                           .batch_rows = BATCH_ROWS, .n_threads = 2, .save_every = 3 };
    FINE(zp_train_run(model, tokens_path, in_folder("whole.gguf"), &o, NULL, err));
    o.run = in_folder("run");
    o.progress = (zp_progress){ stop_later, &left };
    assert_int_equal(zp_train_run(model, tokens_path, in_folder("parts.gguf"), &o, NULL, &error),
                     ZP_INTERRUPTED);
    assert_int_not_equal(access(in_folder("parts.gguf"), F_OK), 0);
    o.progress = (zp_progress){ 0 };
    o.resume = true;
    FINE(zp_train_run(model, tokens_path, in_folder("parts.gguf"), &o, NULL, err));
    same_files(in_folder("whole.gguf"), in_folder("parts.gguf"));
}

/* ---- runs that were stopped, damaged, or begun as another one -------------------------------- */

static zp_train_options short_run(const char *run)
{
    return (zp_train_options){ .tokens = N_STEPS * BATCH_ROWS * CTX, .n_ctx = CTX,
                               .batch_rows = BATCH_ROWS, .n_threads = 2, .save_every = 3,
                               .run = run };
}

static void not_run(const char *model, const char *corpus, const zp_train_options *o,
                    zp_status code, const char *part)
{
    zp_err error = { 0 };
    zp_status status = zp_train_run(model, corpus, in_folder("no.gguf"), o, NULL, &error);
    if (status != code || !strstr(error.message, part))
        fail_msg("%d: '%s' does not say '%s'", (int)status, error.message, part);
    assert_int_not_equal(access(in_folder("no.gguf"), F_OK), 0);
}

static void test_learned_gates_open_again_alike_after_a_stop(void **state)
{
    (void)state;
    const char *model = new_model("rope");
    char *json;
    int left = 51; /* steps: gates have closed since the last measurement, at 40 */
    zp_err error = { 0 };
    zp_anneal_options o = { .policy = "l1", .lambda = 1e6, .tolerance = 1e-12,
                            .train = { .tokens = 160 * BATCH_ROWS * CTX, .n_ctx = CTX,
                                       .batch_rows = BATCH_ROWS, .n_threads = 2,
                                       .eval_every = 20, .learning_rate = 1e-9,
                                       .original = model, .ce_weight = 1e-3 } };
    FINE(zp_anneal_run(model, tokens_path, in_folder("whole.gguf"), &o, &json, err));
    json_t *report = document(json);
    assert_true(json_integer_value(json_object_get(report, "reopened")) > 0);
    json_decref(report);
    o.train.run = in_folder("l1");
    o.train.progress = (zp_progress){ stop_later, &left };
    assert_int_equal(zp_anneal_run(model, tokens_path, in_folder("parts.gguf"), &o, NULL, &error),
                     ZP_INTERRUPTED);
    o.train.progress = (zp_progress){ 0 };
    o.train.resume = true;
    FINE(zp_anneal_run(model, tokens_path, in_folder("parts.gguf"), &o, NULL, err));
    same_files(in_folder("whole.gguf"), in_folder("parts.gguf"));
}

static void test_diverged_run_keeps_its_last_good_state(void **state)
{
    (void)state;
    struct bench_trainer b;
    zp_train_options o = short_run(in_folder("diverged"));
    o.learning_rate = 10;
    not_run(new_model("rope"), tokens_path, &o, ZP_RUN, "learning rate");
    open_trainer(&b, "rope", usual());
    FINE(trainer_resume(&b.t, in_folder("diverged"), err));
    assert_int_equal(b.t.step, 0);
    close_trainer(&b);
}

static void test_run_without_a_checkpoint_yet_begins_anew(void **state)
{
    (void)state;
    const char *model = new_model("rope");
    zp_train_options o = short_run(in_folder("early"));
    FINE(zp_train_run(model, tokens_path, in_folder("whole.gguf"), &o, NULL, err));
    assert_int_equal(remove(in_folder("early/latest")), 0);
    assert_int_equal(remove(in_folder("early/step-000000000012.zpck")), 0);
    assert_int_equal(remove(in_folder("early/step-000000000009.zpck")), 0);
    static const char *const left[] = { "early/step-000000000003.zpck.tmp.7.1",
                                        "early/latest.tmp.7.2" };
    for (int i = 0; i < 2; i++) FINE(os_write_file(in_folder(left[i]), "part", 4, err));
    o.resume = true;
    FINE(zp_train_run(model, tokens_path, in_folder("anew.gguf"), &o, NULL, err));
    for (int i = 0; i < 2; i++) assert_int_not_equal(access(in_folder(left[i]), F_OK), 0);
    same_files(in_folder("whole.gguf"), in_folder("anew.gguf"));
    o.run = in_folder("nowhere");
    not_run(model, tokens_path, &o, ZP_BAD_INPUT, "holds no run");
    assert_false(os_is_folder(in_folder("nowhere")));
}

static void test_lost_or_damaged_record(void **state)
{
    (void)state;
    const char *model = new_model("rope");
    zp_train_options o = short_run(in_folder("record"));
    FINE(zp_train_run(model, tokens_path, in_folder("whole.gguf"), &o, NULL, err));
    o.resume = true;
    FINE(os_write_file(in_folder("record/run.json"), "{", 1, err));
    not_run(model, tokens_path, &o, ZP_BAD_FILE, "move it away");
    assert_int_equal(remove(in_folder("record/run.json")), 0);
    FINE(zp_train_run(model, tokens_path, in_folder("again.gguf"), &o, NULL, err));
    same_files(in_folder("whole.gguf"), in_folder("again.gguf"));
    assert_int_equal(access(in_folder("record/run.json"), F_OK), 0);
}

static void test_runs_begun_as_another_one_do_not_go_on(void **state)
{
    (void)state;
    const char *model = new_model("rope"), *other = new_model("none");
    zp_train_options o = short_run(in_folder("begun"));
    o.original = model;
    FINE(zp_train_run(model, tokens_path, in_folder("whole.gguf"), &o, NULL, err));
    o.resume = true;
    not_run(in_folder("whole.gguf"), tokens_path, &o, ZP_BAD_INPUT, "begun with model");
    o.original = other;
    not_run(model, tokens_path, &o, ZP_BAD_INPUT, "begun with original");
    o.original = model, o.learning_rate = 2e-3;
    not_run(model, tokens_path, &o, ZP_BAD_INPUT, "learning-rate 0.001, now it is 0.002");
}

static void test_a_folder_in_use_is_refused(void **state)
{
    (void)state;
    struct os_lock lock;
    zp_train_options o = short_run(in_folder("busy"));
    FINE(os_make_folders(in_folder("busy"), err));
    FINE(os_lock(&lock, in_folder("busy/lock"), err));
    not_run(new_model("rope"), tokens_path, &o, ZP_RUN, "in use by another process");
    assert_int_not_equal(access(in_folder("busy/run.json"), F_OK), 0);
    os_unlock(&lock);
    FINE(zp_train_run(in_folder("rope"), tokens_path, in_folder("free.gguf"), &o, NULL, err));
}

static void test_training_without_held_out_documents(void **state)
{
    (void)state;
    static const size_t n_words[] = { 90, 40 };
    char *json;
    zp_train_options o = short_run(NULL);
    fixture_corpus(in_folder("unheld.zpt"), fixture.tokenizer, n_words, ZP_COUNT(n_words));
    FINE(zp_train_run(new_model("rope"), in_folder("unheld.zpt"), in_folder("unheld.gguf"), &o,
                      &json, err));
    json_t *report = document(json), *held = json_object_get(report, "held");
    assert_true(json_is_null(json_object_get(held, "nll")));
    assert_int_equal(json_integer_value(json_object_get(held, "windows")), 0);
    json_decref(report);
}

static void test_original_of_another_vocabulary_is_refused(void **state)
{
    (void)state;
    struct bpetrain b;
    static const char text[] = "quick brown foxes jump over lazy dogs while zebras quietly watch "
                               "the jumping foxes and the dogs that bark and bite every morning";
    FINE(bpetrain_open(&b, &(struct bpetrain_options){ .n_vocab = 320 }, err));
    for (int i = 0; i < 4; i++) FINE(bpetrain_add(&b, text, sizeof text - 1, err));
    FINE(bpetrain_run(&b, err));
    FINE(bpetrain_save(&b, in_folder("other.gguf"), err));
    bpetrain_free(&b);
    const char *config = "{\"n_layer\":2,\"d_model\":32,\"n_head\":4,\"n_kv\":2,\"d_head\":8,"
                         "\"d_ff\":48,\"n_ctx\":64,\"position\":\"rope\"}";
    FINE(newmodel_write(config, "config", in_folder("other.gguf"), 7, in_folder("foreign"), err));
    zp_train_options o = short_run(NULL);
    o.original = in_folder("foreign");
    not_run(new_model("rope"), tokens_path, &o, ZP_BAD_INPUT, "another vocabulary");
}

static void test_files_beside_the_output_stay(void **state)
{
    (void)state;
    struct os_map map;
    zp_anneal_options o = { .train = short_run(NULL) };
    FINE(os_write_file(in_folder("out.gguf.trained"), "mine", 4, err));
    FINE(zp_anneal_run(new_model("rope"), tokens_path, in_folder("out.gguf"), &o, NULL, err));
    FINE(os_map_file(&map, in_folder("out.gguf.trained"), err));
    assert_int_equal(map.size, 4);
    os_unmap(&map);
}

/* Rows that no machine has the memory for: the bytes are named, nothing is touched. */
static void test_batch_beyond_memory_is_refused(void **state)
{
    (void)state;
    zp_train_options o = short_run(NULL);
    o.batch_rows = 20 << 20;
    not_run(new_model("rope"), tokens_path, &o, ZP_NO_MEMORY, "are needed to train on");
}

static void refused(const zp_train_options *o, zp_status code, const char *part)
{
    zp_err err = { 0 };
    assert_int_equal(zp_train_run(in_folder("rope"), tokens_path, in_folder("no.gguf"), o, NULL,
                                  &err), code);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
}

static void test_wrong_wishes_are_refused(void **state)
{
    (void)state;
    new_model("rope");
    refused(&(zp_train_options){ 0 }, ZP_USAGE, "--tokens");
    refused(&(zp_train_options){ .tokens = 1, .n_ctx = 4096 }, ZP_USAGE, "context has 64");
    refused(&(zp_train_options){ .tokens = 1, .type = "Q9" }, ZP_USAGE, "Q9");
    refused(&(zp_train_options){ .tokens = 1, .schedule = "square" }, ZP_USAGE, "square");
    refused(&(zp_train_options){ .tokens = 1, .learn = "v" }, ZP_USAGE, "'v'");
    refused(&(zp_train_options){ .tokens = 1, .match = true }, ZP_USAGE, "original");
    refused(&(zp_train_options){ .tokens = 1, .resume = true }, ZP_USAGE, "--run-dir");
    refused(&(zp_train_options){ .tokens = 1, .ce_weight = -1 }, ZP_USAGE, "nothing to learn");
    refused(&(zp_train_options){ .tokens = 1, .warmup = (double)NAN }, ZP_USAGE, "warmup");
    refused(&(zp_train_options){ .tokens = 1, .learning_rate = (double)NAN }, ZP_USAGE, "rate");
    refused(&(zp_train_options){ .tokens = 1, .micro_batches = 5 }, ZP_USAGE, "equal parts");
    refused(&(zp_train_options){ .tokens = 1, .rotation_dropout = 1 }, ZP_USAGE, "left out");
    assert_int_not_equal(access(in_folder("no.gguf"), F_OK), 0);
}

static int open_fixture(void **state)
{
    enum { DOCS = 12 };
    static const size_t n_words[DOCS] = { 90, 40, 200, 60, 150, 30, 80, 120, 70, 50, 110, 45 };
    int failed = make_folder(state);
    tokens_path = strdup(in_folder("fixture.zpt"));
    fixture_open(&fixture, 320, n_words, DOCS);
    return failed;
}

static int close_fixture(void **state)
{
    fixture_close(&fixture);
    free((void *)(uintptr_t)tokens_path);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAD_TEST(test_loss_falls),
        GRAD_TEST(test_threads_do_not_change_bits),
        GRAD_TEST(test_resumed_run_gives_the_same_bits),
        GRAD_TEST(test_other_options_do_not_resume),
        GRAD_TEST(test_steps_that_are_not_finite_are_not_taken),
        GRAD_TEST(test_closed_biases_have_no_gradient),
        GRAD_TEST(test_matching_brings_attention_back),
        GRAD_TEST(test_every_policy_writes_a_file_without_positions),
        GRAD_TEST(test_interrupted_run_goes_on_to_the_same_file),
        GRAD_TEST(test_learned_gates_open_again_alike_after_a_stop),
        GRAD_TEST(test_diverged_run_keeps_its_last_good_state),
        GRAD_TEST(test_run_without_a_checkpoint_yet_begins_anew),
        GRAD_TEST(test_lost_or_damaged_record),
        GRAD_TEST(test_runs_begun_as_another_one_do_not_go_on),
        GRAD_TEST(test_a_folder_in_use_is_refused),
        GRAD_TEST(test_training_without_held_out_documents),
        GRAD_TEST(test_original_of_another_vocabulary_is_refused),
        GRAD_TEST(test_files_beside_the_output_stay),
        GRAD_TEST(test_batch_beyond_memory_is_refused),
        GRAD_TEST(test_wrong_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}

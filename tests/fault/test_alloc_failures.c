/* test_alloc_failures.c: every public call of model and engine when allocation number n fails, for
 * all n: the status is ZP_NO_MEMORY, no byte stays behind, and the same call works afterwards. */
#include "alloc_failures.h"

#include <zerope/eval.h>

#include "in_folder.h"
#include "model/engine.h"
#include "model/packfile.h"

/* Allocations of PCRE2 for machine code of two expressions (14 in 10.42). */
enum { EXPRESSIONS = 32 };

/* What the calls work on; each case uses what it needs. */
struct fixture {
    const char *path;
    const char *folder; /* NULL, or: of files that a failed call leaves as they were */
    uint64_t may_do_without; /* compiled expressions are a convenience: matching works without */
    zp_model *m;
    zp_engine *e;
    zp_seq *s;
    int32_t ids[40];
    float *logits;
};
typedef zp_status (*call_fn)(struct fixture *f, zp_err *why);

/* A call of the fixture, as the helper wants it. */
struct bound {
    struct fixture *f;
    call_fn call;
    uint64_t length; /* of the sequence, before */
};

static zp_status run_bound(void *arg, zp_err *why)
{
    struct bound *b = arg;
    b->length = b->f->s ? zp_seq_length(b->f->s) : 0;
    return b->call(b->f, why);
}

static void shorten(void *arg)
{
    const struct bound *b = arg;
    if (b->f->s && zp_seq_length(b->f->s) != b->length)
        GOLDEN_OK(zp_seq_truncate(b->f->s, (uint32_t)b->length, err));
}

static void check_call(struct fixture *f, const char *what, call_fn call, size_t least)
{
    struct bound b = { .f = f, .call = call };
    struct fail_call c = { .what = what,
                           .run = run_bound,
                           .arg = &b,
                           .undo = shorten,
                           .folder = f->folder,
                           .may_do_without = f->may_do_without };
    fail_each(&c, least);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static zp_status call_model(struct fixture *f, zp_err *why)
{
    zp_model *m = NULL;
    zp_status status = zp_model_open(&m, f->path, NULL, why);
    if (status != ZP_OK) assert_null(m);
    else assert_non_null(m->tokenizer);
    zp_model_close(m);
    return status;
}

static zp_status call_engine(struct fixture *f, zp_err *why)
{
    zp_engine *e = NULL;
    zp_engine_options o = { .n_ctx = 200, .n_threads = 2 };
    zp_status status = zp_engine_open(&e, f->m, &o, why);
    if (status != ZP_OK) assert_null(e);
    zp_engine_close(e);
    return status;
}

static zp_status call_exact_engine(struct fixture *f, zp_err *why)
{
    zp_engine *e = NULL;
    zp_engine_options o = { .n_ctx = 200, .n_threads = 2, .exact = true };
    zp_status status = zp_engine_open(&e, f->m, &o, why);
    zp_engine_close(e);
    return status;
}

static zp_status call_prefix_engine(struct fixture *f, zp_err *why)
{
    zp_engine *e = NULL;
    zp_engine_options o = { .n_ctx = 200, .n_threads = 2, .prefix_cache = true };
    zp_status status = zp_engine_open(&e, f->m, &o, why);
    if (status != ZP_OK) assert_null(e);
    zp_engine_close(e);
    return status;
}

static zp_status call_cached_engine(void *arg, zp_err *why)
{
    struct fixture *f = arg;
    zp_engine *e = NULL;
    zp_engine_options o = { .n_ctx = 200, .n_threads = 2, .pack_cache = in_folder("cache") };
    zp_status status = zp_engine_open(&e, f->m, &o, why);
    if (status != ZP_OK) assert_null(e);
    zp_engine_close(e);
    return status;
}

static zp_status call_caching_engine(void *arg, zp_err *why)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", in_folder("cache"));
    assert_int_equal(system(command), 0);
    return call_cached_engine(arg, why);
}

/* Without memory for a side file, an engine packs its weights and keeps none; without memory to
 * copy one that lies in small pages, it stays with the mapping. The system chooses the pages: the
 * copy is made in any case here, so that every run has the same allocations. */
static void check_cached_engine(struct fixture *f)
{
    struct fail_call c = { .what = "zp_engine_open, side file written",
                           .run = call_caching_engine,
                           .arg = f,
                           .may_do_without = 5 };
    fail_each(&c, 20);
    c.what = "zp_engine_open, side file read";
    c.run = call_cached_engine;
    c.may_do_without = 2;
    packfile_pretend_small_pages(true);
    fail_each(&c, 13);
    packfile_pretend_small_pages(false);
}

static zp_status call_seq(struct fixture *f, zp_err *why)
{
    zp_seq *s = NULL;
    zp_status status = zp_seq_open(&s, f->e, NULL, why);
    if (status != ZP_OK) assert_null(s);
    zp_seq_close(s);
    return status;
}

static zp_status call_fork(struct fixture *f, zp_err *why)
{
    zp_seq *s = NULL;
    zp_status status = zp_seq_fork(&s, f->s, zp_seq_length(f->s), why);
    if (status != ZP_OK) assert_null(s);
    zp_seq_close(s);
    return status;
}

static zp_status call_run(struct fixture *f, zp_err *why)
{
    zp_item item = { f->s, f->ids, 1, ZP_WANT_LAST };
    return zp_engine_run(f->e, &item, 1, f->logits, 1, NULL, why);
}

static zp_status call_generate(struct fixture *f, zp_err *why)
{
    static const char *const stop[] = { "never to be seen" };
    zp_generate_options o = { .n_predict = 6,
                              .stop = stop,
                              .n_stop = 1,
                              .ignore_end = true,
                              .sampler = {
                                  .temperature = 1, .top_k = 20, .repeat_penalty = 1.1f } };
    zp_generated out;
    zp_status status = zp_generate(f->e, f->s, f->ids, 8, &o, &out, why);
    if (status != ZP_OK) assert_true(out.ids == NULL && out.text == NULL);
    else GOLDEN_OK(zp_seq_truncate(f->s, zp_seq_length(f->s) - 13, err));
    zp_free(out.ids);
    zp_free(out.text);
    return status;
}

static zp_status call_generate_many(struct fixture *f, zp_err *why)
{
    const zp_generate_options o = { .n_predict = 3, .ignore_end = true, .n_draft = 2 };
    zp_job jobs[] = { { f->ids, 8, &o, { 0 } }, { f->ids + 8, 4, &o, { 0 } } };
    zp_status status = zp_generate_many(f->e, NULL, jobs, 2, NULL, why);
    for (size_t i = 0; i < 2; i++) {
        if (status != ZP_OK) assert_true(jobs[i].result.ids == NULL);
        zp_free(jobs[i].result.ids);
        zp_free(jobs[i].result.text);
    }
    return status;
}

static zp_status give_back(zp_status status, char **json)
{
    if (status != ZP_OK) assert_null(*json);
    zp_free(*json);
    return status;
}

static zp_status call_inspect(struct fixture *f, zp_err *why)
{
    char *json = NULL;
    return give_back(
        zp_inspect_json(f->m, &(zp_inspect_options){ { .n_ctx = 512, .n_seq = 2 }, true },
                        &json, why),
        &json);
}

static zp_status call_logits(struct fixture *f, zp_err *why)
{
    char *json = NULL;
    zp_logits_options o = { .top = 5, .n_predict = 3 };
    return give_back(zp_logits_json(f->e, f->ids, 20, &o, &json, why), &json);
}

static zp_status call_bench(struct fixture *f, zp_err *why)
{
    static const uint32_t depth = 8, batch = 2;
    zp_bench_options o = { .n_predict = 2, .no_prefill = true, .depths = &depth, .n_depths = 1,
                           .batches = &batch, .n_batches = 1, .repetitions = 1,
                           .engine = { .n_threads = 2 } };
    char *json = NULL;
    return give_back(zp_bench_json(f->m, &o, &json, why), &json);
}

static zp_status call_features(struct fixture *f, zp_err *why)
{
    char *json = NULL;
    (void)f;
    return give_back(zp_features_json(&json, why), &json);
}

static zp_status call_tokenize(struct fixture *f, zp_err *why)
{
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, size = 0;
    zp_status status = zp_tokenize(f->m, "the hen on the rein", 19, ZP_TOKENS_BOS, &ids, &n, why);
    if (status == ZP_OK) status = zp_detokenize(f->m, ids, n, true, &text, &size, why);
    zp_free(ids);
    return give_back(status, &text);
}

static zp_status call_template(struct fixture *f, zp_err *why)
{
    static const char *const source =
        "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m['content'] | trim }}{% endfor %}";
    char *text = NULL;
    zp_status status = zp_template_render_text(
        source, "[{\"role\": \"user\", \"content\": \" Hi \"}]", NULL, &text, why);
    (void)f;
    return give_back(status, &text);
}

static zp_status call_template_of_model(struct fixture *f, zp_err *why)
{
    static const zp_template_options o = { .bos = "<s>" };
    static const char *const input =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hen \\u2014 rein\"}], \"tools\": []}";
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n;
    zp_status status = zp_template_render(f->m, input, &o, &text, &ids, &n, why);
    if (status != ZP_OK) assert_null(ids);
    zp_free(ids);
    return give_back(status, &text);
}

static zp_status call_sampler(struct fixture *f, zp_err *why)
{
    static const zp_bias bias[] = { { 5, -1.0f }, { 7, 2.0f } };
    zp_sampler_options o = { .temperature = 1, .top_k = 4, .bias = bias, .n_bias = 2 };
    zp_sampler *s = NULL;
    zp_status status = zp_sampler_open(&s, f->m, &o, why);
    if (status != ZP_OK) assert_null(s);
    zp_sampler_close(s);
    return status;
}

/* The cut goes through a page that two sequences share. */
static zp_status call_truncate(struct fixture *f, zp_err *why)
{
    zp_seq *s = NULL;
    zp_status status = zp_seq_fork(&s, f->s, 40, why);
    if (status == ZP_OK) status = zp_seq_truncate(s, 20, why);
    zp_item item = { s, f->ids, 1, ZP_WANT_LAST };
    if (status == ZP_OK) status = zp_engine_run(f->e, &item, 1, f->logits, 1, NULL, why);
    zp_seq_close(s);
    return status;
}

static zp_status call_save(struct fixture *f, zp_err *why)
{
    return zp_seq_save(f->s, in_folder("saved"), why);
}

static zp_status call_check_save(struct fixture *f, zp_err *why)
{
    return zp_seq_check_save(f->s, 150, in_folder("saved"), why);
}

static zp_status call_restore(struct fixture *f, zp_err *why)
{
    zp_seq *s = NULL;
    zp_status status = zp_seq_restore(&s, f->e, in_folder("saved"), NULL, 0, why);
    if (status != ZP_OK) assert_null(s);
    zp_seq_close(s);
    return status;
}

static zp_status call_restore_beginning(struct fixture *f, zp_err *why)
{
    zp_seq *s = NULL;
    zp_seq_info saved;
    zp_seq_describe(f->s, &saved);
    zp_status status =
        zp_seq_restore(&s, f->e, in_folder("saved"), saved.ids, saved.length / 2, why);
    if (status == ZP_OK) assert_int_equal(zp_seq_length(s), saved.length / 2);
    else assert_null(s);
    zp_seq_close(s);
    return status;
}

/* Pages that a failed call took would be missing. */
static void check_snapshots(struct fixture *f)
{
    size_t n_free = f->e->kv.pages.n_free;
    f->folder = folder;
    check_call(f, "zp_seq_save", call_save, 5);
    check_call(f, "zp_seq_check_save", call_check_save, 2);
    check_call(f, "zp_seq_restore", call_restore, 5);
    check_call(f, "zp_seq_restore, beginning", call_restore_beginning, 5);
    f->folder = NULL;
    assert_int_equal(f->e->kv.pages.n_free, n_free);
}

static zp_status call_embed(struct fixture *f, zp_err *why)
{
    size_t n_free = f->e->kv.pages.n_free;
    const zp_embed_options o = { .pooling = ZP_POOL_MEAN };
    zp_status status = zp_embed(f->e, f->ids, 40, &o, f->logits, why); /* d_model < n_vocab */
    assert_int_equal(f->e->kv.pages.n_free, n_free);
    return status;
}

static zp_status call_doctor(struct fixture *f, zp_err *why)
{
    char *json = NULL;
    (void)f;
    return give_back(zp_doctor_json(&json, 1, true, why), &json);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void open_fixture(struct fixture *f, const char *path)
{
    *f = (struct fixture){ .path = path };
    GOLDEN_OK(zp_model_open(&f->m, path, NULL, err));
    f->e = golden_engine(f->m, (zp_engine_options){ .n_ctx = 200, .n_seq = 3, .n_threads = 2 });
    f->logits = malloc(f->m->h.n_vocab * sizeof *f->logits);
    assert_non_null(f->logits);
    for (int i = 0; i < 40; i++) f->ids[i] = 3 + i;
    GOLDEN_OK(zp_seq_open(&f->s, f->e, NULL, err));
    zp_item item = { f->s, f->ids, 40, ZP_WANT_NONE };
    GOLDEN_OK(zp_engine_run(f->e, &item, 1, NULL, 0, NULL, err));
}

static void close_fixture(struct fixture *f)
{
    zp_seq_close(f->s);
    zp_engine_close(f->e);
    zp_model_close(f->m);
    free(f->logits);
}

static void check_model(const char *path)
{
    struct fixture f = { .path = path, .may_do_without = EXPRESSIONS };
    printf("%s\n", path + strlen(ZP_TEST_DATA));
    check_call(&f, "zp_model_open", call_model, 5);
    open_fixture(&f, path);
    zp_seq *keep = f.s;
    f.s = NULL; /* these calls leave the sequence alone */
    check_call(&f, "zp_engine_open", call_engine, 15);
    check_call(&f, "zp_engine_open exact", call_exact_engine, 10);
    check_cached_engine(&f);
    check_call(&f, "zp_engine_open prefix_cache", call_prefix_engine, 20);
    check_call(&f, "zp_seq_open", call_seq, 2);
    check_call(&f, "zp_inspect_json", call_inspect, 5);
    check_call(&f, "zp_logits_json", call_logits, 5);
    check_call(&f, "zp_embed", call_embed, 4);
    f.s = keep;
    check_call(&f, "zp_seq_fork", call_fork, 2);
    check_call(&f, "zp_seq_fork, zp_seq_truncate", call_truncate, 2);
    check_call(&f, "zp_engine_run", call_run, 0);
    check_call(&f, "zp_generate", call_generate, 8);
    check_call(&f, "zp_generate_many", call_generate_many, 15);
    check_snapshots(&f);
    close_fixture(&f);
}

static void test_gguf_with_every_position_kind(void **state)
{
    (void)state;
    check_model(ZP_TEST_DATA "/arch/gguf/zerope-mixed.gguf");
}

static void test_hugging_face_folder(void **state)
{
    (void)state;
    check_model(ZP_TEST_DATA "/arch/qwen3");
}

static void test_text_calls(void **state)
{
    struct fixture f = { 0 };
    (void)state;
    zp_model_options o = { .chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}: "
                                            "{{ m.content }}{% endfor %}{{ bos_token }}" };
    GOLDEN_OK(zp_model_open(&f.m, ZP_TEST_DATA "/arch/llama", &o, err));
    check_call(&f, "zp_tokenize, zp_detokenize", call_tokenize, 2);
    check_call(&f, "zp_template_render", call_template_of_model, 10);
    check_call(&f, "zp_template_render_text", call_template, 3);
    check_call(&f, "zp_sampler_open", call_sampler, 5);
    zp_model_close(f.m);
}

/* Once: it waits for the bandwidth each time. */
static void test_bench(void **state)
{
    struct fixture f = { 0 };
    (void)state;
    GOLDEN_OK(zp_model_open(&f.m, ZP_TEST_DATA "/arch/gguf/zerope-mixed.gguf", NULL, err));
    check_call(&f, "zp_bench_json", call_bench, 30);
    zp_model_close(f.m);
}

static void test_calls_without_a_model(void **state)
{
    struct fixture f = { 0 };
    (void)state;
    check_call(&f, "zp_features_json", call_features, 2);
    check_call(&f, "zp_doctor_json", call_doctor, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_with_every_position_kind),
        cmocka_unit_test(test_hugging_face_folder),
        cmocka_unit_test(test_text_calls),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_calls_without_a_model),
    };
    fail_watch_jansson();
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

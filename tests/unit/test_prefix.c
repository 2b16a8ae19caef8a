/* test_prefix.c: the prefix tree: who may share, what is given up under pressure, and the books of
 * the page pool after any history of sequences. Bits: also test_same_bits. */
#include "same_bits.h"

#include "base/os.h"
#include "base/rng.h"
#include "in_folder.h"
#include "model/gguf_write.h"
#include "model/snapshot.h"

enum { SEED = 31 };

static int32_t *random_ids(uint64_t stream, size_t n, uint32_t n_vocab)
{
    struct rng r = rng_stream(SEED, stream);
    int32_t *ids = malloc(n * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)rng_below(&r, n_vocab);
    return ids;
}

static void append(zp_engine *e, zp_seq *s, const int32_t *ids, size_t n)
{
    GOLDEN_OK(zp_engine_run(e, &(zp_item){ s, ids, n, ZP_WANT_NONE }, 1, NULL, 0, NULL, err));
}

static size_t reuse(zp_seq *s, const int32_t *ids, size_t n)
{
    size_t reused = 77;
    GOLDEN_OK(zp_seq_reuse(s, ids, n, &reused, err));
    assert_int_equal(zp_seq_length(s), reused);
    return reused;
}

static zp_engine_stats stats_of(const zp_engine *e)
{
    zp_engine_stats stats;
    zp_engine_describe(e, &stats);
    return stats;
}

/* How much a fresh sequence with these options takes over. */
static size_t shared_with(zp_engine *e, zp_seq_options o, const int32_t *ids, size_t n)
{
    zp_seq *s = NULL;
    GOLDEN_OK(zp_seq_open(&s, e, &o, err));
    size_t reused = reuse(s, ids, n);
    zp_seq_close(s);
    return reused;
}

/* Windows in all heads of a small model: no head keeps all its pages. */
static zp_model *open_all_windowed(void)
{
    static const uint32_t windows[] = { 8, 90, 20, 12 };
    struct gguf g;
    struct gguf_edit e;
    zp_model *m = NULL;
    GOLDEN_OK(gguf_open(&g, ZP_TEST_DATA "/arch/gguf/zerope-local.gguf", err));
    GOLDEN_OK(gguf_edit_init(&e, &g, err));
    GOLDEN_OK(
        gguf_edit_set_array(&e, "zerope.attention.head_window", GGUF_U32, windows, 4, err));
    GOLDEN_OK(gguf_edit_write(&e, in_folder("windowed.gguf"), err));
    gguf_edit_free(&e);
    gguf_close(&g);
    GOLDEN_OK(zp_model_open(&m, in_folder("windowed.gguf"), NULL, err));
    return m;
}

static zp_model *open_small(const char *name)
{
    return strcmp(name, "windowed") == 0 ? open_all_windowed() : golden_small(name);
}

/* ---- who shares ------------------------------------------------------------------------------ */

static void check_sharing(const zp_model *m, uint64_t key_mask)
{
    enum { N = 300 };
    zp_engine_options o = {
        .n_ctx = 320, .n_seq = 3, .prefix_cache = true, .allow_unverified_mode = true
    };
    zp_engine *e = golden_engine(m, o);
    int32_t *ids = random_ids(1, N, m->h.n_vocab), *other = random_ids(1, N, m->h.n_vocab);
    zp_seq *s = bits_seq(e);
    e->kv.prefix.key_mask = key_mask;
    append(e, s, ids, N);
    assert_int_equal(stats_of(e).prefix_tiles, N / 64);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, N), 256);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, 257), 256);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, 256), 192);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, 64), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, 1), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, NULL, 0), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ .mode = ZP_MODE_ZERO }, ids, N), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ .position_offset = 1 }, ids, N), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ .salt = 1 }, ids, N), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ .salt = UINT64_MAX }, ids, N), 0);
    static const size_t changed[] = { 0, 63, 64, 130, 255 };
    for (size_t i = 0; i < ZP_COUNT(changed); i++) {
        other[changed[i]] ^= 1;
        assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, other, N), changed[i] / 64 * 64);
        other[changed[i]] ^= 1;
    }
    /* the same tile behind another beginning is another tile */
    memmove(other, ids + 64, (N - 64) * sizeof *ids);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, other, N - 64), 0);
    zp_seq_close(s);
    zp_engine_close(e);
    free(ids), free(other);
}

static void test_same_beginnings_share_and_nobody_else(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-llama-yarn");
    check_sharing(m, UINT64_MAX);
    zp_model_close(m);
}

/* All keys alike: ids, parents, modes, offsets and salts still tell the tiles apart. */
static void test_colliding_keys_change_nothing(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-llama-yarn");
    check_sharing(m, 0);
    check_sharing(m, 1);
    zp_model_close(m);
}

static void test_reuse_is_for_empty_sequences(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-llama-yarn");
    int32_t *ids = random_ids(1, 300, m->h.n_vocab);
    size_t reused = 77;
    for (int cached = 0; cached < 2; cached++) {
        zp_engine *e = golden_engine(
            m, (zp_engine_options){ .n_ctx = 128, .n_seq = 2, .prefix_cache = cached });
        zp_seq *s = bits_seq(e), *t = bits_seq(e);
        append(e, s, ids, 128);
        assert_int_equal(zp_seq_reuse(s, ids, 128, &reused, NULL), ZP_USAGE);
        assert_int_equal(zp_seq_reuse(t, NULL, 3, &reused, NULL), ZP_USAGE);
        assert_int_equal(zp_seq_length(t), 0);
        assert_int_equal(reuse(t, ids, 300), cached ? 128 : 0); /* beyond the context: not here */
        assert_int_equal(stats_of(e).tokens_reused, cached ? 128 : 0);
        zp_seq_close(s);
        zp_seq_close(t);
        zp_engine_close(e);
    }
    free(ids);
    zp_model_close(m);
}

/* What evap does with layers and gates is not what the model computes. */
static void test_parts_of_a_model_are_not_cached(void **state)
{
    (void)state;
    static const int32_t ids[] = { 1, 2, 3 };
    static const uint8_t gates[4096] = { 0 };
    static const float x[4096] = { 0 };
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine *e = golden_engine(m, (zp_engine_options){ .n_ctx = 64, .prefix_cache = true });
    zp_seq *s = bits_seq(e);
    zp_item item = { s, ids, 3, ZP_WANT_NONE };
    struct engine_job parts[] = { { .layer_end = 1 }, { .layer_begin = 1 }, { .x_in = x } };
    for (size_t i = 0; i <= ZP_COUNT(parts); i++) {
        struct engine_job job = i < ZP_COUNT(parts) ? parts[i] : (struct engine_job){ 0 };
        job.items = &item, job.n_items = 1;
        e->forward.gates = i == ZP_COUNT(parts) ? gates : NULL;
        zp_err err = { 0 };
        assert_int_equal(engine_run(e, &job, &err), ZP_USAGE);
        assert_non_null(strstr(err.message, "prefix cache"));
        assert_int_equal(zp_seq_length(s), 0);
    }
    e->forward.gates = NULL;
    append(e, s, ids, 3);
    zp_seq_close(s);
    zp_engine_close(e);
    zp_model_close(m);
}

/* ---- the books ------------------------------------------------------------------------------- */

/* References counted anew, from tables and tree, are those of the pool. */
static void check_books(const zp_engine *e, zp_seq *const *seqs, size_t n_seqs)
{
    const struct kvcache *c = &e->kv;
    const struct page_pool *p = &c->pages;
    uint32_t *refs = calloc(p->n_pages, sizeof *refs);
    bool *kept = calloc(p->n_pages, sizeof *kept);
    size_t n_free = 0, n_idle = 0;
    assert_true(refs && kept);
    for (size_t i = 0; i < n_seqs; i++)
        for (size_t k = 0; seqs[i] && k < (size_t)seqs[i]->kv.n_tiles * c->n_heads; k++) {
            const uint8_t *page = seqs[i]->kv.k[k];
            if (page) refs[(size_t)(page - p->memory) / p->page_bytes]++;
        }
    for (size_t k = 0; k < (size_t)c->prefix.n_nodes * c->n_heads; k++) {
        const uint8_t *page = c->prefix.pages[k];
        if (!page) continue;
        size_t number = (size_t)(page - p->memory) / p->page_bytes;
        assert_false(kept[number]);
        kept[number] = true;
        refs[number]++;
    }
    for (size_t i = 0; i < p->n_pages; i++) {
        assert_int_equal(refs[i], p->refs[i]);
        assert_int_equal(kept[i], p->kept[i]);
        n_free += refs[i] == 0;
        n_idle += refs[i] == 1 && kept[i];
    }
    assert_int_equal(n_free, p->n_free);
    assert_int_equal(n_idle, p->n_idle);
    free(refs);
    free(kept);
}

/* Token streams that share beginnings of several lengths, with the rows each gives when it is
 * computed alone. */
enum { STREAMS = 5, LENGTH = 640, SLOTS = 6 };

struct world {
    const zp_model *m;
    const char *name;
    zp_engine *e;
    int32_t *ids[STREAMS];
    struct same_bits rows[STREAMS];
    zp_seq *seqs[SLOTS];
    uint32_t stream[SLOTS];
    struct rng rng;
    size_t n_refused, n_behind, n_reused;
};

static void open_world(struct world *w, const zp_model *m, const char *name, zp_kv_type kv)
{
    static const size_t branch[STREAMS] = { 0, 0, 70, 256, 500 };
    *w = (struct world){ .m = m, .name = name, .rng = rng_stream(SEED, 3) };
    zp_engine_options o = { .n_ctx = LENGTH, .n_threads = 2, .micro_batch = 96, .kv_type = kv };
    for (size_t i = 0; i < STREAMS; i++) {
        w->ids[i] = random_ids(10 + i, LENGTH, m->h.n_vocab);
        memcpy(w->ids[i], w->ids[0], branch[i] * sizeof *w->ids[i]);
        bits_open(&w->rows[i], m, name, w->ids[i], LENGTH, o);
    }
    o.n_seq = 2;
    o.prefix_cache = true;
    w->e = golden_engine(m, o);
}

static void close_world(struct world *w)
{
    for (size_t i = 0; i < SLOTS; i++) zp_seq_close(w->seqs[i]);
    memset(w->seqs, 0, sizeof w->seqs);
    check_books(w->e, w->seqs, SLOTS);
    assert_int_equal(w->e->kv.pages.n_free + w->e->kv.pages.n_idle, w->e->kv.pages.n_pages);
    zp_engine_close(w->e);
    for (size_t i = 0; i < STREAMS; i++) bits_free(&w->rows[i]);
}

static uint32_t draw(struct world *w, uint32_t below)
{
    return (uint32_t)rng_below(&w->rng, below);
}

static void step_append(struct world *w, size_t i)
{
    uint32_t length = zp_seq_length(w->seqs[i]), left = LENGTH - length;
    if (left == 0) return;
    uint32_t n = 1 + draw(w, left < 230 ? left : 230);
    const struct same_bits *b = &w->rows[w->stream[i]];
    zp_item item = { w->seqs[i], b->ids + length, n, ZP_WANT_NONE };
    struct engine_job job = { .items = &item, .n_items = 1, .x_out = b->room };
    zp_status status = engine_run(w->e, &job, NULL);
    if (status == ZP_OK) {
        bits_compare(b, b->room, length, n, "after any history, from", length);
        return;
    }
    assert_int_equal(status, ZP_NO_MEMORY); /* refused before any work */
    assert_int_equal(zp_seq_length(w->seqs[i]), length);
    w->n_refused++;
    zp_seq_close(w->seqs[i]);
    w->seqs[i] = NULL;
}

static void step_open(struct world *w, size_t i)
{
    uint32_t stream = draw(w, STREAMS), n = draw(w, LENGTH + 1);
    w->seqs[i] = bits_salted(w->e, draw(w, 2));
    w->stream[i] = stream;
    if (draw(w, 4)) w->n_reused += reuse(w->seqs[i], w->ids[stream], n) > 0;
}

/* Windows may have given back what a cut needs: then nothing has changed. */
static void step_cut(struct world *w, size_t i, zp_seq **fork)
{
    uint32_t length = zp_seq_length(w->seqs[i]), n = draw(w, length + 1);
    zp_status status =
        fork ? zp_seq_fork(fork, w->seqs[i], n, NULL) : zp_seq_truncate(w->seqs[i], n, NULL);
    w->n_behind += status != ZP_OK;
    if (status != ZP_OK) assert_int_equal(status, ZP_UNSUPPORTED);
    if (!fork) assert_int_equal(zp_seq_length(w->seqs[i]), status == ZP_OK ? n : length);
}

/* A copy through a file has pages of its own, until they are found to be in the tree. */
static void step_copy(struct world *w, size_t i, size_t k)
{
    GOLDEN_OK(zp_seq_save(w->seqs[i], in_folder("saved"), err));
    zp_status status = zp_seq_restore(&w->seqs[k], w->e, in_folder("saved"), NULL, 0, NULL);
    if (status != ZP_OK) assert_int_equal(status, ZP_NO_MEMORY);
    w->stream[k] = w->stream[i];
}

static void step(struct world *w)
{
    size_t i = draw(w, SLOTS), k = draw(w, SLOTS);
    uint32_t what = draw(w, 10);
    if (!w->seqs[i]) {
        step_open(w, i);
    } else if (what < 6) {
        step_append(w, i);
    } else if (what < 7) {
        step_cut(w, i, NULL);
    } else if (what < 8 && !w->seqs[k]) {
        step_cut(w, i, &w->seqs[k]);
        w->stream[k] = w->stream[i];
    } else if (what < 9 && !w->seqs[k]) {
        step_copy(w, i, k);
    } else {
        zp_seq_close(w->seqs[i]);
        w->seqs[i] = NULL;
    }
}

static void check_histories(const char *name, zp_kv_type kv, size_t steps)
{
    struct world w;
    zp_model *m = open_small(name);
    open_world(&w, m, name, kv);
    for (size_t i = 0; i < steps; i++) {
        step(&w);
        check_books(w.e, w.seqs, SLOTS);
    }
    zp_engine_stats stats = stats_of(w.e);
    printf("  %s, kv %d: %zu reused, %llu evictions, %zu refused, %zu behind windows\n", name, kv,
           w.n_reused, (unsigned long long)stats.prefix_evictions, w.n_refused, w.n_behind);
    assert_true(w.n_reused > 10 && stats.prefix_evictions > 10 && w.n_refused > 0);
    close_world(&w);
    zp_model_close(m);
}

static void test_any_history_gives_same_bits_and_true_books(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3", "zerope-local",
                                          "windowed" };
    for (size_t i = 0; i < ZP_COUNT(models); i++) {
        check_histories(models[i], ZP_KV_BF16, 400);
        check_histories(models[i], ZP_KV_Q8, 400);
    }
    check_histories("zerope-local", ZP_KV_F32, 400);
}

/* ---- pressure -------------------------------------------------------------------------------- */

/* Any number of different prompts, each as long as the context, in pages for one. */
static void check_full_budget(const char *name, zp_kv_type kv)
{
    enum { N = 640 };
    zp_model *m = open_small(name);
    zp_engine_options o = { .n_ctx = N, .n_threads = 2, .prefix_cache = true, .kv_type = kv };
    zp_engine *e = golden_engine(m, o);
    for (uint64_t k = 0; k < 6; k++) {
        int32_t *ids = random_ids(k, N, m->h.n_vocab);
        zp_seq *s = bits_seq(e);
        assert_int_equal(reuse(s, ids, N), 0);
        append(e, s, ids, N - 5);
        for (size_t i = N - 5; i < N; i++) append(e, s, ids + i, 1);
        for (uint32_t back = 1; back < 64; back += 20) { /* a copy of what the tree holds */
            GOLDEN_OK(zp_seq_truncate(s, N - back, err));
            append(e, s, ids, back);
        }
        check_books(e, &s, 1);
        zp_seq_close(s);
        free(ids);
    }
    assert_true(stats_of(e).prefix_evictions > 0);
    zp_engine_close(e);
    zp_model_close(m);
}

static void test_full_budget_of_prefixes_stops_nobody(void **state)
{
    (void)state;
    static const char *const models[] = { "gguf-llama-yarn", "gguf-gemma3", "zerope-local",
                                          "windowed" };
    for (size_t i = 0; i < ZP_COUNT(models); i++)
        for (int kv = ZP_KV_F32; kv <= ZP_KV_Q8; kv++) check_full_budget(models[i], (zp_kv_type)kv);
}

/* Too little for a page a head: refused with the bytes it takes. For exactly that: a tile and no
 * more, and what does not fit leaves the sequence and the tree's tile as they were. */
static void test_budgets_of_a_page_and_less(void **state)
{
    (void)state;
    zp_model *m = golden_small("gguf-llama-yarn");
    struct kv_plan one = kvcache_plan(&m->position, KV_BF16, 1, 1, 1, false);
    zp_engine_options o = { .n_ctx = 256, .prefix_cache = true, .kv_bytes = kv_plan_bytes(&one) };
    zp_engine *e = golden_engine(m, o);
    int32_t *ids = random_ids(1, 256, m->h.n_vocab);
    zp_seq *s = bits_seq(e);
    zp_err err = { 0 };
    append(e, s, ids, 64);
    zp_item more = { s, ids + 64, 1, ZP_WANT_NONE };
    assert_int_equal(zp_engine_run(e, &more, 1, NULL, 0, NULL, &err), ZP_NO_MEMORY);
    assert_non_null(strstr(err.message, "KV budget is used up"));
    assert_int_equal(zp_seq_length(s), 64);
    assert_int_equal(stats_of(e).prefix_tiles, 1);
    zp_seq_close(s);
    s = bits_seq(e);
    assert_int_equal(reuse(s, ids, 256), 64);
    zp_seq_close(s);
    s = bits_seq(e);
    append(e, s, ids + 100, 10); /* the tile goes */
    assert_int_equal(stats_of(e).prefix_tiles, 0);
    zp_seq_close(s);
    zp_engine_close(e);
    o.kv_bytes--;
    err = (zp_err){ 0 };
    assert_int_equal(zp_engine_open(&e, m, &o, &err), ZP_NO_MEMORY);
    assert_non_null(strstr(err.message, "too small for one page a head"));
    free(ids);
    zp_model_close(m);
}

/* Computed at the same time, by two: one of the two goes on with the other's pages. */
static void test_same_work_is_kept_once(void **state)
{
    (void)state;
    enum { N = 256 };
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine *e =
        golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_seq = 2, .prefix_cache = true });
    const struct page_pool *p = &e->kv.pages;
    int32_t *ids = random_ids(1, N, m->h.n_vocab);
    zp_seq *s[] = { bits_seq(e), bits_seq(e) };
    zp_item items[] = { { s[0], ids, N, ZP_WANT_NONE }, { s[1], ids, N, ZP_WANT_NONE } };
    GOLDEN_OK(zp_engine_run(e, items, 2, NULL, 0, NULL, err));
    assert_int_equal(p->n_pages - p->n_free, N / 64 * e->kv.n_heads);
    assert_int_equal(stats_of(e).prefix_tiles, N / 64);
    zp_seq_close(s[0]);
    zp_seq_close(s[1]);
    assert_int_equal(p->n_idle, N / 64 * e->kv.n_heads);
    free(ids);
    zp_engine_close(e);
    zp_model_close(m);
}

/* A sequence of a file, before the tree has seen it. */
static zp_seq *restored_alone(zp_engine *e, const char *path)
{
    struct os_map map;
    zp_seq *s = NULL;
    GOLDEN_OK(os_map_file(&map, path, err));
    GOLDEN_OK(snapshot_restore(&s, e, map.data, map.size, path, NULL, 0, err));
    os_unmap(&map);
    return s;
}

/* Idle tiles above one that is in use: a fork of a restored sequence still has its own pages of the
 * first tiles, where the tree has those of another, and shares the last ones with the tree. */
static void test_idle_tiles_above_one_in_use_can_be_had(void **state)
{
    (void)state;
    enum { N = 256, CTX = 320 };
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine_options o = { .n_ctx = CTX, .n_seq = 2, .prefix_cache = true };
    zp_engine *e = golden_engine(m, o), *other = golden_engine(m, o);
    const struct page_pool *p = &e->kv.pages;
    int32_t *ids = random_ids(1, CTX, m->h.n_vocab), *more = random_ids(2, CTX, m->h.n_vocab);
    zp_seq *saved = bits_seq(other), *first = bits_seq(e), *fork;
    append(other, saved, ids, N);
    GOLDEN_OK(zp_seq_save(saved, in_folder("saved"), err));
    append(e, first, ids, 128);
    zp_seq *restored = restored_alone(e, in_folder("saved"));
    GOLDEN_OK(zp_seq_fork(&fork, restored, N, err));
    append(e, restored, ids + N, CTX - N);
    zp_seq_close(first);
    zp_seq_close(restored);
    assert_int_equal(p->n_idle, 3 * e->kv.n_heads);
    check_books(e, &fork, 1);
    zp_seq *s[] = { bits_seq(e), bits_seq(e), fork };
    size_t room = (p->n_free + p->n_idle) / e->kv.n_heads * 64;
    append(e, s[0], more, CTX);
    append(e, s[1], more + 1, room - CTX);
    assert_int_equal(p->n_free + p->n_idle, 0);
    check_books(e, s, 3);
    for (int i = 0; i < 3; i++) zp_seq_close(s[i]);
    zp_seq_close(saved);
    free(ids), free(more);
    zp_engine_close(e);
    zp_engine_close(other);
    zp_model_close(m);
}

/* Other sequences begin with what came out of a file, once it is there and after it has gone. */
static void test_restored_tiles_are_found(void **state)
{
    (void)state;
    enum { N = 300 };
    zp_model *m = golden_small("zerope-local");
    zp_engine_options o = { .n_ctx = N, .n_seq = 2, .prefix_cache = true, .kv_type = ZP_KV_Q8 };
    zp_engine *e = golden_engine(m, o), *other = golden_engine(m, o);
    int32_t *ids = random_ids(1, N, m->h.n_vocab);
    zp_seq *s = bits_salted(other, 7);
    append(other, s, ids, N - 10);
    GOLDEN_OK(zp_seq_save(s, in_folder("saved"), err));
    zp_seq_close(s);
    GOLDEN_OK(zp_seq_restore(&s, e, in_folder("saved"), NULL, 0, err));
    assert_int_equal(shared_with(e, (zp_seq_options){ .salt = 7 }, ids, N), 256);
    zp_seq_close(s);
    assert_int_equal(shared_with(e, (zp_seq_options){ .salt = 7 }, ids, N), 256);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, N), 0);
    free(ids);
    zp_engine_close(e);
    zp_engine_close(other);
    zp_model_close(m);
}

/* The prefix that was not used for longest goes; one that was stays. */
static void test_what_is_used_stays(void **state)
{
    (void)state;
    enum { N = 256 };
    zp_model *m = golden_small("gguf-llama-yarn");
    zp_engine *e =
        golden_engine(m, (zp_engine_options){ .n_ctx = N, .n_seq = 3, .prefix_cache = true });
    int32_t *ids[6];
    for (uint64_t k = 0; k < 6; k++) {
        ids[k] = random_ids(k, N, m->h.n_vocab);
        zp_seq *s = bits_seq(e);
        append(e, s, ids[k], N);
        zp_seq_close(s);
        assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids[0], N), N - 64);
    }
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids[1], N), 0);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids[5], N), N - 64);
    for (uint64_t k = 0; k < 6; k++) free(ids[k]);
    zp_engine_close(e);
    zp_model_close(m);
}

/* Of a long prompt under pressure the pages of windows go first, oldest first: its end can still be
 * continued, and its first tile, where the sinks are, but not what lies between. */
static void test_windows_are_given_up_before_beginnings(void **state)
{
    (void)state;
    enum { N = 1280 };
    zp_model *m = golden_small("zerope-local");
    zp_engine_options o = { .n_ctx = N, .n_threads = 1, .micro_batch = 64, .prefix_cache = true };
    zp_engine *e = golden_engine(m, o);
    int32_t *ids = random_ids(1, N, m->h.n_vocab);
    zp_seq *s = bits_seq(e);
    append(e, s, ids, N - 1);
    assert_int_equal(stats_of(e).prefix_tiles, N / 64 - 1);
    assert_true(stats_of(e).prefix_evictions > 0);
    zp_seq_close(s);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, N), N - 64);
    assert_int_equal(shared_with(e, (zp_seq_options){ 0 }, ids, 300), 64);
    free(ids);
    zp_engine_close(e);
    zp_model_close(m);
}

/* Windows in all heads, so that a sequence goes on in a few pages and nodes run out first: those
 * that it stands on stay, and the next sequence gets others' in turn. */
static void test_sequences_longer_than_the_tree_go_on(void **state)
{
    (void)state;
    enum { N = 64 * 64 };
    zp_model *m = open_all_windowed();
    zp_engine *e = golden_engine(
        m, (zp_engine_options){ .n_ctx = N, .micro_batch = 64, .prefix_cache = true });
    uint32_t n_nodes = e->kv.prefix.n_nodes;
    assert_true(n_nodes < N / 64);
    for (uint64_t k = 0; k < 2; k++) {
        int32_t *ids = random_ids(k, N, m->h.n_vocab);
        zp_seq *s = bits_seq(e);
        append(e, s, ids, N);
        assert_int_equal(stats_of(e).prefix_tiles, n_nodes);
        check_books(e, &s, 1);
        zp_seq_close(s);
        s = bits_seq(e);
        append(e, s, ids, 128); /* the same first tiles are found */
        assert_int_equal(stats_of(e).prefix_tiles, n_nodes);
        zp_seq_close(s);
        free(ids);
    }
    zp_engine_close(e);
    zp_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_beginnings_share_and_nobody_else),
        cmocka_unit_test(test_colliding_keys_change_nothing),
        cmocka_unit_test(test_reuse_is_for_empty_sequences),
        cmocka_unit_test(test_parts_of_a_model_are_not_cached),
        cmocka_unit_test(test_any_history_gives_same_bits_and_true_books),
        cmocka_unit_test(test_full_budget_of_prefixes_stops_nobody),
        cmocka_unit_test(test_budgets_of_a_page_and_less),
        cmocka_unit_test(test_same_work_is_kept_once),
        cmocka_unit_test(test_idle_tiles_above_one_in_use_can_be_had),
        cmocka_unit_test(test_restored_tiles_are_found),
        cmocka_unit_test(test_what_is_used_stays),
        cmocka_unit_test(test_windows_are_given_up_before_beginnings),
        cmocka_unit_test(test_sequences_longer_than_the_tree_go_on),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

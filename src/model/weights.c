/* weights.c: binds names to tensors, checks each shape and value, packs matrices into kernel
 * layout.
 * Owns: packed memory: matrices, then gains and biases. Does not know: sequences, caches.
 * W1 every matrix has the shape the hyper-parameters imply.  W2 no NaN or infinity gets past
 *    loading.
 * W3 rows of q and k (weights, biases, gains) stand in slot order: open pairs first, pair s in rows
 *    2s and 2s + 1.
 * W4 planned bytes = packed bytes.  W5 every tensor of the file is read here or by arch.c or
 *    position.c, or refused by name.
 * W6 loading holds few pages of the file at a time, and none when it is done: embedding rows are
 *    read again as they are asked for.
 * W7 packed memory is the same, byte for byte, from the file and from a side file of it. */
#include "model/weights.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "model/packfile.h"

static const char *const mat_names[W_MAT_COUNT] = { "attn_q",   "attn_k", "attn_v",  "attn_output",
                                                    "ffn_gate", "ffn_up", "ffn_down" };

char *weights_tensor_name(enum weights_mat mat, uint32_t layer, char *out)
{
    snprintf(out, 64, "blk.%u.%s.weight", layer, mat_names[mat]);
    return out;
}

static void mat_shape(const struct hparams *h, enum weights_mat mat, uint64_t *n_in,
                      uint64_t *n_out)
{
    uint64_t q = (uint64_t)h->n_head * h->d_head, kv = (uint64_t)h->n_kv * h->d_head;
    *n_in = mat == W_O ? q : mat == W_DOWN ? h->d_ff : h->d_model;
    *n_out = mat == W_Q                     ? q
             : mat == W_K || mat == W_V     ? kv
             : mat == W_GATE || mat == W_UP ? h->d_ff
                                            : h->d_model;
}

static zp_status check_shape(const struct gguf_tensor *t, uint64_t n_in, uint64_t n_out,
                             zp_err *err)
{
    char shape[80];
    ZP_FAIL_IF(t->ne[0] != n_in || gguf_tensor_rows(t) != n_out, err, ZP_BAD_FILE,
               "tensor %s is %s; expected %llu x %llu", t->name,
               gguf_tensor_shape(t, shape, sizeof shape), (unsigned long long)n_in,
               (unsigned long long)n_out);
    return ZP_OK;
}

/* ---- plan: forms and sizes of all matrices --------------------------------------------------- */

struct packing { /* one matrix on its way from file rows to kernel layout */
    struct kern_mat *mat;
    const struct gguf_tensor *tensor;
    const uint32_t *row_map; /* or NULL */
    size_t offset;
};

static zp_status plan_mat(struct packing *job, const struct gguf_tensor *t, uint64_t n_in,
                          uint64_t n_out, bool exact, size_t *bytes, zp_err *err)
{
    ZP_TRY(check_shape(t, n_in, n_out, err));
    job->tensor = t;
    ZP_TRY(kern_mat_plan(job->mat, t->type, (size_t)n_out, (size_t)n_in, exact, err));
    job->offset = *bytes;
    *bytes += (kern_mat_bytes(job->mat) + 63) / 64 * 64;
    return ZP_OK;
}

static zp_status plan_all(struct weights *w, const struct gguf *g, const struct hparams *h,
                          bool exact, struct packing *jobs, size_t *bytes, zp_err *err)
{
    size_t n = 0;
    *bytes = 0;
    for (uint32_t l = 0; l < h->n_layer; l++)
        for (int m = 0; m < W_MAT_COUNT; m++) {
            char name[64];
            uint64_t n_in, n_out;
            const struct gguf_tensor *t;
            mat_shape(h, (enum weights_mat)m, &n_in, &n_out);
            ZP_TRY(gguf_get_tensor(g, weights_tensor_name((enum weights_mat)m, l, name), &t, err));
            jobs[n].mat = &w->layers[l].mat[m];
            ZP_TRY(plan_mat(&jobs[n++], t, n_in, n_out, exact, bytes, err));
        }
    ZP_TRY(gguf_get_tensor(g, "token_embd.weight", &w->embedding, err));
    ZP_TRY(check_shape(w->embedding, h->d_model, h->n_vocab, err));
    const struct gguf_tensor *output = gguf_find_tensor(g, "output.weight");
    w->tied = output == NULL;
    jobs[n].mat = &w->output;
    return plan_mat(&jobs[n], output ? output : w->embedding, h->d_model, h->n_vocab, exact, bytes,
                    err);
}

static size_t job_count(const struct hparams *h)
{
    return (size_t)h->n_layer * W_MAT_COUNT + 1;
}

/* work: gone once the weights are packed. */
static zp_status place(struct weights *w, const struct hparams *h, struct arena *work,
                       struct packing **jobs, zp_err *err)
{
    memset(w, 0, sizeof *w);
    w->layers = arena_array(&w->arena, h->n_layer, sizeof *w->layers);
    *jobs = arena_array(work, job_count(h), sizeof **jobs);
    ZP_FAIL_IF(!w->layers || !*jobs, err, ZP_NO_MEMORY, "not enough memory for the weight table");
    return ZP_OK;
}

/* ---- gains and biases ------------------------------------------------------------------------ */

struct vector_row {
    const char *suffix;
    uint32_t n;
    bool required;
    uint32_t n_heads; /* > 0: d_head values a head, put into slot order */
    bool may_share;   /* the file may hold one head's values for all */
    size_t field;     /* in struct layer_weights */
};

#define FIELD(name) offsetof(struct layer_weights, name)
enum { VECTOR_ROWS = 10 };

static void vector_rows(const struct hparams *h, struct vector_row out[VECTOR_ROWS])
{
    uint32_t nq = h->n_head * h->d_head, nkv = h->n_kv * h->d_head;
    bool post = h->arch->post_norms, bias = h->arch->qkv_bias, qk = h->arch->qk_norm;
    const struct vector_row rows[VECTOR_ROWS] = {
        { "attn_norm.weight", h->d_model, true, 0, false, FIELD(attn_norm) },
        { "ffn_norm.weight", h->d_model, true, 0, false, FIELD(ffn_norm) },
        { "post_attention_norm.weight", h->d_model, post, 0, false, FIELD(post_attn_norm) },
        { "post_ffw_norm.weight", h->d_model, post, 0, false, FIELD(post_ffn_norm) },
        { "attn_q.bias", nq, bias, h->n_head, false, FIELD(q_bias) },
        { "attn_k.bias", nkv, bias, h->n_kv, false, FIELD(k_bias) },
        { "attn_v.bias", nkv, bias, 0, false, FIELD(v_bias) },
        { "attn_output.bias", h->d_model, false, 0, false, FIELD(o_bias) },
        { "attn_q_norm.weight", nq, qk, h->n_head, true, FIELD(q_norm) },
        { "attn_k_norm.weight", nkv, qk, h->n_kv, true, FIELD(k_norm) },
    };
    memcpy(out, rows, sizeof rows);
}

static size_t vector_bytes(size_t n)
{
    return (n * sizeof(float) + 63) / 64 * 64;
}

/* Bytes of all gains and biases that the file holds. */
static size_t plan_vectors(const struct gguf *g, const struct hparams *h)
{
    struct vector_row rows[VECTOR_ROWS];
    size_t bytes = vector_bytes(h->d_model); /* output_norm */
    vector_rows(h, rows);
    for (uint32_t l = 0; l < h->n_layer; l++)
        for (size_t i = 0; i < VECTOR_ROWS; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s", l, rows[i].suffix);
            if (gguf_find_tensor(g, name)) bytes += vector_bytes(rows[i].n);
        }
    return bytes;
}

/* Reorders n_heads blocks of d_head values by the heads' row maps (W3). shared: the first block
 * stands for all. */
static void to_slot_order(float *values, const struct hparams *h, const struct position *p,
                          uint32_t layer, uint32_t n_heads, bool shared)
{
    uint32_t map[1024], group = n_heads / h->n_kv;
    float old[1024];
    for (uint32_t i = 0; i < n_heads; i++) {
        float *block = values + (size_t)i * h->d_head;
        if (i == 0 || !shared) memcpy(old, block, h->d_head * sizeof *old);
        position_row_map(p, h, layer, i / group, map);
        for (uint32_t c = 0; c < h->d_head; c++) block[c] = old[map[c]];
    }
}

/* Takes the next place of the packed memory for row->n values and fills it; *values NULL where the
 * file has no such tensor. */
static zp_status load_vector(struct weights *w, const struct gguf *g, const char *name,
                             const struct vector_row *row, uint32_t d_head, float **values,
                             bool *shared, zp_err *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    *values = NULL;
    if (!t && !row->required) return ZP_OK;
    if (!t) ZP_TRY(gguf_get_tensor(g, name, &t, err));
    uint64_t have = t->ne[0] * gguf_tensor_rows(t);
    *shared = row->may_share && have == d_head && row->n != d_head;
    ZP_FAIL_IF(have != row->n && !*shared, err, ZP_BAD_FILE,
               "tensor %s has %llu values; expected %u", name, (unsigned long long)have, row->n);
    const struct quant_traits *traits = quant_traits_find(t->type);
    ZP_FAIL_IF(!traits || have % traits->block != 0, err, ZP_BAD_FILE,
               "tensor %s has a type that does not fit", name);
    *values = (float *)(void *)(w->packed + w->vectors_at);
    w->vectors_at += vector_bytes(row->n);
    assert(w->vectors_at <= w->packed_bytes); /* W4 */
    if (w->from_side_file) return ZP_OK;      /* they are there, checked when it was written */
    quant_dequantize_row(traits, t->data, *values, (size_t)have);
    for (uint64_t i = 0; i < have; i++)
        ZP_FAIL_IF(!isfinite((*values)[i]), err, ZP_BAD_FILE,
                   "tensor %s holds %g at %llu: the file is damaged", name, (double)(*values)[i],
                   (unsigned long long)i);
    return ZP_OK;
}

static zp_status load_layer_vectors(struct weights *w, const struct gguf *g,
                                    const struct hparams *h, const struct position *p, uint32_t l,
                                    zp_err *err)
{
    struct vector_row rows[VECTOR_ROWS];
    vector_rows(h, rows);
    for (size_t i = 0; i < VECTOR_ROWS; i++) {
        char name[64];
        float *values;
        bool shared = false;
        snprintf(name, sizeof name, "blk.%u.%s", l, rows[i].suffix);
        ZP_TRY(load_vector(w, g, name, &rows[i], h->d_head, &values, &shared, err));
        if (values && rows[i].n_heads && !w->from_side_file)
            to_slot_order(values, h, p, l, rows[i].n_heads, shared);
        memcpy((uint8_t *)&w->layers[l] + rows[i].field, &values, sizeof values);
    }
    return ZP_OK;
}

static zp_status load_vectors(struct weights *w, const struct gguf *g, const struct hparams *h,
                              const struct position *p, zp_err *err)
{
    const struct vector_row norm = { "output_norm.weight", h->d_model, true, 0, false, 0 };
    float *values;
    bool shared;
    ZP_TRY(load_vector(w, g, norm.suffix, &norm, h->d_head, &values, &shared, err));
    w->output_norm = values;
    for (uint32_t l = 0; l < h->n_layer; l++) ZP_TRY(load_layer_vectors(w, g, h, p, l, err));
    return ZP_OK;
}

zp_status weights_plan(const struct gguf *g, const struct hparams *h, bool exact, uint64_t *bytes,
                       struct weights_inputs *reads, zp_err *err)
{
    struct weights w;
    struct arena work = { .tag = MEM_META };
    struct packing *jobs;
    size_t size = 0;
    *reads = (struct weights_inputs){ 0 };
    zp_status status = place(&w, h, &work, &jobs, err);
    if (status == ZP_OK) status = plan_all(&w, g, h, exact, jobs, &size, err);
    for (size_t i = 0; status == ZP_OK && i < job_count(h); i++)
        *(kern_mat_is_quantised(jobs[i].mat) ? &reads->q8 : &reads->f32) = true;
    *bytes = size + plan_vectors(g, h);
    arena_free(&w.arena);
    arena_free(&work);
    return status;
}

/* ---- packing --------------------------------------------------------------------------------- */

struct pack_all {
    const struct gguf *g;
    struct packing *jobs;
    size_t n_jobs;
    const struct gguf_tensor *embedding;     /* NULL when packed as the output matrix */
    uint8_t **scratch;                       /* one a thread */
    _Atomic(const struct gguf_tensor *) bad; /* a tensor with a NaN or infinity */
};

/* Rows that are checked and then packed while they are in the first cache; and bytes that a worker
 * reads until pages go back: the file must not be in memory beside its packed form. */
enum { SLICE_ROWS = 64, DROP_BYTES = 4 << 20 };

struct packer { /* one worker */
    struct pack_all *all;
    uint32_t thread, n_threads;
    size_t read; /* bytes since pages went back */
};

/* W2: file rows [begin, end), whatever order they are packed in. */
static void check_rows(struct packer *p, const struct gguf_tensor *t, size_t begin, size_t end)
{
    const struct quant_traits *traits = quant_traits_find(t->type);
    size_t row_bytes = (size_t)gguf_tensor_row_bytes(t);
    for (size_t r = begin; r < end; r++)
        if (!quant_row_is_finite(traits, t->data + r * row_bytes, (size_t)t->ne[0]))
            atomic_store(&p->all->bad, t);
    p->read += (end - begin) * row_bytes;
    if (p->thread != 0 || p->read < DROP_BYTES) return;
    gguf_drop_pages(p->all->g); /* of all workers: those that lag behind read a few again */
    p->read = 0;
}

/* The worker's share of a tensor; job: NULL where it is only checked. */
static void pack_share(struct packer *p, const struct gguf_tensor *t, const struct packing *job)
{
    size_t begin, end;
    pool_share((size_t)gguf_tensor_rows(t), PACK_ROWS, p->thread, p->n_threads, &begin, &end);
    for (size_t r = begin; r < end; r += SLICE_ROWS) {
        size_t last = end - r < SLICE_ROWS ? end : r + SLICE_ROWS;
        check_rows(p, t, r, last);
        if (job)
            kern_mat_pack(job->mat, t->data, t->type, job->row_map, r / PACK_ROWS,
                          (last + PACK_ROWS - 1) / PACK_ROWS, p->all->scratch[p->thread]);
    }
}

static void pack_worker(void *arg, uint32_t thread, uint32_t n_threads)
{
    struct pack_all *all = arg;
    struct packer p = { .all = all, .thread = thread, .n_threads = n_threads };
    if (all->embedding) pack_share(&p, all->embedding, NULL);
    for (size_t i = 0; i < all->n_jobs; i++) pack_share(&p, all->jobs[i].tensor, &all->jobs[i]);
}

/* Row maps of q and k of every layer (W3); NULL where the file's order already is the slot
 * order. */
static zp_status map_rows(const struct hparams *h, const struct position *p, struct arena *work,
                          struct packing *jobs, zp_err *err)
{
    for (uint32_t l = 0; l < h->n_layer && !p->reordered; l++)
        for (int m = W_Q; m <= W_K; m++) {
            uint32_t n_heads = m == W_Q ? h->n_head : h->n_kv, map[1024];
            uint32_t *rows = arena_array(work, (size_t)n_heads * h->d_head, sizeof *rows);
            ZP_FAIL_IF(!rows, err, ZP_NO_MEMORY, "not enough memory for the row order of layer %u",
                       l);
            for (uint32_t i = 0; i < n_heads; i++) {
                position_row_map(p, h, l, i / (n_heads / h->n_kv), map);
                for (uint32_t c = 0; c < h->d_head; c++)
                    rows[i * h->d_head + c] = i * h->d_head + map[c];
            }
            jobs[l * W_MAT_COUNT + (uint32_t)m].row_map = rows;
        }
    return ZP_OK;
}

static zp_status pack(struct weights *w, const struct gguf *g, struct packing *jobs, size_t n_jobs,
                      struct arena *work, struct pool *pool, zp_err *err)
{
    struct pack_all all = { .g = g,
                            .jobs = jobs,
                            .n_jobs = n_jobs,
                            .embedding = w->tied ? NULL : w->embedding };
    uint32_t n = pool_threads(pool);
    size_t scratch = 64;
    for (size_t i = 0; i < n_jobs; i++) {
        size_t s = kern_mat_pack_scratch(jobs[i].mat);
        scratch = s > scratch ? s : scratch;
    }
    all.scratch = arena_array(work, n, sizeof *all.scratch);
    ZP_FAIL_IF(!all.scratch, err, ZP_NO_MEMORY, "not enough memory to pack the weights");
    zp_status status = ZP_OK;
    for (uint32_t i = 0; i < n && status == ZP_OK; i++)
        if (!(all.scratch[i] = mem_alloc(MEM_SCRATCH, scratch)))
            status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                                 "not enough memory to pack the weights");
    if (status == ZP_OK) pool_run(pool, pack_worker, &all);
    for (uint32_t i = 0; i < n; i++) mem_free(all.scratch[i]);
    const struct gguf_tensor *bad = atomic_load(&all.bad);
    ZP_FAIL_IF(status == ZP_OK && bad, err, ZP_BAD_FILE,
               "tensor %s holds NaN or infinity: the file is damaged", bad->name);
    return status;
}

/* ---- tensors nobody reads -------------------------------------------------------------------- */

static const char *const of_model[] = { "token_embd.weight", "output.weight", "output_norm.weight",
                                        "rope_freqs.weight", "struct_head.weight",
                                        "struct_head.gate" };

/* Behind "blk.N."; attn_rot_embd repeats the angles that the keys already tell. */
static const char *const of_layer[] = { "attn_q.weight",
                                        "attn_k.weight",
                                        "attn_v.weight",
                                        "attn_output.weight",
                                        "ffn_gate.weight",
                                        "ffn_up.weight",
                                        "ffn_down.weight",
                                        "attn_norm.weight",
                                        "ffn_norm.weight",
                                        "attn_q.bias",
                                        "attn_k.bias",
                                        "attn_v.bias",
                                        "attn_output.bias",
                                        "attn_q_norm.weight",
                                        "attn_k_norm.weight",
                                        "post_ffw_norm.weight",
                                        "post_attention_norm.weight",
                                        "attn_head_scale",
                                        "pos_alibi.slope",
                                        "pos_t5.weight",
                                        "pos_mlp.0.weight",
                                        "pos_mlp.0.bias",
                                        "pos_mlp.1.weight",
                                        "pos_mlp.1.bias",
                                        "pos_gate.weight",
                                        "struct_bias",
                                        "attn_rot_embd",
                                        "attn_rot_embd.weight" };

static bool is_among(const char *name, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(name, names[i]) != 0) i++;
    return i < n;
}

/* Whether the name, spelled exactly so, is one that loading looks for. */
static bool is_known(const char *name, uint32_t n_layer)
{
    if (strncmp(name, "blk.", 4) != 0) return is_among(name, of_model, ZP_COUNT(of_model));
    unsigned long layer = strtoul(name + 4, NULL, 10);
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "blk.%lu.", layer);
    return layer < n_layer && strncmp(name, prefix, (size_t)n) == 0 &&
           is_among(name + n, of_layer, ZP_COUNT(of_layer));
}

zp_status weights_check_names(const struct gguf *g, const struct hparams *h, zp_err *err)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        ZP_FAIL_IF(!is_known(g->tensors[i].name, h->n_layer), err, ZP_UNSUPPORTED,
                   "tensor %s is not one this program computes with; running without it would be "
                   "another model",
                   g->tensors[i].name);
    return ZP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* How the matrices lie in the packed memory: forms, places and the order of their rows. */
static uint64_t hash_layout(const struct packing *jobs, size_t n_jobs)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < n_jobs; i++) {
        const struct kern_mat *m = jobs[i].mat;
        const uint64_t fields[] = { jobs[i].offset, m->form, m->scaling, m->has_min,
                                    m->n_out,       m->n_in, m->row_group_bytes };
        hash = hash_xxh64(fields, sizeof fields, hash);
        if (jobs[i].row_map)
            hash = hash_xxh64(jobs[i].row_map, m->n_out * sizeof *jobs[i].row_map, hash);
    }
    return hash;
}

/* W7. Mapped pages stay the system's. Where they are small ones, memory of our own reads faster:
 * 97 MB in 2.9 ms, but 3.4 from pages of 64 KiB and 4.7 from pages of 4 (SPEED.md). */
static zp_status take_side_file(struct weights *w, const char *cache,
                                const struct packfile_key *key, struct pool *pool, zp_err *err)
{
    struct packfile f;
    ZP_TRY(packfile_open(&f, cache, key, pool, err));
    w->from_side_file = true;
    w->packed = f.small_pages ? mem_alloc_huge(MEM_WEIGHTS, w->packed_bytes) : NULL;
    log_info("packed weights come from %s, %s", cache, w->packed ? "copied" : "mapped");
    if (w->packed) {
        packfile_copy(&f, key, w->packed, pool);
        packfile_close(&f);
    } else {
        w->packed = (uint8_t *)(uintptr_t)f.packed;
        w->side = f.map;
        mem_count_mapped(MEM_WEIGHTS, w->packed_bytes);
    }
    return ZP_OK;
}

static void leave_side_file(const struct weights *w, const char *cache,
                            const struct packfile_key *key, struct pool *pool)
{
    zp_err why = { 0 };
    if (packfile_write(cache, key, w->packed, pool, &why) == ZP_OK)
        log_info("packed weights are kept in %s", cache);
    else log_info("packed weights are not kept: %s", why.message);
}

struct opening {
    const struct gguf *g;
    const struct hparams *h;
    const struct position *p;
    bool exact;
    const char *cache;
    struct pool *pool;
    struct arena work; /* gone once the weights are packed */
};

static zp_status fill(struct weights *w, struct opening *o, zp_err *err)
{
    struct packing *jobs;
    struct packfile_key key;
    size_t n_jobs = job_count(o->h);
    ZP_TRY(weights_check_names(o->g, o->h, err));
    ZP_TRY(place(w, o->h, &o->work, &jobs, err));
    ZP_TRY(plan_all(w, o->g, o->h, o->exact, jobs, &w->vectors_at, err));
    w->packed_bytes = w->vectors_at + plan_vectors(o->g, o->h);
    ZP_TRY(map_rows(o->h, o->p, &o->work, jobs, err));
    zp_err why = { 0 };
    bool keep = o->cache && !o->exact && /* f32 takes eight times the file: too much to keep */
                packfile_key_of(o->g, hash_layout(jobs, n_jobs), w->packed_bytes, &key, &why) ==
                    ZP_OK;
    if (keep) (void)take_side_file(w, o->cache, &key, o->pool, &why);
    if (why.code == ZP_BAD_FILE) log_warn("%s; the weights are packed again", why.message);
    else if (why.code != ZP_OK) log_info("weights are packed: %s", why.message);
    if (!w->from_side_file) w->packed = mem_alloc_huge(MEM_WEIGHTS, w->packed_bytes);
    ZP_FAIL_IF(!w->packed, err, ZP_NO_MEMORY, "not enough memory for %zu bytes of weights",
               w->packed_bytes);
    for (size_t i = 0; i < n_jobs; i++) jobs[i].mat->data = w->packed + jobs[i].offset;
    ZP_TRY(load_vectors(w, o->g, o->h, o->p, err));
    if (!w->from_side_file) {
        ZP_TRY(pack(w, o->g, jobs, n_jobs, &o->work, o->pool, err));
        if (keep) leave_side_file(w, o->cache, &key, o->pool);
    }
    gguf_drop_pages(o->g);
    return ZP_OK;
}

zp_status weights_open(struct weights *w, const struct gguf *g, const struct hparams *h,
                       const struct position *p, bool exact, const char *cache, struct pool *pool,
                       zp_err *err)
{
    struct opening o = { g, h, p, exact, cache, pool, { .tag = MEM_META } };
    memset(w, 0, sizeof *w);
    zp_status status = fill(w, &o, err);
    arena_free(&o.work);
    if (status != ZP_OK) weights_free(w);
    return status;
}

void weights_free(struct weights *w)
{
    if (w->side.data) {
        mem_count_unmapped(MEM_WEIGHTS, w->packed_bytes);
        os_unmap(&w->side);
    } else if (w->packed) {
        mem_free_huge(MEM_WEIGHTS, w->packed, w->packed_bytes);
    }
    arena_free(&w->arena);
    memset(w, 0, sizeof *w);
}

void weights_embed(const struct weights *w, uint32_t id, float *out)
{
    size_t row_bytes = (size_t)gguf_tensor_row_bytes(w->embedding);
    quant_dequantize_row(quant_traits_find(w->embedding->type), w->embedding->data + id * row_bytes,
                         out, (size_t)w->embedding->ne[0]);
}

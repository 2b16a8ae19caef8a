/* scratch.c: the memory of the layer program, taken once for a micro-batch.
 * Owns: scratch and position tables of a struct forward.
 * F2 nothing is allocated after scratch_open (I5).
 * F4 place() runs twice: without memory, to count, and with it: planned bytes = taken bytes. */
#include "model/scratch.h"

#include <string.h>

#include "model/attend.h"
#include "model/posgate.h"

/* The next part of a block of memory, *used bytes of which are gone; NULL while counting. */
static void *take(uint8_t *block, uint64_t *used, uint64_t bytes)
{
    uint64_t room = (bytes + ZP_CACHE_LINE - 1) / ZP_CACHE_LINE * ZP_CACHE_LINE;
    uint8_t *p = block ? block + *used : NULL;
    if (ZP_ASAN) room += ZP_CACHE_LINE;
    if (p) mem_guard(p + bytes, room - bytes);
    *used += room;
    return p;
}

void *scratch_take(struct forward *f, uint64_t bytes)
{
    return take(f->scratch, &f->scratch_bytes, bytes);
}

static float *take_floats(struct forward *f, uint64_t rows, uint64_t width)
{
    return scratch_take(f, rows * width * sizeof(float));
}

/* Position tables: bytes for each of them, or nothing. */
static void *take_table(struct forward *f, uint64_t bytes)
{
    return take(f->tables, &f->position_bytes, bytes);
}

/* An input of products: n rows of width n_in; f32: their floats, where products read those. */
static void place_act(struct forward *f, struct kern_act *a, const float *f32, size_t n,
                      size_t n_in)
{
    if (f->reads.q8) {
        void *memory = scratch_take(f, kern_act_bytes(n, n_in));
        if (memory) kern_act_place(a, memory, n, n_in);
    }
    a->n_in = a->f32_stride = n_in;
    a->f32 = f32;
}

/* Whether the output matrix takes pairs (F3): where it is at most a third of all multiplications.
 * In a large batch pairs cost twice the time; small models with huge vocabularies keep to int8. */
static bool wants_pairs(const struct forward *f)
{
    const struct hparams *h = f->h;
    uint64_t heads = 2ull * h->d_head * (h->n_head + h->n_kv), ff = 3ull * h->d_ff;
    uint64_t layers = h->n_layer * (heads + ff) * h->d_model;
    return f->reads.q8 && (uint64_t)h->n_vocab * h->d_model <= layers / 2;
}

bool scratch_quantises_heads(const struct forward *f)
{
    return f->reads.q8 && f->h->d_head % 32 == 0;
}

static void place_rows(struct forward *f, struct forward_rows *r, size_t n)
{
    size_t d = f->h->d_model, nq = (size_t)f->h->n_head * f->h->d_head;
    r->x = take_floats(f, n, d);
    r->normed = take_floats(f, f->reads.f32 ? n : 1, d);
    if (f->reads.f32 || !scratch_quantises_heads(f)) r->heads = take_floats(f, n, nq);
    place_act(f, &r->act_model, r->normed, n, d);
    place_act(f, &r->act_heads, r->heads, n, nq);
    if (!wants_pairs(f)) return;
    r->pairs = take_floats(f, 2 * n, d);
    place_act(f, &r->act_pairs, r->pairs, 2 * n, d);
}

/* What worker i needs beside the shared products. */
static void place_worker(struct forward *f, uint32_t i)
{
    size_t m = f->micro_batch, lone = FORWARD_LONE, ff = f->h->d_ff;
    size_t panel = m * FORWARD_PANEL > lone * ff ? m * FORWARD_PANEL : lone * ff;
    struct forward_rows unused = { 0 };
    place_rows(f, f->rows ? &f->rows[i] : &unused, i == 0 ? m : lone);
    float *panels = take_floats(f, 2, panel),
          *tile = wants_pairs(f) ? take_floats(f, 2 * m, FORWARD_PANEL) : NULL;
    if (!f->scratch) return;
    f->panel[i] = panels, f->panel[f->n_threads + i] = panels + panel;
    f->tile[i] = tile;
}

static void place_tables(struct forward *f)
{
    const struct position *p = f->position;
    enum { PAD = KERN_TILE }; /* whole tiles are read at both ends */
    bool any = false;
    for (uint32_t set = 0; set < 2; set++)
        if (position_uses_set(p, set))
            f->cs[set] = take_table(f, (uint64_t)f->micro_batch * p->n_pair * 2 * sizeof(float));
    if (position_has_gate(p))
        f->phi = take_table(f, (uint64_t)f->micro_batch * POSGATE_STEPS * sizeof *f->phi);
    for (uint32_t l = 0; l < p->n_layer; l++) any |= position_layer_has_bias(p, l);
    if (any) f->bias = take_table(f, (uint64_t)p->n_layer * p->n_head * sizeof *f->bias);
    for (uint32_t l = 0; l < p->n_layer; l++)
        for (uint32_t i = 0; i < p->n_head && position_layer_has_bias(p, l); i++) {
            float *table = take_table(f, ((uint64_t)f->n_ctx + 2 * PAD) * sizeof *table);
            if (!table) continue;
            position_bias_fill(p, l, i, f->n_ctx, table + PAD);
            f->bias[l * p->n_head + i] = table;
        }
}

/* Tiles of a batch that can be neither open before nor after it: whole ones, and one for each
 * sequence whose open tile it fills. */
static uint32_t most_staged(const struct forward *f)
{
    uint32_t runs = f->n_seq < f->micro_batch / 2 ? f->n_seq : f->micro_batch / 2;
    return f->micro_batch / KERN_TILE + runs + 1;
}

static void place(struct forward *f)
{
    const struct hparams *h = f->h;
    size_t m = f->micro_batch, nkv = (size_t)h->n_kv * h->d_head;
    f->scratch_bytes = f->position_bytes = 0;
    f->rows = scratch_take(f, f->n_threads * sizeof *f->rows);
    f->panel = scratch_take(f, 2 * f->n_threads * sizeof *f->panel);
    f->tile = scratch_take(f, f->n_threads * sizeof *f->tile);
    f->q = take_floats(f, m, (size_t)h->n_head * h->d_head);
    f->k = take_floats(f, m, nkv);
    f->v = take_floats(f, m, nkv);
    f->sum = take_floats(f, m, h->d_model);
    if (f->reads.f32) f->ff = take_floats(f, m, h->d_ff);
    place_act(f, &f->act_ff, f->ff, m, h->d_ff);
    f->token_run = scratch_take(f, m * sizeof *f->token_run);
    f->token_at = scratch_take(f, m * sizeof *f->token_at);
    for (uint32_t i = 0; i < f->n_threads; i++) place_worker(f, i);
    attend_place(f);
    if (f->form == KV_Q8)
        f->staged = scratch_take(f, (uint64_t)most_staged(f) * h->n_kv * forward_tile_bytes(f));
    place_tables(f);
}

void scratch_plan(const struct forward *f, uint64_t *scratch, uint64_t *position)
{
    struct forward plan = *f;
    place(&plan);
    *scratch = plan.scratch_bytes;
    *position = plan.position_bytes;
}

zp_status scratch_open(struct forward *f, zp_err *err)
{
    place(f);
    f->scratch = mem_alloc_huge(MEM_SCRATCH, f->scratch_bytes);
    f->tables = mem_alloc_huge(MEM_POSITION, f->position_bytes);
    if (!f->scratch || !f->tables) {
        unsigned long long bytes = f->scratch_bytes + f->position_bytes;
        scratch_free(f);
        ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for %llu bytes of engine scratch", bytes);
    }
    place(f);
    return ZP_OK;
}

void scratch_free(struct forward *f)
{
    mem_free_huge(MEM_SCRATCH, f->scratch, f->scratch_bytes);
    mem_free_huge(MEM_POSITION, f->tables, f->position_bytes);
    f->scratch = f->tables = NULL;
}

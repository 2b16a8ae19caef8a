/* packer.c: which tokens stand in which row.
 * Owns: the list of training documents, places where the rows of one epoch begin (made anew when
 * another epoch is asked for: a cache, not a state), the list of held-out windows.
 * An epoch is one stream: its documents in an order of its own, each behind a separator, cut into
 * rows; what is cut goes on behind a separator. Rows are then taken in a keyed order, so that a
 * batch holds many documents. The stream's end that fills no row is left out; another epoch has
 * another end. */
#include "train/packer.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { LEAST_CTX = 32, RAMP = 1024, TASKS_OF_ROW = 64, LEAST_WINDOW = 32, ROUNDS = 4 };
#define DOCS_STREAM 0x646f637300000000u
#define ROWS_STREAM 0x726f777300000000u
#define NO_EPOCH UINT64_MAX

zp_status packed_open(struct packed *b, uint32_t n_rows, uint32_t n_ctx, zp_err *err)
{
    size_t n = (size_t)n_rows * n_ctx;
    *b = (struct packed){ .n_rows = n_rows, .n_ctx = n_ctx };
    b->ids = mem_array(MEM_TRAIN, n, sizeof *b->ids);
    b->targets = mem_array(MEM_TRAIN, n, sizeof *b->targets);
    b->start = mem_array(MEM_TRAIN, n, sizeof *b->start);
    b->position = mem_array(MEM_TRAIN, n, sizeof *b->position);
    b->is_task = mem_zalloc(MEM_TRAIN, n_rows);
    bool made = b->ids && b->targets && b->start && b->position && b->is_task;
    if (!made) packed_close(b);
    ZP_FAIL_IF(!made, err, ZP_NO_MEMORY, "not enough memory for %u rows of %u tokens", n_rows,
               n_ctx);
    return ZP_OK;
}

uint64_t packed_bytes(uint32_t n_rows, uint32_t n_ctx)
{
    const struct packed b = { 0 };
    return (uint64_t)n_rows * n_ctx *
               (sizeof *b.ids + sizeof *b.targets + sizeof *b.start + sizeof *b.position) +
           n_rows * sizeof *b.is_task;
}

zp_status packed_add_tags(struct packed *b, zp_err *err)
{
    ZP_ALLOC(b->tags, MEM_TRAIN, (size_t)b->n_rows * b->n_ctx, err, "the structure of rows");
    return ZP_OK;
}

void packed_close(struct packed *b)
{
    mem_free(b->ids);
    mem_free(b->targets);
    mem_free(b->start);
    mem_free(b->position);
    mem_free(b->is_task);
    mem_free(b->tags);
    memset(b, 0, sizeof *b);
}

/* A Feistel network over the next even number of bits, walked until it lands below n: fewer than 4
 * steps on average (Black and Rogaway 2002, ciphers with arbitrary finite domains). */
uint64_t packer_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i)
{
    unsigned half = 1;
    assert(i < n && n <= (uint64_t)1 << 62);
    while ((uint64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint32_t key[4];
            rng_block(seed, stream, round << 32 | right, key);
            uint64_t was = right;
            right = left ^ (key[0] & mask);
            left = was;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

/* ---- opening ---- */

static zp_status check_options(struct packer *p, zp_err *err)
{
    struct packer_options *o = &p->options;
    if (o->n_micro == 0) o->n_micro = 1;
    if (o->ramp == 0) o->ramp = RAMP;
    if (o->task_share == 0) o->task_share = 1.0 / 8;
    ZP_FAIL_IF(o->n_ctx < LEAST_CTX, err, ZP_USAGE, "rows of %u tokens (at least %d)", o->n_ctx,
               LEAST_CTX);
    ZP_FAIL_IF(
        o->n_rows == 0 || o->n_rows % o->n_micro != 0, err, ZP_USAGE,
        "a batch of %u rows (--batch-rows) cannot be cut into %u equal parts (--micro-batches)",
        o->n_rows, o->n_micro);
    ZP_FAIL_IF(!(o->task_share > 0 && o->task_share <= 1), err, ZP_USAGE,
               "the share of tasks is from 0 to 1");
    ZP_FAIL_IF(o->tasks && o->tasks->options.probes, err, ZP_USAGE,
               "probes must not be trained on"); // P1
    p->micro_rows = o->n_rows / o->n_micro;
    p->task_in_65536 = o->tasks ? (uint32_t)(o->task_share * 65536 + 0.5) : 0;
    return ZP_OK;
}

static zp_status list_docs(struct packer *p, zp_err *err)
{
    const struct shards *s = p->shards;
    ZP_ALLOC(p->docs, MEM_TRAIN, s->head.n_docs, err, "a list of documents");
    for (uint32_t i = 0; i < s->head.n_docs; i++) {
        if (s->docs[i].held) continue; // P1
        p->docs[p->n_docs++] = i;
        p->n_tokens += s->docs[i].n;
    }
    ZP_FAIL_IF(p->n_docs == 0, err, ZP_BAD_INPUT, "the corpus has no documents to train on");
    /* A row takes n_ctx of the tokens and separators at most, so all of these are full; a corpus
     * that does not fill one has one. */
    p->n_rows = (p->n_tokens + p->n_docs) / p->options.n_ctx;
    if (p->n_rows == 0) p->n_rows = 1;
    ZP_FAIL_IF(p->n_rows > SIZE_MAX / sizeof *p->rows, err, ZP_NO_MEMORY, "too many rows");
    ZP_ALLOC(p->rows, MEM_TRAIN, (size_t)p->n_rows, err, "the places of rows");
    return ZP_OK;
}

/* Whether a window begins there: the first of a document, or one that is long enough. */
static bool has_window(const struct shards_doc *d, uint64_t at)
{
    return at < d->n && (at == 0 || d->n - at >= LEAST_WINDOW);
}

/* Window r of every held-out document before window r + 1 of any. */
static zp_status list_held(struct packer *p, zp_err *err)
{
    const struct shards *s = p->shards;
    uint64_t step = p->options.n_ctx - 1, total = 0;
    for (uint32_t i = 0; i < s->head.n_docs; i++)
        if (s->docs[i].held) total += s->docs[i].n / step + 1;
    ZP_FAIL_IF(total > UINT32_MAX, err, ZP_BAD_INPUT, "too many held-out windows");
    ZP_ALLOC(p->held, MEM_TRAIN, (size_t)total + 1, err, "the held-out windows");
    bool any = true;
    for (uint64_t at = 0; any; at += step) {
        any = false;
        for (uint32_t i = 0; i < s->head.n_docs; i++) {
            if (!s->docs[i].held || !has_window(&s->docs[i], at)) continue;
            p->held[p->n_held++] = (struct packer_place){ at, i };
            any = true;
        }
    }
    return ZP_OK;
}

static zp_status fill(struct packer *p, zp_err *err)
{
    ZP_TRY(check_options(p, err));
    ZP_TRY(list_docs(p, err));
    ZP_TRY(list_held(p, err));
    return task_open(&p->task, p->options.n_ctx, err);
}

zp_status packer_open(struct packer *p, const struct shards *s,
                      const struct packer_options *options, zp_err *err)
{
    *p = (struct packer){ .shards = s, .options = *options, .epoch = NO_EPOCH };
    zp_status status = fill(p, err);
    if (status != ZP_OK) packer_close(p);
    return status;
}

void packer_close(struct packer *p)
{
    mem_free(p->docs);
    mem_free(p->rows);
    mem_free(p->held);
    task_close(&p->task);
    memset(p, 0, sizeof *p);
}

void packer_rank(const struct packer *p, uint32_t rank, uint32_t n_ranks, uint32_t *begin,
                 uint32_t *end)
{
    uint64_t n = p->options.n_micro;
    assert(rank < n_ranks);
    *begin = (uint32_t)(n * rank / n_ranks);
    *end = (uint32_t)(n * (rank + 1) / n_ranks);
}

/* ---- rows ---- */

/* One row being filled. */
struct row {
    int32_t *ids, *targets;
    uint32_t *start, *position;
    uint32_t n, room;
    int32_t separator;
    uint8_t *tags; /* or NULL */
    const struct tagger *tagger; /* or NULL */
};

static struct row row_of(const struct packer *p, struct packed *out, uint32_t r)
{
    size_t at = (size_t)r * out->n_ctx;
    assert(out->n_ctx == p->options.n_ctx && r < out->n_rows);
    return (struct row){ out->ids + at,      out->targets + at, out->start + at,
                         out->position + at, 0,                 out->n_ctx,
                         p->shards->head.separator,
                         out->tags ? out->tags + at : NULL,     p->options.tagger };
}

static void put(struct row *w, int32_t id, int32_t target, uint32_t start)
{
    w->ids[w->n] = id;
    w->targets[w->n] = target;
    w->start[w->n] = start;
    w->position[w->n] = w->n - start;
    if (w->tags) w->tags[w->n] = 0;
    w->n++;
}

/* Separator and tokens of the document from `at` on, as far as there is room; returns how many
 * tokens. The last one of a document is followed by the separator of the next. */
static uint64_t put_document(struct row *w, const struct shards *s, uint32_t doc, uint64_t at)
{
    const struct shards_doc *d = &s->docs[doc];
    uint32_t start = w->n, left = w->room - w->n - 1;
    uint64_t take = d->n - at < left ? d->n - at : left;
    int32_t id = w->separator;
    for (uint64_t i = 0; i <= take; i++) {
        int32_t next = at + i < d->n ? shards_id(s, d->at + at + i) : w->separator;
        put(w, id, next, start);
        if (w->tags && w->tagger && i > 0)
            w->tags[w->n - 1] = (uint8_t)(tagger_tag(w->tagger, s, doc, at + i - 1) &
                                          (DOCTAGS_BEGINS - 1));
        id = next;
    }
    return take;
}

/* Filled up with separators that nobody sees. */
static void pad(struct row *w)
{
    while (w->n < w->room) put(w, w->separator, -1, w->n);
}

static uint32_t doc_of(const struct packer *p, uint64_t epoch, uint32_t place)
{
    return p->docs[packer_permute(p->options.seed, DOCS_STREAM + epoch, p->n_docs, place)];
}

/* Moves the place behind the row that begins there: what fill_text puts, counted. */
static struct packer_place skip_row(const struct packer *p, uint64_t epoch,
                                    struct packer_place place)
{
    uint32_t left = p->options.n_ctx;
    while (left > 0 && place.doc < p->n_docs) {
        uint64_t n = p->shards->docs[doc_of(p, epoch, place.doc)].n - place.at;
        uint64_t take = n < left - 1 ? n : left - 1;
        left -= 1 + (uint32_t)take;
        place.at += take;
        if (take == n) place = (struct packer_place){ 0, place.doc + 1 };
    }
    return place;
}

static void plan_epoch(struct packer *p, uint64_t epoch)
{
    struct packer_place place = { 0, 0 };
    if (p->epoch == epoch) return;
    for (uint64_t r = 0; r < p->n_rows; r++) {
        p->rows[r] = place;
        place = skip_row(p, epoch, place);
    }
    p->epoch = epoch;
}

/* Row number `text` of all rows of text, whatever the epoch. */
static void fill_text(struct packer *p, uint64_t text, struct row *w)
{
    uint64_t epoch = text / p->n_rows, seed = p->options.seed;
    plan_epoch(p, epoch);
    struct packer_place place =
        p->rows[packer_permute(seed, ROWS_STREAM + epoch, p->n_rows, text % p->n_rows)];
    while (w->n < w->room && place.doc < p->n_docs) {
        put_document(w, p->shards, doc_of(p, epoch, place.doc), place.at);
        place = (struct packer_place){ 0, place.doc + 1 };
    }
    pad(w);
}

static zp_status fill_tasks(struct packer *p, uint64_t number, struct row *w, zp_err *err)
{
    const struct packer_options *o = &p->options;
    double level = (double)(number + 1) / (double)o->ramp;
    for (uint64_t k = 0; k < TASKS_OF_ROW && w->room - w->n > TASKS_LEAST_ROOM; k++) {
        struct task *c = &p->task;
        uint32_t start = w->n;
        ZP_TRY(tasks_make(o->tasks, o->seed, number * TASKS_OF_ROW + k, w->room - w->n - 1,
                          level < 1 ? level : 1, c, err));
        put(w, w->separator, c->learn[0] ? c->ids[0] : -1, start);
        for (uint32_t i = 0; i < c->n; i++) {
            bool learn = i + 1 < c->n && c->learn[i + 1];
            put(w, c->ids[i], learn ? c->ids[i + 1] : -1, start);
        }
    }
    pad(w);
    return ZP_OK;
}

static void count_targets(struct packed *out, uint32_t n_rows)
{
    out->n_targets = 0;
    for (size_t i = 0; i < (size_t)n_rows * out->n_ctx; i++) out->n_targets += out->targets[i] >= 0;
}

/* Rows of tasks before row g of all: they are spread evenly, so that each batch has its share. */
static uint64_t tasks_before(const struct packer *p, uint64_t g)
{
    return (g >> 16) * p->task_in_65536 + ((g & 65535) * p->task_in_65536 >> 16);
}

zp_status packer_micro(struct packer *p, uint64_t batch, uint32_t micro, struct packed *out,
                       zp_err *err)
{
    assert(micro < p->options.n_micro && out->n_rows >= p->micro_rows);
    uint64_t first = batch * p->options.n_rows + (uint64_t)micro * p->micro_rows;
    for (uint32_t r = 0; r < p->micro_rows; r++) {
        uint64_t g = first + r, tasks = tasks_before(p, g);
        struct row w = row_of(p, out, r);
        out->is_task[r] = tasks_before(p, g + 1) > tasks;
        if (out->is_task[r]) ZP_TRY(fill_tasks(p, tasks, &w, err));
        else fill_text(p, g - tasks, &w);
    }
    count_targets(out, p->micro_rows);
    return ZP_OK;
}

void packer_held(const struct packer *p, uint32_t first, struct packed *out)
{
    for (uint32_t r = 0; r < out->n_rows; r++) {
        struct row w = row_of(p, out, r);
        out->is_task[r] = 0;
        if (first < p->n_held && r < p->n_held - first)
            put_document(&w, p->shards, p->held[first + r].doc, p->held[first + r].at);
        pad(&w);
    }
    count_targets(out, out->n_rows);
}

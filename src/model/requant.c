/* requant.c: choosing a type for each tensor, and streaming the file through quant_quantize_row.
 * Owns: the choice. Rows are independent, so threads change nothing but the time. */
#include "model/requant.h"

#include <string.h>

#include "base/json_tree.h"
#include "base/os.h"
#include "kern/quant.h"
#include "model/gguf_write.h"
#include "model/json_write.h"
#include "model/outputs.h"

#define EVIDENCE_KEY "zerope.evidence"
#define VALIDATED_KEY "zerope.context.validated"

const char *requant_why_text(enum requant_why why)
{
    static const char *const text[REQUANT_WHY_COUNT] = {
        [REQUANT_TARGET] = "as wanted",
        [REQUANT_ALREADY] = "has this type already",
        [REQUANT_OUTPUT] = "output matrix is kept wider",
        [REQUANT_ROW_LENGTH] = "row length is no multiple of the block",
        [REQUANT_SMALL] = "vector, norm or router",
        [REQUANT_POSITION] = "position tensor",
    };
    return text[why];
}

/* ---- the choice */

static bool has_any(const char *name, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strstr(name, parts[i]) != NULL) return true;
    }
    return false;
}

static bool is_position_tensor(const char *name)
{
    static const char *const parts[] = {"rope_freqs", "rope_factors", "pos_", "attn_head_scale",
                                        "struct_", "position_embd"};
    return has_any(name, parts, ZP_COUNT(parts));
}

static bool is_matrix(const struct gguf_tensor *t)
{
    static const char *const small[] = {"norm", "ffn_gate_inp", "token_types"};
    const char *end = strrchr(t->name, '.');
    return t->n_dims >= 2 && gguf_tensor_rows(t) > 1 && end != NULL && strcmp(end, ".weight") == 0
           && !has_any(t->name, small, ZP_COUNT(small));
}

static bool is_output_matrix(const struct gguf *g, const char *name)
{
    if (gguf_find_tensor(g, "output.weight") != NULL) return strcmp(name, "output.weight") == 0;
    return strcmp(name, "token_embd.weight") == 0; /* tied */
}

static uint32_t type_for_row(uint32_t type, uint64_t row)
{
    if (row % quant_traits_find(type)->block == 0) return type;
    if (row % 32 != 0) return QUANT_F16;
    switch (type) {
    case QUANT_Q4_K: return QUANT_Q5_0;
    case QUANT_Q5_K: return QUANT_Q5_1;
    default: return QUANT_Q8_0;
    }
}

/* Bytes of 256 weights. */
static uint32_t weight_bytes(uint32_t type)
{
    const struct quant_traits *t = quant_traits_find(type);
    return 256 / t->block * t->bytes;
}

static void choose(const struct gguf *g, const struct requant_options *o,
                   const struct gguf_tensor *t, struct requant_item *item)
{
    const struct quant_traits *want = quant_traits_find(o->type);
    *item = (struct requant_item){.name = t->name, .from = t->type, .to = t->type};
    if (is_position_tensor(t->name)) {
        item->why = REQUANT_POSITION;
    } else if (!is_matrix(t)) {
        item->why = REQUANT_SMALL;
    } else {
        item->to = type_for_row(o->type, t->ne[0]);
        item->why = item->to == o->type ? REQUANT_TARGET : REQUANT_ROW_LENGTH;
        uint32_t wide = type_for_row(QUANT_Q6_K, t->ne[0]);
        if (!o->pure && want->form == QUANT_AFFINE && want->bits < 6
            && is_output_matrix(g, t->name) && weight_bytes(t->type) >= weight_bytes(wide)) {
            item->to = wide;
            item->why = REQUANT_OUTPUT;
        }
        if (item->to == t->type && item->why == REQUANT_TARGET) item->why = REQUANT_ALREADY;
    }
    bool quantised = quant_traits_find(t->type)->form != QUANT_FLOAT && item->to != item->from;
    item->grows = quantised && weight_bytes(item->to) > weight_bytes(item->from);
    item->twice = quantised && quant_traits_find(item->to)->form != QUANT_FLOAT;
}

zp_status requant_plan(const struct gguf *g, const struct requant_options *o,
                       struct requant_report *report, zp_err *err)
{
    const struct quant_traits *want = quant_traits_find(o->type);
    memset(report, 0, sizeof *report);
    ZP_FAIL_IF(want == NULL || !want->can_write, err, ZP_UNSUPPORTED,
               "tensor type %u%s%s cannot be written; types to write: F32 F16 BF16 Q8_0 Q4_0 Q4_1 "
               "Q5_0 Q5_1 Q4_K Q5_K Q6_K", (unsigned)o->type, want != NULL ? " " : "",
               want != NULL ? want->name : "");
    report->arena.tag = MEM_META;
    report->items = arena_array(&report->arena, g->n_tensors + 1, sizeof *report->items);
    ZP_FAIL_IF(report->items == NULL, err, ZP_NO_MEMORY, "not enough memory for %u tensor names",
               (unsigned)g->n_tensors);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct requant_item *item = &report->items[i];
        choose(g, o, &g->tensors[i], item);
        item->name = arena_strndup(&report->arena, item->name, strlen(item->name));
        if (item->name == NULL) {
            requant_report_free(report);
            ZP_FAIL(err, ZP_NO_MEMORY, "not enough memory for %u tensor names",
                    (unsigned)g->n_tensors);
        }
        report->n_items++;
        report->n_twice += item->twice;
        report->n_grown += item->grows;
        report->weights_changed |= item->to != item->from;
    }
    report->evidence_dropped = report->weights_changed && gguf_find_key(g, EVIDENCE_KEY) != NULL;
    report->length_dropped = report->weights_changed && gguf_find_key(g, VALIDATED_KEY) != NULL;
    return ZP_OK;
}

void requant_report_free(struct requant_report *report)
{
    arena_free(&report->arena);
    memset(report, 0, sizeof *report);
}

/* ---- the work */

struct failure {
    zp_status status;
    uint64_t row;
    zp_err err;
};

struct work {
    const struct requant_options *o;
    uint32_t n_threads;
    size_t row_room;          /* floats */
    float *rows;              /* (n_threads, row_room) */
    struct failure *failures; /* (n_threads): the first one of each */
    uint64_t done, total;     /* weights */
};

/* The tensor being written; rows [first, first + n) of it go to out. */
struct job {
    struct work *work;
    const struct gguf_tensor *from;
    const struct quant_traits *to;
    uint64_t first, n;
    uint8_t *out;
};

static void convert_share(void *arg, uint32_t thread, uint32_t n_threads)
{
    const struct job *j = arg;
    const struct quant_traits *from = quant_traits_find(j->from->type);
    const size_t n = (size_t)j->from->ne[0];
    const size_t in_bytes = quant_row_bytes(from, n), out_bytes = quant_row_bytes(j->to, n);
    float *row = j->work->rows + j->work->row_room * thread;
    struct failure *failure = &j->work->failures[thread];
    size_t begin, end;
    pool_share((size_t)j->n, 1, thread, n_threads, &begin, &end);
    for (size_t r = begin; r < end && failure->status == ZP_OK; r++) {
        quant_dequantize_row(from, j->from->data + (j->first + r) * in_bytes, row, n);
        failure->status = quant_quantize_row(j->to, row, j->out + r * out_bytes, n, &failure->err);
        failure->row = j->first + r;
    }
}

static zp_status fill_rows(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    struct job *j = arg;
    struct work *w = j->work;
    const zp_progress *p = w->o->progress;
    ZP_FAIL_IF(p != NULL && p->fn != NULL && !p->fn(p->arg, "weights", w->done, w->total), err,
               ZP_INTERRUPTED, "stopped at tensor %s; nothing was written", j->from->name);
    j->first = first;
    j->n = n;
    j->out = out;
    if (w->o->pool != NULL)
        pool_run(w->o->pool, convert_share, j);
    else
        convert_share(j, 0, 1);
    for (uint32_t i = 0; i < w->n_threads; i++) { /* ascending rows: the same error for any count */
        const struct failure *f = &w->failures[i];
        ZP_FAIL_IF(f->status != ZP_OK, err, f->status, "tensor %s, row %llu: %s", j->from->name,
                   (unsigned long long)f->row, f->err.message);
    }
    w->done += n * j->from->ne[0];
    return ZP_OK;
}

static zp_status set_tensors(struct gguf_edit *e, const struct gguf *g,
                             const struct requant_report *report, struct work *w, struct job *jobs,
                             zp_err *err)
{
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const struct requant_item *item = &report->items[i];
        if (item->to == item->from) continue;
        struct gguf_edit_tensor changed = {.name = t->name, .type = item->to, .n_dims = t->n_dims,
                                           .fill = fill_rows, .fill_arg = &jobs[i]};
        memcpy(changed.ne, t->ne, sizeof changed.ne);
        jobs[i] = (struct job){.work = w, .from = t, .to = quant_traits_find(item->to)};
        w->total += gguf_tensor_rows(t) * t->ne[0];
        w->row_room = t->ne[0] > w->row_room ? (size_t)t->ne[0] : w->row_room;
        ZP_TRY(gguf_edit_set_tensor(e, &changed, err));
    }
    return ZP_OK;
}

static zp_status set_keys(struct gguf_edit *e, const struct requant_options *o,
                          const struct requant_report *report, zp_err *err)
{
    const struct quant_traits *want = quant_traits_find(o->type);
    ZP_TRY(gguf_edit_set_u32(e, "general.file_type", want->file_type, err));
    if (want->form != QUANT_FLOAT)
        ZP_TRY(gguf_edit_set_u32(e, "general.quantization_version", 2, err));
    if (report->weights_changed) { /* what was measured on other weights vouches for nothing */
        gguf_edit_remove_key(e, EVIDENCE_KEY);
        gguf_edit_remove_key(e, VALIDATED_KEY);
    }
    return ZP_OK;
}

/* Fills w, which the caller frees also on failure. */
static zp_status write_file(const struct gguf *g, struct gguf_edit *e, const char *out,
                            struct requant_report *report, struct work *w, struct job *jobs,
                            zp_err *err)
{
    size_t floats;
    ZP_TRY(set_tensors(e, g, report, w, jobs, err));
    ZP_TRY(set_keys(e, w->o, report, err));
    ZP_FAIL_IF(!size_mul(w->row_room, w->n_threads, &floats), err, ZP_BAD_INPUT,
               "%s: rows of %zu weights are too long", g->path, w->row_room);
    ZP_ALLOC(w->rows, MEM_SCRATCH, floats, err, "rows of weights");
    ZP_ALLOC(w->failures, MEM_SCRATCH, w->n_threads, err, "thread results");
    memset(w->failures, 0, w->n_threads * sizeof *w->failures);
    report->bytes_before = g->file_bytes;
    ZP_TRY(gguf_edit_file_bytes(e, &report->bytes_after, err));
    if (w->o->json != NULL) ZP_TRY(requant_report_json(report, w->o->json, err));
    return gguf_edit_write(e, out, err);
}

static zp_status convert(const struct gguf *g, const char *out, const struct requant_options *o,
                         struct requant_report *report, zp_err *err)
{
    struct work w = {.o = o, .n_threads = o->pool != NULL ? pool_threads(o->pool) : 1};
    struct gguf_edit e;
    struct job *jobs;
    ZP_ALLOC(jobs, MEM_SCRATCH, (size_t)g->n_tensors + 1, err, "tensor list");
    zp_status status = gguf_edit_init(&e, g, err);
    if (status == ZP_OK) {
        status = write_file(g, &e, out, report, &w, jobs, err);
        gguf_edit_free(&e);
    }
    mem_free(w.rows);
    mem_free(w.failures);
    mem_free(jobs);
    return status;
}

zp_status requant_file(const char *in, const char *out, const struct requant_options *o,
                       struct requant_report *report, zp_err *err)
{
    struct gguf g;
    memset(report, 0, sizeof *report);
    ZP_TRY(gguf_open(&g, in, err));
    zp_status status = requant_plan(&g, o, report, err);
    if (status == ZP_OK) status = convert(&g, out, o, report, err);
    if (status != ZP_OK) requant_report_free(report);
    gguf_close(&g);
    return status;
}

/* ---- the report */

static json_t *types_json(const struct requant_report *report)
{
    json_t *types = json_object();
    const struct quant_traits *t;
    for (size_t i = 0; (t = quant_traits_at(i)) != NULL; i++) {
        json_int_t n = 0;
        for (uint32_t k = 0; k < report->n_items; k++) n += report->items[k].to == t->type;
        if (n > 0) types = json_tree_put(types, t->name, json_integer(n));
    }
    return types;
}

static json_t *exceptions_json(const struct requant_report *report)
{
    json_t *list = json_array();
    for (uint32_t k = 0; k < report->n_items; k++) {
        const struct requant_item *item = &report->items[k];
        if (item->why != REQUANT_OUTPUT && item->why != REQUANT_ROW_LENGTH) continue;
        list = json_tree_add(
            list, json_pack("{s:o, s:s, s:s, s:s}", "name", json_tree_text(item->name), "from",
                            quant_traits_find(item->from)->name, "to",
                            quant_traits_find(item->to)->name, "why", requant_why_text(item->why)));
    }
    return list;
}

zp_status requant_report_json(const struct requant_report *report, struct buffer *out, zp_err *err)
{
    json_t *root = json_pack(
        "{s:o, s:I, s:I, s:i, s:i, s:b, s:b, s:o}", "types", types_json(report), "bytes_before",
        (json_int_t)report->bytes_before, "bytes_after", (json_int_t)report->bytes_after, "twice",
        (int)report->n_twice, "grown", (int)report->n_grown, "evidence_dropped",
        (int)report->evidence_dropped, "validated_length_dropped", (int)report->length_dropped,
        "exceptions", exceptions_json(report));
    ZP_FAIL_IF(root == NULL, err, ZP_NO_MEMORY, "not enough memory for the report");
    zp_status status = json_write_text(root, JSON_COMPACT, out, err);
    json_decref(root);
    return status;
}

static zp_status quantize_with(const char *in, const char *out, struct requant_options *o,
                               char **json, zp_err *err)
{
    struct requant_report report;
    struct buffer text = buffer_with_max(MEM_META, (size_t)256 << 20);
    if (json != NULL) o->json = &text;
    zp_status status = requant_file(in, out, o, &report, err);
    if (status == ZP_OK) requant_report_free(&report);
    if (status == ZP_OK && json != NULL) *json = (char *)text.data;
    else buffer_free(&text);
    return status;
}

zp_status zp_quantize(const char *in, const char *out, const char *type,
                      const zp_progress *progress, char **json, zp_err *err)
{
    const struct quant_traits *t = quant_traits_by_name(type);
    struct requant_options o = {.progress = progress};
    if (json != NULL) *json = NULL;
    ZP_FAIL_IF(t == NULL || !t->can_write, err, ZP_USAGE,
               "type %s cannot be written; expected F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K "
               "Q5_K or Q6_K", type);
    o.type = t->type;
    ZP_TRY(outputs_check(&out, 1, &in, 1, err));
    ZP_TRY(gguf_check_output(out, err));
    ZP_TRY(pool_open(&o.pool, os_cpu_count(), err));
    zp_status status = quantize_with(in, out, &o, json, err);
    pool_close(o.pool);
    return status;
}

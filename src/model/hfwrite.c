/* hfwrite.c: the tensors of a Hugging Face folder from GGUF's, and the files around them.
 * Owns: converted vectors and, one at a time, a matrix that a callback fills and whose rows move.
 * W1 every tensor of the edit is written exactly once or named in an error; every tensor that
 *    transformers would otherwise make up is demanded. */
#include "model/hfwrite.h"

#include <stdio.h>
#include <string.h>
#include "base/num.h"
#include "base/status.h"
#include "kern/quant.h"
#include "model/hfconfig_write.h"
#include "model/hftensors.h"
#include "model/json_write.h"
#include "model/safetensors_write.h"

/* A matrix whose rows go from interleaved to half-split order while it is written. */
struct reorder {
    const struct gguf_edit_tensor *from;
    uint32_t d_head, n_rot;
    uint8_t *rows; /* all of them, filled at the first call when from has no data */
};

struct writing {
    struct gguf_edit *e;
    struct hf_config c;
    enum safetensors_dtype dtype; /* of the matrices */
    struct safetensors_out *out;
    struct reorder *reorders; /* one for each entry of out */
    uint32_t n, room;
    struct arena arena;      /* names */
    struct hf_blocks blocks; /* vectors */
    uint8_t *used;           /* (e->n_tensors) */
};

static zp_status dtype_of(const struct gguf_edit_tensor *t, enum safetensors_dtype *out,
                          zp_err *err)
{
    const struct quant_traits *traits = quant_traits_find(t->type);
    switch (t->type) {
    case QUANT_F32:
        *out = ST_F32;
        return ZP_OK;
    case QUANT_F16:
        *out = ST_F16;
        return ZP_OK;
    case QUANT_BF16:
        *out = ST_BF16;
        return ZP_OK;
    default:
        break;
    }
    ZP_FAIL(
        err, ZP_UNSUPPORTED,
        "tensor %s has type %s; a Hugging Face folder holds F32, F16 or BF16: de-quantise first",
        t->name, traits == NULL ? "?" : traits->name);
}

/* ---- vectors */

static float narrow(float value, enum safetensors_dtype dtype, uint16_t *bits)
{
    *bits = dtype == ST_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    return dtype == ST_F16 ? f16_to_f32(*bits) : bf16_to_f32(*bits);
}

/* Vectors are f32 in GGUF; they go back to the matrices' dtype where that loses nothing. */
static enum safetensors_dtype vector_dtype(const float *values, uint64_t n,
                                           enum safetensors_dtype wanted)
{
    uint16_t bits;
    for (uint64_t i = 0; wanted != ST_F32 && i < n; i++)
        if (f32_bits(narrow(values[i], wanted, &bits)) != f32_bits(values[i])) return ST_F32;
    return wanted;
}

static void narrow_in_place(float *values, uint64_t n, enum safetensors_dtype dtype)
{
    for (uint64_t i = 0; dtype != ST_F32 && i < n; i++) {
        uint16_t bits;
        (void)narrow(values[i], dtype, &bits);
        memcpy((uint8_t *)values + 2 * i, &bits, 2); /* behind the value just read */
    }
}

static zp_status read_vector(const struct gguf_edit_tensor *t, float *values, zp_err *err)
{
    const struct quant_traits *traits = quant_traits_find(t->type);
    if (t->data != NULL) {
        quant_dequantize_row(traits, t->data, values, (size_t)t->ne[0]);
        return ZP_OK;
    }
    ZP_FAIL_IF(t->type != QUANT_F32, err, ZP_UNSUPPORTED,
               "tensor %s: a vector made by a callback must be F32", t->name);
    return t->fill(t->fill_arg, 0, 1, values, err);
}

static zp_status convert_vector(struct writing *w, const struct hf_slot *slot,
                                const struct gguf_edit_tensor *t, bool permuted,
                                struct safetensors_out *out, zp_err *err)
{
    uint64_t n = t->ne[0];
    void *from, *to;
    ZP_TRY(hf_blocks_add(&w->blocks, (size_t)n * 4, &from, err));
    ZP_TRY(hf_blocks_add(&w->blocks, (size_t)n * 4, &to, err));
    ZP_TRY(read_vector(t, from, err));
    float minus = slot->role == HF_NORM && w->c.family->gemma ? 1.0f : 0.0f;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row = permuted ? hf_row_of_halves(i, w->c.d_head, w->c.n_rot) : i;
        float value = ((const float *)from)[row];
        ((float *)to)[i] = minus == 0.0f ? value : value - minus;
    }
    out->dtype = vector_dtype(to, n, w->dtype);
    narrow_in_place(to, n, out->dtype);
    out->data = to;
    return ZP_OK;
}

/* ---- matrices */

static zp_status all_rows(struct reorder *r, uint64_t n_rows, const uint8_t **rows, zp_err *err)
{
    *rows = r->from->data != NULL ? r->from->data : r->rows;
    if (*rows != NULL) return ZP_OK;
    r->rows = mem_alloc(MEM_WEIGHTS, (size_t)r->from->bytes);
    ZP_FAIL_IF(r->rows == NULL, err, ZP_NO_MEMORY, "not enough memory for tensor %s",
               r->from->name);
    *rows = r->rows;
    return r->from->fill(r->from->fill_arg, 0, n_rows, r->rows, err);
}

static zp_status fill_reordered(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    struct reorder *r = arg;
    const uint8_t *rows;
    uint64_t n_rows = r->from->ne[1];
    size_t row_bytes = (size_t)(r->from->bytes / n_rows);
    ZP_TRY(all_rows(r, n_rows, &rows, err));
    for (uint64_t i = 0; i < n; i++)
        memcpy((uint8_t *)out + i * row_bytes,
               rows + hf_row_of_halves(first + i, r->d_head, r->n_rot) * row_bytes, row_bytes);
    if (first + n == n_rows) {
        mem_free(r->rows);
        r->rows = NULL;
    }
    return ZP_OK;
}

static zp_status convert_matrix(struct writing *w, const struct gguf_edit_tensor *t, bool permuted,
                                struct safetensors_out *out, zp_err *err)
{
    ZP_TRY(dtype_of(t, &out->dtype, err));
    out->data = permuted ? NULL : t->data;
    out->fill = permuted ? fill_reordered : t->fill;
    out->fill_arg = t->fill_arg;
    if (!permuted) return ZP_OK;
    struct reorder *r = &w->reorders[w->n];
    *r = (struct reorder){.from = t, .d_head = w->c.d_head, .n_rot = w->c.n_rot};
    out->fill_arg = r;
    return ZP_OK;
}

static zp_status check_rows(const struct writing *w, const struct hf_slot *slot,
                            const struct gguf_edit_tensor *t, zp_err *err)
{
    uint64_t rows = t->n_dims == 1 ? t->ne[0] : t->ne[1];
    uint64_t heads = slot->role == HF_ROTATED_Q ? w->c.n_head : w->c.n_kv;
    ZP_FAIL_IF(t->n_dims > 2, err, ZP_UNSUPPORTED, "tensor %s has %u dimensions, expected 1 or 2",
               t->name, t->n_dims);
    if (slot->role != HF_ROTATED_Q && slot->role != HF_ROTATED_K) return ZP_OK;
    ZP_FAIL_IF(rows != heads * w->c.d_head, err, ZP_BAD_INPUT,
               "tensor %s has %llu rows, expected %llu heads of %u", t->name,
               (unsigned long long)rows, (unsigned long long)heads, w->c.d_head);
    return ZP_OK;
}

static zp_status give(struct writing *w, const struct hf_slot *slot, uint32_t layer,
                      const struct gguf_edit_tensor *t, zp_err *err)
{
    char name[96];
    bool rotated = slot->role == HF_ROTATED_Q || slot->role == HF_ROTATED_K;
    bool permuted = rotated && w->c.family->permuted;
    struct safetensors_out *out = &w->out[w->n];
    *out = (struct safetensors_out){.n_dims = t->n_dims};
    w->used[t - w->e->tensors] = 1;
    ZP_TRY(check_rows(w, slot, t, err));
    const char *hf_name = hf_slot_hf_name(slot, layer, name);
    out->name = arena_strndup(&w->arena, hf_name, strlen(hf_name));
    ZP_FAIL_IF(out->name == NULL, err, ZP_NO_MEMORY, "not enough memory for a tensor name");
    for (uint32_t d = 0; d < t->n_dims; d++) out->shape[d] = t->ne[t->n_dims - 1 - d];
    if (t->n_dims == 1)
        ZP_TRY(convert_vector(w, slot, t, permuted, out, err));
    else
        ZP_TRY(convert_matrix(w, t, permuted, out, err));
    w->n++;
    return ZP_OK;
}

/* Biases are all there or all absent (hfconfig_write.c looked at layer 0). */
static bool is_required(const struct writing *w, const struct hf_slot *slot)
{
    char name[96];
    size_t size = strlen(slot->gguf);
    if (strcmp(slot->gguf, "output.weight") == 0) return false;
    if (size < 5 || strcmp(slot->gguf + size - 5, ".bias") != 0) return true;
    return gguf_edit_find_tensor(w->e, hf_slot_gguf_name(slot, 0, name)) != NULL;
}

static zp_status give_slot(struct writing *w, const struct hf_slot *slot, uint32_t layer,
                           zp_err *err)
{
    char name[96];
    if (!hf_slot_belongs(slot, w->c.family)) return ZP_OK;
    const char *full = hf_slot_gguf_name(slot, layer, name);
    const struct gguf_edit_tensor *t = gguf_edit_find_tensor(w->e, full);
    ZP_FAIL_IF(t == NULL && is_required(w, slot), err, ZP_BAD_INPUT, "tensor %s is missing", full);
    return t == NULL ? ZP_OK : give(w, slot, layer, t, err);
}

static zp_status give_all(struct writing *w, zp_err *err)
{
    const struct hf_slot *slot;
    for (size_t i = 0; (slot = hf_model_slot(i)) != NULL; i++) ZP_TRY(give_slot(w, slot, 0, err));
    for (uint32_t layer = 0; layer < w->c.n_layer; layer++)
        for (size_t i = 0; (slot = hf_layer_slot(i)) != NULL; i++)
            ZP_TRY(give_slot(w, slot, layer, err));
    for (uint32_t i = 0; i < w->e->n_tensors; i++) { // W1
        const char *name = w->e->tensors[i].name;
        bool known = w->used[i] || strcmp(name, "rope_freqs.weight") == 0; /* in rope_scaling */
        ZP_FAIL_IF(!known, err, ZP_UNSUPPORTED, "tensor %s has no place in a %s folder", name,
                   w->c.family->model_type);
    }
    return ZP_OK;
}

/* ---- files */

bool hf_is_model_file(const char *name)
{
    static const char *const ends[] = { ".safetensors", ".json", ".jinja", ".model", ".gguf",
                                        ".bin", ".pth", ".pt", "merges.txt", "vocab.txt" };
    size_t size = strlen(name);
    for (size_t i = 0; i < ZP_COUNT(ends); i++) {
        size_t tail = strlen(ends[i]);
        if (size >= tail && strcmp(name + size - tail, ends[i]) == 0) return true;
    }
    return false;
}

static zp_status join(struct writing *w, const char *folder, const char *name, char **out,
                      zp_err *err)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    *out = arena_alloc(&w->arena, size);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for a path");
    snprintf(*out, size, "%s/%s", folder, name);
    return ZP_OK;
}

static zp_status write_file(struct writing *w, const char *folder, const struct hf_file *file,
                            zp_err *err)
{
    char *path;
    struct buffer text = buffer_with_max(MEM_META, (size_t)1 << 30);
    ZP_FAIL_IF(strchr(file->name, '/') != NULL, err, ZP_BAD_INPUT, "%s: expected a plain file name",
               file->name);
    ZP_TRY(join(w, folder, file->name, &path, err));
    if (file->copy_from == NULL) return os_write_file(path, file->data, file->size, err);
    zp_status status = os_read_regular(file->copy_from, &text, err);
    if (status == ZP_OK) status = os_write_file(path, text.data, text.size, err);
    buffer_free(&text);
    return status;
}

/* The texts hf_open keeps as keys. */
static zp_status write_texts(struct writing *w, const char *folder, zp_err *err)
{
    static const char *const texts[][2] = {
        { "tokenizer.huggingface.json", "tokenizer.json" },
        { "zerope.tokenizer.config", "tokenizer_config.json" },
        { "tokenizer.chat_template", "chat_template.jinja" },
    };
    for (size_t i = 0; i < ZP_COUNT(texts); i++) {
        const struct gguf_kv *kv = gguf_edit_find_key(w->e, texts[i][0]);
        if (kv == NULL || kv->is_array || kv->type != GGUF_STR) continue;
        struct gguf_str text = gguf_item_str(kv, 0);
        struct hf_file file = { .name = texts[i][1], .data = text.data, .size = text.size };
        ZP_TRY(write_file(w, folder, &file, err));
    }
    return ZP_OK;
}

static zp_status write_config(struct writing *w, const char *folder, const json_t *root,
                              zp_err *err)
{
    char *path;
    struct buffer text = buffer_with_max(MEM_META, (size_t)16 << 20);
    ZP_TRY(join(w, folder, "config.json", &path, err));
    /* 15 digits: what a shortest f32 needs, without the noise of a double's 17. */
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(15);
    zp_status status = json_write_text(root, flags, &text, err);
    if (status == ZP_OK) status = buffer_append_text(&text, "\n", err);
    if (status == ZP_OK) status = os_write_file(path, text.data, text.size, err);
    buffer_free(&text);
    return status;
}

static const char *torch_dtype(const struct writing *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->out[i].dtype == ST_F32) return "float32"; /* a narrower one would lose bits */
    return w->dtype == ST_F16 ? "float16" : "bfloat16";
}

static zp_status write_all(struct writing *w, const char *folder,
                           const struct hf_write_options *options, json_t *root, zp_err *err)
{
    const struct gguf_edit_tensor *embd = gguf_edit_find_tensor(w->e, "token_embd.weight");
    w->out = arena_array(&w->arena, w->e->n_tensors, sizeof *w->out);
    w->reorders = arena_array(&w->arena, w->e->n_tensors, sizeof *w->reorders);
    w->used = arena_array(&w->arena, w->e->n_tensors, 1);
    ZP_FAIL_IF(w->out == NULL || w->reorders == NULL || w->used == NULL, err, ZP_NO_MEMORY,
               "not enough memory for the tensor table");
    ZP_TRY(dtype_of(embd, &w->dtype, err)); /* hfconfig_write found it */
    ZP_TRY(give_all(w, err));
    ZP_FAIL_IF(json_object_set_new(root, "torch_dtype", json_string(torch_dtype(w))) != 0, err,
               ZP_NO_MEMORY, "not enough memory for config.json");
    ZP_TRY(os_make_folders(folder, err));
    uint64_t max_bytes = options == NULL ? 0 : options->max_shard_bytes;
    ZP_TRY(safetensors_write_folder(folder, w->out, w->n, max_bytes, err));
    ZP_TRY(write_texts(w, folder, err));
    for (uint32_t i = 0; options != NULL && i < options->n_files; i++)
        ZP_TRY(write_file(w, folder, &options->files[i], err));
    return write_config(w, folder, root, err);
}

zp_status hf_write(const char *folder, struct gguf_edit *e, const struct hf_write_options *options,
                   zp_err *err)
{
    struct writing w = {.e = e, .arena.tag = MEM_META};
    json_t *root;
    ZP_TRY(hfconfig_write(e, "float32", &root, &w.c, err));
    zp_status status = write_all(&w, folder, options, root, err);
    for (uint32_t i = 0; i < w.n; i++) mem_free(w.reorders[i].rows); /* left by a failed write */
    json_decref(root);
    hf_blocks_free(&w.blocks);
    arena_free(&w.arena);
    return status;
}

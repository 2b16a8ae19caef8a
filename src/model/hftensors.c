/* hftensors.c: the tables of names, and the reading direction: views where the bytes are the same,
 * copies where rows move (q and k of interleaved architectures) or values change (norm gains).
 * T1 every tensor of the files is used exactly once or named in an error. */
#include "model/hftensors.h"

#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "kern/quant.h"

static const struct hf_slot model_slots[] = {
    {"token_embd.weight", "model.embed_tokens.weight", HF_PLAIN, HF_ALL},
    {"output_norm.weight", "model.norm.weight", HF_NORM, HF_ALL},
    {"output.weight", "lm_head.weight", HF_PLAIN, HF_ALL},
};
static const struct hf_slot layer_slots[] = {
    {"attn_norm.weight", "input_layernorm.weight", HF_NORM, HF_ALL},
    {"attn_q.weight", "self_attn.q_proj.weight", HF_ROTATED_Q, HF_ALL},
    {"attn_q.bias", "self_attn.q_proj.bias", HF_ROTATED_Q, HF_ALL},
    {"attn_k.weight", "self_attn.k_proj.weight", HF_ROTATED_K, HF_ALL},
    {"attn_k.bias", "self_attn.k_proj.bias", HF_ROTATED_K, HF_ALL},
    {"attn_v.weight", "self_attn.v_proj.weight", HF_PLAIN, HF_ALL},
    {"attn_v.bias", "self_attn.v_proj.bias", HF_PLAIN, HF_ALL},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", HF_NORM, HF_QK_NORM},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", HF_NORM, HF_QK_NORM},
    {"attn_output.weight", "self_attn.o_proj.weight", HF_PLAIN, HF_ALL},
    {"attn_output.bias", "self_attn.o_proj.bias", HF_PLAIN, HF_ALL},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", HF_NORM, HF_GEMMA_ONLY},
    {"ffn_norm.weight", "post_attention_layernorm.weight", HF_NORM, HF_LLAMA_LIKE},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", HF_NORM, HF_GEMMA_ONLY},
    {"ffn_gate.weight", "mlp.gate_proj.weight", HF_PLAIN, HF_ALL},
    {"ffn_up.weight", "mlp.up_proj.weight", HF_PLAIN, HF_ALL},
    {"ffn_down.weight", "mlp.down_proj.weight", HF_PLAIN, HF_ALL},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", HF_NORM, HF_GEMMA_ONLY},
};

const struct hf_slot *hf_layer_slot(size_t i)
{
    return i < ZP_COUNT(layer_slots) ? &layer_slots[i] : NULL;
}

const struct hf_slot *hf_model_slot(size_t i)
{
    return i < ZP_COUNT(model_slots) ? &model_slots[i] : NULL;
}

bool hf_slot_belongs(const struct hf_slot *slot, const struct hf_family *family)
{
    switch (slot->presence) {
    case HF_ALL:
        return true;
    case HF_LLAMA_LIKE:
        return !family->gemma;
    case HF_GEMMA_ONLY:
        return family->gemma;
    case HF_QK_NORM:
        return family->qk_norm;
    }
    return false;
}

static bool is_model_slot(const struct hf_slot *slot)
{
    return slot >= model_slots && slot < model_slots + ZP_COUNT(model_slots);
}

const char *hf_slot_gguf_name(const struct hf_slot *slot, uint32_t layer, char *out)
{
    if (is_model_slot(slot)) return slot->gguf;
    snprintf(out, 96, "blk.%u.%s", layer, slot->gguf);
    return out;
}

const char *hf_slot_hf_name(const struct hf_slot *slot, uint32_t layer, char *out)
{
    if (is_model_slot(slot)) return slot->hf;
    snprintf(out, 96, "model.layers.%u.%s", layer, slot->hf);
    return out;
}

uint64_t hf_row_of_interleaved(uint64_t row, uint32_t d_head, uint32_t n_rot)
{
    uint64_t in = row % d_head;
    return in < n_rot ? row - in + in / 2 + in % 2 * (n_rot / 2) : row;
}

uint64_t hf_row_of_halves(uint64_t row, uint32_t d_head, uint32_t n_rot)
{
    uint64_t in = row % d_head, half = n_rot / 2;
    return in < n_rot ? row - in + in % half * 2 + in / half : row;
}

/* ---- blocks */

void hf_blocks_free(struct hf_blocks *b)
{
    for (uint32_t i = 0; i < b->n; i++) mem_free(b->items[i]);
    mem_free(b->items);
    *b = (struct hf_blocks){0};
}

zp_status hf_blocks_add(struct hf_blocks *b, size_t bytes, void **out, zp_err *err)
{
    if (b->n == b->room) {
        uint32_t room = b->room == 0 ? 64 : b->room * 2;
        void **items = mem_resize(MEM_META, b->items, room * sizeof *items);
        ZP_FAIL_IF(items == NULL, err, ZP_NO_MEMORY, "not enough memory for a list of blocks");
        b->items = items;
        b->room = room;
    }
    *out = mem_alloc(MEM_WEIGHTS, bytes);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for a tensor of %zu bytes",
               bytes);
    b->items[b->n++] = *out;
    return ZP_OK;
}

/* ---- reading */

struct reading {
    const struct safetensors *s;
    const struct hf_config *c;
    const char *where;
    struct gguf_edit *e;
    struct hf_blocks *blocks;
    uint8_t *used; /* (n_tensors) */
};

static zp_status ggml_type_of(const struct reading *r, const struct safetensors_tensor *t,
                              uint32_t *type, zp_err *err)
{
    switch (t->dtype) {
    case ST_F32:
        *type = QUANT_F32;
        return ZP_OK;
    case ST_F16:
        *type = QUANT_F16;
        return ZP_OK;
    case ST_BF16:
        *type = QUANT_BF16;
        return ZP_OK;
    default:
        break;
    }
    ZP_FAIL(err, ZP_UNSUPPORTED, "%s: tensor %.100s has dtype %s, weights are F32, F16 or BF16",
            r->where, t->name, safetensors_dtype_name(t->dtype));
}

/* Vectors (gains, biases) become f32, in GGUF's order. */
static zp_status convert_vector(struct reading *r, const struct hf_slot *slot,
                                const struct safetensors_tensor *t, bool permuted,
                                struct gguf_edit_tensor *out, zp_err *err)
{
    uint64_t n = t->shape[0];
    void *block;
    ZP_TRY(hf_blocks_add(r->blocks, (size_t)n * 4, &block, err));
    float *to = block, plus = slot->role == HF_NORM && r->c->family->gemma ? 1.0f : 0.0f;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = permuted ? hf_row_of_interleaved(i, r->c->d_head, r->c->n_rot) : i;
        float value = safetensors_value(t, from);
        to[i] = plus == 0.0f ? value : value + plus; /* adding 0 would turn -0 into 0 */
    }
    out->type = QUANT_F32;
    out->data = to;
    return ZP_OK;
}

static zp_status convert_matrix(struct reading *r, const struct safetensors_tensor *t,
                                bool permuted, struct gguf_edit_tensor *out, zp_err *err)
{
    void *block;
    bool aligned = (uintptr_t)t->data % 8 == 0; /* G2 of gguf.h; the format promises nothing */
    if (!permuted && aligned) {
        out->data = t->data;
        return ZP_OK;
    }
    ZP_TRY(hf_blocks_add(r->blocks, (size_t)t->bytes, &block, err));
    uint64_t rows = t->shape[0];
    size_t row_bytes = (size_t)(t->bytes / rows);
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t from = permuted ? hf_row_of_interleaved(row, r->c->d_head, r->c->n_rot) : row;
        memcpy((uint8_t *)block + row * row_bytes, t->data + from * row_bytes, row_bytes);
    }
    out->data = block;
    return ZP_OK;
}

static zp_status check_rows(const struct reading *r, const struct hf_slot *slot,
                            const struct safetensors_tensor *t, zp_err *err)
{
    uint64_t heads = slot->role == HF_ROTATED_Q ? r->c->n_head : r->c->n_kv;
    ZP_FAIL_IF(t->n_dims < 1 || t->n_dims > 2 || t->shape[0] == 0 || t->bytes == 0, err,
               ZP_BAD_FILE, "%s: tensor %.100s has %u dimensions or is empty, expected 1 or 2",
               r->where, t->name, t->n_dims);
    if (slot->role != HF_ROTATED_Q && slot->role != HF_ROTATED_K) return ZP_OK;
    ZP_FAIL_IF(t->shape[0] != heads * r->c->d_head, err, ZP_BAD_FILE,
               "%s: tensor %.100s has %llu rows, expected %llu heads of %u", r->where, t->name,
               (unsigned long long)t->shape[0], (unsigned long long)heads, r->c->d_head);
    return ZP_OK;
}

static zp_status take(struct reading *r, const struct hf_slot *slot, uint32_t layer,
                      const struct safetensors_tensor *t, zp_err *err)
{
    char name[96];
    bool rotated = slot->role == HF_ROTATED_Q || slot->role == HF_ROTATED_K;
    bool permuted = rotated && r->c->family->permuted;
    struct gguf_edit_tensor out = {.name = hf_slot_gguf_name(slot, layer, name)};
    r->used[t - r->s->tensors] = 1;
    ZP_TRY(ggml_type_of(r, t, &out.type, err));
    ZP_TRY(check_rows(r, slot, t, err));
    out.n_dims = t->n_dims;
    for (uint32_t d = 0; d < t->n_dims; d++) out.ne[d] = t->shape[t->n_dims - 1 - d];
    if (t->n_dims == 1)
        ZP_TRY(convert_vector(r, slot, t, permuted, &out, err));
    else
        ZP_TRY(convert_matrix(r, t, permuted, &out, err));
    return gguf_edit_set_tensor(r->e, &out, err);
}

static zp_status take_slot(struct reading *r, const struct hf_slot *slot, uint32_t layer,
                           zp_err *err)
{
    char name[96];
    if (!hf_slot_belongs(slot, r->c->family)) return ZP_OK;
    const struct safetensors_tensor *t = safetensors_find(r->s, hf_slot_hf_name(slot, layer, name));
    return t == NULL ? ZP_OK : take(r, slot, layer, t, err); /* weights.c asks for what it needs */
}

/* A head of its own beside a tied embedding must be the same; an untied one must be there. */
static zp_status check_output(struct reading *r, const struct safetensors_tensor *head, zp_err *err)
{
    const struct safetensors_tensor *embd = safetensors_find(r->s, "model.embed_tokens.weight");
    ZP_FAIL_IF(embd == NULL, err, ZP_BAD_FILE, "%s: tensor model.embed_tokens.weight is missing",
               r->where);
    ZP_FAIL_IF(embd->n_dims != 2 || embd->shape[0] != r->c->n_vocab ||
                   embd->shape[1] != r->c->d_model,
               err, ZP_BAD_FILE,
               "%s: tensor model.embed_tokens.weight is not vocab_size %u x hidden_size %u",
               r->where, r->c->n_vocab, r->c->d_model);
    ZP_FAIL_IF(head == NULL && !r->c->tied, err, ZP_BAD_FILE,
               "%s: tie_word_embeddings is false, but tensor lm_head.weight is missing", r->where);
    if (head == NULL || !r->c->tied) return ZP_OK;
    bool same = head->dtype == embd->dtype && head->bytes == embd->bytes &&
                memcmp(head->data, embd->data, (size_t)head->bytes) == 0;
    ZP_FAIL_IF(!same, err, ZP_BAD_FILE,
               "%s: tie_word_embeddings is true, but lm_head.weight differs from the embedding",
               r->where);
    r->used[head - r->s->tensors] = 1;
    return ZP_OK;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t a = strlen(text), b = strlen(tail);
    return a >= b && strcmp(text + a - b, tail) == 0;
}

static zp_status read_all(struct reading *r, zp_err *err)
{
    const struct safetensors_tensor *head = safetensors_find(r->s, "lm_head.weight");
    const struct hf_slot *slot;
    ZP_TRY(check_output(r, head, err));
    ZP_TRY(take_slot(r, &model_slots[0], 0, err));
    for (uint32_t layer = 0; layer < r->c->n_layer; layer++)
        for (size_t i = 0; (slot = hf_layer_slot(i)) != NULL; i++)
            ZP_TRY(take_slot(r, slot, layer, err));
    ZP_TRY(take_slot(r, &model_slots[1], 0, err));
    if (!r->c->tied) ZP_TRY(take_slot(r, &model_slots[2], 0, err));
    for (uint32_t i = 0; i < r->s->n_tensors; i++) { // T1
        const char *name = r->s->tensors[i].name;
        bool known = r->used[i] ||
                     ends_with(name, ".rotary_emb.inv_freq"); /* a table of old files */
        ZP_FAIL_IF(!known, err, ZP_UNSUPPORTED,
                   "%s: tensor %.100s has no place in a %s model of %u layers", r->where, name,
                   r->c->family->model_type, r->c->n_layer);
    }
    return ZP_OK;
}

zp_status hftensors_read(const struct safetensors *s, const struct hf_config *c, const char *where,
                         struct gguf_edit *e, struct hf_blocks *blocks, zp_err *err)
{
    struct reading r = {.s = s, .c = c, .where = where, .e = e, .blocks = blocks};
    r.used = mem_zalloc(MEM_META, s->n_tensors);
    ZP_FAIL_IF(r.used == NULL, err, ZP_NO_MEMORY, "not enough memory for %u tensors", s->n_tensors);
    zp_status status = read_all(&r, err);
    mem_free(r.used);
    return status;
}

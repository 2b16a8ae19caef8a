/* hftensors.h: names and row orders of Hugging Face weights against GGUF's, in both directions. */
#ifndef MODEL_HFTENSORS_H
#define MODEL_HFTENSORS_H

#include "model/hfkeys.h"
#include "model/safetensors.h"

enum hf_role {
    HF_PLAIN,
    HF_ROTATED_Q, /* rows are permuted where the family says so */
    HF_ROTATED_K,
    HF_NORM,      /* gain: always f32 in GGUF; gemma stores it minus 1 */
    HF_ROLE_COUNT
};
enum hf_presence { HF_ALL, HF_LLAMA_LIKE, HF_GEMMA_ONLY, HF_QK_NORM };

struct hf_slot {
    const char *gguf, *hf; /* inside a layer: "attn_q.weight", "self_attn.q_proj.weight" */
    enum hf_role role;
    enum hf_presence presence;
};
/* Slots of a layer and of the whole model (full names); NULL past the end. */
const struct hf_slot *hf_layer_slot(size_t i);
const struct hf_slot *hf_model_slot(size_t i);
bool hf_slot_belongs(const struct hf_slot *slot, const struct hf_family *family);
/* Full names: "blk.3.attn_q.weight" and "model.layers.3.self_attn.q_proj.weight"; out: 96 bytes. */
const char *hf_slot_gguf_name(const struct hf_slot *slot, uint32_t layer, char *out);
const char *hf_slot_hf_name(const struct hf_slot *slot, uint32_t layer, char *out);

/* Row of the half-split order that stands at row `row` of the interleaved order: in a head, rows
 * 2i and 2i + 1 of the first n_rot are rows i and i + n_rot / 2; the rest stays. */
uint64_t hf_row_of_interleaved(uint64_t row, uint32_t d_head, uint32_t n_rot);
/* The inverse: row of the interleaved order that stands at row `row` of the half-split order. */
uint64_t hf_row_of_halves(uint64_t row, uint32_t d_head, uint32_t n_rot);

/* Memory that converted tensors live in; the caller owns the list. */
struct hf_blocks {
    void **items;
    uint32_t n, room;
};
void hf_blocks_free(struct hf_blocks *b);
zp_status hf_blocks_add(struct hf_blocks *b, size_t bytes, void **out, zp_err *err);

/* Appends every tensor of s to e under its GGUF name, in a fixed order. A tensor without a place is
 * an error. Data are views into s, or blocks where bytes had to change. */
zp_status hftensors_read(const struct safetensors *s, const struct hf_config *c, const char *where,
                         struct gguf_edit *e, struct hf_blocks *blocks, zp_err *err);

#endif

/* fuzz_gguf.c: any bytes as a GGUF file: read, walk everything, edit, measure. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "model/gguf_write.h"

static uint64_t walk_value(const struct gguf_kv *kv)
{
    uint64_t sum = kv->bytes;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->type == GGUF_STR) {
            struct gguf_str s = gguf_item_str(kv, i);
            for (size_t k = 0; k < s.size; k++) sum += (uint8_t)s.data[k];
        } else if (kv->type == GGUF_F32 || kv->type == GGUF_F64) {
            sum += gguf_item_float(kv, i) > 0;
        } else {
            sum += (uint64_t)gguf_item_int(kv, i);
        }
    }
    return sum;
}

static uint64_t walk(const struct gguf *g)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        sum += walk_value(&g->kvs[i]);
        if (gguf_find_key(g, g->kvs[i].name) == NULL && strncmp(g->kvs[i].name, "%.", 2) != 0)
            abort();
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (gguf_find_tensor(g, t->name) != t) abort();
        for (uint64_t k = 0; k < t->bytes; k++) sum += t->data[k];
    }
    return sum;
}

static void read_keys(const struct gguf *g)
{
    uint32_t u, layers[8];
    uint64_t u64;
    float f, floats[8];
    bool b;
    struct gguf_str s;
    const struct gguf_kv *kv;
    (void)gguf_get_u32(g, "%.block_count", &u, NULL);
    (void)gguf_get_u64_or(g, "%.context_length", 1, &u64, NULL);
    (void)gguf_get_f32_or(g, "%.rope.freq_base", 1.0f, &f, NULL);
    (void)gguf_get_bool_or(g, "a.flag", false, &b, NULL);
    (void)gguf_get_str(g, "general.architecture", &s, NULL);
    (void)gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRS, &kv, NULL);
    (void)gguf_get_u32_layers(g, "%.attention.head_count_kv", 8, layers, &b, NULL);
    (void)gguf_get_f32_layers(g, "tokenizer.ggml.scores", 2, floats, &b, NULL);
}

static void edit(const struct gguf *g)
{
    struct gguf_edit e;
    uint64_t bytes;
    static const float ones[2] = {1.0f, 1.0f};
    static const uint64_t ne[1] = {2};
    if (gguf_edit_init(&e, g, NULL) != ZP_OK) return;
    (void)gguf_edit_rename_arch(&e, "zerope-llama", NULL);
    (void)gguf_edit_set_u32(&e, "%.block_count", 1, NULL);
    (void)gguf_edit_remove_key(&e, "tokenizer.ggml.tokens");
    (void)gguf_edit_set_tensor_f32(&e, "rope_freqs.weight", 1, ne, ones, NULL);
    (void)gguf_edit_remove_tensor(&e, "a");
    (void)gguf_edit_file_bytes(&e, &bytes, NULL);
    gguf_edit_free(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf g;
    zp_err err = {0};
    static volatile uint64_t sink; /* so that the walk is not optimised away */
    if (gguf_open_bytes(&g, data, size, "input", &err) != ZP_OK) return 0;
    sink = walk(&g);
    (void)sink;
    read_keys(&g);
    edit(&g);
    gguf_close(&g);
    return 0;
}

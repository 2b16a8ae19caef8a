/* gguf_bytes.h: builds small GGUF files in memory, right or wrong on purpose. */
#ifndef TESTS_GGUF_BYTES_H
#define TESTS_GGUF_BYTES_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    _Alignas(64) uint8_t data[16384];
    size_t size;
};

static inline void put(struct bytes *b, const void *data, size_t size)
{
    assert(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void put_u8(struct bytes *b, uint8_t v) { put(b, &v, 1); }
static inline void put_u32(struct bytes *b, uint32_t v) { put(b, &v, 4); }
static inline void put_u64(struct bytes *b, uint64_t v) { put(b, &v, 8); }
static inline void put_f32(struct bytes *b, float v) { put(b, &v, 4); }

static inline void put_str(struct bytes *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static inline void put_head(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    b->size = 0;
    put(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static inline void put_kv(struct bytes *b, const char *name, uint32_t type)
{
    put_str(b, name);
    put_u32(b, type);
}

static inline void put_kv_str(struct bytes *b, const char *name, const char *value)
{
    put_kv(b, name, 8);
    put_str(b, value);
}

static inline void put_kv_u32(struct bytes *b, const char *name, uint32_t value)
{
    put_kv(b, name, 4);
    put_u32(b, value);
}

static inline void put_kv_array(struct bytes *b, const char *name, uint32_t type, uint64_t count)
{
    put_kv(b, name, 9);
    put_u32(b, type);
    put_u64(b, count);
}

/* ne1 = 0: one dimension. */
static inline void put_tensor(struct bytes *b, const char *name, uint64_t ne0, uint64_t ne1,
                              uint32_t type, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, ne1 == 0 ? 1 : 2);
    put_u64(b, ne0);
    if (ne1 != 0) put_u64(b, ne1);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_padding(struct bytes *b, size_t alignment)
{
    while (b->size % alignment != 0) put_u8(b, 0);
}

/* Data bytes that depend on where they stand. */
static inline void put_data(struct bytes *b, size_t size)
{
    for (size_t i = 0; i < size; i++) put_u8(b, (uint8_t)(i * 7 + 3));
}

/* A small right file: 5 keys, tensors a (32 x 2, f32) and b (32, q8_0). */
static inline void make_small_file(struct bytes *b)
{
    static const char *const words[] = {"one", "", "three"};
    put_head(b, 3, 2, 5);
    put_kv_str(b, "general.architecture", "llama");
    put_kv_u32(b, "llama.block_count", 7);
    put_kv_array(b, "tokenizer.ggml.tokens", 8, 3);
    for (int i = 0; i < 3; i++) put_str(b, words[i]);
    put_kv_array(b, "tokenizer.ggml.scores", 6, 2);
    put_f32(b, 1.5f);
    put_f32(b, -2.0f);
    put_kv(b, "a.flag", 7);
    put_u8(b, 1);
    put_tensor(b, "a", 32, 2, 0, 0);
    put_tensor(b, "b", 32, 0, 8, 256);
    put_padding(b, 32);
    put_data(b, 256 + 34);
    put_padding(b, 32);
}

#endif

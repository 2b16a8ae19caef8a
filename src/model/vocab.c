/* vocab.c: storage and hash tables of a vocabulary. Invariants V1-V3 in vocab.h.
 * Tables are open-addressed with linear probes; a probe limit turns a vocabulary made of colliding
 * texts into an error instead of a hang. */
#include "model/vocab.h"
#include <string.h>
#include "base/mem.h"

#define MAX_PROBES 8192u

static uint32_t hash_text(const void *text, size_t size)
{
    uint64_t h = hash_bytes(text, size, 0);
    return (uint32_t)(h ^ (h >> 32));
}

static bool span_is(const struct vocab *v, struct vocab_span s, const void *text, size_t size)
{
    return s.size == size && memcmp(v->blob + s.at, text, size) == 0;
}

/* The slot that holds the text, or the free one where it belongs; UINT32_MAX after too many
 * probes. */
static uint32_t find_slot(const struct vocab *v, const void *text, size_t size)
{
    const struct vocab_table *t = &v->table;
    uint32_t at = hash_text(text, size) & t->mask;
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & t->mask) {
        uint32_t slot = t->slots[at];
        if (slot == 0 || span_is(v, v->tokens[slot - 1].span[VOCAB_TEXT], text, size)) return at;
    }
    return UINT32_MAX;
}

/* A power of two, at least twice the entries. */
static uint32_t slots_for(uint32_t entries)
{
    uint32_t count = 64;
    while (count / 2 < entries) count *= 2;
    return count;
}

static zp_status resize_table(struct vocab *v, uint32_t count, zp_err *err)
{
    struct vocab_table *t = &v->table, old = *t;
    uint32_t *slots = mem_zalloc(MEM_TOKENIZER, (size_t)count * sizeof *slots);
    ZP_FAIL_IF(slots == NULL, err, ZP_NO_MEMORY,
               "not enough memory for a vocabulary table (%zu bytes)",
               (size_t)count * sizeof *slots);
    t->slots = slots;
    t->mask = count - 1;
    for (uint32_t i = 0; old.slots != NULL && i <= old.mask; i++) {
        if (old.slots[i] == 0) continue;
        size_t size;
        const uint8_t *text = vocab_get(v, VOCAB_TEXT, old.slots[i] - 1, &size);
        uint32_t at = find_slot(v, text, size);
        if (at == UINT32_MAX) {
            mem_free(slots);
            *t = old;
            ZP_FAIL(err, ZP_BAD_FILE,
                    "the vocabulary's texts collide in the hash table: hostile file?");
        }
        slots[at] = old.slots[i];
    }
    mem_free(old.slots);
    return ZP_OK;
}

/* *was = the id already there, or TOKEN_NONE after the insertion. */
static zp_status insert(struct vocab *v, uint32_t id, int32_t *was, zp_err *err)
{
    struct vocab_table *t = &v->table;
    if (t->slots == NULL || t->used >= (t->mask + 1) / 2)
        ZP_TRY(resize_table(v, slots_for(2 * t->used), err));
    size_t size;
    const uint8_t *text = vocab_get(v, VOCAB_TEXT, id, &size);
    uint32_t at = find_slot(v, text, size);
    ZP_FAIL_IF(at == UINT32_MAX, err, ZP_BAD_FILE,
               "the vocabulary's texts collide in the hash table: hostile file?");
    *was = (int32_t)t->slots[at] - 1;
    if (*was == TOKEN_NONE) {
        t->slots[at] = id + 1;
        t->used++;
    }
    return ZP_OK;
}

static zp_status resize_blob(struct vocab *v, size_t room, zp_err *err)
{
    uint8_t *blob = mem_resize(MEM_TOKENIZER, v->blob, room);
    ZP_FAIL_IF(blob == NULL, err, ZP_NO_MEMORY,
               "not enough memory for vocabulary texts (%zu bytes)", room);
    v->blob = blob;
    v->blob_room = room;
    return ZP_OK;
}

static zp_status store(struct vocab *v, const void *bytes, size_t size, struct vocab_span *out,
                       zp_err *err)
{
    ZP_FAIL_IF(size > UINT32_MAX - v->blob_size, err, ZP_BAD_FILE,
               "the vocabulary's texts are longer than 4 GiB together");
    size_t need = v->blob_size + size;
    if (need > v->blob_room) ZP_TRY(resize_blob(v, need + need / 2 + 256, err));
    if (size > 0) memcpy(v->blob + v->blob_size, bytes, size);
    *out = (struct vocab_span){ (uint32_t)v->blob_size, (uint32_t)size };
    v->blob_size = need;
    return ZP_OK;
}

static zp_status resize_tokens(struct vocab *v, uint32_t room, zp_err *err)
{
    struct vocab_token *tokens = mem_resize(MEM_TOKENIZER, v->tokens, room * sizeof *tokens);
    ZP_FAIL_IF(tokens == NULL, err, ZP_NO_MEMORY, "not enough memory for %u tokens (%zu bytes)",
               room, room * sizeof *tokens);
    v->tokens = tokens;
    v->room = room;
    return ZP_OK;
}

zp_status vocab_reserve(struct vocab *v, uint32_t n, size_t text_bytes, zp_err *err)
{
    ZP_TRY(resize_tokens(v, n, err));
    ZP_TRY(resize_blob(v, text_bytes + n, err));
    return resize_table(v, slots_for(n), err);
}

zp_status vocab_add(struct vocab *v, const void *text, size_t size, enum token_kind kind,
                    double score, zp_err *err)
{
    ZP_FAIL_IF(v->n >= VOCAB_MAX_TOKENS, err, ZP_BAD_FILE, "more than %zu tokens",
               VOCAB_MAX_TOKENS);
    if (v->n == v->room) ZP_TRY(resize_tokens(v, v->room == 0 ? 64 : v->room * 2, err));
    struct vocab_token *token = &v->tokens[v->n];
    *token = (struct vocab_token){ .score = score, .kind = (uint8_t)kind };
    /* A NUL follows each text, so that views of it are C strings. */
    struct vocab_span end;
    ZP_TRY(store(v, text, size, &token->span[VOCAB_TEXT], err));
    ZP_TRY(store(v, "", 1, &end, err));
    token->span[VOCAB_BYTES] = token->span[VOCAB_TEXT];
    if (size > 0) {
        int32_t was;
        ZP_TRY(insert(v, v->n, &was, err));
        ZP_FAIL_IF(was != TOKEN_NONE, err, ZP_BAD_FILE,
                   "tokens %d and %u have the same text '%.*s'", was, v->n,
                   (int)(size < 64 ? size : 64), (const char *)text);
    }
    v->n++;
    return ZP_OK;
}

zp_status vocab_set_bytes(struct vocab *v, uint32_t id, const void *bytes, size_t size, zp_err *err)
{
    if (bytes == NULL) v->tokens[id].span[VOCAB_BYTES] = v->tokens[id].span[VOCAB_TEXT];
    else ZP_TRY(store(v, bytes, size, &v->tokens[id].span[VOCAB_BYTES], err));
    return ZP_OK;
}

zp_status vocab_seal(struct vocab *v, zp_err *err)
{
    v->whole = mem_zalloc(MEM_TOKENIZER, v->n);
    ZP_FAIL_IF(v->whole == NULL, err, ZP_NO_MEMORY, "not enough memory for token states (%u bytes)",
               v->n);
    return ZP_OK;
}

void vocab_free(struct vocab *v)
{
    mem_free(v->tokens);
    mem_free(v->blob);
    mem_free(v->table.slots);
    mem_free(v->whole);
    *v = (struct vocab){ 0 };
}

int32_t vocab_find(const struct vocab *v, const void *text, size_t size)
{
    if (v->table.slots == NULL || size == 0) return TOKEN_NONE;
    uint32_t at = find_slot(v, text, size);
    return at == UINT32_MAX ? TOKEN_NONE : (int32_t)v->table.slots[at] - 1;
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int vocab_byte_value(const void *text, size_t size)
{
    const uint8_t *t = text;
    if (size != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>') return -1;
    int high = hex_value(t[3]), low = hex_value(t[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

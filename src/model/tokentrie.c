/* tokentrie.c: tokens in the order of their bytes; each adds the nodes it does not share with the
 * one before it. */
#include "model/tokentrie.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOKEN_BYTES UINT16_MAX /* longer ones are left out */

struct entry {
    const uint8_t *bytes;
    uint32_t size;
    int32_t id;
};

const uint8_t *tokentrie_bytes(const struct tokenizer *t, int32_t id, size_t *size)
{
    enum token_kind kind = tokenizer_token_kind(t, id);
    const uint8_t *bytes = tokenizer_token_bytes(t, id, size);
    bool text = kind == TOKEN_NORMAL || kind == TOKEN_BYTE || kind == TOKEN_USER_DEFINED;
    if (text && !tokenizer_is_eog(t, id) && *size > 0 && *size <= MAX_TOKEN_BYTES) return bytes;
    *size = 0;
    return NULL;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
    if (order != 0) return order;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* entries, ends: (n_vocab) */
static uint32_t list_tokens(struct tokentrie *trie, const struct tokenizer *t,
                            struct entry *entries)
{
    uint32_t n = 0;
    for (int32_t id = 0; (uint32_t)id < trie->n_vocab; id++) {
        size_t size;
        const uint8_t *bytes = tokentrie_bytes(t, id, &size);
        if (bytes != NULL) entries[n++] = (struct entry){ bytes, (uint32_t)size, id };
        if (tokenizer_is_eog(t, id)) trie->ends[trie->n_ends++] = id;
        trie->same[id] = TOKEN_NONE;
    }
    return n;
}

static uint32_t shared_bytes(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0, most = a->size < b->size ? a->size : b->size;
    while (n < most && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Everything deeper than `depth` at the end of the nodes ends here. open: (depth of the last
 * token + 1) its nodes by depth. */
static void close_nodes(struct tokentrie *trie, const uint32_t *open, uint32_t depth, uint32_t last)
{
    for (uint32_t d = depth + 1; d <= last; d++) trie->nodes[open[d]].skip = trie->n_nodes;
}

static zp_status add_nodes(struct tokentrie *trie, const struct entry *entries, uint32_t n,
                           uint32_t *open, zp_err *err)
{
    size_t n_nodes = 0;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++)
        n_nodes += entries[i].size - (i ? shared_bytes(&entries[i - 1], &entries[i]) : 0);
    ZP_FAIL_IF(n_nodes > UINT32_MAX / 2, err, ZP_UNSUPPORTED,
               "a vocabulary of %zu bytes is too large for grammars", n_nodes);
    ZP_ALLOC(trie->nodes, MEM_TOKENIZER, n_nodes, err, "the vocabulary's bytes");
    for (uint32_t i = 0; i < n; i++) {
        const struct entry *e = &entries[i];
        uint32_t shared = i ? shared_bytes(e - 1, e) : 0;
        if (i && e->size == shared && e[-1].size == shared) {
            trie->same[e[-1].id] = e->id;
            continue;
        }
        close_nodes(trie, open, shared, depth);
        for (depth = shared; depth < e->size;) {
            uint8_t byte = e->bytes[depth++];
            open[depth] = trie->n_nodes;
            trie->nodes[trie->n_nodes++] =
                (struct tokentrie_node){ 0, TOKEN_NONE, (uint16_t)depth, byte };
        }
        trie->nodes[trie->n_nodes - 1].id = e->id;
        if (depth > trie->max_depth) trie->max_depth = depth;
    }
    close_nodes(trie, open, 0, depth);
    return ZP_OK;
}

static zp_status fill(struct tokentrie *trie, const struct tokenizer *t, struct entry **entries,
                      uint32_t **open, zp_err *err)
{
    size_t n_vocab = trie->n_vocab;
    ZP_ALLOC(trie->same, MEM_TOKENIZER, n_vocab, err, "the vocabulary's bytes");
    ZP_ALLOC(trie->ends, MEM_TOKENIZER, n_vocab, err, "the vocabulary's end tokens");
    ZP_ALLOC(*entries, MEM_SCRATCH, n_vocab, err, "the vocabulary's bytes");
    ZP_ALLOC(*open, MEM_SCRATCH, (size_t)MAX_TOKEN_BYTES + 1, err, "the vocabulary's bytes");
    uint32_t n = list_tokens(trie, t, *entries);
    qsort(*entries, n, sizeof **entries, compare_entries);
    return add_nodes(trie, *entries, n, *open, err);
}

zp_status tokentrie_open(struct tokentrie **out, const struct tokenizer *t, uint32_t n_vocab,
                         zp_err *err)
{
    struct entry *entries = NULL;
    uint32_t *open = NULL, own = (uint32_t)tokenizer_get_info(t)->n_vocab;
    *out = mem_zalloc(MEM_TOKENIZER, sizeof **out);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "not enough memory for the vocabulary's bytes");
    (*out)->n_vocab = n_vocab < own ? n_vocab : own;
    zp_status status = fill(*out, t, &entries, &open, err);
    mem_free(entries);
    mem_free(open);
    if (status == ZP_OK) return ZP_OK;
    tokentrie_close(*out);
    *out = NULL;
    return status;
}

void tokentrie_close(struct tokentrie *t)
{
    if (t == NULL) return;
    mem_free(t->nodes);
    mem_free(t->same);
    mem_free(t->ends);
    mem_free(t);
}

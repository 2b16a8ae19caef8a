/* trie.c: edges of all nodes in one hash table, so that a node costs one entry whatever its
 * degree. */
#include "model/trie.h"
#include <string.h>

static uint64_t edge_key(uint32_t node, uint8_t byte)
{
    return ((uint64_t)node << 8 | byte) + 1;
}

/* Keys are consecutive numbers chosen by the order of addition: a multiplicative hash spreads them
 * and no vocabulary can aim at collisions much better than chance. */
static uint32_t edge_slot(const struct trie *t, uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    uint32_t at = (uint32_t)(h >> 32) & t->mask;
    while (t->edges[at].key != 0 && t->edges[at].key != key) at = (at + 1) & t->mask;
    return at;
}

uint32_t trie_step_inner(const struct trie *t, uint32_t node, uint8_t byte)
{
    if (t->edges == NULL) return 0;
    const struct trie_edge *e = &t->edges[edge_slot(t, edge_key(node, byte))];
    return e->key == 0 ? 0 : e->child;
}

static zp_status grow_edges(struct trie *t, zp_err *err)
{
    struct trie old = *t;
    uint32_t count = old.edges == NULL ? 64 : (old.mask + 1) * 2;
    struct trie_edge *edges = mem_zalloc(MEM_TOKENIZER, (size_t)count * sizeof *edges);
    ZP_FAIL_IF(edges == NULL, err, ZP_NO_MEMORY, "not enough memory for a token trie (%zu bytes)",
               (size_t)count * sizeof *edges);
    t->edges = edges;
    t->mask = count - 1;
    for (uint32_t i = 0; old.edges != NULL && i <= old.mask; i++)
        if (old.edges[i].key != 0) edges[edge_slot(t, old.edges[i].key)] = old.edges[i];
    mem_free(old.edges);
    return ZP_OK;
}

static zp_status add_node(struct trie *t, uint32_t *out, zp_err *err)
{
    if (t->n_nodes == t->room) {
        ZP_FAIL_IF(t->n_nodes >= UINT32_MAX / 4, err, ZP_BAD_FILE,
                   "the token trie has too many nodes");
        uint32_t room = t->room == 0 ? 64 : t->room * 2;
        int32_t *values = mem_resize(MEM_TOKENIZER, t->values, (size_t)room * sizeof *values);
        ZP_FAIL_IF(values == NULL, err, ZP_NO_MEMORY,
                   "not enough memory for a token trie (%zu bytes)", (size_t)room * sizeof *values);
        t->values = values;
        t->room = room;
    }
    t->values[t->n_nodes] = TRIE_NO_VALUE;
    *out = t->n_nodes++;
    return ZP_OK;
}

static zp_status add_child(struct trie *t, uint32_t node, uint8_t byte, uint32_t *out, zp_err *err)
{
    if (t->edges == NULL || t->n_edges >= (t->mask + 1) / 2) ZP_TRY(grow_edges(t, err));
    ZP_TRY(add_node(t, out, err));
    uint64_t key = edge_key(node, byte);
    t->edges[edge_slot(t, key)] = (struct trie_edge){ key, *out };
    t->n_edges++;
    if (node == 0) t->first[byte] = *out;
    return ZP_OK;
}

zp_status trie_add(struct trie *t, const void *text, size_t size, int32_t value, zp_err *err)
{
    uint32_t node = 0;
    if (t->n_nodes == 0) ZP_TRY(add_node(t, &node, err));
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = ((const uint8_t *)text)[i];
        uint32_t child = trie_step(t, node, byte);
        if (child == 0) ZP_TRY(add_child(t, node, byte, &child, err));
        node = child;
    }
    if (t->values[node] == TRIE_NO_VALUE) t->values[node] = value;
    return ZP_OK;
}

void trie_free(struct trie *t)
{
    mem_free(t->edges);
    mem_free(t->values);
    *t = (struct trie){ 0 };
}

size_t trie_longest(const struct trie *t, const uint8_t *text, size_t size, int32_t *value)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        node = trie_step(t, node, text[i]);
        if (node == 0) break;
        if (t->values[node] != TRIE_NO_VALUE) {
            longest = i + 1;
            *value = t->values[node];
        }
    }
    return longest;
}

/* tokenmask.c: walks the vocabulary and the automaton together, and keeps what came out.
 * Cost of a walk: a load for each node of the trie that the grammar reaches, 1 to 4 ns. Where any
 * text may stand that is all of the vocabulary; between strings of JSON it is next to nothing. */
#include "model/tokenmask.h"

#include <string.h>

zp_status tokenmask_open(struct tokenmask *m, struct automaton *a, const struct tokentrie *trie,
                         uint32_t n_vocab, size_t max_bytes, zp_err *err)
{
    *m = (struct tokenmask){ .a = a, .trie = trie, .n_words = ((size_t)n_vocab + 63) / 64 };
    tokenmask_set_room(m, max_bytes);
    ZP_ALLOC(m->path, MEM_META, (size_t)trie->max_depth + 1, err, "a token mask");
    return ZP_OK;
}

void tokenmask_set_room(struct tokenmask *m, size_t max_bytes)
{
    size_t max = max_bytes / (m->n_words * sizeof *m->bits);
    m->max_slots = max == 0 ? 1 : max < 1u << 16 ? (uint32_t)max : 1u << 16;
}

void tokenmask_close(struct tokenmask *m)
{
    mem_free(m->bits);
    mem_free(m->used);
    mem_free(m->state);
    mem_free(m->slot);
    mem_free(m->path);
    *m = (struct tokenmask){ 0 };
}

static zp_status grow(void **array, size_t n, size_t size, zp_err *err)
{
    void *grown = mem_resize(MEM_META, *array, n * size);
    ZP_FAIL_IF(grown == NULL, err, ZP_NO_MEMORY, "not enough memory for token masks (%zu bytes)",
               n * size);
    *array = grown;
    return ZP_OK;
}

#define GROW(m, name, n, size, err)                                                               \
    do {                                                                                          \
        void *array_ = (m)->name;                                                                 \
        zp_status status_ = grow(&array_, (n), (size), err);                                      \
        (m)->name = array_;                                                                       \
        ZP_TRY(status_);                                                                          \
    } while (0)

/* A slot that no state needs: a new one, or the one that was not asked for the longest. */
static zp_status take_slot(struct tokenmask *m, uint32_t *out, zp_err *err)
{
    if (m->n_slots == m->room_slots && m->n_slots < m->max_slots) {
        size_t room = m->room_slots ? 2 * (size_t)m->room_slots : 16;
        if (room > m->max_slots) room = m->max_slots;
        GROW(m, bits, room, m->n_words * sizeof *m->bits, err);
        GROW(m, used, room, sizeof *m->used, err);
        GROW(m, state, room, sizeof *m->state, err);
        m->room_slots = (uint32_t)room;
    }
    if (m->n_slots < m->room_slots) {
        *out = m->n_slots++;
        return ZP_OK;
    }
    *out = 0;
    for (uint32_t i = 1; i < m->n_slots; i++)
        if (m->used[i] < m->used[*out]) *out = i;
    if (m->state[*out] != AUTOMATON_DEAD) m->slot[m->state[*out]] = 0;
    return ZP_OK;
}

static void allow(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= (uint64_t)1 << id % 64;
}

static zp_status walk(struct tokenmask *m, uint32_t state, uint64_t *bits, zp_err *err)
{
    const struct tokentrie *trie = m->trie;
    const struct tokentrie_node *nodes = trie->nodes;
    memset(bits, 0, m->n_words * sizeof *bits);
    m->path[0] = state;
    for (uint32_t i = 0; i < trie->n_nodes;) {
        const struct tokentrie_node *n = &nodes[i];
        uint32_t next;
        ZP_TRY(automaton_step(m->a, m->path[n->depth - 1], n->byte, &next, err));
        if (next == AUTOMATON_DEAD) {
            i = n->skip;
            continue;
        }
        m->path[n->depth] = next;
        for (int32_t id = n->id; id != TOKEN_NONE; id = trie->same[id]) allow(bits, id);
        i++;
    }
    for (uint32_t i = 0; m->a->states[state].accepts && i < trie->n_ends; i++)
        allow(bits, trie->ends[i]);
    return ZP_OK;
}

/* Room for slots of all states there are; none is left when their numbers have changed. */
static zp_status follow_states(struct tokenmask *m, zp_err *err)
{
    if (m->age != m->a->age) {
        if (m->slot) memset(m->slot, 0, m->n_states * sizeof *m->slot);
        m->n_slots = 0;
        m->age = m->a->age;
    }
    if (m->a->n_states <= m->n_states) return ZP_OK;
    uint32_t n = m->a->room_states;
    GROW(m, slot, n, sizeof *m->slot, err);
    memset(m->slot + m->n_states, 0, (n - m->n_states) * sizeof *m->slot);
    m->n_states = n;
    return ZP_OK;
}

zp_status tokenmask_get(struct tokenmask *m, const struct automaton_place *p, const uint64_t **bits,
                        zp_err *err)
{
    uint32_t slot;
    ZP_TRY(automaton_prepare(m->a, err));
    ZP_TRY(follow_states(m, err));
    if (m->slot[p->state] == 0) {
        ZP_TRY(take_slot(m, &slot, err));
        m->state[slot] = AUTOMATON_DEAD; /* of no state while it is not whole */
        m->used[slot] = 0;
        ZP_TRY(walk(m, p->state, m->bits + slot * m->n_words, err));
        m->state[slot] = p->state;
        m->slot[p->state] = slot + 1;
    }
    slot = m->slot[p->state] - 1;
    m->used[slot] = ++m->now;
    *bits = m->bits + slot * m->n_words;
    return ZP_OK;
}

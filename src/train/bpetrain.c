/* bpetrain.c: counts words, then joins the most frequent pair again and again.
 * Owns: the table of words, the table of pairs while it runs. Does not know: files of text.
 * Sennrich et al. 2016 (arXiv:1508.07909), with each distinct word looked at once: a join visits
 * only the words that have the pair, and a heap with late repair gives the next pair. 8.2 MB of
 * prose (47,865 distinct words) to 2048 tokens: 1.2 s on one core, 0.9 s of it to cut words.
 * B1 a pair's count is that of its places over all words, each as often as the word stands.
 * B2 the heap has an entry for every pair whose count is no less than the pair's: so the best entry
 *    that is up to date is the best pair. */
#include "train/bpetrain.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "model/bpe.h"

#define KEY(name) "tokenizer.ggml." name

enum {
    N_VOCAB = 2048,
    N_RESERVED = 7,
    /* Long words are counted in pieces of so many bytes: a text without spaces costs no more. */
    MAX_WORD = 256,
    MAX_TOKEN_TEXT = 64, /* bytes of GPT-2's alphabet: lines of dashes end here */
    LEAST_COUNT = 2,
    FIRST_SLOTS = 1 << 16,
};

/* Grows *p to hold one item more; items keep their places. */
static zp_status grow(void **p, size_t n, uint32_t *room, size_t item, const char *what,
                      zp_err *err)
{
    if (n < *room) return ZP_OK;
    uint32_t more = *room < 1024 ? 1024 : *room > UINT32_MAX / 2 ? UINT32_MAX : *room * 2;
    ZP_FAIL_IF(n >= more, err, ZP_BAD_INPUT, "more than %u %s", more, what);
    void *bigger = mem_resize(MEM_TRAIN, *p, more * item);
    ZP_FAIL_IF(!bigger, err, ZP_NO_MEMORY, "not enough memory for %u %s", more, what);
    *p = bigger;
    *room = more;
    return ZP_OK;
}

/* ---- words ---- */

static zp_status add_special(struct bpetrain *b, zp_err *err)
{
    ZP_TRY(vocab_add(&b->vocab, "<|endoftext|>", 13, TOKEN_CONTROL, 0, err));
    for (uint32_t i = 0; i < b->options.n_reserved; i++) {
        struct buffer name = buffer_with_max(MEM_TRAIN, 64);
        zp_status status = buffer_printf(&name, err, "<|reserved_%u|>", i);
        if (status == ZP_OK)
            status = vocab_add(&b->vocab, name.data, name.size, TOKEN_CONTROL, 0, err);
        buffer_free(&name);
        ZP_TRY(status);
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        size_t size = bpe_byte_text((uint8_t)byte, text);
        ZP_TRY(vocab_add(&b->vocab, text, size, TOKEN_NORMAL, 0, err));
    }
    return ZP_OK;
}

static zp_status fill(struct bpetrain *b, zp_err *err)
{
    struct bpetrain_options *o = &b->options;
    if (o->n_vocab == 0) o->n_vocab = N_VOCAB;
    if (o->n_reserved == 0) o->n_reserved = N_RESERVED;
    if (o->pre == NULL) o->pre = "smollm";
    ZP_FAIL_IF(o->n_vocab < 257 || o->n_vocab - 257 < o->n_reserved ||
                   o->n_vocab > VOCAB_MAX_TOKENS,
               err, ZP_USAGE, "a vocabulary of %u tokens: expected %u (bytes and special tokens) "
               "to %zu", o->n_vocab, 257 + o->n_reserved, VOCAB_MAX_TOKENS);
    const struct pretok_row *row = pretok_find(o->pre, strlen(o->pre));
    char known[320];
    pretok_list_names(known, sizeof known);
    ZP_FAIL_IF(!row, err, ZP_UNSUPPORTED, "unknown pre-tokeniser '%.48s'; known: %s", o->pre,
               known);
    ZP_TRY(pretok_open_row(&b->pretok, row, o->pre, err));
    b->slots = mem_zalloc(MEM_TRAIN, FIRST_SLOTS * sizeof *b->slots);
    ZP_FAIL_IF(!b->slots, err, ZP_NO_MEMORY, "not enough memory for a table of words");
    b->n_slots = FIRST_SLOTS;
    return add_special(b, err);
}

zp_status bpetrain_open(struct bpetrain *b, const struct bpetrain_options *options, zp_err *err)
{
    *b = (struct bpetrain){ .options = options ? *options : (struct bpetrain_options){ 0 },
                            .text = buffer_with_max(MEM_TRAIN, UINT32_MAX),
                            .merges = buffer_with_max(MEM_TRAIN, UINT32_MAX) };
    zp_status status = fill(b, err);
    if (status != ZP_OK) bpetrain_free(b);
    return status;
}

void bpetrain_free(struct bpetrain *b)
{
    pretok_scratch_free(&b->scratch);
    pretok_close(&b->pretok);
    mem_free(b->words);
    mem_free(b->slots);
    buffer_free(&b->text);
    buffer_free(&b->merges);
    vocab_free(&b->vocab);
    memset(b, 0, sizeof *b);
}

static uint32_t *word_slot(struct bpetrain *b, const uint8_t *text, uint32_t size)
{
    size_t at = (size_t)hash_xxh64(text, size, 0) & (b->n_slots - 1);
    for (; b->slots[at]; at = (at + 1) & (b->n_slots - 1)) {
        const struct bpetrain_word *w = &b->words[b->slots[at] - 1];
        if (w->n == size && memcmp(b->text.data + w->at, text, size) == 0) break;
    }
    return &b->slots[at];
}

static zp_status widen_slots(struct bpetrain *b, zp_err *err)
{
    uint32_t *wider = mem_zalloc(MEM_TRAIN, b->n_slots * 2 * sizeof *wider);
    ZP_FAIL_IF(!wider, err, ZP_NO_MEMORY, "not enough memory for a table of %zu words",
               b->n_slots * 2);
    mem_free(b->slots);
    b->slots = wider;
    b->n_slots *= 2;
    for (uint32_t i = 0; i < b->n_words; i++)
        *word_slot(b, b->text.data + b->words[i].at, b->words[i].n) = i + 1;
    return ZP_OK;
}

static zp_status count_word(struct bpetrain *b, const uint8_t *text, uint32_t size, zp_err *err)
{
    uint32_t *slot = word_slot(b, text, size);
    if (*slot) {
        b->words[*slot - 1].count++;
        return ZP_OK;
    }
    ZP_TRY(grow((void **)&b->words, b->n_words, &b->words_room, sizeof *b->words, "words", err));
    uint32_t at = (uint32_t)b->text.size;
    ZP_TRY(buffer_append(&b->text, text, size, err));
    b->words[b->n_words] = (struct bpetrain_word){ 1, at, size };
    *slot = ++b->n_words;
    return (size_t)b->n_words * 2 > b->n_slots ? widen_slots(b, err) : ZP_OK;
}

zp_status bpetrain_add(struct bpetrain *b, const char *text, size_t size, zp_err *err)
{
    const struct pretok_pieces *pieces;
    size_t bad;
    ZP_FAIL_IF(size > TOKENIZER_MAX_TEXT, err, ZP_BAD_INPUT, "a text of %zu bytes (limit %zu)",
               size, TOKENIZER_MAX_TEXT);
    ZP_FAIL_IF(!utf8_is_valid(text, size, &bad), err, ZP_BAD_INPUT, "not UTF-8 text at byte %zu",
               bad);
    ZP_TRY(pretok_split(&b->pretok, &b->scratch, (const uint8_t *)text, size, &pieces, err));
    for (size_t i = 0; i < pieces->count; i++) {
        uint32_t end = pieces->items[i].end;
        for (uint32_t at = pieces->items[i].begin; at < end; at += MAX_WORD) {
            uint32_t n = end - at < MAX_WORD ? end - at : MAX_WORD;
            ZP_TRY(count_word(b, (const uint8_t *)text + at, n, err));
        }
    }
    return ZP_OK;
}

/* ---- pairs ---- */

struct pair {
    uint64_t key; /* left << 32 | right, + 1; 0 = free */
    uint64_t count;
    uint64_t pushed; /* of its best entry in the heap; 0: none */
    uint32_t uses;   /* first of a list of words that have, or had it; + 1 */
    uint32_t step;   /* last one that made it */
};
struct use {
    uint32_t word, next;
};
struct candidate {
    uint64_t count, key;
};

struct joining {
    struct bpetrain *b;
    struct bpetrain_word *words; /* (n_words) places in symbols */
    int32_t *symbols;            /* of all words */
    uint32_t *seen;              /* (n_words) last step that rewrote it */
    struct pair *pairs;
    size_t n_pairs, n_slots;
    struct use *uses;
    uint32_t n_uses, uses_room;
    struct candidate *heap;
    uint32_t n_heap, heap_room;
    uint64_t *made; /* keys of the pairs this step made */
    uint32_t n_made, made_room;
    uint32_t step;
};

static uint64_t key_of(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static struct pair *pair_slot(const struct joining *j, uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    size_t at = (size_t)(h ^ h >> 32) & (j->n_slots - 1);
    while (j->pairs[at].key != 0 && j->pairs[at].key != key) at = (at + 1) & (j->n_slots - 1);
    return &j->pairs[at];
}

/* The pair of the key, new or not; good until the next call. */
static zp_status get_pair(struct joining *j, uint64_t key, struct pair **out, zp_err *err)
{
    if ((j->n_pairs + 1) * 2 > j->n_slots) {
        struct pair *old = j->pairs;
        size_t n = j->n_slots;
        struct pair *wider = mem_zalloc(MEM_TRAIN, n * 2 * sizeof *wider);
        ZP_FAIL_IF(!wider, err, ZP_NO_MEMORY, "not enough memory for %zu pairs", n * 2);
        j->pairs = wider;
        j->n_slots = n * 2;
        for (size_t i = 0; i < n; i++)
            if (old[i].key) *pair_slot(j, old[i].key) = old[i];
        mem_free(old);
    }
    *out = pair_slot(j, key);
    if ((*out)->key == 0) {
        **out = (struct pair){ .key = key };
        j->n_pairs++;
    }
    return ZP_OK;
}

static bool is_better(struct candidate a, struct candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static zp_status push(struct joining *j, struct pair *p, zp_err *err)
{
    if (p->count <= p->pushed) return ZP_OK; // B2
    ZP_TRY(grow((void **)&j->heap, j->n_heap, &j->heap_room, sizeof *j->heap, "pairs", err));
    struct candidate c = { p->count, p->key };
    p->pushed = p->count;
    uint32_t at = j->n_heap++;
    for (; at > 0 && is_better(c, j->heap[(at - 1) / 2]); at = (at - 1) / 2)
        j->heap[at] = j->heap[(at - 1) / 2];
    j->heap[at] = c;
    return ZP_OK;
}

static struct candidate pop(struct joining *j)
{
    struct candidate top = j->heap[0], last = j->heap[--j->n_heap];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child + 1 < j->n_heap && is_better(j->heap[child + 1], j->heap[child])) child++;
        if (child >= j->n_heap || !is_better(j->heap[child], last)) break;
        j->heap[at] = j->heap[child];
        at = child;
    }
    j->heap[at] = last;
    return top;
}

/* The most frequent pair; false when none is left. */
static zp_status next_pair(struct joining *j, struct candidate *out, bool *found, zp_err *err)
{
    for (*found = false; j->n_heap > 0;) {
        struct candidate c = pop(j);
        struct pair *p = pair_slot(j, c.key);
        if (c.count < p->pushed) continue; /* a better entry of it is there */
        p->pushed = 0;
        if (c.count == p->count) {
            *out = c;
            *found = true;
            return ZP_OK;
        }
        ZP_TRY(push(j, p, err)); // B2
    }
    return ZP_OK;
}

/* The pair stands at one more place of the word; */
static zp_status add_place(struct joining *j, uint64_t key, uint32_t word, zp_err *err)
{
    struct pair *p;
    ZP_TRY(get_pair(j, key, &p, err));
    p->count += j->words[word].count;
    if (p->step != j->step) {
        p->step = j->step;
        ZP_TRY(grow((void **)&j->made, j->n_made, &j->made_room, sizeof *j->made, "pairs", err));
        j->made[j->n_made++] = key;
    }
    if (p->uses && j->uses[p->uses - 1].word == word) return ZP_OK;
    ZP_TRY(grow((void **)&j->uses, j->n_uses, &j->uses_room, sizeof *j->uses, "places", err));
    j->uses[j->n_uses] = (struct use){ word, p->uses };
    p->uses = ++j->n_uses;
    return ZP_OK;
}

static zp_status push_made(struct joining *j, zp_err *err)
{
    for (uint32_t i = 0; i < j->n_made; i++) ZP_TRY(push(j, pair_slot(j, j->made[i]), err));
    j->n_made = 0;
    return ZP_OK;
}

static zp_status start(struct joining *j, zp_err *err)
{
    const struct bpetrain *b = j->b;
    int32_t first_byte = (int32_t)b->options.n_reserved + 1;
    ZP_ALLOC(j->words, MEM_TRAIN, (size_t)b->n_words + 1, err, "words");
    ZP_ALLOC(j->symbols, MEM_TRAIN, b->text.size + 1, err, "the symbols of words");
    j->seen = mem_zalloc(MEM_TRAIN, ((size_t)b->n_words + 1) * sizeof *j->seen);
    j->pairs = mem_zalloc(MEM_TRAIN, FIRST_SLOTS * sizeof *j->pairs);
    ZP_FAIL_IF(!j->seen || !j->pairs, err, ZP_NO_MEMORY, "not enough memory for a table of pairs");
    j->n_slots = FIRST_SLOTS;
    j->step = 1;
    if (b->n_words) memcpy(j->words, b->words, b->n_words * sizeof *j->words);
    for (size_t i = 0; i < b->text.size; i++) j->symbols[i] = first_byte + b->text.data[i];
    for (uint32_t w = 0; w < b->n_words; w++) {
        const int32_t *s = j->symbols + j->words[w].at;
        for (uint32_t i = 0; i + 1 < j->words[w].n; i++)
            ZP_TRY(add_place(j, key_of(s[i], s[i + 1]), w, err));
    }
    return push_made(j, err);
}

static void finish(struct joining *j)
{
    mem_free(j->words);
    mem_free(j->symbols);
    mem_free(j->seen);
    mem_free(j->pairs);
    mem_free(j->uses);
    mem_free(j->heap);
    mem_free(j->made);
}

/* Left and right become `joined` wherever they stand in the word, from left to right. */
static zp_status rewrite(struct joining *j, uint32_t word, int32_t left, int32_t right,
                         int32_t joined, zp_err *err)
{
    struct bpetrain_word *w = &j->words[word];
    int32_t *s = j->symbols + w->at;
    uint32_t n = 0, had = w->n;
    for (uint32_t i = 0; i + 1 < had; i++) pair_slot(j, key_of(s[i], s[i + 1]))->count -= w->count;
    for (uint32_t i = 0; i < had; n++) {
        bool join = i + 1 < had && s[i] == left && s[i + 1] == right;
        s[n] = join ? joined : s[i];
        i += join ? 2 : 1;
    }
    w->n = n;
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint64_t key = key_of(s[i], s[i + 1]);
        if (s[i] == joined || s[i + 1] == joined) ZP_TRY(add_place(j, key, word, err));
        else pair_slot(j, key)->count += w->count; /* as before: its list has the word */
    }
    return ZP_OK;
}

static zp_status join_everywhere(struct joining *j, int32_t left, int32_t right, int32_t joined,
                                 zp_err *err)
{
    j->step++;
    uint32_t use = pair_slot(j, key_of(left, right))->uses;
    for (; use; use = j->uses[use - 1].next) {
        uint32_t word = j->uses[use - 1].word;
        if (j->seen[word] == j->step) continue;
        j->seen[word] = j->step;
        ZP_TRY(rewrite(j, word, left, right, joined, err));
    }
    assert(pair_slot(j, key_of(left, right))->count == 0); // B1
    return push_made(j, err);
}

/* Text of the joined token in `text` (room MAX_TOKEN_TEXT), and the line of the merge; size 0: too
 * long. */
static zp_status name_joined(struct bpetrain *b, int32_t left, int32_t right, char *text,
                             size_t *size, zp_err *err)
{
    size_t n, m;
    const uint8_t *l = vocab_get(&b->vocab, VOCAB_TEXT, (uint32_t)left, &n);
    const uint8_t *r = vocab_get(&b->vocab, VOCAB_TEXT, (uint32_t)right, &m);
    *size = 0;
    if (n + m > MAX_TOKEN_TEXT) return ZP_OK;
    memcpy(text, l, n);
    memcpy(text + n, r, m);
    ZP_TRY(buffer_append(&b->merges, text, n, err));
    ZP_TRY(buffer_append(&b->merges, " ", 1, err));
    ZP_TRY(buffer_append(&b->merges, text + n, m, err));
    ZP_TRY(buffer_append(&b->merges, "\n", 1, err));
    b->n_merges++;
    *size = n + m;
    return ZP_OK;
}

static zp_status join_all(struct joining *j, zp_err *err)
{
    struct bpetrain *b = j->b;
    ZP_TRY(start(j, err));
    while (b->vocab.n < b->options.n_vocab) {
        struct candidate best;
        char text[MAX_TOKEN_TEXT];
        size_t size;
        bool found;
        ZP_TRY(next_pair(j, &best, &found, err));
        if (!found || best.count < LEAST_COUNT) break;
        int32_t left = (int32_t)((best.key - 1) >> 32), right = (int32_t)(uint32_t)(best.key - 1);
        ZP_TRY(name_joined(b, left, right, text, &size, err));
        if (size == 0) continue;
        /* Two merges may give one text: a+bc, ab+c. */
        int32_t joined = vocab_find(&b->vocab, text, size);
        if (joined == TOKEN_NONE) {
            joined = (int32_t)b->vocab.n;
            ZP_TRY(vocab_add(&b->vocab, text, size, TOKEN_NORMAL, 0, err));
        }
        ZP_TRY(join_everywhere(j, left, right, joined, err));
    }
    return ZP_OK;
}

zp_status bpetrain_run(struct bpetrain *b, zp_err *err)
{
    struct joining j = { .b = b };
    zp_status status = join_all(&j, err);
    finish(&j);
    return status;
}

/* ---- result ---- */

static zp_status put_lists(const struct bpetrain *b, struct arena *arena, struct gguf_edit *e,
                           zp_err *err)
{
    struct gguf_str *texts, *merges;
    int32_t *kinds;
    ZP_TAKE(texts, arena, b->vocab.n, err, "the list of tokens");
    ZP_TAKE(kinds, arena, b->vocab.n, err, "the kinds of tokens");
    ZP_TAKE(merges, arena, (size_t)b->n_merges + 1, err, "the list of merges");
    for (uint32_t id = 0; id < b->vocab.n; id++) {
        size_t size;
        texts[id].data = (const char *)vocab_get(&b->vocab, VOCAB_TEXT, id, &size);
        texts[id].size = size;
        kinds[id] = b->vocab.tokens[id].kind;
    }
    const char *line = (const char *)b->merges.data;
    for (uint32_t i = 0; i < b->n_merges; i++) {
        merges[i].data = line;
        merges[i].size = (size_t)(strchr(line, '\n') - line);
        line += merges[i].size + 1;
    }
    ZP_TRY(gguf_edit_set_strs(e, KEY("tokens"), texts, b->vocab.n, err));
    ZP_TRY(gguf_edit_set_array(e, KEY("token_type"), GGUF_I32, kinds, b->vocab.n, err));
    return gguf_edit_set_strs(e, KEY("merges"), merges, b->n_merges, err);
}

zp_status bpetrain_put(const struct bpetrain *b, struct gguf_edit *e, zp_err *err)
{
    struct arena arena = { .tag = MEM_TRAIN };
    ZP_TRY(gguf_edit_set_str(e, KEY("model"), "gpt2", err));
    ZP_TRY(gguf_edit_set_str(e, KEY("pre"), b->options.pre, err));
    zp_status status = put_lists(b, &arena, e, err);
    arena_free(&arena);
    ZP_TRY(status);
    ZP_TRY(gguf_edit_set_u32(e, KEY("bos_token_id"), 0, err));
    ZP_TRY(gguf_edit_set_u32(e, KEY("eos_token_id"), 0, err));
    ZP_TRY(gguf_edit_set_bool(e, KEY("add_bos_token"), true, err));
    return gguf_edit_set_bool(e, KEY("add_eos_token"), false, err);
}

zp_status bpetrain_save(const struct bpetrain *b, const char *path, zp_err *err)
{
    struct gguf_edit e;
    ZP_TRY(gguf_edit_init(&e, NULL, err));
    zp_status status = bpetrain_put(b, &e, err);
    if (status == ZP_OK) status = gguf_edit_write(&e, path, err);
    gguf_edit_free(&e);
    return status;
}

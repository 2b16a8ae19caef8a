/* tasks_text.c: the tasks in words: keys in prose, order, counting.
 * Owns: wordings, names, things. A wording is a pattern: %n and %m are things or names, %d is what
 * is asked for. Training combines 16 things, 6 statements and 5 questions, so that no phrase can be
 * learned by heart; probes have others (T2), those of the retrieval checks among them. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "train/tasks_maker.h"

enum { KEYS_MAX = 4, TEXT_MAX = 512, LISTED_MAX = 24, COUNT_MAX = 9 };

struct words {
    const char *const *at;
    uint32_t n;
};
#define WORDS(...) { (const char *const[]){ __VA_ARGS__ }, \
                     sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *) }

struct wordings {
    struct words keys, names, things;
    struct words key_said, key_asked;
    struct words thing_said, order_asked;
    struct words list_said, count_asked;
};
static const struct wordings wordings[2] = {
    { /* training */
      WORDS("door code", "entry code", "secret number", "account number", "room number",
            "lock combination", "access number", "ticket number", "locker code", "order number",
            "safe code", "bus number", "serial number", "member number", "gate code",
            "page number"),
      WORDS("Anna", "Boris", "Clara", "Daniel", "Esther", "Felix", "Greta", "Hugo", "Irene",
            "Jacob", "Karen", "Louis", "Nora", "Oscar", "Paul", "Ruth"),
      WORDS("apple", "lamp", "horse", "river", "table", "ring", "book", "window", "ship", "stone",
            "tree", "bird", "house", "key", "letter", "chair", "fish", "cloud", "road", "bell",
            "garden", "king", "sword", "bread"),
      WORDS(" The %n is %d.", " Remember that the %n is %d.",
            " Note: the %n is %d. Do not lose it.", " Here is the %n: %d.",
            " Please write down the %n, which is %d.", " A friend told me the %n: it is %d."),
      WORDS(" What is the %n? The %n is %d", " Question: what was the %n? Answer: %d",
            " So the %n is %d", " As stated above, the %n is %d", " Tell me the %n. It is %d"),
      WORDS(" We saw the %n.", " Then the %n was mentioned.", " Here the %n appeared.",
            " Someone brought the %n."),
      WORDS(" Of the %n and the %m, the first was the %d",
            " Before the other one, of the %n and the %m, stood the %d",
            " The %n or the %m: the earlier one is the %d"),
      WORDS(" List:", " Items:", " Things:", " Words:"),
      WORDS(" Count of %n: %d", " Number of times that %n stands there: %d",
            " The list has %n so often: %d") },
    { /* probes */
      WORDS("pass key", "magic number", "vault code", "hotel key"),
      WORDS("Maria", "Peter", "Susan", "Thomas", "Laura", "Simon", "Alice", "Robert"),
      WORDS("bridge", "candle", "wolf", "island", "mirror", "coin", "shoe", "hammer", "flower",
            "tower", "knife", "basket"),
      WORDS(" The %n is %d. Remember it.", " Keep in mind that the %n is %d."),
      WORDS(" What is the %n mentioned in the text? The %n is %d",
            " The text says what the %n is: %d"),
      WORDS(" There came the %n.", " One could see the %n."),
      WORDS(" Which came first, the %n or the %m? It was the %d"),
      WORDS(" Look at these:"),
      WORDS(" How often does %n stand in this list? %d") }
};

/* A text as ids of scratch. */
struct part {
    size_t at, n;
    uint32_t mark, n_mark; /* ids of %d, from the part's first */
};

/* pattern with its words; *begin and *end: bytes of the first %d. */
static size_t expand(const char *pattern, const char *n, const char *m, const char *d,
                     char out[TEXT_MAX], size_t *begin, size_t *end)
{
    size_t size = 0;
    *begin = *end = 0;
    for (; *pattern; pattern++) {
        const char *word = *pattern != '%'      ? NULL
                           : pattern[1] == 'n' ? n
                           : pattern[1] == 'm' ? m
                                               : d;
        size_t length = word ? strlen(word) : 1;
        assert(size + length < TEXT_MAX);
        memcpy(out + size, word ? word : pattern, length);
        if (word && pattern[1] == 'd' && *end == 0) *begin = size, *end = size + length;
        size += length;
        pattern += word != NULL;
    }
    return size;
}

/* Appends the text to scratch. Ids that have bytes of [begin, end) are marked; a tokenizer that
 * puts a space before a text has given the first id more bytes than there are. */
static zp_status add_part(struct maker *m, const char *text, size_t size, size_t begin, size_t end,
                          struct part *p, zp_err *err)
{
    struct token_list *list = &m->out->scratch;
    struct buffer *bytes = &m->out->bytes;
    *p = (struct part){ .at = list->count };
    ZP_TRY(tokenizer_encode(m->t->tokenizer, text, size, 0, list, err));
    p->n = list->count - p->at;
    buffer_clear(bytes);
    for (size_t i = 0; i < p->n; i++)
        ZP_TRY(tokenizer_decode_token(m->t->tokenizer, list->ids[p->at + i], 0, bytes, err));
    size_t shift = bytes->size > size ? bytes->size - size : 0;
    buffer_clear(bytes);
    for (size_t i = 0; i < p->n; i++) {
        size_t from = bytes->size;
        ZP_TRY(tokenizer_decode_token(m->t->tokenizer, list->ids[p->at + i], 0, bytes, err));
        if (bytes->size <= begin + shift || from >= end + shift) continue;
        if (p->n_mark == 0) p->mark = (uint32_t)i;
        p->n_mark = (uint32_t)i - p->mark + 1;
    }
    return ZP_OK;
}

static zp_status add_pattern(struct maker *m, const char *pattern, const char *n, const char *other,
                             const char *d, struct part *p, zp_err *err)
{
    char text[TEXT_MAX];
    size_t begin, end, size = expand(pattern, n, other, d, text, &begin, &end);
    return add_part(m, text, size, begin, end, p, err);
}

static void put_part(struct maker *m, const struct part *p, bool learn_mark)
{
    uint32_t first = m->out->n;
    maker_put(m, m->out->scratch.ids + p->at, p->n, true);
    memset(m->out->learn + first + p->mark, learn_mark, p->n_mark);
}

/* The question, whose answer was said at said_at. */
static void put_question(struct maker *m, const struct part *p, uint32_t said_at)
{
    uint32_t at = m->out->n + p->mark;
    put_part(m, p, true);
    maker_answer(m, at, p->n_mark, said_at);
}

static const char *draw_word(struct maker *m, struct words w)
{
    return w.at[rng_below(&m->r, w.n)];
}

static const struct wordings *wordings_of(const struct maker *m)
{
    return &wordings[m->t->options.probes];
}

/* ---- keys in prose ---- */

struct keys {
    struct part said[KEYS_MAX], asked[KEYS_MAX];
    uint32_t n, n_asked, which[KEYS_MAX]; /* which: key that is asked for */
    size_t size;
};

static void shuffle(struct maker *m, uint32_t *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) x[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)rng_below(&m->r, i), was = x[i - 1];
        x[i - 1] = x[j];
        x[j] = was;
    }
}

static zp_status draw_keys(struct maker *m, bool many, struct keys *k, zp_err *err)
{
    const struct wordings *w = wordings_of(m);
    const char *noun = draw_word(m, w->keys), *said = draw_word(m, w->key_said);
    uint32_t first = (uint32_t)rng_below(&m->r, w->names.n);
    char subject[KEYS_MAX][64], digits[KEYS_MAX][8];
    k->n = many ? maker_size(m, 2, KEYS_MAX) : 1;
    for (uint32_t i = 0; i < k->n; i++) {
        const char *name = w->names.at[(first + i) % w->names.n];
        snprintf(subject[i], sizeof subject[i], many ? "%s of %s" : "%s", noun, name);
        snprintf(digits[i], sizeof digits[i], "%u", 10000 + (unsigned)rng_below(&m->r, 90000));
        ZP_TRY(add_pattern(m, said, subject[i], NULL, digits[i], &k->said[i], err));
        k->size += k->said[i].n;
    }
    shuffle(m, k->which, k->n);
    k->n_asked = m->t->options.probes ? 1 : 1 + (uint32_t)rng_below(&m->r, k->n);
    for (uint32_t q = 0; q < k->n_asked; q++) {
        const char *asked = draw_word(m, w->key_asked);
        uint32_t i = k->which[q];
        ZP_TRY(add_pattern(m, asked, subject[i], NULL, digits[i], &k->asked[q], err));
        k->size += k->asked[q].n;
    }
    return ZP_OK;
}

static zp_status make_keys(struct maker *m, bool many, bool *fits, zp_err *err)
{
    struct keys k = { 0 };
    uint32_t said_at[KEYS_MAX];
    ZP_TRY(draw_keys(m, many, &k, err));
    *fits = k.size <= maker_left(m);
    if (!*fits) return ZP_OK;
    uint32_t left = maker_left(m) - (uint32_t)k.size, before = maker_gap(m, left / 4);
    maker_prose(m, before);
    left -= before;
    for (uint32_t i = 0; i < k.n; i++) {
        said_at[i] = m->out->n + k.said[i].mark;
        put_part(m, &k.said[i], false); /* nobody can know new digits */
        uint32_t gap = maker_gap(m, left / (k.n - i));
        maker_prose(m, gap);
        left -= gap;
    }
    for (uint32_t q = 0; q < k.n_asked; q++) put_question(m, &k.asked[q], said_at[k.which[q]]);
    return ZP_OK;
}

/* ---- order ---- */

static zp_status make_order(struct maker *m, bool *fits, zp_err *err)
{
    const struct wordings *w = wordings_of(m);
    uint32_t a = (uint32_t)rng_below(&m->r, w->things.n);
    uint32_t b = (a + 1 + (uint32_t)rng_below(&m->r, w->things.n - 1)) % w->things.n;
    const char *first = w->things.at[a], *second = w->things.at[b];
    bool turned = rng_below(&m->r, 2);
    struct part said[2], asked;
    /* %d stands for the thing, so that its ids are marked. */
    for (int i = 0; i < 2; i++) {
        char pattern[64], *at;
        snprintf(pattern, sizeof pattern, "%s", draw_word(m, w->thing_said));
        if ((at = strstr(pattern, "%n"))) at[1] = 'd';
        ZP_TRY(add_pattern(m, pattern, NULL, NULL, i ? second : first, &said[i], err));
    }
    ZP_TRY(add_pattern(m, draw_word(m, w->order_asked), turned ? second : first,
                       turned ? first : second, first, &asked, err));
    size_t size = said[0].n + said[1].n + asked.n;
    *fits = size <= maker_left(m);
    if (!*fits) return ZP_OK;
    uint32_t left = maker_left(m) - (uint32_t)size, before = maker_gap(m, left / 4);
    maker_prose(m, before);
    uint32_t said_at = m->out->n + said[0].mark, between = maker_gap(m, (left - before) / 2);
    put_part(m, &said[0], false);
    maker_prose(m, between);
    put_part(m, &said[1], false);
    maker_prose(m, maker_gap(m, left - before - between));
    put_question(m, &asked, said_at);
    return ZP_OK;
}

/* ---- counting ---- */

static zp_status make_count(struct maker *m, bool *fits, zp_err *err)
{
    const struct wordings *w = wordings_of(m);
    uint32_t counted = (uint32_t)rng_below(&m->r, w->things.n), order[LISTED_MAX];
    uint32_t count = maker_size(m, 1, COUNT_MAX), others = maker_size(m, 1, LISTED_MAX - COUNT_MAX);
    char text[TEXT_MAX], digit[4];
    struct part list, asked;
    size_t size = (size_t)snprintf(text, sizeof text, "%s", draw_word(m, w->list_said));
    size_t begin = size;
    shuffle(m, order, count + others);
    for (uint32_t i = 0; i < count + others; i++) {
        uint64_t other = counted + 1 + rng_below(&m->r, w->things.n - 1);
        const char *word = w->things.at[order[i] < count ? counted : other % w->things.n];
        size += (size_t)snprintf(text + size, sizeof text - size, " %s", word);
        assert(size < sizeof text);
    }
    ZP_TRY(add_part(m, text, size, begin, size, &list, err));
    snprintf(digit, sizeof digit, "%u", count);
    ZP_TRY(add_pattern(m, draw_word(m, w->count_asked), w->things.at[counted], NULL, digit, &asked,
                       err));
    *fits = list.n + asked.n <= maker_left(m);
    if (!*fits) return ZP_OK;
    maker_prose(m, maker_gap(m, (maker_left(m) - (uint32_t)(list.n + asked.n)) / 4));
    uint32_t list_at = m->out->n + list.mark;
    put_part(m, &list, false);
    put_question(m, &asked, list_at);
    return ZP_OK;
}

zp_status tasks_make_text(struct maker *m, enum task_kind kind, bool *fits, zp_err *err)
{
    token_list_clear(&m->out->scratch);
    switch (kind) {
    case TASK_PASSKEY: return make_keys(m, false, fits, err);
    case TASK_MULTIKEY: return make_keys(m, true, fits, err);
    case TASK_ORDER: return make_order(m, fits, err);
    default: return make_count(m, fits, err);
    }
}

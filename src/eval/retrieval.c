/* retrieval.c: passkey and multi-key prompts.
 * Owns: wordings, placing of keys. Does not know: gates.
 * R1 wordings for ranking and for tests are disjoint.  R2 a case is a function of (documents, seed,
 *    index). */
#include "eval/retrieval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

enum { ANSWER_DIGITS = 5, MULTI_KEYS = 4, LEAST_FILLER = 32 };

struct wording {
    const char *key, *question;
}; /* %s name (multi-key only), %s digits; question: %s name */

static const struct wording passkey[2][3] = {
    { { "\nThe secret number is %s. Keep it in mind.\n",
        "\nAs stated above, the secret number is " },
      { "\nNote: the door code is %s. Do not lose it.\n",
        "\nFrom the note above, the door code is " },
      { "\nPlease memorise this: access number %s.\n",
        "\nThe number to memorise was: access number " } },
    { { "\nThe pass key is %s. Remember it. %s is the pass key.\n",
        "\nWhat is the pass key? The pass key is " },
      { "\nThe magic number is %s. Remember it. %s is the magic number.\n",
        "\nWhat is the magic number? The magic number is " },
      { "\nThe vault opens with %s. Remember it. The vault opens with %s.\n",
        "\nHow does one open the vault? The vault opens with " } }
};
static const struct wording multikey[2][2] = {
    { { "\nThe code of %s is %s.\n", "\nAs stated above, the code of %s is " },
      { "\nRoom of %s: %s.\n", "\nLook up above. Room of %s: " } },
    { { "\nThe special number for %s is: %s.\n",
        "\nThe special number for %s mentioned in the text is: " },
      { "\nThe phone number of %s is %s.\n",
        "\nWhat is the phone number of %s? The phone number of %s is " } }
};
static const char *const names[2][8] = {
    { "Anna", "Boris", "Clara", "Daniel", "Esther", "Felix", "Greta", "Hugo" },
    { "Maria", "Peter", "Susan", "Thomas", "Laura", "Simon", "Alice", "Robert" }
};

const char *retrieval_kind_name(enum retrieval_kind kind)
{
    return kind == RETRIEVAL_PASSKEY ? "passkey" : "multikey";
}

static zp_status encode(const struct zp_model *m, const char *text, struct token_list *out,
                        zp_err *err)
{
    const struct tokenizer *t;
    ZP_TRY(model_tokenizer(m, &t, err));
    return tokenizer_encode(t, text, strlen(text), 0, out, err);
}

/* Tokens of the statements (in order of place), of the question and of the answer. */
struct parts {
    struct token_list key[MULTI_KEYS], question, answer;
    uint32_t n_keys;
};

static void parts_free(struct parts *p)
{
    for (uint32_t i = 0; i < MULTI_KEYS; i++) token_list_free(&p->key[i]);
    token_list_free(&p->question);
    token_list_free(&p->answer);
}

static void draw_digits(struct rng *r, char out[ANSWER_DIGITS + 1])
{
    snprintf(out, ANSWER_DIGITS + 1, "%05u", 10000 + (unsigned)rng_below(r, 90000));
}

static zp_status passkey_parts(struct parts *p, const struct zp_model *m,
                               enum retrieval_wording wording, struct rng *r, zp_err *err)
{
    const struct wording *w = &passkey[wording][rng_below(r, 3)];
    char digits[ANSWER_DIGITS + 1], text[200];
    draw_digits(r, digits);
    snprintf(text, sizeof text, w->key, digits, digits);
    p->n_keys = 1;
    ZP_TRY(encode(m, text, &p->key[0], err));
    ZP_TRY(encode(m, w->question, &p->question, err));
    return encode(m, digits, &p->answer, err);
}

static zp_status multikey_parts(struct parts *p, const struct zp_model *m,
                                enum retrieval_wording wording, struct rng *r, zp_err *err)
{
    const struct wording *w = &multikey[wording][rng_below(r, 2)];
    uint32_t first = (uint32_t)rng_below(r, 8), asked = (uint32_t)rng_below(r, MULTI_KEYS);
    char digits[ANSWER_DIGITS + 1], text[200];
    p->n_keys = MULTI_KEYS;
    for (uint32_t i = 0; i < MULTI_KEYS; i++) {
        const char *name = names[wording][(first + i) % 8];
        draw_digits(r, digits);
        snprintf(text, sizeof text, w->key, name, digits);
        ZP_TRY(encode(m, text, &p->key[i], err));
        if (i != asked) continue;
        snprintf(text, sizeof text, w->question, name, name);
        ZP_TRY(encode(m, text, &p->question, err));
        ZP_TRY(encode(m, digits, &p->answer, err));
    }
    return ZP_OK;
}

static size_t parts_size(const struct parts *p)
{
    size_t size = p->question.count + p->answer.count;
    for (uint32_t i = 0; i < p->n_keys; i++) size += p->key[i].count;
    return size;
}

/* text[0..a) key[0] text[a..b) key[1] ... question answer: n_ctx ids, keys at rising places in the
 * first 60 %. */
static zp_status assemble(struct retrieval_case *c, const struct window *text,
                          const struct parts *p, uint32_t n_ctx, struct rng *r, zp_err *err)
{
    size_t tail = p->question.count + p->answer.count, keys = parts_size(p) - tail;
    ZP_FAIL_IF(keys + tail + LEAST_FILLER > n_ctx, err, ZP_BAD_INPUT,
               "a retrieval prompt of %zu tokens does not fit into %u: a larger -c is needed",
               keys + tail + LEAST_FILLER, n_ctx);
    ZP_ALLOC(c->ids, MEM_EVAP, n_ctx, err, "a retrieval prompt");
    size_t filler = n_ctx - keys - tail, used = 0, at = 0, share = filler * 6 / 10 / p->n_keys;
    for (uint32_t i = 0; i < p->n_keys; i++) {
        size_t until = share * i + 4 + rng_below(r, share > 5 ? share - 4 : 1);
        memcpy(c->ids + at, text->ids + used, (until - used) * sizeof *c->ids);
        at += until - used;
        used = until;
        memcpy(c->ids + at, p->key[i].ids, p->key[i].count * sizeof *c->ids);
        at += p->key[i].count;
    }
    memcpy(c->ids + at, text->ids + used, (filler - used) * sizeof *c->ids);
    at += filler - used;
    memcpy(c->ids + at, p->question.ids, p->question.count * sizeof *c->ids);
    at += p->question.count;
    memcpy(c->ids + at, p->answer.ids, p->answer.count * sizeof *c->ids);
    c->n = n_ctx, c->answer = (uint32_t)at, c->n_answer = (uint32_t)p->answer.count;
    return ZP_OK;
}

static zp_status make_parts(struct parts *p, const struct zp_model *m, enum retrieval_kind kind,
                            enum retrieval_wording wording, struct rng *r, zp_err *err)
{
    memset(p, 0, sizeof *p);
    return kind == RETRIEVAL_PASSKEY ? passkey_parts(p, m, wording, r, err)
                                     : multikey_parts(p, m, wording, r, err);
}

/* R2: what a case draws depends on its kind and index alone. */
static struct rng draws_of(uint64_t seed, enum retrieval_kind kind, size_t i)
{
    return rng_stream(seed, (uint64_t)kind * 1000003 + i);
}

zp_status retrieval_least_ctx(const struct zp_model *m, enum retrieval_kind kind,
                              enum retrieval_wording wording, size_t n, uint64_t seed, size_t *out,
                              zp_err *err)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        struct parts p;
        struct rng draw = draws_of(seed, kind, i);
        zp_status status = make_parts(&p, m, kind, wording, &draw, err);
        size_t size = parts_size(&p) + LEAST_FILLER;
        parts_free(&p);
        ZP_TRY(status);
        if (size > *out) *out = size;
    }
    return ZP_OK;
}

static zp_status make_case(struct retrieval_case *c, const struct zp_model *m,
                           const struct window *text, enum retrieval_kind kind,
                           enum retrieval_wording wording, uint32_t n_ctx, struct rng *r,
                           zp_err *err)
{
    struct parts p;
    zp_status status = make_parts(&p, m, kind, wording, r, err);
    if (status == ZP_OK) status = assemble(c, text, &p, n_ctx, r, err);
    parts_free(&p);
    return status;
}

zp_status retrieval_make(struct retrieval *r, struct docs *d, const struct zp_model *m,
                         enum docs_part part, enum retrieval_kind kind,
                         enum retrieval_wording wording, uint32_t n_ctx, size_t n, uint64_t seed,
                         zp_err *err)
{
    struct windows text;
    memset(r, 0, sizeof *r);
    ZP_TRY(docs_windows(d, m, part, n_ctx, n, 1, &text, err));
    zp_status status = ZP_OK;
    if (!(r->cases = mem_zalloc(MEM_EVAP, n * sizeof *r->cases)))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for %zu prompts", n);
    for (size_t i = 0; i < n && status == ZP_OK; i++) {
        struct rng draw = draws_of(seed, kind, i);
        status = make_case(&r->cases[i], m, &text.at[i % text.n], kind, wording, n_ctx, &draw, err);
        r->n = i + 1;
    }
    windows_free(&text);
    if (status != ZP_OK) retrieval_free(r);
    return status;
}

void retrieval_free(struct retrieval *r)
{
    for (size_t i = 0; i < r->n; i++) mem_free(r->cases[i].ids);
    mem_free(r->cases);
    memset(r, 0, sizeof *r);
}

zp_status retrieval_score(struct zp_engine *e, const struct retrieval_case *c, const float *x,
                          double *nll, bool *right, zp_err *err)
{
    size_t n_vocab = e->model->h.n_vocab, d = e->model->h.d_model;
    float *logits;
    ZP_ALLOC(logits, MEM_EVAP, c->n_answer * n_vocab, err, "logits of an answer");
    engine_logits(e, x + (size_t)(c->answer - 1) * d, c->n_answer, logits);
    *nll = 0.0;
    *right = true;
    for (uint32_t i = 0; i < c->n_answer; i++) {
        const float *row = logits + i * n_vocab;
        int32_t target = c->ids[c->answer + i];
        float max;
        double sum;
        e->kern.expsum(row, n_vocab, &max, &sum);
        *nll += (log(sum) + (double)max - (double)row[target]) / c->n_answer;
        *right = *right && row[target] == max;
    }
    mem_free(logits);
    return ZP_OK;
}

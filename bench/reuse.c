/* reuse.c: what it saves to append the pages of documents computed elsewhere, beside prefix caching
 * alone, and what it costs: ten questions, each over 8 of 20 documents in changing order.
 * Usage: reuse MODEL TEXT [SEED]
 * A document is 512 tokens of TEXT. Ways to the first token of an answer:
 *   full         everything is computed
 *   prefix       beginnings that were seen before are taken over (zp_seq_reuse): the same bits
 *   append K     documents were computed once, each alone; their pages are appended, the first K
 *                tokens of each computed anew (zp_seq_append_pages)
 * Prints JSON: {"seed", "rows": [{"way", "first_token" (median seconds), "seconds" (all questions
 * and documents), "tokens", "computed", "kl_mean", "kl_max", "top1" (against full, on the first 32
 * tokens of the answers that full gives)}]}. Exit code 1: a call failed, or `prefix` gave other
 * bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zerope/zerope.h>

#include "base/bytes.h"
#include "base/os.h"
#include "base/rng.h"

enum { N_DOC = 20, N_PICK = 8, N_QUESTION = 10, DOC = 512, HEAD = 64, ANSWER = 32, MOST = 128 };
enum { N_CTX = HEAD + N_PICK * DOC + MOST + ANSWER };

static const char head_text[] = "Some documents follow, and a question about them. Read all of "
                                "them with care before you answer. "
                                "The answer is short and names the document that it was found in. "
                                "Where no document has the answer, "
                                "say that none has it, and do not make one up. Documents may stand "
                                "in any order, which means nothing. "
                                "Here they are, one after another, without a line between them.";
static const char *const questions[N_QUESTION] = {
    "Who is the first person that is named?", "Which place is described?",
    "What happens at the end?", "Which animal or plant is mentioned?", "What is the weather like?",
    "What do two people talk about?", "Which number is given?", "What is somebody afraid of?",
    "Which journey is made?", "What is said about the house?"
};

struct job {
    zp_model *m;
    zp_engine *e;
    int32_t head[HEAD], docs[N_DOC][DOC];
    int32_t *question[N_QUESTION];
    size_t n_question[N_QUESTION], n_vocab;
    uint8_t pick[N_QUESTION][N_PICK];
    float *full;   /* (N_QUESTION, ANSWER, n_vocab): log-probabilities */
    int32_t answer[N_QUESTION][ANSWER];
    float *logits; /* (ANSWER, n_vocab) */
};

struct way {
    const char *name;
    bool prefix, append;
    uint32_t recompute;
    double first[N_QUESTION], seconds, kl_sum, kl_max;
    uint64_t tokens, computed, same_top;
    bool other_bits;
};

static void check(zp_status status, const zp_err *err)
{
    if (status == ZP_OK) return;
    fprintf(stderr, "reuse: %s\n", err->message);
    exit(1);
}

static void *room(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) exit(1);
    return p;
}

/* ---- the job --------------------------------------------------------------------------------- */

static void tokenize(struct job *j, const char *text, size_t size, int flags, int32_t **ids,
                     size_t *n)
{
    zp_err err = { 0 };
    check(zp_tokenize(j->m, text, size, flags, ids, n, &err), &err);
}

static void read_documents(struct job *j, const char *path)
{
    struct buffer text = buffer_with_max(MEM_META, (size_t)64 << 20);
    zp_err err = { 0 };
    int32_t *ids;
    size_t n;
    check(os_read_file(path, &text, &err), &err);
    tokenize(j, (const char *)text.data, text.size, 0, &ids, &n);
    if (n < N_DOC * DOC) {
        fprintf(stderr, "reuse: %s has %zu tokens, %d are needed\n", path, n, N_DOC * DOC);
        exit(1);
    }
    for (int d = 0; d < N_DOC; d++) memcpy(j->docs[d], ids + d * DOC, sizeof j->docs[d]);
    zp_free(ids);
    buffer_free(&text);
}

static void make_job(struct job *j, const char *path, uint64_t seed)
{
    struct rng r = rng_stream(seed, 0);
    int32_t *ids;
    size_t n;
    read_documents(j, path);
    tokenize(j, head_text, strlen(head_text), ZP_TOKENS_BOS, &ids, &n);
    for (size_t i = 0; i < HEAD; i++) j->head[i] = ids[i < n ? i : n - 1];
    zp_free(ids);
    for (int q = 0; q < N_QUESTION; q++) {
        char text[256];
        int size = snprintf(text, sizeof text, "\n\nQuestion: %s\nAnswer:", questions[q]);
        tokenize(j, text, (size_t)size, 0, &j->question[q], &j->n_question[q]);
        uint8_t all[N_DOC];
        for (int d = 0; d < N_DOC; d++) all[d] = (uint8_t)d;
        for (int i = 0; i < N_PICK; i++) { /* Fisher and Yates */
            int other = i + (int)rng_below(&r, (uint64_t)(N_DOC - i));
            uint8_t t = all[i];
            all[i] = all[other], all[other] = t;
            j->pick[q][i] = all[i];
        }
    }
}

static void open_engine(struct job *j, bool prefix)
{
    zp_err err = { 0 };
    zp_engine_options o = { .n_ctx = N_CTX, .n_seq = 8, .prefix_cache = prefix };
    check(zp_engine_open(&j->e, j->m, &o, &err), &err);
}

/* ---- ways to the first token ----------------------------------------------------------------- */

static void run(struct job *j, zp_seq *s, const int32_t *ids, size_t n, zp_want want)
{
    zp_err err = { 0 };
    zp_item item = { s, ids, n, want };
    size_t rows = want == ZP_WANT_NONE ? 0 : want == ZP_WANT_LAST ? 1 : n;
    if (n) check(zp_engine_run(j->e, &item, 1, j->logits, rows, NULL, &err), &err);
}

/* Head and documents in one piece, as far as they are not known. */
static size_t compute_all(struct job *j, const struct way *w, zp_seq *s, int q)
{
    int32_t ids[HEAD + N_PICK * DOC];
    size_t n = HEAD + N_PICK * DOC, known = 0;
    zp_err err = { 0 };
    memcpy(ids, j->head, sizeof j->head);
    for (int i = 0; i < N_PICK; i++)
        memcpy(ids + HEAD + i * DOC, j->docs[j->pick[q][i]], sizeof j->docs[0]);
    if (w->prefix) check(zp_seq_reuse(s, ids, n, &known, &err), &err);
    run(j, s, ids + known, n - known, ZP_WANT_NONE);
    return n - known;
}

static size_t append_all(struct job *j, const struct way *w, zp_seq *s, zp_seq *const *docs, int q)
{
    zp_append_options o = { .recompute = w->recompute };
    zp_err err = { 0 };
    run(j, s, j->head, HEAD, ZP_WANT_NONE);
    for (int i = 0; i < N_PICK; i++)
        check(zp_seq_append_pages(s, docs[j->pick[q][i]], HEAD, DOC, &o, &err), &err);
    return HEAD + N_PICK * w->recompute;
}

static void log_softmax(float *row, size_t n)
{
    double sum = 0, most = -INFINITY;
    for (size_t i = 0; i < n; i++) most = fmax(most, (double)row[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)row[i] - most);
    for (size_t i = 0; i < n; i++) row[i] = (float)((double)row[i] - most - log(sum));
}

static size_t top(const float *row, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

/* The full way's own answer, greedy; others are asked for the same tokens. */
static void make_answer(struct job *j, zp_seq *s, int q)
{
    float *rows = j->full + (size_t)q * ANSWER * j->n_vocab;
    for (int i = 0; i < ANSWER; i++, rows += j->n_vocab) {
        memcpy(rows, j->logits, j->n_vocab * sizeof *rows);
        log_softmax(rows, j->n_vocab);
        j->answer[q][i] = (int32_t)top(rows, j->n_vocab);
        run(j, s, &j->answer[q][i], 1, ZP_WANT_LAST);
    }
}

static void compare(struct job *j, struct way *w, zp_seq *s, int q)
{
    const float *rows = j->full + (size_t)q * ANSWER * j->n_vocab;
    for (int i = 0; i < ANSWER; i++, rows += j->n_vocab) {
        double kl = 0;
        log_softmax(j->logits, j->n_vocab);
        w->other_bits |= memcmp(rows, j->logits, j->n_vocab * sizeof *rows) != 0;
        for (size_t k = 0; k < j->n_vocab; k++)
            kl += exp((double)rows[k]) * ((double)rows[k] - (double)j->logits[k]);
        w->kl_sum += kl;
        w->kl_max = fmax(w->kl_max, kl);
        w->same_top += top(j->logits, j->n_vocab) == (size_t)j->answer[q][i];
        run(j, s, &j->answer[q][i], 1, ZP_WANT_LAST);
    }
}

static void ask(struct job *j, struct way *w, zp_seq *const *docs, int q, bool first_way)
{
    zp_err err = { 0 };
    zp_seq *s = NULL;
    double begin = os_now();
    check(zp_seq_open(&s, j->e, NULL, &err), &err);
    w->computed += w->append ? append_all(j, w, s, docs, q) : compute_all(j, w, s, q);
    run(j, s, j->question[q], j->n_question[q], ZP_WANT_LAST);
    w->first[q] = os_now() - begin;
    w->seconds += w->first[q];
    w->computed += j->n_question[q];
    w->tokens += HEAD + N_PICK * DOC + j->n_question[q];
    if (first_way) make_answer(j, s, q);
    else compare(j, w, s, q);
    zp_seq_close(s);
}

/* Each document behind the head, alone. */
static void prepare(struct job *j, struct way *w, zp_seq **docs)
{
    zp_err err = { 0 };
    double begin = os_now();
    for (int d = 0; d < N_DOC; d++) {
        check(zp_seq_open(&docs[d], j->e, NULL, &err), &err);
        run(j, docs[d], j->head, HEAD, ZP_WANT_NONE);
        run(j, docs[d], j->docs[d], DOC, ZP_WANT_NONE);
        w->computed += HEAD + DOC;
    }
    w->seconds += os_now() - begin;
}

static void go(struct job *j, struct way *w, bool first_way)
{
    zp_seq *docs[N_DOC] = { 0 };
    open_engine(j, w->prefix);
    if (w->append) prepare(j, w, docs);
    for (int q = 0; q < N_QUESTION; q++) ask(j, w, docs, q, first_way);
    for (int d = 0; d < N_DOC; d++) zp_seq_close(docs[d]);
    zp_engine_close(j->e);
}

/* ---- results --------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(struct way *w, bool first_way)
{
    const double n = N_QUESTION * ANSWER;
    qsort(w->first, N_QUESTION, sizeof w->first[0], by_size);
    printf("%s{\"way\": \"%s\", \"first_token\": %.4f, \"seconds\": %.3f, \"tokens\": %llu, "
           "\"computed\": %llu, \"kl_mean\": %.5f, \"kl_max\": %.4f, \"top1\": %.3f}",
           first_way ? "" : ",\n  ", w->name,
           (w->first[N_QUESTION / 2 - 1] + w->first[N_QUESTION / 2]) / 2, w->seconds,
           (unsigned long long)w->tokens, (unsigned long long)w->computed, w->kl_sum / n, w->kl_max,
           first_way ? 1.0 : (double)w->same_top / n);
}

int main(int argc, char **argv)
{
    struct way ways[] = { { .name = "full" },
                          { .name = "prefix", .prefix = true },
                          { .name = "append 0", .append = true },
                          { .name = "append 64", .append = true, .recompute = 64 },
                          { .name = "append 128", .append = true, .recompute = 128 } };
    struct job *j = room(sizeof *j);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    zp_err err = { 0 };
    zp_model_info info;
    if (argc < 3) {
        fprintf(stderr, "usage: reuse MODEL TEXT [SEED]\n");
        return 2;
    }
    check(zp_model_open(&j->m, argv[1], NULL, &err), &err);
    zp_model_describe(j->m, &info);
    j->n_vocab = info.n_vocab;
    j->full = room((size_t)N_QUESTION * ANSWER * j->n_vocab * sizeof *j->full);
    j->logits = room(ANSWER * j->n_vocab * sizeof *j->logits);
    make_job(j, argv[2], seed);
    printf("{\"seed\": %llu, \"rows\": [\n  ", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        go(j, &ways[i], i == 0);
        show(&ways[i], i == 0);
        fflush(stdout);
    }
    printf("]}\n");
    for (int q = 0; q < N_QUESTION; q++) zp_free(j->question[q]);
    free(j->full);
    free(j->logits);
    zp_model_close(j->m);
    free(j);
    return ways[1].other_bits;
}

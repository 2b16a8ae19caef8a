/* corpus.c: which files are documents, which of them are held out, and their tokens.
 * Owns: the list of sources. Does not know: tokens of tasks, rows.
 * C1 the same text is one document, on one side.  C2 a new tokenizer has not seen what is held out.
 * C3 a file that changes between two readings is an error: its side and its hash would be wrong. */
#include "train/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/os.h"
#include "base/json_build.h"
#include "model/model.h"
#include "train/bpetrain.h"
#include "train/htmltext.h"
#include "train/shards.h"

#define HELD_SHARE 0.05
#define TOKENIZER_FILE "tokenizer.gguf"

struct corpus {
    const zp_corpus_options *options;
    struct arena arena;
    struct corpus_source *sources; /* (n) in the order of inputs, each folder's by name */
    size_t n, room;
    size_t n_docs, n_held, n_duplicates;
    struct buffer text; /* of the document at work */
    char *tokenizer_path;
    /* tokenizer in use, of one of these */
    const struct tokenizer *tokenizer;
    struct zp_model *model;
    struct gguf gguf;
    struct tokenizer *own;
    struct bpetrain trained;
    bool trains;
    struct shards_writer writer;
    uint64_t held_tokens, text_bytes;
};

static zp_status tell(const struct corpus *c, const char *what, size_t done, zp_err *err)
{
    const zp_progress *p = &c->options->progress;
    ZP_FAIL_IF(p->fn && !p->fn(p->arg, what, done, c->n), err, ZP_INTERRUPTED, "interrupted");
    return ZP_OK;
}

/* ---- sources ---- */

static bool is_page(const char *path)
{
    static const char *const ends[] = { ".html", ".htm", ".xhtml" };
    const char *point = strrchr(path, '.');
    for (size_t i = 0; point && i < ZP_COUNT(ends); i++)
        if (strcasecmp(point, ends[i]) == 0) return true;
    return false;
}

zp_status corpus_read(const char *path, struct buffer *out, zp_err *err)
{
    struct buffer page = buffer_with_max(MEM_TRAIN, TOKENIZER_MAX_TEXT);
    size_t bad;
    buffer_clear(out);
    struct buffer *file = is_page(path) ? &page : out;
    zp_status status = os_read_file(path, file, err);
    if (status == ZP_OK && file->size && !utf8_is_valid((char *)file->data, file->size, &bad))
        status = status_fail(err, ZP_BAD_INPUT, __FILE__, __LINE__,
                             "%s: not UTF-8 text at byte %zu; convert it, or leave it out", path,
                             bad);
    if (status == ZP_OK && file == &page)
        status = htmltext_strip((const char *)page.data, page.size, out, err);
    buffer_free(&page);
    return status;
}

static zp_status add_source(struct corpus *c, const char *path, const char *name, zp_err *err)
{
    if (c->n == c->room) {
        size_t room = c->room ? c->room * 2 : 256;
        void *bigger = mem_resize(MEM_TRAIN, c->sources, room * sizeof *c->sources);
        ZP_FAIL_IF(!bigger, err, ZP_NO_MEMORY, "not enough memory for %zu documents", room);
        c->sources = bigger;
        c->room = room;
    }
    struct corpus_source *s = &c->sources[c->n++];
    *s = (struct corpus_source){ .path = arena_strndup(&c->arena, path, strlen(path)) };
    ZP_FAIL_IF(!s->path, err, ZP_NO_MEMORY, "not enough memory for the list of documents");
    s->name = s->path + (name - path);
    return ZP_OK;
}

static bool is_hidden(const char *name)
{
    return name[0] == '.' || strstr(name, "/.") != NULL;
}

static zp_status add_folder(struct corpus *c, const char *folder, zp_err *err)
{
    char **names;
    size_t n, skip = strlen(folder);
    ZP_TRY(os_list_files(folder, &names, &n, err));
    zp_status status = ZP_OK;
    for (size_t i = 0; i < n && status == ZP_OK; i++) {
        const char *name = names[i] + skip;
        while (*name == '/') name++;
        if (!is_hidden(name)) status = add_source(c, names[i], name, err);
    }
    os_list_free(names, n);
    return status;
}

static zp_status list_sources(struct corpus *c, const char *const *inputs, size_t n, zp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(inputs[i], '/');
        if (os_is_folder(inputs[i])) ZP_TRY(add_folder(c, inputs[i], err));
        else ZP_TRY(add_source(c, inputs[i], slash ? slash + 1 : inputs[i], err));
    }
    return ZP_OK;
}

/* ---- who is held out ---- */

static int compare_sources(const void *a, const void *b)
{
    const struct corpus_source *x = *(struct corpus_source *const *)a;
    const struct corpus_source *y = *(struct corpus_source *const *)b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* C1: of equal texts the first stays. */
static zp_status mark_duplicates(struct corpus *c, zp_err *err)
{
    struct corpus_source **sorted;
    ZP_ALLOC(sorted, MEM_TRAIN, c->n + 1, err, "a list of documents");
    for (size_t i = 0; i < c->n; i++) sorted[i] = &c->sources[i];
    if (c->n) qsort(sorted, c->n, sizeof(void *), compare_sources);
    for (size_t i = 0; i < c->n; i++) {
        bool again = i > 0 && sorted[i]->bytes > 0 && sorted[i]->hash == sorted[i - 1]->hash &&
                     sorted[i]->bytes == sorted[i - 1]->bytes;
        sorted[i]->duplicate = again;
        c->n_duplicates += again;
        c->n_docs += sorted[i]->bytes > 0 && !again;
    }
    mem_free(sorted);
    return ZP_OK;
}

static bool is_document(const struct corpus_source *s)
{
    return s->bytes > 0 && !s->duplicate;
}

/* By rank, and at least one on either side: the lowest is held out, the highest is not. */
static void hold_out(struct corpus *c)
{
    double share = c->options->held_share > 0 ? c->options->held_share : HELD_SHARE;
    struct corpus_source *lowest = NULL, *highest = NULL;
    for (size_t i = 0; i < c->n; i++) {
        struct corpus_source *s = &c->sources[i];
        if (!is_document(s)) continue;
        double rank = shards_held_rank(s->hash);
        s->held = rank < share;
        if (!lowest || rank < shards_held_rank(lowest->hash)) lowest = s;
        if (!highest || rank > shards_held_rank(highest->hash)) highest = s;
    }
    lowest->held = true;
    highest->held = false;
    for (size_t i = 0; i < c->n; i++) c->n_held += c->sources[i].held;
}

static zp_status read_sources(struct corpus *c, const char *first, zp_err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        ZP_TRY(tell(c, "files read", i, err));
        ZP_TRY(corpus_read(c->sources[i].path, &c->text, err));
        c->sources[i].bytes = c->text.size;
        c->sources[i].hash = c->text.size ? hash_bytes(c->text.data, c->text.size, 0) : 0;
    }
    ZP_TRY(mark_duplicates(c, err));
    ZP_FAIL_IF(c->n_docs == 0, err, ZP_BAD_INPUT,
               "%s: no text in %zu file%s; the corpus would be empty", first, c->n,
               c->n == 1 ? "" : "s");
    if (c->options->no_held) return ZP_OK;
    ZP_FAIL_IF(c->n_docs == 1, err, ZP_BAD_INPUT,
               "%s: only one document, so that nothing can be held out; give more (each file is "
               "one), or --no-held to train without a measure", first);
    hold_out(c);
    return ZP_OK;
}

/* The text of source i once more (C3). */
static zp_status read_again(struct corpus *c, size_t i, zp_err *err)
{
    const struct corpus_source *s = &c->sources[i];
    ZP_TRY(corpus_read(s->path, &c->text, err));
    ZP_FAIL_IF(c->text.size != s->bytes || hash_bytes(c->text.data, c->text.size, 0) != s->hash,
               err, ZP_RUN, "%s: changed while the corpus was made", s->path);
    return ZP_OK;
}

/* ---- tokenizer ---- */

static zp_status check_embedding(const struct gguf *g, const char *path, int32_t n_vocab,
                                 zp_err *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    ZP_FAIL_IF(t && t->ne[1] < (uint64_t)n_vocab, err, ZP_BAD_INPUT,
               "%s: its tokenizer has %d tokens, its embedding %llu", path, n_vocab,
               (unsigned long long)t->ne[1]);
    return ZP_OK;
}

static zp_status open_tokenizer(struct corpus *c, zp_err *err)
{
    const char *path = c->options->tokenizer, *pre = c->options->pre;
    if (os_is_folder(path)) { /* of Hugging Face */
        ZP_TRY(zp_model_open(&c->model, path, &(zp_model_options){ .pre = pre }, err));
        ZP_TRY(model_tokenizer(c->model, &c->tokenizer, err));
        return check_embedding(&c->model->gguf, path,
                               tokenizer_get_info(c->tokenizer)->n_vocab, err);
    }
    ZP_TRY(gguf_open(&c->gguf, path, err));
    zp_status status = tokenizer_open_gguf(&c->own, &c->gguf, pre, err);
    if (status != ZP_OK) status_add_path(err, path);
    ZP_TRY(status);
    c->tokenizer = c->own;
    return check_embedding(&c->gguf, path, tokenizer_get_info(c->own)->n_vocab, err);
}

/* C2. The engine's own tokenizer is opened from the keys as it would be from the file. */
static zp_status train_tokenizer(struct corpus *c, zp_err *err)
{
    struct bpetrain_options o = { .n_vocab = c->options->train_vocab, .pre = c->options->pre };
    struct gguf_edit e;
    ZP_TRY(bpetrain_open(&c->trained, &o, err));
    c->trains = true;
    for (size_t i = 0; i < c->n; i++) {
        if (!is_document(&c->sources[i]) || c->sources[i].held) continue;
        ZP_TRY(tell(c, "files counted", i, err));
        ZP_TRY(read_again(c, i, err));
        ZP_TRY(bpetrain_add(&c->trained, (const char *)c->text.data, c->text.size, err));
    }
    ZP_TRY(bpetrain_run(&c->trained, err));
    ZP_TRY(gguf_edit_init(&e, NULL, err));
    zp_status status = bpetrain_put(&c->trained, &e, err);
    if (status == ZP_OK) status = gguf_edit_view(&e, &c->gguf, err);
    if (status == ZP_OK) {
        status = tokenizer_open_gguf(&c->own, &c->gguf, NULL, err);
        gguf_edit_view_free(&c->gguf);
    }
    memset(&c->gguf, 0, sizeof c->gguf);
    gguf_edit_free(&e);
    c->tokenizer = c->own;
    return status;
}

/* ---- the files ---- */

static zp_status encode_all(struct corpus *c, zp_err *err)
{
    struct token_list ids = { 0 };
    zp_status status = shards_writer_open(&c->writer, c->tokenizer, err);
    for (size_t i = 0; i < c->n && status == ZP_OK; i++) {
        const struct corpus_source *s = &c->sources[i];
        if (!is_document(s)) continue;
        token_list_clear(&ids);
        status = tell(c, "files turned into tokens", i, err);
        if (status == ZP_OK) status = read_again(c, i, err);
        if (status == ZP_OK) {
            status = tokenizer_encode(c->tokenizer, (const char *)c->text.data, c->text.size, 0,
                                      &ids, err);
            if (status != ZP_OK && status != ZP_NO_MEMORY) status_add_path(err, s->path);
        }
        if (status == ZP_OK && ids.count == 0) continue; /* a normaliser may leave nothing */
        if (status == ZP_OK)
            status = shards_writer_add(&c->writer, s->name, s->hash, s->bytes, ids.ids, ids.count,
                                       s->held, err);
        c->text_bytes += s->bytes;
        if (s->held) c->held_tokens += ids.count;
    }
    token_list_free(&ids);
    return status;
}

/* Path of tokenizer.gguf in the folder of out. */
static zp_status name_tokenizer(struct corpus *c, const char *out, zp_err *err)
{
    const char *slash = strrchr(out, '/');
    size_t folder = slash ? (size_t)(slash - out) + 1 : 0;
    ZP_TAKE(c->tokenizer_path, &c->arena, folder + sizeof TOKENIZER_FILE, err, "a path");
    memcpy(c->tokenizer_path, out, folder);
    memcpy(c->tokenizer_path + folder, TOKENIZER_FILE, sizeof TOKENIZER_FILE);
    ZP_FAIL_IF(os_same_file(c->tokenizer_path, out), err, ZP_USAGE,
               "%s: the new tokenizer is written there; give the corpus another name", out);
    return ZP_OK;
}

static zp_status check_output(const char *path, const char *const *inputs, size_t n, zp_err *err)
{
    for (size_t i = 0; i < n; i++)
        ZP_FAIL_IF(zp_writes_over(path, inputs[i]), err, ZP_USAGE,
                   "%s would be written over or into the input %s; give it another name", path,
                   inputs[i]);
    return ZP_OK;
}

static zp_status check_options(struct corpus *c, const char *const *inputs, size_t n,
                               const char *out, zp_err *err)
{
    const zp_corpus_options *o = c->options;
    ZP_FAIL_IF(!o->tokenizer == !o->train_vocab, err, ZP_USAGE,
               "%s: expected a model whose tokenizer is used (--tokenizer), or the size of a new "
               "one (--train-vocab)",
               o->tokenizer ? "two tokenizers are named" : "no tokenizer is named");
    ZP_FAIL_IF(!(o->held_share >= 0 && o->held_share < 1), err, ZP_USAGE,
               "the share of documents that are held out is above 0 and below 1");
    ZP_FAIL_IF(o->no_held && o->held_share > 0, err, ZP_USAGE,
               "a share to hold out is given, and to hold out nothing");
    ZP_FAIL_IF(n == 0, err, ZP_USAGE, "no files are named");
    ZP_TRY(check_output(out, inputs, n, err));
    if (o->tokenizer) return check_output(out, &o->tokenizer, 1, err);
    ZP_TRY(name_tokenizer(c, out, err));
    return check_output(c->tokenizer_path, inputs, n, err);
}

static zp_status report(const struct corpus *c, const char *out, char **json, zp_err *err)
{
    const struct shards_header *h = &c->writer.head;
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_uint(&w, "documents", h->n_docs);
    json_build_uint(&w, "held_documents", c->n_held);
    json_build_uint(&w, "duplicates", c->n_duplicates);
    json_build_uint(&w, "tokens", h->n_tokens);
    json_build_uint(&w, "held_tokens", c->held_tokens);
    json_build_real(&w, "held_share", (double)c->held_tokens / (double)h->n_tokens, 4);
    json_build_uint(&w, "text_bytes", c->text_bytes);
    json_build_real(&w, "token_length", (double)c->text_bytes / (double)h->n_tokens, 4);
    json_build_uint(&w, "n_vocab", h->n_vocab);
    json_build_int(&w, "separator", h->separator);
    json_build_text(&w, "tokenizer", c->trains ? c->tokenizer_path : c->options->tokenizer);
    json_build_bool(&w, "trained", c->trains);
    json_build_text(&w, "file", out);
    json_build_uint(&w, "file_bytes", h->file_bytes);
    json_build_object_end(&w);
    return json_build_finish(&w, json);
}

static zp_status make(struct corpus *c, const char *const *inputs, size_t n, const char *out,
                      char **json, zp_err *err)
{
    ZP_TRY(check_options(c, inputs, n, out, err));
    if (c->options->tokenizer) ZP_TRY(open_tokenizer(c, err));
    ZP_TRY(list_sources(c, inputs, n, err));
    ZP_TRY(read_sources(c, inputs[0], err));
    if (!c->tokenizer) ZP_TRY(train_tokenizer(c, err));
    ZP_TRY(encode_all(c, err));
    if (c->trains) ZP_TRY(bpetrain_save(&c->trained, c->tokenizer_path, err));
    ZP_TRY(shards_writer_save(&c->writer, out, err));
    return json ? report(c, out, json, err) : ZP_OK;
}

static void free_parts(struct corpus *c)
{
    shards_writer_free(&c->writer);
    if (c->trains) bpetrain_free(&c->trained);
    tokenizer_close(c->own);
    zp_model_close(c->model);
    gguf_close(&c->gguf);
    buffer_free(&c->text);
    mem_free(c->sources);
    arena_free(&c->arena);
}

zp_status zp_corpus_make(const char *const *inputs, size_t n_inputs, const char *out,
                         const zp_corpus_options *options, char **json, zp_err *err)
{
    static const zp_corpus_options defaults = { 0 };
    struct corpus c = { .options = options ? options : &defaults,
                        .arena = { .tag = MEM_TRAIN },
                        .text = buffer_with_max(MEM_TRAIN, TOKENIZER_MAX_TEXT) };
    if (json) *json = NULL;
    zp_status status = make(&c, inputs, n_inputs, out, json, err);
    free_parts(&c);
    return status;
}

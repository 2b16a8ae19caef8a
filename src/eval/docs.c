/* docs.c: documents and windows.
 * Owns: text and ids of documents. Does not know: engines, scores.
 * D1 a document is wholly in the planning or wholly in the held-out part.
 * D2 same path, same windows.
 * D3 a document that an earlier step planned with is not held out, in whatever folder it stands. */
#include "eval/docs.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"

enum { PARTS_OF_SINGLE_FILE = 24 };

static zp_status read_document(struct docs *d, const char *path, zp_err *err)
{
    struct buffer *b = &d->files[d->n_files++];
    *b = buffer_with_max(MEM_EVAP, (size_t)256 << 20);
    ZP_TRY(os_read_file(path, b, err));
    size_t bad;
    ZP_FAIL_IF(b->size && !utf8_is_valid((const char *)b->data, b->size, &bad), err, ZP_BAD_INPUT,
               "%s: not UTF-8 text at byte %zu", path, bad);
    return ZP_OK;
}

static zp_status add_doc(struct docs *d, const char *name, const char *text, size_t size,
                         zp_err *err)
{
    struct doc *doc = &d->docs[d->n];
    doc->name = arena_strndup(&d->arena, name, strlen(name));
    ZP_FAIL_IF(!doc->name, err, ZP_NO_MEMORY, "not enough memory for the document list");
    doc->text = text;
    doc->size = size;
    doc->hash = hash_bytes(text, size, 0);
    /* Two of three to the held-out part: the promise is measured there. */
    doc->held = d->n % 3 != 0;
    d->n++;
    return ZP_OK;
}

static zp_status open_folder(struct docs *d, const char *path, zp_err *err)
{
    char **names = NULL;
    size_t n = 0;
    ZP_TRY(os_list_files(path, &names, &n, err));
    d->docs = arena_array(&d->arena, n + 1, sizeof *d->docs);
    d->files = arena_array(&d->arena, n + 1, sizeof *d->files);
    zp_status status = d->docs && d->files ? ZP_OK
                                           : status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                                                         "not enough memory for %zu documents", n);
    for (size_t i = 0; i < n && status == ZP_OK; i++) {
        status = read_document(d, names[i], err);
        const struct buffer *b = &d->files[d->n_files - 1];
        if (status == ZP_OK && b->size)
            status = add_doc(d, names[i], (const char *)b->data, b->size, err);
    }
    os_list_free(names, n);
    ZP_TRY(status);
    ZP_FAIL_IF(d->n == 0, err, ZP_BAD_INPUT, "%s: no documents with text in this folder", path);
    return ZP_OK;
}

/* One file: parts of equal size, cut at line ends, stand in for documents. */
static zp_status open_single(struct docs *d, const char *path, zp_err *err)
{
    d->single_file = true;
    d->docs = arena_array(&d->arena, PARTS_OF_SINGLE_FILE, sizeof *d->docs);
    d->files = arena_array(&d->arena, 1, sizeof *d->files);
    ZP_FAIL_IF(!d->docs || !d->files, err, ZP_NO_MEMORY, "not enough memory for %s", path);
    ZP_TRY(read_document(d, path, err));
    const char *text = (const char *)d->files[0].data;
    size_t size = d->files[0].size, at = 0;
    ZP_FAIL_IF(size == 0, err, ZP_BAD_INPUT, "%s: the file is empty; expected text", path);
    for (size_t i = 0; i < PARTS_OF_SINGLE_FILE && at < size; i++) {
        size_t end = size * (i + 1) / PARTS_OF_SINGLE_FILE;
        if (end < at) continue;
        const char *line = end < size ? memchr(text + end, '\n', size - end) : NULL;
        end = line ? (size_t)(line - text) + 1 : size;
        char name[600];
        snprintf(name, sizeof name, "%.560s part %zu", path, i);
        ZP_TRY(add_doc(d, name, text + at, end - at, err));
        at = end;
    }
    return ZP_OK;
}

zp_status docs_open(struct docs *d, const char *path, zp_err *err)
{
    memset(d, 0, sizeof *d);
    d->arena.tag = MEM_EVAP;
    zp_status status = os_is_folder(path) ? open_folder(d, path, err) : open_single(d, path, err);
    if (status != ZP_OK) docs_close(d);
    return status;
}

void docs_close(struct docs *d)
{
    for (size_t i = 0; i < d->n_files; i++) buffer_free(&d->files[i]);
    for (size_t i = 0; i < d->n; i++) mem_free(d->docs[i].ids);
    arena_free(&d->arena);
    memset(d, 0, sizeof *d);
}

/* ---- what has been seen ---------------------------------------------------------------------- */

static bool is_seen(const struct docs *d, uint64_t hash)
{
    for (size_t i = 0; i < d->n_seen; i++)
        if (d->seen[i] == hash) return true;
    return false;
}

zp_status docs_exclude(struct docs *d, const uint64_t *hashes, size_t n, zp_err *err)
{
    uint64_t *all;
    ZP_TAKE(all, &d->arena, d->n_seen + n + 1, err, "the list of documents seen");
    if (d->n_seen) memcpy(all, d->seen, d->n_seen * sizeof *all);
    d->seen = all;
    for (size_t i = 0; i < n; i++)
        if (!is_seen(d, hashes[i])) d->seen[d->n_seen++] = hashes[i];
    for (size_t i = 0; i < d->n; i++)
        if (is_seen(d, d->docs[i].hash)) d->docs[i].held = false;
    return ZP_OK;
}

zp_status docs_seen(const struct docs *d, struct arena *arena, uint64_t **hashes, size_t *n,
                    zp_err *err)
{
    ZP_TAKE(*hashes, arena, d->n_seen + d->n + 1, err, "the list of documents seen");
    *n = d->n_seen;
    if (*n) memcpy(*hashes, d->seen, *n * sizeof **hashes);
    for (size_t i = 0; i < d->n; i++) {
        const struct doc *doc = &d->docs[i];
        if (!doc->held && doc->tokenised && !is_seen(d, doc->hash)) (*hashes)[(*n)++] = doc->hash;
    }
    return ZP_OK;
}

/* ---- windows --------------------------------------------------------------------------------- */

static zp_status tokenise(struct doc *doc, const struct zp_model *m, zp_err *err)
{
    if (doc->tokenised) return ZP_OK;
    const struct tokenizer *t;
    struct token_list list = { 0 };
    ZP_TRY(model_tokenizer(m, &t, err));
    zp_status status = tokenizer_encode(t, doc->text, doc->size, 0, &list, err);
    if (status != ZP_OK) {
        token_list_free(&list); /* what it held before memory ran out */
        return status;
    }
    doc->ids = list.ids;
    doc->n_ids = list.count;
    doc->tokenised = true;
    return ZP_OK;
}

static int32_t first_id(const struct zp_model *m)
{
    const struct tokenizer_info *info = m->tokenizer ? tokenizer_get_info(m->tokenizer) : NULL;
    return info && info->add_bos ? info->bos : TOKEN_NONE;
}

static zp_status add_window(struct windows *w, const int32_t *ids, uint32_t n_ctx, int32_t bos,
                            uint32_t doc, zp_err *err)
{
    struct window *win = &w->at[w->n];
    win->ids = mem_array(MEM_EVAP, n_ctx, sizeof *win->ids);
    ZP_FAIL_IF(!win->ids, err, ZP_NO_MEMORY, "not enough memory for a window of %u tokens", n_ctx);
    size_t skip = bos != TOKEN_NONE;
    if (skip) win->ids[0] = bos;
    memcpy(win->ids + skip, ids, (n_ctx - skip) * sizeof *ids);
    win->n = n_ctx;
    win->doc = doc;
    w->n++;
    return ZP_OK;
}

static bool in_part(const struct doc *doc, enum docs_part part)
{
    return part == DOCS_ALL || doc->held == (part == DOCS_HELD);
}

/* Round r takes window r of every document of the part that is long enough. */
static zp_status collect(struct docs *d, const struct zp_model *m, enum docs_part part,
                         uint32_t n_ctx, size_t n_windows, struct windows *out, zp_err *err)
{
    int32_t bos = first_id(m);
    size_t step = n_ctx - (bos != TOKEN_NONE);
    bool any = true;
    for (size_t round = 0; any && out->n < n_windows; round++) {
        any = false;
        for (size_t i = 0; i < d->n && out->n < n_windows; i++) {
            if (!in_part(&d->docs[i], part)) continue;
            ZP_TRY(tokenise(&d->docs[i], m, err));
            if ((round + 1) * step > d->docs[i].n_ids) continue;
            any = true;
            ZP_TRY(add_window(out, d->docs[i].ids + round * step, n_ctx, bos, (uint32_t)i, err));
        }
    }
    return ZP_OK;
}

zp_status docs_windows(struct docs *d, const struct zp_model *m, enum docs_part part,
                       uint32_t n_ctx, size_t n_windows, size_t least, struct windows *out,
                       zp_err *err)
{
    static const char *const names[] = { "", "planning ", "held-out " };
    memset(out, 0, sizeof *out);
    ZP_FAIL_IF(n_ctx < 16, err, ZP_BAD_INPUT,
               "windows of %u tokens are too short: -c of at least 16 is needed", n_ctx);
    ZP_ALLOC(out->at, MEM_EVAP, n_windows + 1, err, "the window list");
    zp_status status = collect(d, m, part, n_ctx, n_windows, out, err);
    if (status == ZP_OK && out->n < least)
        status = status_fail(err, ZP_BAD_INPUT, __FILE__, __LINE__,
                             "the text gives %zu %swindows of %u tokens; at least %zu are needed: "
                             "give more or longer "
                             "documents, or a smaller -c",
                             out->n, names[part], n_ctx, least);
    if (status != ZP_OK) windows_free(out);
    return status;
}

zp_status docs_contiguous(struct docs *d, const struct zp_model *m, uint32_t n_ctx,
                          size_t n_windows, struct windows *out, zp_err *err)
{
    const struct tokenizer *t;
    struct token_list list = { 0 };
    memset(out, 0, sizeof *out);
    ZP_TRY(model_tokenizer(m, &t, err));
    zp_status status = ZP_OK;
    for (size_t i = 0; i < d->n_files && status == ZP_OK; i++)
        status = tokenizer_encode(t, (const char *)d->files[i].data, d->files[i].size,
                                  i ? 0 : TOKENIZE_AUTO, &list, err);
    size_t have = list.count / n_ctx, n = n_windows && n_windows < have ? n_windows : have;
    int32_t bos = first_id(m);
    if (status == ZP_OK && n == 0)
        status = status_fail(err, ZP_BAD_INPUT, __FILE__, __LINE__,
                             "the text has %zu tokens; one window needs %u: give a longer text or "
                             "a smaller -c", list.count, n_ctx);
    if (status == ZP_OK && !(out->at = mem_array(MEM_EVAP, n, sizeof *out->at)))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for the window list");
    for (size_t i = 0; i < n && status == ZP_OK; i++) {
        status = add_window(out, list.ids + i * n_ctx, n_ctx, TOKEN_NONE, 0, err);
        if (status == ZP_OK && bos != TOKEN_NONE)
            out->at[i].ids[0] = bos; /* in place of its first token */
    }
    token_list_free(&list);
    if (status != ZP_OK) windows_free(out);
    return status;
}

void windows_free(struct windows *w)
{
    for (size_t i = 0; i < w->n; i++) mem_free(w->at[i].ids);
    mem_free(w->at);
    memset(w, 0, sizeof *w);
}

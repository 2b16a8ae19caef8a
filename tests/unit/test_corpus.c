/* test_corpus.c: text files as token documents: each text comes back, sides stay when documents
 * come and go, an interrupted or failed call leaves no file and no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zerope/train.h>

#include "base/os.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "model/gguf_write.h"
#include "train/shards.h"

#define FINE(call)                                                          \
    do {                                                                    \
        zp_err fine_err_ = { 0 }, *err = &fine_err_;                        \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, fine_err_.message);  \
    } while (0)

enum { MOST = 60 };

static void write_text(const char *name, const char *text)
{
    FINE(os_write_file(in_folder(name), text, strlen(text), err));
}

/* Documents d0.txt to d<n - 1>.txt of a folder of their own. */
static const char *write_texts(const char *name, int n)
{
    mkdir(in_folder(name), 0755);
    for (int i = 0; i < n; i++) {
        char path[64], text[128];
        snprintf(path, sizeof path, "%s/d%d.txt", name, i);
        snprintf(text, sizeof text, "Document number %d has this text, and the number %d.\n", i,
                 i * 7919);
        write_text(path, text);
    }
    return in_folder(name);
}

static const zp_corpus_options new_one = { .train_vocab = 300, .held_share = 0.3 };

static void make(const char *input, const char *out, const zp_corpus_options *o)
{
    char path[160];
    snprintf(path, sizeof path, "%s", input);
    FINE(zp_corpus_make((const char *const[]){ path }, 1, out, o, NULL, err));
}

static const char *text_of(const struct shards *s, const struct tokenizer *t, uint32_t doc)
{
    static char text[4096];
    int32_t ids[4096];
    struct buffer b = buffer_with_max(MEM_META, sizeof text - 1);
    size_t n = (size_t)s->docs[doc].n;
    shards_read(s, doc, 0, n, ids);
    FINE(tokenizer_decode(t, ids, n, 0, &b, err));
    memcpy(text, b.data, b.size + 1);
    buffer_free(&b);
    return text;
}

static bool is_named(const struct shards *s, uint32_t doc, const char *name)
{
    const struct shards_doc *d = &s->docs[doc];
    return d->name_size == strlen(name) && memcmp(s->names + d->name_at, name, d->name_size) == 0;
}

static void test_each_text_comes_back(void **state)
{
    (void)state;
    struct shards s;
    struct gguf g;
    struct tokenizer *t;
    const char *page = "<html><body><p>One &amp;\ntwo</p></body></html>";
    write_texts("a", 5);
    write_text("a/page.html", page);
    write_text("a/plain.txt", page);
    make(in_folder("a"), in_folder("a.tokens"), &new_one);
    FINE(shards_open(&s, in_folder("a.tokens"), err));
    FINE(gguf_open(&g, in_folder("tokenizer.gguf"), err));
    FINE(tokenizer_open_gguf(&t, &g, NULL, err));
    FINE(shards_check_tokenizer(&s, t, "m", err));
    assert_int_equal(s.head.n_docs, 7);
    assert_true(is_named(&s, 3, "d3.txt") && is_named(&s, 5, "page.html"));
    assert_string_equal(text_of(&s, t, 3),
                        "Document number 3 has this text, and the number 23757.\n");
    assert_string_equal(text_of(&s, t, 5), "One & two\n");
    assert_string_equal(text_of(&s, t, 6), page);
    /* the hash that evaluations know the document by */
    assert_int_equal(s.docs[6].text_hash, hash_bytes(page, strlen(page), 0));
    tokenizer_close(t);
    gguf_close(&g);
    shards_close(&s);
}

static void test_sides_stay_when_others_come(void **state)
{
    (void)state;
    bool held[MOST];
    size_t n_held = 0;
    for (int n = MOST; n >= 20; n -= 40) {
        struct shards s;
        char name[16];
        snprintf(name, sizeof name, "b%d", n);
        const char *texts = write_texts(name, n); /* in_folder forgets: out comes after it */
        make(texts, in_folder("b.tokens"), &new_one);
        FINE(shards_open(&s, in_folder("b.tokens"), err));
        assert_int_equal(s.head.n_docs, n);
        for (uint32_t i = 0; i < s.head.n_docs; i++) {
            int number = -1;
            sscanf(s.names + s.docs[i].name_at, "d%d.txt", &number);
            assert_in_range(number, 0, MOST - 1);
            if (n == MOST) held[number] = s.docs[i].held;
            else assert_int_equal(held[number], s.docs[i].held);
            n_held += n == MOST && s.docs[i].held;
        }
        shards_close(&s);
    }
    assert_in_range(n_held, MOST / 10, MOST / 2);
}

static void test_either_side_has_a_document(void **state)
{
    (void)state;
    static const double shares[] = { 1e-9, 0.999999999 };
    for (int i = 0; i < 2; i++) {
        zp_corpus_options o = { .train_vocab = 300, .held_share = shares[i] };
        struct shards s;
        uint32_t n_held = 0;
        const char *texts = write_texts("c", 4);
        make(texts, in_folder("c.tokens"), &o);
        FINE(shards_open(&s, in_folder("c.tokens"), err));
        for (uint32_t k = 0; k < s.head.n_docs; k++) n_held += s.docs[k].held;
        assert_int_equal(n_held, i ? 3 : 1);
        shards_close(&s);
    }
}

static bool stop_at(void *arg, const char *what, uint64_t done, uint64_t total)
{
    int *left = arg;
    assert_true(what && done <= total);
    return (*left)-- > 0;
}

static void test_interrupted_work_leaves_no_file(void **state)
{
    (void)state;
    const char *folder_of = write_texts("d", 6), *out = in_folder("d.tokens");
    int calls = 0;
    for (int n = 0; n < 200; n++) {
        int left = n;
        zp_err e = { 0 };
        zp_corpus_options o = new_one;
        o.progress = (zp_progress){ stop_at, &left };
        zp_status status = zp_corpus_make(&folder_of, 1, out, &o, NULL, &e);
        if (status == ZP_OK) break;
        assert_int_equal(status, ZP_INTERRUPTED);
        assert_false(os_exists(out));
        calls++;
    }
    assert_in_range(calls, 12, 18); /* three rounds over six files, one of them without held ones */
    assert_true(os_exists(out));
}

static void test_memory_that_runs_out_leaks_nothing(void **state)
{
    (void)state;
    const char *folder_of = write_texts("e", 3), *out = in_folder("e.tokens");
    write_text("e/page.html", "<p>a</p>");
    uint64_t before = live_bytes();
    for (uint64_t n = 1;; n++) {
        zp_err e = { 0 };
        char *json = NULL;
        mem_fail_at(n, false);
        zp_status status = zp_corpus_make(&folder_of, 1, out, &new_one, &json, &e);
        bool failed = mem_fail_count() > 0;
        mem_fail_at(0, false);
        if (status != ZP_OK) assert_int_equal(status, ZP_NO_MEMORY);
        zp_free(json);
        if (live_bytes() != before) fail_msg("allocation %llu leaks", (unsigned long long)n);
        if (!failed) break;
    }
}

static void test_an_embedding_smaller_than_its_vocabulary_is_refused(void **state)
{
    (void)state;
    struct gguf g;
    struct gguf_edit e;
    zp_err failed = { 0 };
    char folder_path[160];
    snprintf(folder_path, sizeof folder_path, "%s", write_texts("f", 3));
    const char *folder_of = folder_path;
    static const float zeros[4 * 300];
    make(folder_of, in_folder("f.tokens"), &new_one);
    for (uint64_t less = 1; less + 1 > 0; less--) {
        FINE(gguf_open(&g, in_folder("tokenizer.gguf"), err));
        FINE(gguf_edit_init(&e, &g, err));
        uint64_t n = gguf_edit_find_key(&e, "tokenizer.ggml.tokens")->count;
        FINE(gguf_edit_set_tensor_f32(&e, "token_embd.weight", 2, (uint64_t[]){ 4, n - less },
                                      zeros, err));
        FINE(gguf_edit_write(&e, in_folder("f.gguf"), err));
        gguf_edit_free(&e);
        gguf_close(&g);
        zp_corpus_options o = { .tokenizer = in_folder("f.gguf") };
        zp_status status = zp_corpus_make(&folder_of, 1, in_folder("f2.tokens"), &o, NULL, &failed);
        assert_int_equal(status, less ? ZP_BAD_INPUT : ZP_OK);
    }
    assert_non_null(strstr(failed.message, "its embedding"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_text_comes_back),
        cmocka_unit_test(test_sides_stay_when_others_come),
        cmocka_unit_test(test_either_side_has_a_document),
        cmocka_unit_test(test_interrupted_work_leaves_no_file),
        cmocka_unit_test(test_memory_that_runs_out_leaks_nothing),
        cmocka_unit_test(test_an_embedding_smaller_than_its_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

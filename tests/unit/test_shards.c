/* test_shards.c: files of token documents: what is written is read, every damaged byte is seen,
 * wrong counts are refused, and the held-out part depends on the text alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "in_folder.h"
#include "live_bytes.h"
#include "tokenizer_fixture.h"
#include "train/shards.h"

#define FINE(call)                                                          \
    do {                                                                    \
        zp_err fine_err_ = { 0 }, *err = &fine_err_;                        \
        if ((call) != ZP_OK) fail_msg("%s: %s", #call, fine_err_.message);  \
    } while (0)

static struct tokenizer *tokenizer_of(size_t n_more)
{
    static struct test_token tokens[BYTE_LEVEL_ASCII + 8];
    static char texts[BYTE_LEVEL_ASCII][3], more[8][8];
    struct tokenizer *t;
    size_t n = fill_ascii_tokens(tokens, texts);
    tokens[n++] = (struct test_token){ "<|endoftext|>", TOKEN_CONTROL, 0 };
    for (size_t i = 0; i < n_more; i++) {
        snprintf(more[i], sizeof more[i], "~%u~", (unsigned)i % 10);
        tokens[n++] = (struct test_token){ more[i], TOKEN_NORMAL, 0 };
    }
    struct test_vocab v = { .model = "gpt2", .pre = "smollm", .tokens = tokens, .n_tokens = n,
                            .merges = (const char *const[]){ NULL }, .bos = -1, .eos = -1,
                            .unk = -1, .add_bos = -1, .add_space_prefix = -1, .merge_spaces = -1 };
    FINE(open_vocab(&t, &v, NULL, err));
    return t;
}

enum { N_DOCS = 5 };
static const int32_t ids[N_DOCS][4] = {
    { 1, 2, 3, 4 }, { 5 }, { 94, 0, 7 }, { 8, 8 }, { 9, 10, 11, 12 }
};
static const size_t sizes[N_DOCS] = { 4, 1, 3, 2, 4 };

/* wide: as if the vocabulary had more tokens than two bytes can name. */
static void write_small(const char *path, const struct tokenizer *t, bool wide)
{
    struct shards_writer w;
    FINE(shards_writer_open(&w, t, err));
    if (wide) w.head.n_vocab = 70000, w.head.id_bytes = 4;
    for (size_t i = 0; i < N_DOCS; i++) {
        char name[16];
        snprintf(name, sizeof name, "doc%zu.txt", i);
        FINE(shards_writer_add(&w, name, 1000 + i, 20 + i, ids[i], sizes[i], i % 2, err));
    }
    FINE(shards_writer_save(&w, path, err));
    shards_writer_free(&w);
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct tokenizer *t = tokenizer_of(0);
        const char *path = in_folder("a.zpt");
        struct shards s;
        int32_t out[4];
        write_small(path, t, wide);
        FINE(shards_open(&s, path, err));
        assert_int_equal(s.head.id_bytes, wide ? 4 : 2);
        assert_int_equal(s.head.n_docs, N_DOCS);
        assert_int_equal(s.head.n_tokens, 14);
        assert_int_equal(s.head.separator, BYTE_LEVEL_ASCII);
        for (uint32_t i = 0; i < N_DOCS; i++) {
            const struct shards_doc *d = &s.docs[i];
            char name[16];
            snprintf(name, sizeof name, "doc%u.txt", i);
            assert_int_equal(d->n, sizes[i]);
            assert_int_equal(d->held, i % 2);
            assert_int_equal(d->text_hash, 1000 + i);
            assert_int_equal(d->text_bytes, 20 + i);
            assert_int_equal(d->name_size, strlen(name));
            assert_memory_equal(s.names + d->name_at, name, d->name_size);
            shards_read(&s, i, 0, d->n, out);
            assert_memory_equal(out, ids[i], sizes[i] * sizeof *out);
            shards_read(&s, i, d->n - 1, 1, out);
            assert_int_equal(out[0], ids[i][sizes[i] - 1]);
        }
        FINE(shards_check_tokenizer(&s, t, "a", err));
        shards_close(&s);
        tokenizer_close(t);
    }
}

static uint8_t *file_bytes(size_t *size)
{
    struct tokenizer *t = tokenizer_of(0);
    const char *path = in_folder("b.zpt");
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    write_small(path, t, false);
    tokenizer_close(t);
    FINE(os_read_file(path, &b, err));
    uint8_t *copy = malloc(b.size);
    assert_non_null(copy);
    memcpy(copy, b.data, b.size);
    *size = b.size;
    buffer_free(&b);
    return copy;
}

static zp_status open_copy(const uint8_t *data, size_t size)
{
    struct shards s;
    uint8_t *copy = malloc(size ? size : 1); /* exactly so many: a sanitizer sees the next one */
    zp_err err = { 0 };
    assert_non_null(copy);
    memcpy(copy, data, size);
    zp_status status = shards_open_bytes(&s, copy, size, "input", &err);
    if (status != ZP_OK) assert_true(err.message[0] != 0);
    shards_close(&s);
    free(copy);
    return status;
}

static void test_every_bit_and_every_cut_is_noticed(void **state)
{
    (void)state;
    size_t size;
    uint8_t *data = file_bytes(&size);
    assert_int_equal(open_copy(data, size), ZP_OK);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (uint8_t)(1 << bit);
            if (open_copy(data, size) == ZP_OK) fail_msg("bit %d of byte %zu", bit, i);
            data[i] ^= (uint8_t)(1 << bit);
        }
        assert_int_not_equal(open_copy(data, i), ZP_OK);
    }
    free(data);
}

/* Hashes that are right for whatever stands there now. */
static void seal(uint8_t *data, size_t size)
{
    struct shards_header h;
    memcpy(&h, data, sizeof h);
    if (h.ids_at > size || h.ids_at < sizeof h) return;
    h.ids_hash = hash_xxh64(data + h.ids_at, size - h.ids_at, 0);
    memcpy(data, &h, sizeof h);
    size_t begin = offsetof(struct shards_header, version);
    h.tables_hash = hash_xxh64(data + begin, h.ids_at - begin, 0);
    memcpy(data, &h, sizeof h);
}

static void test_lies_under_a_right_hash_are_refused(void **state)
{
    (void)state;
    size_t size;
    uint8_t *data = file_bytes(&size);
    enum { DOC = sizeof(struct shards_header) };
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
    } lies[] = {
        { offsetof(struct shards_header, file_bytes), 1u << 20, 8 },
        { offsetof(struct shards_header, n_tokens), UINT64_MAX, 8 },
        { offsetof(struct shards_header, n_tokens), 13, 8 },
        { offsetof(struct shards_header, ids_at), UINT64_MAX - 7, 8 },
        { offsetof(struct shards_header, ids_at), 128, 8 },
        { offsetof(struct shards_header, n_docs), 0, 4 },
        { offsetof(struct shards_header, n_docs), UINT32_MAX, 4 },
        { offsetof(struct shards_header, n_vocab), 12, 4 },
        { offsetof(struct shards_header, n_vocab), 0, 4 },
        { offsetof(struct shards_header, id_bytes), 4, 4 },
        { offsetof(struct shards_header, id_bytes), 0, 4 },
        { offsetof(struct shards_header, separator), 96, 4 },
        { offsetof(struct shards_header, separator), UINT32_MAX, 4 },
        { offsetof(struct shards_header, names_bytes), UINT32_MAX, 4 },
        { offsetof(struct shards_header, version), 2, 4 },
        { offsetof(struct shards_header, byte_order), 0x04030201, 4 },
        { DOC + offsetof(struct shards_doc, at), 1, 8 },
        { DOC + offsetof(struct shards_doc, n), 0, 8 },
        { DOC + offsetof(struct shards_doc, n), UINT64_MAX, 8 },
        { DOC + offsetof(struct shards_doc, n), 3, 8 },
        { DOC + offsetof(struct shards_doc, name_at), UINT32_MAX, 4 },
        { DOC + offsetof(struct shards_doc, name_size), 1000, 4 },
        { DOC + offsetof(struct shards_doc, held), 2, 4 },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t *copy = malloc(size);
        memcpy(copy, data, size);
        memcpy(copy + lies[i].at, &lies[i].value, lies[i].bytes);
        seal(copy, size);
        if (open_copy(copy, size) == ZP_OK) fail_msg("lie %zu", i);
        free(copy);
    }
    free(data);
}

static void test_another_tokenizer_is_refused(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of(0), *other = tokenizer_of(1);
    struct shards s;
    zp_err failed = { 0 };
    const char *path = in_folder("c.zpt");
    write_small(path, t, false);
    FINE(shards_open(&s, path, err));
    assert_int_equal(shards_check_tokenizer(&s, other, "m.gguf", &failed), ZP_BAD_INPUT);
    assert_non_null(strstr(failed.message, "m.gguf"));
    assert_non_null(strstr(failed.message, "--tokenizer"));
    shards_close(&s);
    tokenizer_close(t);
    tokenizer_close(other);
}

static void test_held_share_is_that_of_the_texts(void **state)
{
    (void)state;
    enum { N = 20000 };
    size_t held[3] = { 0 };
    static const double shares[3] = { 0, 0.05, 1 };
    for (uint64_t i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) held[k] += shards_is_held(i, shares[k]);
    assert_int_equal(held[0], 0);
    assert_int_equal(held[2], N);
    assert_in_range(held[1], N * 4 / 100, N * 6 / 100);
}

static void test_a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_of(0);
    const char *path = in_folder("d.zpt");
    struct shards s;
    struct shards_writer w;
    uint64_t before = live_bytes();
    zp_err failed = { 0 };
    write_small(path, t, false);
    FINE(shards_writer_open(&w, t, err));
    assert_int_equal(shards_writer_save(&w, path, &failed), ZP_BAD_INPUT); /* no documents */
    FINE(shards_writer_add(&w, "x", 1, 1, ids[0], 4, false, err));
    os_fail_writes_after(10);
    failed.code = ZP_OK;
    assert_int_equal(shards_writer_save(&w, path, &failed), ZP_NO_SPACE);
    os_fail_writes_after(UINT64_MAX);
    shards_writer_free(&w);
    FINE(shards_open(&s, path, err));
    assert_int_equal(s.head.n_docs, N_DOCS);
    shards_close(&s);
    assert_int_equal(live_bytes(), before);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_every_bit_and_every_cut_is_noticed),
        cmocka_unit_test(test_lies_under_a_right_hash_are_refused),
        cmocka_unit_test(test_another_tokenizer_is_refused),
        cmocka_unit_test(test_held_share_is_that_of_the_texts),
        cmocka_unit_test(test_a_failed_write_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

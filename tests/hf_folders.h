/* hf_folders.h: what the tests of Hugging Face folders share: a scratch folder, the small models of
 * tests/data/arch, comparison of two opened models. Include after cmocka.h. */
#ifndef TESTS_HF_FOLDERS_H
#define TESTS_HF_FOLDERS_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf.h"
#include "live_bytes.h"

static char folder[64]; /* for files the tests write */

static inline void ok(zp_status status, const zp_err *err)
{
    if (status != ZP_OK) fail_msg("%s", err->message);
}

static inline const char *data_path(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/arch/%s", ZP_TEST_DATA, name);
    return out;
}

static inline void remove_files(void)
{
    char **names;
    size_t count;
    if (os_list_files(folder, &names, &count, NULL) != ZP_OK) return;
    for (size_t i = 0; i < count; i++) unlink(names[i]);
    os_list_free(names, count);
}

static inline void assert_same_models(const struct gguf *a, const struct gguf *b)
{
    assert_int_equal(a->n_kv, b->n_kv);
    for (uint32_t i = 0; i < a->n_kv; i++) {
        const struct gguf_kv *kv = gguf_find_key(b, a->kvs[i].name);
        if (kv == NULL) fail_msg("key %s is in one only", a->kvs[i].name);
        assert_int_equal(kv->type, a->kvs[i].type);
        if (strcmp(kv->name, "general.name") == 0) continue; /* that of the folder */
        assert_int_equal(kv->bytes, a->kvs[i].bytes);
        assert_memory_equal(kv->data, a->kvs[i].data, kv->bytes);
    }
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const struct gguf_tensor *x = &a->tensors[i], *y = gguf_find_tensor(b, x->name);
        if (y == NULL) fail_msg("tensor %s is in one only", x->name);
        assert_int_equal(x->type, y->type);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
        assert_int_equal((uintptr_t)x->data % 8, 0); // G2
    }
}

static inline int make_folder(void **state)
{
    (void)state;
    zp_err err;
    snprintf(folder, sizeof folder, "/tmp/zp-hf-%d", (int)getpid());
    return os_make_folders(folder, &err) == ZP_OK ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    remove_files();
    return rmdir(folder);
}

#endif

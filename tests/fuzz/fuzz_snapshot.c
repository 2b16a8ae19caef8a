/* fuzz_snapshot.c: changes to a saved sequence of a small model, which is then restored and goes
 * on.
 * Input: a byte whose lowest bit says whether the header's hash is made right again, and the
 * others, when they are not 0, how much of the tokens is wanted; a byte that cuts the file when it
 * is not 0; then changes of 3 bytes each: place (little-endian), value. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/os.h"
#include "model/snapshot.h"

enum { N_TOKENS = 150, CTX = 200 };

static zp_engine *engine;
static int32_t ids[N_TOKENS];
static uint8_t *saved;
static size_t saved_size;

static void must(bool good)
{
    if (!good) abort();
}

/* A sequence with windows, sinks and an open tile, through a file as anybody would save it. */
static void open_once(void)
{
    static zp_model *model;
    zp_seq *s = NULL;
    char *path = NULL;
    struct buffer b = buffer_with_max(MEM_META, 1 << 20);
    zp_engine_options o = { .n_ctx = CTX, .n_threads = 1, .kv_type = ZP_KV_Q8 };
    must(zp_model_open(&model, ZP_TEST_DATA "/arch/gguf/zerope-local.gguf", NULL, NULL) == ZP_OK);
    must(zp_engine_open(&engine, model, &o, NULL) == ZP_OK);
    must(zp_seq_open(&s, engine, NULL, NULL) == ZP_OK);
    for (int i = 0; i < N_TOKENS; i++) ids[i] = i;
    zp_item item = { s, ids, N_TOKENS, ZP_WANT_NONE };
    must(zp_engine_run(engine, &item, 1, NULL, 0, NULL, NULL) == ZP_OK);
    must(os_reserve_beside("/tmp/zerope-fuzz-snapshot", &path, NULL) == ZP_OK);
    must(zp_seq_save(s, path, NULL) == ZP_OK && os_read_file(path, &b, NULL) == ZP_OK);
    remove(path);
    mem_free(path);
    zp_seq_close(s);
    saved = b.data, saved_size = b.size;
}

/* The header's hash, where it is computed over what the header says. */
static void seal(uint8_t *file, size_t size)
{
    struct snapshot_header h;
    size_t from = offsetof(struct snapshot_header, payload_at);
    memcpy(&h, file, sizeof h);
    if (h.payload_at < from || h.payload_at > size) return;
    h.hash = hash_xxh64(file + from, h.payload_at - from, 0);
    memcpy(file, &h, sizeof h);
}

static void go_on(zp_seq *s)
{
    int32_t id = 5;
    zp_item item = { s, &id, 1, ZP_WANT_NONE };
    zp_status status = zp_engine_run(engine, &item, 1, NULL, 0, NULL, NULL);
    must(status == ZP_OK || zp_seq_length(s) == CTX);
    zp_seq_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zp_seq *s = NULL;
    zp_err err = { 0 };
    if (!engine) open_once();
    if (size < 2) return 0;
    size_t kept = data[1] ? saved_size * data[1] / 256 : saved_size;
    uint8_t *file = malloc(kept ? kept : 1);
    must(file != NULL);
    memcpy(file, saved, kept);
    for (size_t i = 2; i + 3 <= size; i += 3) {
        size_t at = data[i] | (size_t)data[i + 1] << 8;
        if (at < kept) file[at] = data[i + 2];
    }
    if (data[0] & 1 && kept >= sizeof(struct snapshot_header)) seal(file, kept);
    size_t n = (size_t)N_TOKENS * (data[0] >> 1) / 127;
    if (snapshot_restore(&s, engine, file, kept, "input", n ? ids : NULL, n, &err) == ZP_OK)
        go_on(s);
    free(file);
    must(engine->kv.pages.n_free == engine->kv.pages.n_pages);
    must(engine->kv.open.n_free == engine->kv.open.n_pages);
    return 0;
}

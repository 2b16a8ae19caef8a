/* fuzz_config.c: any text as config.json; where it is understood, writing it back must give a
 * configuration that is understood, too. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include "model/hfconfig_write.h"

static zp_status fill_nothing(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    (void)arg, (void)first, (void)n, (void)out, (void)err;
    return ZP_OK;
}

static void write_back(struct gguf_edit *e, const struct hf_config *c)
{
    struct gguf_edit_tensor embd = {.name = "token_embd.weight", .n_dims = 2,
                                    .ne = {c->d_model, c->n_vocab}, .fill = fill_nothing};
    struct hf_config again;
    struct gguf_edit copy;
    json_t *root;
    if (gguf_edit_set_tensor(e, &embd, NULL) != ZP_OK) return;
    if (hfconfig_write(e, "float32", &root, &again, NULL) != ZP_OK) return;
    zp_err err = {0};
    if (gguf_edit_init(&copy, NULL, NULL) != ZP_OK) abort();
    if (hfkeys_read(root, "written", &copy, &again, &err) != ZP_OK) abort();
    gguf_edit_free(&copy);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root;
    zp_err err = {0};
    struct gguf_edit e;
    struct hf_config c;
    if (json_read_text((const char *)data, size, "input", &root, &err) != ZP_OK) return 0;
    if (gguf_edit_init(&e, NULL, &err) == ZP_OK) {
        if (hfkeys_read(root, "input", &e, &c, &err) == ZP_OK) write_back(&e, &c);
        gguf_edit_free(&e);
    }
    json_decref(root);
    return 0;
}

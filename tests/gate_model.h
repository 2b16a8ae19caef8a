/* gate_model.h: a small model whose position gates do something: added to a model of the test data
 * and filled with made-up weights. Include after golden.h and in_folder.h. */
#ifndef TESTS_GATE_MODEL_H
#define TESTS_GATE_MODEL_H

#include <fcntl.h>
#include <unistd.h>
#include <zerope/evap.h>

#include "base/rng.h"
#include "model/gguf.h"

enum { GATE_SEED = 31 };

/* Of a file or folder; written to `out`. */
static inline void gate_model_write(const char *from, const char *out)
{
    const zp_extend_options o = { .position_gate = true };
    const char *plain = in_folder("plain.gguf");
    struct gguf g;
    struct rng r = rng_stream(GATE_SEED, 0);
    char *json = NULL;
    GOLDEN_OK(zp_quantize(from, plain, "F32", NULL, &json, err));
    zp_free(json);
    GOLDEN_OK(zp_model_extend(plain, out, &o, err));
    GOLDEN_OK(gguf_open(&g, out, err));
    int fd = open(out, O_WRONLY);
    assert_true(fd >= 0);
    for (uint32_t i = 0; i < g.n_tensors; i++) {
        const struct gguf_tensor *t = &g.tensors[i];
        if (strstr(t->name, "pos_gate.weight") == NULL) continue;
        for (size_t at = 0; at < t->bytes; at += sizeof(float)) {
            float w = 0.2f * (float)rng_normal(&r);
            off_t place = (off_t)(t->offset + at);
            assert_int_equal(pwrite(fd, &w, sizeof w, place), sizeof w);
        }
    }
    close(fd);
    gguf_close(&g);
}

#endif

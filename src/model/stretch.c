/* stretch.c: the usual stretchings of rotations, as changes of hyper-parameters.
 * Owns: the spelling of stretchings. Does not know: angles (position.c), engines.
 * R1 what changes is what the keys would change, nothing else: the base of windowed layers follows
 *    the other where the file and the architecture give them none of their own. */
#include "model/stretch.h"

#include <math.h>
#include <string.h>

#include "base/numtext.h"
#include "model/position.h"

#define MOST_FACTOR 1e4
#define MOST_BASE 1e20 /* of arch_read */

enum kind { NTK, LINEAR, YARN, KINDS };
static const char *const names[KINDS] = { "ntk", "linear", "yarn" };

static zp_status read_text(const char *text, enum kind *kind, float *factor, zp_err *err)
{
    size_t size = strcspn(text, ":");
    char *end = NULL;
    int k = 0;
    while (k < KINDS && (strlen(names[k]) != size || memcmp(names[k], text, size) != 0)) k++;
    ZP_FAIL_IF(k == KINDS || text[size] != ':', err, ZP_USAGE,
               "rope scaling '%.40s' is unknown; known: ntk:S, linear:S, yarn:S, as in ntk:4",
               text);
    *kind = (enum kind)k;
    *factor = numtext_float(text + size + 1, &end);
    bool number = end != text + size + 1 && *end == 0;
    ZP_FAIL_IF(!number || !(*factor > 1.0f && (double)*factor <= MOST_FACTOR), err, ZP_USAGE,
               "rope scaling '%.40s': expected a number above 1, at most %g, behind the colon",
               text, MOST_FACTOR);
    return ZP_OK;
}

static zp_status raise_base(struct hparams *h, const struct gguf *g, float factor, zp_err *err)
{
    double d = h->n_rot;
    ZP_FAIL_IF(h->n_rot <= 2, err, ZP_UNSUPPORTED,
               "rope scaling ntk needs more than 2 rotated channels a head, the model has %u",
               h->n_rot);
    double base = (double)h->rope_base * pow((double)factor, d / (d - 2.0));
    ZP_FAIL_IF(!(base <= MOST_BASE), err, ZP_UNSUPPORTED,
               "rope scaling ntk:%g makes a base of %g; at most %g", (double)factor, base,
               MOST_BASE);
    bool own = h->arch->rope_base_swa != 0.0f || gguf_find_key(g, "%.rope.freq_base_swa") ||
               gguf_find_key(g, "%.rope.local.freq_base");
    h->rope_base = (float)base;
    if (!own) h->rope_base_swa = h->rope_base; // R1
    return ZP_OK;
}

zp_status stretch_apply(struct hparams *h, const struct gguf *g, const char *text,
                        char out[STRETCH_TEXT], zp_err *err)
{
    static const char *const scalings[] = { "none", "linear", "yarn", "dynamic" };
    enum kind kind;
    float factor;
    ZP_TRY(read_text(text, &kind, &factor, err));
    ZP_FAIL_IF(h->scaling != ARCH_SCALING_NONE, err, ZP_UNSUPPORTED,
               "rope scaling %s: the file has one of its own (%s by %g)", text,
               scalings[h->scaling], (double)h->scaling_factor);
    numtext_printf(out, STRETCH_TEXT, "%s:%.9g", names[kind], (double)factor);
    if (kind == NTK) return raise_base(h, g, factor, err);
    h->scaling = kind == YARN ? ARCH_SCALING_YARN : ARCH_SCALING_LINEAR;
    h->scaling_factor = factor;
    ZP_FAIL_IF(kind == YARN && !(h->orig_ctx >= 1.0f), err, ZP_BAD_FILE,
               "rope.scaling.original_context_length is %g; expected >= 1", (double)h->orig_ctx);
    return ZP_OK;
}

zp_status stretch_check(const struct position *p, const char *text, zp_err *err)
{
    ZP_FAIL_IF(!position_uses_set(p, 0), err, ZP_UNSUPPORTED,
               "rope scaling %s means nothing here: no layer rotates that it would reach", text);
    return ZP_OK;
}

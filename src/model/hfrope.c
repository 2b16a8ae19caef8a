/* hfrope.c: rope_theta, rope_scaling, rope_parameters, partial_rotary_factor -> GGUF keys.
 * Why agreement is demanded: the theta moved from the root into rope_parameters, and readers that
 * looked in one place only rotated by the default 10,000 without a word. */
#include "model/hfrope.h"

#include <math.h>
#include <string.h>
#include "base/status.h"

#define PI 3.14159265358979323846

/* Places a number may stand in, and their names for messages. */
struct rope {
    const json_t *place[3]; /* rope_parameters (its full_attention), rope_scaling, the root */
    const json_t *local;    /* rope_parameters.sliding_attention */
    const json_t *root;
    const char *where;
    const char *type; /* "default" */
};
enum { IN_PARAMETERS = 1, IN_SCALING = 2, IN_ROOT = 4 };
static const char *const place_names[3] = {"rope_parameters", "rope_scaling", "the root"};

/* Keys are f32: what is tested is what will be stored. */
static bool is_positive(double value) { return (float)value > 0.0f && isfinite((float)value); }

static bool same(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }

/* Looks in the places of the mask; *found = false when in none. */
static zp_status get(const struct rope *r, const char *key, unsigned mask, double *out, bool *found,
                     zp_err *err)
{
    int first = -1;
    *found = false;
    for (int p = 0; p < 3; p++) {
        double value;
        bool here = false;
        if ((mask & (1u << p)) != 0 && r->place[p] != NULL)
            ZP_TRY(json_read_number(r->place[p], key, r->where, &value, &here, err));
        if (!here) continue;
        ZP_FAIL_IF(
            *found && !same(value, *out), err, ZP_BAD_FILE,
            "%s: %s is %g in %s but %g in %s: which one the weights were trained with cannot "
            "be known",
            r->where, key, *out, place_names[first], value, place_names[p]);
        *out = value;
        *found = true;
        first = p;
    }
    return ZP_OK;
}

static zp_status need(const struct rope *r, const char *key, double *out, zp_err *err)
{
    bool found;
    ZP_TRY(get(r, key, IN_PARAMETERS | IN_SCALING, out, &found, err));
    ZP_FAIL_IF(!found, err, ZP_BAD_FILE, "%s: rope type %s needs %s, which is missing", r->where,
               r->type, key);
    ZP_FAIL_IF(!is_positive(*out), err, ZP_BAD_FILE, "%s: %s is %g, expected above 0", r->where,
               key, *out);
    return ZP_OK;
}

/* ---- the places */

static zp_status find_places(struct rope *r, const json_t *root, const struct hf_config *c,
                             zp_err *err)
{
    const json_t *parameters, *full;
    ZP_TRY(json_read_object(root, "rope_parameters", r->where, &parameters, err));
    ZP_TRY(json_read_object(root, "rope_scaling", r->where, &r->place[1], err));
    r->place[0] = parameters;
    r->place[2] = r->root = root;
    if (parameters == NULL) return ZP_OK;
    ZP_TRY(json_read_object(parameters, "full_attention", r->where, &full, err));
    ZP_TRY(json_read_object(parameters, "sliding_attention", r->where, &r->local, err));
    if (full == NULL && r->local == NULL) return ZP_OK;
    ZP_FAIL_IF(full == NULL, err, ZP_BAD_FILE, "%s: rope_parameters has no full_attention",
               r->where);
    ZP_FAIL_IF(c->family->theta_local == 0 && r->local != NULL && !json_equal(full, r->local), err,
               ZP_UNSUPPORTED,
               "%s: rope_parameters differ between layer types, which %s does not do", r->where,
               c->family->model_type);
    r->place[0] = full;
    return ZP_OK;
}

static zp_status one_type(const struct rope *r, const json_t *place, const char **type, zp_err *err)
{
    static const char *const keys[] = {"rope_type", "type"};
    const char *text = NULL;
    bool found;
    for (size_t i = 0; place != NULL && i < ZP_COUNT(keys); i++) {
        ZP_TRY(json_read_string(place, keys[i], r->where, &text, &found, err));
        if (!found) continue;
        ZP_FAIL_IF(*type != NULL && strcmp(*type, text) != 0, err, ZP_BAD_FILE,
                   "%s: the rope type is %.40s in one place and %.40s in another", r->where, *type,
                   text);
        *type = text;
    }
    return ZP_OK;
}

static zp_status find_type(struct rope *r, zp_err *err)
{
    r->type = NULL;
    ZP_TRY(one_type(r, r->place[0], &r->type, err));
    ZP_TRY(one_type(r, r->place[1], &r->type, err));
    for (int p = 0; r->type == NULL && p < 2; p++)
        ZP_FAIL_IF(json_object_get(r->place[p], "factor") != NULL, err, ZP_BAD_FILE,
                   "%s: %s has a factor but no rope_type", r->where, place_names[p]);
    if (r->type == NULL) r->type = "default";
    return ZP_OK;
}

/* ---- thetas and width */

static zp_status put_theta(const struct rope *r, double theta, bool found, double fallback,
                           const char *member, struct gguf_edit *e, const char *key, zp_err *err)
{
    ZP_FAIL_IF(!found && fallback == 0, err, ZP_BAD_FILE,
               "%s: %s is missing, both at the root and in rope_parameters", r->where, member);
    if (!found) theta = fallback;
    ZP_FAIL_IF(!((float)theta > 1.0f && theta < 1e30), err, ZP_BAD_FILE,
               "%s: %s is %g, expected a number above 1", r->where, member, theta);
    return gguf_edit_set_f32(e, key, (float)theta, err);
}

static zp_status read_thetas(const struct rope *r, const struct hf_config *c, struct gguf_edit *e,
                             double *theta, zp_err *err)
{
    double local = 0, nested = 0;
    bool found, found_local, found_nested = false;
    ZP_TRY(get(r, "rope_theta", IN_PARAMETERS | IN_SCALING | IN_ROOT, theta, &found, err));
    ZP_TRY(put_theta(r, *theta, found, c->family->theta, "rope_theta", e, "%.rope.freq_base", err));
    if (!found) *theta = c->family->theta;
    if (c->family->theta_local == 0) return ZP_OK;
    const char *where = r->where;
    ZP_TRY(json_read_number(r->root, "rope_local_base_freq", where, &local, &found_local, err));
    if (r->local != NULL)
        ZP_TRY(json_read_number(r->local, "rope_theta", where, &nested, &found_nested, err));
    ZP_FAIL_IF(found_local && found_nested && !same(local, nested), err, ZP_BAD_FILE,
               "%s: rope_local_base_freq is %g, but rope_parameters.sliding_attention says %g",
               where, local, nested);
    return put_theta(r, found_nested ? nested : local, found_nested || found_local,
                     c->family->theta_local, "rope_local_base_freq", e, "%.rope.freq_base_swa",
                     err);
}

static zp_status read_width(const struct rope *r, struct hf_config *c, struct gguf_edit *e,
                            zp_err *err)
{
    double part = 1.0;
    bool found;
    ZP_TRY(
        get(r, "partial_rotary_factor", IN_PARAMETERS | IN_SCALING | IN_ROOT, &part, &found, err));
    ZP_FAIL_IF(!(part > 0 && part <= 1), err, ZP_BAD_FILE,
               "%s: partial_rotary_factor is %g, expected above 0 and at most 1", r->where, part);
    c->n_rot = (uint32_t)((double)c->d_head * part); /* transformers truncates, too */
    ZP_FAIL_IF(c->n_rot < 2 || c->n_rot % 2 != 0, err, ZP_BAD_FILE,
               "%s: partial_rotary_factor %g rotates %u of %u channels, expected an even number",
               r->where, part, c->n_rot, c->d_head);
    return gguf_edit_set_u32(e, "%.rope.dimension_count", c->n_rot, err);
}

/* ---- scalings */

/* Length of the training before the scaling: in the scaling, at the root, or the whole length. */
static zp_status original_length(const struct rope *r, const struct hf_config *c, double *out,
                                 zp_err *err)
{
    bool found;
    *out = c->n_ctx;
    ZP_TRY(get(r, "original_max_position_embeddings", IN_PARAMETERS | IN_SCALING | IN_ROOT, out,
               &found, err));
    ZP_FAIL_IF(!(*out >= 1 && *out <= UINT32_MAX), err, ZP_BAD_FILE,
               "%s: original_max_position_embeddings is %g, expected 1 or more", r->where, *out);
    return ZP_OK;
}

static zp_status put_scaling(struct gguf_edit *e, const char *type, double factor, zp_err *err)
{
    ZP_TRY(gguf_edit_set_str(e, "%.rope.scaling.type", type, err));
    return gguf_edit_set_f32(e, "%.rope.scaling.factor", (float)factor, err);
}

static double yarn_magnitude(double factor, double scale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * scale * log(factor) + 1.0;
}

/* GGUF's attn_factor multiplies the magnitude 1 + 0.1 ln(factor), transformers' attention_factor
 * replaces it. */
static zp_status put_magnitude(const struct rope *r, double factor, struct gguf_edit *e,
                               zp_err *err)
{
    double given = yarn_magnitude(factor, 1.0), up = 0, down = 0;
    bool found, ignored;
    ZP_TRY(get(r, "attention_factor", IN_PARAMETERS | IN_SCALING, &given, &found, err));
    ZP_TRY(get(r, "mscale", IN_PARAMETERS | IN_SCALING, &up, &ignored, err));
    ZP_TRY(get(r, "mscale_all_dim", IN_PARAMETERS | IN_SCALING, &down, &ignored, err));
    if (!found && up != 0 && down != 0)
        given = yarn_magnitude(factor, up) / yarn_magnitude(factor, down);
    double built_in = 1.0 + 0.1 * log(factor);
    ZP_FAIL_IF(!(built_in > 0), err, ZP_UNSUPPORTED, "%s: yarn with the factor %g", r->where,
               factor);
    ZP_FAIL_IF(!is_positive(given / built_in), err, ZP_BAD_FILE,
               "%s: attention_factor is %g, expected above 0", r->where, given);
    if (same(given, built_in)) return ZP_OK;
    return gguf_edit_set_f32(e, "%.rope.scaling.attn_factor", (float)(given / built_in), err);
}

static zp_status put_beta(const struct rope *r, const char *member, double fallback,
                          struct gguf_edit *e, const char *key, zp_err *err)
{
    double value = fallback;
    bool found;
    ZP_TRY(get(r, member, IN_PARAMETERS | IN_SCALING, &value, &found, err));
    if (value == 0) value = fallback; /* as transformers: 0 counts as absent */
    ZP_FAIL_IF(!is_positive(value), err, ZP_BAD_FILE, "%s: %s is %g, expected above 0", r->where,
               member, value);
    return gguf_edit_set_f32(e, key, (float)value, err);
}

static zp_status read_yarn(const struct rope *r, const struct hf_config *c, struct gguf_edit *e,
                           zp_err *err)
{
    double factor = 0, original;
    bool found, truncate = true;
    for (int p = 0; p < 2; p++)
        if (r->place[p] != NULL)
            ZP_TRY(json_read_bool(r->place[p], "truncate", r->where, &truncate, &found, err));
    ZP_FAIL_IF(!truncate, err, ZP_UNSUPPORTED, "%s: yarn with truncate false", r->where);
    ZP_TRY(original_length(r, c, &original, err));
    ZP_TRY(get(r, "factor", IN_PARAMETERS | IN_SCALING, &factor, &found, err));
    if (!found) factor = c->n_ctx / original;
    ZP_FAIL_IF(!is_positive(factor), err, ZP_BAD_FILE, "%s: factor is %g, expected above 0",
               r->where, factor);
    ZP_TRY(put_scaling(e, "yarn", factor, err));
    ZP_TRY(gguf_edit_set_u32(e, "%.rope.scaling.original_context_length", (uint32_t)original, err));
    ZP_TRY(put_magnitude(r, factor, e, err));
    ZP_TRY(put_beta(r, "beta_fast", 32.0, e, "%.rope.scaling.yarn_beta_fast", err));
    return put_beta(r, "beta_slow", 1.0, e, "%.rope.scaling.yarn_beta_slow", err);
}

static zp_status read_dynamic(const struct rope *r, const struct hf_config *c, struct gguf_edit *e,
                              zp_err *err)
{
    double factor, original;
    ZP_TRY(need(r, "factor", &factor, err));
    ZP_TRY(original_length(r, c, &original, err));
    ZP_TRY(put_scaling(e, "dynamic", factor, err));
    return gguf_edit_set_u32(e, "%.rope.scaling.original_context_length", (uint32_t)original, err);
}

/* Llama 3.1: slow pairs divided by factor, fast ones kept, those between interpolated; stored as
 * one divisor a pair. */
static zp_status read_llama3(const struct rope *r, const struct hf_config *c, struct gguf_edit *e,
                             double theta, zp_err *err)
{
    float divisor[512]; /* n_rot <= 1024 */
    double factor, low, high, original;
    ZP_TRY(need(r, "factor", &factor, err));
    ZP_TRY(need(r, "low_freq_factor", &low, err));
    ZP_TRY(need(r, "high_freq_factor", &high, err));
    ZP_TRY(original_length(r, c, &original, err));
    ZP_FAIL_IF(!(high > low), err, ZP_BAD_FILE,
               "%s: high_freq_factor %g is not above low_freq_factor %g", r->where, high, low);
    uint64_t n_pair = c->n_rot / 2;
    for (uint32_t i = 0; i < n_pair; i++) {
        double wave = 2.0 * PI * pow(theta, 2.0 * i / c->n_rot);
        double smooth = (original / wave - low) / (high - low);
        if (wave > original / low) smooth = 0.0;
        if (wave < original / high) smooth = 1.0;
        divisor[i] = (float)(1.0 / ((1.0 - smooth) / factor + smooth));
        ZP_FAIL_IF(!isfinite(divisor[i]), err, ZP_BAD_FILE,
                   "%s: factor %g is too large, 1e30 closes a pair", r->where, factor);
    }
    return gguf_edit_set_tensor_f32(e, "rope_freqs.weight", 1, &n_pair, divisor, err);
}

static zp_status read_scaling(const struct rope *r, const struct hf_config *c, struct gguf_edit *e,
                              double theta, zp_err *err)
{
    double factor;
    if (strcmp(r->type, "default") == 0) return ZP_OK;
    if (strcmp(r->type, "linear") == 0) {
        ZP_TRY(need(r, "factor", &factor, err));
        return put_scaling(e, "linear", factor, err);
    }
    if (strcmp(r->type, "yarn") == 0) return read_yarn(r, c, e, err);
    if (strcmp(r->type, "dynamic") == 0) return read_dynamic(r, c, e, err);
    if (strcmp(r->type, "llama3") == 0) return read_llama3(r, c, e, theta, err);
    ZP_FAIL(err, ZP_UNSUPPORTED,
            "%s: rope type %.40s is unknown; known: default, linear, dynamic, yarn, llama3",
            r->where, r->type);
}

static zp_status check_local(const struct rope *r, const struct hf_config *c, zp_err *err)
{
    const char *type = NULL;
    if (r->local == NULL || c->family->theta_local == 0) return ZP_OK;
    ZP_TRY(one_type(r, r->local, &type, err));
    ZP_FAIL_IF(type != NULL && strcmp(type, "default") != 0, err, ZP_UNSUPPORTED,
               "%s: rope_parameters.sliding_attention has the rope type %.40s, expected default",
               r->where, type);
    return ZP_OK;
}

zp_status hfrope_read(const json_t *root, const char *where, struct gguf_edit *e,
                      struct hf_config *c, zp_err *err)
{
    struct rope r = {.where = where};
    double theta = 0;
    ZP_TRY(find_places(&r, root, c, err));
    ZP_TRY(find_type(&r, err));
    ZP_TRY(check_local(&r, c, err));
    ZP_TRY(read_thetas(&r, c, e, &theta, err));
    ZP_TRY(read_width(&r, c, e, err));
    return read_scaling(&r, c, e, theta, err);
}

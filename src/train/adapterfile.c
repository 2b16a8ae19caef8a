/* adapterfile.c: PEFT's folders of adapters, read and written.
 * Owns: the open file of tensors. Does not know: what adapters do. */
#include "train/adapterfile.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/hftensors.h"
#include "base/json_build.h"
#include "model/json_read.h"
#include "model/safetensors_write.h"

#define ROOT "base_model.model.model.layers."
enum { NAME = 128, MODULE = 32, CONFIG_BYTES = 1 << 20 };
static const char *const halves[] = { "lora_A", "lora_B" };

/* ---- names ----------------------------------------------------------------------------------- */

/* "self_attn.q_proj", by the table of Hugging Face's names. */
static void module_of(enum adapter_target target, char out[MODULE])
{
    const char *tensor = adapter_target_tensor(target) + strlen("blk.%u.");
    const struct hf_slot *slot = hf_layer_slot(0);
    for (size_t i = 0; slot && strcmp(slot->gguf, tensor) != 0;) slot = hf_layer_slot(++i);
    const char *name = slot ? slot->hf : tensor; /* the table has all of them */
    (void)snprintf(out, MODULE, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
}

/* "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight" */
static void name_of(uint32_t layer, enum adapter_target target, int half, char out[NAME])
{
    char module[MODULE];
    module_of(target, module);
    (void)snprintf(out, NAME, ROOT "%u.%s.%s.weight", layer, module, halves[half]);
}

/* The target whose adapters, in some layer, have such a name; ADAPTER_TARGETS: none. */
static enum adapter_target target_of(const char *name)
{
    unsigned layer;
    char same[NAME];
    if (sscanf(name, ROOT "%5u.", &layer) != 1) return ADAPTER_TARGETS;
    for (unsigned t = 0; t < ADAPTER_TARGETS; t++)
        for (int half = 0; half < 2; half++) {
            name_of(layer, (enum adapter_target)t, half, same);
            if (strcmp(name, same) == 0) return (enum adapter_target)t;
        }
    return ADAPTER_TARGETS;
}

static zp_status path_in(const char *folder, const char *name, char out[PATH_MAX], zp_err *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", folder, name);
    ZP_FAIL_IF(n < 0 || n >= PATH_MAX, err, ZP_BAD_INPUT, "%.100s...: the path is too long",
               folder);
    return ZP_OK;
}

/* ---- reading the configuration --------------------------------------------------------------- */

/* F2: what changes the meaning of A and B. */
static zp_status check_kind(const json_t *root, const char *where, zp_err *err)
{
    static const char *const flags[] = { "use_rslora", "use_dora", "lora_bias", "fan_in_fan_out" };
    static const char *const lists[] = { "rank_pattern", "alpha_pattern", "modules_to_save",
                                         "layer_replication", "target_parameters",
                                         "trainable_token_indices" };
    const char *kind = "?", *bias = "none";
    bool found, on = false;
    ZP_TRY(json_read_string(root, "peft_type", where, &kind, &found, err));
    ZP_FAIL_IF(!found || strcmp(kind, "LORA") != 0, err, ZP_UNSUPPORTED,
               "%s: peft_type is %.40s, only LORA is read", where, found ? kind : "missing");
    ZP_TRY(json_read_string(root, "bias", where, &bias, &found, err));
    ZP_FAIL_IF(strcmp(bias, "none") != 0, err, ZP_UNSUPPORTED,
               "%s: bias is %.40s: biases with adapters are not read", where, bias);
    for (size_t i = 0; i < ZP_COUNT(flags); i++) {
        ZP_TRY(json_read_bool(root, flags[i], where, &on, &found, err));
        ZP_FAIL_IF(found && on, err, ZP_UNSUPPORTED, "%s: adapters with %s are not read", where,
                   flags[i]);
    }
    for (size_t i = 0; i < ZP_COUNT(lists); i++) {
        const json_t *value = json_object_get(root, lists[i]);
        bool empty = !value || json_is_null(value) ||
                     (json_is_array(value) && json_array_size(value) == 0) ||
                     (json_is_object(value) && json_object_size(value) == 0);
        ZP_FAIL_IF(!empty, err, ZP_UNSUPPORTED, "%s: adapters with a %s are not read", where,
                   lists[i]);
    }
    return ZP_OK;
}

static zp_status read_config(struct adapterfile *f, const json_t *root, const char *where,
                             zp_err *err)
{
    bool found;
    ZP_FAIL_IF(!json_is_object(root), err, ZP_BAD_FILE, "%s: is no object", where);
    ZP_TRY(check_kind(root, where, err));
    ZP_TRY(json_read_u32(root, "r", where, &f->rank, &found, err));
    ZP_FAIL_IF(!found || f->rank == 0, err, ZP_BAD_FILE, "%s: the rank (r) is %s, expected 1 or "
               "more", where, found ? "0" : "missing");
    ZP_TRY(json_read_number(root, "lora_alpha", where, &f->alpha, &found, err));
    ZP_FAIL_IF(!found, err, ZP_BAD_FILE, "%s: lora_alpha is missing", where);
    ZP_FAIL_IF(!(f->alpha > 0), err, ZP_BAD_FILE, "%s: lora_alpha is %g, expected above 0", where,
               f->alpha);
    return ZP_OK;
}

static zp_status fill(struct adapterfile *f, zp_err *err)
{
    char path[PATH_MAX];
    json_t *root;
    ZP_TRY(path_in(f->folder, ADAPTERFILE_CONFIG, path, err));
    ZP_TRY(json_read_file(path, CONFIG_BYTES, &root, err));
    zp_status status = read_config(f, root, path, err);
    json_decref(root);
    if (status != ZP_OK) return status;
    ZP_TRY(path_in(f->folder, ADAPTERFILE_TENSORS, path, err));
    ZP_TRY(safetensors_open(&f->tensors, path, err));
    f->hash = hash_xxh64(f->tensors.maps[0].data, f->tensors.maps[0].size, 0);
    for (uint32_t i = 0; i < f->tensors.n_tensors; i++) {
        enum adapter_target t = target_of(f->tensors.tensors[i].name);
        if (t != ADAPTER_TARGETS) f->targets |= 1u << t;
    }
    ZP_FAIL_IF(f->targets == 0, err, ZP_BAD_INPUT,
               "%s: none of its %u tensors is an adapter known here (named like " ROOT
               "0.self_attn.q_proj.lora_A.weight)", path, f->tensors.n_tensors);
    return ZP_OK;
}

zp_status adapterfile_open(struct adapterfile *f, const char *folder, zp_err *err)
{
    *f = (struct adapterfile){ .folder = folder };
    zp_status status = fill(f, err);
    if (status != ZP_OK) adapterfile_close(f);
    return status;
}

void adapterfile_close(struct adapterfile *f)
{
    safetensors_close(&f->tensors);
    *f = (struct adapterfile){ 0 };
}

/* ---- order of rows --------------------------------------------------------------------------- */

/* Row of the parameters (netparam.h, P2) that is row `row` of a Hugging Face matrix. */
static size_t row_here(const struct adapter *a, const struct netparam_tensor *t, size_t row)
{
    const struct hparams *h = &a->param->model->h;
    return t->rows == NETPARAM_PLAIN ? row : (size_t)hf_row_of_halves(row, h->d_head, h->n_rot);
}

/* ---- reading tensors ------------------------------------------------------------------------- */

static bool has_shape(const struct safetensors_tensor *t, size_t rows, size_t columns)
{
    return t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == columns;
}

/* rows (n_rows, n) of t to out; of: whose rows they are, NULL: nobody's. */
static zp_status copy_rows(const struct adapterfile *f, const struct safetensors_tensor *t,
                           const struct adapter *a, const struct netparam_tensor *of, float *out,
                           zp_err *err)
{
    size_t n = (size_t)t->shape[1];
    ZP_FAIL_IF(t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16, err,
               ZP_UNSUPPORTED, "%s: %.100s has dtype %s, adapters are F32, F16 or BF16", f->folder,
               t->name, safetensors_dtype_name(t->dtype));
    for (size_t r = 0; r < t->shape[0]; r++)
        for (size_t c = 0; c < n; c++) {
            float value = safetensors_value(t, r * n + c);
            ZP_FAIL_IF(!isfinite(value), err, ZP_BAD_FILE, "%s: %.100s holds %g at %zu, %zu",
                       f->folder, t->name, (double)value, r, c);
            out[(of ? row_here(a, of, r) : r) * n + c] = value;
        }
    return ZP_OK;
}

/* The adapter of m, if f has one; its tensors are marked as used. */
static zp_status load_matrix(const struct adapterfile *f, struct adapter *a,
                             const struct adapter_matrix *m, uint8_t *used, size_t *n_loaded,
                             zp_err *err)
{
    const struct netparam_tensor *of = m->of;
    const struct safetensors_tensor *t[2];
    char name[2][NAME];
    for (int half = 0; half < 2; half++) {
        name_of(of->layer, m->target, half, name[half]);
        t[half] = safetensors_find(&f->tensors, name[half]);
        if (t[half]) used[t[half] - f->tensors.tensors] = 1;
    }
    if (!t[0] && !t[1]) return ZP_OK;
    ZP_FAIL_IF(!t[0] || !t[1], err, ZP_BAD_FILE, "%s: has %s, but not %s", f->folder,
               name[t[0] ? 0 : 1], name[t[0] ? 1 : 0]);
    if (!has_shape(t[0], f->rank, of->n_in) || !has_shape(t[1], of->n_out, f->rank)) {
        log_warn("%s: left out: %s and %s do not fit a matrix of %zu x %zu at rank %u", f->folder,
                 name[0], halves[1], of->n_out, of->n_in, f->rank);
        return ZP_OK;
    }
    ZP_TRY(copy_rows(f, t[0], a, NULL, a->x + m->a, err));
    ZP_TRY(copy_rows(f, t[1], a, of, a->x + m->b, err));
    ++*n_loaded;
    return ZP_OK;
}

static zp_status load_all(const struct adapterfile *f, struct adapter *a, uint8_t *used,
                          zp_err *err)
{
    size_t n_loaded = 0;
    for (size_t i = 0; i < a->n_matrices; i++)
        ZP_TRY(load_matrix(f, a, &a->matrices[i], used, &n_loaded, err));
    for (uint32_t i = 0; i < f->tensors.n_tensors; i++)
        if (!used[i])
            log_warn("%s: left out: %.100s is of no matrix that has an adapter here", f->folder,
                     f->tensors.tensors[i].name);
    ZP_FAIL_IF(n_loaded == 0, err, ZP_BAD_INPUT,
               "%s: none of its %u tensors fits a matrix that has an adapter here", f->folder,
               f->tensors.n_tensors);
    return ZP_OK;
}

zp_status adapterfile_load(const struct adapterfile *f, struct adapter *a, zp_err *err)
{
    uint8_t *used;
    ZP_FAIL_IF(f->rank != a->options.rank, err, ZP_USAGE, "%s: adapters of rank %u, expected %u",
               f->folder, f->rank, a->options.rank);
    ZP_ALLOC(used, MEM_TRAIN, f->tensors.n_tensors, err, "a list of tensors");
    memset(used, 0, f->tensors.n_tensors);
    zp_status status = load_all(f, a, used, err);
    mem_free(used);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct source { /* of B */
    const struct adapter *a;
    const struct adapter_matrix *m;
};

static zp_status fill_rows(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err)
{
    const struct source *s = arg;
    size_t rank = s->a->options.rank;
    float *to = out;
    ZP_UNUSED(err);
    for (uint64_t i = 0; i < n; i++, to += rank) {
        size_t row = row_here(s->a, s->m->of, (size_t)(first + i));
        memcpy(to, s->a->x + s->m->b + row * rank, rank * sizeof *to);
    }
    return ZP_OK;
}

static zp_status write_tensors(const struct adapter *a, const char *path, struct arena *arena,
                               zp_err *err)
{
    struct safetensors_out *out;
    struct source *sources;
    char (*names)[NAME];
    size_t n = a->n_matrices, rank = a->options.rank;
    ZP_TAKE(out, arena, 2 * n, err, "a list of tensors");
    ZP_TAKE(sources, arena, n, err, "a list of tensors");
    ZP_TAKE(names, arena, 2 * n, err, "names of tensors");
    for (size_t i = 0; i < n; i++) {
        const struct adapter_matrix *m = &a->matrices[i];
        sources[i] = (struct source){ a, m };
        for (int half = 0; half < 2; half++)
            name_of(m->of->layer, m->target, half, names[2 * i + half]);
        out[2 * i] = (struct safetensors_out){ .name = names[2 * i], .dtype = ST_F32, .n_dims = 2,
                                               .shape = { rank, m->of->n_in },
                                               .data = a->x + m->a };
        out[2 * i + 1] = (struct safetensors_out){ .name = names[2 * i + 1], .dtype = ST_F32,
                                                   .n_dims = 2, .shape = { m->of->n_out, rank },
                                                   .fill = fill_rows, .fill_arg = &sources[i] };
    }
    return safetensors_write(path, out, (uint32_t)(2 * n), err);
}

/* The targets as PEFT names them: the last part of a module. */
static void build_modules(struct json_build *w, const struct adapter *a)
{
    char module[MODULE];
    json_build_array(w, "target_modules");
    for (unsigned t = 0; t < ADAPTER_TARGETS; t++) {
        if (!(a->options.targets >> t & 1)) continue;
        module_of((enum adapter_target)t, module);
        json_build_text(w, NULL, strrchr(module, '.') + 1);
    }
    json_build_array_end(w);
}

static zp_status build_config(const struct adapter *a, const char *base, char **out, zp_err *err)
{
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "peft_type", "LORA");
    json_build_text(&w, "task_type", "CAUSAL_LM");
    json_build_text(&w, "base_model_name_or_path", base);
    json_build_uint(&w, "r", a->options.rank);
    json_build_real(&w, "lora_alpha", a->options.alpha, 17);
    build_modules(&w, a);
    json_build_text(&w, "bias", "none");
    json_build_uint(&w, "lora_dropout", 0);
    json_build_bool(&w, "fan_in_fan_out", false);
    json_build_bool(&w, "use_rslora", false);
    json_build_bool(&w, "use_dora", false);
    json_build_bool(&w, "init_lora_weights", true);
    json_build_bool(&w, "inference_mode", true);
    json_build_null(&w, "modules_to_save");
    json_build_object_end(&w);
    return json_build_finish(&w, out);
}

zp_status adapterfile_write(const struct adapter *a, const char *base, const char *folder,
                            zp_err *err)
{
    char path[PATH_MAX], *config;
    struct arena arena = { .tag = MEM_TRAIN };
    ZP_TRY(os_make_folders(folder, err));
    ZP_TRY(path_in(folder, ADAPTERFILE_TENSORS, path, err));
    zp_status status = write_tensors(a, path, &arena, err);
    arena_free(&arena);
    if (status != ZP_OK) return status;
    ZP_TRY(path_in(folder, ADAPTERFILE_CONFIG, path, err));
    ZP_TRY(build_config(a, base, &config, err));
    status = os_write_file(path, config, strlen(config), err);
    mem_free(config);
    return status;
}

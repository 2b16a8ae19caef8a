/* inspect.c: the document of `inspect`: what a model file is, what its layers do with positions,
 * and what running it will take.
 * Owns: nothing. I1 the memory shown is what an engine with these options will count.  I2 keys that
 * hold JSON of ours are shown as far as they parse, and never make an error. */
#include "model/inspect.h"

#include <jansson.h>
#include <string.h>

#include "model/engine.h"
#include "model/json_read.h"

/* ---- metadata -------------------------------------------------------------------------------- */

static void write_types(struct json_build *w, const struct gguf *g)
{
    json_build_array(w, "types");
    const struct quant_traits *t;
    for (size_t k = 0; (t = quant_traits_at(k)) != NULL; k++) {
        uint64_t n = 0, bytes = 0;
        for (uint32_t i = 0; i < g->n_tensors; i++)
            if (g->tensors[i].type == t->type) n++, bytes += g->tensors[i].bytes;
        if (n == 0) continue;
        json_build_object(w, NULL);
        json_build_text(w, "type", t->name);
        json_build_uint(w, "tensors", n);
        json_build_uint(w, "bytes", bytes);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

static void write_metadata(struct json_build *w, const struct zp_model *m, const zp_model_info *i)
{
    json_build_text(w, "file", m->gguf.path);
    json_build_text(w, "format", m->gguf.folder ? "hugging face folder" : "gguf");
    json_build_text(w, "arch", i->arch);
    json_build_text(w, "name", i->name);
    json_build_text(w, "header_sha256", zp_model_sha256(m));
    json_build_uint(w, "file_bytes", i->file_bytes);
    json_build_uint(w, "n_params", i->n_params);
    json_build_uint(w, "n_layer", i->n_layer);
    json_build_uint(w, "n_head", i->n_head);
    json_build_uint(w, "n_kv", i->n_kv);
    json_build_uint(w, "d_head", i->d_head);
    json_build_uint(w, "d_model", i->d_model);
    json_build_uint(w, "d_ff", i->d_ff);
    json_build_uint(w, "n_vocab", i->n_vocab);
    json_build_uint(w, "n_ctx_train", i->n_ctx_train);
    json_build_uint(w, "n_ctx_validated", i->n_ctx_validated);
}

/* ---- positions ------------------------------------------------------------------------------- */

static void write_rope(struct json_build *w, const struct hparams *h, const struct position *p)
{
    static const char *const scalings[] = { "none", "linear", "yarn", "dynamic" };
    json_build_object(w, "rope");
    json_build_uint(w, "n_pair", p->n_pair);
    json_build_text(w, "pairing", h->arch->pairing == ARCH_INTERLEAVED ? "interleaved" : "halves");
    json_build_real(w, "base", (double)h->rope_base, 9);
    json_build_real(w, "base_windowed", (double)h->rope_base_swa, 9);
    json_build_text(w, "scaling", scalings[h->scaling]);
    json_build_real(w, "scaling_factor", (double)h->scaling_factor, 9);
    if (h->scaling == ARCH_SCALING_YARN || h->scaling == ARCH_SCALING_DYNAMIC)
        json_build_real(w, "original_ctx", (double)h->orig_ctx, 9);
    json_build_bool(w, "divisors", h->rope_freqs != NULL);
    json_build_real(w, "softmax_scale", (double)p->attn_scale, 9);
    json_build_object_end(w);
}

/* An angle set's base belongs to layers that rotate; others show null. */
static void write_base(struct json_build *w, const struct hparams *h, const struct position *p,
                       uint32_t layer)
{
    bool rotates = p->kind[layer] == POSITION_ROPE || p->kind[layer] == POSITION_PARTIAL;
    float base = p->angle_set[layer] ? h->rope_base_swa : h->rope_base;
    if (rotates) json_build_real(w, "base", (double)base, 9);
    else json_build_null(w, "base");
}

static void write_layer(struct json_build *w, const struct hparams *h, const struct position *p,
                        uint32_t layer)
{
    const struct position_head *heads = &p->heads[(size_t)layer * p->n_kv];
    bool local = false;
    json_build_object(w, NULL);
    json_build_uint(w, "layer", layer);
    json_build_text(w, "kind", position_kind_name(p->kind[layer]));
    json_build_array(w, "open");
    for (uint32_t k = 0; k < p->n_kv; k++) {
        json_build_uint(w, NULL, heads[k].n_open);
        local = local || heads[k].window != 0;
    }
    json_build_array_end(w);
    json_build_uint(w, "of", p->n_pair);
    json_build_uint(w, "window", p->window[layer]);
    write_base(w, h, p, layer);
    json_build_array(w, "head_window");
    for (uint32_t k = 0; local && k < p->n_kv; k++) json_build_uint(w, NULL, heads[k].window);
    json_build_array_end(w);
    if (p->scale_c) json_build_real(w, "scale_c", (double)p->scale_c[layer], 9);
    if (position_layer_has_gate(p, layer)) json_build_bool(w, "position_gate", true);
    if (position_layer_has_bias(p, layer)) {
        uint32_t closed = 0;
        for (uint32_t i = 0; p->bias_gate && i < p->n_head; i++)
            closed += p->bias_gate[layer * p->n_head + i] == 0.0f;
        json_build_uint(w, "biases_open", p->n_head - closed);
    }
    json_build_object_end(w);
}

void inspect_write_gates(struct json_build *w, const struct position *p)
{
    json_build_array(w, "closed_gates");
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++)
        for (uint32_t s = p->heads[i].n_open; s < p->n_pair; s++) {
            if (position_layer_has_bias(p, i / p->n_kv)) break;
            json_build_array(w, NULL);
            json_build_uint(w, NULL, i / p->n_kv);
            json_build_uint(w, NULL, i % p->n_kv);
            json_build_uint(w, NULL, p->heads[i].pair[s]);
            json_build_array_end(w);
        }
    json_build_array_end(w);
    json_build_array(w, "local_heads");
    for (uint32_t i = 0; i < p->n_layer * p->n_kv; i++) {
        if (p->heads[i].window == 0) continue;
        json_build_array(w, NULL);
        json_build_uint(w, NULL, i / p->n_kv);
        json_build_uint(w, NULL, i % p->n_kv);
        json_build_uint(w, NULL, p->heads[i].window);
        json_build_array_end(w);
    }
    json_build_array_end(w);
    json_build_uint(w, "sinks", p->n_sink);
}

static void write_positions(struct json_build *w, const struct zp_model *m, const zp_model_info *i)
{
    const struct position *p = &m->position;
    json_build_object(w, "gates");
    json_build_uint(w, "total", i->gates_total);
    json_build_uint(w, "closed", i->gates_closed);
    json_build_uint(w, "layers_none", i->layers_none);
    json_build_uint(w, "heads_none", i->heads_none);
    json_build_uint(w, "heads_local", i->heads_local);
    json_build_object_end(w);
    write_rope(w, &m->h, p);
    json_build_object(w, "mode");
    json_build_text(w, "default", position_mode_name(p->mode_default));
    json_build_uint(w, "auto_threshold", p->auto_threshold);
    json_build_bool(w, "has_half", p->has_half);
    json_build_bool(w, "has_evidence", p->verified[ZP_MODE_FULL]);
    json_build_object_end(w);
    json_build_array(w, "position");
    for (uint32_t l = 0; l < p->n_layer; l++) write_layer(w, &m->h, p, l);
    json_build_array_end(w);
    inspect_write_gates(w, p);
}

/* Only of models that have one. */
static void write_structure(struct json_build *w, const struct zp_model *m)
{
    const struct structhead *s = &m->structure;
    if (!s->weight) return;
    json_build_object(w, "structure_head");
    json_build_uint(w, "parameters", structhead_count(s));
    json_build_real(w, "share", (double)structhead_count(s) / (double)m->n_params, 4);
    json_build_array(w, "layers");
    for (uint32_t l = 0; l < s->n_layer; l++)
        if (structhead_bias(s, l)) json_build_uint(w, NULL, l);
    json_build_array_end(w);
    json_build_array(w, "types");
    for (int k = 0; k < STRUCT_TYPES; k++)
        json_build_text(w, NULL, structhead_type_name((enum struct_type)k));
    json_build_array_end(w);
    json_build_object_end(w);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void write_token(struct json_build *w, const char *key, const struct tokenizer *t,
                        int32_t id)
{
    if (id == TOKEN_NONE) {
        json_build_null(w, key);
        return;
    }
    size_t size;
    const char *text = tokenizer_token_text(t, id, &size);
    json_build_object(w, key);
    json_build_int(w, "id", id);
    json_build_bytes(w, "text", text, size);
    json_build_object_end(w);
}

static void write_text_parts(struct json_build *w, const struct zp_model *m)
{
    json_build_object(w, "tokenizer");
    if (m->tokenizer) {
        const struct tokenizer_info *t = tokenizer_get_info(m->tokenizer);
        json_build_text(w, "model", t->model);
        json_build_text(w, "pre", t->pre);
        json_build_int(w, "n_vocab", t->n_vocab);
        json_build_bool(w, "add_bos", t->add_bos);
        json_build_bool(w, "add_eos", t->add_eos);
        write_token(w, "bos", m->tokenizer, t->bos);
        write_token(w, "eos", m->tokenizer, t->eos);
        write_token(w, "eot", m->tokenizer, t->eot);
        write_token(w, "unk", m->tokenizer, t->unk);
        write_token(w, "pad", m->tokenizer, t->pad);
    } else json_build_text(w, "error", m->tokenizer_error.message);
    json_build_object_end(w);
    json_build_object(w, "template");
    json_build_uint(w, "bytes", m->template_text ? strlen(m->template_text) : 0);
    if (m->template) json_build_bool(w, "tools", template_reads(m->template, "tools"));
    else json_build_text(w, "error", m->template_error.message);
    json_build_object_end(w);
}

/* ---- what the file tells of itself ----------------------------------------------------------- */

/* A key's JSON object, or NULL: what such a key says wrongly is no error of the model. */
static zp_status parse_key(const struct gguf *g, const char *key, json_t **out, zp_err *err)
{
    struct gguf_str s = { 0 };
    *out = NULL;
    if (gguf_get_str_or_null(g, key, &s, NULL) != ZP_OK || !s.data) return ZP_OK;
    ZP_TRY(json_read_or_null(s.data, s.size, out, err));
    if (json_is_object(*out)) return ZP_OK;
    json_decref(*out);
    *out = NULL;
    return ZP_OK;
}

static void copy_scalar(struct json_build *w, const json_t *from, const char *key)
{
    enum { LONGEST = 240 };
    const json_t *v = json_object_get(from, key);
    size_t size = json_string_length(v);
    if (json_is_string(v))
        json_build_bytes(w, key, json_string_value(v), size < LONGEST ? size : LONGEST);
    else if (json_is_integer(v)) json_build_int(w, key, json_integer_value(v));
    else if (json_is_real(v)) json_build_real(w, key, json_real_value(v), 9);
    else if (json_is_boolean(v)) json_build_bool(w, key, json_is_true(v));
}

static void copy_scalars(struct json_build *w, const json_t *from, const char *const *keys)
{
    for (; *keys; keys++) copy_scalar(w, from, *keys);
}

static zp_status write_recipe(struct json_build *w, const struct gguf *g, zp_err *err)
{
    static const char *const keys[] = { "command",      "method",    "ctx",           "budget_kl",
                                        "kl_mean",      "kl_hi",     "windows_check", "uniform",
                                        "layers",       "close_all", "uniform_slow",  "folded",
                                        "local_window", NULL };
    json_t *recipe;
    ZP_TRY(parse_key(g, "zerope.recipe", &recipe, err));
    if (!recipe) return ZP_OK;
    json_build_object(w, "recipe");
    copy_scalars(w, recipe, keys);
    json_build_object_end(w);
    json_decref(recipe);
    return ZP_OK;
}

/* Verdicts are counted as the page of verify counts them: what is neither passed nor failed has
 * none. */
static void write_verdicts(struct json_build *w, const json_t *checks)
{
    size_t n = json_array_size(checks), passed = 0, failed = 0;
    if (!json_is_array(checks)) return;
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_object_get(json_array_get(checks, i), "status"));
        passed += s && strcmp(s, "pass") == 0;
        failed += s && strcmp(s, "fail") == 0;
    }
    json_build_uint(w, "checks", n);
    json_build_uint(w, "passed", passed);
    json_build_uint(w, "failed", failed);
    json_build_uint(w, "without_verdict", n - passed - failed);
}

static zp_status write_evidence(struct json_build *w, const struct gguf *g, zp_err *err)
{
    static const char *const keys[] = { "status", "ctx", "base", "text", "quick", NULL },
                             *const quality[] = { "kl_mean", "kl_hi", NULL };
    json_t *evidence;
    ZP_TRY(parse_key(g, "zerope.evidence", &evidence, err));
    if (!evidence) return ZP_OK;
    json_build_object(w, "evidence");
    copy_scalars(w, evidence, keys);
    write_verdicts(w, json_object_get(evidence, "checks"));
    copy_scalars(w, json_object_get(evidence, "quality"), quality);
    json_build_object_end(w);
    json_decref(evidence);
    return ZP_OK;
}

/* ---- what running takes ---------------------------------------------------------------------- */

static zp_status write_memory(struct json_build *w, const struct zp_model *m,
                              const zp_inspect_options *want, zp_err *err)
{
    static const char *const kv_names[] = { [ZP_KV_F32] = "f32", [ZP_KV_BF16] = "bf16",
                                            [ZP_KV_Q8] = "q8" };
    zp_engine_options o = want->engine;
    struct engine_plan plan;
    ZP_TRY(engine_plan(m, &o, &plan, err));
    json_build_object(w, "memory");
    json_build_uint(w, "n_ctx", o.n_ctx);
    json_build_uint(w, "n_seq", o.n_seq);
    json_build_uint(w, "n_threads", o.n_threads);
    json_build_uint(w, "micro_batch", o.micro_batch);
    json_build_text(w, "kv_type", kv_names[o.kv_type]);
    json_build_bool(w, "exact", o.exact);
    json_build_bool(w, "prefix_cache", o.prefix_cache);
    json_build_uint(w, "weights_bytes", plan.weights);
    json_build_uint(w, "kv_bytes", plan.kv);
    json_build_uint(w, "scratch_bytes", plan.scratch);
    json_build_uint(w, "position_bytes", plan.position);
    json_build_uint(w, "total_bytes", plan.weights + plan.kv + plan.scratch + plan.position);
    json_build_uint(w, "kv_bytes_per_token", engine_kv_bytes_per_token(&m->position, &o));
    json_build_uint(w, "available_bytes", os_memory_available());
    json_build_object_end(w);
    return ZP_OK;
}

void inspect_write_kernels(struct json_build *w, const struct kern_table *t)
{
    char features[256];
    kern_cpu_features(features, sizeof features);
    json_build_object(w, "kernels");
    json_build_text(w, "level", kern_level_name(t->level));
    json_build_text(w, "features", features);
    for (size_t i = 0; i < kern_op_count(); i++) json_build_text(w, kern_op_name(i), t->names[i]);
    json_build_object_end(w);
}

static void write_tensors(struct json_build *w, const struct gguf *g)
{
    json_build_array(w, "tensors");
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const struct quant_traits *traits = quant_traits_find(t->type);
        json_build_object(w, NULL);
        json_build_text(w, "name", t->name);
        json_build_text(w, "type", traits ? traits->name : "unknown");
        json_build_array(w, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++) json_build_uint(w, NULL, t->ne[d]);
        json_build_array_end(w);
        json_build_uint(w, "bytes", t->bytes);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

zp_status zp_inspect_json(const zp_model *m, const zp_inspect_options *options, char **json,
                          zp_err *err)
{
    zp_inspect_options o = options ? *options : (zp_inspect_options){ 0 };
    struct json_build w;
    struct kern_table kern;
    zp_model_info info;
    zp_model_describe(m, &info);
    kern_table_init(&kern, KERN_LEVEL_COUNT);
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    write_metadata(&w, m, &info);
    write_types(&w, &m->gguf);
    write_positions(&w, m, &info);
    write_structure(&w, m);
    zp_status status = write_recipe(&w, &m->gguf, err);
    if (status == ZP_OK) status = write_evidence(&w, &m->gguf, err);
    write_text_parts(&w, m);
    if (status == ZP_OK) status = write_memory(&w, m, &o, err);
    inspect_write_kernels(&w, &kern);
    if (o.tensors) write_tensors(&w, &m->gguf);
    json_build_object_end(&w);
    if (w.status == ZP_OK) w.status = status;
    return json_build_finish(&w, json);
}

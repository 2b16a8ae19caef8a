/* hfconfig.c: opens a Hugging Face folder as a struct gguf: config.json by hfkeys.c, weights by
 * hftensors.c, then everything they made moves into the struct gguf, which owns it from there on.
 */
#include "model/hfconfig.h"

#include <stdio.h>
#include <string.h>
#include "base/os.h"
#include "base/status.h"
#include "kern/quant.h"
#include "model/hftensors.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)

struct opening {
    struct gguf_edit e;
    struct safetensors s;
    struct hf_blocks blocks;
    struct hf_config c;
};

static zp_status join(struct gguf_edit *e, const char *folder, const char *name, const char **out,
                      zp_err *err)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = arena_alloc(&e->arena, size);
    ZP_FAIL_IF(path == NULL, err, ZP_NO_MEMORY, "not enough memory for a path");
    snprintf(path, size, "%s/%s", folder, name);
    *out = path;
    return ZP_OK;
}

static zp_status join_if_exists(struct gguf_edit *e, const char *folder, const char *name,
                                const char **out, zp_err *err)
{
    ZP_TRY(join(e, folder, name, out, err));
    if (!os_exists(*out)) *out = NULL;
    return ZP_OK;
}

/* ---- keys */

static zp_status read_config(struct opening *o, const char *path, zp_err *err)
{
    json_t *root;
    ZP_TRY(json_read_file(path, MAX_CONFIG_BYTES, &root, err));
    zp_status status = hfkeys_read(root, path, &o->e, &o->c, err);
    json_decref(root);
    return status;
}

/* Optional; only its list of end tokens is of interest, which is more complete than config.json's.
 */
static zp_status read_generation(struct opening *o, const char *folder, zp_err *err)
{
    const char *path;
    json_t *root;
    ZP_TRY(join_if_exists(&o->e, folder, "generation_config.json", &path, err));
    if (path == NULL) return ZP_OK;
    ZP_TRY(json_read_file(path, MAX_CONFIG_BYTES, &root, err));
    zp_status status = hfkeys_read_eos(root, path, &o->e, err);
    json_decref(root);
    return status;
}

/* The last part of the folder's path is the model's name. */
static zp_status put_name(struct gguf_edit *e, const char *folder, zp_err *err)
{
    size_t end = strlen(folder);
    while (end > 0 && folder[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/') begin--;
    size_t bad;
    if (end == begin || !utf8_is_valid(folder + begin, end - begin, &bad)) return ZP_OK;
    return gguf_edit_set_strn(e, "general.name", folder + begin, end - begin, err);
}

static zp_status put_file_type(struct gguf_edit *e, zp_err *err)
{
    const struct gguf_edit_tensor *t = gguf_edit_find_tensor(e, "token_embd.weight");
    const struct quant_traits *traits = t == NULL ? NULL : quant_traits_find(t->type);
    return traits == NULL ? ZP_OK
                          : gguf_edit_set_u32(e, "general.file_type", traits->file_type, err);
}

/* ---- texts */

/* The file as a key; no file, no key. */
static zp_status put_text(struct gguf_edit *e, const char *folder, const char *name,
                          const char *key, size_t most, zp_err *err)
{
    const char *path;
    ZP_TRY(join_if_exists(e, folder, name, &path, err));
    if (path == NULL) return ZP_OK;
    struct buffer text = buffer_with_max(MEM_META, most);
    zp_status status = os_read_regular(path, &text, err);
    if (status == ZP_OK)
        status = gguf_edit_set_strn(e, key, (const char *)text.data, text.size, err);
    buffer_free(&text);
    return status;
}

/* "chat_template" of tokenizer_config.json: a text, or a list of {name, template} of which the one
 * named default counts. */
static const char *configured_template(const json_t *config)
{
    const json_t *found = json_object_get(config, "chat_template"), *item;
    size_t i;
    if (!json_is_array(found)) return json_string_value(found);
    json_array_foreach(found, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(item, "template"));
    }
    return NULL;
}

/* A configuration that cannot be read is reported where the tokenizer is opened. */
static zp_status put_template(struct gguf_edit *e, const char *folder, zp_err *err)
{
    const char *path;
    json_t *config;
    zp_err why = { 0 };
    ZP_TRY(put_text(e, folder, "chat_template.jinja", "tokenizer.chat_template", MAX_CONFIG_BYTES,
                    err));
    if (gguf_edit_find_key(e, "tokenizer.chat_template")) return ZP_OK;
    ZP_TRY(join_if_exists(e, folder, "tokenizer_config.json", &path, err));
    if (path == NULL) return ZP_OK;
    zp_status status = json_read_file(path, MAX_CONFIG_BYTES, &config, &why);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, err, status, "%s", why.message);
    const char *text = status == ZP_OK ? configured_template(config) : NULL;
    status = text ? gguf_edit_set_str(e, "tokenizer.chat_template", text, err) : ZP_OK;
    json_decref(config);
    return status;
}

static zp_status put_texts(struct gguf_edit *e, const char *folder, zp_err *err)
{
    ZP_TRY(put_text(e, folder, "tokenizer.json", "tokenizer.huggingface.json",
                    MAX_TOKENIZER_BYTES, err));
    ZP_TRY(put_text(e, folder, "tokenizer_config.json", "zerope.tokenizer.config",
                    MAX_CONFIG_BYTES, err));
    return put_template(e, folder, err);
}

/* ---- the hand-over */

static void give_blocks(struct gguf *g, struct opening *o)
{
    g->maps = o->s.maps;
    g->n_maps = o->s.n_maps;
    o->s.maps = NULL;
    o->s.n_maps = 0;
    g->blocks = o->blocks.items;
    g->n_blocks = o->blocks.n;
    o->blocks = (struct hf_blocks){0};
}

static zp_status hand_over(struct gguf *g, struct opening *o, const char *folder, zp_err *err)
{
    for (uint32_t i = 0; i < o->s.n_maps; i++) g->file_bytes += o->s.maps[i].size;
    g->folder = arena_strndup(&o->e.arena, folder, strlen(folder));
    g->path = mem_strdup(MEM_META, folder);
    ZP_FAIL_IF(g->folder == NULL || g->path == NULL, err, ZP_NO_MEMORY,
               "not enough memory for a path");
    ZP_TRY(gguf_from_edit(g, &o->e, err));
    give_blocks(g, o);
    return gguf_build_indexes(g, err);
}

static zp_status fill(struct gguf *g, struct opening *o, const char *folder,
                      const char *config_name, zp_err *err)
{
    const char *config;
    ZP_TRY(gguf_edit_init(&o->e, NULL, err));
    ZP_FAIL_IF(!os_is_folder(folder), err, ZP_BAD_INPUT, "%s: is not a folder", folder);
    ZP_TRY(join(&o->e, folder, config_name, &config, err));
    ZP_FAIL_IF(!os_exists(config), err, ZP_BAD_INPUT,
               "%s: a folder without %s: expected a GGUF file or a Hugging Face model folder",
               folder, config_name);
    ZP_TRY(read_config(o, config, err));
    ZP_TRY(read_generation(o, folder, err));
    ZP_TRY(put_name(&o->e, folder, err));
    ZP_TRY(put_texts(&o->e, folder, err));
    ZP_TRY(safetensors_open_folder(&o->s, folder, err));
    ZP_TRY(hftensors_read(&o->s, &o->c, folder, &o->e, &o->blocks, err));
    ZP_TRY(put_file_type(&o->e, err));
    return hand_over(g, o, folder, err);
}

zp_status hf_open_config(struct gguf *g, const char *folder, const char *config_name, zp_err *err)
{
    struct opening o = {0};
    *g = (struct gguf){.arch = ""};
    zp_status status = fill(g, &o, folder, config_name, err);
    gguf_edit_free(&o.e);
    safetensors_close(&o.s);
    hf_blocks_free(&o.blocks);
    if (status != ZP_OK) gguf_close(g);
    return status;
}

zp_status hf_open(struct gguf *g, const char *folder, zp_err *err)
{
    return hf_open_config(g, folder, "config.json", err);
}

zp_status hf_or_gguf_open(struct gguf *g, const char *path, zp_err *err)
{
    return os_is_folder(path) ? hf_open(g, path, err) : gguf_open(g, path, err);
}

/* text.c: the public calls about text and tokens, over tokenizer and template.
 * Owns: nothing. Does not know: engines, sampling.
 * X1 special tokens in what a user wrote are never parsed unless asked for.
 * X2 a rendered prompt begins with BOS exactly once where the model wants one. */
#include "model/text.h"

#include <string.h>

#include "model/json_read.h"
#include "model/messages.h"

int32_t text_bos(const struct zp_model *m)
{
    const struct tokenizer_info *info = m->tokenizer ? tokenizer_get_info(m->tokenizer) : NULL;
    return info && info->add_bos ? info->bos : TOKEN_NONE;
}

bool zp_model_wants_bos(const zp_model *m)
{
    return text_bos(m) != TOKEN_NONE;
}

bool zp_token_ends(const zp_model *m, int32_t id)
{
    return m->tokenizer && tokenizer_is_eog(m->tokenizer, id);
}

/* Hands the list to the caller: ids is never NULL, so that zp_free and a count of 0 work. */
static zp_status give_ids(struct token_list *list, int32_t **ids, size_t *n, zp_err *err)
{
    if (!list->ids) ZP_ALLOC(list->ids, MEM_META, 1, err, "token ids");
    *ids = list->ids;
    *n = list->count;
    return ZP_OK;
}

zp_status zp_tokenize(const zp_model *m, const char *text, size_t size, int flags, int32_t **ids,
                      size_t *n, zp_err *err)
{
    const struct tokenizer *t;
    struct token_list list = { 0 };
    unsigned f = flags & ZP_TOKENS_SPECIAL ? TOKENIZE_SPECIAL : 0;
    *ids = NULL, *n = 0;
    ZP_TRY(model_tokenizer(m, &t, err));
    if (flags & ZP_TOKENS_BOS && text_bos(m) != TOKEN_NONE) f |= TOKENIZE_BOS;
    zp_status status = tokenizer_encode(t, text, size, f, &list, err);
    if (status == ZP_OK) status = give_ids(&list, ids, n, err);
    if (status != ZP_OK) token_list_free(&list);
    return status;
}

zp_status zp_detokenize(const zp_model *m, const int32_t *ids, size_t n, bool special, char **text,
                        size_t *size, zp_err *err)
{
    const struct tokenizer *t;
    struct buffer b = buffer_with_max(MEM_META, (size_t)1 << 30);
    *text = NULL, *size = 0;
    ZP_TRY(model_tokenizer(m, &t, err));
    zp_status status = buffer_append(&b, "", 0, err); /* no ids: still a NUL-terminated text */
    if (status == ZP_OK)
        status = tokenizer_decode(t, ids, n, special ? DETOKENIZE_SPECIAL : 0, &b, err);
    if (status != ZP_OK) {
        buffer_free(&b);
        return status;
    }
    *text = (char *)b.data;
    *size = b.size;
    return ZP_OK;
}

/* ---- chat templates ------------------------------------------------------------------------- */

/* Sets key to the given text, else to the model's token of that id, else leaves the input's own,
 * else the empty text. False: no memory. */
static bool set_token(json_t *input, const char *key, const char *given, const struct tokenizer *t,
                      int32_t id)
{
    size_t size = 0;
    const char *own = t && id != TOKEN_NONE ? tokenizer_token_text(t, id, &size) : NULL;
    if (given) own = given, size = strlen(given);
    if (own && utf8_is_valid(own, size, NULL))
        return json_object_set_new(input, key, json_stringn(own, size)) == 0;
    if (json_is_string(json_object_get(input, key))) return true;
    return json_object_set_new(input, key, json_string("")) == 0;
}

static bool set_tokens(json_t *input, const zp_template_options *o, const struct tokenizer *t)
{
    const struct tokenizer_info *info = t ? tokenizer_get_info(t) : NULL;
    bool ok = set_token(input, "bos_token", o->bos, t, info ? info->bos : TOKEN_NONE);
    return set_token(input, "eos_token", o->eos, t, info ? info->eos : TOKEN_NONE) && ok;
}

zp_status text_set_tokens(const struct zp_model *m, json_t *input, zp_err *err)
{
    static const zp_template_options defaults = { 0 };
    bool ok = set_tokens(input, &defaults, m->tokenizer);
    ZP_FAIL_IF(!ok, err, ZP_NO_MEMORY, "not enough memory for the template's input");
    return ZP_OK;
}

/* Makes the template's variables of what the caller gave. */
static zp_status complete_input(json_t *input, const zp_template_options *o,
                                const struct tokenizer *t, zp_err *err)
{
    bool ok = true, ask = !o->no_generation_prompt;
    ZP_TRY(messages_check(input, "template input", err));
    if (!ask || !json_object_get(input, "add_generation_prompt"))
        ok = json_object_set_new(input, "add_generation_prompt", json_boolean(ask)) == 0;
    ok = set_tokens(input, o, t) && ok;
    ZP_FAIL_IF(!ok, err, ZP_NO_MEMORY, "not enough memory for the template's input");
    return ZP_OK;
}

static zp_status read_input(const char *text, const zp_template_options *o,
                            const struct tokenizer *t, json_t **out, zp_err *err)
{
    static const zp_template_options defaults = { 0 };
    json_t *input;
    ZP_TRY(json_read_text(text, strlen(text), "template input", &input, err));
    if (json_is_array(input)) {
        json_t *object = json_object();
        bool ok = json_object_set_new(object, "messages", input) == 0; /* takes input in any case */
        if (!ok) json_decref(object);
        ZP_FAIL_IF(!ok, err, ZP_NO_MEMORY, "not enough memory for the template's input");
        input = object;
    }
    zp_status status = complete_input(input, o ? o : &defaults, t, err);
    if (status == ZP_OK) *out = input;
    else json_decref(input);
    return status;
}

static zp_status render(const struct template *t, const char *input_json,
                        const zp_template_options *o, const struct tokenizer *tokens,
                        struct template_output *out, zp_err *err)
{
    json_t *input;
    ZP_TRY(read_input(input_json, o, tokens, &input, err));
    zp_status status = template_render(t, input, out, err);
    json_decref(input);
    return status;
}

zp_status text_add_bos(const struct zp_model *m, struct token_list *ids, zp_err *err)
{
    int32_t bos = text_bos(m);
    if (bos == TOKEN_NONE || (ids->count && ids->ids[0] == bos)) return ZP_OK;
    ZP_TRY(token_list_push(ids, bos, err));
    memmove(ids->ids + 1, ids->ids, (ids->count - 1) * sizeof *ids->ids);
    ids->ids[0] = bos;
    return ZP_OK;
}

/* Ids of the rendered pieces, with BOS in front where the template has not written it (X1, X2). */
static zp_status encode(const struct zp_model *m, const struct tokenizer *t,
                        const struct template_output *r, struct token_list *list, zp_err *err)
{
    struct text_segment *pieces;
    ZP_ALLOC(pieces, MEM_META, r->n_segment + 1, err, "the pieces of the prompt");
    for (size_t i = 0; i < r->n_segment; i++)
        pieces[i] = (struct text_segment){ r->text + r->segments[i].offset, r->segments[i].size,
                                           !r->segments[i].from_user };
    zp_status status = tokenizer_encode_segments(t, pieces, r->n_segment, 0, list, err);
    mem_free(pieces);
    ZP_TRY(status);
    return text_add_bos(m, list, err);
}

static zp_status encode_for_caller(const struct zp_model *m, const struct template_output *r,
                                   int32_t **ids, size_t *n, zp_err *err)
{
    const struct tokenizer *t;
    struct token_list list = { 0 };
    ZP_TRY(model_tokenizer(m, &t, err));
    zp_status status = encode(m, t, r, &list, err);
    if (status == ZP_OK) status = give_ids(&list, ids, n, err);
    if (status != ZP_OK) token_list_free(&list);
    return status;
}

zp_status zp_template_render(const zp_model *m, const char *input_json,
                             const zp_template_options *options, char **text, int32_t **ids,
                             size_t *n_ids, zp_err *err)
{
    const struct template *t;
    struct template_output out = { 0 };
    if (text) *text = NULL;
    if (ids) *ids = NULL, *n_ids = 0;
    ZP_TRY(model_template(m, &t, err));
    zp_status status = render(t, input_json, options, m->tokenizer, &out, err);
    if (status == ZP_OK && ids) status = encode_for_caller(m, &out, ids, n_ids, err);
    if (status == ZP_OK && text) {
        *text = out.text;
        out.text = NULL;
    }
    template_output_free(&out);
    return status;
}

zp_status zp_template_render_text(const char *template_text, const char *input_json,
                                  const zp_template_options *options, char **text, zp_err *err)
{
    struct template *t;
    struct template_output out = { 0 };
    *text = NULL;
    ZP_TRY(template_open(&t, template_text, strlen(template_text), "chat template", err));
    zp_status status = render(t, input_json, options, NULL, &out, err);
    if (status == ZP_OK) {
        *text = out.text;
        out.text = NULL;
    }
    template_output_free(&out);
    template_close(t);
    return status;
}

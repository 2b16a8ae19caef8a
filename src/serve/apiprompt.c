/* apiprompt.c: from messages and texts to ids, by a model's template and tokenizer.
 * Owns: ids, text and form of a prompt. Does not know: engines, sockets.
 * P1 special tokens are read in the template's own text, in what stands before a call that must
 *    come, and in the prompts of completions; never in messages, tools and beginnings of answers.
 * P2 a prompt begins with BOS exactly once where the model wants one, but for prompts of ids.
 * P3 marks of positions are text, unless the request asks for anchors. */
#include "serve/apiprompt.h"

#include <string.h>

#include "model/text.h"
#include "serve/toolprompt.h"

#define MOST_TEXT ((size_t)1 << 30)

static zp_status tell(struct apifault *fault, const char *param, zp_status status,
                      const zp_err *err)
{
    return status == ZP_OK ? ZP_OK : apifault_of_err(fault, param, err);
}

/* BOS in front, and anchors one further. P2 */
static zp_status add_bos(struct apiprompt *p, const struct zp_model *m, zp_err *err)
{
    size_t n = p->ids.count;
    ZP_TRY(text_add_bos(m, &p->ids, err));
    if (p->ids.count > n) anchors_shift(&p->anchors);
    return ZP_OK;
}

/* Pieces that are one text, as ids and as what they say. */
static zp_status encode_pieces(struct apiprompt *p, const struct zp_model *m,
                               const struct text_segment *pieces, size_t n, bool anchors,
                               zp_err *err)
{
    if (anchors) // P3
        return anchors_encode(m->tokenizer, pieces, n, &p->ids, &p->anchors, &p->text, err);
    ZP_TRY(tokenizer_encode_segments(m->tokenizer, pieces, n, 0, &p->ids, err));
    for (size_t i = 0; i < n; i++)
        ZP_TRY(buffer_append(&p->text, pieces[i].text, pieces[i].size, err));
    return ZP_OK;
}

/* ---- chats ----------------------------------------------------------------------------------- */

/* What the model makes of a template that it has not, or that cannot be read, is its owner's
 * affair. */
static zp_status find_template(const struct zp_model *m, const struct template **t,
                               struct apifault *fault)
{
    if (model_template(m, t, NULL) == ZP_OK) return ZP_OK;
    return apifault_set(fault, 400, "no_chat_template", "messages",
                        "the model has no chat template that can be used; /v1/completions takes "
                        "its prompts as they are");
}

static zp_status render(const struct zp_model *m, const struct template *t, json_t *input,
                        struct template_output *out, struct apifault *fault)
{
    zp_err err = { 0 };
    zp_status status = template_reads(t, "tools") ? ZP_OK : toolprompt_apply(input, &err);
    if (status == ZP_OK) status = text_set_tokens(m, input, &err);
    ZP_TRY(tell(fault, "messages", status, &err));
    if (template_render(t, input, out, &err) == ZP_OK) return ZP_OK;
    return apifault_of_template(fault, &err);
}

/* The rendered pieces, and behind them what the answer begins with. */
static zp_status encode(struct apiprompt *p, const struct zp_model *m, const struct api_request *a,
                        const struct template_output *r, zp_err *err)
{
    const char *before = p->has_form ? p->form.before : "";
    const char *prefill = a->prefill != NULL ? a->prefill : "";
    struct text_segment *pieces;
    size_t n = r->n_segment;
    ZP_ALLOC(pieces, MEM_SERVE, n + 2, err, "the pieces of the prompt");
    for (size_t i = 0; i < n; i++)
        pieces[i] = (struct text_segment){ r->text + r->segments[i].offset, r->segments[i].size,
                                           !r->segments[i].from_user };
    pieces[n] = (struct text_segment){ prefill, strlen(prefill), false };
    pieces[n + 1] = (struct text_segment){ before, strlen(before), true };
    zp_status status = encode_pieces(p, m, pieces, n + 2, a->anchors, err);
    mem_free(pieces);
    return status == ZP_OK ? add_bos(p, m, err) : status;
}

static zp_status open_form(struct apiprompt *p, const struct api_request *r,
                           struct apifault *fault)
{
    zp_err err = { 0 };
    p->has_form = r->tool_choice == TOOLS_REQUIRED || r->tool_choice == TOOLS_NAMED;
    if (!p->has_form) return ZP_OK;
    return tell(fault, "tools", toolform_open(&p->form, p->style, r->tools, r->tool_name, &err),
                &err);
}

zp_status apiprompt_open_chat(struct apiprompt *p, const struct zp_model *m, struct api_request *r,
                              struct apifault *fault)
{
    const struct template *t;
    const struct tokenizer *tokens;
    struct template_output out = { 0 };
    zp_err err = { 0 };
    *p = (struct apiprompt){ .text = buffer_with_max(MEM_SERVE, MOST_TEXT) };
    ZP_TRY(find_template(m, &t, fault));
    ZP_TRY(tell(fault, "messages", model_tokenizer(m, &tokens, &err), &err));
    p->style = template_reads(t, "tools") ? toolcalls_style_of(m->template_text)
                                          : TOOLCALLS_TAGGED; /* as toolprompt.h says it */
    ZP_TRY(open_form(p, r, fault));
    zp_status status = render(m, t, r->input, &out, fault);
    if (status == ZP_OK)
        status = tell(fault, "messages", encode(p, m, r, &out, &err), &err);
    template_output_free(&out);
    p->in_reasoning = toolcalls_opens_reasoning((const char *)p->text.data, p->text.size);
    return status;
}

/* ---- completions ----------------------------------------------------------------------------- */

static zp_status add_text(struct apiprompt *p, const struct zp_model *m,
                          const struct api_prompt *prompt, bool anchors, zp_err *err)
{
    const struct text_segment piece = { prompt->text, prompt->size, true };
    return encode_pieces(p, m, &piece, 1, anchors, err);
}

static zp_status add_ids(struct apiprompt *p, const struct zp_model *m,
                         const struct api_prompt *prompt, zp_err *err)
{
    ZP_TRY(tokenizer_decode(m->tokenizer, prompt->ids, prompt->n_ids, DETOKENIZE_SPECIAL, &p->text,
                            err));
    for (size_t i = 0; i < prompt->n_ids; i++)
        ZP_TRY(token_list_push(&p->ids, prompt->ids[i], err));
    return ZP_OK;
}

static zp_status open_text(struct apiprompt *p, const struct zp_model *m,
                           const struct api_prompt *prompt, bool anchors, zp_err *err)
{
    const struct tokenizer *tokens;
    ZP_TRY(model_tokenizer(m, &tokens, err));
    ZP_TRY(buffer_append(&p->text, "", 0, err)); /* an empty text is one, too */
    bool of_text = prompt->text != NULL;
    ZP_TRY(of_text ? add_text(p, m, prompt, anchors, err) : add_ids(p, m, prompt, err));
    p->echo.text = (const char *)p->text.data, p->echo.size = p->text.size;
    size_t n = p->ids.count;
    if (of_text) ZP_TRY(add_bos(p, m, err));
    if (n == 0 || p->ids.count > n) return ZP_OK; /* BOS is not echoed */
    struct sched_logprob *first = &p->echo.first;
    first->id = p->ids.ids[0];
    first->bytes = (const char *)tokenizer_token_bytes(tokens, first->id, &first->n_bytes);
    return ZP_OK;
}

zp_status apiprompt_open_text(struct apiprompt *p, const struct zp_model *m,
                              const struct api_prompt *prompt, bool anchors,
                              struct apifault *fault)
{
    zp_err err = { 0 };
    *p = (struct apiprompt){ .text = buffer_with_max(MEM_SERVE, MOST_TEXT) };
    return tell(fault, "prompt", open_text(p, m, prompt, anchors, &err), &err);
}

void apiprompt_free(struct apiprompt *p)
{
    token_list_free(&p->ids);
    anchor_list_free(&p->anchors);
    buffer_free(&p->text);
    toolform_free(&p->form);
    *p = (struct apiprompt){ 0 };
}

/* ---- forms ----------------------------------------------------------------------------------- */

zp_status apiprompt_open_grammar(zp_grammar **out, const struct apiprompt *p,
                                 const struct zp_model *m, const struct api_request *r,
                                 struct apifault *fault)
{
    zp_err err = { 0 };
    zp_status status = ZP_OK;
    *out = NULL;
    if (p->has_form) {
        const struct buffer *schema = &p->form.schema;
        status = zp_grammar_open_schema(out, m, (const char *)schema->data, schema->size, &err);
        return tell(fault, "tools", status, &err);
    }
    switch (r->form) {
    case FORM_ANY: break;
    case FORM_OBJECT: status = zp_grammar_open_json(out, m, &err); break;
    case FORM_SCHEMA:
        status = zp_grammar_open_schema(out, m, r->form_text, r->form_size, &err);
        break;
    case FORM_GRAMMAR: status = zp_grammar_open_gbnf(out, m, r->form_text, r->form_size, &err);
    }
    return tell(fault, r->form_param, status, &err);
}

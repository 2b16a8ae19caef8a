/* tokenizer.h: text <-> token ids of one model. The only tokenizer header other modules include.
 * Immutable after open: any number of threads may encode and decode with one tokenizer at a time.
 * Text is UTF-8; ill-formed text is refused with its offset (T1: nothing is replaced or dropped
 * silently). Ids are int32_t; TOKEN_NONE marks "the model has no such token". */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bytes.h"
#include "base/status.h"
#include "model/gguf.h"

struct tokenizer;

#define TOKEN_NONE (-1)

/* Longest text one call of encode takes; more is refused with ZP_BAD_INPUT. */
#define TOKENIZER_MAX_TEXT ((size_t)256 << 20)

/* A growing list of ids: zero-initialise, free with token_list_free. encode appends. */
struct token_list {
    int32_t *ids;
    size_t count, room;
};
zp_status token_list_push(struct token_list *list, int32_t id, zp_err *err);
void token_list_clear(struct token_list *list); /* keeps the memory */
void token_list_free(struct token_list *list);

/* What a token is (values as stored in GGUF's tokenizer.ggml.token_type). */
enum token_kind {
    TOKEN_UNDEFINED = 0,
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* <|im_start|>: in text only matched where special parsing is on */
    TOKEN_USER_DEFINED = 4, /* matched in any text before anything else */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6, /* <0x0A> */
};

/* Everything a caller may ask about the tokenizer as a whole. Strings live as long as the
 * tokenizer. */
struct tokenizer_info {
    const char *model; /* "gpt2", "llama" (SentencePiece BPE), "t5" (unigram) or "tokenizer.json" */
    const char *pre;   /* name of the pre-tokeniser in use; "" if the kind has none */
    int32_t n_vocab;
    int32_t bos, eos, eot, eom, unk, pad, sep; /* TOKEN_NONE if absent */
    int32_t fim_prefix, fim_suffix, fim_middle;
    bool add_bos, add_eos; /* the file asks for it: what TOKENIZE_AUTO does */
    bool add_space_prefix; /* SentencePiece: a space goes before the first word; decode drops it */
};

/* pre_override (may be NULL): use this pre-tokeniser instead of tokenizer.ggml.pre (`--pre NAME`).
 * An unknown name is ZP_UNSUPPORTED and the text lists the flag. The GGUF may be closed
 * afterwards. */
zp_status tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g,
                              const char *pre_override, zp_err *err);
/* Hugging Face: the texts of tokenizer.json and tokenizer_config.json (data may be NULL). name is
 * for messages. */
zp_status tokenizer_open_json(struct tokenizer **out, struct gguf_str json, struct gguf_str config,
                              const char *name, zp_err *err);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

const struct tokenizer_info *tokenizer_get_info(const struct tokenizer *t);
/* Text as the file has it ("Ġthe", "▁the", "<0x0A>"); *size without the NUL that follows. id must
 * be in range. */
const char *tokenizer_token_text(const struct tokenizer *t, int32_t id, size_t *size);
/* What it stands for in a text, as tokenizer_decode_token shows it with DETOKENIZE_SPECIAL. */
const uint8_t *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *size);
enum token_kind tokenizer_token_kind(const struct tokenizer *t, int32_t id);
float tokenizer_token_score(const struct tokenizer *t,
                            int32_t id); /* 0 where the kind has no scores */
/* True for each id that ends a generation: eos, eot, eom and tokens of known names (<|im_end|>,
 * <end_of_turn>, <|eot_id|>, <|endoftext|>, ...). False for ids out of range. */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
/* True for control and unknown tokens: what decode hides without DETOKENIZE_SPECIAL. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The id whose text in the file is exactly this, or TOKEN_NONE. */
int32_t tokenizer_find_token(const struct tokenizer *t, const char *text, size_t size);

enum tokenize_flags {
    TOKENIZE_AUTO = 1,    /* BOS and EOS as the model file asks */
    TOKENIZE_BOS = 2,     /* BOS in any case; ZP_BAD_INPUT if the model has none */
    TOKENIZE_EOS = 4,     /* EOS in any case; ZP_BAD_INPUT if the model has none */
    TOKENIZE_SPECIAL = 8, /* "<|im_start|>" in the text becomes that token (`--special`) */
};
/* Appends to *out. On failure *out keeps its old count. size 0 is fine. */
zp_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, unsigned flags,
                           struct token_list *out, zp_err *err);

/* A rendered chat template: pieces written by the template and pieces that came from a message.
 * The pieces are one text (words may cross their borders), but special tokens are recognised only
 * where every byte of the match is the template's. TOKENIZE_SPECIAL is implied for template pieces
 * and ignored for the others. */
struct text_segment {
    const char *text;
    size_t size;
    bool is_template;
};
zp_status tokenizer_encode_segments(const struct tokenizer *t, const struct text_segment *segments,
                                    size_t n_segments, unsigned flags, struct token_list *out,
                                    zp_err *err);

enum detokenize_flags {
    DETOKENIZE_SPECIAL = 1, /* show control tokens as their text; otherwise they give nothing */
    DETOKENIZE_CONTINUES =
        2, /* the ids follow earlier text: keep the leading space of SentencePiece */
};
/* Appends the bytes of one token: possibly an incomplete UTF-8 sequence, never a stripped space.
 * An id out of range is ZP_BAD_INPUT. Streams: model/textstream.h. */
zp_status tokenizer_decode_token(const struct tokenizer *t, int32_t id, unsigned flags,
                                 struct buffer *out, zp_err *err);
zp_status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                           struct buffer *out, zp_err *err);

#endif

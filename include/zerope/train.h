/* train.h: making token corpora for training out of text. */
#ifndef ZEROPE_TRAIN_H
#define ZEROPE_TRAIN_H

#include <zerope/zerope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Text of files into one file of token documents. inputs: files, and folders (each file below is a
 * document; names that begin with a point are passed over). *.html, *.htm, *.xhtml: tags are
 * stripped and entities become characters; all others are text as it stands, Markdown among them.
 * Documents of the same text count once. A document is wholly held out or wholly for training, by a
 * hash of its text; at least one is on either side.
 * Errors: no text at all, one document of which nothing can be held out, a file that is not UTF-8
 * (named), a model whose embedding is smaller than its vocabulary: ZP_BAD_INPUT; no tokenizer
 * named, or two, or an output over an input: ZP_USAGE.
 * JSON {documents, held_documents, duplicates, tokens, held_tokens, held_share (of tokens),
 * text_bytes, token_length (bytes of text), n_vocab, separator, tokenizer, trained, file,
 * file_bytes}. */
typedef struct zp_corpus_options {
    /* One of the two. tokenizer: a model, or a GGUF file that holds a tokenizer alone. train_vocab:
     * tokens of a new one (bytes, special tokens, merges), made from the training documents and
     * written as tokenizer.gguf beside `out`. Fewer where the text has no more pairs. */
    const char *tokenizer;
    uint32_t train_vocab;
    const char *pre; /* pre-tokeniser: of the new one (default smollm), or instead of the file's */
    double held_share; /* of documents; default 0.05; above 0, below 1 */
    bool no_held;      /* nothing is held out */
    zp_progress progress;
} zp_corpus_options;
/* json may be NULL. Both files are written atomically. */
ZP_API zp_status zp_corpus_make(const char *const *inputs, size_t n_inputs, const char *out,
                                const zp_corpus_options *options, char **json, zp_err *err);

#ifdef __cplusplus
}
#endif

#endif

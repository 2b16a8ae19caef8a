/* servetexts.h: texts as tokens, tokens as texts, chats as prompts: nothing is drawn. */
#ifndef SERVE_SERVETEXTS_H
#define SERVE_SERVETEXTS_H

#include "serve/service.h"

void servetexts_tokenize(const struct servecall *c);
void servetexts_detokenize(const struct servecall *c);
void servetexts_template(const struct servecall *c);
void servetexts_count(const struct servecall *c);

#endif

/* servererror.h: what a server says of its refusal, as a text that may be shown. */
#ifndef CLIENT_SERVERERROR_H
#define CLIENT_SERVERERROR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { SERVERERROR_ROOM = 320 };

/* out (SERVERERROR_ROOM): UTF-8 without control characters, cut where it has no room. True if the
 * document tells of an error, as OpenAI, Anthropic and others write it ({"error": {"message": ...}}
 * or {"error": "..."}); then out is never empty. */
bool servererror_of_json(const json_t *document, char *out);
/* Of the body (NUL-terminated) of an answer that is no success; "" where it has no words. */
void servererror_of_body(const char *body, size_t size, char *out);

#endif

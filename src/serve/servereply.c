/* servereply.c: bodies of answers that come at once: JSON, and faults in the shape of an API. */
#include "serve/servereply.h"

#include <stdio.h>
#include <string.h>

enum api servereply_api_of(const char *path)
{
    return path != NULL && strncmp(path, "/v1/messages", 12) == 0 ? API_ANTHROPIC : API_OPENAI;
}

void servereply_fault(struct http_exchange *x, enum api api, const struct apifault *fault)
{
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    char seconds[16];
    struct http_header headers[3];
    size_t n = 0;
    if (api == API_ANTHROPIC) headers[n++] = (struct http_header){ "request-id", http_id(x) };
    uint32_t retry = apifault_retry_after(fault);
    (void)snprintf(seconds, sizeof seconds, "%u", retry);
    if (retry != 0) headers[n++] = (struct http_header){ "retry-after", seconds };
    if (fault->status == 401)
        headers[n++] = (struct http_header){ "www-authenticate", "Bearer" };
    (void)apifault_write(fault, api, http_id(x), &body, NULL); /* without memory: no body */
    http_reply(x, &(struct http_reply){ .status = apifault_status(fault, api),
                                        .type = "application/json", .body = body.data,
                                        .size = body.size, .headers = headers, .n_headers = n });
    buffer_free(&body);
}

void servereply_json(struct http_exchange *x, enum api api, zp_status status, struct buffer *body,
                      const zp_err *err)
{
    struct apifault fault = { 0 };
    struct http_header id = { "request-id", http_id(x) };
    if (status == ZP_OK)
        http_reply(x, &(struct http_reply){ .status = 200, .type = "application/json",
                                            .body = body->data, .size = body->size,
                                            .headers = &id, .n_headers = api == API_ANTHROPIC });
    else {
        (void)apifault_of_err(&fault, NULL, err);
        servereply_fault(x, api, &fault);
    }
    buffer_free(body);
}

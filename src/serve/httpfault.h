/* httpfault.h: what the HTTP layer itself answers with an error: status, name and words of each. */
#ifndef SERVE_HTTPFAULT_H
#define SERVE_HTTPFAULT_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, status, code, closes, text). closes: the connection cannot go on behind it, because where
 * the next request begins is in doubt. A `%s` in the text is the limit in words. */
#define HTTP_FAULT_LIST(X)                                                                        \
    X(NONE, 0, "none", false, "")                                                                 \
    X(REQUEST_LINE, 400, "bad_request_line", true,                                                \
      "the request does not begin with a line `METHOD target HTTP/1.1`")                          \
    X(LINE_END, 400, "bad_line_end", true, "a line of the head does not end in CR LF")            \
    X(CONTROL, 400, "control_byte", true, "the head holds a control byte")                        \
    X(HEADER_NAME, 400, "bad_header_name", true, "a header line is not `name: value`")            \
    X(HEADER_SPACE, 400, "space_before_colon", true, "a blank stands between a header and its `:`")\
    X(HEADER_FOLD, 400, "folded_header", true, "a header line begins with a blank")               \
    X(HEADER_VALUE, 400, "bad_header", true, "the head is not HTTP/1.1")                          \
    X(TARGET, 400, "bad_target", true,                                                            \
      "the target is neither a path with valid %-encoding nor an http URL")                      \
    X(HOST, 400, "bad_host", true, "the request needs exactly one valid Host header")             \
    X(LENGTH, 400, "bad_content_length", true, "Content-Length is not one decimal number")        \
    X(LENGTH_AND_CODING, 400, "length_and_coding", true,                                          \
      "Content-Length and Transfer-Encoding exclude each other")                                  \
    X(CODING, 400, "bad_transfer_encoding", true,                                                 \
      "Transfer-Encoding must be `chunked`, once, and in HTTP/1.1")                               \
    X(CHUNK, 400, "bad_chunk", true, "the chunks of the body are malformed")                      \
    X(TRAILER, 400, "trailer", true, "trailer fields behind a chunked body are not accepted")     \
    X(ORIGIN, 403, "origin_not_allowed", false,                                                   \
      "pages of this origin may not use this server; its list of allowed origins can be extended")\
    X(NO_ROUTE, 404, "not_found", false, "there is nothing at this path")                         \
    X(METHOD, 405, "method_not_allowed", false, "this path does not take this method; it takes %s")\
    X(HEAD_TIME, 408, "head_timeout", true, "the head of the request took longer than %s")        \
    X(BODY_TIME, 408, "body_timeout", true, "the body of the request took longer than %s")        \
    X(LENGTH_NEEDED, 411, "length_required", false,                                               \
      "this path needs a body with Content-Length or chunks")                                     \
    X(BODY_SIZE, 413, "body_too_large", true, "the body of the request is larger than %s")        \
    X(URI_SIZE, 414, "uri_too_long", true, "the target of the request is longer than %s")         \
    X(EXPECT, 417, "unknown_expectation", true, "Expect can only be `100-continue`")              \
    X(HEAD_SIZE, 431, "head_too_large", true, "the head of the request is larger than %s")        \
    X(HEADER_COUNT, 431, "too_many_headers", true, "the request has more than %s headers")        \
    X(INTERNAL, 500, "internal_error", false, "the request failed inside the server")             \
    X(CODING_UNKNOWN, 501, "unknown_transfer_encoding", true,                                     \
      "of transfer encodings only `chunked` is known here")                                       \
    X(CONNECTIONS, 503, "too_many_connections", true, "more than %s connections are open")        \
    X(BODIES, 503, "bodies_too_large", true,                                                      \
      "the bodies of all requests being read are larger than %s; try again later")                \
    X(EXCHANGE_TIME, 504, "timeout", true, "the answer took longer than %s")                      \
    X(VERSION, 505, "unknown_version", true, "HTTP versions 1.1 and 1.0 are known here")

enum http_fault {
#define HTTP_FAULT_ENUM(name, status, code, closes, text) HTTP_FAULT_##name,
    HTTP_FAULT_LIST(HTTP_FAULT_ENUM)
#undef HTTP_FAULT_ENUM
    HTTP_FAULT_COUNT
};

struct httpfault {
    int status;
    const char *code; /* a name for metrics and programs */
    bool closes;
    const char *text;
};
const struct httpfault *httpfault_get(enum http_fault fault);
/* The words, with those of the limit in them. */
void httpfault_message(enum http_fault fault, const char *limit, char *out, size_t room);

#endif

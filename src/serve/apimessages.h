/* apimessages.h: messages and tools on their way from an API to the form that chat templates know:
 * contents are texts, arguments of calls are objects, and each result of a call has the call's
 * name. What both APIs need for that. */
#ifndef SERVE_APIMESSAGES_H
#define SERVE_APIMESSAGES_H

#include "serve/apirequest.h"

/* Bytes of arguments that are read as JSON, and tools: more of them in one request are refused. */
enum { API_MOST_ARGUMENTS = 4 << 20, API_MOST_TOOLS = 1024 };

struct apimessages {
    struct api_request *r;
    struct apifault *fault;
    json_t *list;      /* the template's messages; NULL: no memory */
    json_t *names;     /* of calls, by id */
    size_t n_arguments; /* bytes read as JSON so far */
};
struct apimessages apimessages_open(struct api_request *r, struct apifault *fault);
void apimessages_close(struct apimessages *m);
/* Takes a message; NULL: no memory. */
void apimessages_add(struct apimessages *m, json_t *message);
/* The messages become the request's input. prefill: the last one, of the assistant, is the
 * beginning of the answer. */
zp_status apimessages_finish(struct apimessages *m, bool prefill);

/* A text, or parts of type text, which become one text with line feeds between them. *out: a new
 * reference. */
zp_status apimessages_text(struct apimessages *m, const json_t *content, const char *path,
                           json_t **out);
/* A call as templates know it, and its name noted. arguments: an object, or a JSON text of one (any
 * other text stays as it is: a model wrote it). */
zp_status apimessages_call(struct apimessages *m, const json_t *id, const json_t *name,
                           const json_t *arguments, const char *path, json_t **out);
/* The result of a call. */
zp_status apimessages_result(struct apimessages *m, const json_t *id, const json_t *content,
                             const char *path);

/* Takes a tool in OpenAI's form and adds it to the request's. NULL: no memory. path: of the object
 * that has its name. */
zp_status apimessages_add_tool(struct api_request *r, json_t *tool, const char *path,
                               struct apifault *fault);
/* Which tool is asked for, and whether that goes with the rest of the request. */
zp_status apimessages_choose_tool(struct api_request *r, enum api_tool_choice choice,
                                  const json_t *name, const char *path, struct apifault *fault);

#endif

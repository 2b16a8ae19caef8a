/* apirequest.h: what a request for an answer asks, whichever API it came by. The readers of the
 * APIs (api_openai.h, api_anthropic.h) fill it; docs/SERVER.md lists the fields.
 *
 * Texts and values lie in the request's own body or arena. Nothing here knows a model: prompts are
 * texts, or messages for its template, or ids that are not looked at unless n_vocab is given. */
#ifndef SERVE_APIREQUEST_H
#define SERVE_APIREQUEST_H

#include "base/mem.h"
#include "serve/jsonfield.h"

/* Which fields there are: bits of struct jsonfield's `sets`. */
enum api_set { SET_CHAT = 1, SET_COMPLETIONS = 2, SET_MESSAGES = 4 };

enum {
    API_MOST_DEPTH = 64,
    API_MOST_VALUES = 1 << 21,
    API_MOST_CHOICES = 16,
    API_MOST_PROMPTS = 64
};
enum { API_MOST_BIAS = 4096, API_MOST_UNKNOWN = 16 };

/* Of a server. 0: the default. */
struct api_limits {
    uint32_t depth;   /* objects and lists inside each other; API_MOST_DEPTH */
    uint32_t values;  /* in a body; API_MOST_VALUES */
    uint32_t choices; /* of a prompt; API_MOST_CHOICES */
    uint32_t prompts; /* of a completions request; API_MOST_PROMPTS */
    uint32_t tokens;  /* of an answer: who asks for more, or for nothing, gets these; none */
    uint32_t n_vocab; /* ids and logit_bias are below it; not looked at */
    zp_sampler_options sampler; /* of requests that say nothing */
    zp_mode mode;
    bool anchors; /* of requests that do not say */
};

/* A prompt of a completions request, or a text to embed: text, or ids. */
struct api_prompt {
    const char *text; /* NULL: ids */
    size_t size;
    const int32_t *ids; /* (n_ids) */
    size_t n_ids;
};

/* What an answer must be. */
enum api_form { FORM_ANY, FORM_OBJECT, FORM_SCHEMA, FORM_GRAMMAR };
enum api_tool_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED };
/* Of a prompt that is too long. */
enum api_truncation { TRUNCATE_NEVER, TRUNCATE_OLDEST, TRUNCATE_SUMMARISE };
/* What becomes of <think>...</think>. */
enum api_reasoning { REASONING_APART, REASONING_INLINE, REASONING_HIDDEN };

struct api_request {
    enum api_set set;
    const char *model; /* NULL: not said */

    /* Chat: variables of the template: messages, tools, add_generation_prompt, and what the request
     * adds. */
    json_t *input;
    const char *prefill; /* the answer begins with it, behind the rendered prompt; NULL: nothing */
    /* Completions */
    const struct api_prompt *prompts; /* (n_prompts) */
    size_t n_prompts;
    bool echo;        /* the answer begins with the prompt */
    bool prompt_only; /* no token is asked for (the job has n_predict 1: drop it) */

    /* Without slot, prompt, salt, arrived, deadline, arg and the sampler's grammar, which are the
     * service's. */
    struct sched_job job;
    bool has_seed, has_mode; /* the request says so; else the service chooses */
    double timeout;          /* seconds; 0: not said */

    enum api_form form;
    const char *form_text; /* of FORM_SCHEMA: JSON; of FORM_GRAMMAR: GBNF */
    size_t form_size;
    char form_param[APIFAULT_PARAM]; /* the field that says so */
    json_t *tools; /* as in OpenAI's API; NULL: none, or tool_choice forbids them */
    enum api_tool_choice tool_choice;
    const char *tool_name; /* TOOLS_NAMED */
    bool one_call;         /* no parallel calls */
    bool functions;        /* asked in the old way: answer with function_call */
    enum api_reasoning reasoning;

    bool stream, include_usage, timings;
    bool anchors;
    enum api_truncation truncation;
    const char *user; /* NULL: not said */
    const json_t *metadata;
    /* names of fields nobody knows, the first of n_unknown */
    const char *unknown[API_MOST_UNKNOWN];
    size_t n_unknown;

    /* of the readers */
    const struct api_limits *limits;
    json_t *body;
    struct arena arena;
    int mode; /* -1: not said */
    int reasoning_format;
    int thinking; /* enable_thinking of templates; -1: not said */
    uint32_t best_of;
    bool no_generation_prompt, continues;
    const json_t *template_variables;
    const char *effort;
};

/* The body as JSON, within the limits, and its fields but those that an API reads in its own way.
 * The request must be given to apirequest_free in any case. limits: not copied. */
zp_status apirequest_open(struct api_request *r, enum api_set set, const char *body, size_t size,
                          const struct api_limits *limits, struct apifault *fault);
void apirequest_free(struct api_request *r); /* zeroed is fine */

/* A field of the body; NULL: absent or null. */
const json_t *apirequest_get(const struct api_request *r, const char *key);

/* A JSON object from a client; *out to json_decref. */
zp_status apirequest_parse(json_t **out, const char *body, size_t size,
                           const struct api_limits *limits, struct apifault *fault);
/* A text, ids, or a list of either; taken from the arena and from value. */
zp_status apirequest_read_prompts(struct arena *arena, const json_t *value, const char *path,
                                  const struct api_limits *limits, const struct api_prompt **out,
                                  size_t *n, struct apifault *fault);
/* Makes an answer valid by the schema. */
zp_status apirequest_set_schema(struct api_request *r, const json_t *schema, const char *path,
                                struct apifault *fault);
/* Takes the messages, and adds the tools and what else the template sees. NULL: there was no memory
 * for them. */
zp_status apirequest_set_input(struct api_request *r, json_t *messages, struct apifault *fault);

/* The table of fields. */
const struct jsonfield *apirequest_fields(size_t *n);
/* The largest id that a token may have. */
int64_t apirequest_most_id(const struct api_limits *limits);

#endif

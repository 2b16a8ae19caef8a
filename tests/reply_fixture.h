/* reply_fixture.h: replies under test, told of events of a scheduler that is not there. */
#ifndef TESTS_REPLY_FIXTURE_H
#define TESTS_REPLY_FIXTURE_H

#include "api_fixture.h"

#include "serve/apireply.h"

#define HI "`messages`:[{`role`:`user`,`content`:`Hi`}]"
#define TOOLS_C "`tools`:[{`function`:{`name`:`a`}},{`function`:{`name`:`b`}}]"
#define TOOLS_M "`tools`:[{`name`:`a`,`input_schema`:{}},{`name`:`b`,`input_schema`:{}}]"

struct flow {
    struct api_request r;
    struct apireply a;
    struct buffer out;
};

static inline void open_with(struct flow *f, api_reader read, const char *request,
                      struct apireply_options o)
{
    *f = (struct flow){ .r = api_read(read, request), .out = buffer_with_max(MEM_META, 1 << 20) };
    o.r = &f->r;
    o.who = api_who;
    o.emit = (struct api_emit){ api_take_event, &f->out };
    o.start = (struct api_usage){ .n_prompt = 10, .layer_zeroed = 12 };
    GOLDEN_OK(apireply_open(&f->a, &o, err));
}

static inline void open_flow(struct flow *f, api_reader read, const char *request)
{
    open_with(f, read, request, (struct apireply_options){ 0 });
}

static inline void close_flow(struct flow *f)
{
    apireply_free(&f->a);
    buffer_free(&f->out);
    apirequest_free(&f->r);
}

static inline enum apireply_state accepted(struct flow *f)
{
    return apireply_event(&f->a, 0, &(struct sched_event){ .kind = SCHED_ACCEPTED });
}

static inline enum apireply_state token(struct flow *f, uint32_t job, uint32_t choice,
                                        const char *text)
{
    const struct sched_event e = { .kind = SCHED_TOKEN,
                                   .token = { .choice = choice, .text = text,
                                              .size = strlen(text) } };
    return apireply_event(&f->a, job, &e);
}

static inline enum apireply_state ended(struct flow *f, uint32_t job, uint32_t choice,
                                        const char *reason)
{
    const struct sched_event e = { .kind = SCHED_ENDED, .ended = { choice, reason, 0 } };
    return apireply_event(&f->a, job, &e);
}

static inline enum apireply_state over(struct flow *f, uint32_t job, enum sched_kind kind)
{
    const struct sched_event e = { .kind = kind,
                                   .why = kind == SCHED_CANCELLED ? SCHED_BY_CALLER
                                                                  : SCHED_WHY_NONE,
                                   .usage = { .n_prompt = 10, .n_reused = 4, .n_drawn = 2 } };
    return apireply_event(&f->a, job, &e);
}

#endif

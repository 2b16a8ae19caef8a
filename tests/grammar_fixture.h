/* grammar_fixture.h: grammars made in tests, and texts read by them byte by byte. */
#ifndef TESTS_GRAMMAR_FIXTURE_H
#define TESTS_GRAMMAR_FIXTURE_H

#include "golden.h"

#include "base/mem.h"
#include "base/rng.h"
#include "model/automaton.h"
#include "model/gbnf.h"
#include "model/jsonschema.h"

struct reader {
    struct grammar g;
    struct automaton a;
};

typedef uint32_t rules_fn(struct grammar *g, const char *text, size_t size);

static inline zp_status try_reader(struct reader *r, rules_fn *rules, const char *text, size_t size,
                                   zp_err *err)
{
    *r = (struct reader){ 0 };
    zp_status status = grammar_init(&r->g, err);
    if (status == ZP_OK) status = grammar_seal(&r->g, rules(&r->g, text, size));
    if (status == ZP_OK) status = automaton_open(&r->a, &r->g, err);
    return status;
}

static inline void close_reader(struct reader *r)
{
    automaton_close(&r->a);
    grammar_free(&r->g);
}

static inline void open_reader(struct reader *r, rules_fn *rules, const char *text)
{
    GOLDEN_OK(try_reader(r, rules, text, strlen(text), err));
}

/* The message of a text that must not be taken; the status is checked. */
static inline void expect_refused(rules_fn *rules, const char *text, size_t size, zp_status wanted,
                                  const char *part)
{
    struct reader r;
    zp_err why = { 0 };
    zp_status status = try_reader(&r, rules, text, size, &why);
    close_reader(&r);
    if (status != wanted || strstr(why.message, part) == NULL || why.code != status)
        fail_msg("%.300s: %s: %s (expected %s: %s)", text, zp_status_name(status), why.message,
                 zp_status_name(wanted), part);
}

/* The state behind a text, byte by byte; every state on the way is alive or stays dead. */
static inline uint32_t read_text(struct reader *r, const char *text, size_t size)
{
    uint32_t state = r->a.start;
    GOLDEN_OK(automaton_prepare(&r->a, err));
    for (size_t i = 0; i < size; i++) {
        bool dead = state == AUTOMATON_DEAD;
        GOLDEN_OK(automaton_step(&r->a, state, (uint8_t)text[i], &state, err));
        if (dead) assert_int_equal(state, AUTOMATON_DEAD);
        const struct automaton_state *s = &r->a.states[state];
        assert_true(state == AUTOMATON_DEAD || s->accepts || s->n > 0);
    }
    return state;
}

static inline bool accepts(struct reader *r, const char *text, size_t size)
{
    uint32_t state = read_text(r, text, size);
    return r->a.states[state].accepts;
}

static inline void check_text(struct reader *r, const char *what, const char *text, size_t size,
                              bool wanted)
{
    if (accepts(r, text, size) != wanted)
        fail_msg("%s: %.*s is %s", what, (int)size, text, wanted ? "refused" : "accepted");
}

static inline void check(rules_fn *rules, const char *source, const char *const *good,
                         const char *const *bad)
{
    struct reader r;
    open_reader(&r, rules, source);
    for (; *good; good++) check_text(&r, source, *good, strlen(*good), true);
    for (; *bad; bad++) check_text(&r, source, *bad, strlen(*bad), false);
    close_reader(&r);
}
#define TEXTS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define NO_TEXTS ((const char *const[]){ NULL })

#endif

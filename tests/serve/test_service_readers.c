/* test_service_readers.c: large bodies are read beside the loop: with all readers busy they wait,
 * and everything else is answered meanwhile; clients that leave and ends of the server find them
 * waiting. No clocks: the readers are held by tasks of the test. */
#include "golden.h"

#include "serve/service.h"
#include "service_fixture.h"

enum { READERS = 2, LARGE = 40000, TURNS = 20 };

/* ---- readers that are held ------------------------------------------------------------------- */

struct hold {
    struct servetask tasks[READERS];
    sem_t held, go;
};

static struct hold holds[3], *hold; /* one a test: a failed one never lets go */

static void wait_there(struct servetask *t)
{
    struct hold *h = NULL;
    for (size_t i = 0; i < ZP_COUNT(holds); i++)
        for (int k = 0; k < READERS; k++)
            if (t == &holds[i].tasks[k]) h = &holds[i];
    sem_post(&h->held);
    sem_wait(&h->go);
}

static void forget(struct servetask *t)
{
    (void)t;
}

static void hold_readers(struct live *l)
{
    hold = hold == NULL ? holds : hold + 1;
    sem_init(&hold->held, 0, 0);
    sem_init(&hold->go, 0, 0);
    for (int i = 0; i < READERS; i++) {
        hold->tasks[i] = (struct servetask){ .run = wait_there, .done = forget };
        servework_give(l->s->readers, &hold->tasks[i]);
        serving_wait(&hold->held);
    }
}

static void release_readers(void)
{
    for (int i = 0; i < READERS; i++) sem_post(&hold->go);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static char *large_body(const char *format)
{
    char *words = malloc(LARGE + 1), *body = malloc(LARGE + strlen(format) + 1);
    assert_non_null(words);
    assert_non_null(body);
    for (int i = 0; i < LARGE; i++) words[i] = (char)(i % 7 == 6 ? ' ' : 'a' + i * 5 % 26);
    words[LARGE] = '\0';
    sprintf(body, format, words);
    free(words);
    return body;
}

static char *large_ids(void)
{
    char *body = malloc(LARGE + 64);
    assert_non_null(body);
    size_t n = (size_t)sprintf(body, "{\"tokens\":[40");
    while (n < LARGE) n += (size_t)sprintf(body + n, ",%zu", 40 + n % 50);
    sprintf(body + n, "]}");
    return body;
}

#define CHAT(text) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}],\"max_tokens\":1}"

struct text_call {
    const char *path, *small, *member; /* member: of a good answer */
    char *large;
};

static void fill(struct text_call calls[4])
{
    calls[0] = (struct text_call){ "/tokenize", "{\"content\":\"Hello\"}", "tokens",
                                   large_body("{\"content\":\"%s\"}") };
    calls[1] = (struct text_call){ "/detokenize", "{\"tokens\":[40]}", "content", large_ids() };
    calls[2] =
        (struct text_call){ "/apply-template", CHAT("Hi"), "prompt", large_body(CHAT("%s")) };
    calls[3] = (struct text_call){ "/v1/messages/count_tokens", CHAT("Hi"), "input_tokens",
                                   large_body(CHAT("%s")) };
}

static void check_call(const struct live *l, const struct text_call *c, const char *body)
{
    json_t *j = live_post(l, c->path, body);
    (void)json_in(j, c->member);
    json_decref(j);
}

static bool has_answer(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_large_bodies_wait_and_nothing_else_does(void **state)
{
    static const char draws[] = "{\"prompt\":\"Hello\",\"max_tokens\":3,\"ignore_eos\":true}";
    struct text_call calls[4];
    struct live l;
    int fds[4];
    (void)state;
    fill(calls);
    live_begin(&l, live_options());
    hold_readers(&l);
    for (int i = 0; i < 4; i++)
        fds[i] = live_begin_ask(&l, "POST", calls[i].path, "", calls[i].large);
    /* Each is an exchange of its own, behind those: the loop has read what came before. */
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < 4; i++) check_call(&l, &calls[i], calls[i].small);
        json_decref(live_post(&l, "/v1/completions", draws));
        json_decref(live_get(&l, "/healthz"));
    }
    for (int i = 0; i < 4; i++) assert_false(has_answer(fds[i]));
    release_readers();
    for (int i = 0; i < 4; i++) {
        struct reply r = live_finish(fds[i]);
        assert_int_equal(r.status, 200);
        json_t *j = reply_json(&r);
        (void)json_in(j, calls[i].member);
        json_decref(j);
        reply_free(&r);
        check_call(&l, &calls[i], calls[i].large); /* and once more, with nothing in its way */
    }
    live_check_books(&l);
    live_end(&l);
    for (int i = 0; i < 4; i++) free(calls[i].large);
}

static void test_clients_leave_while_they_wait(void **state)
{
    struct text_call calls[4];
    struct live l;
    (void)state;
    fill(calls);
    live_begin(&l, live_options());
    hold_readers(&l);
    for (int i = 0; i < 4; i++) {
        int fd = live_begin_ask(&l, "POST", calls[i].path, "", calls[i].large);
        json_decref(live_get(&l, "/healthz"));
        client_reset(fd);
    }
    live_until(&l, "server.connections", 1); /* that which asks */
    release_readers();
    check_call(&l, &calls[0], calls[0].large);
    live_end(&l);
    for (int i = 0; i < 4; i++) free(calls[i].large);
}

static void test_the_server_ends_while_they_wait(void **state)
{
    struct text_call calls[4];
    struct live l;
    int fds[4];
    (void)state;
    fill(calls);
    live_begin(&l, live_options());
    hold_readers(&l);
    for (int i = 0; i < 4; i++)
        fds[i] = live_begin_ask(&l, "POST", calls[i].path, "", calls[i].large);
    for (int turn = 0; turn < TURNS; turn++) json_decref(live_get(&l, "/healthz"));
    zp_serve_stop(l.s);
    while (live_logged(&l, "\"event\":\"draining\"") == 0) sched_yield();
    release_readers();
    for (int i = 0; i < 4; i++) { /* what was under way is finished */
        struct reply r = live_finish(fds[i]);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    live_join(&l);
    for (int i = 0; i < 4; i++) free(calls[i].large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_bodies_wait_and_nothing_else_does),
        cmocka_unit_test(test_clients_leave_while_they_wait),
        cmocka_unit_test(test_the_server_ends_while_they_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

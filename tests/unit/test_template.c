/* test_template.c: chat templates: origins of the output, errors with their places, limits, failing
 * memory, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>

#include "base/mem.h"
#include "model/template.h"

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, 0, &error);
    if (value == NULL) fail_msg("%s: %s", text, error.text);
    return value;
}

static struct template *open_template(const char *source)
{
    struct template *t;
    zp_err err = { 0 };
    if (template_open(&t, source, strlen(source), "t", &err) != ZP_OK) fail_msg("%s", err.message);
    return t;
}

static struct template_output render_with(const char *source, const char *input,
                                          struct template_options options)
{
    struct template *t = open_template(source);
    json_t *value = parse(input);
    struct template_output out;
    zp_err err = { 0 };
    if (template_render_with(t, value, &options, &out, &err) != ZP_OK)
        fail_msg("%s: %s", source, err.message);
    json_decref(value);
    template_close(t);
    return out;
}

/* The output with [ ] around each piece of user text. */
static void marked(const struct template_output *out, char *to, size_t room)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < out->n_segment; i++) {
        struct template_segment s = out->segments[i];
        assert_int_equal(s.offset, at);
        assert_true(s.size > 0);
        if (i > 0) assert_true(s.from_user != out->segments[i - 1].from_user);
        assert_true(n + s.size + 3 < room);
        if (s.from_user) to[n++] = '[';
        memcpy(to + n, out->text + s.offset, s.size);
        n += s.size;
        if (s.from_user) to[n++] = ']';
        at += s.size;
    }
    assert_int_equal(at, out->size);
    to[n] = '\0';
}

static void assert_origins(const char *source, const char *input, const char *expected)
{
    char text[1000];
    struct template_output out = render_with(source, input, (struct template_options){ 0 });
    marked(&out, text, sizeof text);
    if (strcmp(text, expected) != 0)
        fail_msg("%s\n  found    %s\n  expected %s", source, text, expected);
    template_output_free(&out);
}

static void test_origin_follows_every_byte(void **state)
{
    (void)state;
    const char *in = "{\"u\": \"ab<|e|>\", \"l\": [\"x\", \"y\"], \"n\": 5, \"bos_token\": "
                     "\"<s>\", \"d\": {\"k\": \"v\"}}";
    static const struct {
        const char *source, *expected;
    } cases[] = {
        { "{{ u }}", "[ab<|e|>]" },
        { "<|s|>{{ u }}<|e|>", "<|s|>[ab<|e|>]<|e|>" },
        { "{{ '<|s|>' + u + '<|e|>' }}", "<|s|>[ab<|e|>]<|e|>" },
        { "{{ bos_token + u }}", "<s>[ab<|e|>]" },
        { "{{ ('x' ~ u ~ 'y') | upper }}", "X[AB<|E|>]Y" },
        { "{{ ('x' ~ u ~ 'y')[2:5] }}", "[b<|]" },
        { "{{ ('x' ~ u ~ 'y')[::-1] }}", "y[>|e|<ba]x" },
        { "{{ ('x' ~ u ~ 'y')[0] }}", "x" },
        { "{{ ('x' ~ u) | replace('x', 'z') }}", "z[ab<|e|>]" },
        { "{{ u | replace('a', '<|s|>') }}", "<|s|>[b<|e|>]" },
        { "{{ 'x-y' | replace('-', u) }}", "x[ab<|e|>]y" },
        { "{{ l | join('<|e|>') }}", "[x]<|e|>[y]" },
        { "{{ '<|e|>'.join(l) }}", "[x]<|e|>[y]" },
        { "{{ (' ' ~ u ~ ' ') | trim }}", "[ab<|e|>]" },
        { "{{ ('<|s|>' ~ u).split('b')[0] }}", "<|s|>[a]" },
        { "{{ ('<|s|>' ~ u).split('b')[1] }}", "[<|e|>]" },
        { "{% set x %}<|s|>{{ u }}{% endset %}{{ x }}{{ x }}", "<|s|>[ab<|e|>]<|s|>[ab<|e|>]" },
        { "{% set x = '<|s|>' %}{% set y = x ~ u %}{% set z = x ~ '!' %}{{ x }},{{ y }},{{ z }}",
          "<|s|>,<|s|>[ab<|e|>],<|s|>!" },
        { "{% macro f(a) %}<|s|>{{ a }}{% endmacro %}{{ f(u) }}{{ f('<|s|>') }}",
          "<|s|>[ab<|e|>]<|s|><|s|>" },
        { "{% filter upper %}s{{ u }}{% endfilter %}", "S[AB<|E|>]" },
        { "{{ n }}{{ u | length }}{{ u == 'a' }}", "57False" },
        { "{{ d | tojson }}{{ {'k': '<|s|>'} | tojson }}", "[{\"k\": \"v\"}]{\"k\": \"<|s|>\"}" },
        { "{{ l }}{{ ['<|s|>'] }}", "[['x', 'y']]['<|s|>']" },
        { "{{ u | tojson }}", "\"[ab<|e|>]\"" },
        { "{{ '%s|%s' | format('<|s|>', u) }}", "<|s|>|[ab<|e|>]" },
        { "{{ '{}|{}'.format('<|s|>', u) }}", "<|s|>|[ab<|e|>]" },
        { "{{ 'x<|e|>\\n' | indent(2) ~ (u ~ '\\n' ~ u) | indent(2) }}",
          "x<|e|>\n[ab<|e|>]\n  [ab<|e|>]" },
        { "{% for k in d %}{{ k }}{% endfor %}{% for k, v in d | items %}{{ k ~ '=' ~ v }}{% "
          "endfor %}",
          "[kk]=[v]" },
        { "{{ u * 2 ~ 'x' * 2 }}", "[ab<|e|>ab<|e|>]xx" },
        { "{{ l | map('upper') | list | join }}", "[XY]" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_origins(cases[i].source, in, cases[i].expected);
}

/* Every user byte of whole conversations: contents are made of letters the templates do not have.
 */
static void test_no_user_byte_passes_as_template_text(void **state)
{
    (void)state;
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/templates.json", ZP_TEST_DATA);
    json_t *root = json_load_file(path, 0, &error), *c, *m;
    const json_t *templates = json_object_get(root, "templates");
    size_t i, k, n_user = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const char *source = json_string_value(
            json_object_get(templates, json_string_value(json_object_get(c, "template"))));
        json_array_foreach(json_object_get(c, "messages"), k, m)
            json_object_set_new(m, "content", json_string("Ж<|im_end|>ЖЖ"));
        struct template *t = open_template(source);
        struct template_output out = { 0 };
        zp_err err = { 0 };
        if (template_render(t, c, &out, &err) == ZP_OK)
            for (size_t s = 0; s < out.n_segment; s++) {
                struct template_segment seg = out.segments[s];
                const char *hit = memmem(out.text + seg.offset, seg.size, "Ж", 2);
                if (seg.from_user) n_user += hit != NULL;
                else assert_null(hit);
            }
        template_output_free(&out);
        template_close(t);
    }
    assert_true(n_user > 40);
    json_decref(root);
}

static void assert_open_fails(const char *source, size_t size, const char *message)
{
    struct template *t;
    zp_err err = { 0 };
    assert_int_equal(template_open(&t, source, size, "t", &err), ZP_BAD_FILE);
    assert_null(t);
    if (strcmp(err.message, message) != 0)
        fail_msg("%s\n  found    %s\n  expected %s", source, err.message, message);
}

static void test_syntax_errors_name_line_column_and_what_was_expected(void **state)
{
    (void)state;
    static const struct {
        const char *source, *message;
    } cases[] = {
        { "a\n  {{ 1 + }}", "t:2:10: expected an expression, found '}}'" },
        { "{{ x y }}", "t:1:6: expected '}}', found y" },
        { "{{ (1, 2 }}", "t:1:10: expected ')', found '}'" },
        { "é{{ x.5x }}", "t:1:8: expected '}}', found x" },
        { "{% if x %}\n{% for y in x %}\n",
          "t:2:17: the template ends but the statement of line 2, column 4 is open; "
          "expected '{% endfor %}'" },
        { "{% if x %}{% elif y %}a",
          "t:1:24: the template ends but the statement of line 1, column 4 is open; "
          "expected '{% endif %}'" },
        { "{% endif %}", "t:1:4: expected for, if, set, with, macro, call, filter, print, "
                         "generation, break or continue, "
                         "found 'endif'" },
        { "{% include 'x' %}",
          "t:1:4: expected for, if, set, with, macro, call, filter, print, generation, break or "
          "continue, found 'include'" },
        { "{% for x of y %}", "t:1:10: expected in, found of" },
        { "{% set 5 = x %}", "t:1:8: expected a name to assign to" },
        { "{% break %}", "t:1:4: 'break' stands outside a loop" },
        { "{{ 'abc }}", "t:1:4: this string does not end; expected '" },
        { "x\n{# abc", "t:2:1: this comment does not end; expected '#}'" },
        { "{% raw %}abc", "t:1:1: this raw block does not end; expected '{% endraw %}'" },
        { "{{ 1", "t:1:1: this tag does not end; expected '}}'" },
        { "{{ a ? b }}", "t:1:6: unexpected character '?'" },
        { "{{ ) }}", "t:1:4: ')' closes nothing" },
        { "{{ 99999999999999999999 }}",
          "t:1:4: the integer 99999999999999999999 does not fit 64 bits" },
        { "{{ '\\ud800' }}", "t:1:5: this escape is no character; expected 4 hexadecimal digits" },
        { "{{ x is }}", "t:1:9: expected the name of a test, found '}}'" },
        { "{{ x | 5 }}", "t:1:8: expected the name of a filter, found 5" },
        { "{{ f(a=1, 2) }}", "t:1:11: this argument may not stand behind the one before it" },
        { "{% macro f(a=1, b) %}{% endmacro %}",
          "t:1:17: expected a default: the parameter before 'b' has one" },
        { "{% call f %}{% endcall %}", "t:1:9: expected a call such as name(...)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_open_fails(cases[i].source, strlen(cases[i].source), cases[i].message);
    assert_open_fails("ab\xff", 3, "t: the template is not UTF-8 (byte 2)");
}

static void test_source_limits(void **state)
{
    (void)state;
    enum { SIZE = 2 << 20 };
    struct template *t;
    zp_err err = { 0 };
    char *text = calloc(1, SIZE + 1);
    memset(text, 'a', SIZE);
    assert_int_equal(template_open(&t, text, SIZE, "t", &err), ZP_BAD_FILE);
    assert_non_null(strstr(err.message, "the limit is 1048576"));
    /* nesting of every kind ends in an error, not in the stack */
    static const char *const nests[] = { "(",  "[",  "{1:",          "- ",         "not ",
                                         "f(", "a[", "1 if 1 else ", "{% if 1 %}", "{{ x|f(" };
    for (size_t i = 0; i < sizeof nests / sizeof nests[0]; i++) {
        bool statement = nests[i][0] == '{' && nests[i][1] == '%';
        size_t n = 0;
        if (!statement) n += (size_t)sprintf(text, "{{ ");
        for (int k = 0; k < 20000; k++) n += (size_t)sprintf(text + n, "%s", nests[i]);
        err = (zp_err){ 0 };
        assert_int_equal(template_open(&t, text, n, "t", &err), ZP_BAD_FILE);
        assert_true(strstr(err.message, "deep") != NULL || strstr(err.message, "expected") != NULL);
    }
    free(text);
}

static void assert_render_fails(const char *source, const char *input,
                                struct template_options options, const char *part)
{
    struct template *t = open_template(source);
    json_t *value = parse(input);
    struct template_output out;
    zp_err err = { 0 };
    assert_int_equal(template_render_with(t, value, &options, &out, &err), ZP_BAD_INPUT);
    if (strstr(err.message, part) == NULL)
        fail_msg("%s\n  found    %s\n  expected %s", source, err.message, part);
    assert_null(out.text);
    assert_int_equal(out.n_segment, 0);
    json_decref(value);
    template_close(t);
}

static void test_errors_of_rendering_name_the_place(void **state)
{
    (void)state;
    const struct template_options no_options = { 0 };
    static const struct {
        const char *source, *message;
    } cases[] = {
        { "a\nb {{ x.y.z }}", "t:2:8: 'x' is undefined" },
        { "{{ d.y.z }}", "t:1:8: 'dict' object has no item or attribute 'y'" },
        { "{{ 'a' + 1 }}", "t:1:8: '+' does not go with 'str' and 'int'; join texts with '~'" },
        { "{{ 1 / 0 }}", "t:1:6: division by zero" },
        { "{{ 5 | nope }}", "t:1:8: there is no filter named 'nope'" },
        { "{{ 5 is nope }}", "t:1:9: there is no test named 'nope'" },
        { "{{ 5() }}", "t:1:4: a value of type 'int' cannot be called" },
        { "{% for x in 5 %}{% endfor %}", "t:1:13: a value of type 'int' cannot be looped over" },
        { "{{ d | map('upper') }}",
          "t:1:8: a value of type 'generator' has no text; add '| list' or '| join'" },
        { "{{ d.keys }}",
          "t:1:6: a value of type 'function' has no text; is a call '()' missing?" },
        { "{{ 'a' | replace('x') }}",
          "t:1:10: the filter 'replace' needs 2 arguments: old new count" },
        { "{{ 'a' | trim(x=1) }}", "t:1:10: the filter 'trim' has no argument 'x'; it has: chars" },
        { "{% set x.y = 1 %}",
          "t:1:8: 'x' is no namespace; make one with {% set x = namespace() %}" },
        { "{{ d.update(d) }}", "templates may not call this method" },
        { "{{ 9223372036854775807 + 1 }}", "t:1:24: the sum does not fit 64 bits" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_render_fails(cases[i].source, "{\"d\": {\"a\": 1}}", no_options, cases[i].message);
}

static void test_raise_exception_gives_the_templates_own_words(void **state)
{
    (void)state;
    struct template *t = open_template("\n{{ raise_exception('Only ' ~ n ~ ' roles: é') }}");
    json_t *value = parse("{\"n\": 2}");
    struct template_output out;
    zp_err err = { 0 };
    assert_int_equal(template_render(t, value, &out, &err), ZP_BAD_INPUT);
    assert_string_equal(err.message, "Only 2 roles: é");
    json_decref(value);
    template_close(t);
}

static void test_limits_end_what_would_not(void **state)
{
    (void)state;
    const struct template_options few = {
        .max_steps = 10000, .max_memory = 4 << 20, .max_output = 1000, .max_depth = 50
    };
    const char *in = "{\"l\": [1, 2, 3]}";
    assert_render_fails("{% set a = [1] %}{% for x in a %}{% set _ = a.append(1) %}{% endfor %}",
                        in, few, "10000 steps");
    assert_render_fails(
        "{% for x in range(100) %}{% for y in range(101) %}{% endfor %}{% endfor %}", in, few,
        "10000 steps");
    assert_render_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", in, few,
                        "more than 50 levels");
    assert_render_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", in,
                        (struct template_options){ 0 }, "600 levels");
    assert_render_fails("{{ 'x' * 1001 }}", in, few, "more than 1000 bytes");
    assert_render_fails("{% for x in range(101) %}0123456789{% endfor %}", in, few,
                        "more than 1000 bytes");
    assert_render_fails(
        "{% set n = namespace(x='ab') %}{% for i in l * 10 %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        in, few, "1000 bytes");
    assert_render_fails(
        "{% set l = [0] * 9999 %}{{ [l, l[1:], l[2:], l[3:], l[4:], l[5:], l[6:]] | length }}", in,
        few, "more than");
    assert_render_fails("{{ range(1000000) }}", in, few, "more than 100000");
    assert_render_fails("{% for a in l recursive %}{{ loop(l) }}{% endfor %}", in, few,
                        "more than");
    assert_render_fails("{% set a = [1] %}{% set _ = a.append(a) %}{{ a }}", in, few,
                        "levels deep");
    assert_render_fails("{% set a = [1] %}{% set _ = a.append(a) %}{{ a | tojson }}", in, few,
                        "levels deep");
    /* an object equals itself at once, as in Python; two such lists do not end */
    struct template_output out =
        render_with("{% set a = [1] %}{% set _ = a.append(a) %}{{ a == [1, a] }}", in, few);
    assert_string_equal(out.text, "True");
    template_output_free(&out);
    assert_render_fails("{% set a = [1] %}{% set _ = a.append(a) %}{% set b = [1] %}"
                        "{% set _ = b.append(b) %}{{ a == b }}",
                        in, few, "levels deep");
}

/* What allocates nothing pays for the text it looks through. */
static void test_looking_through_long_texts_costs_steps(void **state)
{
    (void)state;
    static const char *const uses[] = { "b | length",   "b == c",         "'z' in b",  "b[199999]",
                                        "b.count('z')", "b is upper",     "{b: 1}[b]", "b < c",
                                        "b[5:7]",       "b.startswith(c)" };
    const struct template_options few = { .max_steps = 20000 };
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        char source[200];
        snprintf(source, sizeof source,
                 "{%% set b = 'ab' * 90 * 100 %%}{%% set c = 'ab' * 90 * 100 %%}{%% for i in "
                 "range(800) %%}"
                 "{%% set n = %s %%}{%% endfor %%}",
                 uses[i]);
        assert_render_fails(source, "{}", few, "20000 steps");
    }
    assert_render_fails("{{ ('a' * 400 * 500).rfind('b' ~ 'a' * 400 * 250) }}", "{}", few,
                        "20000 steps");
    assert_render_fails("{{ ('a' * 400 * 500).strip('b' * 90 * 100 ~ 'a') }}", "{}", few,
                        "20000 steps");
}

static void test_deep_input_is_refused(void **state)
{
    (void)state;
    json_t *value = json_object(), *deep = json_array();
    for (int i = 0; i < 3000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_object_set_new(value, "x", deep);
    struct template *t = open_template("{{ x }}");
    struct template_output out;
    zp_err err = { 0 };
    assert_int_equal(template_render(t, value, &out, &err), ZP_BAD_INPUT);
    assert_non_null(strstr(err.message, "levels deep"));
    json_decref(value);
    template_close(t);
}

static void test_rendering_leaves_its_input_alone(void **state)
{
    (void)state;
    struct template *t =
        open_template("{% set _ = l.append(4) %}{% set _ = l.reverse() %}{{ l }}{{ l.pop() }}");
    json_t *value = parse("{\"l\": [1, 2, 3]}"), *same = parse("{\"l\": [1, 2, 3]}");
    for (int i = 0; i < 2; i++) {
        struct template_output out;
        zp_err err = { 0 };
        assert_int_equal(template_render(t, value, &out, &err), ZP_OK);
        assert_string_equal(out.text, "[4, 3, 2, 1]1");
        template_output_free(&out);
    }
    assert_true(json_equal(value, same));
    json_decref(value);
    json_decref(same);
    template_close(t);
}

static void test_reads_tells_which_variables_matter(void **state)
{
    (void)state;
    struct template *t =
        open_template("{% if tools %}{{ enable_thinking }}{% endif %}{{ m.content }}");
    assert_true(template_reads(t, "tools"));
    assert_true(template_reads(t, "enable_thinking"));
    assert_false(template_reads(t, "documents"));
    template_close(t);
}

/* Uses most of what can allocate; the names are long enough to need more than one arena chunk. */
static const char busy[] =
    "{% set ns = namespace(t='') %}{% macro f(a, b='x') %}<{{ a ~ b ~ caller() }}>{% endmacro %}"
    "{% for m in messages if m.role != 'no' %}{% set ns.t = ns.t ~ m.content | upper ~ loop.index "
    "%}"
    "{% call f(m.content) %}{{ m | tojson(indent=1) }}{% endcall %}{% endfor %}{{ ns.t }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | sort | "
    "join(', ') }}"
    "{% set b %}{{ messages[0].content.split('a') }}{% endset %}{{ b | replace(\"'\", '\"') | "
    "indent(2) }}"
    "{{ 'x' * 40000 }}{{ {'a': 1, 'b': [1, 2.5, none]} }}{{ '%s-%5d' | format('é', 7) }}{{ "
    "range(5) | list }}";

static void test_each_failed_allocation_is_reported(void **state)
{
    (void)state;
    json_t *value = parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a banana\"}, "
                          "{\"role\": \"x\", \"content\": \"b\"}]}");
    struct mem_stats before, after;
    uint64_t n = 1;
    mem_stats_read(&before);
    for (bool done = false; !done; n++) {
        struct template *t = NULL;
        struct template_output out = { 0 };
        zp_err err = { 0 };
        mem_fail_at(n, false);
        zp_status status = template_open(&t, busy, strlen(busy), "t", &err);
        if (status == ZP_OK) status = template_render(t, value, &out, &err);
        mem_fail_at(0, false);
        done = status == ZP_OK;
        if (!done) assert_int_equal(status, ZP_NO_MEMORY);
        if (!done) assert_non_null(strstr(err.message, "not enough memory"));
        template_output_free(&out);
        template_close(t);
    }
    assert_true(n > 6);
    mem_stats_read(&after);
    assert_memory_equal(after.live, before.live, sizeof after.live);
    json_decref(value);
}

struct job {
    const struct template *t;
    const json_t *input;
    const char *expected;
    int n_wrong;
};

static void *render_many(void *arg)
{
    struct job *job = arg;
    for (int i = 0; i < 50; i++) {
        struct template_output out;
        zp_err err = { 0 };
        if (template_render(job->t, job->input, &out, &err) != ZP_OK ||
            strcmp(out.text, job->expected) != 0)
            job->n_wrong++;
        template_output_free(&out);
    }
    return NULL;
}

static void test_threads_share_one_template(void **state)
{
    (void)state;
    struct template *t = open_template(busy);
    json_t *value = parse("{\"messages\": [{\"role\": \"user\", \"content\": \"a banana\"}, "
                          "{\"role\": \"y\", \"content\": \"\"}]}");
    struct template_output out;
    zp_err err = { 0 };
    assert_int_equal(template_render(t, value, &out, &err), ZP_OK);
    struct job jobs[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct job){ t, value, out.text, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &jobs[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].n_wrong, 0);
    }
    template_output_free(&out);
    json_decref(value);
    template_close(t);
}

static void test_long_conversations_cost_their_length(void **state)
{
    (void)state;
    /* a text built piece by piece must not be copied at every piece: 20000 pieces within the
     * default memory */
    struct template_output out =
        render_with("{% set ns = namespace(t='') %}{% for i in range(20000) %}"
                    "{% set ns.t = ns.t ~ m %}{% endfor %}{{ ns.t }}",
                    "{\"m\": \"0123456789012345678901234567890123456789012345678901234567890123\"}",
                    (struct template_options){ .max_memory = 64 << 20 });
    assert_int_equal(out.size, 20000 * 64);
    assert_int_equal(out.n_segment, 1);
    template_output_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_origin_follows_every_byte),
        cmocka_unit_test(test_no_user_byte_passes_as_template_text),
        cmocka_unit_test(test_syntax_errors_name_line_column_and_what_was_expected),
        cmocka_unit_test(test_source_limits),
        cmocka_unit_test(test_errors_of_rendering_name_the_place),
        cmocka_unit_test(test_raise_exception_gives_the_templates_own_words),
        cmocka_unit_test(test_limits_end_what_would_not),
        cmocka_unit_test(test_looking_through_long_texts_costs_steps),
        cmocka_unit_test(test_deep_input_is_refused),
        cmocka_unit_test(test_rendering_leaves_its_input_alone),
        cmocka_unit_test(test_reads_tells_which_variables_matter),
        cmocka_unit_test(test_each_failed_allocation_is_reported),
        cmocka_unit_test(test_threads_share_one_template),
        cmocka_unit_test(test_long_conversations_cost_their_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* template.c: chat templates: opening, rendering, and the output as segments by origin. */
#include "model/template.h"

#include <string.h>
#include <time.h>

#include "model/jinja_builtin.h"
#include "model/jinja_exec.h"
#include "model/jinja_iter.h"
#include "model/jinja_parse.h"
#include "model/jinja_scope.h"
#include "model/jinja_text.h"

#define DEFAULT_STEPS 20000000u
#define DEFAULT_MEMORY ((size_t)512 << 20)
#define DEFAULT_OUTPUT ((size_t)64 << 20)
#define DEFAULT_DEPTH 600

struct template
{
    struct jinja_program program;
};

zp_status template_open(struct template **out, const char *source, size_t size, const char *name,
                        zp_err *err)
{
    *out = NULL;
    struct template *t = mem_zalloc(MEM_META, sizeof *t);
    ZP_FAIL_IF(t == NULL, err, ZP_NO_MEMORY, "not enough memory for a template (%zu bytes)",
               sizeof *t);
    zp_status status = jinja_parse(&t->program, source, size, name, err);
    if (status != ZP_OK) {
        template_close(t);
        return status;
    }
    *out = t;
    return ZP_OK;
}

void template_close(struct template *t)
{
    if (t == NULL) return;
    jinja_program_free(&t->program);
    mem_free(t);
}

void template_output_free(struct template_output *out)
{
    mem_free(out->text);
    mem_free(out->segments);
    *out = (struct template_output){ 0 };
}

bool template_reads(const struct template *t, const char *variable)
{
    return jinja_find_name(&t->program, variable, strlen(variable)) != JINJA_NO_NAME;
}

static bool is_trusted(const char *name)
{
    return strcmp(name, "bos_token") == 0 || strcmp(name, "eos_token") == 0;
}

/* Built-in functions first, then the input's variables, which may hide them. */
static zp_status bind_globals(struct jinja *c, const json_t *input)
{
    const struct jinja_program *g = c->program;
    J_NEW(c->globals, c, (size_t)g->n_names + 1);
    for (uint32_t i = 0; i < g->n_names; i++) {
        const struct jbuiltin *b = jinja_find_global(g->names[i], strlen(g->names[i]));
        const json_t *value = json_object_get(input, g->names[i]);
        struct jbound *bound;
        if (value != NULL) {
            ZP_TRY(jv_from_json(c, value, &c->globals[i]));
            if (c->globals[i].kind != J_STR || !is_trusted(g->names[i])) continue;
            const struct jstr *s = c->globals[i].u.s;
            ZP_TRY(jstr_new(c, s->data, s->size, ORIGIN_TEMPLATE, &s));
            c->globals[i] = jv_str(s);
        } else if (b != NULL) {
            J_NEW(bound, c, 1);
            *bound = (struct jbound){ b, jv_none() };
            c->globals[i] = (struct jv){ .kind = J_BUILTIN, .u.bound = bound };
        }
    }
    return ZP_OK;
}

static bool origin_at(const struct jblock *b, size_t i)
{
    return (b->origin == ORIGIN_MIXED ? b->marks[i] : b->origin) == ORIGIN_USER;
}

static size_t run_end(const struct jblock *b, size_t begin)
{
    if (b->origin != ORIGIN_MIXED) return b->used;
    size_t end = begin + 1;
    while (end < b->used && b->marks[end] == b->marks[begin]) end++;
    return end;
}

static zp_status copy_output(const struct jblock *b, struct template_output *out, zp_err *err)
{
    static const struct jblock nothing = { 0 };
    if (b == NULL) b = &nothing;
    size_t n = 0;
    for (size_t at = 0; at < b->used; at = run_end(b, at)) n++;
    ZP_ALLOC(out->text, MEM_META, b->used + 1, err, "the rendered template");
    ZP_ALLOC(out->segments, MEM_META, n, err, "the segments of the rendered template");
    if (b->used != 0) memcpy(out->text, b->data, b->used);
    out->text[b->used] = '\0';
    out->size = b->used;
    for (size_t at = 0; at < b->used; at = run_end(b, at))
        out->segments[out->n_segment++] =
            (struct template_segment){ at, run_end(b, at) - at, origin_at(b, at) };
    return ZP_OK;
}

static zp_status render(struct jinja *c, const json_t *input, struct template_output *out)
{
    struct jtext text = { .c = c };
    enum jflow flow = FLOW_ON;
    c->out = &text;
    ZP_TRY(bind_globals(c, input));
    ZP_TRY(jscope_new(c, NULL, &c->scope));
    ZP_TRY(jinja_exec(c, &c->program->body, &flow));
    return copy_output(text.block, out, c->err);
}

zp_status template_render_with(const struct template *t, const json_t *input,
                               const struct template_options *options, struct template_output *out,
                               zp_err *err)
{
    zp_err unused = { 0 };
    *out = (struct template_output){ 0 };
    if (err == NULL) err = &unused;
    ZP_FAIL_IF(!json_is_object(input), err, ZP_BAD_INPUT,
               "the input of a template is not an object");
    struct jinja c = {
        .arena.tag = MEM_SCRATCH,
        .program = &t->program,
        .err = err,
        .max_bytes = options->max_memory ? options->max_memory : DEFAULT_MEMORY,
        .max_text = options->max_output ? options->max_output : DEFAULT_OUTPUT,
        .max_steps = options->max_steps ? options->max_steps : DEFAULT_STEPS,
        .max_depth = options->max_depth ? options->max_depth : DEFAULT_DEPTH,
        .now = options->now ? options->now : (int64_t)time(NULL),
    };
    zp_status status = render(&c, input, out);
    arena_free(&c.arena);
    if (status != ZP_OK) template_output_free(out);
    return status;
}

zp_status template_render(const struct template *t, const json_t *input,
                          struct template_output *out, zp_err *err)
{
    struct template_options defaults = { 0 };
    return template_render_with(t, input, &defaults, out, err);
}

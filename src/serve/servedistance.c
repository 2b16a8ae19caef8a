/* servedistance.c: measurements of attention by distance, asked for by an admin.
 * Owns: the one that is under way. Does not know: how it is measured.
 * N1 one at a time, on the loader's thread, with one thread: no step of the scheduler waits for it.
 * N2 models that are measured are held, as by a request.
 * N3 a measurement that nobody waits for any more, or that holds up the end, stops after a layer.
 * N4 what is told has no word of the text: it may be a user's. */
#include "serve/servedistance.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "model/distance.h"
#include "model/text.h"
#include "serve/jsonfield.h"
#include "serve/servemodels.h"
#include "serve/servereply.h"

enum { TEXT_MOST = 1 << 16, DEFAULT_TOKENS = 256, DIGITS = 6 };

static const char built_in[] =
    "The harbour master kept two books. In the first he wrote what every ship had brought: "
    "wool, salt, iron bars, a crate of clocks. In the second he wrote what the captains told "
    "him, which was seldom the same. A captain who said that the sea had been calm often had "
    "a broken mast, and a captain who spoke of storms often had dry sails.\n\n"
    "One evening in October a small ship came in without a flag. Its captain, a quiet woman "
    "with grey gloves, declared forty barrels of oil and a letter. The harbour master counted"
    " the barrels: there were forty. Then he asked for the letter. \"It is for whoever keeps "
    "the second book,\" she said, and laid it on the table.\n\n"
    "He did not open it at once. He wrote down the hour, the depth of the water at the quay, "
    "and the names of the two sailors who had carried the barrels. Only then did he break the"
    " seal. The letter had three lines:\n\n"
    "1. The first book says what there is.\n"
    "2. The second book says what was wanted.\n"
    "3. Whoever reads both knows where the ship has really been.\n\n"
    "When he looked up, the captain with the grey gloves had gone back on board. The tide had"
    " turned, and the small ship was moving. He took the second book, found the page of the "
    "day, and for the first time in thirty years he wrote down something that nobody had told"
    " him: that forty barrels of oil are too few for a ship of that size, and that the letter"
    " had been written by his own hand. The clocks in the crate, which should have been "
    "silent, began to strike; he counted them, as he counted everything, and there were "
    "seven.\n";

struct measuring {
    struct servetask task;
    zp_serve *s;
    struct http_exchange *x;
    json_t *body; /* has the text */
    const char *text;
    uint32_t tokens; /* at most */
    int mode;        /* zp_mode */
    struct servemodel *models[VARIANTS]; /* held (N2); NULL: none */
    _Atomic bool gone;
    /* results */
    struct distance_map maps[VARIANTS];
    size_t n_text; /* tokens of the whole text */
    double seconds;
    zp_status status;
    zp_err err;
};

/* ---- on the loader's thread ------------------------------------------------------------------ */

static bool go_on(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct measuring *m = arg;
    ZP_UNUSED(what);
    ZP_UNUSED(done);
    ZP_UNUSED(total);
    return !atomic_load(&m->gone) && atomic_load(&m->s->stops) == 0; // N3
}

static zp_status measure_all(struct measuring *m, struct token_list *ids)
{
    const zp_progress progress = { go_on, m };
    const struct zp_model *model = m->models[VARIANT_BASELINE]->model;
    ZP_TRY(tokenizer_encode(model->tokenizer, m->text, strlen(m->text), 0, ids, &m->err));
    ZP_TRY(text_add_bos(model, ids, &m->err));
    m->n_text = ids->count;
    size_t n = ids->count < m->tokens ? ids->count : m->tokens;
    for (unsigned v = 0; v < VARIANTS; v++)
        if (m->models[v] != NULL)
            ZP_TRY(distance_measure(&m->maps[v], m->models[v]->engine, ids->ids, n,
                                    (zp_mode)m->mode, &progress, &m->err));
    return ZP_OK;
}

static void run(struct servetask *t)
{
    struct measuring *m = (struct measuring *)t;
    struct token_list ids = { 0 };
    double begun = os_now();
    m->status = measure_all(m, &ids);
    m->seconds = os_now() - begun;
    token_list_free(&ids);
}

/* ---- the document ---------------------------------------------------------------------------- */

static void write_row(struct json_build *w, const char *key, const double *x, uint32_t n)
{
    json_build_array(w, key);
    for (uint32_t i = 0; i < n; i++) json_build_real(w, NULL, x[i], DIGITS);
    json_build_array_end(w);
}

static void write_map(const struct servemodel *m, const struct distance_map *map, const char *key,
                      struct json_build *w)
{
    if (m == NULL) {
        json_build_null(w, key);
        return;
    }
    json_build_object(w, key);
    json_build_text(w, "name", m->name);
    json_build_text(w, "mode", position_mode_name(map->mode));
    json_build_real(w, "strength", distance_strength(map), DIGITS);
    json_build_array(w, "layers");
    for (uint32_t l = 0; l < map->n_layer; l++) {
        size_t at = (size_t)l * map->n_buckets;
        json_build_object(w, NULL);
        json_build_real(w, "strength", map->strength[l], DIGITS);
        json_build_real(w, "change", map->change[l], DIGITS);
        json_build_real(w, "first", map->first[l], DIGITS);
        write_row(w, "share", map->share + at, map->n_buckets);
        write_row(w, "weight", map->weight + at, map->n_buckets);
        json_build_object_end(w);
    }
    json_build_array_end(w);
    json_build_object_end(w);
}

static void write_buckets(const struct distance_map *map, struct json_build *w)
{
    json_build_array(w, "buckets");
    for (uint32_t b = 0; b < map->n_buckets; b++) {
        uint32_t to = distance_bucket_first(b + 1) - 1, most = map->n_tok - 2;
        json_build_object(w, NULL);
        json_build_uint(w, "from", distance_bucket_first(b));
        json_build_uint(w, "to", to < most ? to : most);
        json_build_uint(w, "pairs", map->pairs[b]);
        json_build_object_end(w);
    }
    json_build_array_end(w);
}

static void write_measured(const struct measuring *m, struct json_build *w)
{
    const struct distance_map *map = &m->maps[VARIANT_BASELINE];
    json_build_object(w, NULL);
    json_build_text(w, "text", m->text == built_in ? "built-in" : "given"); // N4
    json_build_uint(w, "text_tokens", m->n_text);
    json_build_uint(w, "tokens", map->n_tok);
    json_build_real(w, "unix_seconds", floor((double)os_unix_now() * 1e-9), 17);
    json_build_real(w, "seconds", m->seconds, DIGITS);
    json_build_uint(w, "samples", DISTANCE_SAMPLES);
    write_buckets(map, w);
    for (unsigned v = 0; v < VARIANTS; v++)
        write_map(m->models[v], &m->maps[v], variant_name((enum variant)v), w);
    json_build_object_end(w);
}

static void reply_last(const zp_serve *s, struct http_exchange *x)
{
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    struct json_build w;
    zp_err err = { 0 };
    json_build_append(&w, &body, &err);
    json_build_object(&w, NULL);
    json_build_bool(&w, "running", s->measuring);
    if (s->measured == NULL) json_build_null(&w, "measured");
    else json_build_raw(&w, "measured", s->measured, strlen(s->measured));
    json_build_object_end(&w);
    servereply_json(x, API_OPENAI, w.status, &body, &err);
}

void servedistance_last(const struct servecall *c)
{
    reply_last(c->s, c->x);
}

/* ---- on the loop's --------------------------------------------------------------------------- */

static void keep(struct measuring *m)
{
    zp_serve *s = m->s;
    struct json_build w;
    char *text = NULL;
    for (unsigned v = 0; v < VARIANTS; v++)
        if (m->models[v] != NULL && m->mode == ZP_MODE_FULL)
            m->models[v]->strength = distance_strength(&m->maps[v]);
    json_build_open(&w, &m->err);
    write_measured(m, &w);
    m->status = json_build_finish(&w, &text);
    if (m->status != ZP_OK) return;
    mem_free(s->measured);
    s->measured = text;
}

static void release(struct measuring *m)
{
    zp_serve *s = m->s;
    for (unsigned v = 0; v < VARIANTS; v++) {
        distance_free(&m->maps[v]);
        if (m->models[v] == NULL) continue;
        m->models[v]->n_jobs--;
        if (s->running) servemodels_settle(s, m->models[v]);
    }
    json_decref(m->body);
    mem_free(m);
}

static void end(struct servetask *t)
{
    struct measuring *m = (struct measuring *)t;
    struct apifault fault = { 0 };
    m->s->measuring = false;
    if (m->maps[VARIANT_BASELINE].share == NULL && m->status == ZP_OK)
        m->status = ZP_INTERRUPTED; /* it was not begun */
    if (m->status == ZP_OK) keep(m);
    if (m->status == ZP_OK) reply_last(m->s, m->x);
    else if (m->status == ZP_INTERRUPTED) http_abort(m->x);
    else {
        (void)apifault_of_err(&fault, NULL, &m->err);
        servereply_fault(m->x, API_OPENAI, &fault);
    }
    release(m);
}

static void on_gone(void *arg, struct http_exchange *x, enum http_gone why)
{
    struct measuring *m = arg;
    ZP_UNUSED(x);
    ZP_UNUSED(why);
    atomic_store(&m->gone, true);
}

static zp_status read_body(struct measuring *m, const struct servecall *c, struct apifault *fault)
{
    static const char *const modes[] = { "full", "zero", "half", NULL }; /* as zp_mode */
    static const struct jsonfield fields[] = {
        { "text", FIELD_TEXT, 1, offsetof(struct measuring, text), 1, TEXT_MOST, NULL, NULL },
        { "tokens", FIELD_U32, 1, offsetof(struct measuring, tokens), DISTANCE_LEAST,
          DISTANCE_MOST, NULL, NULL },
        { "mode", FIELD_NAME, 1, offsetof(struct measuring, mode), 0, 0, modes, NULL },
    };
    ZP_TRY(apirequest_parse(&m->body, (const char *)c->r->body, c->r->body_size,
                            &c->s->api_limits, fault));
    return jsonfield_read(fields, ZP_COUNT(fields), 1, m->body, "", m, NULL, fault);
}

static zp_status begin(const struct servecall *c, struct apifault *fault)
{
    zp_serve *s = c->s;
    if (s->measuring)
        return apifault_set(fault, 409, "busy", NULL, "a measurement is under way; wait for it");
    struct measuring *m = mem_zalloc(MEM_SERVE, sizeof *m);
    if (m == NULL) return apifault_no_memory(fault);
    *m = (struct measuring){ .task = { .run = run, .done = end }, .s = s, .x = c->x,
                             .text = built_in, .tokens = DEFAULT_TOKENS };
    zp_status status = read_body(m, c, fault);
    if (status != ZP_OK) {
        json_decref(m->body);
        mem_free(m);
        return status;
    }
    for (unsigned v = 0; v < VARIANTS; v++) {
        m->models[v] = s->variants[v];
        if (m->models[v] != NULL) m->models[v]->n_jobs++;
    }
    s->measuring = true;
    http_on_gone(c->x, on_gone, m);
    servework_give(s->loader, &m->task); // N1
    return ZP_OK;
}

void servedistance_measure(const struct servecall *c)
{
    struct apifault fault = { 0 };
    if (!service_is_ready(c->s, &fault) || begin(c, &fault) != ZP_OK)
        servereply_fault(c->x, API_OPENAI, &fault);
}

/* battery_report.c: the document of what was measured. */
#include <math.h>
#include <stdio.h>

#include "evap/battery.h"
#include "base/json_build.h"

enum { DIGITS = 7 };

/* name, name_lo, name_hi */
static void write_estimate(struct json_build *j, const char *name, const struct estimate *e)
{
    char key[32];
    json_build_real(j, name, e->value, DIGITS);
    snprintf(key, sizeof key, "%s_lo", name);
    json_build_real(j, key, e->lo, DIGITS);
    snprintf(key, sizeof key, "%s_hi", name);
    json_build_real(j, key, e->hi, DIGITS);
}

static void write_text_measures(struct json_build *j, const struct battery *b,
                                const struct battery_span *s)
{
    json_build_uint(j, "documents", s->n_docs);
    json_build_uint(j, "tokens", s->n_tokens);
    write_estimate(j, "nll", &s->nll);
    if (!b->base) return;
    write_estimate(j, "nll_base", &s->nll_base);
    write_estimate(j, "nll_change", &s->change);
    write_estimate(j, "kl", &s->kl);
    write_estimate(j, "top1_agree", &s->top1);
}

static void write_lengths(struct json_build *j, const struct battery *b)
{
    json_build_array(j, "lengths");
    for (uint32_t i = 0; i < b->n_whole; i++) {
        const struct battery_span *s = &b->whole[i];
        json_build_object(j, NULL);
        json_build_uint(j, "length", s->length);
        json_build_uint(j, "windows", s->n_windows);
        json_build_uint(j, "joined", s->n_joined);
        write_text_measures(j, b, s);
        json_build_object_end(j);
    }
    json_build_array_end(j);
}

static void write_buckets(struct json_build *j, const struct battery *b)
{
    json_build_array(j, "buckets");
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct battery_span *s = &b->spans[i];
        json_build_object(j, NULL);
        json_build_uint(j, "length", s->length);
        json_build_uint(j, "from", s->from);
        json_build_uint(j, "to", s->to);
        write_text_measures(j, b, s);
        json_build_object_end(j);
    }
    json_build_array_end(j);
}

static const char *part_name(enum battery_part part)
{
    if (part >= BATTERY_TYPE) return structhead_type_name((enum struct_type)(part - BATTERY_TYPE));
    return part == BATTERY_BOUNDARY ? "boundary" : part == BATTERY_MARK ? "mark" : "plain";
}

static void write_structure(struct json_build *j, const struct battery *b)
{
    json_build_array(j, "structure");
    for (uint32_t i = 0; i < b->n_structure; i++) {
        const struct battery_span *s = &b->structure[i];
        json_build_object(j, NULL);
        json_build_text(j, "tokens_of", part_name(s->part));
        json_build_uint(j, "length", s->length);
        write_text_measures(j, b, s);
        write_estimate(j, "accuracy", &s->right);
        if (b->base) write_estimate(j, "accuracy_base", &s->right_base);
        if (b->base) write_estimate(j, "accuracy_change", &s->right_change);
        json_build_object_end(j);
    }
    json_build_array_end(j);
}

/* NaN (null) where nothing was to be found, or nothing was. */
static double share_of(uint64_t n, uint64_t of)
{
    return of ? (double)n / (double)of : (double)NAN;
}

static void write_detectors(struct json_build *j, const struct battery *b)
{
    json_build_array(j, "detectors");
    for (int k = 0; b->m->structure.weight && k < STRUCT_TYPES; k++) {
        const struct battery_detector *d = &b->detectors[k];
        json_build_object(j, NULL);
        json_build_text(j, "type", structhead_type_name((enum struct_type)k));
        json_build_uint(j, "tagged", d->n_tagged);
        json_build_uint(j, "found", d->n_found);
        json_build_real(j, "precision", share_of(d->n_both, d->n_found), DIGITS);
        json_build_real(j, "recall", share_of(d->n_both, d->n_tagged), DIGITS);
        json_build_object_end(j);
    }
    json_build_array_end(j);
}

static void write_score(struct json_build *j, const struct battery *b,
                        const struct battery_score *s)
{
    json_build_object(j, NULL);
    json_build_text(j, "kind", task_kind_name(s->kind));
    json_build_uint(j, "length", s->length);
    if (s->to) json_build_uint(j, "from", s->from);
    if (s->to) json_build_uint(j, "to", s->to);
    json_build_uint(j, "cases", s->n_cases);
    write_estimate(j, "accuracy", &s->right);
    if (b->base) write_estimate(j, "accuracy_base", &s->right_base);
    if (b->base) write_estimate(j, "accuracy_change", &s->change);
    write_estimate(j, "token_accuracy", &s->tokens);
    if (b->base) write_estimate(j, "token_accuracy_base", &s->tokens_base);
    if (b->base) write_estimate(j, "token_accuracy_change", &s->tokens_change);
    if (!s->to) json_build_real(j, "answer_nll", s->nll, DIGITS);
    if (!s->to && b->base) json_build_real(j, "answer_nll_base", s->nll_base, DIGITS);
    json_build_object_end(j);
}

/* By kind, then in the order they were measured. */
static void write_scores(struct json_build *j, const struct battery *b, const char *name,
                         const struct battery_score *scores, uint32_t n)
{
    json_build_array(j, name);
    for (int k = 0; k < TASK_KINDS; k++)
        for (uint32_t i = 0; i < n; i++)
            if (scores[i].kind == (enum task_kind)k) write_score(j, b, &scores[i]);
    json_build_array_end(j);
}

zp_status battery_write(const struct battery *b, const char *corpus, char **json, zp_err *err)
{
    struct json_build j;
    json_build_open(&j, err);
    json_build_object(&j, NULL);
    json_build_text(&j, "model", b->m->gguf.path);
    if (b->base) json_build_text(&j, "against", b->base->gguf.path);
    json_build_text(&j, "corpus", corpus);
    json_build_text(&j, "rope_scaling", b->m->stretch[0] ? b->m->stretch : NULL);
    json_build_text(&j, "mode", position_mode_name(b->o.mode));
    json_build_bool(&j, "exact", b->o.engine.exact);
    json_build_uint(&j, "n_ctx_train", b->m->h.n_ctx_train);
    json_build_uint(&j, "seed", b->o.seed);
    json_build_uint(&j, "held_documents", b->n_held);
    write_lengths(&j, b);
    write_buckets(&j, b);
    if (b->o.structure) write_structure(&j, b);
    if (b->o.structure) write_detectors(&j, b);
    write_scores(&j, b, "probes", b->scores, b->n_scores);
    write_scores(&j, b, "distances", b->distances, b->n_distances);
    json_build_real(&j, "total_seconds", b->seconds, 4);
    json_build_object_end(&j);
    return json_build_finish(&j, json);
}

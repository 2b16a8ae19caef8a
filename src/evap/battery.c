/* battery.c: the call that measures a model on held-out windows and made-up questions.
 * Owns: corpus, questions and engines of one call. Does not know: how a number comes about
 * (battery_windows.c, battery_cases.c), JSON (battery_report.c).
 * B4 engines are opened for one length at a time: a dynamic scaling is that of the length, and the
 *    keys and values take about as much at each. */
#include "evap/battery.h"

#include <string.h>

#include "base/os.h"
#include "evap/heldwin.h"

enum {
    LEAST_LENGTH = 32,
    MOST_LENGTH = 1 << 24,
    WINDOWS = 32,
    CASES = 200,
    TOKENS_AT_A_TIME = 8192,
    MOST_SEQS = 64
};

/* ---- what is asked for ---- */

static zp_status resolve(struct battery *b, const zp_probe_options *given, zp_err *err)
{
    zp_probe_options *o = &b->o;
    if (given) *o = *given;
    if (o->n_windows == 0) o->n_windows = WINDOWS;
    if (o->n_cases == 0) o->n_cases = CASES;
    if (o->seed == 0) o->seed = BATTERY_SEED;
    ZP_FAIL_IF((int)o->mode < 0 || (int)o->mode > ZP_MODE_AUTO, err, ZP_USAGE,
               "position mode %d is unknown", (int)o->mode);
    ZP_FAIL_IF(o->no_windows && o->no_cases, err, ZP_USAGE,
               "neither windows nor cases: nothing is measured");
    ZP_FAIL_IF(o->no_windows && o->structure, err, ZP_USAGE,
               "structure is measured on windows: there must be some");
    ZP_FAIL_IF(o->n_lengths > BATTERY_LENGTHS, err, ZP_USAGE, "%zu lengths; at most %d",
               o->n_lengths, BATTERY_LENGTHS);
    for (size_t i = 1; i < o->n_lengths; i++)
        ZP_FAIL_IF(o->lengths[i] <= o->lengths[i - 1], err, ZP_USAGE,
                   "lengths must ascend: %u comes after %u", o->lengths[i], o->lengths[i - 1]);
    o->engine.exact = !o->fast;
    o->engine.kv_bytes = 0;
    o->engine.prefix_cache = false;
    return ZP_OK;
}

static zp_status choose_kinds(struct battery *b, zp_err *err)
{
    for (int k = 0; k < TASK_KINDS; k++) b->kinds[k] = b->o.n_kinds == 0;
    for (size_t i = 0; i < b->o.n_kinds; i++) {
        int k = 0;
        while (k < TASK_KINDS && strcmp(b->o.kinds[i], task_kind_name((enum task_kind)k)) != 0) k++;
        ZP_FAIL_IF(k == TASK_KINDS, err, ZP_USAGE,
                   "kind '%.40s' is unknown; known: copy, induction, passkey, multikey, order, "
                   "count, brackets", b->o.kinds[i]);
        b->kinds[k] = true;
    }
    return ZP_OK;
}

static zp_status check_model(const struct battery *b, const struct zp_model *m, zp_err *err)
{
    const struct tokenizer *t;
    ZP_TRY(model_tokenizer(m, &t, err));
    ZP_TRY(shards_check_tokenizer(b->shards, t, m->gguf.path, err));
    ZP_FAIL_IF(m->h.n_vocab != b->m->h.n_vocab, err, ZP_BAD_INPUT,
               "the two models differ in vocabulary: %u and %u rows of embeddings",
               b->m->h.n_vocab, m->h.n_vocab);
    return ZP_OK;
}

/* ---- lengths ---- */

static void usual_lengths(struct battery *b)
{
    uint64_t most = b->longest < MOST_LENGTH ? b->longest : MOST_LENGTH;
    for (uint32_t times = 1; times <= 8; times *= 2) {
        uint64_t length = (uint64_t)b->m->h.n_ctx_train * times;
        if (length <= most) b->lengths[b->n_lengths++] = (uint32_t)length;
    }
}

static zp_status choose_lengths(struct battery *b, zp_err *err)
{
    const zp_probe_options *o = &b->o;
    b->longest = heldwin_longest(b->shards, &b->n_held);
    ZP_FAIL_IF(b->n_held == 0, err, ZP_BAD_INPUT,
               "the corpus holds no documents out: there is no text that no model was trained on; "
               "make it again without --no-held");
    b->n_lengths = (uint32_t)o->n_lengths;
    if (o->n_lengths) memcpy(b->lengths, o->lengths, o->n_lengths * sizeof *o->lengths);
    else usual_lengths(b);
    uint32_t first = b->n_lengths ? b->lengths[0] : b->m->h.n_ctx_train;
    uint32_t last = b->n_lengths ? b->lengths[b->n_lengths - 1] : first;
    ZP_FAIL_IF(first < LEAST_LENGTH, err, ZP_USAGE, "a length of %u tokens; at least %d", first,
               LEAST_LENGTH);
    ZP_FAIL_IF(b->n_lengths == 0 || (last > b->longest && !o->no_windows), err, ZP_BAD_INPUT,
               "a window of %u tokens needs more text than is held out, which fills %llu; give "
               "shorter lengths", last, (unsigned long long)b->longest);
    return ZP_OK;
}

static zp_status open_tasks(struct battery *b, zp_err *err)
{
    const struct tokenizer *t;
    ZP_TRY(model_tokenizer(b->m, &t, err));
    for (int k = 0; k < TASK_KINDS; k++) {
        struct tasks_options only = { .probes = true };
        only.share[k] = 1;
        if (b->kinds[k]) ZP_TRY(tasks_open(&b->tasks[k], b->shards, t, &only, err));
    }
    return task_open(&b->task, b->lengths[b->n_lengths - 1], err);
}

static zp_status open_tagger(struct battery *b, zp_err *err)
{
    const struct tokenizer *t;
    ZP_TRY(model_tokenizer(b->m, &t, err));
    return tagger_open(&b->tagger, b->shards, t, true, err);
}

/* ---- running ---- */

uint64_t battery_count(const struct battery *b)
{
    uint64_t each = b->o.no_windows ? 0 : b->o.n_windows;
    for (int k = 0; k < TASK_KINDS && !b->o.no_cases; k++)
        if (b->kinds[k]) each += b->o.n_cases;
    return each * b->n_lengths;
}

static zp_status open_engines(struct battery *b, uint32_t length, zp_err *err)
{
    zp_engine_options o = b->o.engine;
    uint32_t fit = TOKENS_AT_A_TIME / length;
    o.n_ctx = length;
    if (o.n_seq == 0) o.n_seq = fit < 1 ? 1 : fit > MOST_SEQS ? MOST_SEQS : fit;
    ZP_TRY(zp_engine_open(&b->side.e, b->m, &o, err));
    return b->base ? zp_engine_open(&b->side.base, b->base, &o, err) : ZP_OK;
}

static void close_engines(struct battery *b)
{
    zp_engine_close(b->side.e);
    zp_engine_close(b->side.base);
    b->side.e = b->side.base = NULL;
}

static zp_status run_length(struct battery *b, uint32_t i, zp_err *err)
{
    ZP_TRY(open_engines(b, b->lengths[i], err));
    if (!b->o.no_windows) ZP_TRY(battery_windows(b, i, err));
    return b->o.no_cases ? ZP_OK : battery_cases(b, i, err);
}

static zp_status run_battery(struct battery *b, const char *corpus, char **json, zp_err *err)
{
    double begin = os_now();
    ZP_TRY(check_model(b, b->m, err));
    if (b->base) ZP_TRY(check_model(b, b->base, err));
    ZP_TRY(choose_kinds(b, err));
    ZP_TRY(choose_lengths(b, err));
    if (!b->o.no_cases) ZP_TRY(open_tasks(b, err));
    if (b->o.structure) ZP_TRY(open_tagger(b, err));
    b->side.mode = b->o.mode;
    b->side.progress = &b->o.progress;
    b->side.total = battery_count(b);
    for (uint32_t i = 0; i < b->n_lengths; i++) {
        zp_status status = run_length(b, i, err);
        close_engines(b);
        ZP_TRY(status);
    }
    const zp_progress *progress = &b->o.progress; /* what was passed over last counts as done */
    if (progress->fn) progress->fn(progress->arg, "sequences", b->side.total, b->side.total);
    b->seconds = os_now() - begin;
    return battery_write(b, corpus, json, err);
}

static void battery_close(struct battery *b)
{
    for (int k = 0; k < TASK_KINDS; k++) tasks_close(&b->tasks[k]);
    task_close(&b->task);
    tagger_close(&b->tagger);
}

zp_status zp_probe_json(const zp_model *m, const zp_model *base, const char *corpus,
                        const zp_probe_options *options, char **json, zp_err *err)
{
    struct shards shards = { 0 };
    if (json) *json = NULL;
    struct battery *b = mem_zalloc(MEM_EVAP, sizeof *b);
    ZP_FAIL_IF(!b, err, ZP_NO_MEMORY, "not enough memory for a measurement");
    b->m = m, b->base = base, b->shards = &shards;
    zp_status status = resolve(b, options, err);
    if (status == ZP_OK) status = shards_open(&shards, corpus, err);
    if (status == ZP_OK) status = run_battery(b, corpus, json, err);
    battery_close(b);
    shards_close(&shards);
    mem_free(b);
    return status;
}

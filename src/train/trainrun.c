/* trainrun.c: the loop of a training run.
 * Owns: the record (series.h) while it runs. Does not know: where the model comes from or goes to.
 * Processes: all take the same decisions, from numbers that were added over them; the first one
 * alone writes. */
#include "train/trainrun.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "train/series_store.h"

enum { LOOK_EVERY = 50 };
static const double REPORT_SECONDS = 5;

struct run {
    struct trainer *t;
    const struct trainrun_options *o;
    struct trainrun_result *out;
    struct series *series; /* NULL: none, or another process's */
    struct os_lock lock;     /* on the folder; held by the first process */
    struct guard_norms *norms; /* (n_layer) */
    struct trainer_quality held; /* n_windows 0: nothing was measured */
    /* since the last report */
    double report_at, seconds_then, loss, ce, kl;
    uint64_t n_steps;
};

/* ---- the record ------------------------------------------------------------------------------ */

static zp_status lock_folder(struct run *r, zp_err *err)
{
    char *path;
    zp_err why = { 0 };
    ZP_TRY(os_make_folders(r->o->folder, err));
    ZP_TRY(series_path(&path, r->o->folder, "lock", err));
    zp_status status = os_lock(&r->lock, path, &why);
    mem_free(path);
    ZP_FAIL_IF(status == ZP_RUN, err, ZP_RUN, "%s; wait for it, or choose another folder",
               why.message);
    ZP_FAIL_IF(status != ZP_OK, err, status, "%s", why.message);
    return checkpoint_clear(r->o->folder, err);
}

/* The folder's run as it was left: its checkpoint, or nothing yet where it was killed before. */
static zp_status resume(struct run *r, zp_err *err)
{
    const struct trainrun_options *o = r->o;
    bool any, run;
    ZP_TRY(checkpoint_any(o->folder, &any, err));
    ZP_TRY(series_exists(o->folder, &run, err));
    ZP_FAIL_IF(!any && !run, err, ZP_BAD_INPUT,
               "%s: holds no run to go on with; without --resume one begins there", o->folder);
    ZP_TRY(series_check(o->folder, &o->info, err));
    if (any) return trainer_resume(r->t, o->folder, err);
    log_warn("%s: its run has no checkpoint yet; it begins anew", o->folder);
    return ZP_OK;
}

static zp_status open_record(struct run *r, zp_err *err)
{
    const struct trainrun_options *o = r->o;
    struct series_info info = o->info;
    info.adopt = true;
    if (dist_rank(r->t->dist) != 0) return ZP_OK;
    return o->resume ? series_resume(&r->series, o->folder, r->t->step, &info, err)
                     : series_create(&r->series, o->folder, &info, err);
}

static zp_status open_folder(struct run *r, zp_err *err)
{
    if (!r->o->folder) return ZP_OK;
    if (r->o->resume) {
        ZP_FAIL_IF(!os_is_folder(r->o->folder), err, ZP_BAD_INPUT,
                   "%s: holds no run to go on with; without --resume one begins there",
                   r->o->folder);
    }
    if (dist_rank(r->t->dist) == 0) ZP_TRY(lock_folder(r, err));
    if (r->o->resume) ZP_TRY(resume(r, err));
    r->out->first_step = r->t->step;
    return open_record(r, err);
}

/* What the gates have in `closings`. */
static zp_status record_gates(struct run *r, uint64_t step, const char *gate, const char *bias,
                              zp_err *err)
{
    const struct gates *g = &r->t->gates;
    for (size_t i = 0; r->series && i < g->n_closings; i++) {
        const struct gates_closing *c = &g->closings[i];
        struct gates_place at = gates_place_of(g, c->unit);
        struct series_event event = { step, at.is_bias ? bias : gate, c->reason, at.layer, at.head,
                                      at.pair };
        ZP_TRY(series_add_event(r->series, &event, err));
    }
    return ZP_OK;
}

static zp_status record_step(struct run *r, const struct trainer_step *s, zp_err *err)
{
    if (!r->series) return ZP_OK;
    double weight = s->sums.weight > 0 ? s->sums.weight : 1;
    const struct {
        const char *name;
        double value;
    } numbers[] = { { "loss", s->loss },
                    { "ce", s->sums.ce / weight },
                    { "kl", s->sums.kl / weight },
                    { "rate", s->rate },
                    { "grad_norm", s->opt.grad_norm },
                    { "gates_closed", (double)r->t->gates.n_closed } };
    for (size_t i = 0; i < ZP_COUNT(numbers); i++)
        ZP_TRY(series_add(r->series, s->step, numbers[i].name, numbers[i].value, err));
    if (structlearn_tagger(&r->t->structure))
        ZP_TRY(series_add(r->series, s->step, "tags", s->sums.tags / weight, err));
    return record_gates(r, s->step, "gate closed", "bias closed", err);
}

static zp_status record_held(struct run *r, zp_err *err)
{
    const struct loss_sums *s = &r->held.sums;
    if (!r->series || !r->held.n_windows) return ZP_OK;
    double weight = s->weight > 0 ? s->weight : 1;
    ZP_TRY(series_add(r->series, r->t->step, "held.ce", s->ce / weight, err));
    if (!r->t->teacher) return ZP_OK;
    ZP_TRY(series_add(r->series, r->t->step, "held.kl", s->kl / weight, err));
    return series_add(r->series, r->t->step, "held.same_top", (double)s->same_top / weight, err);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* To the caller, and to readers of the record; what is beyond the last checkpoint goes with it when
 * the run is killed and gone on with. */
static zp_status report(struct run *r, zp_err *err)
{
    const struct trainer *t = r->t;
    double n = r->n_steps ? (double)r->n_steps : 1, seconds = r->out->seconds - r->seconds_then;
    double weight = r->held.sums.weight > 0 ? r->held.sums.weight : 1;
    double tokens = n * (double)t->options.n_rows * t->options.n_ctx;
    zp_train_report report = { .step = t->step,
                               .steps = t->options.schedule.steps,
                               .loss = r->loss / n,
                               .ce = r->ce / n,
                               .kl = r->kl / n,
                               .held_ce =
                                   r->held.n_windows ? r->held.sums.ce / weight : (double)NAN,
                               .held_kl =
                                   r->held.n_windows ? r->held.sums.kl / weight : (double)NAN,
                               .rate = r->out->last.rate,
                               .tokens_per_second = seconds > 0 ? tokens / seconds : 0,
                               .gates_closed = t->gates.n_closed,
                               .gates = t->gates.n_open };
    if (r->o->on_report && r->n_steps) r->o->on_report(r->o->report_arg, &report);
    r->report_at = os_now() + REPORT_SECONDS;
    r->seconds_then = r->out->seconds;
    r->loss = r->ce = r->kl = 0;
    r->n_steps = 0;
    return r->series ? series_flush(r->series, err) : ZP_OK;
}

static void take_in(struct run *r, const struct trainer_step *s)
{
    double weight = s->sums.weight > 0 ? s->sums.weight : 1;
    r->out->last = *s;
    r->loss += s->loss;
    r->ce += s->sums.ce / weight;
    r->kl += s->sums.kl / weight;
    r->n_steps++;
    r->out->skipped += s->verdict != GUARD_GO;
    r->out->spikes += s->spike;
}

/* ---- parts of the loop ----------------------------------------------------------------------- */

static double held_loss(const struct run *r)
{
    const struct trainer_options *o = &r->t->options;
    const struct loss_sums *s = &r->held.sums;
    double n = s->weight > 0 ? s->weight : 1;
    return ((double)o->ce_weight * s->ce + (double)o->kl_weight * s->kl) / n;
}

/* Gates that were learned away since the last measurement come back where that cost too much. */
static zp_status guard_closings(struct run *r, zp_err *err)
{
    struct gates *g = &r->t->gates;
    double before = r->t->marks->held_loss;
    if (!gates_learn(g, r->t->step) || !(held_loss(r) > before + g->options.tolerance))
        return ZP_OK;
    size_t n = gates_open_again(g, (uint64_t)r->t->marks->held_at);
    if (n == 0) return ZP_OK;
    log_write(LOG_INFO, "step %llu: %zu gates open again: the held-out loss rose from %g to %g",
              (unsigned long long)r->t->step, n, before, held_loss(r));
    r->out->reopened += n;
    ZP_TRY(record_gates(r, r->t->step, "gate opened", "bias opened", err));
    trainer_measure(r->t, r->o->eval_windows, &r->held);
    return ZP_OK;
}

/* marks: what the next measurement is compared with; not moved where a run goes on, since the one
 * that was not disturbed does not measure there. */
static zp_status measure(struct run *r, bool marks, zp_err *err)
{
    trainer_measure(r->t, r->o->eval_windows, &r->held);
    if (!r->held.n_windows) return ZP_OK;
    if (marks) {
        ZP_TRY(guard_closings(r, err));
        r->t->marks->held_loss = held_loss(r);
        r->t->marks->held_at = (double)r->t->step;
    }
    return record_held(r, err);
}

/* Whether the parameters are worth keeping: queries and keys have not outgrown the guard's measure,
 * and the model knows more than nothing. */
static zp_status look(struct run *r, zp_err *err)
{
    static const double SCORE = 50; /* beyond it softmax sees nothing but the largest */
    const struct trainer *t = r->t;
    struct trainer_marks *marks = t->marks;
    uint32_t n_layer = t->model->h.n_layer;
    double ce, guess = log(t->model->h.n_vocab);
    ZP_TRY(trainer_look(r->t, r->norms, &ce, err));
    if (!isfinite(marks->first_ce)) {
        memcpy(marks->first, r->norms, n_layer * sizeof *r->norms);
        marks->first_ce = ce;
    }
    ZP_FAIL_IF(!isfinite(ce) || (ce > 2 * guess && ce > 2 * marks->first_ce), err, ZP_RUN,
               "step %llu: the loss is %g nats a token, at the beginning it was %g; to guess costs "
               "%g: the run diverges; lower the learning rate (--learning-rate)",
               (unsigned long long)t->step, ce, marks->first_ce, guess);
    struct guard_growth g = guard_compare_norms(&t->guard, marks->first, r->norms, n_layer,
                                                SCORE * sqrt(t->model->h.d_head));
    ZP_FAIL_IF(g.layer < n_layer, err, ZP_RUN,
               "step %llu: the largest %s of layer %zu grew %.1f-fold: " GUARD_ADVICE,
               (unsigned long long)t->step, g.of_keys ? "key" : "query", g.layer, g.factor);
    return ZP_OK;
}

static zp_status save(struct run *r, zp_err *err)
{
    if (!r->o->folder) return ZP_OK;
    if (r->series) ZP_TRY(series_flush(r->series, err));
    ZP_TRY(trainer_save(r->t, r->o->folder, r->o->keep, err));
    return dist_barrier(r->t->dist, err);
}

static zp_status obey(struct run *r, const struct trainer_step *s, zp_err *err)
{
    static const char advice[] = "lower the learning rate, or look at the data of these steps";
    if (s->verdict == GUARD_GO || s->verdict == GUARD_SKIP) return ZP_OK;
    ZP_FAIL_IF(s->verdict == GUARD_STOP, err, ZP_RUN,
               "step %llu: the loss or its gradient is not finite, after %u roll-backs: %s",
               (unsigned long long)s->step, r->t->guard.roll_backs - 1, advice);
    ZP_FAIL_IF(
        !r->o->folder, err, ZP_RUN,
        "step %llu: the loss or its gradient is not finite, and there is no checkpoint to go "
        "back to: %s",
        (unsigned long long)s->step, advice);
    ZP_TRY(trainer_roll_back(r->t, r->o->folder, err));
    r->out->roll_backs++;
    return r->series ? series_cut(r->series, r->t->step, err) : ZP_OK;
}

/* Whether any process was asked to stop. */
static zp_status asked_to_stop(struct run *r, bool *stop, zp_err *err)
{
    const struct trainer *t = r->t;
    const zp_progress *p = &r->o->progress;
    double mine = p->fn && !p->fn(p->arg, "train", t->step, t->options.schedule.steps);
    if (dist_size(t->dist) > 1) ZP_TRY(dist_max(t->dist, &mine, 1, err));
    *stop = mine != 0;
    return ZP_OK;
}

/* A penalty outside of where it works is told as soon as it shows. */
static void tell_pace(const struct run *r)
{
    const struct gates *g = &r->t->gates;
    if (dist_rank(r->t->dist) != 0) return;
    if (g->pace == GATES_PACE_SLOW)
        log_warn("step %llu: %zu of %zu gates had closed by themselves when the ramp ended, all "
                 "others were closed there at once; a higher --lambda (now %g) or a longer ramp "
                 "lets them close one by one",
                 (unsigned long long)r->t->step, g->n_self, g->n_close, g->options.lambda);
    if (g->pace == GATES_PACE_FAST)
        log_warn("step %llu: all %zu gates have closed, as fast as they can; a lower --lambda (now "
                 "%g) lets the loss choose which close first",
                 (unsigned long long)r->t->step, g->n_close, g->options.lambda);
}

static bool every(uint64_t n, uint64_t step)
{
    return n > 0 && step % n == 0;
}

static zp_status one_step(struct run *r, zp_err *err)
{
    struct trainer_step s;
    bool stop;
    double before = os_now();
    ZP_TRY(trainer_run_step(r->t, &s, err));
    r->out->seconds += os_now() - before;
    take_in(r, &s);
    tell_pace(r);
    ZP_TRY(record_step(r, &s, err));
    ZP_TRY(obey(r, &s, err));
    uint64_t step = r->t->step, last = r->t->options.schedule.steps;
    bool measures = every(r->o->eval_every, step) || step == last;
    if (measures) ZP_TRY(measure(r, true, err));
    if (measures || os_now() >= r->report_at) ZP_TRY(report(r, err));
    ZP_TRY(asked_to_stop(r, &stop, err));
    /* Behind a step that was not taken the state may be what made it bad. */
    bool good = s.verdict == GUARD_GO || step == last;
    bool saves = good && (stop || every(r->o->save_every, step) || step == last);
    if (saves || (good && every(LOOK_EVERY, step))) ZP_TRY(look(r, err));
    if (saves) ZP_TRY(save(r, err));
    ZP_FAIL_IF(stop && step < last, err, ZP_INTERRUPTED, "stopped at step %llu of %llu%s",
               (unsigned long long)step, (unsigned long long)last,
               r->o->folder ? "; --resume goes on" : "");
    return ZP_OK;
}

static zp_status run_all(struct run *r, zp_err *err)
{
    struct trainer *t = r->t;
    ZP_ALLOC(r->norms, MEM_TRAIN, t->model->h.n_layer, err, "norms");
    ZP_TRY(open_folder(r, err));
    ZP_TRY(look(r, err));
    ZP_TRY(measure(r, !isfinite(t->marks->held_loss), err));
    r->out->before = r->held;
    if (!r->held.n_windows && gates_need_mix(&t->gates.options))
        log_warn("the corpus holds nothing out: gates that close are not checked against "
                 "--tolerance");
    if (t->step == 0) ZP_TRY(save(r, err)); /* what the first roll-back goes back to */
    r->report_at = os_now() + REPORT_SECONDS;
    while (t->step < t->options.schedule.steps) ZP_TRY(one_step(r, err));
    r->out->after = r->held;
    return ZP_OK;
}

zp_status trainrun(struct trainer *t, const struct trainrun_options *o,
                   struct trainrun_result *out, zp_err *err)
{
    *out = (struct trainrun_result){ 0 };
    struct run r = { .t = t, .o = o, .out = out, .lock = { -1 } };
    zp_status status = run_all(&r, err);
    if (r.series && status != ZP_OK) (void)series_flush(r.series, NULL); /* what there is */
    series_close(r.series);
    mem_free(r.norms);
    os_unlock(&r.lock);
    return status;
}

/* trainjob.c: a training run as the public call asks for it.
 * Owns: the open files of a run, its defaults. Does not know: steps (trainrun.c), gates'
 * policies. */
#include "train/trainjob.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/numtext.h"
#include "base/os.h"
#include "kern/quant.h"
#include "model/gguf_write.h"

enum { MOST_DEFAULT_CTX = 512 };

/* ---- options --------------------------------------------------------------------------------- */

/* NaN stays, and is refused. */
static double or_default(double x, double standard)
{
    return x < 0 ? 0 : x == 0 ? standard : x;
}

static uint64_t count_or_default(uint64_t x, uint64_t standard)
{
    return x ? x : standard;
}

static void fill_defaults(zp_train_options *o, const struct zp_model *m)
{
    uint32_t ctx = m->h.n_ctx_train;
    o->n_ctx = o->n_ctx ? o->n_ctx : ctx < MOST_DEFAULT_CTX ? ctx : MOST_DEFAULT_CTX;
    o->batch_rows = (uint32_t)count_or_default(o->batch_rows, 32);
    o->micro_batches = (uint32_t)count_or_default(o->micro_batches, 1);
    o->learning_rate = or_default(o->learning_rate, 1e-3);
    o->schedule = o->schedule ? o->schedule : "wsd";
    o->warmup = or_default(o->warmup, 0.05);
    o->decay = or_default(o->decay, 0.2);
    o->floor = or_default(o->floor, 0.05);
    o->weight_decay = or_default(o->weight_decay, 0.1);
    o->clip = or_default(o->clip, 1);
    o->ce_weight = or_default(o->ce_weight, 1);
    o->kl_weight = o->original ? or_default(o->kl_weight, 1) : 0;
    o->learn = o->learn ? o->learn : "all";
    o->tag_weight = or_default(o->tag_weight, 0.1);
    o->tag_dropout = or_default(o->tag_dropout, 0.3);
    o->seed = count_or_default(o->seed, 1);
    o->type = o->type ? o->type : "F32";
    o->save_every = count_or_default(o->save_every, 200);
    o->eval_every = count_or_default(o->eval_every, 100);
    o->eval_windows = (uint32_t)count_or_default(o->eval_windows, 32);
}

/* What learns by --learn: tensors with one of these in their name. */
static const struct learning {
    const char *name, *parts[6];
} learnings[] = {
    { "all", { "" } },
    { "qk", { ".attn_q.", ".attn_k.", ".attn_q_norm.", ".attn_k_norm." } },
    { "qko", { ".attn_q.", ".attn_k.", ".attn_q_norm.", ".attn_k_norm.", ".attn_output." } },
    { "gate", { ".pos_gate." } },
    { "structure", { "struct_" } },
    { "parts", { ".pos_gate.", "struct_" } },
};

static const struct learning *learning_of(const char *name)
{
    for (size_t i = 0; i < ZP_COUNT(learnings); i++)
        if (strcmp(learnings[i].name, name) == 0) return &learnings[i];
    return NULL;
}

static bool is_part_of(const struct learning *l, const char *tensor)
{
    for (size_t i = 0; i < ZP_COUNT(l->parts) && l->parts[i]; i++)
        if (strstr(tensor, l->parts[i])) return true;
    return false;
}

static zp_status check_learn(const struct trainjob *j, zp_err *err)
{
    const struct learning *l = learning_of(j->options.learn);
    const struct gguf *g = &j->model->gguf;
    bool any = false;
    ZP_FAIL_IF(!l, err, ZP_USAGE,
               "what learns is all, qk, qko, gate, structure or parts, not '%s'",
               j->options.learn);
    for (uint32_t i = 0; i < g->n_tensors; i++) any |= is_part_of(l, g->tensors[i].name);
    ZP_FAIL_IF(!any, err, ZP_USAGE,
               "the model has nothing that --learn %s names; --position-gate and --structure-head "
               "add it", l->name);
    return ZP_OK;
}

static zp_status check_options(const struct trainjob *j, zp_err *err)
{
    const zp_train_options *o = &j->options;
    const struct quant_traits *type = quant_traits_by_name(o->type);
    ZP_FAIL_IF(o->tokens == 0, err, ZP_USAGE, "a budget of tokens is needed (--tokens)");
    ZP_FAIL_IF(!type || !type->can_write, err, ZP_USAGE, "no type '%s' that can be written",
               o->type);
    ZP_FAIL_IF(o->ce_weight == 0 && o->kl_weight == 0, err, ZP_USAGE,
               "nothing to learn from: the weight of the text is 0 and so is that of an original");
    ZP_FAIL_IF(!isfinite(o->ce_weight) || !isfinite(o->kl_weight) || !isfinite(o->weight_decay) ||
                   !isfinite(o->clip),
               err, ZP_USAGE, "weights of losses, weight decay and clip must be numbers");
    ZP_FAIL_IF(!isfinite(o->warmup) || !isfinite(o->decay) || !isfinite(o->floor) ||
                   o->warmup > 1 || o->decay > 1 || o->floor > 1,
               err, ZP_USAGE, "warmup, decay and floor are shares, from 0 to 1");
    ZP_FAIL_IF(o->n_ctx > j->model->h.n_ctx_train && j->model->h.n_ctx_train, err, ZP_USAGE,
               "rows of %u tokens (--ctx-size): the model's context has %u", o->n_ctx,
               j->model->h.n_ctx_train);
    ZP_TRY(check_learn(j, err));
    ZP_FAIL_IF(!(o->task_share >= 0 && o->task_share <= 1), err, ZP_USAGE,
               "the share of tasks is from 0 to 1");
    ZP_FAIL_IF(o->resume && !o->run, err, ZP_USAGE,
               "to go on needs the folder of the run (--run-dir)");
    return ZP_OK;
}

static zp_status check_adapter(const zp_train_options *o, bool wanted, zp_err *err)
{
    ZP_FAIL_IF(!wanted && (o->lora_alpha != 0 || o->lora_targets || o->adapter_out), err, ZP_USAGE,
               "adapters need a rank (--lora-rank) or a folder to begin with (--adapter-in)");
    ZP_FAIL_IF(wanted && strcmp(o->learn, "all") != 0, err, ZP_USAGE,
               "nothing but adapters learns where there are some: --lora-targets names their "
               "matrices, not --learn %s", o->learn);
    ZP_FAIL_IF(o->adapter_out && os_exists(o->adapter_out) && !os_is_folder(o->adapter_out), err,
               ZP_USAGE, "%s: is no folder, which adapters are written to", o->adapter_out);
    return ZP_OK;
}

/* Adapters: what the options say, else the folder to begin with, else the defaults. */
static zp_status find_adapter(struct trainjob *j, zp_err *err)
{
    const zp_train_options *o = &j->options;
    struct adapter_options *a = &j->adapter;
    bool wanted = o->lora_rank > 0 || o->adapter_in;
    ZP_TRY(check_adapter(o, wanted, err));
    if (!wanted) return ZP_OK;
    if (o->adapter_in) ZP_TRY(adapterfile_open(&j->start, o->adapter_in, err));
    a->rank = o->lora_rank ? o->lora_rank : j->start.rank;
    a->alpha = o->lora_alpha != 0 ? o->lora_alpha : o->adapter_in ? j->start.alpha : a->rank;
    a->seed = o->seed;
    ZP_FAIL_IF(o->adapter_in && (a->rank != j->start.rank || a->alpha != j->start.alpha), err,
               ZP_USAGE, "%s: its adapters have rank %u and alpha %g, not %u and %g",
               o->adapter_in, j->start.rank, j->start.alpha, a->rank, a->alpha);
    if (o->lora_targets || !o->adapter_in)
        return adapter_read_targets(o->lora_targets ? o->lora_targets : "q,v", &a->targets, err);
    a->targets = j->start.targets;
    return ZP_OK;
}

/* Notes what was asked for: a name and its value as text. */
static void ask(struct trainjob *j, const char *name, const char *format, ...) ZP_PRINTF(3, 4);
static void ask(struct trainjob *j, const char *name, const char *format, ...)
{
    va_list list;
    assert(j->n_asked < TRAINJOB_OPTIONS);
    char *value = j->values[j->n_asked];
    va_start(list, format);
    (void)numtext_vprintf(value, TRAINJOB_TEXT, format, list);
    va_end(list);
    j->asked[j->n_asked++] = (struct series_option){ name, value, NULL };
}

/* Nothing where there are none: runs from before there were any can be gone on with. */
static void ask_adapter(struct trainjob *j)
{
    char targets[ADAPTER_LIST];
    if (j->adapter.rank == 0) return;
    adapter_write_targets(j->adapter.targets, targets);
    ask(j, "lora-rank", "%u", j->adapter.rank);
    ask(j, "lora-alpha", "%.17g", j->adapter.alpha);
    ask(j, "lora-targets", "%s", targets);
    ask(j, "adapter-in", "%016llx", (unsigned long long)j->start.hash);
}

static void ask_structure(struct trainjob *j)
{
    if (!j->model->structure.weight) return;
    ask(j, "tag-weight", "%.17g", j->options.tag_weight);
    ask(j, "tag-dropout", "%.17g", j->options.tag_dropout);
}

/* What the bits of a run depend on. */
static void ask_all(struct trainjob *j, uint64_t steps)
{
    const zp_train_options *o = &j->options;
    const struct gates_options *g = &j->gates;
    ask(j, "ctx-size", "%u", o->n_ctx);
    ask(j, "batch-rows", "%u", o->batch_rows);
    ask(j, "micro-batches", "%u", o->micro_batches);
    ask(j, "steps", "%llu", (unsigned long long)steps);
    ask(j, "learning-rate", "%.17g", o->learning_rate);
    ask(j, "schedule", "%s", o->schedule);
    ask(j, "warmup", "%.17g", o->warmup);
    ask(j, "decay", "%.17g", o->decay);
    ask(j, "floor", "%.17g", o->floor);
    ask(j, "weight-decay", "%.17g", o->weight_decay);
    ask(j, "clip", "%.17g", o->clip);
    ask(j, "task-share", "%.17g", o->task_share);
    ask(j, "ce-weight", "%.17g", o->ce_weight);
    ask(j, "kl-weight", "%.17g", o->kl_weight);
    ask(j, "learn", "%s", o->learn);
    ask(j, "match", "%s", o->match ? "yes" : "no");
    ask(j, "seed", "%llu", (unsigned long long)o->seed);
    ask(j, "bf16", "%s", o->bf16 ? "yes" : "no");
    ask(j, "policy", "%s", gates_policy_name(g->policy));
    ask(j, "rotation-dropout", "%.17g", g->rate);
    ask(j, "share", "%.17g", g->share);
    ask(j, "ramp", "%.17g", g->ramp);
    ask(j, "overlap", "%.17g", g->overlap);
    ask(j, "lambda", "%.17g", g->lambda);
    ask(j, "eps-first", "%.17g", g->eps_first);
    ask(j, "eps-rest", "%.17g", g->eps_rest);
    ask(j, "t-cool", "%u", g->t_cool);
    ask(j, "tolerance", "%.17g", g->tolerance);
    ask(j, "stages", "%u", g->stages);
    ask(j, "begin", "%llu", (unsigned long long)g->begin);
    ask(j, "pic-steps", "%llu", (unsigned long long)j->pic_steps);
    ask(j, "corpus", "%016llx", (unsigned long long)j->shards.head.ids_hash);
    ask_adapter(j);
    ask_structure(j);
}

static void ask_model(struct trainjob *j, const char *name, const struct netparam *p)
{
    const char *table = zp_model_sha256(p->model); /* keys and shapes, not values */
    uint64_t hash = hash_bytes(table, strlen(table), 0);
    for (size_t i = 0; i < p->n_tensors; i++)
        hash = hash_bytes(p->tensors[i].file->data, p->tensors[i].file->bytes, hash);
    ask(j, name, "%016llx", (unsigned long long)hash);
}

/* What a run is also of; compared by the record alone (series_check). */
static void ask_values(struct trainjob *j)
{
    const struct trainer *t = &j->trainer;
    const zp_train_options *o = &j->options;
    ask_model(j, "model", &t->param);
    if (j->original) ask_model(j, "original", &t->teacher_param);
    ask(j, "documents", "%016llx", (unsigned long long)j->shards.head.tables_hash);
    if (!gates_need_mix(&j->gates)) return;
    ask(j, "eval-every", "%llu", (unsigned long long)o->eval_every);
    ask(j, "eval-windows", "%u", o->eval_windows);
}

static uint64_t hash_asked(const struct trainjob *j)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < j->n_asked; i++) {
        hash = hash_bytes(j->asked[i].name, strlen(j->asked[i].name), hash);
        hash = hash_bytes(j->asked[i].value, strlen(j->asked[i].value), hash);
    }
    return hash;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool learns(void *arg, const struct netparam_tensor *t)
{
    return is_part_of(learning_of(arg), t->name);
}

static zp_status open_trainer(struct trainjob *j, zp_err *err)
{
    const zp_train_options *o = &j->options;
    uint64_t batch = (uint64_t)o->batch_rows * o->n_ctx, steps = (o->tokens + batch - 1) / batch;
    struct trainer_options t = { .n_ctx = o->n_ctx,
                                 .n_rows = o->batch_rows,
                                 .n_micro = o->micro_batches,
                                 .n_threads = o->n_threads,
                                 .seed = o->seed,
                                 .task_share = o->task_share,
                                 .opt = { .weight_decay = o->weight_decay, .clip_norm = o->clip },
                                 .gates = j->gates,
                                 .pic_steps = j->pic_steps,
                                 .teacher = j->original,
                                 .ce_weight = (float)o->ce_weight,
                                 .kl_weight = (float)o->kl_weight,
                                 .precision = o->bf16 ? GEMM_BF16 : GEMM_F32,
                                 .recompute = o->recompute,
                                 .match = o->match,
                                 .adapter = j->adapter,
                                 .saves = o->run != NULL,
                                 .memory = o->memory,
                                 .plan_only = o->memory_plan,
                                 .structure = { (float)o->tag_weight, (float)o->tag_dropout },
                                 .learns = strcmp(o->learn, "all") == 0 ? NULL : learns,
                                 .learns_arg = (void *)(uintptr_t)o->learn };
    t.gates.seed = o->seed;
    t.schedule = (struct schedule){ .peak = o->learning_rate, .floor = o->floor, .steps = steps,
                                    .warmup = (uint64_t)llround(o->warmup * (double)steps),
                                    .decay_share = o->decay };
    ZP_TRY(schedule_find(o->schedule, &t.schedule.kind, err));
    ask_all(j, steps);
    t.config = hash_asked(j);
    ZP_TRY(trainer_open(&j->trainer, j->model, &j->shards, j->dist, &t, err));
    if (o->memory_plan) return ZP_OK;
    ask_values(j);
    return j->start.folder ? adapterfile_load(&j->start, &j->trainer.adapter, err) : ZP_OK;
}

static zp_status fill(struct trainjob *j, zp_err *err)
{
    const char *original = j->options.original;
    ZP_TRY(dist_open(&j->dist, j->options.processes ? j->options.processes : "single", NULL, err));
    ZP_TRY(zp_model_open(&j->model, j->model_path, NULL, err));
    if (original) ZP_TRY(zp_model_open(&j->original, original, NULL, err));
    ZP_TRY(shards_open(&j->shards, j->corpus_path, err));
    fill_defaults(&j->options, j->model);
    ZP_TRY(check_options(j, err));
    ZP_TRY(find_adapter(j, err));
    return open_trainer(j, err);
}

zp_status trainjob_open(struct trainjob *j, const char *model, const char *corpus,
                        const zp_train_options *o, const struct gates_options *gates,
                        uint64_t pic_steps, zp_err *err)
{
    *j = (struct trainjob){ .model_path = model, .corpus_path = corpus, .gates = *gates,
                            .pic_steps = pic_steps };
    if (o) j->options = *o;
    zp_status status = fill(j, err);
    if (status != ZP_OK) trainjob_close(j);
    return status;
}

void trainjob_close(struct trainjob *j)
{
    trainer_close(&j->trainer);
    adapterfile_close(&j->start);
    shards_close(&j->shards);
    zp_model_close(j->original);
    zp_model_close(j->model);
    dist_close(j->dist);
    *j = (struct trainjob){ 0 };
}

/* ---- running --------------------------------------------------------------------------------- */

zp_status trainjob_run(struct trainjob *j, zp_err *err)
{
    const zp_train_options *o = &j->options;
    const struct series_seed seed = { "seed", o->seed };
    struct trainrun_options r = { .folder = o->run,
                                  .resume = o->resume,
                                  .save_every = o->save_every,
                                  .eval_every = o->eval_every,
                                  .eval_windows = o->eval_windows,
                                  .keep = 2,
                                  .info = { .command = o->command,
                                            .model_sha256 = zp_model_sha256(j->model),
                                            .options = j->asked,
                                            .n_options = j->n_asked,
                                            .seeds = &seed,
                                            .n_seeds = 1 },
                                  .progress = o->progress,
                                  .on_report = o->on_report,
                                  .report_arg = o->report_arg };
    zp_err why = { 0 };
    zp_status status = trainrun(&j->trainer, &r, &j->result, &why);
    mem_stats_read(&j->counted);
    trainer_finish(&j->trainer);
    /* The others are not to wait for a process that failed by itself; what follows the abort is
     * never reached, so that this is where the reason can be told. */
    if (status != ZP_OK && status != ZP_INTERRUPTED && dist_size(j->dist) > 1) {
        log_write(LOG_ERROR, "%s", why.message);
        dist_abort(j->dist, zp_status_exit_code(status));
    }
    if (err && err->code == ZP_OK) *err = why;
    return status;
}

static void report_quality(struct json_build *w, const char *key, const struct trainer_quality *q,
                           bool has_original)
{
    double n = q->sums.weight > 0 ? q->sums.weight : 1;
    double none = q->n_windows ? 0 : (double)NAN; /* null: nothing was held out */
    json_build_object(w, key);
    json_build_real(w, "nll", q->sums.ce / n + none, 6);
    json_build_real(w, "ppl", exp(q->sums.ce / n) + none, 6);
    if (has_original) {
        json_build_real(w, "kl", q->sums.kl / n + none, 6);
        json_build_real(w, "same_top", (double)q->sums.same_top / n + none, 6);
    }
    json_build_uint(w, "windows", q->n_windows);
    json_build_uint(w, "tokens", q->sums.n_rows);
    json_build_object_end(w);
}

/* Of models with a structure head: its size, and what its detectors learned from. */
static void report_structure(struct json_build *w, const struct trainjob *j)
{
    const struct structhead *s = &j->model->structure;
    const struct tagger *t = structlearn_tagger(&j->trainer.structure);
    const struct loss_sums *last = &j->result.last.sums;
    uint64_t n = structhead_count(s);
    if (n == 0) return;
    json_build_object(w, "structure");
    json_build_uint(w, "parameters", n);
    json_build_real(w, "share", (double)n / (double)j->model->n_params, 4);
    if (t) {
        json_build_real(w, "tag_loss", last->tags / (last->weight > 0 ? last->weight : 1), 6);
        json_build_uint(w, "tokens", t->n_tokens);
        json_build_uint(w, "unstructured_tokens", t->n_plain);
        json_build_object(w, "tagged");
        for (int k = 0; k < STRUCT_TYPES; k++)
            json_build_uint(w, structhead_type_name((enum struct_type)k), t->count[k]);
        json_build_object_end(w);
    }
    json_build_object_end(w);
}

static void report_adapter(struct json_build *w, const struct trainjob *j)
{
    const struct adapter *a = &j->trainer.adapter;
    char targets[ADAPTER_LIST];
    uint64_t n = 0;
    if (a->n == 0) return;
    for (size_t i = 0; i < a->n_matrices; i++)
        n += a->options.rank * (a->matrices[i].of->n_in + a->matrices[i].of->n_out);
    adapter_write_targets(a->options.targets, targets);
    json_build_object(w, "lora");
    json_build_uint(w, "rank", a->options.rank);
    json_build_real(w, "alpha", a->options.alpha, 6);
    json_build_text(w, "targets", targets);
    json_build_uint(w, "matrices", a->n_matrices);
    json_build_uint(w, "parameters", n);
    json_build_text(w, "folder", j->options.adapter_out);
    json_build_object_end(w);
}

static void report_tags(struct json_build *w, const char *key, const uint64_t *bytes,
                        uint64_t total)
{
    json_build_object(w, key);
    for (int tag = 0; tag < MEM_TAG_COUNT; tag++)
        if (bytes[tag]) json_build_uint(w, mem_tag_name((enum mem_tag)tag), bytes[tag]);
    json_build_uint(w, "total", total);
    json_build_object_end(w);
}

static void report_memory(struct json_build *w, const struct trainjob *j)
{
    const struct trainplan *p = &j->trainer.plan;
    json_build_object(w, "memory");
    report_tags(w, "predicted", p->bytes, trainplan_total(p));
    if (j->options.memory_plan) json_build_uint(w, "available", os_memory_available());
    else report_tags(w, "counted", j->counted.peak, j->counted.peak_total);
    json_build_object_end(w);
}

zp_status trainjob_plan(const struct trainjob *j, char **json, zp_err *err)
{
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "model", j->model_path);
    report_memory(&w, j);
    json_build_object_end(&w);
    return json_build_finish(&w, json);
}

void trainjob_report(const struct trainjob *j, struct json_build *w)
{
    const zp_train_options *o = &j->options;
    const struct trainrun_result *r = &j->result;
    uint64_t steps = j->trainer.options.schedule.steps;
    double batch = (double)o->batch_rows * o->n_ctx;
    json_build_text(w, "model", j->model_path);
    if (o->original) json_build_text(w, "original", o->original);
    json_build_text(w, "corpus", j->corpus_path);
    json_build_uint(w, "steps", steps);
    json_build_uint(w, "tokens", steps * o->batch_rows * o->n_ctx);
    json_build_uint(w, "n_ctx", o->n_ctx);
    json_build_uint(w, "batch_rows", o->batch_rows);
    json_build_real(w, "learning_rate", o->learning_rate, 6);
    json_build_real(w, "loss", r->last.loss, 6);
    report_quality(w, "held_before", &r->before, j->original != NULL);
    report_quality(w, "held", &r->after, j->original != NULL);
    json_build_real(w, "seconds", r->seconds, 4);
    json_build_real(w, "tokens_per_second",
                    r->seconds > 0 ? (double)(steps - r->first_step) * batch / r->seconds : 0, 4);
    json_build_text(w, "precision",
                    gemm_precision_used(j->trainer.gemm) == GEMM_BF16 ? "bf16" : "f32");
    json_build_text(w, "matrices", gemm_backend(j->trainer.gemm));
    json_build_uint(w, "skipped_steps", r->skipped);
    json_build_uint(w, "roll_backs", r->roll_backs);
    json_build_text(w, "run", o->run);
    report_structure(w, j);
    report_adapter(w, j);
    report_memory(w, j);
}

zp_status trainjob_write_adapter(const struct trainjob *j, zp_err *err)
{
    const char *folder = j->options.adapter_out;
    return folder ? adapterfile_write(&j->trainer.adapter, j->model_path, folder, err) : ZP_OK;
}

static zp_status write_model(const struct trainjob *j, const char *out, zp_err *err)
{
    return trainer_write(&j->trainer, quant_traits_by_name(j->options.type)->type, NULL, out, err);
}

static zp_status train(struct trainjob *j, const char *out, char **json, zp_err *err)
{
    struct json_build w;
    if (j->options.memory_plan) return json ? trainjob_plan(j, json, err) : ZP_OK;
    ZP_TRY(gguf_check_output(out, err));
    ZP_TRY(trainjob_run(j, err));
    if (!trainjob_leads(j)) return ZP_OK;
    ZP_TRY(write_model(j, out, err));
    ZP_TRY(trainjob_write_adapter(j, err));
    if (!json) return ZP_OK;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "file", out);
    trainjob_report(j, &w);
    json_build_object_end(&w);
    return json_build_finish(&w, json);
}

zp_status zp_train_run(const char *model, const char *corpus, const char *out,
                       const zp_train_options *options, char **json, zp_err *err)
{
    struct trainjob *j = mem_alloc(MEM_TRAIN, sizeof *j);
    if (json) *json = NULL;
    ZP_FAIL_IF(!j, err, ZP_NO_MEMORY, "not enough memory to train");
    struct gates_options keep = { .rate = options ? options->rotation_dropout : 0 };
    zp_status status = trainjob_open(j, model, corpus, options, &keep, 0, err);
    if (status == ZP_OK) {
        status = train(j, out, json, err);
        trainjob_close(j);
    }
    mem_free(j);
    return status;
}

/* trainer.c: what a training run holds, one step of it, and its state as a checkpoint.
 * Owns: parameters, gradients, and all parts of a step. Does not know: files of models, progress,
 * the record of a run. */
#include "train/trainer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- opening --------------------------------------------------------------------------------- */

static bool learns(const struct trainer_options *o, const struct netparam_tensor *t)
{
    if (strstr(t->name, "attn_head_scale")) return false; /* has no gradient: net.h */
    return o->learns ? o->learns(o->learns_arg, t) : !strstr(t->name, "pos_alibi.slope");
}

/* Whether the model has a structure head whose detectors learn. */
static bool structure_learns(const struct trainer *t)
{
    const struct trainer_options *o = &t->options;
    const struct netparam_tensor head = { .name = STRUCTHEAD_WEIGHT };
    return t->model->structure.weight && !o->adapter.rank && !o->match && learns(o, &head);
}

static zp_status open_data(struct trainer *t, zp_err *err)
{
    const struct trainer_options *o = &t->options;
    const struct tokenizer *tokenizer;
    ZP_TRY(model_tokenizer(t->model, &tokenizer, err));
    ZP_TRY(shards_check_tokenizer(t->shards, tokenizer, "the model", err));
    if (o->task_share > 0)
        ZP_TRY(tasks_open(&t->tasks, t->shards, tokenizer, &(struct tasks_options){ 0 }, err));
    size_t rows = o->n_ctx * (size_t)(o->n_rows / o->n_micro);
    ZP_TRY(structlearn_open(&t->structure, t->shards, tokenizer, rows, structure_learns(t),
                            &o->structure, err));
    struct packer_options p = { .n_ctx = o->n_ctx, .n_rows = o->n_rows, .n_micro = o->n_micro,
                                .seed = o->seed, .tasks = o->task_share > 0 ? &t->tasks : NULL,
                                .task_share = o->task_share,
                                .tagger = structlearn_tagger(&t->structure) };
    ZP_TRY(packer_open(&t->packer, t->shards, &p, err));
    t->key.tokenizer = shards_hash_tokenizer(tokenizer);
    ZP_TRY(packed_open(&t->batch, t->packer.micro_rows, o->n_ctx, err));
    return p.tagger ? packed_add_tags(&t->batch, err) : ZP_OK;
}

static zp_status check_match(const struct trainer *t, zp_err *err)
{
    const struct zp_model *m = t->options.teacher;
    if (!t->options.match) return ZP_OK;
    ZP_FAIL_IF(!m, err, ZP_USAGE, "matching attention needs the original");
    ZP_FAIL_IF(m->h.n_layer != t->model->h.n_layer || m->h.d_model != t->model->h.d_model, err,
               ZP_BAD_INPUT, "the original has %u layers of width %u, the model %u of %u: their "
               "attention cannot be matched", m->h.n_layer, m->h.d_model, t->model->h.n_layer,
               t->model->h.d_model);
    return ZP_OK;
}

/* Their texts: kinds of tokens may differ. */
static zp_status check_vocabulary(const struct trainer *t, const struct zp_model *m, zp_err *err)
{
    const struct tokenizer *mine, *other;
    ZP_TRY(model_tokenizer(t->model, &mine, err));
    ZP_TRY(model_tokenizer(m, &other, err));
    int32_t n = tokenizer_get_info(mine)->n_vocab, n_other = tokenizer_get_info(other)->n_vocab;
    for (int32_t id = 0; id < n && id < n_other; id++) {
        size_t size, size_other;
        const char *text = tokenizer_token_text(mine, id, &size);
        const char *text_other = tokenizer_token_text(other, id, &size_other);
        ZP_FAIL_IF(size != size_other || memcmp(text, text_other, size) != 0, err, ZP_BAD_INPUT,
                   "the original has another vocabulary: its token %d is '%.*s', the model's is "
                   "'%.*s'; they cannot be compared", id, (int)(size_other < 32 ? size_other : 32),
                   text_other, (int)(size < 32 ? size : 32), text);
    }
    return ZP_OK;
}

static zp_status open_teacher(struct trainer *t, zp_err *err)
{
    const struct zp_model *m = t->options.teacher;
    struct net_options o = { .n_rows = t->packer.micro_rows, .n_ctx = t->options.n_ctx,
                             .forward_only = true };
    ZP_TRY(check_match(t, err));
    if (!m) return ZP_OK;
    ZP_FAIL_IF(m->h.n_vocab != t->model->h.n_vocab, err, ZP_BAD_INPUT,
               "the original has %u tokens, the model %u: they cannot be compared",
               m->h.n_vocab, t->model->h.n_vocab);
    ZP_TRY(check_vocabulary(t, m, err));
    ZP_TRY(netparam_open(&t->teacher_param, m, err));
    ZP_ALLOC(t->teacher_w, MEM_TRAIN, t->teacher_param.n, err, "the original's parameters");
    ZP_TRY(netparam_read(&t->teacher_param, t->teacher_w, err));
    size_t rows = (size_t)o.n_rows * o.n_ctx;
    ZP_ALLOC(t->teacher_hidden, MEM_TRAIN, rows * m->h.d_model, err, "the original's rows");
    return net_open(&t->teacher, &t->teacher_param, t->gemm, &o, err);
}

static struct net_options net_options_of(const struct trainer *t)
{
    const struct trainer_options *o = &t->options;
    return (struct net_options){ .n_rows = t->packer.micro_rows, .n_ctx = o->n_ctx,
                                 .recompute = o->recompute || o->match,
                                 .mix = gates_need_mix(&o->gates) };
}

/* What the large parts will take, before a machine is brought to its knees. */
static zp_status check_room(const struct trainer *t, zp_err *err)
{
    const struct trainer_options *o = &t->options;
    struct net_options n = net_options_of(t), teacher = n;
    uint64_t rows = (uint64_t)n.n_rows * n.n_ctx, need, more = 0, have = os_memory_available();
    uint64_t copies = o->adapter.rank ? 2 : o->n_micro > 1 ? 5 : 4; /* W, dW, moments, their sum */
    struct bytes_text text[2];
    ZP_TRY(net_plan(&t->param, o->n_threads, &n, &need, err));
    need += (copies * t->param.n + 2 * rows * t->model->h.d_model) * sizeof(float);
    if (o->teacher) { /* of the model's shape, as a rule */
        teacher.recompute = teacher.mix = false, teacher.forward_only = true;
        ZP_TRY(net_plan(&t->param, o->n_threads, &teacher, &more, err));
        need += more + (t->param.n + rows * t->model->h.d_model) * sizeof(float);
    }
    ZP_FAIL_IF(have && need > have, err, ZP_NO_MEMORY,
               "not enough memory: %s are needed to train on %u rows of %u tokens at a time, %s "
               "available; more --micro-batches, a smaller --ctx-size or --recompute need less",
               bytes_in_words(need, &text[0]), n.n_rows, n.n_ctx, bytes_in_words(have, &text[1]));
    return ZP_OK;
}

static zp_status open_parameters(struct trainer *t, zp_err *err)
{
    struct netparam *p = &t->param;
    ZP_TRY(netparam_open(p, t->model, err));
    ZP_TRY(check_room(t, err));
    ZP_ALLOC(t->w, MEM_TRAIN, p->n, err, "the parameters");
    /* With adapters only the places of their matrices are ever touched. */
    ZP_ALLOC(t->dw, MEM_TRAIN, p->n, err, "gradients");
    ZP_ALLOC(t->frozen, MEM_TRAIN, p->n_tensors, err, "the list of tensors");
    ZP_TRY(netparam_read(p, t->w, err));
    t->key.shape = p->n;
    for (size_t i = 0; i < p->n_tensors; i++) {
        t->frozen[i] = !learns(&t->options, &p->tensors[i]);
        t->key.shape = hash_bytes(p->tensors[i].name, strlen(p->tensors[i].name), t->key.shape);
        t->key.shape = hash_bytes(&p->tensors[i].n, sizeof p->tensors[i].n, t->key.shape);
    }
    return ZP_OK;
}

/* Matrices, but for tables of biases, position gates and detectors: those are no directions that a
 * decay keeps in check. */
static bool decays(const struct netparam_tensor *t)
{
    return t->matrix && !strstr(t->name, ".pos_") && !strstr(t->name, "struct_");
}

static zp_status open_adapter(struct trainer *t, zp_err *err)
{
    struct adapter *a = &t->adapter;
    ZP_TRY(adapter_open(a, &t->param, t->w, t->pool, &t->options.adapter, err));
    ZP_ALLOC(t->dx, MEM_TRAIN, a->n, err, "gradients of adapters");
    t->x = a->x;
    t->n_x = a->n;
    for (size_t i = 0; i < t->param.n_tensors; i++)
        t->frozen[i] = !adapter_has(a, &t->param.tensors[i]);
    for (size_t i = 0; i < a->n_matrices; i++) {
        size_t at[] = { (size_t)(a->matrices[i].of - t->param.tensors), a->options.rank };
        t->key.shape = hash_bytes(at, sizeof at, t->key.shape);
    }
    return ZP_OK;
}

static zp_status open_learning(struct trainer *t, zp_err *err)
{
    if (t->options.adapter.rank) ZP_TRY(open_adapter(t, err));
    else t->x = t->w, t->dx = t->dw, t->n_x = t->param.n;
    t->sum = t->dx;
    if (t->options.n_micro > 1) ZP_ALLOC(t->sum, MEM_TRAIN, t->n_x, err, "gradients");
    return ZP_OK;
}

static void list_segments(const struct trainer *t, struct opt_segment *segments)
{
    const struct netparam *p = &t->param;
    if (t->adapter.n) {
        adapter_segments(&t->adapter, segments);
        return;
    }
    for (size_t i = 0; i < p->n_tensors; i++)
        segments[i] = (struct opt_segment){ p->tensors[i].at, p->tensors[i].n, 1,
                                            decays(&p->tensors[i]), t->frozen[i] };
}

static zp_status open_optimiser(struct trainer *t, zp_err *err)
{
    struct opt_segment *segments;
    size_t n = t->adapter.n ? 2 * t->adapter.n_matrices : t->param.n_tensors;
    ZP_ALLOC(segments, MEM_TRAIN, n, err, "the list of tensors");
    list_segments(t, segments);
    zp_status status = opt_open(&t->opt, t->n_x, segments, n, &t->options.opt, err);
    mem_free(segments);
    return status;
}

static zp_status open_net(struct trainer *t, zp_err *err)
{
    const struct trainer_options *o = &t->options;
    struct net_options n = net_options_of(t);
    size_t floats = (size_t)n.n_rows * n.n_ctx * t->model->h.d_model;
    ZP_ALLOC(t->hidden, MEM_TRAIN, floats, err, "hidden rows");
    ZP_ALLOC(t->dhidden, MEM_TRAIN, floats, err, "hidden rows");
    ZP_TRY(net_open(&t->net, &t->param, t->gemm, &n, err));
    ZP_TRY(gates_open(&t->gates, &t->model->position, &o->gates, err));
    ZP_ALLOC(t->dgates, MEM_TRAIN, t->gates.n, err, "gradients of gates");
    return loss_open(&t->loss, t->gemm, t->model->h.n_vocab, o->teacher != NULL, err);
}

static void bridge_add(void *arg, uint32_t layer, size_t n_rows, const int32_t *index, float *sum)
{
    struct trainer *t = arg;
    pic_add(&t->pic, layer, n_rows, index, sum);
}

static void bridge_back(void *arg, uint32_t layer, size_t n_rows, const int32_t *index,
                        const float *dsum)
{
    struct trainer *t = arg;
    pic_back(&t->pic, layer, n_rows, index, dsum);
}

static zp_status open_pic(struct trainer *t, zp_err *err)
{
    const struct trainer_options *o = &t->options;
    const struct net_bridge bridge = { bridge_add, bridge_back, t };
    if (!o->pic_steps) return ZP_OK;
    net_set_bridge(t->net, &bridge);
    return pic_open(&t->pic, t->pool, t->model->h.n_layer, t->model->h.d_model, o->n_ctx, o->seed,
                    err);
}

static size_t marks_count(const struct trainer *t)
{
    return (sizeof *t->marks + t->model->h.n_layer * sizeof *t->marks->first) / sizeof(double);
}

static zp_status open_marks(struct trainer *t, zp_err *err)
{
    double *marks;
    ZP_ALLOC(marks, MEM_TRAIN, marks_count(t), err, "norms of the layers");
    for (size_t i = 0; i < marks_count(t); i++) marks[i] = (double)INFINITY;
    t->marks = (void *)marks;
    return ZP_OK;
}

static zp_status fill(struct trainer *t, zp_err *err)
{
    struct trainer_options *o = &t->options;
    if (o->n_threads == 0) o->n_threads = os_core_count();
    if (o->n_micro == 0) o->n_micro = 1;
    o->gates.steps = o->schedule.steps;
    if (o->gates.begin < o->pic_steps) o->gates.begin = o->pic_steps;
    ZP_TRY(schedule_check(&o->schedule, err));
    ZP_FAIL_IF(!o->teacher && o->kl_weight != 0.0f, err, ZP_USAGE,
               "a divergence from the original needs the original");
    ZP_TRY(open_data(t, err));
    ZP_TRY(pool_open(&t->pool, o->n_threads, err));
    ZP_TRY(gemm_open(&t->gemm, t->pool, o->precision, err));
    ZP_TRY(open_parameters(t, err));
    ZP_TRY(open_learning(t, err));
    ZP_TRY(open_optimiser(t, err));
    ZP_TRY(open_net(t, err));
    ZP_TRY(open_pic(t, err));
    ZP_TRY(open_marks(t, err));
    t->key.config = o->config;
    return open_teacher(t, err);
}

zp_status trainer_open(struct trainer *t, const struct zp_model *model, const struct shards *shards,
                       struct dist *dist, const struct trainer_options *o, zp_err *err)
{
    *t = (struct trainer){ .model = model, .shards = shards, .dist = dist, .options = *o };
    zp_status status = fill(t, err);
    if (status != ZP_OK) trainer_close(t);
    return status;
}

void trainer_close(struct trainer *t)
{
    net_close(t->teacher);
    netparam_close(&t->teacher_param);
    mem_free(t->teacher_w);
    mem_free(t->teacher_hidden);
    loss_close(t->loss);
    pic_free(&t->pic);
    gates_free(&t->gates);
    net_close(t->net);
    opt_free(&t->opt);
    netparam_close(&t->param);
    if (t->sum != t->dx) mem_free(t->sum);
    if (t->dx != t->dw) mem_free(t->dx);
    adapter_close(&t->adapter);
    mem_free(t->w);
    mem_free(t->dw);
    mem_free(t->hidden);
    mem_free(t->dhidden);
    mem_free(t->dgates);
    mem_free(t->frozen);
    mem_free(t->marks);
    gemm_close(t->gemm);
    pool_close(t->pool);
    packed_close(&t->batch);
    packer_close(&t->packer);
    tasks_close(&t->tasks);
    structlearn_close(&t->structure);
    *t = (struct trainer){ 0 };
}

void trainer_apply(struct trainer *t)
{
    if (t->adapter.n) adapter_merge(&t->adapter, t->w); // R3
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What the bridge counts at a step: 1 before gates begin to close, then less and less. */
static float pic_weight(const struct trainer *t, uint64_t step)
{
    uint64_t begin = t->gates.options.begin, steps = t->options.pic_steps;
    if (step + steps < begin || step >= begin + steps) return 0;
    return step < begin ? 1.0f : 1.0f - (float)(step - begin) / (float)steps;
}

static void begin_pic(struct trainer *t)
{
    if (!t->pic.n) return;
    memset(t->pic.sum, 0, t->pic.n * sizeof *t->pic.sum);
    pic_begin(&t->pic, pic_weight(t, t->step));
}

static void step_pic(struct trainer *t, double rate, double scale)
{
    struct opt_report report;
    if (t->pic.weight != 0.0f)
        opt_step(&t->pic.opt, t->pool, t->pic.p, t->pic.sum, rate, scale, &report);
}

/* Loss of the batch at hand, and the gradient of its hidden rows where `back`. */
static void run_loss(struct trainer *t, const struct net_gates *gates, bool back,
                     struct loss_sums *sums)
{
    const struct netparam_tensor *out = net_output(t->net);
    size_t d = t->model->h.d_model;
    struct loss_batch b = { .n_rows = (size_t)t->batch.n_rows * t->batch.n_ctx, .d = d,
                            .hidden = t->hidden, .w_out = t->w + out->at,
                            .target = t->batch.targets, .ce_weight = t->options.ce_weight,
                            .kl_weight = t->options.kl_weight, .grad_scale = 1 };
    if (t->teacher) {
        const struct netparam_tensor *teacher_out = net_output(t->teacher);
        net_forward(t->teacher, t->teacher_w, NULL, &t->batch, t->teacher_hidden);
        b.teacher_d = teacher_out->n_in;
        b.teacher_hidden = t->teacher_hidden;
        b.teacher_w_out = t->teacher_w + teacher_out->at;
    }
    net_forward(t->net, t->w, gates, &t->batch, t->hidden);
    if (back) {
        b.dhidden = t->dhidden;
        b.dw_out = t->frozen[out - t->param.tensors] ? NULL : t->dw + out->at;
    }
    loss_run(t->loss, &b, sums);
    sums->tags = net_tag_loss(t->net);
}

/* Whether the layer's gates or windows are not the teacher's. */
static bool is_changed(const struct trainer *t, const struct net_gates *g, uint32_t layer)
{
    const struct position *p = &t->model->position;
    size_t at = (size_t)layer * p->n_kv;
    for (size_t i = 0; i < t->gates.n; i++)
        if (t->gates.exists[i] && t->gates.value[i] != 1.0f &&
            gates_place_of(&t->gates, i).layer == layer)
            return true;
    for (uint32_t kv = 0; g->window && kv < p->n_kv; kv++)
        if (g->window[at + kv] != p->heads[at + kv].window) return true;
    return false;
}

static void match_layer(void *arg, uint32_t layer, size_t n_rows, const float *x, const float *sum)
{
    struct trainer *t = arg;
    struct trainer_match *m = &t->matching;
    struct net_match found;
    if (!is_changed(t, m->gates, layer)) return;
    float scale = 1.0f / (float)(n_rows * t->model->h.d_model);
    net_match_attention(t->net, t->w, m->gates, layer, n_rows, x, sum, scale, &m->to, &found);
    m->off += found.size > 0 ? found.off / found.size : 0;
    m->n_layers++;
}

/* The batch at hand through the teacher, and each layer's gradients on the way. ce: the share of
 * error, mean over layers. */
static void run_match(struct trainer *t, const struct net_gates *gates,
                      const struct net_gradients *to, struct loss_sums *sums)
{
    t->matching = (struct trainer_match){ .gates = gates, .to = *to };
    net_begin(t->net, t->w, &t->batch);
    net_hook_attention(t->teacher, match_layer, t);
    net_forward(t->teacher, t->teacher_w, NULL, &t->batch, t->teacher_hidden);
    net_hook_attention(t->teacher, NULL, NULL);
    double n = t->matching.n_layers ? t->matching.n_layers : 1;
    *sums = (struct loss_sums){ .ce = t->matching.off / n, .weight = 1 };
}

static zp_status run_micro(struct trainer *t, uint32_t micro, const struct net_gates *gates,
                           struct loss_sums *sums, zp_err *err)
{
    bool learn = gates_learn(&t->gates, t->step);
    struct net_gradients to = { .w = t->dw, .frozen = t->frozen };
    if (learn) to.mix = t->dgates, to.bias = t->dgates + t->gates.n_pairs;
    ZP_TRY(packer_micro(&t->packer, t->step + t->data_shift, micro, &t->batch, err));
    if (t->adapter.n) adapter_clear(&t->adapter, t->dw);
    else memset(t->dw, 0, t->param.n * sizeof *t->dw);
    memset(t->dgates, 0, t->gates.n * sizeof *t->dgates);
    structlearn_begin(&t->structure, t->net, t->options.seed, t->step, micro);
    if (t->pic.n) memset(t->pic.dp, 0, t->pic.n * sizeof *t->pic.dp);
    if (t->options.match) {
        run_match(t, gates, &to, sums);
    } else {
        run_loss(t, gates, true, sums);
        net_backward(t->net, t->w, gates, &t->batch, t->dhidden, &to);
    }
    if (t->adapter.n) adapter_gradients(&t->adapter, t->dw, t->dx);
    return ZP_OK;
}

/* Adds what n_ranks processes have of a round. */
static zp_status add_round(struct trainer *t, const struct loss_sums *mine, uint32_t n_ranks,
                           struct loss_sums *all, zp_err *err)
{
    double sums[6] = { all->ce, all->kl, all->weight, all->tags, (double)all->n_rows,
                       (double)all->same_top };
    const double x[6] = { mine->ce, mine->kl, mine->weight, mine->tags, (double)mine->n_rows,
                          (double)mine->same_top };
    ZP_TRY(dist_add_f64(t->dist, sums, x, 6, n_ranks, err));
    *all = (struct loss_sums){ sums[0], sums[1], sums[2], sums[3], (size_t)sums[4],
                               (size_t)sums[5] };
    if (t->pic.n)
        ZP_TRY(dist_add_f32(t->dist, t->pic.sum, t->pic.dp, t->pic.n, n_ranks, err));
    if (gates_learn(&t->gates, t->step))
        ZP_TRY(dist_add_f32(t->dist, t->gates.d, t->dgates, t->gates.n, n_ranks, err));
    return t->dx == t->sum ? ZP_OK
                           : dist_add_f32(t->dist, t->sum, t->dx, t->n_x, n_ranks, err);
}

static zp_status run_batch(struct trainer *t, const struct net_gates *gates, struct loss_sums *all,
                           zp_err *err)
{
    uint32_t n = t->options.n_micro, size = dist_size(t->dist), rank = dist_rank(t->dist);
    if (t->dx != t->sum) memset(t->sum, 0, t->n_x * sizeof *t->sum);
    for (uint32_t first = 0; first < n; first += size) { // R2
        struct loss_sums sums = { 0 };
        if (first + rank < n) ZP_TRY(run_micro(t, first + rank, gates, &sums, err));
        ZP_TRY(add_round(t, &sums, n - first < size ? n - first : size, all, err));
    }
    return ZP_OK;
}

zp_status trainer_run_step(struct trainer *t, struct trainer_step *out, zp_err *err)
{
    const struct trainer_options *o = &t->options;
    *out = (struct trainer_step){ .step = t->step, .rate = schedule_rate(&o->schedule, t->step) };
    ZP_FAIL_IF(dist_size(t->dist) > 1 && o->n_micro == 1, err, ZP_USAGE,
               "%u processes need as many --micro-batches at least", dist_size(t->dist));
    begin_pic(t);
    ZP_TRY(run_batch(t, gates_begin(&t->gates, t->step), &out->sums, err));
    double weight = out->sums.weight > 0 ? out->sums.weight : 1;
    double ce_weight = o->match ? 1 : (double)o->ce_weight;
    out->loss = (ce_weight * out->sums.ce + (double)o->kl_weight * out->sums.kl +
                 (double)o->structure.tag_weight * out->sums.tags) / weight;
    if (isfinite(out->loss)) opt_step(&t->opt, t->pool, t->x, t->sum, out->rate, 1 / weight,
                                      &out->opt);
    else out->opt = (struct opt_report){ .grad_norm = (double)NAN, .skipped = true };
    if (!out->opt.skipped) trainer_apply(t);
    out->verdict = guard_step(&t->guard, out->loss, out->opt.grad_norm);
    out->spike = guard_is_spike(&t->guard, out->loss);
    t->gates.n_closings = 0;
    t->gates.pace = GATES_PACE_FINE;
    if (out->verdict == GUARD_GO) {
        step_pic(t, out->rate, 1 / weight);
        gates_end(&t->gates, t->step, 1 / weight);
    }
    t->step++;
    return ZP_OK;
}

static void add_sums(struct loss_sums *to, const struct loss_sums *x)
{
    to->ce += x->ce;
    to->kl += x->kl;
    to->weight += x->weight;
    to->n_rows += x->n_rows;
    to->same_top += x->same_top;
}

void trainer_measure(struct trainer *t, uint32_t n_windows, struct trainer_quality *out)
{
    uint32_t n = n_windows && n_windows < t->packer.n_held ? n_windows : t->packer.n_held;
    *out = (struct trainer_quality){ .n_windows = n };
    const struct net_gates *gates = gates_now(&t->gates, t->step);
    if (t->pic.n) pic_begin(&t->pic, pic_weight(t, t->step));
    structlearn_rest(&t->structure, t->net);
    for (uint32_t i = 0; i < n; i += t->batch.n_rows) {
        struct loss_sums sums;
        packer_held(&t->packer, i, &t->batch);
        size_t first = (size_t)(n - i) * t->batch.n_ctx; /* windows that were not asked for */
        size_t rows = (size_t)t->batch.n_rows * t->batch.n_ctx;
        for (size_t r = first; r < rows; r++) t->batch.targets[r] = -1;
        run_loss(t, gates, false, &sums);
        add_sums(&out->sums, &sums);
    }
}

zp_status trainer_look(struct trainer *t, struct guard_norms *norms, double *ce, zp_err *err)
{
    struct loss_sums sums;
    const struct net_gates *gates = gates_now(&t->gates, t->step);
    if (t->packer.n_held) packer_held(&t->packer, 0, &t->batch);
    else ZP_TRY(packer_micro(&t->packer, 0, 0, &t->batch, err));
    if (t->pic.n) pic_begin(&t->pic, pic_weight(t, t->step));
    structlearn_rest(&t->structure, t->net);
    net_watch(t->net, norms);
    run_loss(t, gates, false, &sums);
    net_watch(t->net, NULL);
    *ce = sums.weight > 0 ? sums.ce / sums.weight : 0;
    return ZP_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

enum { OWN_PARTS = 7, PIC_PARTS = 4, MOST_PARTS = OWN_PARTS + GATES_PARTS + PIC_PARTS };

static const char *name_of_x(const struct trainer *t)
{
    return t->adapter.n ? "adapters" : "w";
}

static size_t list_parts(const struct trainer *t, struct checkpoint_part *out)
{
    const struct checkpoint_part own[OWN_PARTS] = {
        { name_of_x(t), CHECKPOINT_F32, t->x, t->n_x },
        { "adam.m", CHECKPOINT_F32, t->opt.m, t->n_x },
        { "adam.v", CHECKPOINT_F32, t->opt.v, t->n_x },
        { "adam.steps", CHECKPOINT_U64, &t->opt.steps, 1 },
        { "guard", CHECKPOINT_U8, &t->guard, sizeof t->guard },
        { "data.shift", CHECKPOINT_U64, &t->data_shift, 1 },
        { "marks", CHECKPOINT_F64, t->marks, marks_count(t) },
    };
    memcpy(out, own, sizeof own);
    gates_parts(&t->gates, out + OWN_PARTS);
    if (!t->pic.n) return OWN_PARTS + GATES_PARTS;
    const struct checkpoint_part pic[PIC_PARTS] = {
        { "pic", CHECKPOINT_F32, t->pic.p, t->pic.n },
        { "pic.m", CHECKPOINT_F32, t->pic.opt.m, t->pic.n },
        { "pic.v", CHECKPOINT_F32, t->pic.opt.v, t->pic.n },
        { "pic.steps", CHECKPOINT_U64, &t->pic.opt.steps, 1 },
    };
    memcpy(out + OWN_PARTS + GATES_PARTS, pic, sizeof pic);
    return MOST_PARTS;
}

zp_status trainer_save(struct trainer *t, const char *folder, size_t keep, zp_err *err)
{
    struct checkpoint_part parts[MOST_PARTS];
    if (dist_rank(t->dist) != 0) return ZP_OK;
    size_t n = list_parts(t, parts);
    return checkpoint_save(folder, t->step, &t->key, parts, n, keep, err);
}

static zp_status restore_pic(struct trainer *t, const struct checkpoint *c, zp_err *err)
{
    struct pic *p = &t->pic;
    if (!p->n) return ZP_OK;
    ZP_TRY(checkpoint_read(c, "pic", CHECKPOINT_F32, p->p, p->n, err));
    ZP_TRY(checkpoint_read(c, "pic.m", CHECKPOINT_F32, p->opt.m, p->n, err));
    ZP_TRY(checkpoint_read(c, "pic.v", CHECKPOINT_F32, p->opt.v, p->n, err));
    return checkpoint_read(c, "pic.steps", CHECKPOINT_U64, &p->opt.steps, 1, err);
}

static zp_status restore(struct trainer *t, const struct checkpoint *c, zp_err *err)
{
    ZP_TRY(checkpoint_read(c, name_of_x(t), CHECKPOINT_F32, t->x, t->n_x, err));
    ZP_TRY(checkpoint_read(c, "adam.m", CHECKPOINT_F32, t->opt.m, t->n_x, err));
    ZP_TRY(checkpoint_read(c, "adam.v", CHECKPOINT_F32, t->opt.v, t->n_x, err));
    trainer_apply(t);
    ZP_TRY(checkpoint_read(c, "adam.steps", CHECKPOINT_U64, &t->opt.steps, 1, err));
    ZP_TRY(checkpoint_read(c, "guard", CHECKPOINT_U8, &t->guard, sizeof t->guard, err));
    ZP_TRY(checkpoint_read(c, "data.shift", CHECKPOINT_U64, &t->data_shift, 1, err));
    /* Older ones have none: what is looked at first counts. */
    if (checkpoint_find(c, "marks"))
        ZP_TRY(checkpoint_read(c, "marks", CHECKPOINT_F64, t->marks, marks_count(t), err));
    t->step = c->step;
    ZP_TRY(restore_pic(t, c, err));
    return gates_restore(&t->gates, c, err);
}

zp_status trainer_resume(struct trainer *t, const char *folder, zp_err *err)
{
    struct checkpoint c;
    ZP_TRY(checkpoint_open_last(&c, folder, &t->key, err));
    zp_status status = restore(t, &c, err);
    checkpoint_close(&c);
    return status;
}

zp_status trainer_roll_back(struct trainer *t, const char *folder, zp_err *err)
{
    struct guard guard = t->guard;
    uint64_t failed = t->step;
    ZP_TRY(trainer_resume(t, folder, err));
    t->guard.in_a_row = 0, t->guard.bad = guard.bad, t->guard.roll_backs = guard.roll_backs;
    t->data_shift += failed - t->step;
    return ZP_OK;
}

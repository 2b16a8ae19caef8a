/* trainer.c: what a training run holds, one step of it, and its state as a checkpoint.
 * Owns: parameters, gradients, and all parts of a step. Does not know: files of models, progress,
 * the record of a run. */
#include "train/trainer_parts.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- opening --------------------------------------------------------------------------------- */

static bool learns(void *arg, const struct netparam_tensor *t)
{
    const struct trainer_options *o = arg;
    if (strstr(t->name, "attn_head_scale")) return false; /* has no gradient: net.h */
    return o->learns ? o->learns(o->learns_arg, t) : !strstr(t->name, "pos_alibi.slope");
}

/* Whether the model has a structure head whose detectors learn. */
static bool structure_learns(struct trainer *t)
{
    struct trainer_options *o = &t->options;
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
    double task_rows = o->task_share * o->n_rows * (double)o->schedule.steps;
    ZP_TRY(structlearn_open(&t->structure, t->shards, tokenizer, rows, structure_learns(t),
                            &o->structure, err));
    struct packer_options p = { .n_ctx = o->n_ctx, .n_rows = o->n_rows, .n_micro = o->n_micro,
                                .seed = o->seed, .tasks = o->task_share > 0 ? &t->tasks : NULL,
                                .task_share = o->task_share, .ramp = 1 + (uint64_t)(task_rows / 3),
                                .tagger = structlearn_tagger(&t->structure) };
    ZP_TRY(packer_open(&t->packer, t->shards, &p, err));
    t->key.tokenizer = shards_hash_tokenizer(tokenizer);
    return ZP_OK;
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

/* What the teacher is; its values stay in its file but for vectors (R3). */
static zp_status find_teacher(struct trainer *t, zp_err *err)
{
    const struct zp_model *m = t->options.teacher;
    ZP_TRY(check_match(t, err));
    if (!m) return ZP_OK;
    ZP_FAIL_IF(m->h.n_vocab != t->model->h.n_vocab, err, ZP_BAD_INPUT,
               "the original has %u tokens, the model %u: they cannot be compared",
               m->h.n_vocab, t->model->h.n_vocab);
    ZP_TRY(check_vocabulary(t, m, err));
    ZP_TRY(netparam_open(&t->teacher_param, m, err));
    netparam_leave(&t->teacher_param, NULL, NULL);
    return ZP_OK;
}

struct net_options trainer_net_options(const struct trainer *t)
{
    const struct trainer_options *o = &t->options;
    return (struct net_options){ .n_rows = t->packer.micro_rows, .n_ctx = o->n_ctx,
                                 .recompute = o->recompute || o->match,
                                 .mix = gates_need_mix(&o->gates) };
}

struct net_options trainer_teacher_options(const struct trainer *t)
{
    return (struct net_options){ .n_rows = t->packer.micro_rows, .n_ctx = t->options.n_ctx,
                                 .forward_only = true };
}

size_t trainer_rows(const struct trainer *t)
{
    return (size_t)t->packer.micro_rows * t->options.n_ctx;
}

struct loss_shape trainer_loss_shape(const struct trainer *t)
{
    const struct zp_model *teacher = t->options.teacher;
    struct loss_shape s = { .n_vocab = t->model->h.n_vocab, .d = t->model->h.d_model };
    if (teacher) s.teacher_d = teacher->h.d_model;
    s.in_pieces = teacher || netparam_output(&t->param)->in_file;
    return s;
}

static zp_status open_teacher(struct trainer *t, zp_err *err)
{
    const struct zp_model *m = t->options.teacher;
    struct net_options o = trainer_teacher_options(t);
    if (!m) return ZP_OK;
    ZP_ALLOC(t->teacher_w, MEM_PARAMETER, t->teacher_param.n, err, "the original's parameters");
    ZP_TRY(netparam_read(&t->teacher_param, t->teacher_w, err));
    ZP_ALLOC(t->teacher_hidden, MEM_ACTIVATION, trainer_rows(t) * m->h.d_model, err,
             "the original's rows");
    return net_open(&t->teacher, &t->teacher_param, t->gemm, &o, err);
}

/* Compared by checkpoints. */
static void find_key(struct trainer *t)
{
    const struct netparam *p = &t->param;
    uint64_t shape = t->key.shape;
    for (size_t i = 0; i < p->n_tensors; i++) {
        shape = hash_bytes(p->tensors[i].name, strlen(p->tensors[i].name), shape);
        shape = hash_bytes(&p->tensors[i].n, sizeof p->tensors[i].n, shape);
    }
    for (size_t i = 0; i < t->adapter.n_matrices; i++) {
        size_t at[] = { (size_t)(t->adapter.matrices[i].of - p->tensors), t->adapter.options.rank };
        shape = hash_bytes(at, sizeof at, shape);
    }
    t->key.shape = shape;
    t->key.config = t->options.config;
}

/* What learns, and where it will stand. */
static zp_status find_parameters(struct trainer *t, zp_err *err)
{
    struct netparam *p = &t->param;
    struct trainer_options *o = &t->options;
    ZP_TRY(netparam_open(p, t->model, err));
    t->key.shape = p->n;
    netparam_leave(p, o->adapter.rank ? NULL : learns, o);
    if (o->adapter.rank) ZP_TRY(adapter_open(&t->adapter, p, &o->adapter, err));
    ZP_ALLOC(t->frozen, MEM_TRAIN, p->n_tensors, err, "the list of tensors");
    for (size_t i = 0; i < p->n_tensors; i++)
        t->frozen[i] = t->adapter.n ? !adapter_has(&t->adapter, &p->tensors[i])
                                    : !learns(o, &p->tensors[i]);
    find_key(t);
    return ZP_OK;
}

static void change_matrix(void *arg, const struct netparam_tensor *of, float *w)
{
    const struct trainer *t = arg;
    adapter_add(&t->adapter, of, w);
}

static zp_status open_parameters(struct trainer *t, zp_err *err)
{
    struct netparam *p = &t->param;
    ZP_ALLOC(t->w, MEM_PARAMETER, p->n, err, "the parameters");
    ZP_TRY(netparam_read(p, t->w, err));
    if (t->adapter.n) {
        ZP_TRY(adapter_begin(&t->adapter, t->gemm, err));
        netparam_set_change(p, change_matrix, t);
        t->x = t->adapter.x;
    } else {
        t->x = t->w;
    }
    t->n_x = t->adapter.n ? t->adapter.n : p->n;
    ZP_ALLOC(t->dx, MEM_GRADIENT, t->n_x, err, "gradients");
    t->sum = t->dx;
    if (t->options.n_micro > 1) ZP_ALLOC(t->sum, MEM_GRADIENT, t->n_x, err, "gradients");
    return ZP_OK;
}

/* Matrices, but for tables of biases, position gates and detectors: those are no directions that a
 * decay keeps in check. */
static bool decays(const struct netparam_tensor *t)
{
    return t->matrix && !strstr(t->name, ".pos_") && !strstr(t->name, "struct_");
}

size_t trainer_segments(const struct trainer *t, struct opt_segment *segments)
{
    const struct netparam *p = &t->param;
    size_t n = 0;
    if (t->adapter.n) {
        adapter_segments(&t->adapter, segments);
        return 2 * t->adapter.n_matrices;
    }
    for (size_t i = 0; i < p->n_tensors; i++)
        if (!p->tensors[i].in_file)
            segments[n++] = (struct opt_segment){ p->tensors[i].at, p->tensors[i].n, 1,
                                                  decays(&p->tensors[i]), t->frozen[i] };
    return n;
}

static zp_status open_optimiser(struct trainer *t, zp_err *err)
{
    struct opt_segment *segments;
    ZP_ALLOC(segments, MEM_TRAIN, trainer_most_segments(t), err, "the list of tensors");
    size_t n = trainer_segments(t, segments);
    zp_status status = opt_open(&t->opt, t->n_x, segments, n, &t->options.opt, err);
    mem_free(segments);
    return status;
}

static zp_status open_net(struct trainer *t, zp_err *err)
{
    struct net_options n = trainer_net_options(t);
    struct loss_shape loss = trainer_loss_shape(t);
    size_t floats = trainer_rows(t) * t->model->h.d_model;
    ZP_TRY(packed_open(&t->batch, n.n_rows, n.n_ctx, err));
    if (structlearn_tagger(&t->structure)) ZP_TRY(packed_add_tags(&t->batch, err));
    ZP_ALLOC(t->hidden, MEM_ACTIVATION, floats, err, "hidden rows");
    ZP_ALLOC(t->dhidden, MEM_ACTIVATION, floats, err, "hidden rows");
    ZP_TRY(net_open(&t->net, &t->param, t->gemm, &n, err));
    ZP_ALLOC(t->dgates, MEM_GRADIENT, t->gates.n, err, "gradients of gates");
    return loss_open(&t->loss, t->gemm, &loss, err);
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

size_t trainer_marks_count(const struct trainer *t)
{
    return (sizeof *t->marks + t->model->h.n_layer * sizeof *t->marks->first) / sizeof(double);
}

static zp_status open_marks(struct trainer *t, zp_err *err)
{
    double *marks;
    ZP_ALLOC(marks, MEM_TRAIN, trainer_marks_count(t), err, "norms of the layers");
    for (size_t i = 0; i < trainer_marks_count(t); i++) marks[i] = (double)INFINITY;
    t->marks = (void *)marks;
    return ZP_OK;
}

/* All sizes, and little memory. */
static zp_status describe(struct trainer *t, zp_err *err)
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
    ZP_TRY(gates_open(&t->gates, &t->model->position, &o->gates, err));
    ZP_TRY(find_teacher(t, err));
    return find_parameters(t, err);
}

static zp_status fill(struct trainer *t, zp_err *err)
{
    ZP_TRY(describe(t, err));
    ZP_TRY(trainplan_make(t, &t->plan, err));
    ZP_TRY(trainplan_check(t, err));
    if (t->options.plan_only) return ZP_OK;
    mem_stats_restart(); // R4
    ZP_TRY(open_parameters(t, err));
    ZP_TRY(open_optimiser(t, err));
    ZP_TRY(open_net(t, err));
    ZP_TRY(open_pic(t, err));
    ZP_TRY(open_marks(t, err));
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

void trainer_finish(struct trainer *t)
{
    net_close(t->teacher);
    mem_free(t->teacher_w);
    mem_free(t->teacher_hidden);
    loss_close(t->loss);
    pic_free(&t->pic);
    net_close(t->net);
    opt_free(&t->opt);
    if (t->sum != t->dx) mem_free(t->sum);
    mem_free(t->dx);
    mem_free(t->hidden);
    mem_free(t->dhidden);
    mem_free(t->dgates);
    packed_close(&t->batch);
    t->teacher = t->net = NULL;
    t->loss = NULL;
    t->teacher_w = t->teacher_hidden = t->sum = t->dx = NULL;
    t->hidden = t->dhidden = t->dgates = NULL;
}

void trainer_close(struct trainer *t)
{
    trainer_finish(t);
    netparam_close(&t->teacher_param);
    gates_free(&t->gates);
    netparam_close(&t->param);
    adapter_close(&t->adapter);
    mem_free(t->w);
    mem_free(t->frozen);
    mem_free(t->marks);
    gemm_close(t->gemm);
    pool_close(t->pool);
    packer_close(&t->packer);
    tasks_close(&t->tasks);
    structlearn_close(&t->structure);
    *t = (struct trainer){ 0 };
}

zp_status trainer_write(const struct trainer *t, uint32_t type, const char *recipe,
                        const char *path, zp_err *err)
{
    return netparam_write(&t->param, t->w, type, recipe, path, err);
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

static struct loss_matrix output_of(struct net *n, const float *w)
{
    const struct netparam_tensor *t = net_output(n);
    return (struct loss_matrix){ t->in_file ? NULL : w + t->at, net_output_rows, n };
}

/* Loss of the batch at hand, and the gradient of its hidden rows where `back`. */
static void run_loss(struct trainer *t, const struct net_gates *gates, bool back,
                     struct loss_sums *sums)
{
    const struct netparam_tensor *out = net_output(t->net);
    size_t d = t->model->h.d_model;
    struct loss_batch b = { .n_rows = (size_t)t->batch.n_rows * t->batch.n_ctx, .d = d,
                            .hidden = t->hidden, .w_out = output_of(t->net, t->w),
                            .target = t->batch.targets, .ce_weight = t->options.ce_weight,
                            .kl_weight = t->options.kl_weight, .grad_scale = 1 };
    if (t->teacher) {
        net_forward(t->teacher, t->teacher_w, NULL, &t->batch, t->teacher_hidden);
        b.teacher_d = t->options.teacher->h.d_model;
        b.teacher_hidden = t->teacher_hidden;
        b.teacher_w_out = output_of(t->teacher, t->teacher_w);
    }
    net_forward(t->net, t->w, gates, &t->batch, t->hidden);
    if (back) {
        b.dhidden = t->dhidden;
        b.dw_out = t->frozen[out - t->param.tensors] ? NULL : t->dx + out->at;
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

static void take_gradient(void *arg, const struct netparam_tensor *of, const float *dw)
{
    struct trainer *t = arg;
    adapter_gradients(&t->adapter, of, dw, t->dx);
}

static zp_status run_micro(struct trainer *t, uint32_t micro, const struct net_gates *gates,
                           struct loss_sums *sums, zp_err *err)
{
    bool learn = gates_learn(&t->gates, t->step);
    struct net_gradients to = { .w = t->dx, .frozen = t->frozen };
    if (learn) to.mix = t->dgates, to.bias = t->dgates + t->gates.n_pairs;
    ZP_TRY(packer_micro(&t->packer, t->step + t->data_shift, micro, &t->batch, err));
    if (t->adapter.n) to.w = NULL, to.take = take_gradient, to.arg = t;
    memset(t->dx, 0, t->n_x * sizeof *t->dx);
    memset(t->dgates, 0, t->gates.n * sizeof *t->dgates);
    structlearn_begin(&t->structure, t->net, t->options.seed, t->step, micro);
    if (t->pic.n) memset(t->pic.dp, 0, t->pic.n * sizeof *t->pic.dp);
    if (t->options.match) {
        run_match(t, gates, &to, sums);
    } else {
        run_loss(t, gates, true, sums);
        net_backward(t->net, t->w, gates, &t->batch, t->dhidden, &to);
    }
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
        { "marks", CHECKPOINT_F64, t->marks, trainer_marks_count(t) },
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
    ZP_TRY(checkpoint_read(c, "adam.steps", CHECKPOINT_U64, &t->opt.steps, 1, err));
    ZP_TRY(checkpoint_read(c, "guard", CHECKPOINT_U8, &t->guard, sizeof t->guard, err));
    ZP_TRY(checkpoint_read(c, "data.shift", CHECKPOINT_U64, &t->data_shift, 1, err));
    /* Older ones have none: what is looked at first counts. */
    if (checkpoint_find(c, "marks"))
        ZP_TRY(checkpoint_read(c, "marks", CHECKPOINT_F64, t->marks, trainer_marks_count(t), err));
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

/* trainplan.c: the memory of a training run, before it is taken.
 * Owns: nothing. Each part says itself what it takes; what parts are there is trainer.c's. */
#include "train/trainplan.h"

#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "train/trainer_parts.h"

uint64_t trainplan_total(const struct trainplan *p)
{
    uint64_t sum = 0;
    for (int tag = 0; tag < MEM_TAG_COUNT; tag++) sum += p->bytes[tag];
    return sum;
}

static void add_floats(uint64_t *bytes, uint64_t n)
{
    *bytes += n * sizeof(float);
}

/* What the parts before it hold, and will go on holding. */
static void begin(const struct trainer *t, struct trainplan *p)
{
    struct mem_stats now;
    mem_stats_read(&now);
    *p = (struct trainplan){ 0 };
    memcpy(p->bytes, now.live, sizeof p->bytes);
    p->held = trainplan_total(p) - t->param.file_bytes - t->teacher_param.file_bytes;
}

static void add_parameters(const struct trainer *t, struct trainplan *p)
{
    const struct adapter *a = &t->adapter;
    uint64_t n = a->n ? a->n : t->param.n;
    add_floats(&p->bytes[MEM_PARAMETER], t->param.n + a->n + t->teacher_param.n);
    add_floats(&p->bytes[MEM_PRODUCT], a->n_scaled);
    add_floats(&p->bytes[MEM_GRADIENT], (t->options.n_micro > 1 ? 2 * n : n) + t->gates.n);
}

static zp_status add_optimiser(const struct trainer *t, struct trainplan *p, zp_err *err)
{
    struct opt_segment *segments;
    ZP_ALLOC(segments, MEM_TRAIN, trainer_most_segments(t), err, "the list of tensors");
    size_t n = trainer_segments(t, segments);
    p->bytes[MEM_OPTIMISER] += opt_bytes(t->adapter.n ? t->adapter.n : t->param.n, segments, n);
    mem_free(segments);
    return ZP_OK;
}

static zp_status add_nets(const struct trainer *t, struct trainplan *p, size_t *operands,
                          zp_err *err)
{
    const struct zp_model *teacher = t->options.teacher;
    struct net_options mine = trainer_net_options(t), other = trainer_teacher_options(t);
    uint64_t bytes, rows = trainer_rows(t);
    ZP_TRY(net_plan(&t->param, t->options.n_threads, &mine, &bytes, err));
    *operands = net_operands(&t->param, &mine);
    p->bytes[MEM_ACTIVATION] += bytes;
    add_floats(&p->bytes[MEM_ACTIVATION], 2 * rows * t->model->h.d_model);
    if (!teacher) return ZP_OK;
    ZP_TRY(net_plan(&t->teacher_param, t->options.n_threads, &other, &bytes, err));
    size_t more = net_operands(&t->teacher_param, &other);
    if (*operands < more) *operands = more;
    p->bytes[MEM_ACTIVATION] += bytes;
    add_floats(&p->bytes[MEM_ACTIVATION], rows * teacher->h.d_model);
    return ZP_OK;
}

static void add_loss(const struct trainer *t, struct trainplan *p, size_t operands)
{
    struct loss_shape s = trainer_loss_shape(t);
    size_t more = loss_operands(&s);
    p->bytes[MEM_PRODUCT] += loss_bytes(&s);
    p->bytes[MEM_PRODUCT] += gemm_bytes(t->gemm, operands > more ? operands : more) -
                             gemm_bytes(t->gemm, 0);
}

static void add_lists(const struct trainer *t, struct trainplan *p)
{
    const struct trainer_options *o = &t->options;
    uint64_t *bytes = &p->bytes[MEM_TRAIN];
    *bytes += packed_bytes(t->packer.micro_rows, o->n_ctx);
    if (structlearn_tagger(&t->structure)) *bytes += trainer_rows(t); /* packed.tags */
    *bytes += trainer_marks_count(t) * sizeof(double);
    *bytes += t->model->h.n_layer * sizeof(struct guard_norms); /* trainrun.c's */
    if (o->saves) p->bytes[MEM_META] += CHECKPOINT_SAVE_BYTES;
    if (o->pic_steps) pic_plan(t->model->h.n_layer, t->model->h.d_model, o->n_ctx, p->bytes);
}

static void tell(const struct trainplan *p)
{
    struct bytes_text text[7];
    log_info("memory: %s planned: weights in their files %s, parameters %s, gradients %s, "
             "optimiser %s, activations %s, products %s",
             bytes_in_words(trainplan_total(p), &text[0]),
             bytes_in_words(p->bytes[MEM_WEIGHTS], &text[1]),
             bytes_in_words(p->bytes[MEM_PARAMETER], &text[2]),
             bytes_in_words(p->bytes[MEM_GRADIENT], &text[3]),
             bytes_in_words(p->bytes[MEM_OPTIMISER], &text[4]),
             bytes_in_words(p->bytes[MEM_ACTIVATION], &text[5]),
             bytes_in_words(p->bytes[MEM_PRODUCT], &text[6]));
}

zp_status trainplan_make(const struct trainer *t, struct trainplan *out, zp_err *err)
{
    size_t operands;
    begin(t, out);
    add_parameters(t, out);
    ZP_TRY(add_optimiser(t, out, err));
    ZP_TRY(add_nets(t, out, &operands, err));
    add_loss(t, out, operands);
    add_lists(t, out);
    tell(out);
    return ZP_OK;
}

zp_status trainplan_check(const struct trainer *t, zp_err *err)
{
    static const char advice[] =
        "more --micro-batches, a smaller --ctx-size or --recompute need less";
    const struct trainer_options *o = &t->options;
    uint64_t need = trainplan_total(&t->plan), have = os_memory_available();
    struct bytes_text text[2];
    ZP_FAIL_IF(o->memory && need > o->memory, err, ZP_NO_MEMORY,
               "not enough memory: %s are needed to train on %u rows of %u tokens at a time, "
               "%s granted (--memory); %s", bytes_in_words(need, &text[0]), t->packer.micro_rows,
               o->n_ctx, bytes_in_words(o->memory, &text[1]), advice);
    need -= t->plan.held;
    ZP_FAIL_IF(!o->plan_only && have && need > have, err, ZP_NO_MEMORY,
               "not enough memory: %s are needed to train on %u rows of %u tokens at a time, "
               "%s available; %s", bytes_in_words(need, &text[0]), t->packer.micro_rows, o->n_ctx,
               bytes_in_words(have, &text[1]), advice);
    return ZP_OK;
}

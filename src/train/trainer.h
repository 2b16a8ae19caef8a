/* trainer.h: what a training run holds, and one step of it: batch, teacher, loss, gradients, gates,
 * AdamW; quality on held-out windows; its state as a checkpoint.
 * What learns are the parameters themselves, or adapters of some of them (adapter.h).
 * R1 a step is a function of (options, state, step): a resumed run gives the bits of one that was
 *    not disturbed.
 * R2 gradients of what learns are added over micro-batches in ascending order: the same bits for
 *    any number of processes (dist.h). Those of adapters are made from the gradients of one
 *    micro-batch before they are added.
 * R3 what does not learn stays in the model's file, but for vectors, and so does all of the
 *    teacher: netparam.h widens a matrix when a product needs it. With adapters no parameter
 *    changes.
 * R4 what trainer_open and steps hold is what `plan` says, tag by tag (trainplan.h). */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "dist/dist.h"
#include "train/adapter.h"
#include "train/gates.h"
#include "train/loss.h"
#include "train/optimiser.h"
#include "train/pic.h"
#include "train/schedule.h"
#include "train/structlearn.h"
#include "train/trainplan.h"

struct trainer_options {
    uint32_t n_ctx, n_rows, n_micro; /* packer.h */
    uint32_t n_threads;
    uint64_t seed;
    struct schedule schedule; /* its steps are those of the run */
    struct opt_options opt;
    double task_share;        /* of rows; 0: no tasks */
    struct gates_options gates;
    const struct zp_model *teacher; /* NULL: none; the same vocabulary */
    float ce_weight, kl_weight;
    /* Instead of the loss: what each layer's attention adds is to match the teacher's, with the
     * teacher's stream before the layer; layers whose positions are the teacher's are passed over.
     * The teacher must have the same layers and widths. */
    bool match;
    uint64_t
        pic_steps; /* > 0: a bridge (pic.h) learns in so many steps before gates begin to close,
                         * which they do no earlier than that, and fades out in as many behind */
    struct structlearn_options structure; /* of a model with a structure head that learns */
    enum gemm_precision precision;
    bool recompute;
    struct adapter_options adapter; /* rank 0: none; else nothing but adapters learns */
    uint64_t config; /* hash of what was asked for, for checkpoints; 0: not compared */
    /* NULL: all tensors learn but ALiBi slopes; else whether this one does. Not asked where there
     * are adapters. */
    bool (*learns)(void *arg, const struct netparam_tensor *t);
    void *learns_arg;
    bool saves;      /* trainer_save will be called: the plan knows of it */
    uint64_t memory; /* most bytes it may hold; 0: what the machine has left */
    bool plan_only;  /* nothing but `plan` is made; the trainer can only be closed */
};

struct trainer_step {
    uint64_t step;           /* that was taken */
    struct loss_sums sums;   /* over the batch; none with `match` */
    double loss; /* ce_weight CE + kl_weight KL + tag_weight of the detectors' loss, mean over
                  * targets; with `match`: squared error as a share of the target's square, mean
                  * over layers */
    double rate;
    struct opt_report opt;
    enum guard_verdict verdict;
    bool spike;
};

/* What a run compares with later; part of a checkpoint. Numbers that are not finite: not yet
 * known. */
struct trainer_marks {
    double held_loss, held_at; /* loss of the last measurement, and its step */
    double first_ce;           /* of the first look */
    struct guard_norms first[]; /* (n_layer) of the first look */
};

struct trainer_quality {
    struct loss_sums sums;
    uint32_t n_windows;
};

struct trainer {
    const struct zp_model *model;
    const struct shards *shards;
    struct trainer_options options;
    struct dist *dist;
    struct pool *pool;
    struct gemm *gemm;
    struct netparam param;
    struct net *net;
    struct loss *loss;
    struct optimiser opt;
    struct packer packer;
    struct tasks tasks;
    struct structlearn structure;
    struct packed batch;
    struct gates gates;
    struct guard guard;
    struct pic pic; /* n 0: none */
    struct netparam teacher_param;
    struct net *teacher;
    float *teacher_w, *teacher_hidden;
    struct adapter adapter;  /* n 0: none */
    struct trainplan plan;
    float *w;                /* (param.n) */
    /* (n_x) what learns: w, or the adapters; dx: gradients of a micro-batch; sum: of all, dx itself
     * where there is one. */
    float *x, *dx, *sum;
    size_t n_x;
    float *hidden, *dhidden; /* (rows of a micro-batch, d_model) */
    float *dgates;           /* (gates.n) of a micro-batch */
    struct trainer_match {   /* of a micro-batch */
        const struct net_gates *gates;
        struct net_gradients to;
        double off; /* shares of the layers, summed */
        uint32_t n_layers;
    } matching;
    uint8_t *frozen;         /* (param.n_tensors) 1: its gradient is not wanted */
    uint64_t step;           /* the next one */
    struct trainer_marks *marks;
    uint64_t data_shift;     /* batch of a step: step + data_shift; grows with each roll-back */
    struct checkpoint_key key;
};

/* model, shards, dist and the teacher must outlive t. w starts as the model's file has it.
 * ZP_NO_MEMORY, before anything large is taken: more than options.memory, or than there is. */
zp_status trainer_open(struct trainer *t, const struct zp_model *model, const struct shards *shards,
                       struct dist *dist, const struct trainer_options *o, zp_err *err);
void trainer_close(struct trainer *t); /* accepts a half-built or zeroed object */
/* The model as it is now: netparam_write. */
zp_status trainer_write(const struct trainer *t, uint32_t type, const char *recipe,
                        const char *path, zp_err *err);
/* Frees what steps alone need: parameters, adapters and gates stay. */
void trainer_finish(struct trainer *t);
/* One step. What it found is in *out; where the verdict is not GUARD_GO nothing was changed but the
 * number of the step. */
zp_status trainer_run_step(struct trainer *t, struct trainer_step *out, zp_err *err);
/* The first windows of held-out documents with the gates that the next step has; n_windows 0: all
 * there are. None held out: n_windows is 0. */
void trainer_measure(struct trainer *t, uint32_t n_windows, struct trainer_quality *out);
/* Of the parameters as they are, on a fixed batch (held-out windows where there are some): norms
 * (n_layer), and cross entropy. The same on all processes. */
zp_status trainer_look(struct trainer *t, struct guard_norms *norms, double *ce, zp_err *err);

/* Every process may call; the first one writes. */
zp_status trainer_save(struct trainer *t, const char *folder, size_t keep, zp_err *err);
/* From the folder's last whole checkpoint. */
zp_status trainer_resume(struct trainer *t, const char *folder, zp_err *err);
/* The same, to go on with other batches than those that failed. */
zp_status trainer_roll_back(struct trainer *t, const char *folder, zp_err *err);

#endif

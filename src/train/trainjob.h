/* trainjob.h: a training run as the public calls ask for it: files opened, defaults filled in, the
 * run made, the model written, the report. */
#ifndef TRAIN_TRAINJOB_H
#define TRAIN_TRAINJOB_H

#include "base/json_build.h"
#include "train/adapterfile.h"
#include "train/trainrun.h"

enum { TRAINJOB_OPTIONS = 48, TRAINJOB_TEXT = 256 };

struct trainjob {
    zp_train_options options; /* resolved */
    struct gates_options gates;
    uint64_t pic_steps;
    struct adapter_options adapter; /* resolved; rank 0: none */
    struct adapterfile start;       /* adapters to begin with; its folder NULL: none */
    struct zp_model *model, *original;
    struct shards shards;
    struct dist *dist;
    struct trainer trainer;
    struct trainrun_result result;
    struct mem_stats counted; /* peaks of the run, its last checkpoint included */
    const char *model_path, *corpus_path;
    /* what was asked for, for run.json and the checkpoints' key */
    struct series_option asked[TRAINJOB_OPTIONS];
    char values[TRAINJOB_OPTIONS][TRAINJOB_TEXT];
    size_t n_asked;
};

/* gates: its steps and seed are filled in. o may be NULL. pic_steps: trainer.h. */
zp_status trainjob_open(struct trainjob *j, const char *model, const char *corpus,
                        const zp_train_options *o, const struct gates_options *gates,
                        uint64_t pic_steps, zp_err *err);
void trainjob_close(struct trainjob *j); /* accepts a half-built object */
zp_status trainjob_run(struct trainjob *j, zp_err *err);
/* The adapters as PEFT's folder, where that was asked for. */
zp_status trainjob_write_adapter(const struct trainjob *j, zp_err *err);
/* With options.memory_plan, in place of a run: the document of the memory that it would hold. */
zp_status trainjob_plan(const struct trainjob *j, char **json, zp_err *err);
/* Members of the report's object that w is in. */
void trainjob_report(const struct trainjob *j, struct json_build *w);
/* Whether this process writes files and reports. */
static inline bool trainjob_leads(const struct trainjob *j)
{
    return dist_rank(j->dist) == 0;
}

#endif

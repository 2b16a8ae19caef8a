/* cmd_train.c: train, anneal: a model on a corpus of tokens, with positions kept or taken out. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One line for each report; the bar is redrawn below it. */
static void on_report(void *arg, const zp_train_report *r)
{
    const struct cli *c = arg;
    if (c->quiet)
        return;
    progress_clear();
    fprintf(stderr, "step %llu of %llu: loss %.4f", (unsigned long long)r->step,
            (unsigned long long)r->steps, r->loss);
    if (r->kl > 0)
        fprintf(stderr, " (kl %.4f)", r->kl);
    if (!isnan(r->held_ce))
        fprintf(stderr, ", held out %.4f", r->held_ce);
    if (r->kl > 0 && !isnan(r->held_kl))
        fprintf(stderr, " (kl %.4f)", r->held_kl);
    if (r->gates_closed > 0)
        fprintf(stderr, ", %llu of %llu gates closed", (unsigned long long)r->gates_closed,
                (unsigned long long)r->gates);
    fprintf(stderr, ", %.0f tokens/s\n", r->tokens_per_second);
}

/* 0 on the command line means none, which the library spells -1: its 0 is the default. */
static double or_none(const struct cli *c, const char *name)
{
    double x = cli_real(c, name);
    return x == 0 ? -1 : x;
}

/* The command as a shell reads it again, for run.json. */
static void join_words(const struct cli *c, struct text *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=:,./@%";
    text_printf(out, "zerope %s", c->command->name);
    for (int i = 0; i < c->argc; i++) {
        const char *word = c->argv[i];
        bool bare = *word != '\0' && word[strspn(word, plain)] == '\0';
        text_printf(out, bare ? " " : " '");
        for (; *word != '\0'; word++) {
            if (*word == '\'')
                text_printf(out, "'\\''");
            else
                text_append(out, word, 1);
        }
        if (!bare)
            text_printf(out, "'");
    }
}

static void train_options(struct cli *c, zp_train_options *o)
{
    *o = (zp_train_options){
        .tokens = (uint64_t)cli_int(c, "tokens"),
        .n_ctx = cli_u32(c, "ctx-size"),
        .batch_rows = cli_u32(c, "batch-rows"),
        .micro_batches = cli_u32(c, "micro-batches"),
        .learning_rate = cli_real(c, "learning-rate"),
        .schedule = cli_text(c, "schedule"),
        .warmup = or_none(c, "warmup"),
        .decay = or_none(c, "decay"),
        .floor = or_none(c, "floor"),
        .weight_decay = or_none(c, "weight-decay"),
        .clip = or_none(c, "clip"),
        .task_share = cli_real(c, "task-share"),
        .original = cli_text(c, "original"),
        .ce_weight = or_none(c, "ce-weight"),
        .kl_weight = or_none(c, "kl-weight"),
        .learn = cli_text(c, "learn"),
        .tag_weight = or_none(c, "tag-weight"),
        .tag_dropout = or_none(c, "tag-dropout"),
        .match = cli_flag(c, "match"),
        .lora_rank = cli_u32(c, "lora-rank"),
        .lora_alpha = cli_real(c, "lora-alpha"),
        .lora_targets = cli_text(c, "lora-targets"),
        .adapter_in = cli_text(c, "adapter-in"),
        .adapter_out = cli_text(c, "adapter-out"),
        .seed = (uint64_t)cli_int(c, "seed"),
        .n_threads = cli_u32(c, "threads"),
        .bf16 = cli_flag(c, "bf16"),
        .recompute = cli_flag(c, "recompute"),
        .memory = cli_has(c, "memory") ? (uint64_t)cli_int(c, "memory") << 20 : 0,
        .memory_plan = cli_flag(c, "memory-plan"),
        .type = cli_text(c, "type"),
        .run = cli_text(c, "run-dir"),
        .resume = cli_flag(c, "resume"),
        .save_every = (uint64_t)cli_int(c, "save-every"),
        .eval_every = (uint64_t)cli_int(c, "eval-every"),
        .eval_windows = cli_u32(c, "eval-windows"),
        .processes = cli_text(c, "processes"),
        .progress = cli_progress(c),
        .on_report = on_report,
        .report_arg = c,
    };
}

/* A new file beside the output, of a name that the library's leftovers have: one that a killed run
 * left goes when the output is written again. *path: for free(). */
static zp_status reserve_beside(struct cli *c, const char *out, char **path)
{
    struct text name = { 0 };
    int fd = -1;
    for (unsigned i = 0; fd < 0 && (i == 0 || errno == EEXIST); i++) {
        text_free(&name);
        name = (struct text){ 0 };
        text_printf(&name, "%s.tmp.%ld.%u", out, (long)getpid(), i);
        fd = open(name.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    *path = name.data;
    if (fd < 0)
        return cli_fail(c, ZP_IO, "%s: cannot be created: %s", name.data, strerror(errno));
    close(fd);
    return ZP_OK;
}

/* The model that --from-scratch describes, at `path`. */
static zp_status new_model(struct cli *c, const char *path)
{
    struct text beside = { 0 };
    const char *corpus = cli_text(c, "corpus"), *slash = strrchr(corpus, '/');
    const char *tokenizer = cli_text(c, "tokenizer");
    text_printf(&beside, "%.*stokenizer.gguf", slash ? (int)(slash + 1 - corpus) : 0, corpus);
    zp_status st = zp_model_new(cli_text(c, "from-scratch"), tokenizer ? tokenizer : beside.data,
                                (uint64_t)cli_int(c, "seed"), path, &c->err);
    text_free(&beside);
    return st;
}

/* What a command trains: the model that was named, or one that was made of it beside the output. */
struct begun {
    const char *named; /* for the report */
    char *made[2];     /* files on the way, for free() */
    size_t n_made;
};

static const char *begun_path(const struct begun *b)
{
    return b->n_made > 0 ? b->made[b->n_made - 1] : b->named;
}

static void begun_close(struct begun *b)
{
    while (b->n_made > 0) {
        (void)remove(b->made[--b->n_made]);
        free(b->made[b->n_made]);
    }
}

static zp_status next_file(struct cli *c, struct begun *b)
{
    return reserve_beside(c, cli_text(c, "output"), &b->made[b->n_made++]);
}

/* --from-scratch: a new model. */
static zp_status make(struct cli *c, struct begun *b)
{
    CLI_TRY(next_file(c, b));
    return new_model(c, begun_path(b));
}

/* --position-gate, --structure-head. */
static zp_status extend(struct cli *c, struct begun *b)
{
    zp_extend_options o = { .position_gate = cli_flag(c, "position-gate"),
                            .structure_head = cli_flag(c, "structure-head"),
                            .head_size = cli_text(c, "head-size") };
    const char *from = begun_path(b);
    if (!o.structure_head && o.head_size != NULL)
        return cli_usage(c, "--head-size belongs to --structure-head");
    if (!o.position_gate && !o.structure_head)
        return ZP_OK;
    CLI_TRY(next_file(c, b));
    return zp_model_extend(from, begun_path(b), &o, &c->err);
}

/* A model that was made has no file that stays: what it was made of is named. */
static zp_status show(struct cli *c, char *json, const char *named)
{
    json_t *doc = NULL;
    zp_status st = cli_parse_document(c, json, &doc);
    zp_free(json);
    CLI_TRY(st);
    json_object_set_new(doc, "model", cli_json_text(named, strlen(named)));
    return cli_show_value(c, doc);
}

static zp_status train(struct cli *c, const struct begun *b)
{
    char *json = NULL;
    struct text line = { 0 };
    zp_train_options o;
    train_options(c, &o);
    join_words(c, &line);
    o.command = line.data;
    o.rotation_dropout = cli_real(c, "rotation-dropout");
    zp_status st = zp_train_run(begun_path(b), cli_text(c, "corpus"), cli_text(c, "output"), &o,
                                &json, &c->err);
    text_free(&line);
    progress_clear();
    return st != ZP_OK || json == NULL ? st : show(c, json, b->named);
}

zp_status cmd_train(struct cli *c)
{
    const char *model = cli_text(c, "model");
    bool fresh = cli_text(c, "from-scratch") != NULL;
    struct begun b = { .named = fresh ? cli_text(c, "from-scratch") : model };
    if (fresh == (model != NULL))
        return cli_usage(c, fresh ? "--from-scratch makes a model: leave MODEL out"
                                  : "no model is named: give one, or --from-scratch CONFIG");
    if (!fresh && cli_given(c, "tokenizer"))
        return cli_usage(c, "--tokenizer belongs to --from-scratch: a model has its own");
    CLI_TRY(cli_check_outputs(c, "adapter-out"));
    zp_status st = fresh ? make(c, &b) : ZP_OK;
    if (st == ZP_OK)
        st = extend(c, &b);
    if (st == ZP_OK)
        st = train(c, &b);
    begun_close(&b);
    return st;
}

static zp_status anneal(struct cli *c, const struct begun *b)
{
    char *json = NULL;
    struct text line = { 0 };
    zp_anneal_options o = {
        .policy = cli_text(c, "policy"),
        .plan = cli_text(c, "plan"),
        .stages = cli_u32(c, "stages"),
        .begin = (uint64_t)cli_int(c, "begin"),
        .pic_steps = (uint64_t)cli_int(c, "pic-steps"),
        .share = cli_real(c, "share"),
        .ramp = cli_real(c, "ramp"),
        .overlap = cli_real(c, "overlap"),
        .lambda = cli_real(c, "lambda"),
        .eps_first = cli_real(c, "eps-first"),
        .eps_rest = cli_real(c, "eps-rest"),
        .t_cool = cli_u32(c, "t-cool"),
        .tolerance = cli_real(c, "tolerance"),
    };
    train_options(c, &o.train);
    join_words(c, &line);
    o.train.command = line.data;
    zp_status st = zp_anneal_run(begun_path(b), cli_text(c, "corpus"), cli_text(c, "output"), &o,
                                 &json, &c->err);
    text_free(&line);
    progress_clear();
    return st != ZP_OK || json == NULL ? st : show(c, json, b->named);
}

zp_status cmd_anneal(struct cli *c)
{
    struct begun b = { .named = cli_text(c, "model") };
    bool grows = cli_flag(c, "position-gate") || cli_flag(c, "structure-head");
    if (grows && cli_text(c, "plan") != NULL)
        return cli_usage(c, "--plan is of the model without new parts: anneal it, then add them");
    CLI_TRY(cli_check_outputs(c, "adapter-out"));
    zp_status st = extend(c, &b);
    if (st == ZP_OK)
        st = anneal(c, &b);
    begun_close(&b);
    return st;
}

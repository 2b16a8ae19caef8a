/* cli.h: what the commands of the program share: option tables, parsed values, input, output,
 * progress, errors. Only cli/ prints, exits and reads the environment; of the library it sees
 * include/zerope/ alone. A command returns a zp_status and leaves the text in cli->err; main prints
 * it and picks the exit code. */
#ifndef ZEROPE_CLI_H
#define ZEROPE_CLI_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <zerope/evap.h>
#include <zerope/train.h>
#include <zerope/zerope.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif
#define CLI_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- tables (commands.c) ----------------------------------------------------------------- */
enum option_type {
    OPTION_FLAG, /* no argument; --x, --x=false */
    OPTION_TEXT,
    OPTION_LIST,  /* text, may be given several times */
    OPTION_FILE,  /* text that completes as a path */
    OPTION_COUNT, /* unsigned, suffixes k and m (1024, 1024^2) */
    OPTION_INT,   /* signed */
    OPTION_REAL,
    OPTION_CHOICE /* one of choices */
};

struct cli_option {
    const char *name; /* "ctx-size"; the variable is ZEROPE_CTX_SIZE, the config key "ctx-size" */
    const char *abbr; /* "-c", "-np"; NULL: none */
    const char *arg;  /* argument name in help; NULL for flags */
    enum option_type type;
    const char *preset;  /* default as text; NULL: none (a flag: off) */
    const char *choices; /* "f32|bf16" */
    double min, max;     /* numbers; both 0: no limit */
    bool writes;         /* OPTION_FILE: the command writes it */
    bool picture;        /* OPTION_FILE: its name ends in .svg or .png */
    int word;            /* > 0: may be given as the word-th plain word */
    bool required;
    bool
        flag_only; /* not from environment or config file (the name means other things elsewhere) */
    const char *help;
};

struct cli;
struct cli_example {
    const char *line, *comment;
};

struct cli_command {
    const char *name, *summary;
    const char *about;  /* paragraphs, separated by "\n\n" */
    const char *fields; /* least fields of the JSON document */
    const struct cli_option *options;
    size_t n_options;
    const struct cli_example *examples;
    size_t n_examples;
    bool raw; /* the command parses its own words */
    zp_status (*run)(struct cli *c);
};

extern const struct cli_command cli_commands[];
extern const size_t cli_n_commands;
extern const struct cli_option cli_common_options[];
extern const size_t cli_n_common_options;
const struct cli_command *cli_find_command(const char *name);

/* ---- parsed command line (cli_parse.c, cli_config.c) ------------------------------------- */
enum cli_origin {
    ORIGIN_NONE,
    ORIGIN_DEFAULT,
    ORIGIN_CONFIG,
    ORIGIN_ENVIRONMENT,
    ORIGIN_FLAG,
    ORIGIN_WORD
};

struct cli_value {
    char **texts;
    size_t n;
    enum cli_origin origin;
    bool on;         /* flags */
    int64_t integer; /* COUNT, INT */
    double real;     /* REAL */
};

#define CLI_OPTIONS_MAX 64

struct cli {
    const struct cli_command *command;
    const struct cli_option *options[CLI_OPTIONS_MAX]; /* the command's, then the common ones */
    struct cli_value values[CLI_OPTIONS_MAX];
    size_t n_options;
    int argc; /* the words after the command name, as given */
    char **argv;
    bool json, quiet, verbose, help;
    bool wrote_document; /* the one JSON document of --json is out */
    json_t *config;      /* NULL: no config file */
    zp_err err;
};

void cli_init(struct cli *c, const struct cli_command *command, int argc, char **argv);
/* Flags and words, then environment, config file, defaults; then types and ranges. */
zp_status cli_parse(struct cli *c);
zp_status cli_parse_words(struct cli *c, int argc, char **argv);
zp_status cli_load_config(struct cli *c);
zp_status cli_apply_config(struct cli *c);
void cli_free(struct cli *c);
/* Checks a value's text against the option's type; `source` names it in the error ("--temp",
 * "ZEROPE_TEMP"). */
zp_status cli_check_value(struct cli *c, const struct cli_option *o, struct cli_value *v,
                          const char *source);
zp_status cli_set_value(struct cli *c, size_t index, const char *text, enum cli_origin origin);
void cli_env_name(const struct cli_option *o, char *out, size_t size);
const char *cli_origin_name(enum cli_origin origin);
/* The nearest of `names`, at most 2 edits away (1 where either has no more than 4 letters), or one
 * that begins with the word; or NULL. */
const char *cli_near_miss(const char *word, const char *const *names, size_t n);

/* Values by option name; asking for an option the command lacks is a programming error. */
bool cli_has(const struct cli *c, const char *name);   /* option exists in this command */
bool cli_given(const struct cli *c, const char *name); /* has a value other than the default */
const char *cli_text(const struct cli *c, const char *name); /* NULL: none */
bool cli_flag(const struct cli *c, const char *name);
int64_t cli_int(const struct cli *c, const char *name); /* 0: none */
uint32_t cli_u32(const struct cli *c, const char *name);
double cli_real(const struct cli *c, const char *name);
const struct cli_value *cli_value(const struct cli *c, const char *name);

/* ---- lists in values (cli_lists.c) ------------------------------------------------------- */
struct cli_numbers {
    uint32_t *at; /* (n), free() */
    size_t n;
};
struct cli_names {
    char **at; /* (n), by cli_free_names */
    size_t n;
};
/* "0,4k,32k": what was read before a failure stays in *out. */
zp_status cli_read_numbers(struct cli *c, const char *name, double min, double max,
                           struct cli_numbers *out);
zp_status cli_read_names(struct cli *c, const char *name, struct cli_names *out);
void cli_free_names(struct cli_names *names);

/* ---- errors (zerope.c) ------------------------------------------------------------------- */
zp_status cli_fail(struct cli *c, zp_status code, const char *fmt, ...) CLI_PRINTF(3, 4);
zp_status cli_usage(struct cli *c, const char *fmt, ...) CLI_PRINTF(2, 3);
/* The object `error` of a document: code, exit, message. */
json_t *cli_error_json(const struct cli *c, zp_status st);
#define CLI_TRY(expr)                                                                              \
    do {                                                                                           \
        zp_status cli_try_status = (expr);                                                         \
        if (cli_try_status != ZP_OK)                                                               \
            return cli_try_status;                                                                 \
    } while (0)

struct cli_exit_code {
    int code;
    const char *text;
};
extern const struct cli_exit_code cli_exit_codes[]; /* as help shows them (cli_help.c) */
extern const size_t cli_n_exit_codes;
extern const char cli_error_document[]; /* what --json prints on failure, in words */

/* ---- help (cli_help.c, cli_man.c, cli_completion.c) -------------------------------------- */
void help_print_overview(FILE *f);
void help_print_command(FILE *f, const struct cli_command *cmd);
void help_print_markdown(FILE *f);
void man_print(FILE *f);
json_t *help_json(void);
json_t *help_command_json(const struct cli_command *cmd);
bool completion_print(FILE *f, const char *shell); /* false: unknown shell */
void help_usage_line(FILE *f, const struct cli_command *cmd, const char *prefix);

/* ---- input and output (cli_io.c) --------------------------------------------------------- */
void *cli_alloc(size_t size); /* zeroed; ends the program with code 4 when there is none */
void *cli_resize(void *p, size_t size);
char *cli_strdup(const char *s);
struct text {
    char *data;
    size_t size, room;
}; /* NUL-terminated after each append */
void text_append(struct text *t, const void *data, size_t size);
void text_printf(struct text *t, const char *fmt, ...) CLI_PRINTF(2, 3);
void text_free(struct text *t);
/* path "-": standard input. Fails beyond `max` bytes with both numbers. */
zp_status cli_read_file(struct cli *c, const char *path, size_t max, struct text *out);
/* The input of a command: --prompt, --file or standard input, whichever is given; at most one. */
zp_status cli_read_input(struct cli *c, struct text *out, bool *is_prompt);
/* Prints the JSON document of --json. Takes the reference. */
zp_status cli_emit(struct cli *c, json_t *doc);
/* A document of the library (freed here): indented with --json, otherwise as tables. */
zp_status cli_show(struct cli *c, char *document);
zp_status cli_show_value(struct cli *c, json_t *doc); /* takes the reference */
zp_status cli_parse_document(struct cli *c, const char *document, json_t **out);
const char *cli_plural(size_t n);  /* "s", or "" for one */
json_t *cli_json_text(const char *text, size_t size); /* invalid UTF-8 becomes U+FFFD */
/* Has standard output remember why a write failed, whoever made it; before the first one. */
void cli_open_output(void);
/* Writes and flushes a piece of a stream; false: it failed, and cli_flush says why. */
bool cli_write(const char *text, size_t size);
zp_status cli_flush(struct cli *c); /* standard output reached its file, or an error by its kind */
/* Checks early that the folder of an output exists and can be written. */
zp_status cli_check_output(struct cli *c, const char *path);
/* The same for every output of the command line; and none may be one of its inputs or another
 * output. folder: option whose output is made as a folder; NULL: none. */
zp_status cli_check_outputs(struct cli *c, const char *folder);

/* ---- tables for people (cli_view.c) ------------------------------------------------------ */
void view_document(FILE *f, const json_t *doc);
void view_text_cell(struct text *out, const char *key, const json_t *value);

/* ---- progress and interruption (cli_progress.c) ------------------------------------------ */
void interrupt_install(void);
/* From now on the first Ctrl-C only sets the flag (work that looks at it ends cleanly); before, it
 * ends at once. */
void interrupt_defer(bool defer);
bool interrupt_pending(void);
void interrupt_forget(void); /* the flag was heeded: the next Ctrl-C is a first one again */
zp_progress cli_progress(struct cli *c); /* defers interrupts; draws on stderr unless --quiet */
void progress_clear(void);               /* removes the bar before other text is written */
bool cli_color(FILE *f);                 /* terminal, NO_COLOR unset */
double cli_now(void);

/* ---- models (cli_model.c) ---------------------------------------------------------------- */
zp_status cli_open_model(struct cli *c, zp_model **out);
zp_status cli_open_model_at(struct cli *c, const char *path, zp_model **out);
/* The options that memory depends on, --parallel among them: the same for run and inspect. */
zp_status cli_plan_options(struct cli *c, zp_engine_options *out);
zp_status cli_engine_options(struct cli *c, zp_engine_options *out); /* these and all others */
/* Positions of a sequence when --ctx-size is not given: 4096, more for a long prompt and its answer
 * (0: of no given length), never beyond what the model was made for. */
uint32_t cli_default_context(const zp_model *m, size_t n_prompt, size_t n_predict);
/* Folder of packed weights; NULL where there is no home. */
const char *cli_pack_cache(void);
zp_status cli_sampler_options(struct cli *c, zp_sampler_options *out);
zp_pooling cli_pooling(const struct cli *c); /* of --pooling */
zp_status cli_mode(struct cli *c, zp_mode *out);
/* One note on stderr when work at n_ctx tokens goes beyond what the file has evidence for or, where
 * it has none, what the model was trained for. */
void cli_note_length(const struct cli *c, const zp_model *m, uint32_t n_ctx);
/* The same for a model that only the library will open. */
zp_status cli_note_length_of(struct cli *c, const char *path, uint32_t n_ctx);

/* ---- generation (cli_generate.c) --------------------------------------------------------- */
struct generation {
    struct cli *c;
    zp_model *model;
    zp_engine *engine;
    zp_seq *seq;
    zp_grammar *grammar; /* NULL: any text */
    zp_engine_options engine_options;
    zp_seq_options seq_options;
    zp_generate_options options;
    bool stream;            /* text goes to standard output as it comes */
    bool ends_with_newline; /* what was shown so far */
    size_t n_prompt, n_reused, n_generated, n_drafted, n_accepted;
    size_t n_steps;              /* tokens computed one by one: the last drawn token never is */
    double prefill_seconds, decode_seconds, load_seconds;
};
/* Checks the options and opens the model; start opens engine and sequence for such a prompt. */
zp_status generation_open(struct generation *g, struct cli *c);
zp_status generation_start(struct generation *g, size_t n_prompt);
void generation_close(struct generation *g);
/* Continues the sequence; the totals in g grow. ZP_INTERRUPTED after Ctrl-C, with `out` filled. */
zp_status generation_run(struct generation *g, const int32_t *prompt, size_t n, zp_generated *out);
void generation_free_result(zp_generated *out);
json_t *generation_answer(const zp_generated *out); /* text, ids, reason, n_prompt, n_reused */
json_t *generation_timings(const struct generation *g);
void generation_print_timings(const struct generation *g, const char *reason);
zp_status generation_check_template(struct generation *g); /* there is one */
/* Renders messages (not freed) with the chat template; *ids is released with zp_free. */
zp_status generation_render(struct generation *g, const json_t *messages, int32_t **ids, size_t *n);
/* Ids of a prompt: the text as it stands, or with --chat in the template. At least one; *ids is
 * released with zp_free. */
zp_status generation_prompt(struct generation *g, const char *text, size_t size, int32_t **ids,
                            size_t *n);
/* Answers to each line of a text, --parallel at a time, in their order. */
zp_status generation_run_lines(struct generation *g, const struct text *in);

zp_status cli_parse_ids(struct cli *c, const char *text, int32_t **ids,
                        size_t *n); /* free() them */

/* Of --n-predict, --stop, --top-p, --json-schema, --grammar-file: what makes no sense anywhere. */
zp_status cli_check_generation(struct cli *c);
/* The text of the schema or grammar: one of --json-schema, --grammar-file is given. */
zp_status cli_read_grammar(struct cli *c, struct text *out);

/* ---- conversations (cli_dialogue.c) ------------------------------------------------------ */
struct dialogue {
    struct cli *c;
    json_t *messages;
    bool terminal;  /* someone types */
    bool lost;      /* no line can be answered any more */
    zp_err refused; /* the first line that got no answer */
    size_t n_refused;
    zp_status (*check)(void *arg, const char *line, size_t size); /* a message: is it UTF-8? */
    zp_status (*answer)(void *arg); /* to `messages`; calls dialogue_answered */
    void *arg;
};
void dialogue_open(struct dialogue *d, struct cli *c); /* check and answer are still to be set */
void dialogue_reset(struct dialogue *d);
void dialogue_answered(struct dialogue *d, const char *text, size_t size);
zp_status dialogue_run(struct dialogue *d); /* until /exit or the end of the input */
/* The command's status: a script hears of lines without an answer. */
zp_status dialogue_verdict(struct dialogue *d, zp_status st);
void dialogue_close(struct dialogue *d);
json_t *cli_message(const char *role, const char *text, size_t size);
zp_status chat_there(struct cli *c); /* cli_remote.c: chat --server */

/* ---- commands ---------------------------------------------------------------------------- */
zp_status cmd_inspect(struct cli *c);
zp_status cmd_tokenize(struct cli *c);
zp_status cmd_detokenize(struct cli *c);
zp_status cmd_template(struct cli *c);
zp_status cmd_logits(struct cli *c);
zp_status cmd_embed(struct cli *c);
zp_status cmd_run(struct cli *c);
zp_status cmd_chat(struct cli *c);
zp_status cmd_serve(struct cli *c);
zp_status cmd_ppl(struct cli *c);
zp_status cmd_bench(struct cli *c);
zp_status cmd_scan(struct cli *c);
zp_status cmd_plan(struct cli *c);
zp_status cmd_evaporate(struct cli *c);
zp_status cmd_verify(struct cli *c);
zp_status cmd_export(struct cli *c);
zp_status cmd_quantize(struct cli *c);
zp_status cmd_corpus(struct cli *c);
zp_status cmd_train(struct cli *c);
zp_status cmd_anneal(struct cli *c);
zp_status cmd_scale(struct cli *c);
zp_status cmd_report(struct cli *c);
zp_status cmd_probe(struct cli *c);
zp_status cmd_doctor(struct cli *c);
zp_status cmd_version(struct cli *c);
zp_status cmd_completion(struct cli *c);
zp_status cmd_config(struct cli *c);
zp_status cmd_help(struct cli *c);

#endif

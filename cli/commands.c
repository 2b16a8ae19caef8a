/* commands.c: the one table of commands, each with its table of options and its examples.
 * Parsing, help, man page, completions, docs/COMMANDS.md and `config print` all come from here.
 * An option name that means different things in two commands is flag_only in both: the environment
 * and the config file would otherwise set it where it was not meant. */
#include "cli.h"

#include <string.h>

/* Rows by type. The explanation comes last and may be followed by further members. */
#define FLAG(n, ...) { .name = n, .type = OPTION_FLAG, .help = __VA_ARGS__ }
#define TEXT(n, a, ...) { .name = n, .arg = a, .type = OPTION_TEXT, .help = __VA_ARGS__ }
#define LIST(n, a, ...) { .name = n, .arg = a, .type = OPTION_LIST, .help = __VA_ARGS__ }
#define PATH(n, s, a, ...) \
    { .name = n, .abbr = s, .arg = a, .type = OPTION_FILE, .help = __VA_ARGS__ }
#define NUMBER(n, a, t, lo, hi, p, ...) \
    { .name = n, .arg = a, .type = t, .min = lo, .max = hi, .preset = p, .help = __VA_ARGS__ }
#define COUNT(n, a, lo, hi, p, ...) NUMBER(n, a, OPTION_COUNT, lo, hi, p, __VA_ARGS__)
#define INT(n, a, lo, hi, p, ...) NUMBER(n, a, OPTION_INT, lo, hi, p, __VA_ARGS__)
#define REAL(n, a, lo, hi, p, ...) NUMBER(n, a, OPTION_REAL, lo, hi, p, __VA_ARGS__)
#define CHOICE(n, a, c, p, ...) \
    { .name = n, .arg = a, .type = OPTION_CHOICE, .choices = c, .preset = p, .help = __VA_ARGS__ }

/* ---- rows that several commands share ---------------------------------------------------- */
#define MOST_TOKENS 16777216
/* What a longer context than the file vouches for means, in the help of what generates. */
#define LENGTH_RULE                                                                       \
    "A context longer than the length the file has evidence for (after evaporate or "     \
    "verify), or else longer than the model was trained for, is allowed; one note on "    \
    "stderr says so."
/* The same of answers by a schema or grammar. */
#define GRAMMAR_RULE                                                                      \
    "--json-schema, --grammar-file: of each next token only those are drawn with which a "\
    "text of the schema or grammar can go on, and the answer ends where it is whole. Say " \
    "in the prompt what form is wanted, too: the model does not see the schema. "          \
    "docs/SCHEMAS.md says what is taken of JSON Schema.\n\n"
#define MODEL                                                                             \
    PATH("model", "-m", "MODEL",                                                          \
         "model: a GGUF file (the first part of a split one) or a Hugging Face folder",   \
         .word = 1, .required = true)
#define PRE TEXT("pre", "NAME", "pre-tokeniser to use instead of the file's tokenizer.ggml.pre")
#define CTX(p, h) COUNT("ctx-size", "N", 1, MOST_TOKENS, p, h, .abbr = "-c")
#define PROMPT(h) TEXT("prompt", "TEXT", h, .abbr = "-p")
#define INPUT(h) PATH("file", "-f", "FILE", h)
#define DOCUMENTS(h) PATH("file", "-f", "TEXT", h, .required = true)
#define OUTPUT(a, h) PATH("output", "-o", a, h, .required = true, .writes = true)
#define SPECIAL                                                                           \
    FLAG("special", "read special tokens (<|im_start|>) in the text as such; otherwise "  \
                    "they are plain text")
#define POOLING                                                                           \
    CHOICE("pooling", "KIND", "default|last|mean|first", "default",                       \
           "what an embedding is made of: the last token's hidden state, the mean of all, " \
           "the first one's; default: what the model's file names, else last")
#define PREDICT(p, h) INT("n-predict", "N", -1, MOST_TOKENS, p, h, .abbr = "-n")
#define MODE                                                                              \
    CHOICE("mode", "MODE", "full|zero|half|auto", "full",                                 \
           "position mode: as in the file, skipped everywhere, skipped where the stored " \
           "plan says, by length"),                                                       \
    FLAG("allow-unverified-mode", "allow a position mode the file carries no evidence for")
#define PARALLEL(h) COUNT("parallel", "N", 1, 4096, NULL, h, .abbr = "-np")
#define BATCH                                                                             \
    COUNT("batch-size", "N", 1, 1048576, "512", "micro-batch: tokens computed together",    \
          .abbr = "-b")
#define BATCH_AND_KV                                                                      \
    BATCH,                                                                                \
    CHOICE("cache-type-k", "TYPE", "f32|bf16|q8", NULL,                                   \
           "type of cached keys; default bf16, with --exact f32", .abbr = "-ctk"),        \
    CHOICE("cache-type-v", "TYPE", "f32|bf16|q8", NULL,                                   \
           "type of cached values; the same as that of the keys", .abbr = "-ctv")
#define KV_MEMORY                                                                         \
    COUNT("kv-memory", "MIB", 1, 1 << 30, NULL,                                           \
          "memory for cached keys and values, in MiB; default: what the context and the " \
          "prompts computed at a time need at most")
#define EXACT                                                                             \
    FLAG("exact", "compute with de-quantised f32 weights, f32 activations, f32 keys and " \
                  "values")
#define LEVEL                                                                             \
    CHOICE("cpu", "LEVEL", "best|ref|avx2|avx512|avx512bf16", "best",                     \
           "highest kernel level to use")
#define PLACES                                                                            \
    FLAG("pin", "keep every thread on a core of its own"),                                \
    FLAG("no-pack-cache", "do not take packed weights from the cache folder, nor keep "   \
                          "them there; doctor names the folder")
#define ENGINE BATCH_AND_KV, LEVEL, EXACT, PLACES
#define TEMPLATE                                                                          \
    PATH("chat-template", NULL, "FILE", "file with a chat template to use instead of the model's")
#define OFFLINE FLAG("offline", "taken for the sake of habit: zerope never uses the network here")
#define DRAFT                                                                             \
    COUNT("draft", "N", 0, 32, "0",                                                       \
          "guess up to N tokens ahead from what repeats in the text; the result is the "  \
          "same, sooner where text repeats")
#define SAMPLING                                                                          \
    REAL("temp", "T", 0, 100, "0", "temperature; 0 takes the most likely token each time"), \
    COUNT("top-k", "N", 0, 1e9, "0", "draw among the N most likely tokens; 0: all"),      \
    REAL("top-p", "P", 0, 1, "1",                                                         \
         "draw among the most likely tokens that together reach P; 1: all"),              \
    REAL("min-p", "P", 0, 1, "0",                                                         \
         "leave out tokens less likely than P times the most likely; 0: none"),           \
    REAL("repeat-penalty", "X", 0.01, 100, "1",                                           \
         "divide the logits of recent tokens by X; 1: off"),                              \
    INT("seed", "N", -1, 9e18, "-1",                                                      \
        "seed of the draws; -1: a new one each time, which is printed"),                  \
    LIST("stop", "TEXT",                                                                  \
         "end when TEXT appears (it is not shown); may be given up to 64 times")
#define GRAMMAR                                                                           \
    TEXT("json-schema", "SCHEMA",                                                         \
         "the answer is JSON valid by this JSON Schema: its text ({...}), or a file that " \
         "holds it", .abbr = "-j"),                                                       \
    PATH("grammar-file", NULL, "FILE",                                                    \
         "the answer is a text of the grammar in FILE, in llama.cpp's notation (GBNF)")
#define WINDOW_SEED                                                                                \
    INT("seed", "N", 0, 9e18, "1",                                                                 \
        "with --local: seed of the retrieval prompts that rank heads (0: the default); with "      \
        "Fisher information: of the labels drawn; windows of text depend on the documents' "       \
        "paths only",                                                                              \
        .flag_only = true)
#define HEATMAP(h) PATH("heatmap", NULL, "FILE", h, .writes = true, .picture = true)
#define BUDGET(h, ...) REAL("budget-kl", "X", 1e-9, 100, NULL, h, __VA_ARGS__)
#define LOCAL                                                                             \
    COUNT("local", "W", 1, MOST_TOKENS, NULL,                                             \
          "heads may become local: they keep W recent positions and the first 64")
#define PLAN_SHAPE                                                                        \
    FLAG("uniform", "close the same pairs in all layers, so that stock engines can run "  \
                    "an export"),                                                         \
    FLAG("uniform-slow", "as --uniform, and only the slowest pairs (transformers can "    \
                         "express that too)"),                                            \
    FLAG("layers", "prefer to close whole layers"),                                       \
    CHOICE("rank", "ORDER", "local|fisher|sum", "local",                                  \
           "order of single gates: by importance, by Fisher information (scan --fisher), " \
           "or by the sum of the ranks in both"),                                         \
    FLAG("no-fold", "do not fold fitted stand-ins of closed pairs into W_q")

#define ONE_SHAPE                                                                         \
    "--uniform, --uniform-slow, --layers and --local exclude each other."

/* ---- options and examples of each command ------------------------------------------------ */
static const struct cli_option inspect_options[] = {
    MODEL,
    CTX(NULL, "context length the memory plan is made for; default: 4096, at most the model's"),
    PARALLEL("plan for run --parallel N of at least N lines; default: run of one prompt"),
    BATCH_AND_KV,
    KV_MEMORY,
    EXACT,
    FLAG("tensors", "also list every tensor"),
    FLAG("cpu", "also show the processor and the kernels chosen for it", .flag_only = true),
    HEATMAP("write a picture of the gates, layer x head by pair (.svg or .png)"),
    PRE,
};
static const struct cli_example inspect_examples[] = {
    { "zerope inspect model.gguf", "what the file is, and which layers still use positions" },
    { "zerope inspect model.gguf -c 32k --json", "memory plan for 32,768 tokens, as JSON" },
    { "zerope inspect model.gguf -c 4k -np 16 -ctk q8", "what run with the same options takes" },
};

static const struct cli_option tokenize_options[] = {
    MODEL,
    PROMPT("the text"),
    INPUT("read the text from FILE (-: standard input, the default)"),
    SPECIAL,
    FLAG("bos", "begin with the BOS token where the model wants one", .flag_only = true),
    FLAG("jsonl", "each input line is a JSON string, each output line its array of ids"),
    FLAG("pieces", "one line a token: its id and its text"),
    PRE,
};
static const struct cli_example tokenize_examples[] = {
    { "zerope tokenize model.gguf -p 'Hello, world!'", "ids, separated by blanks" },
    { "zerope tokenize model.gguf --jsonl <texts.jsonl >ids.jsonl", "many texts at once" },
};

static const struct cli_option detokenize_options[] = {
    MODEL,
    PROMPT("the ids, separated by blanks or commas, or a JSON array"),
    INPUT("read the ids from FILE (-: standard input, the default)"),
    FLAG("special", "show special tokens"),
    FLAG("jsonl", "each input line is a JSON array of ids, each output line the text as a JSON "
                  "string"),
    PRE,
};
static const struct cli_example detokenize_examples[] = {
    { "zerope detokenize model.gguf -p '19556 28 905 17'", "text of four ids" },
    { "zerope tokenize model.gguf -f a.txt | zerope detokenize model.gguf", "there and back" },
};

static const struct cli_option template_options[] = {
    MODEL,
    PATH("input", "-f", "FILE.json",
         "{\"messages\": [...], \"tools\": ...} or a bare array of messages (-: standard input)",
         .word = 2, .required = true, .flag_only = true),
    TEMPLATE,
    TEXT("bos", "TEXT", "text of bos_token instead of the model's", .flag_only = true),
    TEXT("eos", "TEXT", "text of eos_token instead of the model's", .flag_only = true),
    FLAG("no-generation-prompt", "do not add the head of the answer at the end"),
};
static const struct cli_example template_examples[] = {
    { "zerope template model.gguf chat.json", "the prompt the model will see" },
    { "echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | zerope template model.gguf -",
      "from a pipe" },
};

static const struct cli_option logits_options[] = {
    MODEL,
    PROMPT("the text"),
    INPUT("read the text from FILE (-: standard input, the default)"),
    TEXT("ids", "IDS", "use these token ids instead of a text; nothing is added to them",
         .flag_only = true),
    SPECIAL,
    FLAG("no-bos", "do not begin with BOS even if the model wants one"),
    COUNT("top", "K", 1, 1e7, "10", "how many of the most likely tokens to list"),
    PREDICT("0", "length of the greedy continuation"),
    CTX(NULL, "context length; default: as long as needed"),
    ENGINE,
    PRE,
};
static const struct cli_example logits_examples[] = {
    { "zerope logits model.gguf -p 'The capital of France is'", "the ten most likely next tokens" },
    { "zerope logits model.gguf -f text.txt --exact -n 32 --json",
      "f32 path, with 32 greedy tokens" },
};

#include "embed_options.inc"

static const struct cli_option run_options[] = {
    MODEL,
    PROMPT("the prompt"),
    INPUT("read the prompt from FILE (-: standard input, the default)"),
    PREDICT("-1", "tokens to generate; -1: until the context is full"),
    CTX(NULL, "context length; default: 4096, more for a long prompt, at most the model's"),
    FLAG("chat", "put the prompt into the chat template as a user message"),
    TEXT("system", "TEXT", "with --chat: the system message"),
    SAMPLING,
    GRAMMAR,
    DRAFT,
    FLAG("ignore-eos", "go on after an end token"),
    PARALLEL("each line of the input is a prompt of its own; N of them are computed at a time, "
             "as far as there is memory for their keys and values"),
    KV_MEMORY,
    PATH("prompt-cache", NULL, "FILE",
         "begin with what FILE holds of the prompt, and save the computed prompt there",
         .writes = true),
    FLAG("prompt-cache-ro", "with --prompt-cache: leave FILE as it is"),
    SPECIAL,
    MODE,
    ENGINE,
    TEMPLATE,
    PRE,
    OFFLINE,
};
static const struct cli_example run_examples[] = {
    { "zerope run model.gguf -p 'Once upon a time' -n 64", "raw completion" },
    { "zerope run model.gguf --chat -p 'Name three rivers.' --temp 0.7",
      "one answer of a chat model" },
    { "zerope run model.gguf -f report.txt -n 200 --json >out.json",
      "text, ids and timings as JSON" },
    { "zerope run model.gguf --chat -f questions.txt -np 16 --json >answers.json",
      "an answer to each line" },
    { "zerope run model.gguf --chat -p 'Bob is 7.' -j '{\"properties\": {\"age\": {\"type\": "
      "\"integer\"}}, \"required\": [\"age\"]}'",
      "an answer of a given form" },
    { "zerope run model.gguf -f book.txt -c 32k -ctk q8 --prompt-cache book.kv",
      "the second time, the book is read in a moment" },
};

#include "chat_options.inc"
#include "serve_options.inc"

static const struct cli_option ppl_options[] = {
    MODEL,
    DOCUMENTS("text file, or folder of documents"),
    CTX("1024", "length of a window"),
    PATH("base", NULL, "MODEL",
         "also compare with this model: KL(base || model) and top-1 agreement", .flag_only = true),
    COUNT("windows", "N", 1, 1e9, NULL, "use at most N windows; default: all", .flag_only = true),
    FLAG("contiguous", "one text: windows follow each other across documents, as "
                       "llama-perplexity does"),
    MODE,
    ENGINE,
    PRE,
};
static const struct cli_example ppl_examples[] = {
    { "zerope ppl model.gguf -f text.txt -c 1024", "perplexity, by position" },
    { "zerope ppl small.gguf --base model.gguf -f text.txt --json", "what a change costs" },
};

static const struct cli_option bench_options[] = {
    MODEL,
    COUNT("n-prompt", "N", 0, MOST_TOKENS, "512", "tokens of a prefill; 0: no prefill",
          .abbr = "-p"),
    COUNT("n-gen", "N", 0, MOST_TOKENS, "64", "tokens to decode, of each sequence; 0: no decode",
          .abbr = "-n"),
    LIST("depth", "LIST",
         "tokens that stand before the measured ones: numbers in ascending order, 0,4k,32k",
         .abbr = "-d", .preset = "0"),
    LIST("batch", "LIST",
         "sequences to decode at a time: numbers, 1,4,16; they share what stands before",
         .abbr = "-npl", .preset = "1"),
    FLAG("separate", "sequences do not share what stands before"),
    COUNT("repetitions", "N", 1, 10000, "5", "measured runs of each test, after one to warm up",
          .abbr = "-r"),
    CTX(NULL, "context length; default: as long as the tests need"),
    CHOICE("position-kind", "KIND", "own|rope|none|alibi|t5|mlp", "own",
           "own, or all layers as if they were of this kind, with made-up parameters: what the "
           "kind costs"),
    FLAG("copy-fill", "reach depths with copies of one computed tile of keys and values: soon "
                      "done, and the speed at the depth is the same"),
    PATH("plot", "-o", "FILE", "write a picture of speed against depth (.svg or .png)",
         .writes = true, .picture = true),
    MODE,
    ENGINE,
    PRE,
};
static const struct cli_example bench_examples[] = {
    { "zerope bench model.gguf", "prefill of 512 tokens, decode of 64" },
    { "zerope bench model.gguf -d 0,4k,32k --batch 1,16 -o speed.svg",
      "also deep in a context, and of 16 sequences at a time" },
};

static const struct cli_option scan_options[] = {
    MODEL,
    DOCUMENTS("text file, or folder of documents (a part of it is held out)"),
    OUTPUT("SCAN.json", "where the scan is written"),
    CTX("2048", "length the plan is to serve"),
    COUNT("windows", "N", ZP_SCAN_WINDOWS_MIN, 4096, "8",
          "windows for the local errors, at least 2", .flag_only = true),
    COUNT("windows-kl", "N", 1, 4, "2",
          "windows for the exact one-at-a-time KL (at most 4, and no more than --windows)"),
    FLAG("fisher", "also measure each gate's Fisher information, for --rank: two forward and two "
                   "backward passes for each of --windows"),
    LOCAL,
    HEATMAP("write a picture of the gates' importance (.svg or .png)"),
    WINDOW_SEED,
};
static const struct cli_example scan_examples[] = {
    { "zerope scan model.gguf -f docs/ -c 1024 -o scan.json --heatmap scan.svg",
      "importance of each gate" },
};

static const struct cli_option plan_options[] = {
    PATH("scan", NULL, "SCAN.json", "the scan the plan is made from", .word = 1, .required = true,
         .flag_only = true),
    BUDGET("mean KL the plan may cost, as an upper bound", .required = true),
    OUTPUT("PLAN.json", "where the plan is written"),
    PLAN_SHAPE,
    LOCAL,
    PATH("model", "-m", "MODEL", "the model; default: the path in the scan, from where scan ran",
         .flag_only = true),
    PATH("file", "-f", "TEXT", "the text; default: the path in the scan, from where scan ran",
         .flag_only = true),
    HEATMAP("write a picture of the gates that close (.svg or .png)"),
};
static const struct cli_example plan_examples[] = {
    { "zerope plan scan.json --budget-kl 0.02 -o plan.json",
      "which gates close, and in which order" },
};

static const struct cli_option evaporate_options[] = {
    MODEL,
    DOCUMENTS("text file, or folder of documents (a part of it is held out for the check)"),
    OUTPUT("OUT.gguf", "where the new model is written"),
    BUDGET("mean KL the result may cost, measured on held-out text (or give --close-all; default "
           "with --plan: the plan's)",
           .required = false),
    CTX("2048", "length the result is to serve; the promise holds up to it"),
    PLAN_SHAPE,
    LOCAL,
    PATH("scan", NULL, "SCAN.json", "reuse this scan", .flag_only = true),
    PATH("plan", NULL, "PLAN.json", "reuse this plan: nothing is measured to choose",
         .flag_only = true),
    PATH("base", NULL, "ORIGINAL",
         "with a model that was evaporated before: what it was made from. The budget is against it",
         .flag_only = true),
    PATH("save-scan", NULL, "FILE", "keep the scan here", .writes = true),
    PATH("save-plan", NULL, "FILE", "keep the plan here", .writes = true),
    COUNT("windows", "N", 1, 4096, "32", "held-out windows for the measured check",
          .flag_only = true),
    FLAG("close-all", "close everything, with --plan what it closes, whatever it costs (for "
                      "training later); the file says so"),
    WINDOW_SEED,
};
static const struct cli_example evaporate_examples[] = {
    { "zerope evaporate model.gguf -f docs/ --budget-kl 0.02 -c 1024 -o new.gguf",
      "close what fits the budget at 1024 tokens" },
    { "zerope evaporate model.gguf -f docs/ --budget-kl 0.02 --uniform -o new.gguf",
      "so that llama.cpp can run an export" },
};

static const struct cli_option verify_options[] = {
    MODEL,
    PATH("base", NULL, "ORIGINAL", "the model it was made from", .required = true,
         .flag_only = true),
    DOCUMENTS("text file, or folder of documents"),
    CTX(NULL, "length to verify; default: the length the file claims"),
    BUDGET("limit of the mean KL; default: the file's own", .required = false),
    FLAG("quick", "fewer windows; the result says so"),
    PATH("report", NULL, "OUT.html", "write the evidence as one HTML page", .writes = true),
    FLAG("no-write", "do not write the evidence into MODEL"),
};
static const struct cli_example verify_examples[] = {
    { "zerope verify new.gguf --base model.gguf -f docs/ --report verify.html",
      "every check, with its limit" },
};

static const struct cli_option export_options[] = {
    MODEL,
    CHOICE("to", "FORM", "hf|stock-gguf|gguf", NULL,
           "hf: a folder for transformers; stock-gguf: a file for llama.cpp; gguf: our "
           "own",
           .required = true),
    OUTPUT("OUT", "file or folder to write"),
};
static const struct cli_example export_examples[] = {
    { "zerope export new.gguf --to stock-gguf -o stock.gguf", "for llama.cpp, unchanged" },
};

static const struct cli_option quantize_options[] = {
    PATH("in", NULL, "IN", "model to read", .word = 1, .required = true, .flag_only = true),
    PATH("out", NULL, "OUT", "GGUF file to write", .word = 2, .required = true, .flag_only = true,
         .writes = true),
    CHOICE("type", "T", "F32|F16|BF16|Q8_0|Q4_0|Q4_1|Q5_0|Q5_1|Q4_K|Q5_K|Q6_K", NULL,
           "type of the weight matrices", .required = true),
};
static const struct cli_example quantize_examples[] = {
    { "zerope quantize model.gguf small.gguf --type Q4_K", "4-bit blocks of 256 weights" },
};

static const struct cli_option corpus_options[] = {
    LIST("file", "TEXT",
         "a text file, or a folder of them (each is a document); may be given several times",
         .abbr = "-f", .required = true),
    OUTPUT("OUT", "where the documents are written as tokens"),
    PATH("tokenizer", NULL, "MODEL", "use the tokenizer of a model, or a tokenizer.gguf"),
    COUNT("train-vocab", "N", 264, 1048576, NULL,
          "make a tokenizer of N tokens from the training documents: tokenizer.gguf beside OUT"),
    REAL("held", "SHARE", 0.0001, 0.9, "0.05", "share of the documents that are held out"),
    FLAG("no-held", "hold nothing out"),
    TEXT("pre", "NAME",
         "pre-tokeniser: of a new tokenizer (default smollm), or instead of the file's"),
};
static const struct cli_example corpus_examples[] = {
    { "zerope corpus -f texts/ --train-vocab 2048 -o tiny.tokens", "text and tokenizer for a tiny "
                                                                   "model" },
    { "zerope corpus -f texts/ -f manual.html --tokenizer model.gguf -o model.tokens",
      "for further training of a model" },
};

#define TRAINING                                                                          \
    PATH("corpus", NULL, "TOKENS", "token documents made by corpus", .required = true),   \
    COUNT("tokens", "N", 1, 9e15, NULL, "budget; rounded up to whole batches",            \
          .required = true),                                                              \
    COUNT("ctx-size", "N", 32, 65536, NULL,                                               \
          "tokens of a row; default: the model's context, at most 512", .abbr = "-c",     \
          .flag_only = true),                                                             \
    COUNT("batch-rows", "N", 1, 65536, "32", "rows of a step, over all processes"),       \
    COUNT("micro-batches", "N", 1, 65536, "1",                                            \
          "compute a step's batch in N parts: less memory; as many as processes at least"), \
    REAL("learning-rate", "X", 1e-9, 10, "0.001", "highest learning rate"),               \
    CHOICE("schedule", "S", "wsd|cosine|constant", "wsd", "course of the learning rate"), \
    REAL("warmup", "SHARE", 0, 1, "0.05", "share of the steps in which the rate rises"),  \
    REAL("decay", "SHARE", 0, 1, "0.2", "share of the steps in which it falls (wsd)"),    \
    REAL("floor", "SHARE", 0, 1, "0.05", "share of the rate that is left at the end"),    \
    REAL("weight-decay", "X", 0, 10, "0.1", "of matrices, decoupled; 0: none"),           \
    REAL("clip", "X", 0, 1e9, "1", "most of the gradient's norm; 0: no limit"),           \
    REAL("task-share", "SHARE", 0, 1, "0",                                                \
         "share of rows that are made-up tasks: copying, looking up, order, counting"),   \
    PATH("original", NULL, "MODEL", "stay close to this model: adds KL(original || model)"), \
    REAL("ce-weight", "X", 0, 1000, "1", "weight of the text's cross entropy"),           \
    REAL("kl-weight", "X", 0, 1000, "1", "weight of the divergence from the original"),   \
    CHOICE("learn", "WHAT", "all|qk|qko|gate|structure|parts", "all",                     \
           "what learns: all; what makes queries and keys; and what joins the heads; position " \
           "gates; the structure head; both of these"),                                   \
    FLAG("position-gate", "add gates that scale queries by their position, and train them"), \
    FLAG("structure-head",                                                                \
         "add detectors of a document's structure that heads can listen to, and train them"), \
    TEXT("head-size", "SIZE",                                                             \
         "with --structure-head: layers that listen: all, a number, or auto, by the processor"), \
    REAL("tag-weight", "X", 0, 1000, "0.1",                                               \
         "weight of the detectors' loss against the structure of the documents"),         \
    REAL("tag-dropout", "SHARE", 0, 0.9, "0.3",                                           \
         "share of the detectors that are not heard, drawn anew for each token and step"), \
    FLAG("match", "instead of the loss: each layer's attention is to match the original's"), \
    COUNT("lora-rank", "N", 0, 65536, "0",                                                \
          "nothing but low-rank adapters learns: matrices become W + alpha / N * B A, and are " \
          "written so; 0: none, or the rank of --adapter-in"),                            \
    REAL("lora-alpha", "X", 1e-6, 1e9, NULL,                                               \
         "alpha of the adapters; default: the rank, or that of --adapter-in"),            \
    TEXT("lora-targets", "LIST", "matrices with adapters, of q,k,v,o,gate,up,down; default: " \
         "q,v, or those of --adapter-in"),                                                \
    PATH("adapter-in", NULL, "FOLDER", "begin with the adapters of this folder (PEFT)"),  \
    PATH("adapter-out", NULL, "FOLDER", "write the adapters there, too, as PEFT has them", \
         .writes = true),                                                                 \
    INT("seed", "N", 1, 9e18, "1", "seed of all draws", .flag_only = true),               \
    FLAG("bf16", "products in bfloat16 where the processor can"),                         \
    FLAG("recompute", "keep less between the passes: less memory, a third more work"),    \
    COUNT("memory", "MIB", 1, 1 << 30, NULL,                                              \
          "refuse to begin where the run would hold more, in MiB; default: what the machine " \
          "has left"),                                                                    \
    FLAG("memory-plan", "tell the memory that the run would hold, and do nothing else",   \
         .flag_only = true),                                                              \
    CHOICE("type", "T", "F32|F16|BF16|Q8_0|Q4_0|Q4_1|Q5_0|Q5_1|Q4_K|Q5_K|Q6_K", "F32",    \
           "type of the matrices in the written file", .flag_only = true),                \
    PATH("run-dir", NULL, "FOLDER", "keep run.json, numbers by step and checkpoints there"),  \
    FLAG("resume", "go on from the last checkpoint of --run-dir"),                            \
    COUNT("save-every", "STEPS", 1, 1e9, "200", "a checkpoint every so many steps"),      \
    COUNT("eval-every", "STEPS", 1, 1e9, "100",                                           \
          "held-out text is measured every so many steps"),                               \
    COUNT("eval-windows", "N", 1, 1e6, "32", "held-out windows of a measurement"),        \
    CHOICE("processes", "KIND", "single|mpi", "single",                                   \
           "mpi: this is one of several processes that mpirun started")

static const struct cli_option train_options[] = {
    PATH("model", "-m", "MODEL", "model to go on with: a GGUF file or a Hugging Face folder",
         .word = 1),
    PATH("from-scratch", NULL, "CONFIG", "begin with a new model of this description (JSON)"),
    PATH("tokenizer", NULL, "FILE",
         "with --from-scratch: GGUF file with a tokenizer; default: tokenizer.gguf beside the "
         "corpus", .flag_only = true),
    OUTPUT("OUT", "GGUF file to write"),
    REAL("rotation-dropout", "P", 0, 0.99, "0",
         "leave each pair unrotated with this probability, drawn anew each step"),
    TRAINING,
};
static const struct cli_option anneal_options[] = {
    MODEL,
    OUTPUT("OUT.gguf", "where the new model is written"),
    CHOICE("policy", "P", "abrupt|staged|dropout|l1|l0", "abrupt",
           "how gates close: all at once; group by group; one after the other, drawn at random on "
           "the way; learned under a growing penalty"),
    PATH("plan", NULL, "PLAN.json",
         "close what this plan closes, in its order; its local heads are local from the first step",
         .flag_only = true),
    COUNT("begin", "STEP", 0, 1e9, "0", "first step at which gates may close"),
    COUNT("pic-steps", "N", 0, 1e9, "0",
          "bridge the loss by an MLP of the token's index on each layer, which learns in N steps "
          "before gates begin to close and fades out in N behind"),
    COUNT("stages", "N", 1, 65536, "8", "staged: so many groups over the ramp"),
    REAL("share", "SHARE", 0.001, 1, "1", "share of the open gates that close"),
    REAL("ramp", "SHARE", 0.001, 1, "0.6", "share of the steps until the last has closed"),
    REAL("overlap", "SHARE", 0.001, 1, "0.5", "dropout: share of the ramp that each gate takes"),
    REAL("lambda", "X", 1e-9, 1e9, NULL,
         "l1, l0: highest penalty, in units of the model's own mean gate gradient"),
    REAL("eps-first", "X", 1e-12, 1e9, NULL,
         "l1, l0: a head of the first half of the layers closes when its mean gate gradient stays "
         "below this, in the same units"),
    REAL("eps-rest", "X", 1e-12, 1e9, NULL, "l1, l0: the same for the other layers"),
    COUNT("t-cool", "STEPS", 1, 1e6, NULL, "l1, l0: for so many steps in a row"),
    REAL("tolerance", "NATS", 1e-6, 100, NULL,
         "l1, l0: what closed opens again if the held-out loss rises by more; default 0.05"),
    TRAINING,
};
static const struct cli_example anneal_examples[] = {
    { "zerope evaporate base.gguf --train --corpus t.tokens --tokens 2m --original base.gguf "
      "-o free.gguf",
      "positions dropped at once, then settled close to the original" },
};
static const struct cli_example train_examples[] = {
    { "zerope train --from-scratch recipes/tiny-rope.json --corpus tiny.tokens --tokens 16m "
      "-o tiny.gguf",
      "a small model from nothing" },
    { "zerope train tiny.gguf --corpus tiny.tokens --tokens 2m --run-dir runs/tiny -o trained.gguf",
      "two million tokens, with a record" },
};

static const struct cli_option scale_options[] = {
    MODEL,
    PATH("corpus", NULL, "TOKENS", "token documents made by corpus; held-out ones are used",
         .required = true),
    OUTPUT("OUT.gguf", "where the model with the scale is written"),
    COUNT("from", "N", 1, 1048576, NULL,
          "visible positions from which on the scale grows; default: the trained length"),
    COUNT("length", "N", 2, MOST_TOKENS, NULL,
          "length of the windows; default: 8 times that, as far as documents go"),
    COUNT("windows", "N", 2, 1e6, "16", "windows, half of them to fit on", .flag_only = true),
};
static const struct cli_example scale_examples[] = {
    { "zerope scale free.gguf --corpus t.tokens -o longer.gguf",
      "a position-free model beyond its trained length" },
};

static const struct cli_option report_options[] = {
    PATH("run", NULL, "RUN", "folder that train or anneal was given as --run-dir", .word = 1,
         .required = true, .flag_only = true),
    PATH("output", "-o", "FILE", "page or picture to write (.html, .svg or .png)", .writes = true),
};
static const struct cli_example report_examples[] = {
    { "zerope report RUN -o run.html", "while it trains, or afterwards" },
    { "zerope report RUN --json", "all numbers by step" },
};

static const struct cli_option probe_options[] = {
    MODEL,
    PATH("corpus", NULL, "FILE",
         "token documents that corpus has made with the model's tokenizer; all text comes from "
         "those it holds out", .required = true),
    PATH("against", NULL, "BASE",
         "also compare with this model: KL(base || model), top-1 agreement, and differences"),
    LIST("lengths", "LIST",
         "lengths in ascending order, 256,512,2k; default: the trained length times 1, 2, 4 and 8, "
         "as far as the held-out text goes"),
    COUNT("windows", "N", 0, 1e6, "32", "windows of each length, at most; 0: none",
          .flag_only = true),
    COUNT("cases", "N", 0, 1e6, "200", "questions of each kind and length; 0: none"),
    LIST("kinds", "LIST",
         "kinds of questions: copy, induction, passkey, multikey, order, count, brackets; default: "
         "all"),
    TEXT("rope-scaling", "HOW",
         "stretch MODEL's rotation beyond the trained length, S times as far: ntk:S, linear:S or "
         "yarn:S; BASE stays as it is"),
    INT("seed", "N", 0, 9e18, "1", "seed of the questions and of the intervals (0: the default)",
        .flag_only = true),
    FLAG("structure",
         "also tell tokens that begin a block, are marks of its structure, and of each type of "
         "mark, and what the detectors of a structure head find"),
    FLAG("fast", "compute on the default path, as run does, instead of the exact one"),
    MODE,
    BATCH,
    LEVEL,
    PLACES,
    PRE,
};
static const struct cli_example probe_examples[] = {
    { "zerope probe arm.gguf --corpus texts.tokens --against base.gguf --json",
      "one arm of an experiment, beside what it was made from" },
    { "zerope probe base.gguf --corpus texts.tokens --rope-scaling yarn:4 --kinds passkey,copy",
      "the usual stretching, for comparison" },
};

static const struct cli_option doctor_options[] = {
    FLAG("quick", "no measurement longer than about a second"),
};
static const struct cli_example doctor_examples[] = {
    { "zerope doctor", "processor, memory bandwidth, kernels and their self-test" },
};

static const struct cli_option version_options[] = {
    FLAG("features", "compiler, libraries, kernel levels, optional parts"),
};
static const struct cli_example version_examples[] = {
    { "zerope version --features", "what this build can do" },
};

static const struct cli_option completion_options[] = {
    CHOICE("shell", "SHELL", "bash|zsh|fish", NULL, "which shell", .word = 1, .required = true,
           .flag_only = true),
};
static const struct cli_example completion_examples[] = {
    { "source <(zerope completion bash)", "in ~/.bashrc" },
    { "zerope completion fish >~/.config/fish/completions/zerope.fish", "for fish" },
};

static const struct cli_example config_examples[] = {
    { "zerope config print", "every option of every command, and where its value comes from" },
    { "zerope config print run --temp 0.7 --config zerope.json", "what this run would use" },
};

static const struct cli_option help_options[] = {
    TEXT("command", "COMMAND", "the command to explain", .word = 1, .flag_only = true),
    FLAG("man", "print the manual page (roff)", .flag_only = true),
    FLAG("markdown", "print docs/COMMANDS.md", .flag_only = true),
};
static const struct cli_example help_examples[] = {
    { "zerope help evaporate", "the same as zerope evaporate --help" },
    { "zerope help --man | man -l -", "the manual page" },
};

const struct cli_option cli_common_options[] = {
    FLAG("help", "show this help", .abbr = "-h", .flag_only = true),
    FLAG("json", "print one JSON document on standard output and nothing else there"),
    COUNT("threads", "N", 0, 256, "0",
          "threads to compute with, at most one a processor; 0: one a core",
          .abbr = "-t"),
    FLAG("quiet", "no progress, notes or timings on stderr", .abbr = "-q"),
    FLAG("verbose", "more notes on stderr", .abbr = "-v"),
    PATH("config", NULL, "FILE", "JSON file with option values"),
};
const size_t cli_n_common_options = CLI_COUNT(cli_common_options);

/* ---- the commands ------------------------------------------------------------------------ */
#define OPTIONS(x) .options = x##_options, .n_options = CLI_COUNT(x##_options)
#define EXAMPLES(x) .examples = x##_examples, .n_examples = CLI_COUNT(x##_examples)
#define COMMAND(x, ...) { .name = #x, EXAMPLES(x), .run = cmd_##x, .summary = __VA_ARGS__ }

const struct cli_command cli_commands[] = {
    COMMAND(inspect, "show what a model file is and which layers use positions", OPTIONS(inspect),
            .about = "Shows metadata, the position table (one row a layer: kind, open pairs), the "
                     "tokenizer, and the memory that run takes with the same -c, -np, -b, -ctk, "
                     "-t and --exact, to the byte.\n\n"
                     "header_sha256: hash of keys and tensor table, by which scans, plans and "
                     "evaporated files name a model. It is not that of the file: models that "
                     "differ in their weights alone share it.",
            .fields = "arch n_layer position[] memory{}"),
    COMMAND(tokenize, "turn text into token ids", OPTIONS(tokenize),
            .about = "Special tokens in the text are plain text unless --special is given. Invalid "
                     "UTF-8 is an error.",
            .fields = "ids"),
    COMMAND(detokenize, "turn token ids into text", OPTIONS(detokenize), .fields = "text"),
    COMMAND(template, "render the chat template", OPTIONS(template),
            .about = "Prints the text that the messages become. The keys of the input are handed "
                     "to the template as they are.",
            .fields = "text ids"),
    COMMAND(logits, "log-probabilities after a prompt, greedy continuation, NLL", OPTIONS(logits),
            .about = "Begins with BOS where the model wants one.",
            .fields = "n_tokens nll_mean top[{id,logprob}] greedy[]"),
    COMMAND(embed, "turn a text into a vector", OPTIONS(embed),
            .about = "The vector is made of the hidden states behind the last layer and the final "
                     "norm, and has length 1 (--raw: not scaled). Begins with BOS where the model "
                     "wants one. Prints d_model numbers, separated by blanks.",
            .fields = "n_tokens pooling embedding[]"),
    COMMAND(run, "generate text from a prompt", OPTIONS(run),
            .about =
                "Raw completion: the prompt is continued as it stands, after BOS where the "
                "model wants one; with --chat it is put into the model's chat template first. "
                "The text goes to standard output as it comes, timings to stderr.\n\n"
                "Without --temp the most likely token is taken each time, so the same command "
                "gives the same text.\n\n"
                "With --parallel each line of the input is a prompt of its own (lines that "
                "are empty or hold only blanks are passed over). Answers come in the order of "
                "the lines, each what the line alone gives; a beginning that a line before had "
                "too is not computed again, as far as it fills tiles of 64 tokens. "
                "--json: answers[{line,text,ids,reason,n_prompt,n_reused}].\n\n" GRAMMAR_RULE
                "reason: what ended an answer: end (the model or the grammar), stop (--stop), "
                "length, or interrupted (Ctrl-C). Ctrl-C or a failure ends all of --parallel: "
                "the answers that had ended are shown, also behind lines that had not, and the "
                "JSON document has interrupted (true) or error {code,exit,message} besides.\n\n"
                LENGTH_RULE,
            .fields = "text ids reason n_prompt timings{}"),
    COMMAND(chat, "talk to a chat model", OPTIONS(chat),
            .about =
                "Reads one message a line from standard input. /reset forgets the "
                "conversation, /exit or the end of the input ends; other lines that begin with "
                "/ are refused. A line that does not fit into the context any more is "
                "refused too, and the conversation goes on; when the input is no terminal, "
                "the exit code tells in the end. What earlier turns "
                "computed is reused.\n\n"
                "--server: the answers come from a server, by OpenAI's chat API in a stream, over "
                "HTTP or HTTPS with certificates checked; proxies are taken from http_proxy, "
                "https_proxy and no_proxy. Ctrl-C at a terminal ends the answer, and what came of "
                "it stays in the conversation. Sampling options are sent as they are given, the "
                "temperature always; the rest is the server's. What it refuses is told in its "
                "words, with exit code 3 for a request that it finds wrong, else 1.\n\n"
                GRAMMAR_RULE LENGTH_RULE,
            .fields = "messages[] timings{}"),
    COMMAND(serve, "serve a model by HTTP: OpenAI's and Anthropic's APIs", OPTIONS(serve),
            .about =
                "/v1/chat/completions, /v1/completions, /v1/messages, /v1/models and more: "
                "docs/SERVER.md. The address stands in the line `ready` on stderr. Many requests "
                "are computed together; each gets the answer that it would get alone.\n\n"
                "SIGTERM or SIGINT: no new requests, those under way are finished, exit code 0; a "
                "second one cuts them. SIGHUP: certificates and keys are read again."),
    COMMAND(ppl, "perplexity, and the distance to another model", OPTIONS(ppl),
            .about = "Cuts the text into windows and scores the second half of each. With --base "
                     "the JSON document also has kl_mean, kl_p99, kl_max and top1_agree.",
            .fields = "tokens nll ppl buckets[]"),
    COMMAND(bench, "speed at depths and batch sizes, beside the memory's limit", OPTIONS(bench),
            .about =
                "Computes tokens drawn from a fixed seed. At each depth: fill (once: the tokens "
                "from the depth before to this one), prefill, and decode for each number of "
                "sequences. Before and after every repetition the read bandwidth is measured "
                "with the same threads.\n\n"
                "tps_*: tokens a second of all sequences together. bytes_per_token: packed weights "
                "once a micro-batch, and the pages of keys and values in reach once a micro-batch "
                "and sequence. gbps: those bytes in the median time; peak_gbps: the measured "
                "bandwidth; fraction: median of the repetitions' shares of the bandwidth around "
                "them; spread: (longest - shortest) / median time. --json also has tokens, "
                "repetitions, tps_max, seconds_min, cpu_seconds_median (of all threads), "
                "weights_read_bytes and kv_read_bytes.\n\n"
                "Ctrl-C: the rows measured so far are shown (--json: with interrupted) and drawn.",
            .fields =
                "rows[{test,depth,batch,tps_median,tps_min,tps_max,gbps,peak_gbps,fraction}]"),
    COMMAND(scan, "measure how much each gate matters", OPTIONS(scan),
            .about = "A gate is one rotated pair of one KV head of one layer (of a distance bias: "
                     "one head of one layer). The scan holds at the length it was made for.",
            .fields = "gates[]"),
    COMMAND(plan, "choose which gates close within a budget", OPTIONS(plan), .about = ONE_SHAPE,
            .fields = "closed total order[]"),
    COMMAND(
        evaporate, "take positions out of a model, within a promised budget", OPTIONS(evaporate),
        .about = "Scans, plans, closes and measures on held-out text, without training. The "
                 "95 % upper bound of the result's KL on held-out windows is within the budget, at "
                 "the length given with -c. The result is written with architecture "
                 "zerope-<arch>, which other engines refuse instead of running it wrongly "
                 "(see export).\n\n" ONE_SHAPE,
        .fields = "ctx budget_kl closed total kl_mean kl_hi kl_last200 ppl_before ppl_after "
                  "heads_none heads_local layers_none kv_bytes_per_token file"),
    COMMAND(verify, "check the result against its original", OPTIONS(verify),
            .about = "Runs every check against the original and writes the evidence into the model "
                     "file. Exit code 5 when a check fails.",
            .fields = "checks[{name,value,limit,status}] status"),
    COMMAND(export, "write files that other engines run unchanged", OPTIONS(export),
            .fields = "files[] expected_engines[]"),
    COMMAND(quantize, "change the type of the weights", OPTIONS(quantize), .fields = "types{}"),
    COMMAND(corpus, "turn text files into token documents for training", OPTIONS(corpus),
            .about =
                "Files ending in .html, .htm or .xhtml lose their tags; all others are text as it "
                "stands, in UTF-8. Names that begin with a point are passed over, and a text that "
                "stands there twice counts once.\n\n"
                "A document is held out or not by a hash of its text, wholly, and stays so when "
                "others come or go; at least one is on either side. A new tokenizer has not seen "
                "what is held out. The file names its tokenizer by a hash: a model with another "
                "one refuses it.",
            .fields = "documents held_documents tokens held_share token_length n_vocab file"),
    COMMAND(train, "train a model on token documents", OPTIONS(train),
            .about = "All parameters learn by AdamW, in float32; rows are filled with documents "
                     "that do not see each other. A run with --run-dir can be stopped and gone on "
                     "with: the result has the same bits, and so it has for any number of threads "
                     "and processes.\n\n"
                     "A loss that is not finite skips the step; three in a row go back to the last "
                     "checkpoint and leave those batches out.\n\n"
                     "--lora-rank or --adapter-in: adapters learn and nothing else, so that "
                     "gradients, optimiser and checkpoints are as small as they are. The weights "
                     "stay as the file has them, quantised or not, and are widened a matrix at a "
                     "time (QLoRA).\n\n"
                     "The memory of a run is known before it is taken: --memory-plan tells it, "
                     "and the report has it beside what was counted.\n\n"
                     "--position-gate and --structure-head add small parts that change no bit "
                     "until they have learned something; --learn gate, structure or parts: nothing "
                     "else learns. Detectors learn from the Markdown and reStructuredText of the "
                     "corpus.",
            .fields = "file steps tokens loss held_before held tokens_per_second"),
    COMMAND(anneal, "take positions out by training (also: evaporate --train)", OPTIONS(anneal),
            .about = "Gates close under a policy while the model learns; what has closed is absent "
                     "from the written file, whose architecture is zerope-<arch>. Everything that "
                     "is said of train holds here: runs, going on, processes. With --original the "
                     "model is kept close to the one it was.",
            .fields = "file policy closed total held_before held tokens_per_second"),
    COMMAND(scale, "fit the logit scale of a model beyond its trained length", OPTIONS(scale),
            .about = "The logits of a query that sees n positions are multiplied by "
                     "1 + c ln(max(1, n / len)); c is fitted on every second held-out window and "
                     "told by the others, by bucket of positions. Keys stay valid. c is 0 where no "
                     "scale is better than none.",
            .fields = "file c scale_len length windows fitted[] held[{from,to,nll_before,nll}]"),
    COMMAND(report, "show what a training run did, also while it runs", OPTIONS(report),
            .about = "Reads the folder of a run; the training is not disturbed. Without -o: where "
                     "it stands, in tables. The picture has curves of loss, cross entropy, KL "
                     "(each step faint, a running mean on top, held-out text beside), learning "
                     "rate, norm of the gradient and closed gates, and a map of the gates closed "
                     "by layer and step. The page also has the command, its options, the last "
                     "numbers and the events by layer; it needs no network and no scripts.\n\n"
                     "event: gate closed, gate opened (again), bias closed, bias opened. A number "
                     "that was not finite is null.",
            .fields = "folder command last_step last[{name,step,value}] by_layer[] "
                      "events[{event,layer,step,count}] series[{name,steps,values}]"),
    COMMAND(
        probe, "measure models of an experiment beyond the trained length", OPTIONS(probe),
        .about =
            "Windows of held-out text: NLL by position, at each length and in buckets from one "
            "length to the next. A window begins with the corpus's separator, as rows of training "
            "do. Windows lie inside documents as far as there are enough that are long enough; "
            "others are short documents joined with separators (joined: how many are). Intervals "
            "are over documents.\n\n"
            "Made-up questions: copy, induction, passkey and multikey at each length, also by the "
            "distance from the answer to what it repeats; order, count and brackets at the first "
            "length they fit. A case is right where every token of its answer is the most likely "
            "one behind the true tokens before it (teacher forcing); token_accuracy is the share "
            "of the answers' tokens. The same cases are asked of every model with the corpus's "
            "tokenizer. A kind that is too long for a length has 0 cases there.\n\n"
            "With --against, on the same windows and cases: mean KL and top-1 agreement, and the "
            "differences of NLL and accuracy, model minus base, in pairs.\n\n"
            "All intervals are 95 % (x_lo, x_hi): of accuracies by Wilson's formula, of their "
            "differences by Agresti and Min's, of all else by bootstrap. The result depends "
            "neither on --threads nor on --batch-size.",
        .fields = "model corpus lengths[{length,windows,joined,documents,nll}] buckets[{length,"
                  "from,to,nll}] probes[{kind,length,cases,accuracy,token_accuracy}] distances[]"),
    COMMAND(doctor, "check this machine", OPTIONS(doctor),
            .fields = "cpu kernels memory self_test pack_cache"),
    COMMAND(version, "version and features", OPTIONS(version), .fields = "version"),
    COMMAND(completion, "print the completions for a shell", OPTIONS(completion),
            .fields = "shell script"),
    COMMAND(config, "show each option's value and where it comes from", .raw = true,
            .about = "A value is taken from the first source that has one: flag, environment "
                     "(ZEROPE_CTX_SIZE for --ctx-size), config file, default.",
            .fields = "options[{command,option,value,origin}]"),
    COMMAND(help, "explain a command", OPTIONS(help), .fields = "commands[]"),
};
const size_t cli_n_commands = CLI_COUNT(cli_commands);

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
    }
    return NULL;
}

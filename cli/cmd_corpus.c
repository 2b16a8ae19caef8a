/* cmd_corpus.c: corpus: text files into token documents for training. */
#include "cli.h"


zp_status cmd_corpus(struct cli *c)
{
    char *json = NULL;
    const struct cli_value *files = cli_value(c, "file");
    zp_corpus_options options = {
        .tokenizer = cli_text(c, "tokenizer"),
        .train_vocab = cli_u32(c, "train-vocab"),
        .pre = cli_text(c, "pre"),
        .held_share = cli_real(c, "held"),
        .no_held = cli_flag(c, "no-held"),
    };
    if (options.tokenizer == NULL && options.train_vocab == 0)
        return cli_usage(c, "no tokenizer is named: give a model's with --tokenizer MODEL, or have "
                            "one made with --train-vocab N");
    if (options.tokenizer != NULL && options.train_vocab != 0)
        return cli_usage(c, "--tokenizer takes a tokenizer, --train-vocab makes one: leave one "
                            "out");
    if (options.no_held && cli_given(c, "held"))
        return cli_usage(c, "--no-held holds nothing out; leave --held out");
    if (options.no_held)
        options.held_share = 0;
    CLI_TRY(cli_check_outputs(c, NULL));
    options.progress = cli_progress(c);
    CLI_TRY(zp_corpus_make((const char *const *)files->texts, files->n, cli_text(c, "output"),
                           &options, &json, &c->err));
    progress_clear();
    return cli_show(c, json);
}

/* cmd_scale.c: scale: the logit scale of a model beyond its trained length. */
#include "cli.h"

zp_status cmd_scale(struct cli *c)
{
    char *json = NULL;
    CLI_TRY(cli_check_outputs(c, NULL));
    zp_scale_options o = {
        .from = cli_u32(c, "from"),
        .length = cli_u32(c, "length"),
        .n_windows = cli_u32(c, "windows"),
        .n_threads = cli_u32(c, "threads"),
        .progress = cli_progress(c),
    };
    zp_status st = zp_scale_fit(cli_text(c, "model"), cli_text(c, "corpus"),
                                cli_text(c, "output"), &o, &json, &c->err);
    progress_clear();
    return st != ZP_OK ? st : cli_show(c, json);
}

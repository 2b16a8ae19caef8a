/* cli_lists.c: lists in option values, separated by commas; an option that is given several times
 * goes on with its list. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Calls fn with each part of each text of the option, cut out. */
static zp_status each_part(struct cli *c, const char *name,
                           zp_status (*fn)(struct cli *c, char *part, void *arg), void *arg)
{
    const struct cli_value *v = cli_value(c, name);
    zp_status st = ZP_OK;
    for (size_t i = 0; i < v->n && st == ZP_OK; i++) {
        char *text = cli_strdup(v->texts[i]);
        for (char *part = text, *next; part != NULL && st == ZP_OK; part = next) {
            next = strchr(part, ',');
            if (next != NULL)
                *next++ = '\0';
            st = fn(c, part, arg);
        }
        free(text);
    }
    return st;
}

struct reading {
    struct cli_option number;
    struct cli_numbers *out;
};

static zp_status add_number(struct cli *c, char *part, void *arg)
{
    struct reading *r = arg;
    char source[32];
    struct cli_value one = { .texts = &part, .n = 1 };
    snprintf(source, sizeof source, "--%s", r->number.name);
    CLI_TRY(cli_check_value(c, &r->number, &one, source));
    r->out->at = cli_resize(r->out->at, (r->out->n + 1) * sizeof *r->out->at);
    r->out->at[r->out->n++] = (uint32_t)one.integer;
    return ZP_OK;
}

zp_status cli_read_numbers(struct cli *c, const char *name, double min, double max,
                           struct cli_numbers *out)
{
    struct reading r = { { .name = name, .type = OPTION_COUNT, .min = min, .max = max }, out };
    return each_part(c, name, add_number, &r);
}

static zp_status add_name(struct cli *c, char *part, void *arg)
{
    struct cli_names *out = arg;
    (void)c;
    out->at = cli_resize(out->at, (out->n + 1) * sizeof *out->at);
    out->at[out->n++] = cli_strdup(part);
    return ZP_OK;
}

zp_status cli_read_names(struct cli *c, const char *name, struct cli_names *out)
{
    return each_part(c, name, add_name, out);
}

void cli_free_names(struct cli_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct cli_names){ 0 };
}

/* cli_parse.c: from words to checked option values.
 * Order of sources: words and flags, then environment, then config file, then the table's default;
 * the first source that has a value wins. Every value passes the same check, and its error names
 * the source. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void cli_init(struct cli *c, const struct cli_command *command, int argc, char **argv)
{
    *c = (struct cli){ .command = command, .argc = argc, .argv = argv };
    for (size_t i = 0; i < command->n_options; i++)
        c->options[c->n_options++] = &command->options[i];
    for (size_t i = 0; i < cli_n_common_options; i++)
        c->options[c->n_options++] = &cli_common_options[i];
}

void cli_free(struct cli *c)
{
    for (size_t i = 0; i < c->n_options; i++) {
        for (size_t k = 0; k < c->values[i].n; k++)
            free(c->values[i].texts[k]);
        free(c->values[i].texts);
    }
    json_decref(c->config);
    c->config = NULL;
    c->n_options = 0;
}

/* ---- checks ------------------------------------------------------------------------------ */
static zp_status check_range(struct cli *c, const struct cli_option *o, double x,
                             const char *source)
{
    if ((o->min != 0 || o->max != 0) && (x < o->min || x > o->max))
        return cli_usage(c, "%s: %.15g is out of range (%.15g to %.15g)", source, x, o->min,
                         o->max);
    return ZP_OK;
}

static zp_status check_flag(struct cli *c, struct cli_value *v, const char *text,
                            const char *source)
{
    static const char *const yes[] = { "1", "true", "yes", "on" };
    static const char *const no[] = { "0", "false", "no", "off" };
    for (size_t i = 0; i < CLI_COUNT(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            v->on = strcmp(text, yes[i]) == 0;
            return ZP_OK;
        }
    }
    return cli_usage(c, "%s: found '%s', expected true or false", source, text);
}

static zp_status check_integer(struct cli *c, const struct cli_option *o, struct cli_value *v,
                               const char *text, const char *source)
{
    char *end = NULL;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    int64_t unit = 1;
    if (o->type == OPTION_COUNT && end != text && (*end == 'k' || *end == 'K'))
        unit = 1024, end++;
    else if (o->type == OPTION_COUNT && end != text && (*end == 'm' || *end == 'M'))
        unit = 1024 * 1024, end++;
    if (end == text || *end != '\0' || text[0] == ' ')
        return cli_usage(c, "%s: found '%s', expected a whole number%s", source, text,
                         o->type == OPTION_COUNT ? " (4096, 4k)" : "");
    if (errno == ERANGE || x > INT64_MAX / unit || x < INT64_MIN / unit)
        return cli_usage(c, "%s: %s is too large", source, text);
    v->integer = x * unit;
    return check_range(c, o, (double)v->integer, source);
}

static zp_status check_real(struct cli *c, const struct cli_option *o, struct cli_value *v,
                            const char *text, const char *source)
{
    char *end = NULL;
    v->real = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v->real) || text[0] == ' ')
        return cli_usage(c, "%s: found '%s', expected a number", source, text);
    return check_range(c, o, v->real, source);
}

static zp_status check_choice(struct cli *c, const struct cli_option *o, const char *text,
                              const char *source)
{
    size_t n = strlen(text);
    for (const char *p = o->choices; p != NULL && n > 0; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, text, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return ZP_OK;
    }
    struct text list = { 0 };
    for (const char *p = o->choices; *p != '\0'; p++)
        *p == '|' ? text_append(&list, ", ", 2) : text_append(&list, p, 1);
    zp_status st = cli_usage(c, "%s: found '%s', expected one of: %s", source, text, list.data);
    text_free(&list);
    return st;
}

static zp_status check_file(struct cli *c, const struct cli_option *o, const char *text,
                            const char *source)
{
    size_t n = strlen(text);
    if (n == 0)
        return cli_usage(c, "%s: the file name is empty", source);
    if (o->picture && (n < 4 || (strcmp(text + n - 4, ".svg") && strcmp(text + n - 4, ".png"))))
        return cli_usage(c, "%s: found '%s'; a picture's name ends in .svg or .png", source, text);
    return ZP_OK;
}

zp_status cli_check_value(struct cli *c, const struct cli_option *o, struct cli_value *v,
                          const char *source)
{
    for (size_t i = 0; i < v->n; i++) {
        const char *text = v->texts[i];
        switch (o->type) {
        case OPTION_FLAG: CLI_TRY(check_flag(c, v, text, source)); break;
        case OPTION_COUNT:
        case OPTION_INT: CLI_TRY(check_integer(c, o, v, text, source)); break;
        case OPTION_REAL: CLI_TRY(check_real(c, o, v, text, source)); break;
        case OPTION_CHOICE: CLI_TRY(check_choice(c, o, text, source)); break;
        case OPTION_FILE: CLI_TRY(check_file(c, o, text, source)); break;
        case OPTION_TEXT:
        case OPTION_LIST: break;
        }
    }
    return ZP_OK;
}

zp_status cli_set_value(struct cli *c, size_t index, const char *text, enum cli_origin origin)
{
    struct cli_value *v = &c->values[index];
    bool list = c->options[index]->type == OPTION_LIST;
    if (!list && v->n > 0) { /* the last one wins, as users of shell aliases expect */
        free(v->texts[0]);
        v->n = 0;
    }
    v->texts = cli_resize(v->texts, (v->n + 1) * sizeof *v->texts);
    v->texts[v->n++] = cli_strdup(text);
    v->origin = origin;
    return ZP_OK;
}

/* ---- near misses ------------------------------------------------------------------------- */
/* Edit distance with neighbouring swaps (optimal string alignment); words beyond 31 bytes count as
 * far. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), d[32][32];
    if (n > 31 || m > 31)
        return 99;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t x = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            x = d[i - 1][j] + 1 < x ? d[i - 1][j] + 1 : x;
            x = d[i][j - 1] + 1 < x ? d[i][j - 1] + 1 : x;
            bool swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            d[i][j] = swap && d[i - 2][j - 2] + 1 < x ? d[i - 2][j - 2] + 1 : x;
        }
    }
    return d[n][m];
}

const char *cli_near_miss(const char *word, const char *const *names, size_t n)
{
    size_t best = SIZE_MAX;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t far = edit_distance(word, names[i]);
        bool is_short = strlen(word) <= 4 || strlen(names[i]) <= 4;
        if (strlen(word) >= 3 && strncmp(word, names[i], strlen(word)) == 0)
            far = 1; /* an unfinished word */
        if (far < best && far <= (is_short ? 1 : 2))
            best = far, found = names[i];
    }
    return found;
}

/* ---- flags and words --------------------------------------------------------------------- */
static zp_status unknown_option(struct cli *c, const char *word)
{
    const char *names[CLI_OPTIONS_MAX];
    char name[64];
    snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
    for (size_t i = 0; i < c->n_options; i++) {
        names[i] = c->options[i]->name;
        if (strcmp(names[i], name) == 0)  /* -temp */
            return cli_usage(c, "unknown option %s; did you mean --%s?", word, name);
    }
    for (size_t i = 0; i < cli_n_commands; i++) {
        for (size_t k = 0; k < cli_commands[i].n_options; k++) {
            if (strcmp(cli_commands[i].options[k].name, name) == 0)
                return cli_usage(c, "unknown option %s: '%s' has none ('%s' has)", word,
                                 c->command->name, cli_commands[i].name);
        }
    }
    const char *near = cli_near_miss(name, names, c->n_options);
    if (near != NULL)
        return cli_usage(c, "unknown option %s; did you mean --%s?", word, near);
    return cli_usage(c, "unknown option %s", word);
}

/* The option a word names; *attached is the value within the word ("--temp=1", "-c4096") or NULL.
 */
static bool find_option(const struct cli *c, const char *word, size_t *index, const char **attached)
{
    *attached = NULL;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        for (size_t i = 0; i < c->n_options; i++) {
            const char *name = c->options[i]->name;
            if (strlen(name) == n && strncmp(name, word + 2, n) == 0) {
                *index = i;
                *attached = word[2 + n] == '=' ? word + 3 + n : NULL;
                return true;
            }
        }
        return false;
    }
    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i]->abbr != NULL && strcmp(c->options[i]->abbr, word) == 0)
            return *index = i, true;
    }
    for (size_t i = 0; i < c->n_options; i++) {
        const char *abbr = c->options[i]->abbr;
        bool number = c->options[i]->type == OPTION_COUNT || c->options[i]->type == OPTION_INT;
        if (abbr != NULL && number && strlen(abbr) == 2 && abbr[1] == word[1] && word[2] >= '0' &&
            word[2] <= '9') {
            *index = i;
            *attached = word + 2;
            return true;
        }
    }
    return false;
}

static zp_status take_option(struct cli *c, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *value = NULL;
    size_t i = 0;
    if (!find_option(c, word, &i, &value))
        return unknown_option(c, word);
    if (c->options[i]->type == OPTION_FLAG)
        return cli_set_value(c, i, value != NULL ? value : "true", ORIGIN_FLAG);
    if (value == NULL) {
        if (*at + 1 >= argc)
            return cli_usage(c, "%s: its value %s is missing", word, c->options[i]->arg);
        value = argv[++*at];
    }
    return cli_set_value(c, i, value, ORIGIN_FLAG);
}

/* Index of the option that the n-th plain word (1, 2, ...) stands for. */
static bool find_word_option(const struct cli *c, int n, size_t *index)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i]->word == n)
            return *index = i, true;
    }
    return false;
}

static zp_status too_many_words(struct cli *c, const char *word)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cli_option *o = c->options[i];
        if (o->word > 0 && c->values[i].origin == ORIGIN_FLAG && o->abbr != NULL)
            return cli_usage(c, "%s is given twice: as %s %s and as the word '%s'", o->arg, o->abbr,
                             c->values[i].texts[0], word);
    }
    return cli_usage(c, "unexpected word '%s'%s", word,
                     strchr(word, ' ') ? "" : "; texts go in quotes after -p, files after -f");
}

/* Plain words fill the word options that no flag has filled, in order. When there are fewer words
 * than places, places whose value comes from elsewhere (ZEROPE_MODEL) are passed over. */
static zp_status take_words(struct cli *c, char **words, size_t n)
{
    size_t places = 0, index = 0;
    for (int w = 1; find_word_option(c, w, &index); w++)
        places += c->values[index].origin == ORIGIN_NONE && c->options[index]->required;
    size_t used = 0;
    for (int w = 1; used < n && find_word_option(c, w, &index); w++) {
        if (c->values[index].origin != ORIGIN_NONE)
            continue;
        char env[80];
        cli_env_name(c->options[index], env, sizeof env);
        const char *outside = c->options[index]->flag_only ? NULL : getenv(env);
        if (n - used < places && outside != NULL && *outside != '\0') {
            places--;
            continue;
        }
        CLI_TRY(cli_set_value(c, index, words[used++], ORIGIN_WORD));
        places -= places > 0;
    }
    return used < n ? too_many_words(c, words[used]) : ZP_OK;
}

zp_status cli_parse_words(struct cli *c, int argc, char **argv)
{
    char **words = cli_alloc(((size_t)argc + 1) * sizeof *words);
    size_t n = 0;
    zp_status st = ZP_OK;
    bool only_words = false;
    for (int i = 0; i < argc && st == ZP_OK; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0)
            only_words = true;
        else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0')
            st = take_option(c, argc, argv, &i);
        else
            words[n++] = argv[i];
    }
    if (st == ZP_OK)
        st = take_words(c, words, n);
    free(words);
    return st;
}

/* ---- environment and defaults ------------------------------------------------------------ */
void cli_env_name(const struct cli_option *o, char *out, size_t size)
{
    snprintf(out, size, "ZEROPE_%s", o->name);
    for (char *p = out; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
}

static void apply_environment(struct cli *c)
{
    for (size_t i = 0; i < c->n_options; i++) {
        char name[80];
        cli_env_name(c->options[i], name, sizeof name);
        const char *text = getenv(name);
        if (c->values[i].origin == ORIGIN_NONE && !c->options[i]->flag_only && text != NULL &&
            *text)
            cli_set_value(c, i, text, ORIGIN_ENVIRONMENT);
    }
}

static void apply_defaults(struct cli *c)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cli_option *o = c->options[i];
        const char *preset = o->preset == NULL && o->type == OPTION_FLAG ? "false" : o->preset;
        if (c->values[i].origin == ORIGIN_NONE && preset != NULL)
            cli_set_value(c, i, preset, ORIGIN_DEFAULT);
    }
}

static zp_status check_values(struct cli *c)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cli_option *o = c->options[i];
        char env[80], source[160];
        cli_env_name(o, env, sizeof env);
        switch (c->values[i].origin) {
        case ORIGIN_ENVIRONMENT: snprintf(source, sizeof source, "%s (environment)", env); break;
        case ORIGIN_CONFIG: snprintf(source, sizeof source, "%s (config file)", o->name); break;
        case ORIGIN_WORD: snprintf(source, sizeof source, "%s", o->arg); break;
        default: snprintf(source, sizeof source, "--%s", o->name); break;
        }
        CLI_TRY(cli_check_value(c, o, &c->values[i], source));
    }
    return ZP_OK;
}

static zp_status check_required(struct cli *c)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cli_option *o = c->options[i];
        if (!o->required || c->values[i].origin != ORIGIN_NONE)
            continue;
        char env[80];
        cli_env_name(o, env, sizeof env);
        if (o->word > 0 && o->abbr != NULL)
            return cli_usage(c, "%s is missing: give it as a word, with %s or in %s", o->arg,
                             o->abbr, env);
        if (o->word > 0)
            return cli_usage(c, "%s is missing", o->arg);
        return cli_usage(c, "--%s %s is missing", o->name, o->arg);
    }
    return ZP_OK;
}

zp_status cli_parse(struct cli *c)
{
    if (!c->command->raw) {
        CLI_TRY(cli_parse_words(c, c->argc, c->argv));
        c->help = cli_given(c, "help");
        if (c->help)
            return ZP_OK;
    }
    apply_environment(c);
    CLI_TRY(cli_load_config(c));
    CLI_TRY(cli_apply_config(c));
    apply_defaults(c);
    CLI_TRY(check_values(c));
    c->json = cli_flag(c, "json");
    c->quiet = cli_flag(c, "quiet");
    c->verbose = cli_flag(c, "verbose");
    return c->command->raw ? ZP_OK : check_required(c);
}

/* ---- values by name ---------------------------------------------------------------------- */
static const struct cli_value *find_value(const struct cli *c, const char *name)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (strcmp(c->options[i]->name, name) == 0)
            return &c->values[i];
    }
    return NULL;
}

bool cli_has(const struct cli *c, const char *name)
{
    return find_value(c, name) != NULL;
}

const struct cli_value *cli_value(const struct cli *c, const char *name)
{
    const struct cli_value *v = find_value(c, name);
    if (v == NULL) {
        fprintf(stderr, "zerope: bug: '%s' has no option --%s\n", c->command->name, name);
        abort();
    }
    return v;
}

bool cli_given(const struct cli *c, const char *name)
{
    return cli_value(c, name)->origin > ORIGIN_DEFAULT;
}

const char *cli_text(const struct cli *c, const char *name)
{
    const struct cli_value *v = cli_value(c, name);
    return v->n > 0 ? v->texts[v->n - 1] : NULL;
}

bool cli_flag(const struct cli *c, const char *name)
{
    return cli_value(c, name)->on;
}

int64_t cli_int(const struct cli *c, const char *name)
{
    return cli_value(c, name)->integer;
}

uint32_t cli_u32(const struct cli *c, const char *name)
{
    int64_t x = cli_value(c, name)->integer;
    return x < 0 ? 0 : x > UINT32_MAX ? UINT32_MAX : (uint32_t)x;
}

double cli_real(const struct cli *c, const char *name)
{
    return cli_value(c, name)->real;
}

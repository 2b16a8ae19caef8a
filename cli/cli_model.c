/* cli_model.c: models, engine options and sampler options from the parsed command line. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TEMPLATE (4u << 20)

zp_status cli_open_model_at(struct cli *c, const char *path, zp_model **out)
{
    struct text template = { 0 };
    zp_model_options options = { 0 };
    if (cli_has(c, "pre"))
        options.pre = cli_text(c, "pre");
    if (cli_has(c, "chat-template") && cli_text(c, "chat-template") != NULL) {
        CLI_TRY(cli_read_file(c, cli_text(c, "chat-template"), MAX_TEMPLATE, &template));
        options.chat_template = template.data;
    }
    zp_status st = zp_model_open(out, path, &options, &c->err);
    text_free(&template);
    return st;
}

zp_status cli_open_model(struct cli *c, zp_model **out)
{
    return cli_open_model_at(c, cli_text(c, "model"), out);
}

void cli_note_length(const struct cli *c, const zp_model *m, uint32_t n_ctx)
{
    zp_model_info info;
    zp_model_describe(m, &info);
    uint32_t own = info.n_ctx_validated > 0 ? info.n_ctx_validated : info.n_ctx_train;
    if (c->quiet || own == 0 || n_ctx <= own)
        return;
    progress_clear();
    fprintf(stderr, "zerope: note: context %u is longer than the %u tokens %s\n", n_ctx, own,
            info.n_ctx_validated > 0 ? "this file has evidence for" : "the model was trained for");
}

zp_status cli_note_length_of(struct cli *c, const char *path, uint32_t n_ctx)
{
    zp_model *m = NULL;
    if (c->quiet)
        return ZP_OK;
    CLI_TRY(cli_open_model_at(c, path, &m));
    cli_note_length(c, m, n_ctx);
    zp_model_close(m);
    return ZP_OK;
}

static zp_kv_type kv_type(const char *text)
{
    if (text == NULL)
        return ZP_KV_DEFAULT;
    return strcmp(text, "f32") == 0 ? ZP_KV_F32
           : strcmp(text, "q8") == 0 ? ZP_KV_Q8
                                     : ZP_KV_BF16;
}

/* As the XDG base directory specification says: a path that is not absolute is ignored. */
const char *cli_pack_cache(void)
{
    static char path[4096];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = cache != NULL && cache[0] == '/';
    if (!own && (home == NULL || home[0] != '/'))
        return NULL;
    int n = snprintf(path, sizeof path, "%s%s/zerope/packed", own ? cache : home,
                     own ? "" : "/.cache");
    return n < (int)sizeof path ? path : NULL;
}

uint32_t cli_default_context(const zp_model *m, size_t n_prompt, size_t n_predict)
{
    zp_model_info info;
    zp_model_describe(m, &info);
    size_t most = info.n_ctx_train > 0 ? info.n_ctx_train : 4096;
    size_t wanted = n_prompt + (n_predict > 0 ? n_predict : 512);
    wanted = wanted > 4096 ? wanted : 4096;
    return (uint32_t)(wanted < most ? wanted : most);
}

zp_status cli_plan_options(struct cli *c, zp_engine_options *out)
{
    bool parallel = cli_has(c, "parallel") && cli_given(c, "parallel");
    *out = (zp_engine_options){
        .n_ctx = cli_has(c, "ctx-size") ? cli_u32(c, "ctx-size") : 0,
        .n_seq = parallel ? cli_u32(c, "parallel") : 0,
        .n_threads = cli_u32(c, "threads"),
        .micro_batch = cli_u32(c, "batch-size"),
        .kv_bytes = cli_has(c, "kv-memory") ? (uint64_t)cli_int(c, "kv-memory") << 20 : 0,
        .exact = cli_has(c, "exact") && cli_flag(c, "exact"),
        .prefix_cache = parallel, /* lines often begin alike */
    };
    const char *k = cli_has(c, "cache-type-k") ? cli_text(c, "cache-type-k") : NULL;
    const char *v = cli_has(c, "cache-type-v") ? cli_text(c, "cache-type-v") : NULL;
    if (k != NULL && v != NULL && strcmp(k, v) != 0)
        return cli_usage(
            c, "--cache-type-k %s and --cache-type-v %s differ: keys and values have one type", k,
            v);
    out->kv_type = kv_type(k != NULL ? k : v);
    if (out->exact && out->kv_type != ZP_KV_DEFAULT && out->kv_type != ZP_KV_F32)
        return cli_usage(c, "--exact keeps keys and values in f32; leave --cache-type-k %s out",
                         k != NULL ? k : v);
    return ZP_OK;
}

zp_status cli_engine_options(struct cli *c, zp_engine_options *out)
{
    static const char *const levels[] = { "best", "ref", "avx2", "avx512", "avx512bf16" };
    CLI_TRY(cli_plan_options(c, out));
    out->pin_threads = cli_flag(c, "pin");
    out->allow_unverified_mode =
        cli_has(c, "allow-unverified-mode") && cli_flag(c, "allow-unverified-mode");
    out->pack_cache = cli_flag(c, "no-pack-cache") ? NULL : cli_pack_cache();
    for (size_t i = 0; i < CLI_COUNT(levels); i++) {
        if (strcmp(cli_text(c, "cpu"), levels[i]) == 0)
            out->level = (zp_level)i;
    }
    return ZP_OK;
}

zp_status cli_mode(struct cli *c, zp_mode *out)
{
    static const char *const modes[] = { "full", "zero", "half", "auto" };
    for (size_t i = 0; i < CLI_COUNT(modes); i++) {
        if (strcmp(cli_text(c, "mode"), modes[i]) == 0)
            *out = (zp_mode)i;
    }
    return ZP_OK;
}

/* A seed nobody chose: the clock is enough, it only has to differ from run to run and is printed.
 */
static uint64_t fresh_seed(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return ((uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec) & 0xFFFFFFFFu;
}

zp_status cli_sampler_options(struct cli *c, zp_sampler_options *out)
{
    int64_t seed = cli_int(c, "seed");
    double top_p = cli_real(c, "top-p"), repeat = cli_real(c, "repeat-penalty");
    *out = (zp_sampler_options){
        .temperature = (float)cli_real(c, "temp"),
        .top_k = cli_u32(c, "top-k"),
        .top_p = top_p < 1 ? (float)top_p : 0,
        .min_p = (float)cli_real(c, "min-p"),
        .repeat_penalty = repeat != 1 ? (float)repeat : 0,
        .seed = seed >= 0 ? (uint64_t)seed : fresh_seed(),
    };
    return ZP_OK;
}

/* generate_text.c: the smallest complete program: open a model, continue a prompt, print the text
 * as it comes.
 * Build: cc generate_text.c $(pkg-config --cflags --libs zerope)
 * Usage: generate_text MODEL.gguf "Once upon a time" */
#include <stdio.h>
#include <string.h>
#include <zerope/zerope.h>

static bool print(void *arg, const char *text, size_t size)
{
    (void)arg;
    fwrite(text, 1, size, stdout);
    return fflush(stdout) == 0;  /* false would end the generation */
}

static zp_status run(const zp_model *model, const char *prompt, zp_err *err)
{
    zp_engine *engine = NULL;
    zp_seq *seq = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    zp_generated out = { 0 };
    zp_engine_options defaults = { 0 };
    zp_seq_options plain = { 0 };
    zp_generate_options options = { .n_predict = 64, .on_text = print };

    zp_status st = zp_engine_open(&engine, model, &defaults, err);
    if (st == ZP_OK)
        st = zp_seq_open(&seq, engine, &plain, err);
    if (st == ZP_OK)
        st = zp_tokenize(model, prompt, strlen(prompt), ZP_TOKENS_BOS, &ids, &n, err);
    if (st == ZP_OK)
        st = zp_generate(engine, seq, ids, n, &options, &out, err);
    if (st == ZP_OK)
        printf("\n[%zu tokens, %.1f a second, ended by: %s]\n", out.n_ids,
               (double)out.n_ids / out.decode_seconds, out.reason);
    zp_free(out.ids);
    zp_free(out.text);
    zp_free(ids);
    zp_seq_close(seq);
    zp_engine_close(engine);
    return st;
}

int main(int argc, char **argv)
{
    zp_model *model = NULL;
    zp_err err = { 0 };
    if (argc != 3) {
        fprintf(stderr, "usage: generate_text MODEL.gguf PROMPT\n");
        return 2;
    }
    zp_status st = zp_model_open(&model, argv[1], &(zp_model_options){ 0 }, &err);
    if (st == ZP_OK)
        st = run(model, argv[2], &err);
    zp_model_close(model);
    if (st != ZP_OK)
        fprintf(stderr, "generate_text: %s\n", err.message);
    return zp_status_exit_code(st);
}

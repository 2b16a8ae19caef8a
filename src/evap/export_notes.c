/* export_notes.c: what an export reports: engines that run it, and the traps of each, as run in
 * reference engines (llama.cpp 0c1e570, ik_llama.cpp 8337e4c, transformers 4.57 and 5.24). */
#include "evap/export.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "base/json_build.h"

static bool is_stock(const struct export_job *j)
{
    return strcmp(j->to, "stock-gguf") == 0;
}

static bool is_folder(const struct export_job *j)
{
    return strcmp(j->to, "hf") == 0;
}

static void write_files(struct json_build *w, const struct export_job *j, zp_err *err)
{
    char **names = NULL;
    size_t n = 0;
    uint64_t bytes = 0, size;
    json_build_array(w, "files");
    if (is_folder(j)) {
        if (w->status == ZP_OK) w->status = os_list_files(j->out, &names, &n, err);
        for (size_t i = 0; i < n; i++) {
            json_build_text(w, NULL, names[i]);
            if (os_file_size(names[i], &size, NULL) == ZP_OK) bytes += size;
        }
        os_list_free(names, n);
    } else {
        json_build_text(w, NULL, j->out);
        if (os_file_size(j->file.temp, &size, NULL) == ZP_OK) bytes = size;
    }
    json_build_array_end(w);
    json_build_uint(w, "bytes", bytes);
}

static void write_engines(struct json_build *w, const struct export_job *j)
{
    json_build_array(w, "expected_engines");
    if (is_folder(j)) {
        json_build_text(w, NULL, "transformers >= 4.57");
        if (j->route.way == EXPORT_DIVISORS) json_build_text(w, NULL, "llama.cpp (converted)");
    } else if (!is_stock(j)) {
        json_build_text(w, NULL, "zerope");
    } else if (j->route.way == EXPORT_PATTERN) {
        json_build_text(w, NULL, "llama.cpp with architecture granite_swa");
    } else {
        json_build_text(w, NULL, "llama.cpp");
        if (strcmp(j->route.arch, "llama") == 0) json_build_text(w, NULL, "ik_llama.cpp");
        json_build_text(w, NULL, "zerope");
    }
    json_build_array_end(w);
}

/* ---- notes */

static void note_length(struct json_build *w, const struct export_job *j)
{
    char text[300];
    uint32_t validated = j->m->position.n_ctx_validated;
    if (validated && validated != j->n_ctx) {
        snprintf(
            text, sizeof text,
            "context_length stays at %u, from which dynamic scaling counts; the longest length "
            "with evidence is %u.",
            j->n_ctx, validated);
    } else if (validated) {
        snprintf(text, sizeof text,
                 "context_length is %u, the longest length with evidence; the original was trained "
                 "for %u.",
                 j->n_ctx, j->m->h.n_ctx_train);
    } else {
        snprintf(text, sizeof text,
                 "The file names no length with evidence, so context_length stays at the trained "
                 "%u: run verify first to change that.",
                 j->n_ctx);
    }
    json_build_text(w, NULL, text);
    if (!is_stock(j)) return;
    snprintf(text, sizeof text,
             "llama-server caps every slot at context_length and stops there; --override-kv "
             "%s.context_length=int:N lifts the cap, without evidence.",
             j->route.arch);
    json_build_text(w, NULL, text);
}

static void note_divisors(struct json_build *w, const struct export_job *j)
{
    char text[300];
    const struct export_shape *s = &j->route.shape;
    if (s->n_closed == 0) return;
    snprintf(
        text, sizeof text,
        "rope_freqs.weight closes %u of %u pairs in every layer (1e30). It is exact, also under "
        "context shift, and --rope-scaling none and --rope-freq-scale 1 leave it alone; a whole "
        "YaRN override (--rope-scaling yarn --rope-scale N) does not.",
        s->n_closed, s->n_pair);
    json_build_text(w, NULL, text);
    json_build_text(w, NULL,
                    "transformers drops rope_freqs.weight when it loads a GGUF (gguf_file=) and "
                    "rotates every pair, without a word: export with --to hf for it.");
}

static void note_stock(struct json_build *w, const struct export_job *j)
{
    switch (j->route.way) {
    case EXPORT_AS_IS: return;
    case EXPORT_DIVISORS: note_divisors(w, j); return;
    case EXPORT_LINEAR:
        json_build_text(w, NULL,
                        "Rotation is off by linear scaling with factor 1e30: exact, but "
                        "--rope-scaling none or yarn and --rope-freq-scale 1 put it back.");
        json_build_text(w, NULL,
                        "transformers drops rope.scaling when it loads a GGUF (gguf_file=) and "
                        "rotates, without a word: export with --to hf for it.");
        return;
    case EXPORT_PATTERN:
        json_build_text(w, NULL,
                        "Architecture granite_swa is young: llama.cpp builds that do not know it "
                        "refuse the file.");
        json_build_text(w, NULL,
                        "Never with --context-shift or --cache-reuse: moving the cache ends the "
                        "process or rotates it wrongly.");
        json_build_text(w, NULL,
                        "One layer is marked as windowed because the architecture demands it; its "
                        "window of 2^30 tokens is none.");
        if (j->route.shape.n_closed) note_divisors(w, j);
        return;
    }
}

static void note_folder(struct json_build *w, const struct export_job *j)
{
    if (j->route.way == EXPORT_DIVISORS && j->route.shape.n_closed)
        json_build_text(w, NULL,
                        "Closed pairs are said as llama3 scaling by 1e30 (rope_scaling and "
                        "rope_theta, which transformers 4 and 5 both read); llama.cpp's converter "
                        "keeps it.");
    if (j->route.way == EXPORT_LINEAR)
        json_build_text(w, NULL,
                        "Layers without a window lose their rotation by linear scaling with factor "
                        "1e30; windowed layers keep theirs.");
    if (j->route.way == EXPORT_PATTERN)
        json_build_text(w, NULL,
                        "The folder is a smollm3 with no_rope_layers (1 = HAS RoPE). llama.cpp's "
                        "converter ignores that list: for llama.cpp export with --to stock-gguf.");
    if (j->rows.n_widened) {
        char text[200];
        snprintf(text, sizeof text,
                 "%u quantised tensors are written as F32, which loses nothing and takes more "
                 "room.",
                 j->rows.n_widened);
        json_build_text(w, NULL, text);
    }
    if (!j->has_tokenizer)
        json_build_text(w, NULL,
                        "No tokenizer files: copy tokenizer.json and tokenizer_config.json of the "
                        "original into the folder.");
    json_build_text(w, NULL, "vLLM and SGLang read the same files; they were not tried.");
}

static void write_notes(struct json_build *w, const struct export_job *j)
{
    json_build_array(w, "notes");
    note_length(w, j);
    if (is_stock(j)) note_stock(w, j);
    if (is_folder(j)) note_folder(w, j);
    if (!is_stock(j) && !is_folder(j)) {
        json_build_text(w, NULL, "Only zerope runs this file; other engines refuse its "
                                 "architecture instead of rotating wrongly.");
        if (!gguf_edit_find_key(&j->edit, "zerope.evidence"))
            json_build_text(w, NULL, "The file holds no evidence: run verify to add it.");
    }
    if (!is_folder(j) && !j->has_tokenizer)
        json_build_text(w, NULL, "The model comes without a tokenizer: other engines take token "
                                 "ids only.");
    if (j->rows.n_scaled)
        json_build_text(w, NULL, "Constant scales of the logits were folded into the queries.");
    if (!j->read_back)
        json_build_text(w, NULL, "zerope itself does not read this architecture; the file was not "
                                 "read back.");
    json_build_array_end(w);
}

zp_status export_report(const struct export_job *j, char **json, zp_err *err)
{
    struct json_build w;
    bool own = !is_stock(j) && !is_folder(j);
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "model", j->model);
    json_build_text(&w, "to", j->to);
    json_build_text(&w, "route", own ? "copy" : export_way_name(j->route.way));
    json_build_text(&w, "architecture", own ? j->m->gguf.arch : j->route.arch);
    json_build_uint(&w, "context_length", j->n_ctx);
    if (!own) {
        json_build_uint(&w, "layers_none", j->route.shape.n_none);
        json_build_uint(&w, "pairs_closed", j->route.shape.n_closed);
        json_build_uint(&w, "pairs", j->route.shape.n_pair);
    }
    write_files(&w, j, err);
    write_engines(&w, j);
    write_notes(&w, j);
    json_build_object_end(&w);
    return json_build_finish(&w, json);
}

/* export.h: an evaporated model as a file that other engines run unchanged. The public call is
 * zp_export_run (zerope/evap.h); these are its parts, one object a call. */
#ifndef EVAP_EXPORT_H
#define EVAP_EXPORT_H

#include <zerope/evap.h>
#include "base/os.h"
#include "evap/export_rows.h"
#include "model/hfwrite.h"

enum { EXPORT_MAX_FILES = 16 };

struct export_job {
    const char *model, *to, *out;
    struct zp_model *m;
    struct export_route route;   /* not for "gguf" */
    struct gguf_edit edit;
    struct export_rows rows;
    uint32_t n_ctx;              /* context length of the written file */
    bool read_back;              /* opened again and its positions compared */
    /* of a GGUF: complete under its temporary name until all is done */
    struct os_file file;
    bool has_tokenizer;
    struct hf_file files[EXPORT_MAX_FILES]; /* copied into a folder beside config and weights */
    uint32_t n_files;
    char *tokenizer, *tokenizer_config; /* JSON made for a folder, or NULL */
};

/* The report: files, engines, context length, and what each engine gets wrong (export_notes.c). */
zp_status export_report(const struct export_job *job, char **json, zp_err *err);

#endif

/* requant.h: a model file with its weight matrices in another type.
 * R1 tensors that are not weight matrices, or have the wanted type already, keep their bytes.
 * R2 position tensors (rope_freqs, pos_*, *.attn_head_scale, struct_*) are never touched; a zero
 *    weight stays an exact zero (Q3 of quant.h): what is closed stays closed.
 * R3 every departure from the wanted type is in the report. */
#ifndef MODEL_REQUANT_H
#define MODEL_REQUANT_H

#include <zerope/zerope.h>
#include "base/bytes.h"
#include "base/pool.h"
#include "model/gguf.h"

enum requant_why {
    REQUANT_TARGET,     /* has the wanted type now */
    REQUANT_ALREADY,    /* had it before: bytes copied */
    REQUANT_OUTPUT,     /* output matrix: Q6_K (Q8_0 by row length) where 4 or 5 bits are wanted */
    REQUANT_ROW_LENGTH, /* rows are no multiple of the block. Q4_K -> Q5_0, Q5_K -> Q5_1,
                         * Q6_K -> Q8_0 for multiples of 32; else F16 */
    REQUANT_SMALL,      /* vector, norm or router: bytes copied */
    REQUANT_POSITION,   /* position tensor: bytes copied */
    REQUANT_WHY_COUNT
};
const char *requant_why_text(enum requant_why why);

struct requant_options {
    uint32_t type;               /* enum quant_type, one that can be written */
    bool pure;                   /* no exception for the output matrix */
    struct pool *pool;           /* NULL: the caller's thread alone; the bytes are the same */
    const zp_progress *progress; /* may be NULL; counts weights */
    struct buffer *json;         /* may be NULL; the report, made before the file has its name */
};

struct requant_item {
    const char *name;
    uint32_t from, to; /* tensor types */
    enum requant_why why;
    bool twice;        /* was quantised before and is so again: worse than from the original */
    bool grows;        /* quantised before, and larger now: bytes without better quality */
};

struct requant_report {
    struct requant_item *items; /* one a tensor, file order */
    uint32_t n_items, n_twice, n_grown;
    uint64_t bytes_before, bytes_after; /* of the files */
    bool weights_changed;  /* some tensor has another type now */
    /* keys left out, since they were measured on other weights */
    bool evidence_dropped; /* zerope.evidence */
    bool length_dropped;   /* zerope.context.validated */
    struct arena arena;
};

/* What requant_file would do, file sizes aside. Free the report after success. */
zp_status requant_plan(const struct gguf *g, const struct requant_options *o,
                       struct requant_report *report, zp_err *err);
/* Reads `in`, writes `out` row by row, atomically; both may be the same file. A NaN or infinite
 * weight is refused with tensor and row. Free the report after success. */
zp_status requant_file(const char *in, const char *out, const struct requant_options *o,
                       struct requant_report *report, zp_err *err);
void requant_report_free(struct requant_report *report);
/* {"types": {type: tensors}, "bytes_before", "bytes_after", "twice", "grown", "evidence_dropped",
 *  "validated_length_dropped", "exceptions": [{"name", "from", "to", "why"}]}; exceptions are
 *  matrices of another type. */
zp_status requant_report_json(const struct requant_report *report, struct buffer *out, zp_err *err);

#endif

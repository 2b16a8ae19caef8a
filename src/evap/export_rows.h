/* export_rows.h: rows of q and k back into a stock architecture's order, constant query scales
 * folded into them, and weights in the types a format knows. */
#ifndef EVAP_EXPORT_ROWS_H
#define EVAP_EXPORT_ROWS_H

#include "evap/export_route.h"
#include "model/gguf_write.h"

/* Work of one export; the same object until the file is written. */
struct export_rows {
    const struct zp_model *m;
    const struct export_route *route;
    const zp_progress *progress; /* may be NULL */
    uint64_t done, total;        /* rows */
    uint32_t n_widened;          /* tensors that were quantised and become F32 */
    uint32_t n_scaled;           /* layers with a scale folded into q */
};

/* Replaces q, k, their biases and norm gains in e where order or scale changes, removes
 * attn_head_scale (folded), and for a Hugging Face folder replaces quantised tensors by F32 ones.
 * Norm gains that differ between heads: ZP_UNSUPPORTED. Memory from e. */
zp_status export_rows_set(struct export_rows *x, struct gguf_edit *e, zp_err *err);

#endif

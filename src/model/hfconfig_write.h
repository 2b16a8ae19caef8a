/* hfconfig_write.h: config.json from GGUF keys: the reverse of hfkeys.h and hfrope.h. */
#ifndef MODEL_HFCONFIG_WRITE_H
#define MODEL_HFCONFIG_WRITE_H

#include "model/hfkeys.h"

/* *out: a new object; c: the family and sizes it describes. dtype: "float32", "bfloat16", ... */
zp_status hfconfig_write(struct gguf_edit *e, const char *dtype, json_t **out, struct hf_config *c,
                         zp_err *err);

#endif

/* rundoc.h: what the folder of a run says, as one JSON document. */
#ifndef TRAIN_RUNDOC_H
#define TRAIN_RUNDOC_H

#include <jansson.h>
#include "base/status.h"

/* The document of zp_train_run_json; released with json_decref, NULL on failure. */
zp_status rundoc_read(const char *folder, json_t **out, zp_err *err);

#endif

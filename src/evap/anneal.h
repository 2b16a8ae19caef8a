/* anneal.h: positions taken out by training; the public call is zp_anneal_run. */
#ifndef EVAP_ANNEAL_H
#define EVAP_ANNEAL_H

#include <zerope/evap.h>

#include "train/trainjob.h"

/* Writes the model of a run without the gates that closed, by way of OUT.trained beside it. */
zp_status anneal_write(const struct trainjob *j, const char *out, zp_err *err);

#endif

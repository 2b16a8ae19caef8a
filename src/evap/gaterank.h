/* gaterank.h: what orders single gates: estimates from local errors, Fisher information, or the sum
 * of their ranks. */
#ifndef EVAP_GATERANK_H
#define EVAP_GATERANK_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum gaterank { GATERANK_LOCAL, GATERANK_FISHER, GATERANK_SUM };
/* "local" (and NULL), "fisher", "sum"; ZP_USAGE for another name. */
zp_status gaterank_find(const char *name, enum gaterank *out, zp_err *err);
const char *gaterank_name(enum gaterank kind);

/* Costs of n gates: those that are open close in ascending order of them; closed ones get 0. local:
 * estimated KL; fisher (n), not looked at by GATERANK_LOCAL. A rank counts open gates that are
 * cheaper, and those of the same value by half. */
zp_status gaterank_costs(enum gaterank kind, size_t n, const uint8_t *open, const double *local,
                         const double *fisher, double *cost, zp_err *err);

#endif

/* evaporate.h: zp_scan_run, zp_plan_run and zp_evaporate_run of evap.h. */
#ifndef EVAP_EVAPORATE_H
#define EVAP_EVAPORATE_H

#include <zerope/evap.h>

#endif

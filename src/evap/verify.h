/* verify.h: zp_verify_run of evap.h. */
#ifndef EVAP_VERIFY_H
#define EVAP_VERIFY_H

#include <zerope/evap.h>

#endif

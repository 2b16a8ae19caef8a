/* doctor.h: what this machine is and can do: zp_doctor_json. */
#ifndef MODEL_DOCTOR_H
#define MODEL_DOCTOR_H

#include "base/pool.h"

/* Read bandwidth of all workers together, bytes a second: the best of passes that take `seconds`
 * in all over memory of `bytes` bytes (far more than the caches hold, touched before). */
zp_status doctor_read_bandwidth(struct pool *p, size_t bytes, double seconds, double *best,
                                zp_err *err);

#endif

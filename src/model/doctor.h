/* doctor.h: what this machine is and can do: zp_doctor_json, and its measure of read bandwidth. */
#ifndef MODEL_DOCTOR_H
#define MODEL_DOCTOR_H

#include "base/pool.h"

/* Memory far larger than the caches, which all workers of a pool read together. */
struct doctor_probe;
zp_status doctor_probe_open(struct doctor_probe **out, struct pool *p, zp_err *err);
void doctor_probe_close(struct doctor_probe *b);
size_t doctor_probe_bytes(const struct doctor_probe *b);
/* Bytes a second: the best of passes over the whole memory that take `seconds` in all. */
double doctor_probe_read(struct doctor_probe *b, double seconds);

#endif

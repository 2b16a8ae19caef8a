/* dist.h: several processes that compute one thing: what they exchange, and in which order they
 * add. All processes make the same calls in the same order; a call returns when it is done here. */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct dist;

/* kind: "single" (this process alone), "mpi" (as mpirun started it; once in a process's life).
 * module_path: of libzerope_mpi.so; NULL: beside the library, in the library folder that belongs to
 * the program's, or beside the program. Not found, or not one: ZP_UNSUPPORTED. */
zp_status dist_open(struct dist **out, const char *kind, const char *module_path, zp_err *err);
/* Waits for the others, unless a call has failed. NULL is fine. */
void dist_close(struct dist *d);
/* For a process that cannot go on while others may wait for it: ends all processes, this one
 * among them, with the exit code. Of a single process: nothing, the caller just returns. */
void dist_abort(struct dist *d, int code);

uint32_t dist_rank(const struct dist *d);
uint32_t dist_size(const struct dist *d);
/* How long a call may wait for the others before it fails; at first 60 s. What one process does
 * alone (an evaluation, a checkpoint) must take less. */
void dist_set_timeout(struct dist *d, double seconds);

/* All of them: ZP_RUN where a process is lost or late; the text names the call. Nothing works
 * afterwards, and dist_close does not wait. */
zp_status dist_barrier(struct dist *d, zp_err *err);
/* all: (size, bytes) in order of ranks; mine may be its part there. */
zp_status dist_all_gather(struct dist *d, const void *mine, size_t bytes, void *all, zp_err *err);
zp_status dist_broadcast(struct dist *d, void *data, size_t bytes, uint32_t root, zp_err *err);
/* sum += x of rank 0, then of rank 1, ... of rank n_ranks - 1, element by element: what one process
 * gets that adds them one after the other. So micro-batches in rounds, number i * size + rank in
 * round i, give the same bits for any number of processes; in a last round that is not full n_ranks
 * is how many there are (x of other ranks is not looked at). sum must be the same on all before,
 * and is after. */
zp_status dist_add_f32(struct dist *d, float *sum, const float *x, size_t n, uint32_t n_ranks,
                       zp_err *err);
zp_status dist_add_f64(struct dist *d, double *sum, const double *x, size_t n, uint32_t n_ranks,
                       zp_err *err);
/* The largest of each over all; NaN where one of them is. */
zp_status dist_max(struct dist *d, double *x, size_t n, zp_err *err);

#endif

/* dist_mpi.h: what a module for several processes shows the library: plain functions, so that it
 * needs nothing of the library and the library does not load MPI. */
#ifndef DIST_MPI_DIST_MPI_H
#define DIST_MPI_DIST_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zerope/status.h>

enum { DIST_MODULE_VERSION = 1 };
#define DIST_MODULE_SYMBOL "zerope_dist_module"

/* Where a failure says what happened, without a full stop. */
struct dist_why {
    char text[256];
};

/* Functions give false for a failure. bytes: at most INT_MAX. */
struct dist_module {
    uint32_t version, why_bytes; /* DIST_MODULE_VERSION, sizeof(struct dist_why) */
    bool (*open)(void **state, uint32_t *rank, uint32_t *size, struct dist_why *why);
    bool (*barrier)(void *state, double timeout, struct dist_why *why);
    bool (*all_gather)(void *state, const void *mine, size_t bytes, void *all, double timeout,
                       struct dist_why *why);
    bool (*broadcast)(void *state, void *data, size_t bytes, uint32_t root, double timeout,
                      struct dist_why *why);
    void (*abort)(void *state, int code);
    /* failed: the others are not waited for. */
    void (*close)(void *state, bool failed, double timeout);
};
ZP_API const struct dist_module *zerope_dist_module(void);

#endif

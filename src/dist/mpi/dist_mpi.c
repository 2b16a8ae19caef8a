/* dist_mpi.c: collectives by MPI, as a module that is loaded when it is wanted: loading libmpi
 * takes longer than a whole start of the program.
 * Owns: MPI's state of the process. Does not know: the library; nothing of it is linked here.
 * Threads: the one that opened it.
 * M1 every wait ends: only calls that do not block are made, and asked for until the time is up.
 * M2 after a failure nothing of MPI is called but MPI_Abort: it could wait for who is lost. A
 *    process that ends so is noticed by mpirun, which ends the others. */
#include "dist/mpi/dist_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <threads.h>

/* Calls and the last barrier have a channel each: who leaves early is not taken for a late one. */
static struct {
    MPI_Comm calls, closing;
    int rank, size;
} mpi;

static bool is_good(int code, const char *what, struct dist_why *why)
{
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
    (void)snprintf(why->text, sizeof why->text, "%s: %.200s", what, text);
    return false;
}

/* Others are often late by microseconds, and by seconds when one of them writes a file. */
static void rest(double waited)
{
    if (waited < 0.002) thrd_yield();
    else thrd_sleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

static bool wait_for(MPI_Request *request, double timeout, const char *what, struct dist_why *why)
{
    double begin = MPI_Wtime();
    for (;;) {
        int done = 0;
        if (!is_good(MPI_Test(request, &done, MPI_STATUS_IGNORE), what, why)) return false;
        if (done) return true;
        double waited = MPI_Wtime() - begin;
        if (waited > timeout) {
            (void)snprintf(why->text, sizeof why->text,
                           "%s: another process did not come within %ld ms", what,
                           (long)(timeout * 1e3));
            return false;
        }
        rest(waited);
    }
}

static bool make_channel(MPI_Comm *out, struct dist_why *why)
{
    return is_good(MPI_Comm_dup(MPI_COMM_WORLD, out), "MPI_Comm_dup", why) &&
           is_good(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
                   why);
}

static bool open_mpi(void **state, uint32_t *rank, uint32_t *size, struct dist_why *why)
{
    int given, before = 0;
    *state = &mpi;
    MPI_Initialized(&before);
    if (before) {
        (void)snprintf(why->text, sizeof why->text,
                       "MPI was started before in this process, which is possible once");
        return false;
    }
    if (!is_good(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread", why))
        return false;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!make_channel(&mpi.calls, why) || !make_channel(&mpi.closing, why) ||
        !is_good(MPI_Comm_rank(mpi.calls, &mpi.rank), "MPI_Comm_rank", why) ||
        !is_good(MPI_Comm_size(mpi.calls, &mpi.size), "MPI_Comm_size", why))
        return false;
    *rank = (uint32_t)mpi.rank;
    *size = (uint32_t)mpi.size;
    return true;
}

static bool barrier(void *state, double timeout, struct dist_why *why)
{
    MPI_Request request;
    (void)state;
    return is_good(MPI_Ibarrier(mpi.calls, &request), "MPI_Ibarrier", why) &&
           wait_for(&request, timeout, "MPI_Ibarrier", why);
}

static bool check_bytes(size_t bytes, struct dist_why *why)
{
    if (bytes <= INT_MAX) return true;
    (void)snprintf(why->text, sizeof why->text, "%zu bytes at once, at most %d are possible", bytes,
                   INT_MAX);
    return false;
}

static bool all_gather(void *state, const void *mine, size_t bytes, void *all, double timeout,
                       struct dist_why *why)
{
    MPI_Request request;
    (void)state;
    const void *from = mine == (char *)all + (size_t)mpi.rank * bytes ? MPI_IN_PLACE : mine;
    return check_bytes(bytes, why) &&
           is_good(MPI_Iallgather(from, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, mpi.calls,
                                  &request),
                   "MPI_Iallgather", why) &&
           wait_for(&request, timeout, "MPI_Iallgather", why);
}

static bool broadcast(void *state, void *data, size_t bytes, uint32_t root, double timeout,
                      struct dist_why *why)
{
    MPI_Request request;
    (void)state;
    return check_bytes(bytes, why) &&
           is_good(MPI_Ibcast(data, (int)bytes, MPI_BYTE, (int)root, mpi.calls, &request),
                   "MPI_Ibcast", why) &&
           wait_for(&request, timeout, "MPI_Ibcast", why);
}

static void abort_all(void *state, int code)
{
    (void)state;
    (void)MPI_Abort(MPI_COMM_WORLD, code);
}

static void close_mpi(void *state, bool failed, double timeout)
{
    MPI_Request request;
    struct dist_why why;
    (void)state;
    if (failed) return; // M2
    if (MPI_Ibarrier(mpi.closing, &request) == MPI_SUCCESS &&
        wait_for(&request, timeout, "MPI_Ibarrier", &why))
        (void)MPI_Finalize();
}

const struct dist_module *zerope_dist_module(void)
{
    static const struct dist_module module = {
        .version = DIST_MODULE_VERSION,
        .why_bytes = sizeof(struct dist_why),
        .open = open_mpi,
        .barrier = barrier,
        .all_gather = all_gather,
        .broadcast = broadcast,
        .abort = abort_all,
        .close = close_mpi,
    };
    return &module;
}

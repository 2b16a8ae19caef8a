/* dist.c: collectives over a table of functions: of one process, or of a module that is loaded.
 * Owns: room for one piece of each process. Does not know: MPI, what the numbers are.
 * Threads: the one that opened it.
 * D1 sums are made here, in ascending order of ranks, from what was gathered: no library decides on
 *    the order, and the bits are those of one process.
 * D2 after a failure the processes are no longer in step: every further call fails at once. */
#include "dist/dist.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "dist/mpi/dist_mpi.h"

/* A piece of each of a few processes stays in the second-level cache between arriving and being
 * added. */
#define PIECE_BYTES ((size_t)1 << 18)
#define MODULE_FILE "libzerope_mpi.so"
#ifndef ZEROPE_LIB_FROM_BIN
#define ZEROPE_LIB_FROM_BIN "../lib"
#endif

struct dist {
    const struct dist_module *module;
    void *state;
    uint32_t rank, size;
    double timeout;
    bool failed;
    uint8_t *pieces; /* (size, PIECE_BYTES) */
};

/* ---- one process ----------------------------------------------------------------------------- */

static bool open_single(void **state, uint32_t *rank, uint32_t *size, struct dist_why *why)
{
    ZP_UNUSED(why);
    *state = NULL;
    *rank = 0;
    *size = 1;
    return true;
}

static bool barrier_single(void *state, double timeout, struct dist_why *why)
{
    ZP_UNUSED(state), ZP_UNUSED(timeout), ZP_UNUSED(why);
    return true;
}

static bool gather_single(void *state, const void *mine, size_t bytes, void *all, double timeout,
                          struct dist_why *why)
{
    ZP_UNUSED(state), ZP_UNUSED(timeout), ZP_UNUSED(why);
    if (bytes && mine != all) memcpy(all, mine, bytes);
    return true;
}

static bool broadcast_single(void *state, void *data, size_t bytes, uint32_t root, double timeout,
                             struct dist_why *why)
{
    ZP_UNUSED(data), ZP_UNUSED(bytes), ZP_UNUSED(root);
    return barrier_single(state, timeout, why);
}

static void abort_single(void *state, int code)
{
    ZP_UNUSED(state), ZP_UNUSED(code);
}

static void close_single(void *state, bool failed, double timeout)
{
    ZP_UNUSED(state), ZP_UNUSED(failed), ZP_UNUSED(timeout);
}

static const struct dist_module single = {
    .version = DIST_MODULE_VERSION,
    .why_bytes = sizeof(struct dist_why),
    .open = open_single,
    .barrier = barrier_single,
    .all_gather = gather_single,
    .broadcast = broadcast_single,
    .abort = abort_single,
    .close = close_single,
};

/* ---- the module ------------------------------------------------------------------------------ */

/* `path` becomes "FOLDER OF FILE/between/MODULE_FILE". */
static bool beside(char path[PATH_MAX], const char *file, const char *between)
{
    char real[PATH_MAX];
    if (!os_real_path(file, real, sizeof real)) return false;
    char *slash = strrchr(real, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    int length = snprintf(path, PATH_MAX, "%s/%s%s", real, between, MODULE_FILE);
    return length > 0 && length < PATH_MAX && os_exists(path);
}

/* A module lies beside libzerope.so; a program without it finds the library folder, or, in a build
 * folder, the module beside itself. A relative name of what we were loaded from says nothing. */
static bool find_module(char path[PATH_MAX])
{
    static const char here = 0;
    Dl_info info;
    if (dladdr(&here, &info) != 0 && info.dli_fname && info.dli_fname[0] == '/' &&
        beside(path, info.dli_fname, ""))
        return true;
    return beside(path, "/proc/self/exe", ZEROPE_LIB_FROM_BIN "/") ||
           beside(path, "/proc/self/exe", "");
}

/* The module stays for the process's life: MPI cannot be unloaded. Its symbols are global, because
 * MPI's own plugins look for them. */
static zp_status load_module(const struct dist_module **out, const char *path, zp_err *err)
{
    char found[PATH_MAX];
    ZP_FAIL_IF(path == NULL && !find_module(found), err, ZP_UNSUPPORTED,
               "%s is not installed; build with MPI (Debian: mpi-default-dev), or name the file",
               MODULE_FILE);
    if (path == NULL) path = found;
    ZP_FAIL_IF(!os_exists(path), err, ZP_UNSUPPORTED, "%s: there is no such module", path);
    char real[PATH_MAX]; /* a name without a slash would be looked for elsewhere */
    ZP_FAIL_IF(!os_real_path(path, real, sizeof real), err, ZP_UNSUPPORTED,
               "%s: the path is too long", path);
    void *handle = dlopen(real, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    const char *why = handle ? NULL : dlerror();
    ZP_FAIL_IF(!handle, err, ZP_UNSUPPORTED, "%s: cannot be loaded: %s", path, why ? why : "");
    const struct dist_module *(*entry)(void) = NULL;
    void *symbol = dlsym(handle, DIST_MODULE_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* C has no cast from an object to a function */
    ZP_FAIL_IF(entry == NULL, err, ZP_UNSUPPORTED, "%s: is no module of zerope (no %s)", path,
               DIST_MODULE_SYMBOL);
    *out = entry();
    ZP_FAIL_IF((*out)->version != DIST_MODULE_VERSION ||
                   (*out)->why_bytes != sizeof(struct dist_why),
               err, ZP_UNSUPPORTED, "%s: is a module of version %u, expected %d", path,
               (*out)->version, DIST_MODULE_VERSION);
    return ZP_OK;
}

static zp_status fill(struct dist *d, const char *kind, const char *module_path, zp_err *err)
{
    struct dist_why why = { "" };
    bool alone = strcmp(kind, "single") == 0;
    ZP_FAIL_IF(!alone && strcmp(kind, "mpi") != 0, err, ZP_USAGE,
               "processes of kind '%s' are unknown, expected single or mpi", kind);
    if (alone) d->module = &single;
    else ZP_TRY(load_module(&d->module, module_path, err));
    d->failed = true; /* until it is open: there is nobody to wait for */
    ZP_FAIL_IF(!d->module->open(&d->state, &d->rank, &d->size, &why), err, ZP_RUN,
               "several processes cannot be started: %s", why.text);
    ZP_FAIL_IF(d->size == 0 || d->rank >= d->size, err, ZP_RUN,
               "the module says this is process %u of %u", d->rank, d->size);
    d->failed = false;
    ZP_ALLOC(d->pieces, MEM_TRAIN, d->size * PIECE_BYTES, err, "what other processes send");
    return ZP_OK;
}

zp_status dist_open(struct dist **out, const char *kind, const char *module_path, zp_err *err)
{
    *out = NULL;
    struct dist *d = mem_zalloc(MEM_TRAIN, sizeof *d);
    ZP_FAIL_IF(d == NULL, err, ZP_NO_MEMORY, "not enough memory for processes");
    d->timeout = 60;
    zp_status status = fill(d, kind, module_path, err);
    if (status == ZP_OK) *out = d;
    else dist_close(d);
    return status;
}

void dist_close(struct dist *d)
{
    if (d == NULL) return;
    if (d->module != NULL) d->module->close(d->state, d->failed, d->timeout);
    mem_free(d->pieces);
    mem_free(d);
}

void dist_abort(struct dist *d, int code)
{
    d->failed = true;
    d->module->abort(d->state, code);
}

uint32_t dist_rank(const struct dist *d)
{
    return d->rank;
}

uint32_t dist_size(const struct dist *d)
{
    return d->size;
}

void dist_set_timeout(struct dist *d, double seconds)
{
    d->timeout = seconds;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static zp_status check_step(const struct dist *d, const char *call, zp_err *err)
{
    ZP_FAIL_IF(d->failed, err, ZP_RUN, "%s is not possible any more: an earlier call failed", call);
    return ZP_OK;
}

/* good: what the module gave back. */
static zp_status judge(struct dist *d, const char *call, bool good, const struct dist_why *why,
                       zp_err *err)
{
    d->failed = d->failed || !good; // D2
    ZP_FAIL_IF(!good, err, ZP_RUN, "%s failed in process %u of %u (%s); a process is lost or late",
               call, d->rank, d->size, why->text);
    return ZP_OK;
}

static zp_status gather_piece(struct dist *d, const char *call, const void *mine, size_t bytes,
                              void *all, zp_err *err)
{
    struct dist_why why = { "" };
    bool good = d->module->all_gather(d->state, mine, bytes, all, d->timeout, &why);
    return judge(d, call, good, &why, err);
}

zp_status dist_barrier(struct dist *d, zp_err *err)
{
    struct dist_why why = { "" };
    ZP_TRY(check_step(d, "barrier", err));
    return judge(d, "barrier", d->module->barrier(d->state, d->timeout, &why), &why, err);
}

zp_status dist_all_gather(struct dist *d, const void *mine, size_t bytes, void *all, zp_err *err)
{
    static const char call[] = "gathering from all";
    ZP_TRY(check_step(d, call, err));
    if (d->size == 1 || bytes <= PIECE_BYTES) return gather_piece(d, call, mine, bytes, all, err);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t size = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        ZP_TRY(gather_piece(d, call, (const uint8_t *)mine + at, size, d->pieces, err));
        for (uint32_t r = 0; r < d->size; r++)
            memcpy((uint8_t *)all + r * bytes + at, d->pieces + r * size, size);
    }
    return ZP_OK;
}

zp_status dist_broadcast(struct dist *d, void *data, size_t bytes, uint32_t root, zp_err *err)
{
    enum { MOST = 1 << 26 };
    struct dist_why why = { "" };
    ZP_TRY(check_step(d, "broadcast", err));
    ZP_FAIL_IF(root >= d->size, err, ZP_USAGE, "broadcast from process %u of %u", root, d->size);
    for (size_t at = 0; at < bytes; at += MOST) {
        size_t size = bytes - at < MOST ? bytes - at : MOST;
        bool good = d->module->broadcast(d->state, (uint8_t *)data + at, size, root, d->timeout,
                                         &why);
        ZP_TRY(judge(d, "broadcast", good, &why, err));
    }
    return ZP_OK;
}

static zp_status check_ranks(const struct dist *d, uint32_t n_ranks, zp_err *err)
{
    ZP_TRY(check_step(d, "sum", err));
    ZP_FAIL_IF(n_ranks > d->size, err, ZP_USAGE, "sum over %u processes of %u", n_ranks, d->size);
    return ZP_OK;
}

/* The two differ in the type only (D1). */
zp_status dist_add_f32(struct dist *d, float *sum, const float *x, size_t n, uint32_t n_ranks,
                       zp_err *err)
{
    enum { PIECE = PIECE_BYTES / sizeof *x };
    ZP_TRY(check_ranks(d, n_ranks, err));
    for (size_t at = 0; at < n; at += PIECE) {
        size_t size = n - at < PIECE ? n - at : PIECE;
        const float *mine = d->rank < n_ranks ? x + at : sum + at; /* the latter goes nowhere */
        ZP_TRY(gather_piece(d, "sum", mine, size * sizeof *x, d->pieces, err));
        for (uint32_t r = 0; r < n_ranks; r++) {
            const float *add = (const float *)(void *)d->pieces + r * size;
            for (size_t i = 0; i < size; i++) sum[at + i] += add[i];
        }
    }
    return ZP_OK;
}

zp_status dist_add_f64(struct dist *d, double *sum, const double *x, size_t n, uint32_t n_ranks,
                       zp_err *err)
{
    enum { PIECE = PIECE_BYTES / sizeof *x };
    ZP_TRY(check_ranks(d, n_ranks, err));
    for (size_t at = 0; at < n; at += PIECE) {
        size_t size = n - at < PIECE ? n - at : PIECE;
        const double *mine = d->rank < n_ranks ? x + at : sum + at;
        ZP_TRY(gather_piece(d, "sum", mine, size * sizeof *x, d->pieces, err));
        for (uint32_t r = 0; r < n_ranks; r++) {
            const double *add = (const double *)(void *)d->pieces + r * size;
            for (size_t i = 0; i < size; i++) sum[at + i] += add[i];
        }
    }
    return ZP_OK;
}

zp_status dist_max(struct dist *d, double *x, size_t n, zp_err *err)
{
    enum { PIECE = PIECE_BYTES / sizeof *x };
    ZP_TRY(check_step(d, "maximum", err));
    for (size_t at = 0; at < n; at += PIECE) {
        size_t size = n - at < PIECE ? n - at : PIECE;
        ZP_TRY(gather_piece(d, "maximum", x + at, size * sizeof *x, d->pieces, err));
        for (uint32_t r = 0; r < d->size; r++) {
            const double *other = (const double *)(void *)d->pieces + r * size;
            for (size_t i = 0; i < size; i++)
                if (isnan(other[i]) || other[i] > x[at + i]) x[at + i] = other[i];
        }
    }
    return ZP_OK;
}

/* checkpoint_folder.c: the folder of a run's checkpoints: the newest ones, and a file `latest` that
 * names one.
 * Owns: nothing between calls. Threads: one run writes into a folder.
 * H3 `latest` names a file that was whole before it was named; it and the file are prepared
 *    before either is renamed, so that a full disk or a lack of memory leaves both as they were.
 * H4 files are removed after `latest` names the new one. */
#include "train/checkpoint.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/checkpoint_file.h"

enum { DIGITS = 12 };
#define PREFIX "step-"
#define SUFFIX ".zpck"
enum { NAME_BYTES = sizeof PREFIX - 1 + DIGITS + sizeof SUFFIX - 1 };
#define MOST_STEPS 999999999999u

/* The step of a name that begins as those of ours do; what follows: *rest. */
static bool parse_name(const char *name, uint64_t *step, const char **rest)
{
    const char *p = name + sizeof PREFIX - 1;
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0) return false;
    *step = 0;
    for (int i = 0; i < DIGITS; i++, p++) {
        if (*p < '0' || *p > '9') return false;
        *step = *step * 10 + (uint64_t)(*p - '0');
    }
    if (strncmp(p, SUFFIX, sizeof SUFFIX - 1) != 0) return false;
    *rest = p + sizeof SUFFIX - 1;
    return true;
}

static zp_status make_path(char path[PATH_MAX], const char *folder, const char *name, zp_err *err)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    ZP_FAIL_IF(length < 0 || length >= PATH_MAX, err, ZP_BAD_INPUT, "%s: the path is too long",
               folder);
    return ZP_OK;
}

static zp_status step_path(char path[PATH_MAX], const char *folder, uint64_t step, zp_err *err)
{
    char name[NAME_BYTES + 16];
    (void)snprintf(name, sizeof name, PREFIX "%0*llu" SUFFIX, DIGITS, (unsigned long long)step);
    return make_path(path, folder, name, err);
}

/* ---- what is there --------------------------------------------------------------------------- */

struct listing {
    const char *folder;
    uint64_t *steps; /* (n), ascending */
    size_t n, room;
    bool no_memory;
};

static void add_entry(void *arg, const char *name)
{
    struct listing *l = arg;
    uint64_t step;
    const char *rest;
    char path[PATH_MAX];
    if (!parse_name(name, &step, &rest)) return;
    if (*rest != '\0') { /* of a writer that was killed at this step */
        if (make_path(path, l->folder, name, NULL) == ZP_OK && os_is_leftover(path, rest))
            (void)remove(path);
        return;
    }
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        uint64_t *more = mem_resize(MEM_TRAIN, l->steps, room * sizeof *more);
        l->no_memory = l->no_memory || more == NULL;
        if (more == NULL) return;
        l->steps = more;
        l->room = room;
    }
    l->steps[l->n++] = step;
}

static int compare_steps(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Also removes leftovers. steps: released with mem_free, also after a failure. */
static zp_status list_steps(struct listing *l, const char *folder, zp_err *err)
{
    *l = (struct listing){ .folder = folder };
    ZP_TRY(os_each_entry(folder, add_entry, l, err));
    ZP_FAIL_IF(l->no_memory, err, ZP_NO_MEMORY, "%s: not enough memory to list its checkpoints",
               folder);
    if (l->n) qsort(l->steps, l->n, sizeof *l->steps, compare_steps);
    return ZP_OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* All but the last `keep` up to `step`, and all later ones. A file that stays is no failure. */
static void remove_steps(const struct listing *l, uint64_t step, size_t keep)
{
    char path[PATH_MAX];
    size_t before = 0; /* other steps up to this one */
    while (before < l->n && l->steps[before] < step) before++;
    size_t stay = keep == 0 || before < keep ? before : keep - 1;
    for (size_t i = 0; i < l->n; i++) {
        bool kept = l->steps[i] == step || (i < before && i >= before - stay);
        if (!kept && step_path(path, l->folder, l->steps[i], NULL) == ZP_OK) (void)remove(path);
    }
}

static zp_status prepare_latest(struct os_file *f, const char *folder, const char *name,
                                zp_err *err)
{
    char path[PATH_MAX];
    ZP_TRY(make_path(path, folder, "latest", err));
    ZP_TRY(os_file_create(f, path, NAME_BYTES + 1, err));
    ZP_TRY(os_file_write(f, name, strlen(name), err));
    ZP_TRY(os_file_write(f, "\n", 1, err));
    return os_file_finish(f, err);
}

zp_status checkpoint_save(const char *folder, uint64_t step, const struct checkpoint_key *key,
                          const struct checkpoint_part *parts, size_t n, size_t keep, zp_err *err)
{
    struct listing l = { 0 };
    struct os_file file, latest;
    char path[PATH_MAX];
    ZP_FAIL_IF(step > MOST_STEPS, err, ZP_USAGE, "step %llu is too large for a checkpoint's name",
               (unsigned long long)step);
    ZP_TRY(step_path(path, folder, step, err));
    ZP_TRY(os_make_folders(folder, err));
    zp_status status = list_steps(&l, folder, err);
    if (status == ZP_OK) status = checkpoint_prepare(&file, path, step, key, parts, n, err);
    if (status != ZP_OK) {
        mem_free(l.steps);
        return status;
    }
    status = prepare_latest(&latest, folder, strrchr(path, '/') + 1, err);
    if (status != ZP_OK) os_file_abort(&file);
    else if ((status = os_file_commit(&file, err)) != ZP_OK) os_file_abort(&latest);
    else status = os_file_commit(&latest, err); // H3
    if (status == ZP_OK) remove_steps(&l, step, keep); // H4
    mem_free(l.steps);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The step that `latest` names; UINT64_MAX if it is not there or says something else. */
static zp_status read_latest(uint64_t *step, const char *folder, zp_err *err)
{
    char path[PATH_MAX];
    const char *rest;
    zp_err why = { 0 };
    struct buffer b = buffer_with_max(MEM_TRAIN, NAME_BYTES + 1);
    ZP_TRY(make_path(path, folder, "latest", err));
    zp_status status = os_read_regular(path, &b, &why);
    bool named = status == ZP_OK && b.size == NAME_BYTES + 1 &&
                 parse_name((const char *)b.data, step, &rest) && strcmp(rest, "\n") == 0;
    if (!named) *step = UINT64_MAX;
    buffer_free(&b);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, err, status, "%s", why.message);
    return ZP_OK;
}

/* Damage is told and passed over; another failure ends the search. */
static zp_status try_step(struct checkpoint *c, const char *folder, uint64_t step,
                          const struct checkpoint_key *expected, bool *damaged, zp_err *first,
                          zp_err *err)
{
    char path[PATH_MAX];
    zp_err why = { 0 };
    ZP_TRY(step_path(path, folder, step, err));
    zp_status status = checkpoint_open(c, path, expected, &why);
    *damaged = status == ZP_BAD_FILE;
    if (*damaged) log_warn("%s; trying an older checkpoint", why.message);
    if (first->code == ZP_OK) *first = why;
    return status;
}

static void clear_entry(void *arg, const char *name)
{
    uint64_t step;
    char path[PATH_MAX];
    const char *rest = name + sizeof "latest" - 1;
    if (strncmp(name, "latest.", sizeof "latest") != 0 && !parse_name(name, &step, &rest)) return;
    if (strncmp(rest, ".tmp.", 5) == 0 && make_path(path, arg, name, NULL) == ZP_OK)
        (void)remove(path);
}

zp_status checkpoint_clear(const char *folder, zp_err *err)
{
    return os_each_entry(folder, clear_entry, (void *)(uintptr_t)folder, err);
}

zp_status checkpoint_any(const char *folder, bool *out, zp_err *err)
{
    struct listing l = { 0 };
    char path[PATH_MAX];
    *out = false;
    if (!os_is_folder(folder)) return ZP_OK;
    ZP_TRY(make_path(path, folder, "latest", err));
    zp_status status = list_steps(&l, folder, err);
    *out = l.n > 0 || os_exists(path);
    mem_free(l.steps);
    return status;
}

zp_status checkpoint_open_last(struct checkpoint *c, const char *folder,
                               const struct checkpoint_key *expected, zp_err *err)
{
    struct listing l;
    zp_err first = { 0 };
    bool damaged = true;
    uint64_t latest;
    *c = (struct checkpoint){ 0 };
    ZP_TRY(read_latest(&latest, folder, err));
    zp_status status = list_steps(&l, folder, err);
    if (status != ZP_OK) {
        mem_free(l.steps);
        return status;
    }
    size_t at = l.n; /* those before it are yet to be tried */
    bool named = bsearch(&latest, l.steps ? l.steps : &latest, l.n, sizeof latest, compare_steps);
    if (latest != UINT64_MAX && !named)
        log_warn("%s: has no step %llu, which `latest` names", folder, (unsigned long long)latest);
    while (named && l.steps[at - 1] > latest) at--; /* never later ones than it names */
    for (; at > 0 && damaged; at--)
        status = try_step(c, folder, l.steps[at - 1], expected, &damaged, &first, err);
    bool none = l.n == 0;
    mem_free(l.steps);
    ZP_FAIL_IF(none, err, ZP_BAD_INPUT, "%s: has no checkpoint (%s*%s); begin a new run in another "
               "folder", folder, PREFIX, SUFFIX);
    ZP_FAIL_IF(status == ZP_BAD_FILE, err, status, "%s; no older checkpoint is whole: begin a new "
               "run in another folder", first.message);
    ZP_FAIL_IF(status != ZP_OK, err, status, "%s", first.message);
    return ZP_OK;
}

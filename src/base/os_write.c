/* os_write.c: files that appear under their name whole or not at all, and what writers that were
 * killed have left.
 * O1 a file written here is complete under its name or not there: bytes go to `path.tmp.<pid>.<n>`
 *    and are renamed.
 * O2 any failure of os_file_* removes the temporary and leaves the old file as it was; the record
 *    is then closed.
 * O4 what a killed process left of a file goes when that file is written again: regular files with
 *    exactly such a name, after an hour without a write.
 * Threads: all functions may be called from any thread; a struct belongs to one thread at a
 * time. */
#include "os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t write_budget = UINT64_MAX; /* test hook: bytes until the disk is full */
static _Atomic uint64_t most_space = UINT64_MAX;   /* test hook: bytes the disk has available */
static atomic_uint temp_number;

void os_fail_writes_after(uint64_t bytes)
{
    atomic_store(&write_budget, bytes);
}

void os_pretend_space(uint64_t bytes)
{
    atomic_store(&most_space, bytes);
}

static bool budget_spent(size_t bytes)
{
    uint64_t left = atomic_load(&write_budget);
    if (left == UINT64_MAX) return false;
    if (left < bytes) return true;
    atomic_store(&write_budget, left - bytes);
    return false;
}

/* Free bytes of the file system that holds the open file, UINT64_MAX if it does not say. */
static uint64_t space_left(int fd)
{
    struct statvfs vfs;
    uint64_t most = atomic_load(&most_space);
    if (fstatvfs(fd, &vfs) != 0 || vfs.f_blocks == 0) return most;
    uint64_t left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    return left < most ? left : most;
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* The path a rename must go to: links are followed, so that writing through one does not replace
 * it, unless that is wanted. */
static zp_status final_path(const char *path, bool over_link, char **out, zp_err *err)
{
    char resolved[PATH_MAX];
    bool link = !over_link && is_link(path) && realpath(path, resolved) != NULL;
    *out = mem_strdup(MEM_META, link ? resolved : path);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for the path", path);
    return ZP_OK;
}

static zp_status check_target(const char *path, bool over_link, mode_t *mode, zp_err *err)
{
    struct stat st;
    *mode = 0;
    size_t length = strlen(path);
    ZP_FAIL_IF(length == 0, err, ZP_BAD_INPUT, "the name of the output file is empty");
    ZP_FAIL_IF(path[length - 1] == '/', err, ZP_BAD_INPUT,
               "%s: names a folder, expected a file name", path);
    if (over_link && is_link(path)) return ZP_OK; /* whatever it leads to */
    bool there = stat(path, &st) == 0;
    ZP_FAIL_IF(!there && errno == ENAMETOOLONG, err, ZP_BAD_INPUT, "%s: cannot be created: %s",
               path, strerror(errno)); /* the temporary name could be */
    if (!there) return ZP_OK;
    ZP_FAIL_IF(S_ISDIR(st.st_mode), err, ZP_BAD_INPUT, "%s: is a folder, expected a file name",
               path);
    ZP_FAIL_IF(!S_ISREG(st.st_mode), err, ZP_BAD_INPUT,
               "%s: is a device, pipe or socket, expected a regular file", path);
    ZP_FAIL_IF(access(path, W_OK) != 0, err, ZP_IO, "%s: the existing file is write-protected: %s",
               path, strerror(errno));
    *mode = st.st_mode & 0777;
    return ZP_OK;
}

/* Bytes of `path` that a temporary name keeps, so that name and suffix together stay a name. */
static size_t temp_stem(const char *path)
{
    enum { MOST = 200 };
    const char *slash = strrchr(path, '/');
    size_t folder = slash == NULL ? 0 : (size_t)(slash + 1 - path), name = strlen(path) - folder;
    return folder + (name > MOST ? utf8_complete_prefix(path + folder, MOST) : name);
}

/* The folder of a path; false if its name is too long. */
static bool folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= PATH_MAX) return false;
    (void)snprintf(folder, PATH_MAX, "%.*s", (int)length, path);
    if (slash == NULL) (void)snprintf(folder, PATH_MAX, ".");
    return true;
}

/* ---- leftovers ---- */

static bool age_at(int folder, const char *name, double *seconds)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) return false;
    *seconds = (double)time(NULL) - (double)st.st_mtim.tv_sec;
    return true;
}

bool os_file_age(const char *path, double *seconds)
{
    return age_at(AT_FDCWD, path, seconds);
}

/* What follows ".tmp.<digits>.<digits>", or NULL. */
static const char *behind_temp(const char *suffix)
{
    static const char digits[] = "0123456789";
    if (strncmp(suffix, ".tmp.", 5) != 0) return NULL;
    size_t pid = strspn(suffix += 5, digits);
    if (pid == 0 || suffix[pid] != '.') return NULL;
    size_t number = strspn(suffix += pid + 1, digits);
    return number == 0 ? NULL : suffix + number;
}

static bool is_leftover_at(int folder, const char *name, const char *suffix)
{
    enum { HOUR = 3600 };
    double age;
    const char *end = behind_temp(suffix);
    /* of a file that os_reserve_beside made */
    if (end != NULL && *end != '\0') end = behind_temp(end);
    return end != NULL && *end == '\0' && age_at(folder, name, &age) && age > HOUR;
}

bool os_is_leftover(const char *path, const char *suffix)
{
    return is_leftover_at(AT_FDCWD, path, suffix);
}

/* O4. A folder that cannot be read keeps what it has. */
static void remove_leftovers(const char *path)
{
    char folder[PATH_MAX];
    DIR *dir = folder_of(path, folder) ? opendir(folder) : NULL;
    if (dir == NULL) return;
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    size_t size = temp_stem(path) - (size_t)(name - path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strncmp(e->d_name, name, size) == 0 &&
            is_leftover_at(dirfd(dir), e->d_name, e->d_name + size))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
}

/* ---- writing ---- */

/* A file beside `path` that is new and ours. */
static zp_status make_temp(const char *path, char **out, int *fd, zp_err *err)
{
    size_t stem = temp_stem(path), size = stem + 48;
    char *temp = mem_alloc(MEM_META, size);
    *out = NULL;
    ZP_FAIL_IF(temp == NULL, err, ZP_NO_MEMORY, "%s: not enough memory to write it", path);
    int code;
    do { /* a name left by a dead process that had our number is passed over */
        unsigned number = atomic_fetch_add(&temp_number, 1);
        (void)snprintf(temp, size, "%.*s.tmp.%ld.%u", (int)stem, path, (long)getpid(), number);
        *fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        code = errno;
    } while (*fd < 0 && code == EEXIST);
    if (*fd >= 0) {
        *out = temp;
        return ZP_OK;
    }
    mem_free(temp);
    ZP_FAIL(err, code == ENOSPC || code == EDQUOT ? ZP_NO_SPACE : os_path_status(code),
            "%s: cannot be created: %s%s", path, strerror(code),
            code == ENOENT ? " (the folder does not exist)" : "");
}

/* Sets f->temp only when the file was made: what is there is ours to remove. */
static zp_status open_temp(struct os_file *f, mode_t mode, zp_err *err)
{
    f->chunk = mem_alloc(MEM_META, OS_FILE_BYTES);
    ZP_FAIL_IF(f->chunk == NULL, err, ZP_NO_MEMORY, "%s: not enough memory to write it", f->path);
    ZP_TRY(make_temp(f->path, &f->temp, &f->fd, err));
    if (mode != 0) (void)fchmod(f->fd, mode); /* a replaced file keeps its permissions */
    return ZP_OK;
}

zp_status os_reserve_beside(const char *path, char **out, zp_err *err)
{
    int fd;
    ZP_TRY(make_temp(path, out, &fd, err));
    close(fd);
    return ZP_OK;
}

static zp_status create(struct os_file *f, const char *path, bool over_link,
                        uint64_t expected_bytes, zp_err *err)
{
    *f = (struct os_file){ .fd = -1 };
    mode_t mode;
    ZP_TRY(check_target(path, over_link, &mode, err));
    ZP_TRY(final_path(path, over_link, &f->path, err));
    remove_leftovers(f->path); /* before the disk is asked for room */
    zp_status status = open_temp(f, mode, err);
    uint64_t available = status == ZP_OK ? space_left(f->fd) : UINT64_MAX;
    struct bytes_text need, have;
    if (status == ZP_OK && expected_bytes > available)
        status = status_fail(err, ZP_NO_SPACE, __FILE__, __LINE__,
                             "%s: %s are needed but the disk has %s available", path,
                             bytes_in_words(expected_bytes, &need),
                             bytes_in_words(available, &have));
    if (status != ZP_OK) os_file_abort(f); // O2
    return status;
}

zp_status os_file_create(struct os_file *f, const char *path, uint64_t expected_bytes, zp_err *err)
{
    return create(f, path, false, expected_bytes, err);
}

zp_status os_file_create_over_link(struct os_file *f, const char *path, uint64_t expected_bytes,
                                   zp_err *err)
{
    return create(f, path, true, expected_bytes, err);
}

static zp_status write_failed(struct os_file *f, int code, size_t missing, zp_err *err)
{
    zp_status status;
    struct bytes_text text[3];
    if (code == ENOSPC || code == EDQUOT)
        status = status_fail(
            err, ZP_NO_SPACE, __FILE__, __LINE__,
            "%s: the disk is full: at least %s more are needed after %s, %s available; the partial "
            "file is removed",
            f->path, bytes_in_words(missing, &text[0]), bytes_in_words(f->at, &text[1]),
            bytes_in_words(space_left(f->fd), &text[2]));
    else
        status =
            status_fail(err, ZP_IO, __FILE__, __LINE__, "%s: writing fails after %llu bytes: %s",
                        f->path, (unsigned long long)f->at, strerror(code));
    os_file_abort(f); // O2
    return status;
}

static zp_status write_bytes(struct os_file *f, const uint8_t *data, size_t size, zp_err *err)
{
    while (size != 0) {
        if (budget_spent(size)) return write_failed(f, ENOSPC, size, err);
        ssize_t done = write(f->fd, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return write_failed(f, errno, size, err);
        data += done;
        size -= (size_t)done;
        f->at += (uint64_t)done;
    }
    return ZP_OK;
}

static zp_status flush_chunk(struct os_file *f, zp_err *err)
{
    size_t used = f->used;
    f->used = 0;
    return write_bytes(f, f->chunk, used, err);
}

zp_status os_file_write(struct os_file *f, const void *data, size_t size, zp_err *err)
{
    ZP_FAIL_IF(f->fd < 0 || f->temp == NULL, err, ZP_RUN, "writing to a file that is not open");
    if (size >= OS_FILE_BYTES - f->used) ZP_TRY(flush_chunk(f, err));
    if (size >= OS_FILE_BYTES) return write_bytes(f, data, size, err);
    if (size != 0) memcpy(f->chunk + f->used, data, size);
    f->used += size;
    return ZP_OK;
}

/* Makes the rename itself durable. Some file systems cannot sync a folder; the data are safe
 * without it. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    if (!folder_of(path, folder)) return;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

zp_status os_file_finish(struct os_file *f, zp_err *err)
{
    ZP_FAIL_IF(f->fd < 0 || f->temp == NULL, err, ZP_RUN, "finishing a file that is not open");
    ZP_TRY(flush_chunk(f, err));
    if (!f->unsynced && fsync(f->fd) != 0) return write_failed(f, errno, 0, err);
    int code = close(f->fd) == 0 ? 0 : errno;
    f->fd = -1;
    return code == 0 ? ZP_OK : write_failed(f, code, 0, err);
}

zp_status os_file_commit(struct os_file *f, zp_err *err)
{
    if (f->fd >= 0 || f->temp == NULL) ZP_TRY(os_file_finish(f, err));
    if (rename(f->temp, f->path) != 0) return write_failed(f, errno, 0, err);
    if (!f->unsynced) sync_folder(f->path);
    mem_free(f->temp);
    f->temp = NULL; /* nothing left to remove */
    os_file_abort(f);
    return ZP_OK;
}

void os_file_abort(struct os_file *f)
{
    /* A zero-initialised record has fd 0, which is not ours: the path tells whether anything was
     * opened. */
    if (f->path != NULL && f->fd >= 0) close(f->fd);
    if (f->temp != NULL) unlink(f->temp);
    mem_free(f->temp);
    mem_free(f->path);
    mem_free(f->chunk);
    *f = (struct os_file){ .fd = -1 };
}

/* ---- one process at a time ---- */

static void note_holder(int fd)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) return; /* only for words */
}

static long holder_of(int fd)
{
    char text[24] = { 0 };
    return pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

zp_status os_lock(struct os_lock *lock, const char *path, zp_err *err)
{
    *lock = (struct os_lock){ open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) };
    ZP_FAIL_IF(lock->fd < 0, err, errno == ENOSPC || errno == EDQUOT ? ZP_NO_SPACE
                                                                     : os_path_status(errno),
               "%s: cannot be opened for writing: %s", path, strerror(errno));
    if (flock(lock->fd, LOCK_EX | LOCK_NB) == 0) {
        note_holder(lock->fd);
        return ZP_OK;
    }
    bool held = errno == EWOULDBLOCK;
    long holder = holder_of(lock->fd);
    os_unlock(lock);
    ZP_FAIL_IF(held && holder == 0, err, ZP_RUN, "%s: in use by another process", path);
    ZP_FAIL_IF(held, err, ZP_RUN, "%s: in use by another process (%ld)", path, holder);
    return ZP_OK;
}

void os_unlock(struct os_lock *lock)
{
    if (lock->fd >= 0) close(lock->fd);
    lock->fd = -1;
}

zp_status os_write_file(const char *path, const void *data, size_t size, zp_err *err)
{
    struct os_file f;
    ZP_TRY(os_file_create(&f, path, size, err));
    ZP_TRY(os_file_write(&f, data, size, err));
    return os_file_commit(&f, err);
}

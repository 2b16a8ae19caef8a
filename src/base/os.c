/* os.c: files, mappings, clock, processors, memory limits: the POSIX of the library beside pool.c.
 * O1 a file written here is complete under its name or not there: bytes go to `path.tmp.<pid>.<n>`
 *    and are renamed.
 * O2 any failure of os_file_* removes the temporary and leaves the old file as it was; the record
 *    is then closed.
 * O3 a wait for data broken by a signal ends with ZP_INTERRUPTED, so that Ctrl-C works while
 *    waiting for a pipe, whether its handler was installed with SA_RESTART or not.
 * Threads: all functions may be called from any thread; a struct belongs to one thread at a
 * time. */
#include "os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)1 << 20)
#define READ_BYTES ((size_t)64 << 10)
#define MAX_DEPTH 32

/* ---- reading ---- */

/* A path that names nothing readable is wrong input; a device that fails is an input/output
 * error. */
static zp_status path_status(int code)
{
    bool wrong_path = code == ENOENT || code == ENOTDIR || code == ENAMETOOLONG || code == ELOOP ||
                      code == EISDIR;
    return wrong_path ? ZP_BAD_INPUT : ZP_IO;
}

static zp_status open_regular(const char *path, int *fd, struct stat *st, zp_err *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its writer before it is refused. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ZP_FAIL_IF(opened < 0, err, path_status(errno), "%s: cannot be opened: %s", path,
               strerror(errno));
    int code = fstat(opened, st) == 0 ? 0 : errno;
    if (code == 0 && S_ISREG(st->st_mode)) {
        *fd = opened;
        return ZP_OK;
    }
    close(opened);
    ZP_FAIL_IF(code != 0, err, ZP_IO, "%s: %s", path, strerror(code));
    ZP_FAIL(err, ZP_BAD_INPUT, "%s: is a %s, expected a regular file", path,
            S_ISDIR(st->st_mode) ? "folder" : "device, pipe or socket");
}

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

zp_status os_map_file(struct os_map *map, const char *path, zp_err *err)
{
    *map = (struct os_map){ 0 };
    int fd;
    struct stat st;
    ZP_TRY(open_regular(path, &fd, &st, err));
    void *data = MAP_FAILED;
    uint64_t size = (uint64_t)st.st_size;
    int code = 0;
    if (size != 0 && size <= SIZE_MAX / 2) {
        data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        code = errno;
    }
    close(fd);
    ZP_FAIL_IF(size == 0, err, ZP_BAD_FILE, "%s: is empty (0 bytes): the download may have failed",
               path);
    ZP_FAIL_IF(data == MAP_FAILED, err, code == ENOMEM ? ZP_NO_MEMORY : ZP_IO,
               "%s: cannot be mapped: %s", path, strerror(code));
    *map = (struct os_map){ .data = data,
                            .size = (size_t)size,
                            .modified = nanoseconds(st.st_mtim),
                            .changed = nanoseconds(st.st_ctim) };
    return ZP_OK;
}

void os_unmap(struct os_map *map)
{
    if (map->data != NULL) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct os_map){ 0 };
}

void os_map_huge(const struct os_map *map)
{
    (void)madvise((void *)(uintptr_t)map->data, map->size, MADV_HUGEPAGE);
}

void os_map_drop(const struct os_map *map, size_t offset, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (map->data == NULL || offset >= map->size) return;
    size_t end = size > map->size - offset ? map->size : offset + size;
    /* Only whole pages inside the range; its ends may be shared with a neighbour still in use. */
    size_t begin = (offset + page - 1) / page * page;
    if (end != map->size) end = end / page * page;
    if (begin < end)
        (void)madvise((void *)(uintptr_t)(map->data + begin), end - begin, MADV_DONTNEED);
}

bool os_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool os_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

zp_status os_file_size(const char *path, uint64_t *size, zp_err *err)
{
    int fd;
    struct stat st;
    ZP_TRY(open_regular(path, &fd, &st, err));
    close(fd);
    *size = (uint64_t)st.st_size;
    return ZP_OK;
}

/* Waits for data in poll, which a signal ends whatever its handler's flags are (O3). Returns what
 * read returns. */
static ssize_t read_piece(int fd, uint8_t *piece)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    if (poll(&wait, 1, -1) < 0) return -1;
    return read(fd, piece, READ_BYTES);
}

static zp_status read_all(int fd, const char *path, struct buffer *out, zp_err *err)
{
    uint8_t *piece = mem_alloc(out->tag, READ_BYTES);
    ZP_FAIL_IF(piece == NULL, err, ZP_NO_MEMORY, "%s: not enough memory to read it", path);
    zp_status status = ZP_OK;
    for (;;) {
        ssize_t got = read_piece(fd, piece);
        int code = errno;
        if (got == 0) break;
        if (got < 0) {
            status = status_fail(err, code == EINTR ? ZP_INTERRUPTED : path_status(code), __FILE__,
                                 __LINE__, "%s: cannot be read: %s", path,
                                 code == EINTR ? "interrupted" : strerror(code)); // O3
            break;
        }
        if ((size_t)got > out->max - out->size)
            status = status_fail(err, ZP_BAD_INPUT, __FILE__, __LINE__,
                                 "%s: is longer than the limit of %zu bytes", path, out->max);
        else status = buffer_append(out, piece, (size_t)got, err);
        if (status != ZP_OK) break;
    }
    mem_free(piece);
    return status;
}

zp_status os_read_file(const char *path, struct buffer *out, zp_err *err)
{
    ZP_TRY(buffer_append(out, "", 0, err)); /* an empty file is an empty text, not NULL */
    if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, "standard input", out, err);
    /* O_NONBLOCK: the wait for the writer of a FIFO is in read_piece, where a signal ends it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ZP_FAIL_IF(fd < 0, err, path_status(errno), "%s: cannot be opened: %s", path, strerror(errno));
    (void)fcntl(fd, F_SETFL, O_RDONLY);
    zp_status status = read_all(fd, path, out, err);
    close(fd);
    return status;
}

zp_status os_read_regular(const char *path, struct buffer *out, zp_err *err)
{
    int fd;
    struct stat st;
    ZP_TRY(buffer_append(out, "", 0, err));
    ZP_TRY(open_regular(path, &fd, &st, err));
    zp_status status = read_all(fd, path, out, err);
    close(fd);
    return status;
}

/* ---- which file a path names ---- */

struct place {
    dev_t dev;
    ino_t ino;
    const char *name; /* in that folder; NULL: the file itself */
    size_t size;      /* of the name */
};

/* What is not there yet is its folder and its name; links are followed as far as they lead. */
static bool find_place(const char *path, struct place *out)
{
    struct stat st;
    char folder[PATH_MAX];
    bool there = stat(path, &st) == 0;
    size_t end = strlen(path), slash;
    *out = (struct place){ 0 };
    if (!there) {
        while (end > 1 && path[end - 1] == '/') end--;
        for (slash = end; slash > 0 && path[slash - 1] != '/';) slash--;
        if (slash >= sizeof folder) return false;
        (void)snprintf(folder, sizeof folder, "%.*s", (int)slash, slash == 0 ? "." : path);
        if (stat(slash == 0 ? "." : folder, &st) != 0) return false;
        out->name = path + slash;
        out->size = end - slash;
    }
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    return true;
}

bool os_same_file(const char *a, const char *b)
{
    struct place x, y;
    if (strcmp(a, b) == 0) return true;
    if (!find_place(a, &x) || !find_place(b, &y)) return false;
    if (x.dev != y.dev || x.ino != y.ino || (x.name == NULL) != (y.name == NULL)) return false;
    return x.name == NULL || (x.size == y.size && memcmp(x.name, y.name, x.size) == 0);
}

zp_status os_stamp_of(const char *path, struct os_stamp *out, zp_err *err)
{
    struct stat st;
    ZP_FAIL_IF(stat(path, &st) != 0, err, ZP_BAD_INPUT, "%s: cannot be opened: %s", path,
               strerror(errno));
    *out = (struct os_stamp){ (uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
                              st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
    return ZP_OK;
}

void os_touch(const char *path)
{
    (void)utimensat(AT_FDCWD, path, NULL, 0);
}

bool os_real_path(const char *path, char *out, size_t room)
{
    char real[PATH_MAX];
    if (realpath(path, real) == NULL || strlen(real) >= room) return false;
    (void)snprintf(out, room, "%s", real);
    return true;
}

bool os_stamp_equal(const struct os_stamp *a, const struct os_stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

/* Leaves the folder above: "a/b/" becomes "a/", "a" becomes ".". */
static void cut_last_name(char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    while (end > 0 && path[end - 1] != '/') end--;
    (void)snprintf(path + end, 2, "%s", end == 0 ? "." : "");
}

bool os_is_below(const char *path, const char *folder)
{
    char above[PATH_MAX], real[PATH_MAX], root[PATH_MAX];
    size_t size = strlen(path);
    if (!os_is_folder(folder) || realpath(folder, root) == NULL || size + 1 >= sizeof above)
        return false;
    memcpy(above, path, size + 1);
    bool there = realpath(path, real) != NULL;
    while (!there && realpath(above, real) == NULL) {
        if (strcmp(above, ".") == 0 || strcmp(above, "/") == 0) return false;
        cut_last_name(above);
    }
    size = strlen(root);
    if (strncmp(real, root, size) != 0) return false;
    return real[size] == '/' || size == 1 || (!there && real[size] == '\0');
}

/* ---- folders ---- */

static zp_status make_folder(const char *path, zp_err *err)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && os_is_folder(path))) return ZP_OK;
    int code = errno;
    ZP_FAIL_IF(code == EEXIST || code == ENOTDIR, err, ZP_BAD_INPUT,
               "%s: cannot be made: there is a file where a folder is needed", path);
    ZP_FAIL(err, code == ENOSPC || code == EDQUOT ? ZP_NO_SPACE : ZP_IO,
            "%s: the folder cannot be made: %s", path, strerror(code));
}

zp_status os_make_folders(const char *path, zp_err *err)
{
    char *part = mem_strdup(MEM_META, path);
    ZP_FAIL_IF(part == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for the path", path);
    zp_status status = ZP_OK;
    for (char *slash = strchr(part + (*part == '/'), '/'); slash != NULL && status == ZP_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!os_is_folder(part)) status = make_folder(part, err);
        *slash = '/';
    }
    if (status == ZP_OK && !os_is_folder(part)) status = make_folder(part, err);
    mem_free(part);
    return status;
}

struct name_list {
    char **names;
    size_t count, room;
};

static zp_status keep_name(struct name_list *list, char *name, zp_err *err)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 64 : list->room * 2;
        char **names = mem_resize(MEM_META, list->names, room * sizeof *names);
        if (names == NULL) mem_free(name);
        ZP_FAIL_IF(names == NULL, err, ZP_NO_MEMORY,
                   "not enough memory for a list of %zu file names", room);
        list->names = names;
        list->room = room;
    }
    list->names[list->count++] = name;
    return ZP_OK;
}

static zp_status list_below(const char *folder, int depth, struct name_list *list, zp_err *err);

static zp_status list_entry(const char *folder, const char *entry, int depth,
                            struct name_list *list, zp_err *err)
{
    if (strcmp(entry, ".") == 0 || strcmp(entry, "..") == 0) return ZP_OK;
    size_t size = strlen(folder) + strlen(entry) + 2;
    char *path = mem_alloc(MEM_META, size);
    ZP_FAIL_IF(path == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for a file name", folder);
    (void)snprintf(path, size, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/",
                   entry);
    struct stat direct, target;
    /* Links to files count (model caches use them), links to folders do not: they could form a
     * circle. */
    bool known = lstat(path, &direct) == 0 && stat(path, &target) == 0;
    if (known && S_ISREG(target.st_mode)) return keep_name(list, path, err);
    zp_status status = ZP_OK;
    if (known && S_ISDIR(direct.st_mode)) status = list_below(path, depth + 1, list, err);
    mem_free(path);
    return status;
}

static zp_status list_below(const char *folder, int depth, struct name_list *list, zp_err *err)
{
    ZP_FAIL_IF(depth > MAX_DEPTH, err, ZP_BAD_INPUT, "%s: folders nest deeper than %d", folder,
               MAX_DEPTH);
    DIR *dir = opendir(folder);
    ZP_FAIL_IF(dir == NULL, err, path_status(errno), "%s: the folder cannot be read: %s", folder,
               strerror(errno));
    zp_status status = ZP_OK;
    for (struct dirent *e; status == ZP_OK && (e = readdir(dir)) != NULL;)
        status = list_entry(folder, e->d_name, depth, list, err);
    closedir(dir);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

zp_status os_list_files(const char *folder, char ***names, size_t *count, zp_err *err)
{
    struct name_list list = { 0 };
    *names = NULL;
    *count = 0;
    ZP_FAIL_IF(*folder == '\0', err, ZP_BAD_INPUT, "the name of the folder is empty");
    zp_status status = list_below(folder, 0, &list, err);
    if (status != ZP_OK) {
        os_list_free(list.names, list.count);
        return status;
    }
    if (list.count != 0) qsort(list.names, list.count, sizeof *list.names, by_name);
    *names = list.names;
    *count = list.count;
    return ZP_OK;
}

zp_status os_each_entry(const char *folder, void (*each)(void *arg, const char *name), void *arg,
                        zp_err *err)
{
    DIR *dir = opendir(folder);
    ZP_FAIL_IF(dir == NULL, err, path_status(errno), "%s: the folder cannot be read: %s", folder,
               strerror(errno));
    for (struct dirent *e; (e = readdir(dir)) != NULL;) each(arg, e->d_name);
    closedir(dir);
    return ZP_OK;
}

struct search {
    bool (*wanted)(const char *name);
    char *name;
    size_t room;
};

static void take_first(void *arg, const char *name)
{
    struct search *s = arg;
    if (s->name[0] == '\0' && s->wanted(name)) (void)snprintf(s->name, s->room, "%s", name);
}

zp_status os_find_entry(const char *folder, bool (*wanted)(const char *name), char *name,
                        size_t room, zp_err *err)
{
    struct search s = { wanted, name, room };
    name[0] = '\0';
    return os_each_entry(folder, take_first, &s, err);
}

void os_list_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) mem_free(names[i]);
    mem_free(names);
}

/* ---- atomic writing ---- */

static _Atomic uint64_t write_budget = UINT64_MAX; /* test hook: bytes until the disk is full */
static atomic_uint temp_number;

void os_fail_writes_after(uint64_t bytes)
{
    atomic_store(&write_budget, bytes);
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
    if (fstatvfs(fd, &vfs) != 0 || vfs.f_blocks == 0) return UINT64_MAX;
    return (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

/* The path a rename must go to: links are followed, so that writing through one does not replace
 * it. */
static zp_status final_path(const char *path, char **out, zp_err *err)
{
    char resolved[PATH_MAX];
    struct stat st;
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && realpath(path, resolved) != NULL;
    *out = mem_strdup(MEM_META, link ? resolved : path);
    ZP_FAIL_IF(*out == NULL, err, ZP_NO_MEMORY, "%s: not enough memory for the path", path);
    return ZP_OK;
}

static zp_status check_target(const char *path, mode_t *mode, zp_err *err)
{
    struct stat st;
    *mode = 0;
    size_t length = strlen(path);
    ZP_FAIL_IF(length == 0, err, ZP_BAD_INPUT, "the name of the output file is empty");
    ZP_FAIL_IF(path[length - 1] == '/', err, ZP_BAD_INPUT,
               "%s: names a folder, expected a file name", path);
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
    ZP_FAIL(err, code == ENOSPC || code == EDQUOT ? ZP_NO_SPACE : path_status(code),
            "%s: cannot be created: %s%s", path, strerror(code),
            code == ENOENT ? " (the folder does not exist)" : "");
}

/* Sets f->temp only when the file was made: what is there is ours to remove. */
static zp_status open_temp(struct os_file *f, mode_t mode, zp_err *err)
{
    f->chunk = mem_alloc(MEM_META, CHUNK_BYTES);
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

zp_status os_file_create(struct os_file *f, const char *path, uint64_t expected_bytes, zp_err *err)
{
    *f = (struct os_file){ .fd = -1 };
    mode_t mode;
    ZP_TRY(check_target(path, &mode, err));
    ZP_TRY(final_path(path, &f->path, err));
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
    if (size >= CHUNK_BYTES - f->used) ZP_TRY(flush_chunk(f, err));
    if (size >= CHUNK_BYTES) return write_bytes(f, data, size, err);
    if (size != 0) memcpy(f->chunk + f->used, data, size);
    f->used += size;
    return ZP_OK;
}

/* Makes the rename itself durable. Some file systems cannot sync a folder; the data are safe
 * without it. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        size_t length = slash == path ? 1 : (size_t)(slash - path);
        if (length >= sizeof folder) return;
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
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

zp_status os_write_file(const char *path, const void *data, size_t size, zp_err *err)
{
    struct os_file f;
    ZP_TRY(os_file_create(&f, path, size, err));
    ZP_TRY(os_file_write(&f, data, size, err));
    return os_file_commit(&f, err);
}

/* ---- clock, processors, memory ---- */

static double seconds_of(struct timespec t)
{
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double os_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return seconds_of(t);
}

double os_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return seconds_of(t);
}

double os_seconds_since(int64_t moment)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return 1e-9 * (double)(nanoseconds(t) - moment);
}

uint64_t os_page_faults(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_minflt : 0;
}

/* Reads a small system file whole; false if it is missing or does not fit. */
static bool read_small(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t used = 0;
    ssize_t got = 0;
    while (used < room - 1 && (got = read(fd, text + used, room - 1 - used)) > 0)
        used += (size_t)got;
    close(fd);
    text[used] = '\0';
    return got >= 0;
}

/* The number after `key` at the beginning of a line, e.g. "MemAvailable:"; false if there is
 * none. */
static bool find_number(const char *text, const char *key, uint64_t *out)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        char *end;
        *out = strtoull(line + length, &end, 10);
        return end != line + length;
    }
    return false;
}

uint64_t os_rss_bytes(void)
{
    char text[128];
    if (!read_small("/proc/self/statm", text, sizeof text)) return 0;
    char *end;
    (void)strtoull(text, &end, 10);
    return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t os_peak_rss_bytes(void)
{
    char text[8192];
    uint64_t kib;
    if (read_small("/proc/self/status", text, sizeof text) && find_number(text, "VmHWM:", &kib))
        return kib * 1024;
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* What the control group at `folder` still lets us take: limit - use + file cache that can be
 * dropped. */
static uint64_t cgroup_left(const char *folder, const char *limit_name, const char *use_name)
{
    char path[PATH_MAX + 64], text[8192];
    uint64_t limit, use, cache = 0, part;
    (void)snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    if (!read_small(path, text, sizeof text) || !find_number(text, "", &limit))
        return UINT64_MAX; /* "max" */
    (void)snprintf(path, sizeof path, "%s/%s", folder, use_name);
    if (!read_small(path, text, sizeof text) || !find_number(text, "", &use)) return UINT64_MAX;
    (void)snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (read_small(path, text, sizeof text)) {
        if (find_number(text, "inactive_file ", &part)) cache += part;
        if (find_number(text, "active_file ", &part)) cache += part;
    }
    if (cache > use) cache = use;
    return limit > use - cache ? limit - (use - cache) : 0;
}

/* The tightest group from our own up to the root (cgroup v2), or the v1 memory controller of a
 * container. */
static uint64_t cgroups_left(void)
{
    char text[PATH_MAX], folder[PATH_MAX + 32];
    uint64_t left =
        cgroup_left("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
    const char *own =
        read_small("/proc/self/cgroup", text, sizeof text) ? strstr(text, "0::/") : NULL;
    own = own == NULL ? "" : own + strlen("0::");
    (void)snprintf(folder, sizeof folder, "/sys/fs/cgroup%.*s", (int)strcspn(own, "\n"), own);
    for (;;) {
        uint64_t here = cgroup_left(folder, "memory.max", "memory.current");
        if (here < left) left = here;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || strcmp(folder, "/sys/fs/cgroup") == 0) return left;
        *slash = '\0';
    }
}

uint64_t os_memory_available(void)
{
    char text[8192];
    uint64_t kib, left = cgroups_left();
    if (read_small("/proc/meminfo", text, sizeof text) &&
        find_number(text, "MemAvailable:", &kib) && kib * 1024 < left)
        left = kib * 1024;
    return left;
}

bool os_cpu_leads_core(size_t cpu)
{
    char path[96], text[256];
    (void)snprintf(path, sizeof path,
                   "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
    return !read_small(path, text, sizeof text) || strtoul(text, NULL, 10) == cpu;
}

/* Whole processors that the control group grants: at least 1. */
static uint32_t quota(void)
{
    char text[128], *end;
    if (!read_small("/sys/fs/cgroup/cpu.max", text, sizeof text)) return UINT32_MAX;
    uint64_t share = strtoull(text, &end, 10); /* "quota period" or "max period" */
    uint64_t period = end == text ? 0 : strtoull(end, NULL, 10);
    uint64_t whole = period == 0 ? 0 : (share + period - 1) / period;
    return whole == 0 || whole > UINT32_MAX ? UINT32_MAX : (uint32_t)whole;
}

struct cpus {
    uint32_t n, cores;
};

static struct cpus count_cpus(void)
{
    struct cpus c = { 0, 0 };
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) continue;
        c.n++;
        c.cores += os_cpu_leads_core(cpu);
    }
    uint32_t most = quota();
    if (c.n == 0) c.n = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (c.cores == 0) c.cores = c.n; /* only second hardware threads are allowed */
    return (struct cpus){ c.n < most ? c.n : most, c.cores < most ? c.cores : most };
}

/* Remembered: after pool_pin the calling thread itself may use one processor only. */
static struct cpus cpus(void)
{
    static _Atomic uint32_t n, cores;
    struct cpus c = { atomic_load(&n), atomic_load(&cores) };
    if (c.n != 0 && c.cores != 0) return c;
    c = count_cpus();
    atomic_store(&cores, c.cores);
    atomic_store(&n, c.n);
    return c;
}

uint32_t os_cpu_count(void)
{
    return cpus().n;
}

uint32_t os_core_count(void)
{
    return cpus().cores;
}

double os_load_average(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : 0.0;
}

const char *os_cpu_model(char *out, size_t size)
{
    char text[4096];
    const char *line = NULL;
    if (read_small("/proc/cpuinfo", text, sizeof text)) line = strstr(text, "model name");
    if (line != NULL) line = strchr(line, ':');
    if (line == NULL) (void)snprintf(out, size, "unknown processor");
    else (void)snprintf(out, size, "%.*s", (int)strcspn(line + 2, "\n"), line + 2);
    return out;
}

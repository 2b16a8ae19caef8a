/* os.c: reading files, mappings, folders, clock, processors, memory limits: with os_write.c and
 * pool.c the POSIX of the library.
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
#include <time.h>
#include <unistd.h>

#define READ_BYTES ((size_t)64 << 10)
#define MAX_DEPTH 32

/* ---- reading ---- */

zp_status os_path_status(int code)
{
    bool wrong_path = code == ENOENT || code == ENOTDIR || code == ENAMETOOLONG || code == ELOOP ||
                      code == EISDIR;
    return wrong_path ? ZP_BAD_INPUT : ZP_IO;
}

static zp_status open_regular(const char *path, int *fd, struct stat *st, zp_err *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its writer before it is refused. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ZP_FAIL_IF(opened < 0, err, os_path_status(errno), "%s: cannot be opened: %s", path,
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
    ZP_FAIL_IF(size == 0, err, ZP_BAD_FILE, "%s: is empty (0 bytes)", path);
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
            status = status_fail(err, code == EINTR ? ZP_INTERRUPTED : os_path_status(code),
                                 __FILE__, __LINE__, "%s: cannot be read: %s", path,
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
    ZP_FAIL_IF(fd < 0, err, os_path_status(errno), "%s: cannot be opened: %s", path,
               strerror(errno));
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
    (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
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
    ZP_FAIL_IF(dir == NULL, err, os_path_status(errno), "%s: the folder cannot be read: %s", folder,
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
    ZP_FAIL_IF(dir == NULL, err, os_path_status(errno), "%s: the folder cannot be read: %s", folder,
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

int64_t os_unix_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return nanoseconds(t);
}

double os_seconds_since(int64_t moment)
{
    return 1e-9 * (double)(os_unix_now() - moment);
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

uint64_t os_virtual_bytes(void)
{
    char text[128];
    if (!read_small("/proc/self/statm", text, sizeof text)) return 0;
    return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void count_entry(void *arg, const char *name)
{
    if (name[0] != '.') ++*(uint64_t *)arg;
}

uint64_t os_open_files(void)
{
    uint64_t n = 0;
    if (os_each_entry("/proc/self/fd", count_entry, &n, NULL) != ZP_OK) return 0;
    return n - 1; /* without the one that reads the folder */
}

uint64_t os_most_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit.rlim_cur;
}

/* Field 22 of /proc/self/stat: clock ticks from boot to start. Field 2 is a name in brackets that
 * may hold blanks and brackets. */
double os_start_seconds(void)
{
    char text[4096];
    struct timespec t;
    if (!read_small("/proc/self/stat", text, sizeof text)) return 0;
    const char *field = strrchr(text, ')');
    for (int i = 2; i < 22 && field != NULL; i++) field = strchr(field + 1, ' ');
    if (field == NULL || clock_gettime(CLOCK_BOOTTIME, &t) != 0) return 0;
    double ticks = (double)strtoull(field, NULL, 10), hz = (double)sysconf(_SC_CLK_TCK);
    return 1e-9 * (double)os_unix_now() - (seconds_of(t) - ticks / hz);
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

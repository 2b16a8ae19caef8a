/* os.h: files, mappings, clock, processors. With pool.c and lock.h the only user of POSIX. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bytes.h"
#include "status.h"

struct os_map {
    const uint8_t *data;
    size_t size;
    /* Last change of the bytes; of bytes, name or rights (no program can set that one), as they
     * were when it was mapped: nanoseconds since 1970. */
    int64_t modified, changed;
};
/* Maps a regular file read-only. Folder, missing, empty (ZP_BAD_FILE) or unreadable: error that
 * says which. */
zp_status os_map_file(struct os_map *map, const char *path, zp_err *err);
void os_unmap(struct os_map *map);
/* advise: in large pages, where the file system has them */
void os_map_huge(const struct os_map *map);
/* advise: pages no longer needed */
void os_map_drop(const struct os_map *map, size_t offset, size_t size);

/* Status of a path that could not be opened, by errno: one that names nothing readable is wrong
 * input; a device that fails is an input/output error. */
zp_status os_path_status(int code);
bool os_is_folder(const char *path);
bool os_exists(const char *path);
zp_status os_file_size(const char *path, uint64_t *size, zp_err *err);
zp_status os_make_folders(const char *path, zp_err *err);             /* like mkdir -p */
/* Sorted paths ("folder/sub/name") of the regular files below a folder, links to folders not
 * followed; free with os_list_free. */
zp_status os_list_files(const char *folder, char ***names, size_t *count, zp_err *err);
void os_list_free(char **names, size_t count);
/* path "-" reads stdin; limit = out->max. Waits for pipes; a signal ends the wait:
 * ZP_INTERRUPTED. */
zp_status os_read_file(const char *path, struct buffer *out, zp_err *err);
/* The same for what must be a regular file: a pipe or device is refused at once. */
zp_status os_read_regular(const char *path, struct buffer *out, zp_err *err);

/* Whether both paths lead to one file, links followed. What is not there yet is known by its folder
 * and name. */
bool os_same_file(const char *a, const char *b);
/* What tells one state of a file from another: replaced or written to, it has a new one. */
struct os_stamp {
    uint64_t dev, ino, size;
    int64_t seconds, nanoseconds; /* of the last change */
};
zp_status os_stamp_of(const char *path, struct os_stamp *out, zp_err *err);
bool os_stamp_equal(const struct os_stamp *a, const struct os_stamp *b);
/* Whether the path, links followed, lies in the folder or deeper. What is not there yet lies where
 * the nearest folder above it does. */
bool os_is_below(const char *path, const char *folder);
/* Sets its time of change to now, where that is allowed; of a link, its own. */
void os_touch(const char *path);
/* Links followed to the end; false if there is nothing of that path, or no room for it. */
bool os_real_path(const char *path, char *out, size_t room);
/* Names of a folder's entries as the system gives them, "." and ".." among them. */
zp_status os_each_entry(const char *folder, void (*each)(void *arg, const char *name), void *arg,
                        zp_err *err);
/* Name of an entry of the folder that is wanted, "" if there is none. */
zp_status os_find_entry(const char *folder, bool (*wanted)(const char *name), char *name,
                        size_t room, zp_err *err);

/* Atomic writing (I4): bytes go to a temporary name in the same folder; commit = fsync + rename +
 * fsync of the folder.
 * os_file_create also removes what killed processes have left of this file.
 * os_file_abort (also after an error) removes the temporary. ENOSPC -> ZP_NO_SPACE with needed and
 * available. */
#define OS_FILE_BYTES ((size_t)1 << 20) /* of memory, under MEM_META, while one is open */
struct os_file {
    int fd;
    char *path, *temp;
    uint64_t at;
    uint8_t *chunk;
    size_t used;
    /* Set after os_file_create: no wait for the disk. Without power the file may be torn under its
     * name: only for files whose readers check each byte and can do without. */
    bool unsynced;
};
zp_status os_file_create(struct os_file *f, const char *path, uint64_t expected_bytes, zp_err *err);
/* Where the path is a link, the link itself is replaced, and what it leads to stays as it is: for
 * names that nobody but the program chose. */
zp_status os_file_create_over_link(struct os_file *f, const char *path, uint64_t expected_bytes,
                                   zp_err *err);
zp_status os_file_write(struct os_file *f, const void *data, size_t size, zp_err *err);
/* Optional, before the commit: all bytes are on the disk under f->temp and can be read there. */
zp_status os_file_finish(struct os_file *f, zp_err *err);
zp_status os_file_commit(struct os_file *f, zp_err *err);
void os_file_abort(struct os_file *f);
/* Name of a new empty file beside `path` that nobody else uses; released with mem_free, and the
 * file with remove. */
zp_status os_reserve_beside(const char *path, char **out, zp_err *err);
/* Seconds since the last write to a regular file; false for anything else, links among it. */
bool os_file_age(const char *path, double *seconds);
/* Whether a path is the temporary file of a writer that was killed: `suffix`, what follows the name
 * of the file to be written, says so, and a regular file that nobody wrote to for an hour. */
bool os_is_leftover(const char *path, const char *suffix);
/* A file that one process at a time holds: it is made where it is not there, stays, and is free
 * again when os_unlock is called or the process has ended. Held by another: ZP_RUN, which names its
 * process. Where the file system has no locks nothing is held. */
struct os_lock {
    int fd; /* -1: nothing is held */
};
zp_status os_lock(struct os_lock *lock, const char *path, zp_err *err);
void os_unlock(struct os_lock *lock); /* {-1} is fine */
/* Test hook: the next writes fail with ENOSPC after this many bytes (UINT64_MAX = off). */
void os_fail_writes_after(uint64_t bytes);
/* Test hook: no disk has more bytes available than this (UINT64_MAX = off). */
void os_pretend_space(uint64_t bytes);
/* Convenience: whole file at once, atomically. */
zp_status os_write_file(const char *path, const void *data, size_t size, zp_err *err);

double os_now(void);                         /* seconds, monotonic */
double os_seconds_since(int64_t moment);     /* wall clock; moment: nanoseconds since 1970 */
int64_t os_unix_now(void);                   /* wall clock, nanoseconds since 1970 */
double os_cpu_seconds(void);                 /* user + system time of the process */
uint64_t os_page_faults(void);               /* of the process, without those that read a disk */
uint64_t os_rss_bytes(void);
uint64_t os_peak_rss_bytes(void);
uint64_t os_virtual_bytes(void);
uint64_t os_open_files(void);                /* descriptors of the process */
uint64_t os_most_files(void);                /* it may have; UINT64_MAX: no limit */
double os_start_seconds(void);               /* when the process began, since 1970; 0: unknown */
uint64_t os_memory_available(void);          /* bytes, cgroup limit respected */
uint32_t os_cpu_count(void);                 /* processors this process may run on */
uint32_t os_core_count(void);                /* cores among them: hardware threads counted once */
/* True if it is the first of the hardware threads of its core, or if that is unknown. */
bool os_cpu_leads_core(size_t cpu);
double os_load_average(void);
const char *os_cpu_model(char *out, size_t size);
/* Folder for cached files: $XDG_CACHE_HOME/zerope or ~/.cache/zerope is decided by the CLI, not
 * here. */

#endif

/* notify.c: one datagram to the service manager's socket, without libsystemd. */
#include "notify.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MOST 512

/* A reload is announced with its time, so that the READY behind it is told from older ones. */
static int write_state(enum notify_state state, char *out, size_t room)
{
    struct timespec now;
    switch (state) {
    case NOTIFY_READY: return snprintf(out, room, "READY=1");
    case NOTIFY_STOPPING: return snprintf(out, room, "STOPPING=1");
    case NOTIFY_WATCHDOG: return snprintf(out, room, "WATCHDOG=1");
    case NOTIFY_RELOADING: break;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    return snprintf(out, room, "RELOADING=1\nMONOTONIC_USEC=%lld",
                    (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

static zp_status read_path(const char *path, struct sockaddr_un *a, socklen_t *size, zp_err *err)
{
    size_t n = strlen(path);
    ZP_FAIL_IF((path[0] != '/' && path[0] != '@') || n < 2 || n >= sizeof a->sun_path, err,
               ZP_USAGE, "NOTIFY_SOCKET is \"%s\", neither a path nor an abstract name", path);
    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(a->sun_path, path, n);
    if (path[0] == '@') a->sun_path[0] = '\0';
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return ZP_OK;
}

zp_status notify_send(const char *path, enum notify_state state, const char *words, zp_err *err)
{
    struct sockaddr_un a;
    socklen_t size;
    char text[TEXT_MOST];
    if (path == NULL || path[0] == '\0') return ZP_OK;
    ZP_TRY(read_path(path, &a, &size, err));
    int used = write_state(state, text, sizeof text);
    if (words != NULL)
        (void)snprintf(text + used, sizeof text - (size_t)used, "\nSTATUS=%.*s",
                       (int)strcspn(words, "\n"), words);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ZP_FAIL_IF(fd < 0, err, ZP_IO, "no socket to notify %s: %s", path, strerror(errno));
    bool sent =
        sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&a, size) >= 0;
    int code = errno;
    (void)close(fd);
    ZP_FAIL_IF(!sent, err, ZP_IO, "cannot notify %s: %s", path, strerror(code));
    return ZP_OK;
}

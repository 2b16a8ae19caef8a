/* notify.h: what systemd is told about a service (sd_notify's protocol). */
#ifndef SERVE_NOTIFY_H
#define SERVE_NOTIFY_H

#include "base/status.h"

enum notify_state {
    NOTIFY_READY,     /* also after a reload */
    NOTIFY_STOPPING,
    NOTIFY_WATCHDOG,  /* alive; before the time of WATCHDOG_USEC is over */
    NOTIFY_RELOADING,
};
/* path: the value of NOTIFY_SOCKET ("/..." or "@..."), NULL or "": nobody wants to know. words: for
 * `systemctl status`, one line, NULL: none. Never waits. Any thread. */
zp_status notify_send(const char *path, enum notify_state state, const char *words, zp_err *err);

#endif

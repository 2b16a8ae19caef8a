/* serveadmin.h: handlers of /admin: what the server is doing, and what its owner decides. The
 * documents: docs/SERVER.md. */
#ifndef SERVE_SERVEADMIN_H
#define SERVE_SERVEADMIN_H

#include "serve/service.h"

void serveadmin_public(const struct servecall *c); /* /status, for everybody */
void serveadmin_status(const struct servecall *c);
void serveadmin_requests(const struct servecall *c);
void serveadmin_audit(const struct servecall *c);
void serveadmin_gates(const struct servecall *c);
void serveadmin_cancel(const struct servecall *c);
void serveadmin_canary(const struct servecall *c);
void serveadmin_breaker(const struct servecall *c);
void serveadmin_models(const struct servecall *c);
void serveadmin_cache(const struct servecall *c);
void serveadmin_drain(const struct servecall *c);

#endif

/* service.h: the server as its parts see it: what it owns. Nobody outside of serve*.c includes it.
 * Threads: all of it is the loop's, but for what is said to be any thread's. */
#ifndef SERVE_SERVICE_H
#define SERVE_SERVICE_H

#include <stdatomic.h>
#include "obs/logline.h"
#include "obs/metrics.h"
#include "serve/http.h"
#include "serve/notify.h"
#include "serve/rollout.h"
#include "serve/servekeys.h"
#include "serve/servemodel.h"
#include "serve/servework.h"

struct servejob;
struct serveroute;
struct servetrace;

struct zp_serve {
    zp_serve_options o;
    struct evloop *loop;
    struct http_server *http;
    struct http_route *routes;
    struct serveroute *route_args; /* (as many) */
    struct http_limits limits;
    struct sched *sched;
    struct evwake *news;   /* the scheduler has events */
    struct evwake *orders; /* somebody wants it to stop, or to reload */
    struct evtimer *tick;
    struct servework *readers, *loader;
    struct rollout *rollout;
    struct metrics *metrics;
    unsigned compat; /* METRICS_VLLM, ... */
    struct logline_log log;
    struct servetrace *trace; /* NULL: no collector */
    struct api_limits api_limits;
    struct servekeys keys, admin_keys;
    char *url;
    uint64_t secret[2]; /* random: ids and seeds that nobody foresees are made from it */
    uint64_t n_made;    /* of them */
    /* models: those in use, and all that are not closed yet */
    struct servemodel *variants[VARIANTS], *models;
    uint32_t slots[VARIANTS]; /* of the scheduler, where their jobs go */
    char *loading;            /* path of the one that is being loaded; NULL: none is */
    char load_error[512];     /* why the last one could not be; "" */
    char *measured;  /* the last measurement of /admin/distance; NULL: none */
    bool measuring;  /* one is under way */
    char *name; /* that answers bear: the alias, or the first baseline's; fixed once there is one */
    struct servejob *jobs; /* under way */
    uint32_t n_jobs, n_at_candidate;
    bool cuts; /* streams of the candidate may have to leave it */
    unsigned state; /* LABEL_SERVER_* */
    bool http_ended, running, notify_failed;
    double started, fed; /* when; the watchdog */
    _Atomic unsigned stops;
    _Atomic bool reloads;
    unsigned n_stops; /* of them, obeyed */
    zp_status status; /* why it ends */
    zp_err *err;
};

enum { SERVICE_SMALL_BODY = 8 << 10 }; /* bytes: larger ones are read by the readers */
/* As LABEL_ENDPOINT_*. */
enum serve_endpoint { SERVE_CHAT, SERVE_COMPLETIONS, SERVE_MESSAGES, SERVE_EMBEDDINGS };

/* One request on its way to its handler. */
struct servecall {
    zp_serve *s;
    const struct http_request *r;
    struct http_exchange *x;
    struct servekey *key; /* NULL: none is needed */
    const char *actor;    /* of /admin: who decides */
};

/* Whether requests are answered now; else the fault says why not. */
bool service_is_ready(const zp_serve *s, struct apifault *fault);
uint64_t service_random(zp_serve *s);
/* It answers now. */
void service_ready(zp_serve *s);
/* It cannot go on. */
void service_end(zp_serve *s, zp_status status, const zp_err *why);
/* Takes no new requests; what is under way has so many seconds. */
void service_drain(zp_serve *s, double seconds);
/* The last request under way has ended. */
void service_jobs_ended(zp_serve *s);

#endif

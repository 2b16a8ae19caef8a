/* service.h: the server as its parts see it: what it owns, and the calls between serve*.c. Nobody
 * outside of them includes it.
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

/* One request on its way to its handler. */
struct servecall {
    zp_serve *s;
    const struct http_request *r;
    struct http_exchange *x;
    struct servekey *key; /* NULL: none is needed */
    const char *actor;    /* of /admin: who decides */
};

/* ---- serveguard.c: who may ---- */
bool serveguard_client(struct servecall *c, struct apifault *fault);
bool serveguard_admin(struct servecall *c, struct apifault *fault);
/* A request, or its prompt, is within what the key has left; charge: what came beside it. */
bool serveguard_take_request(const struct servecall *c, struct apifault *fault);
bool serveguard_take_tokens(struct servekey *key, uint64_t n, struct apifault *fault);
void serveguard_charge(struct servekey *key, uint64_t n_tokens);

/* ---- service.c ---- */
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

/* ---- servemodels.c: which models are served ---- */
/* Loads a model beside those that are there; it takes the variant's place when it is. Fails while
 * another one is being loaded. actor: who decides. */
zp_status service_load(zp_serve *s, enum variant v, const char *path, const char *actor,
                       zp_err *err);
/* The candidate becomes the baseline; ZP_BAD_INPUT without one, as below. */
zp_status service_promote(zp_serve *s, const char *actor, const char *why, zp_err *err);
/* No candidate any more. cut: its streams go on at the baseline; else they end where they are. */
zp_status service_unload(zp_serve *s, bool cut, const char *actor, const char *why, zp_err *err);
/* A request or the scheduler holds a model no more. */
void servemodels_settle(zp_serve *s, struct servemodel *m);
void servemodels_released(zp_serve *s, const zp_engine *e);
void servemodels_close(zp_serve *s);

/* ---- servewatch.c: the service manager ---- */
void servewatch_tell(zp_serve *s, enum notify_state state);
/* Once a second: the watchdog is fed while steps are made, or none are due. */
void servewatch_tick(zp_serve *s, double now);

/* ---- servejob.c: requests for answers ---- */
enum serve_endpoint { SERVE_CHAT, SERVE_COMPLETIONS, SERVE_MESSAGES }; /* as LABEL_ENDPOINT_* */
void servejob_begin(const struct servecall *c, enum serve_endpoint endpoint);
/* Of one that never came into the table. */
void serve_count_refusal(zp_serve *s, enum serve_endpoint endpoint, const struct apifault *f);
void servejob_event(const struct sched_event *e);
/* Once a second. */
void servejob_tick(zp_serve *s, double now);
/* Streams of the candidate that must leave it do so. */
void servejob_move_cut(zp_serve *s);
/* Those that are left when scheduler and connections are gone. */
void servejob_close_all(zp_serve *s);

/* ---- serveroutes.c ---- */
zp_status serveroutes_open(zp_serve *s, size_t *n, zp_err *err);
zp_status serveroutes_write_error(void *arg, const struct http_error *e, struct buffer *body,
                                  const char **type, zp_err *err);
void serveroutes_on_access(void *arg, const struct http_access *a);

/* Cancels the requests of that id, which clients choose; returns how many there were. */
uint32_t servejob_cancel_id(zp_serve *s, const char *id);
/* A list of those under way. */
void servejob_write_all(const zp_serve *s, const char *key, struct json_build *w);

/* ---- servereply.c: bodies of answers ---- */
enum { SERVE_MOST_BODY = 1 << 30 };
enum api serve_api_of(const char *path);
void serve_reply_fault(struct http_exchange *x, enum api api, const struct apifault *fault);
/* 200 with the JSON of a buffer, which is freed; status: of what was written to it. */
void serve_reply_json(struct http_exchange *x, enum api api, zp_status status, struct buffer *body,
                      const zp_err *err);

/* ---- servestat.c: figures ---- */
/* Gauges, and counters that are counted elsewhere. */
void servestat_refresh(zp_serve *s);
zp_status servestat_write(zp_serve *s, enum metrics_format format, struct buffer *out, zp_err *err);
/* The scheduler makes steps, or has nothing to do. */
bool servestat_is_alive(const zp_serve *s);

#endif

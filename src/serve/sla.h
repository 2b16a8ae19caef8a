/* sla.h: an objective in two parts, time to the first token (p95) and to the whole answer (p90),
 * for each length class, and what is done when it is missed: new requests go to position mode half
 * where that is known to help, and a growing share of them is refused where it is not or does not
 * suffice. Off where no limit is set. Times are the caller's clock, in seconds; each call's `now`
 * is not before the last one's. */
#ifndef SERVE_SLA_H
#define SERVE_SLA_H

#include "serve/audit.h"
#include "serve/latency.h"
#include "serve/outcome.h"

/* 0: the default. */
struct sla_options {
    struct sla_limit {
        double first_p95, total_p90; /* seconds; default: no limit */
    } limits[LENGTHS];
    uint32_t medium_from, long_from; /* tokens of the prompt; default 512, 4096 */
    double window;           /* seconds of latencies looked at; default 60 */
    uint32_t least_requests; /* in it, for a statement; default 20 */
    /* Back when latencies were below this share of their limits so many times in a row, a sixth of
     * the window apart; default 0.8, 3. */
    double recovered;
    uint32_t calm;
    double shed_step, most_shed; /* shares of new requests; default 0.2, back in halves; 0.9 */
    struct audit *audit;     /* may be NULL */
};

struct sla_class {
    bool half;   /* new requests go to mode half */
    double shed; /* share of new requests that are refused */
    double owed; /* of the next refusal */
    uint64_t epoch; /* changes with either */
    double since;   /* when they did */
    uint32_t calm;  /* times in a row */
    struct latency_window first, total; /* of requests of this epoch */
    double first_p95, total_p90;        /* when last looked at; 0: too few */
    double half_gain;
    uint64_t breaches, to_half, from_half, shed_more, shed_less; /* times */
    uint64_t refused, halved;                                    /* requests */
    struct audit_note last;
};

struct sla {
    struct sla_options o;
    double looked; /* when */
    struct sla_class classes[LENGTHS];
};

/* Fails for limits or bounds that make no sense. */
zp_status sla_init(struct sla *s, const struct sla_options *options, zp_err *err);
enum length_class sla_length(const struct sla *s, uint64_t n_prompt);
bool sla_is_on(const struct sla *s);
/* How many times as fast mode half is for requests of a class, as measured: the least of the models
 * in use. Gains below 1.05 are none; 0: a model has no plan, no evidence, or was not measured. */
void sla_set_half_gain(struct sla *s, enum length_class l, double gain);

/* False: refuse the request. *half: it goes to mode half, if it left the mode to the server
 * (mode_is_open). epoch: to be given back with its end. */
bool sla_admit(struct sla *s, enum length_class l, bool mode_is_open, bool *half, uint64_t *epoch);
void sla_ended(struct sla *s, enum length_class l, uint64_t epoch, const struct outcome *o,
               double now);
/* To be called at least once a second or so. */
void sla_tick(struct sla *s, double now);
/* After which a refused request may come again. */
double sla_retry_seconds(const struct sla *s);

void sla_write(const struct sla *s, const char *key, struct json_build *w);

#endif

/* dist_program.c: what test_dist.sh runs in several processes.
 * Usage: dist_program KIND MODULE what   sums, maxima, what all have: one line a result, which must
 *                                        not depend on the number of processes
 *        dist_program KIND MODULE kill|stop|leave|abort
 *                                        the last process is killed, stops, leaves or gives up; the
 *                                        others say why they end, and do with exit code 1. Each
 *                                        leaves a file pid.NUMBER in the folder it is started in */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "dist/dist.h"

/* Several pieces and a rest; 6 micro-batches: a last round that is not full for 4 processes. */
enum { SEED = 3, N = 200003, BATCHES = 6 };
#define TIMEOUT 2.0

static struct dist *d;
static float sum[N], x[N];

static void must(zp_status status, const zp_err *err)
{
    if (status == ZP_OK) return;
    printf("process %u: %s\n", dist_rank(d), err->message);
    fflush(stdout);
    dist_close(d);
    exit(1);
}

static void report(const char *what, uint64_t value)
{
    if (dist_rank(d) == 0) printf("%s %016llx\n", what, (unsigned long long)value);
}

static void draw(uint64_t batch)
{
    struct rng r = rng_stream(SEED, batch);
    for (int i = 0; i < N; i++) x[i] = rng_normal(&r) * (float)(1 + batch);
}

static void add_batches(void)
{
    zp_err err = { 0 };
    uint32_t size = dist_size(d), rank = dist_rank(d);
    double loss = 0;
    for (uint32_t first = 0; first < BATCHES; first += size) {
        uint32_t left = BATCHES - first, n = left < size ? left : size;
        double part = sin(first + rank) * 1e-3;
        if (rank < n) draw(first + rank);
        must(dist_add_f32(d, sum, x, N, n, &err), &err);
        must(dist_add_f64(d, &loss, &part, 1, n, &err), &err);
    }
    report("sum", hash_xxh64(sum, sizeof sum, 0));
    report("loss", hash_xxh64(&loss, sizeof loss, 0));
}

static void find_maxima(void)
{
    zp_err err = { 0 };
    enum { MANY = 40000 };
    static double most[MANY];
    for (int i = 0; i < MANY; i++) {
        most[i] = -1e9;
        for (uint32_t b = dist_rank(d); b < 4; b += dist_size(d))
            most[i] = fmax(most[i], cos(i * 4 + b));
    }
    most[17] = dist_rank(d) == dist_size(d) - 1 ? NAN : 1;
    must(dist_max(d, most, MANY, &err), &err);
    report("nan", isnan(most[17]));
    most[17] = 0;
    report("max", hash_xxh64(most, sizeof most, 0));
}

/* Each process has its share of a text that all get whole. */
static void exchange(void)
{
    zp_err err = { 0 };
    uint32_t size = dist_size(d), rank = dist_rank(d);
    size_t share = sizeof x / 4 / size;
    memset(sum, 0, sizeof sum);
    draw(1);
    must(dist_all_gather(d, (char *)x + rank * share, share, sum, &err), &err);
    report("gathered", memcmp(sum, x, share * size));
    memcpy(sum, x, sizeof sum); /* in place, and small */
    memset(sum, rank == 0 ? 7 : 0, 64);
    must(dist_broadcast(d, sum, sizeof sum, 0, &err), &err);
    report("broadcast", hash_xxh64(sum, sizeof sum, 0));
    uint32_t ranks[64] = { 0 };
    ranks[rank] = rank + 1;
    must(dist_all_gather(d, &ranks[rank], sizeof *ranks, ranks, &err), &err);
    uint64_t wrong = 0;
    for (uint32_t r = 0; r < size; r++) wrong += ranks[r] != r + 1;
    report("ranks", wrong);
    must(dist_barrier(d, &err), &err);
}

static void lose_one(const char *how)
{
    zp_err err = { 0 };
    char name[32];
    snprintf(name, sizeof name, "pid.%ld", (long)getpid());
    must(os_write_file(name, "", 0, &err), &err);
    must(dist_barrier(d, &err), &err);
    dist_set_timeout(d, TIMEOUT); /* only now: a busy machine starts them far apart */
    if (dist_rank(d) == dist_size(d) - 1) {
        if (strcmp(how, "kill") == 0) raise(SIGKILL);
        if (strcmp(how, "stop") == 0) raise(SIGSTOP);
        if (strcmp(how, "abort") == 0) dist_abort(d, 3);
        return;
    }
    double begin = os_now();
    zp_status status = dist_add_f32(d, sum, x, N, 1, &err);
    double waited = os_now() - begin;
    if (waited > 5 * TIMEOUT) printf("process %u waited for %g s\n", dist_rank(d), waited);
    if (status != ZP_OK && dist_barrier(d, NULL) == ZP_OK) printf("still in step\n");
    must(status, &err);
    printf("process %u noticed nothing\n", dist_rank(d));
}

int main(int argc, char **argv)
{
    zp_err err = { 0 };
    if (argc != 4) return 2;
    if (dist_open(&d, argv[1], strcmp(argv[2], "-") ? argv[2] : NULL, &err) != ZP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (strcmp(argv[3], "what") == 0) {
        add_batches();
        find_maxima();
        exchange();
    } else {
        lose_one(argv[3]);
    }
    dist_close(d);
    return 0;
}

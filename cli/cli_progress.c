/* cli_progress.c: Ctrl-C, and the progress of long work on stderr.
 * A terminal gets one bar, redrawn at most ten times a second; anything else one line every five
 * seconds. A label that comes again, or whose count goes back, is a new stage: its clock starts
 * anew and it is told with the number of its round, since only the work itself knows how many there
 * are.
 * P1 the signal handler only sets a flag or ends the process, with a line that says so where it can
 * be written at once.  P2 the second Ctrl-C always ends it at once. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupts, deferred, on_terminal;

static void say_interrupted(void)
{
    static const char text[] = "\nzerope: error: interrupted\n";
    size_t skip = on_terminal ? 0 : 1; /* on a terminal a bar or ^C stands in the line */
    struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
    if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT)) /* P2: nobody reads */
        return;
    ssize_t written = write(STDERR_FILENO, text + skip, sizeof text - 1 - skip);
    (void)written;
}

static void on_signal(int number)
{
    (void)number;
    if (!deferred || interrupts > 0) {
        say_interrupted();
        _exit(130);
    }
    interrupts = 1;
}

/* A model's file is mapped: where it was cut meanwhile, or its disk fails, there is nothing to
 * read. Nothing can go on from there, and nothing is cleaned up: a temporary file of an output may
 * stay. */
static void on_bus_error(int number)
{
    static const char text[] = "zerope: error: a mapped file shrank or its disk failed\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    (void)number;
    while (atomic_flag_test_and_set(&said)) /* another thread is on its way out */
        pause();
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(3);
}

void interrupt_install(void)
{
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit is a write error with a message */
    signal(SIGBUS, on_bus_error);
    on_terminal = isatty(STDERR_FILENO);
    /* SA_RESTART: reads and writes of the library need not know about signals. */
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    for (size_t i = 0; i < CLI_COUNT(signals); i++) {
        struct sigaction before;
        /* What the parent told us to ignore (a job in the background) stays ignored. */
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

void interrupt_defer(bool defer)
{
    deferred = defer;
}

bool interrupt_pending(void)
{
    return interrupts > 0;
}

void interrupt_forget(void)
{
    interrupts = 0;
}

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool plain_terminal(void)
{
    const char *term = getenv("TERM");
    return term == NULL || strcmp(term, "dumb") == 0 || *term == '\0';
}

bool cli_color(FILE *f)
{
    const char *no_color = getenv("NO_COLOR");
    return isatty(fileno(f)) && !plain_terminal() && (no_color == NULL || *no_color == '\0');
}

/* ---- the bar ----------------------------------------------------------------------------- */
static struct {
    char what[64];
    double started, shown;
    uint64_t first, done; /* units done when this stage began, and at the last call */
    unsigned round;
    bool visible;
} bar;

/* How often each label began. */
static struct {
    char what[64];
    unsigned rounds;
} stages[16];

static unsigned next_round(const char *what)
{
    size_t i = 0;
    while (i < CLI_COUNT(stages) && stages[i].rounds > 0 &&
           strncmp(stages[i].what, what, sizeof stages[i].what - 1) != 0)
        i++;
    if (i == CLI_COUNT(stages))
        return 1; /* more labels than any command has: no number */
    snprintf(stages[i].what, sizeof stages[i].what, "%s", what);
    return ++stages[i].rounds;
}

void progress_clear(void)
{
    if (bar.visible)
        fputs("\r\033[K", stderr);
    bar.visible = false;
}

static void format_left(char *out, size_t size, double seconds)
{
    unsigned s = seconds < 0 ? 0 : seconds > 3.6e6 ? 3600000 : (unsigned)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%u:%02u:%02u left", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%u:%02u left", s / 60, s % 60);
}

static void draw(double now, uint64_t done, uint64_t total, bool terminal)
{
    char left[32] = "", fill[21], round[32] = "";
    double share = total > 0 ? (double)done / (double)total : 0;
    double spent = now - bar.started, moved = done > bar.first ? (double)(done - bar.first) : 0;
    if (moved > 0 && total > done && spent > 1)
        format_left(left, sizeof left, spent / moved * (double)(total - done));
    if (bar.round > 1)
        snprintf(round, sizeof round, ", round %u", bar.round);
    if (!terminal) {
        fprintf(stderr, "zerope: %s%s: %llu of %llu (%.0f %%)%s%s\n", bar.what, round,
                (unsigned long long)done, (unsigned long long)total, share * 100,
                *left != '\0' ? " " : "", left);
        return;
    }
    for (int i = 0; i < 20; i++)
        fill[i] = share * 20 >= i + 1 ? '#' : '.';
    fill[20] = '\0';
    fprintf(stderr, "\r\033[K%s%s [%s] %3.0f %% %llu/%llu%s%s", bar.what, round, fill,
            share * 100, (unsigned long long)done, (unsigned long long)total,
            *left != '\0' ? " " : "", left);
    fflush(stderr);
    bar.visible = true;
}

static bool on_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    const struct cli *c = arg;
    double now = cli_now();
    bool terminal = isatty(STDERR_FILENO) && !plain_terminal();
    bool begins = bar.what[0] == '\0', other = strncmp(bar.what, what, sizeof bar.what - 1) != 0;
    if (other || done < bar.done) {
        snprintf(bar.what, sizeof bar.what, "%s", what);
        bar.started = now;
        bar.first = done;
        bar.round = next_round(what);
        /* A bar waits a moment, quick work shows none; --verbose has its first line at once. Lines
         * keep their beat across stages: many short ones would else show nothing at all. */
        if (terminal)
            bar.shown = other ? now + 0.2 : bar.shown;
        else if (c->verbose && other)
            bar.shown = 0;
        else if (begins)
            bar.shown = now;
    }
    bar.done = done;
    if (!c->quiet && now - bar.shown >= (terminal ? 0.1 : 5.0)) {
        draw(now, done, total, terminal);
        bar.shown = now;
    }
    return !interrupt_pending();
}

zp_progress cli_progress(struct cli *c)
{
    interrupt_defer(true);
    bar.what[0] = '\0';
    bar.done = 0;
    memset(stages, 0, sizeof stages);
    return (zp_progress){ .fn = on_progress, .arg = c };
}

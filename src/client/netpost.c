/* netpost.c: libcurl behind dlopen, driven step by step so that a signal is seen at once.
 * N1 the key goes to the host of the URL alone: no redirection is followed.
 * N2 a head, its trailers included, has at most NETPOST_MOST_HEAD bytes. */
#include "netpost.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"

#if ZEROPE_HAVE_CURL

#include <curl/curl.h>
#include <dlfcn.h>

/* Functions of the library that are used, under their own names without the prefix. */
#define CURL_FUNCTIONS(X)                                                                          \
    X(global_init)                                                                                 \
    X(global_cleanup)                                                                              \
    X(easy_init)                                                                                   \
    X(easy_cleanup)                                                                                \
    X(easy_reset)                                                                                  \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(multi_init)                                                                                  \
    X(multi_cleanup)                                                                               \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)

enum { CONNECT_SECONDS = 15, STEP_MS = 100 };
#define REST_SECONDS 1.0 /* for the end of an answer of which no more is wanted */

struct netpost {
#define CURL_POINTER(name) __typeof__(curl_##name) *name;
    CURL_FUNCTIONS(CURL_POINTER)
#undef CURL_POINTER
    void *library;
    bool begun; /* global_init */
    CURL *easy;
    CURLM *multi;
};

/* An answer that is under way. */
struct answer {
    const struct netpost_request *r;
    struct netpost_head *head;
    size_t n_head;
    bool in_body, ended;
    double last; /* sign of life */
    zp_status status; /* of take, or of the head */
    zp_err *err;
};

/* ISO C has no cast from an object's address to a function's. */
static bool find_function(void *library, const char *name, void *pointer)
{
    void *address = dlsym(library, name);
    memcpy(pointer, &address, sizeof address);
    return address != NULL;
}

static bool find_functions(struct netpost *n)
{
    static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
    /* Never unloaded: libraries of TLS do not survive it. */
    for (size_t i = 0; i < sizeof names / sizeof *names && n->library == NULL; i++)
        n->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool all = n->library != NULL;
#define CURL_FIND(name) all = all && find_function(n->library, "curl_" #name, &n->name);
    CURL_FUNCTIONS(CURL_FIND)
#undef CURL_FIND
    return all;
}

zp_status netpost_open(struct netpost **out, zp_err *err)
{
    struct netpost *n = *out = mem_zalloc(MEM_META, sizeof *n);
    ZP_FAIL_IF(n == NULL, err, ZP_NO_MEMORY, "not enough memory for a connection");
    zp_status status = ZP_OK;
    if (!find_functions(n))
        status = status_fail(err, ZP_UNSUPPORTED, __FILE__, __LINE__,
                             "libcurl.so.4 is not there, and without it no server can be reached: "
                             "install libcurl4");
    n->begun = status == ZP_OK && n->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    if (n->begun) n->easy = n->easy_init();
    if (n->begun) n->multi = n->multi_init();
    if (status == ZP_OK && (n->easy == NULL || n->multi == NULL))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "libcurl does not start");
    if (status == ZP_OK) return ZP_OK;
    netpost_close(n);
    *out = NULL;
    return status;
}

void netpost_close(struct netpost *n)
{
    if (n == NULL) return;
    if (n->easy != NULL) n->easy_cleanup(n->easy);
    if (n->multi != NULL) (void)n->multi_cleanup(n->multi);
    if (n->begun) n->global_cleanup();
    if (n->library != NULL) (void)dlclose(n->library);
    mem_free(n);
}

/* ---- what comes ------------------------------------------------------------------------------ */

static void read_type(struct answer *a, const char *value, size_t size)
{
    size_t n = 0;
    while (size > 0 && (*value == ' ' || *value == '\t')) value++, size--;
    for (; n < size && n + 1 < sizeof a->head->type; n++) {
        char c = value[n];
        if (c <= ' ' || c == ';' || c >= 0x7f) break;
        a->head->type[n] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    a->head->type[n] = '\0';
}

/* One line; returning another size than was given ends the transfer. */
static size_t on_head(char *line, size_t one, size_t size, void *arg)
{
    static const char type[] = "content-type:";
    struct answer *a = arg;
    (void)one; /* 1 */
    a->n_head += size;
    if (a->n_head > NETPOST_MOST_HEAD) { // N2
        a->status = status_fail(a->err, ZP_RUN, __FILE__, __LINE__,
                                "the server sends a head of more than %d bytes",
                                NETPOST_MOST_HEAD);
        return 0;
    }
    const char *blank = memchr(line, ' ', size);
    if (size > 5 && memcmp(line, "HTTP/", 5) == 0 && blank != NULL &&
        size - (size_t)(blank - line) > 3) {
        *a->head = (struct netpost_head){ 0 };
        for (int i = 1; i <= 3; i++)
            a->head->status = a->head->status * 10 + (blank[i] >= '0' && blank[i] <= '9'
                                                          ? blank[i] - '0' : 0);
    } else if (size >= sizeof type && strncasecmp(line, type, sizeof type - 1) == 0) {
        read_type(a, line + sizeof type - 1, size - (sizeof type - 1));
    }
    if (size <= 2 && a->head->status >= 200) a->last = os_now();
    return size;
}

static size_t on_body(char *bytes, size_t one, size_t size, void *arg)
{
    struct answer *a = arg;
    bool alive = false;
    (void)one; /* 1 */
    if (a->ended) return size;
    a->status = a->r->take(a->r->arg, a->head, bytes, size, &alive, &a->ended, a->err);
    if (alive || a->ended) a->last = os_now();
    return a->status == ZP_OK ? size : 0;
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static struct curl_slist *headers_of(struct netpost *n, const struct netpost_request *r,
                                     zp_err *err)
{
    char key[1100];
    const char *rows[] = { "Content-Type: application/json", "Accept: text/event-stream",
                           "Expect:", NULL };
    (void)snprintf(key, sizeof key, "Authorization: Bearer %s", r->key != NULL ? r->key : "");
    if (r->key != NULL) rows[3] = key;
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < 4 && rows[i] != NULL; i++) {
        struct curl_slist *more = n->slist_append(list, rows[i]);
        if (more == NULL) {
            n->slist_free_all(list);
            (void)status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                              "not enough memory for a request");
            return NULL;
        }
        list = more;
    }
    return list;
}

static zp_status set_options(struct netpost *n, struct answer *a, struct curl_slist *headers,
                             char *words, zp_err *err)
{
    const struct netpost_request *r = a->r;
    CURLcode code = CURLE_OK;
    n->easy_reset(n->easy);
#define SET(option, value)                                                                         \
    if (code == CURLE_OK) code = n->easy_setopt(n->easy, CURLOPT_##option, value)
    SET(ERRORBUFFER, words);
    SET(PROTOCOLS_STR, "http,https");
    SET(URL, r->url);
    SET(HTTPHEADER, headers);
    SET(POSTFIELDSIZE_LARGE, (curl_off_t)r->size);
    SET(POSTFIELDS, r->body);
    SET(USERAGENT, "zerope/" ZEROPE_VERSION);
    SET(NOSIGNAL, 1L);
    SET(CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(FOLLOWLOCATION, 0L); // N1
    SET(HEADERFUNCTION, on_head);
    SET(HEADERDATA, a);
    SET(WRITEFUNCTION, on_body);
    SET(WRITEDATA, a);
    if (r->ca_file != NULL) SET(CAINFO, r->ca_file);
#undef SET
    ZP_FAIL_IF(code != CURLE_OK, err, ZP_UNSUPPORTED, "libcurl: %s", n->easy_strerror(code));
    return ZP_OK;
}

/* Whether the transfer is over, and how. */
static bool is_over(struct netpost *n, CURLcode *code)
{
    int left = 0;
    const CURLMsg *m = n->multi_info_read(n->multi, &left);
    if (m == NULL || m->msg != CURLMSG_DONE) return false;
    *code = m->data.result;
    return true;
}

static zp_status wait_for_end(struct netpost *n, struct answer *a, const char *words)
{
    int running = 1;
    CURLcode code = CURLE_OK;
    for (;;) {
        CURLMcode step = n->multi_perform(n->multi, &running);
        if (a->status != ZP_OK) return a->status;
        if (step == CURLM_OK && is_over(n, &code)) break;
        double idle = os_now() - a->last;
        if (a->ended && idle > REST_SECONDS) return ZP_OK;
        if (step == CURLM_OK && running > 0) step = n->multi_poll(n->multi, NULL, 0, STEP_MS, NULL);
        ZP_FAIL_IF(step != CURLM_OK || running == 0, a->err, ZP_IO, "libcurl: error %d", (int)step);
        ZP_FAIL_IF(a->r->goes_on != NULL && !a->r->goes_on(a->r->arg), a->err, ZP_INTERRUPTED,
                   "stopped");
        ZP_FAIL_IF(!a->ended && idle > a->r->patience, a->err, ZP_IO,
                   "%s: no sign of life for %.0f seconds", a->r->url, a->r->patience);
    }
    ZP_FAIL_IF(code != CURLE_OK && !a->ended, a->err, ZP_IO, "%s: %s", a->r->url,
               words[0] != '\0' ? words : n->easy_strerror(code));
    return ZP_OK;
}

zp_status netpost_run(struct netpost *n, const struct netpost_request *r, struct netpost_head *head,
                      zp_err *err)
{
    char words[CURL_ERROR_SIZE] = "";
    struct answer a = { .r = r, .head = head, .last = os_now(), .err = err };
    *head = (struct netpost_head){ 0 };
    struct curl_slist *headers = headers_of(n, r, err);
    if (headers == NULL) return ZP_NO_MEMORY;
    zp_status status = set_options(n, &a, headers, words, err);
    if (status == ZP_OK && n->multi_add_handle(n->multi, n->easy) != CURLM_OK)
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__, "libcurl takes no request");
    else if (status == ZP_OK) {
        status = wait_for_end(n, &a, words);
        (void)n->multi_remove_handle(n->multi, n->easy);
    }
    n->easy_reset(n->easy); /* what it points to goes */
    n->slist_free_all(headers);
    return status;
}

#else

zp_status netpost_open(struct netpost **out, zp_err *err)
{
    *out = NULL;
    ZP_FAIL(err, ZP_UNSUPPORTED,
            "this build reaches no server: it was made without libcurl's headers (scripts/setup)");
}

zp_status netpost_run(struct netpost *n, const struct netpost_request *r, struct netpost_head *head,
                      zp_err *err)
{
    ZP_UNUSED(n);
    ZP_UNUSED(r);
    ZP_UNUSED(head);
    ZP_FAIL(err, ZP_UNSUPPORTED, "this build reaches no server");
}

void netpost_close(struct netpost *n)
{
    ZP_UNUSED(n);
}

#endif

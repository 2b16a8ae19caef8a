/* servekeys.c: secrets as hashes, and what their owners have left of a minute.
 * K1 no secret is kept, logged or told: hashes alone.
 * K2 finding takes the same steps whatever the secret: every hash is compared to its end.
 * K3 a limit is what flows in at most/60 a second, up to most. */
#include "serve/servekeys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/numtext.h"
#include "base/os.h"

enum { MOST_FILE = 4 << 20, MOST_WORDS = 4, LEAST_SECRET = 8 };

static void hash_secret(const char *secret, size_t size, char hex[65])
{
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, secret, size);
    sha256_final(&h, hex);
}

/* ---- the file -------------------------------------------------------------------------------- */

struct words {
    struct {
        const char *text;
        size_t size;
    } at[MOST_WORDS + 1];
    size_t n;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct words split(const char *line, size_t size)
{
    struct words w = { .n = 0 };
    for (size_t i = 0; i < size && w.n <= MOST_WORDS;) {
        while (i < size && is_blank(line[i])) i++;
        size_t begin = i;
        while (i < size && !is_blank(line[i])) i++;
        if (i == begin) break;
        w.at[w.n].text = line + begin;
        w.at[w.n++].size = i - begin;
    }
    return w;
}

/* "requests=60" */
static bool read_limit(const char *text, size_t size, const char *name, double *out)
{
    size_t n = strlen(name);
    char number[32], *end;
    if (size <= n + 1 || size - n > sizeof number || memcmp(text, name, n) != 0 || text[n] != '=')
        return false;
    memcpy(number, text + n + 1, size - n - 1);
    number[size - n - 1] = '\0';
    *out = numtext_double(number, &end);
    return *end == '\0' && isfinite(*out) && *out > 0;
}

static bool is_hex(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (strchr("0123456789abcdef", text[i]) == NULL || text[i] == '\0') return false;
    return true;
}

static zp_status read_secret(const char *text, size_t size, char hash[65], zp_err *err)
{
    if (size > 7 && memcmp(text, "sha256:", 7) == 0) {
        ZP_FAIL_IF(size != 7 + 64 || !is_hex(text + 7, 64), err, ZP_BAD_INPUT,
                   "sha256: is not followed by 64 digits 0-9a-f");
        memcpy(hash, text + 7, 64);
        hash[64] = '\0';
        return ZP_OK;
    }
    ZP_FAIL_IF(size < LEAST_SECRET, err, ZP_BAD_INPUT,
               "a secret of %zu characters; %d at least", size, LEAST_SECRET);
    hash_secret(text, size, hash);
    return ZP_OK;
}

static zp_status read_words(const struct words *w, size_t number, struct servekey *key,
                            zp_err *err)
{
    size_t at = w->n == 1 ? 0 : 1;
    ZP_FAIL_IF(w->n > MOST_WORDS, err, ZP_BAD_INPUT, "more than %d words", MOST_WORDS);
    if (at == 0) (void)snprintf(key->name, sizeof key->name, "key-%zu", number);
    else {
        ZP_FAIL_IF(w->at[0].size >= sizeof key->name ||
                       !utf8_is_valid(w->at[0].text, w->at[0].size, NULL),
                   err, ZP_BAD_INPUT, "the name is longer than %zu bytes, or no UTF-8",
                   sizeof key->name - 1);
        memcpy(key->name, w->at[0].text, w->at[0].size);
    }
    ZP_TRY(read_secret(w->at[at].text, w->at[at].size, key->hash, err));
    for (size_t i = at + 1; i < w->n; i++) {
        const char *text = w->at[i].text;
        size_t size = w->at[i].size;
        ZP_FAIL_IF(!read_limit(text, size, "requests", &key->requests.most) &&
                       !read_limit(text, size, "tokens", &key->tokens.most),
                   err, ZP_BAD_INPUT, "word %zu is neither requests=N nor tokens=N", i + 1);
    }
    return ZP_OK;
}

static struct servekey *find_hash(struct servekey *first, const char *hash)
{
    for (struct servekey *k = first; k != NULL; k = k->next)
        if (strcmp(k->hash, hash) == 0) return k;
    return NULL;
}

static void free_list(struct servekey *k)
{
    for (struct servekey *next; k != NULL; k = next) {
        next = k->next;
        mem_free(k);
    }
}

static zp_status add_line(struct servekey **list, size_t *n, const char *line, size_t size,
                          size_t number, zp_err *err)
{
    struct words w = split(line, size);
    struct servekey *key;
    if (w.n == 0 || w.at[0].text[0] == '#') return ZP_OK;
    ZP_FAIL_IF(++*n > SERVEKEYS_MOST, err, ZP_BAD_INPUT, "more than %d keys", SERVEKEYS_MOST);
    ZP_ALLOC(key, MEM_SERVE, 1, err, "a key");
    *key = (struct servekey){ .next = *list };
    *list = key;
    ZP_TRY(read_words(&w, number, key, err));
    ZP_FAIL_IF(find_hash(key->next, key->hash) != NULL, err, ZP_BAD_INPUT,
               "the secret stands in a line before, too");
    return ZP_OK;
}

static zp_status read_lines(struct servekey **list, size_t *n, const char *text, size_t size,
                            const char *name, zp_err *err)
{
    for (size_t at = 0, number = 1; at < size; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : size - at;
        zp_err own = { 0 };
        zp_status status = add_line(list, n, text + at, length, number, &own);
        ZP_FAIL_IF(status != ZP_OK, err, status, "%s, line %zu: %s", name, number, own.message);
        at += length + 1;
    }
    ZP_FAIL_IF(*n == 0, err, ZP_BAD_INPUT, "%s: there is no key in it", name);
    return ZP_OK;
}

/* What is left of a minute stays. */
static void take_over(struct servekey *own, const struct servekey *read)
{
    memcpy(own->name, read->name, sizeof own->name);
    own->requests.most = read->requests.most;
    own->tokens.most = read->tokens.most;
    own->gone = false;
}

zp_status servekeys_parse(struct servekeys *k, const char *text, size_t size, const char *name,
                          zp_err *err)
{
    struct servekey *list = NULL;
    size_t n = 0;
    zp_status status = read_lines(&list, &n, text, size, name, err);
    if (status != ZP_OK) {
        free_list(list);
        return status;
    }
    for (struct servekey *own = k->first; own != NULL; own = own->next) own->gone = true;
    for (struct servekey *read = list, *next; read != NULL; read = next) {
        struct servekey *own = find_hash(k->first, read->hash);
        next = read->next;
        if (own != NULL) {
            take_over(own, read);
            mem_free(read);
            continue;
        }
        read->requests.left = read->requests.most;
        read->tokens.left = read->tokens.most;
        read->salt = hash_xxh64(read->hash, 64, 0) | 1;
        read->next = k->first;
        k->first = read;
    }
    k->n = n;
    return ZP_OK;
}

zp_status servekeys_read(struct servekeys *k, const char *path, zp_err *err)
{
    struct buffer text = buffer_with_max(MEM_SERVE, MOST_FILE);
    zp_status status = os_read_regular(path, &text, err);
    if (status == ZP_OK)
        status = servekeys_parse(k, (const char *)text.data, text.size, path, err);
    if (text.data != NULL) memset(text.data, 0, text.size); // K1
    buffer_free(&text);
    return status;
}

void servekeys_free(struct servekeys *k)
{
    free_list(k->first);
    *k = (struct servekeys){ 0 };
}

/* ---- use ------------------------------------------------------------------------------------- */

struct servekey *servekeys_find(const struct servekeys *k, const char *secret)
{
    char hash[65];
    struct servekey *found = NULL;
    hash_secret(secret, strlen(secret), hash);
    for (struct servekey *key = k->first; key != NULL; key = key->next) { // K2
        unsigned differs = key->gone;
        for (size_t i = 0; i < 64; i++) differs |= (unsigned)(hash[i] ^ key->hash[i]);
        found = differs == 0 ? key : found;
    }
    return found;
}

/* K3 */
static void flow(struct servekeys_limit *l, double now)
{
    if (now > l->at && l->at != 0) l->left += (now - l->at) * l->most / 60;
    if (l->left > l->most) l->left = l->most;
    l->at = now;
}

bool servekeys_take(struct servekeys_limit *l, double n, double now, double *wait)
{
    *wait = 0;
    if (l->most == 0) return true;
    flow(l, now);
    double least = l->most < 1 ? l->most : 1;
    if (l->left < least) {
        *wait = (least - l->left) * 60 / l->most;
        return false;
    }
    l->left -= n;
    return true;
}

double servekeys_left(struct servekeys_limit *l, double now)
{
    if (l->most == 0) return 0;
    flow(l, now);
    return l->left > 0 ? l->left : 0;
}

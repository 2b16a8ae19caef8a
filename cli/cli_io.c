/* cli_io.c: memory, texts, input and output of the commands.
 * O1 with --json standard output holds one document.  O2 a failed write to standard output ends the
 * program with an error.  O3 failures of paths have the kinds that the library's have. */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prompts beyond this are refused by size, before any work. */
#define MAX_INPUT (64u << 20)

void *cli_alloc(size_t size)
{
    void *p = calloc(1, size > 0 ? size : 1);
    if (p == NULL) {
        fprintf(stderr, "zerope: error: not enough memory for %zu bytes\n", size);
        exit(zp_status_exit_code(ZP_NO_MEMORY));
    }
    return p;
}

void *cli_resize(void *p, size_t size)
{
    void *q = realloc(p, size > 0 ? size : 1);
    if (q == NULL) {
        fprintf(stderr, "zerope: error: not enough memory for %zu bytes\n", size);
        exit(zp_status_exit_code(ZP_NO_MEMORY));
    }
    return q;
}

char *cli_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(cli_alloc(n), s, n);
}

void text_append(struct text *t, const void *data, size_t size)
{
    if (t->size + size + 1 > t->room) {
        t->room = (t->size + size + 1) * 2;
        t->data = cli_resize(t->data, t->room);
    }
    if (size > 0)
        memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = '\0';
}

void text_printf(struct text *t, const char *fmt, ...)
{
    char small[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (n < (int)sizeof small) {
        text_append(t, small, n > 0 ? (size_t)n : 0);
        return;
    }
    char *large = cli_alloc((size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(large, (size_t)n + 1, fmt, args);
    va_end(args);
    text_append(t, large, (size_t)n);
    free(large);
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){ 0 };
}

/* A path that names nothing usable is wrong input, a full disk is missing room; the rest (rights,
 * devices) are run errors. The library sorts its own failures the same way (base/os.c). */
static zp_status kind_of(int code)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP: return ZP_BAD_INPUT;
    case ENOSPC:
    case EDQUOT: return ZP_NO_SPACE;
    default: return ZP_IO;
    }
}

/* ---- input ------------------------------------------------------------------------------- */
static zp_status read_all(struct cli *c, FILE *f, const char *name, size_t max, struct text *out)
{
    char *chunk = cli_alloc(65536);
    text_append(out, "", 0);
    size_t n;
    while ((n = fread(chunk, 1, 65536, f)) > 0 && out->size + n <= max)
        text_append(out, chunk, n);
    free(chunk);
    zp_status st = ZP_OK;
    if (n > 0)
        st = cli_fail(c, ZP_BAD_INPUT, "%s: longer than %zu bytes, the limit for this input",
                      name, max);
    else if (ferror(f))
        st = cli_fail(c, ZP_IO, "%s: cannot read: %s", name, strerror(errno));
    if (st != ZP_OK)
        text_free(out);
    return st;
}

zp_status cli_read_file(struct cli *c, const char *path, size_t max, struct text *out)
{
    if (strcmp(path, "-") == 0)
        return read_all(c, stdin, "standard input", max, out);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return cli_fail(c, kind_of(errno), "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    zp_status st = ZP_OK;
    if (fstat(fileno(f), &info) == 0 && S_ISDIR(info.st_mode))
        st = cli_fail(c, ZP_BAD_INPUT, "%s: is a folder, expected a file", path);
    if (st == ZP_OK)
        st = read_all(c, f, path, max, out);
    fclose(f);
    return st;
}

zp_status cli_read_input(struct cli *c, struct text *out, bool *is_prompt)
{
    const char *option = cli_has(c, "prompt") ? "prompt" : "text";
    const char *prompt = cli_text(c, option), *file = cli_text(c, "file");
    *is_prompt = prompt != NULL;
    if (prompt != NULL && file != NULL)
        return cli_usage(c, "the text is given twice: with --%s and with --file %s", option, file);
    if (prompt != NULL) {
        text_append(out, prompt, strlen(prompt));
        return ZP_OK;
    }
    if (file == NULL && isatty(STDIN_FILENO))
        return cli_usage(c, "no text: give it with -p TEXT or -f FILE, or pipe it in");
    return cli_read_file(c, file != NULL ? file : "-", MAX_INPUT, out);
}

/* ---- output ------------------------------------------------------------------------------ */
const char *cli_plural(size_t n)
{
    return n == 1 ? "" : "s";
}

/* Length of the well-formed UTF-8 sequence at p (1 to 4), or 0. */
static size_t scalar_length(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xC2 && p[0] < 0xE0   ? 2
               : (p[0] & 0xF0) == 0xE0       ? 3
               : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                             : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    bool overlong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xED && p[1] >= 0xA0, beyond = p[0] == 0xF4 && p[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : n;
}

json_t *cli_json_text(const char *text, size_t size)
{
    struct text clean = { 0 };
    text_append(&clean, "", 0);
    for (size_t i = 0; i < size;) {
        size_t n = scalar_length((const unsigned char *)text + i, size - i);
        n > 0 ? text_append(&clean, text + i, n) : text_append(&clean, "\xEF\xBF\xBD", 3);
        i += n > 0 ? n : 1;
    }
    json_t *j = json_stringn(clean.data, clean.size);
    text_free(&clean);
    return j;
}

static int write_errno; /* of the first failed write: stdio only keeps that there was one */

static ssize_t write_output(void *cookie, const char *data, size_t size)
{
    (void)cookie;
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(STDOUT_FILENO, data + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* a reader made the pipe non-blocking */
            poll(&(struct pollfd){ .fd = STDOUT_FILENO, .events = POLLOUT }, 1, -1);
            continue;
        }
        if (n < 0) {
            write_errno = write_errno != 0 ? write_errno : errno;
            return (ssize_t)done;
        }
        done += (size_t)n;
    }
    return (ssize_t)size;
}

void cli_open_output(void)
{
    FILE *own = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_output });
    if (own == NULL)
        return;
    setvbuf(own, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
    stdout = own;
}

bool cli_write(const char *text, size_t size)
{
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0;
}

zp_status cli_flush(struct cli *c)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail(c, kind_of(write_errno), "write error on standard output: %s",
                        write_errno != 0 ? strerror(write_errno) : "the output ended early");
    return ZP_OK;
}

zp_status cli_emit(struct cli *c, json_t *doc)
{
    char *text = doc != NULL ? json_dumps(doc, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(doc);
    if (text == NULL)
        return cli_fail(c, ZP_RUN, "cannot build the JSON document");
    printf("%s\n", text);
    free(text);
    c->wrote_document = true;
    return ZP_OK;
}

zp_status cli_parse_document(struct cli *c, const char *document, json_t **out)
{
    json_error_t e;
    *out = json_loads(document, JSON_ALLOW_NUL, &e);
    if (*out == NULL)
        return cli_fail(c, ZP_RUN, "the library's document is not JSON: line %d: %s", e.line,
                        e.text);
    return ZP_OK;
}

zp_status cli_show_value(struct cli *c, json_t *doc)
{
    if (c->json)
        return cli_emit(c, doc);
    view_document(stdout, doc);
    json_decref(doc);
    return ZP_OK;
}

zp_status cli_show(struct cli *c, char *document)
{
    json_t *doc = NULL;
    zp_status st = cli_parse_document(c, document, &doc);
    zp_free(document);
    return st == ZP_OK ? cli_show_value(c, doc) : st;
}

zp_status cli_check_output(struct cli *c, const char *path)
{
    struct stat info;
    char *folder = cli_strdup(path), *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder] = '\0';
    const char *where = slash != NULL ? folder : ".";
    zp_status st = ZP_OK;
    if (stat(where, &info) != 0)
        st = cli_fail(c, kind_of(errno), "%s: cannot write there: %s: %s", path, where,
                      strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        st = cli_fail(c, ZP_BAD_INPUT, "%s: cannot write there: %s is not a folder", path, where);
    else if (access(where, W_OK) != 0)
        st = cli_fail(c, kind_of(errno), "%s: cannot write there: %s: %s", path, where,
                      strerror(errno));
    else if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        st = cli_fail(c, ZP_BAD_INPUT, "%s: is a folder, expected a file name", path);
    else if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))  /* it would be renamed over */
        st = cli_fail(c, ZP_BAD_INPUT,
                      "%s: is no regular file; the output is written beside it first", path);
    else if (stat(path, &info) == 0 && access(path, W_OK) != 0)
        st = cli_fail(c, ZP_IO, "%s: the existing file is write-protected", path);
    free(folder);
    return st;
}

static zp_status check_inputs(struct cli *c, const struct cli_option *o, const char *out)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const char *in = c->values[i].n > 0 ? c->values[i].texts[0] : NULL;
        const struct cli_option *other = c->options[i];
        if (in == NULL || other->type != OPTION_FILE || other == o || strcmp(in, "-") == 0)
            continue;
        if (zp_writes_over(out, in))
            return cli_usage(c, "--%s %s would be written %s --%s %s; give it another name",
                             o->name, out,
                             access(out, F_OK) != 0 && access(in, F_OK) == 0 ? "into" : "over",
                             other->name, in);
    }
    return ZP_OK;
}

zp_status cli_check_outputs(struct cli *c, const char *folder)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const struct cli_option *o = c->options[i];
        const char *out = c->values[i].n > 0 ? c->values[i].texts[0] : NULL;
        if (!o->writes || out == NULL)
            continue;
        if (folder == NULL || strcmp(folder, o->name) != 0)
            CLI_TRY(cli_check_output(c, out));
        CLI_TRY(check_inputs(c, o, out));
    }
    return ZP_OK;
}

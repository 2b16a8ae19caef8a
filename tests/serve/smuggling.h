/* smuggling.h: cases of tests/serve/smuggling: bytes a client sends, and what becomes of them. */
#ifndef TESTS_SMUGGLING_H
#define TESTS_SMUGGLING_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file holds cases:
 *     == what it is about
 *     -> 400 bad_chunk            statuses of all answers, in turn; the code of the last, if it is
 *     -> 200 200 open             a fault; "open": the connection goes on
 *     POST /echo HTTP/1.1\r\n     bytes; the file's line ends are not among them, blanks at their
 *     Host: a\r\n                 ends are, \r \n \t \\ and \xHH are escapes */
struct smuggling_case {
    char name[160], code[64];
    int status[8];
    size_t n_status;
    bool open;
    char bytes[1 << 16];
    size_t size;
};

static inline void smuggling_take_expectation(struct smuggling_case *c, char *line)
{
    c->n_status = 0;
    c->open = false;
    c->code[0] = '\0';
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        bool number = word[0] >= '0' && word[0] <= '9';
        if (number) c->status[c->n_status++ % 8] = (int)strtol(word, NULL, 10);
        else if (strcmp(word, "open") == 0) c->open = true;
        else snprintf(c->code, sizeof c->code, "%s", word);
    }
}

static inline void smuggling_take_bytes(struct smuggling_case *c, const char *line)
{
    for (; *line != '\n' && *line != '\0'; line++) {
        char byte = *line;
        if (byte == '\\') {
            byte = *++line;
            if (byte == 'r') byte = '\r';
            else if (byte == 'n') byte = '\n';
            else if (byte == 't') byte = '\t';
            else if (byte == 'x') {
                char hex[3] = { line[1], line[2], 0 };
                byte = (char)strtol(hex, NULL, 16);
                line += 2;
            }
        }
        if (c->size == sizeof c->bytes) abort();
        c->bytes[c->size++] = byte;
    }
}

/* Calls `use` for each case of the file; returns how many. */
static inline size_t smuggling_each(const char *path,
                                    void (*use)(void *arg, const struct smuggling_case *c),
                                    void *arg)
{
    static struct smuggling_case c;
    char line[4096];
    size_t n = 0;
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    c.size = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "== ", 3) == 0) {
            if (c.size != 0) use(arg, &c), n++;
            c.size = 0;
            snprintf(c.name, sizeof c.name, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
        } else if (strncmp(line, "-> ", 3) == 0) {
            smuggling_take_expectation(&c, line + 3);
        } else {
            smuggling_take_bytes(&c, line);
        }
    }
    if (c.size != 0) use(arg, &c), n++;
    fclose(f);
    return n;
}

#endif

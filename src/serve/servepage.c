/* servepage.c: the dashboard's three files, from the binary.
 * P1 they load nothing from elsewhere, and a browser is told to load and run nothing else: texts
 *    from users or models that reached the page could not act there.
 * P2 a browser may keep them, but asks each time whether they are still those. */
#include "serve/servepage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "serve/servereply.h"

#include "servepage_bytes.inc"

static const struct page {
    const char *path, *type;
    const unsigned char *bytes;
    size_t size;
} pages[] = {
    { "/", "text/html; charset=utf-8", page_dashboard_html, sizeof page_dashboard_html },
    { "/dashboard.js", "text/javascript; charset=utf-8", page_dashboard_js,
      sizeof page_dashboard_js },
    { "/dashboard.css", "text/css; charset=utf-8", page_dashboard_css, sizeof page_dashboard_css },
};

static const struct page *find(const char *path)
{
    size_t i = 0;
    while (strcmp(pages[i].path, path) != 0) i++;
    return &pages[i];
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static zp_status add_escaped(struct buffer *out, const char *text, zp_err *err)
{
    for (; *text != '\0'; text++) {
        if (strchr("&<>\"'", *text) != NULL)
            ZP_TRY(buffer_printf(out, err, "&#%d;", *text));
        else ZP_TRY(buffer_append(out, text, 1, err));
    }
    return ZP_OK;
}

/* Below a prefix, names in the page are meant from there, with "/" at the end of the address or
 * without. */
static zp_status write_page(const struct page *page, const char *prefix, struct buffer *out,
                            zp_err *err)
{
    static const char mark[] = "<head>\n";
    size_t head = 0;
    if (prefix != NULL && prefix[0] != '\0' && page->bytes == page_dashboard_html) {
        const unsigned char *at = memmem(page->bytes, page->size, mark, sizeof mark - 1);
        head = (size_t)(at - page->bytes) + sizeof mark - 1;
        ZP_TRY(buffer_append(out, page->bytes, head, err));
        ZP_TRY(buffer_append_text(out, "<base href=\"", err));
        ZP_TRY(add_escaped(out, prefix, err));
        ZP_TRY(buffer_append_text(out, "/\">\n", err));
    }
    return buffer_append(out, page->bytes + head, page->size - head, err);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* What the client has is what there is: its If-None-Match names it. */
static bool has_it(const struct http_request *r, const char *tag)
{
    const char *known = http_header(r, "if-none-match");
    return known != NULL && (strcmp(known, "*") == 0 || strstr(known, tag) != NULL);
}

static void reply(const struct servecall *c, const struct page *page, const struct buffer *body)
{
    char tag[32];
    (void)snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", hash_xxh64(body->data, body->size, 0));
    const struct http_header headers[] = {
        { "etag", tag },
        { "cache-control", "no-cache" }, // P2
        { "content-security-policy", // P1; an icon is in the page itself
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
          "img-src data:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
          "require-trusted-types-for 'script'" },
        { "x-content-type-options", "nosniff" },
        { "referrer-policy", "no-referrer" },
        { "cross-origin-opener-policy", "same-origin" },
        { "cross-origin-resource-policy", "same-origin" },
    };
    bool known = has_it(c->r, tag);
    http_reply(c->x, &(struct http_reply){ .status = known ? 304 : 200, .type = page->type,
                                           .body = known ? NULL : body->data,
                                           .size = known ? 0 : body->size, .headers = headers,
                                           .n_headers = ZP_COUNT(headers) });
}

void servepage(const struct servecall *c)
{
    const struct page *page = find(c->r->path);
    struct buffer body = buffer_with_max(MEM_SERVE, SERVEREPLY_MOST);
    zp_err err = { 0 };
    zp_status status = write_page(page, c->s->o.prefix, &body, &err);
    if (status != ZP_OK) {
        servereply_json(c->x, API_OPENAI, status, &body, &err);
        return;
    }
    reply(c, page, &body);
    buffer_free(&body);
}

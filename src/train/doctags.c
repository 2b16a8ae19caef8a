/* doctags.c: structure marks in the text of a document.
 * Owns: the rules. Does not know: tokens.
 * M1 marks are what a reader would take for structure, not what a parser accepts: a mark needs no
 *    correct document around it.
 * M2 nothing inside a fence or a literal block is a mark, but for the line that ends the fence. */
#include "train/doctags.h"

#include <stdbool.h>
#include <string.h>

enum {
    MOST_TAG = 256, /* bytes of a tag, */
    MOST_NUMBER = 12,
    MOST_ROMAN = 4,
    LEAST_RUN = 3, /* signs of a line that consists of one sign */
    TAB = 8,
    MOST_INDENT = 3 /* of a heading with # */
};

/* What the line before was. */
enum line_kind {
    LINE_BLANK,
    LINE_TEXT,
    LINE_OVER, /* a line over a heading */
    LINE_HEADING,
    LINE_TABLE,
    LINE_ITEM,
    LINE_END /* of what goes no further: code, a rule across the page */
};

struct line {
    size_t begin, end; /* without blanks at both ends; begin == end: a blank line */
    size_t indent, next;
};

struct marker {
    const char *text;
    size_t n;
    uint16_t *tags;
    struct line line;
    enum line_kind before;
    size_t before_size, before_indent; /* of the line before */
    char fence;        /* that is open, or 0 */
    size_t fence_size;
    bool literal;      /* deeper lines belong to a literal block */
    size_t literal_indent;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static struct line line_at(const struct marker *m, size_t at)
{
    const char *newline = memchr(m->text + at, '\n', m->n - at);
    struct line l = { .begin = at, .next = newline ? (size_t)(newline - m->text) + 1 : m->n };
    l.end = newline ? l.next - 1 : m->n;
    for (; l.begin < l.end && is_blank(m->text[l.begin]); l.begin++)
        l.indent += m->text[l.begin] == '\t' ? TAB - l.indent % TAB : 1;
    while (l.end > l.begin && is_blank(m->text[l.end - 1])) l.end--;
    return l;
}

static size_t size_of(const struct line *l)
{
    return l->end - l->begin;
}

static void mark(struct marker *m, size_t begin, size_t end, enum struct_type type)
{
    for (size_t i = begin; i < end; i++)
        if (!is_blank(m->text[i])) m->tags[i] |= (uint16_t)(1u << type);
}

/* Bytes from `at` on that are c. */
static size_t run_of(const struct marker *m, const struct line *l, size_t at, char c)
{
    size_t n = 0;
    while (at + n < l->end && m->text[at + n] == c) n++;
    return n;
}

static bool starts(const struct marker *m, size_t at, size_t end, const char *word)
{
    size_t n = strlen(word);
    return end - at >= n && memcmp(m->text + at, word, n) == 0;
}

static bool is_among(char c, const char *signs)
{
    return c != '\0' && strchr(signs, c) != NULL;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool ends_word(const struct marker *m, const struct line *l, size_t at)
{
    return at >= l->end || is_blank(m->text[at]);
}

/* The sign that the line consists of, at least LEAST_RUN times, without anything else; else 0. */
static char sign_of(const struct marker *m, const struct line *l)
{
    char c = size_of(l) >= LEAST_RUN ? m->text[l->begin] : '\0';
    bool alone = is_among(c, "=-~^\"'`#*+.:_<>") && run_of(m, l, l->begin, c) == size_of(l);
    return alone ? c : '\0';
}

/* ---- inside a line --------------------------------------------------------------------------- */

/* Where a tag that begins with '<' at `at` ends; `at`: it is none. */
static size_t tag_end(const struct marker *m, const struct line *l, size_t at)
{
    size_t i = at + 1, most = l->end - at < MOST_TAG ? l->end : at + MOST_TAG;
    if (starts(m, i, most, "!--")) i += 3;
    else {
        if (i < most && m->text[i] == '/') i++;
        if (i >= most || !is_letter(m->text[i])) return at;
        while (i < most && (is_letter(m->text[i]) || is_digit(m->text[i]) ||
                            is_among(m->text[i], ":_.-")))
            i++;
        if (i < most && m->text[i] != '>' && !is_blank(m->text[i]) && !starts(m, i, most, "/>"))
            return at;
    }
    while (i < most && m->text[i] != '>') i++;
    return i < most ? i + 1 : at;
}

static size_t section_end(const struct marker *m, const struct line *l, size_t at)
{
    size_t most = l->end - at < MOST_TAG ? l->end : at + MOST_TAG;
    if (!starts(m, at, most, "[SECTION:") && !starts(m, at, most, "[PARA:")) return at;
    const char *end = memchr(m->text + at, ']', most - at);
    return end ? (size_t)(end - m->text) + 1 : at;
}

static void mark_inline(struct marker *m)
{
    const struct line *l = &m->line;
    for (size_t i = l->begin, end; i < l->end; i++) {
        if (m->text[i] == '<' && (end = tag_end(m, l, i)) > i) {
            mark(m, i, end, STRUCT_XML_TAG);
            i = end - 1;
        } else if (m->text[i] == '[' && (end = section_end(m, l, i)) > i) {
            mark(m, i, end, STRUCT_SECTION);
            i = end - 1;
        }
    }
}

/* ---- what a line begins with ----------------------------------------------------------------- */

/* Behind "1." "1)" "2.3.1" "(a)" "(iv)" "b)" "#." with a blank behind; `at`: none. */
static size_t number_end(const struct marker *m, const struct line *l, size_t at)
{
    size_t i = at, dots = 0;
    if (starts(m, at, l->end, "#.")) return ends_word(m, l, at + 2) ? at + 2 : at;
    bool open = i < l->end && m->text[i] == '(';
    i += open;
    size_t first = i;
    while (i < l->end && i - first < MOST_NUMBER &&
           (is_digit(m->text[i]) || (i > first && m->text[i] == '.')))
        dots += m->text[i++] == '.';
    bool digits = i > first;
    if (!digits)
        while (i < l->end && i - first < MOST_ROMAN && is_among(m->text[i], "ivx")) i++;
    if (!digits && i == first && i < l->end && is_letter(m->text[i])) i++;
    if (i == first) return at;
    bool closed = i < l->end && m->text[i] == ')';
    i += closed;
    if (open ? !closed : !(closed || (digits && dots > 0))) return at;
    return i < l->end && is_blank(m->text[i]) ? i : at;
}

/* Behind a bullet with a blank behind; `at`: none. */
static size_t bullet_end(const struct marker *m, const struct line *l, size_t at)
{
    static const char *const bullets[] = { "-", "*", "+", "\xe2\x80\xa2", "\xe2\x80\xa3" };
    for (size_t i = 0; i < sizeof bullets / sizeof *bullets; i++)
        if (starts(m, at, l->end, bullets[i])) {
            size_t end = at + strlen(bullets[i]);
            if (end < l->end && is_blank(m->text[end])) return end;
        }
    return at;
}

/* A rule of a table: bars, or crosses, and dashes; or groups of equal signs. */
static bool is_table_rule(const struct marker *m, const struct line *l)
{
    size_t dashes = 0, bars = 0, groups = 0;
    for (size_t i = l->begin; i < l->end; i++) {
        char c = m->text[i];
        if (!is_among(c, "-=:|+ ")) return false;
        dashes += c == '-' || c == '=';
        bars += c == '|' || (c == '+' && i == l->begin);
        groups += c == '=' && (i == l->begin || m->text[i - 1] == ' ');
    }
    bool simple = groups > 1 && m->text[l->begin] == '=' && bars == 0;
    return dashes >= LEAST_RUN && (bars > 0 || simple);
}

static bool mark_table(struct marker *m)
{
    const struct line *l = &m->line;
    if (is_table_rule(m, l)) {
        mark(m, l->begin, l->end, STRUCT_TABLE);
        return true;
    }
    if (m->text[l->begin] != '|' || !memchr(m->text + l->begin + 1, '|', size_of(l) - 1))
        return false;
    for (size_t i = l->begin; i < l->end; i++)
        if (m->text[i] == '|') mark(m, i, i + 1, STRUCT_TABLE);
    return true;
}

/* ---- fences and literal blocks --------------------------------------------------------------- */

/* As long as the text above it, which it underlines. */
static bool is_underline(const struct marker *m, const struct line *l)
{
    return m->before == LINE_TEXT && m->before_indent == l->indent && size_of(l) >= m->before_size;
}

static bool mark_fence(struct marker *m)
{
    const struct line *l = &m->line;
    char c = m->text[l->begin];
    size_t n = c == '`' || c == '~' ? run_of(m, l, l->begin, c) : 0;
    if (n < LEAST_RUN) return false;
    bool alone = n == size_of(l);
    if (m->fence && (c != m->fence || n < m->fence_size || !alone)) return false;
    if (!m->fence && alone && is_underline(m, l)) return false;
    if (!m->fence && c == '`' && memchr(m->text + l->begin + n, '`', size_of(l) - n)) return false;
    mark(m, l->begin, l->begin + n, STRUCT_CODE_FENCE);
    m->fence = m->fence ? 0 : c;
    m->fence_size = n;
    return true;
}

/* reStructuredText: what is indented behind "::" is code. */
static void begin_literal(struct marker *m)
{
    const struct line *l = &m->line;
    bool directive = starts(m, l->begin, l->end, ".. code") ||
                     starts(m, l->begin, l->end, ".. sourcecode");
    const char *end = directive ? memchr(m->text + l->begin, ':', size_of(l)) : NULL;
    if (!directive && (size_of(l) < 2 || !starts(m, l->end - 2, l->end, "::") ||
                       starts(m, l->begin, l->end, ".. ")))
        return;
    if (directive && (!end || !starts(m, (size_t)(end - m->text), l->end, "::"))) return;
    mark(m, directive ? l->begin : l->end - 2, directive ? (size_t)(end - m->text) + 2 : l->end,
         STRUCT_CODE_FENCE);
    m->literal = true;
    m->literal_indent = l->indent;
}

/* ---- headings and rules ---------------------------------------------------------------------- */

/* A line of one sign: under a heading, over one, or a rule across the page. */
static bool mark_run(struct marker *m, enum line_kind *kind)
{
    const struct line *l = &m->line;
    char c = sign_of(m, l);
    if (!c) return false;
    bool markdown = m->before == LINE_TEXT && m->before_indent == l->indent && is_among(c, "=-");
    if (markdown || is_underline(m, l)) {
        mark(m, l->begin, l->end, STRUCT_HEADING);
        *kind = LINE_HEADING;
        return true;
    }
    if (m->before == LINE_TEXT) return false;
    struct line title = line_at(m, l->next), under = line_at(m, title.next);
    bool over = size_of(&title) > 0 && size_of(&title) <= size_of(l) && sign_of(m, &under) == c;
    if (!over && !is_among(c, "-*_=~")) return false;
    mark(m, l->begin, l->end, over ? STRUCT_HEADING : STRUCT_BREAK);
    *kind = over ? LINE_OVER : LINE_END;
    return true;
}

static bool mark_hashes(struct marker *m)
{
    const struct line *l = &m->line;
    size_t n = run_of(m, l, l->begin, '#');
    if (n == 0 || n > 6 || l->indent > MOST_INDENT || !ends_word(m, l, l->begin + n)) return false;
    mark(m, l->begin, l->begin + n, STRUCT_HEADING);
    size_t at = l->begin + n;
    while (at < l->end && is_blank(m->text[at])) at++;
    mark(m, at, number_end(m, l, at), STRUCT_NUMBERING);
    return true;
}

static bool mark_item(struct marker *m)
{
    const struct line *l = &m->line;
    size_t bullet = bullet_end(m, l, l->begin), number = number_end(m, l, l->begin);
    mark(m, l->begin, bullet, STRUCT_LIST);
    mark(m, l->begin, number, STRUCT_NUMBERING);
    return bullet > l->begin || number > l->begin;
}

/* ---- the document ---------------------------------------------------------------------------- */

static void begin_block(struct marker *m)
{
    m->tags[m->line.begin] |= DOCTAGS_BEGINS;
}

static bool begins_anew(enum line_kind before)
{
    return before == LINE_BLANK || before == LINE_HEADING || before == LINE_END;
}

/* A line of text outside of fences and literal blocks. */
static enum line_kind mark_line(struct marker *m)
{
    enum line_kind kind = LINE_TEXT, before = m->before;
    if (mark_run(m, &kind)) {
        if (kind != LINE_HEADING) begin_block(m);
        return kind;
    }
    if (mark_hashes(m)) kind = LINE_HEADING;
    else if (mark_table(m)) kind = LINE_TABLE;
    else if (mark_item(m)) kind = LINE_ITEM;
    if (kind == LINE_HEADING || kind == LINE_ITEM || begins_anew(before) ||
        (kind == LINE_TABLE) != (before == LINE_TABLE))
        begin_block(m);
    mark_inline(m);
    begin_literal(m);
    return kind;
}

static void mark_breaks(struct marker *m, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (m->text[i] == '\f') {
            m->tags[i] |= 1u << STRUCT_BREAK;
            m->before = LINE_BLANK;
        }
}

static void step(struct marker *m, size_t at)
{
    struct line *l = &m->line;
    *l = line_at(m, at);
    if (!m->fence) mark_breaks(m, at, l->begin);
    if (size_of(l) == 0) {
        m->before = LINE_BLANK;
        return;
    }
    if (m->literal && l->indent <= m->literal_indent) m->literal = false;
    bool was_open = m->fence != 0, blank = m->before == LINE_BLANK;
    if (m->literal) {
        if (blank) begin_block(m);
        m->before = LINE_END;
    } else if (mark_fence(m)) {
        if (!was_open) begin_block(m);
        m->before = LINE_END;
    } else if (was_open) m->before = LINE_TEXT;
    else m->before = mark_line(m);
    m->before_size = size_of(l);
    m->before_indent = l->indent;
}

void doctags_mark(const char *text, size_t n, uint16_t *tags)
{
    struct marker m = { .text = text, .n = n, .tags = tags };
    memset(tags, 0, n * sizeof *tags);
    for (size_t at = 0; at < n; at = m.line.next) step(&m, at);
}

/* toolcalls.c: a machine over text that is held back as long as it may become a mark or a call.
 * Owns: the text held back. Invariants: toolcalls.h.
 * Each state has a function that takes what it can from the front of `held`; it returns with *more
 * false where only more text can help. */
#include "serve/toolcalls.h"

#include <string.h>

#include "base/json_tree.h"

#define MOST_HELD ((size_t)1 << 20) /* before a call has begun */
#define MOST_TEXT ((size_t)64 << 20)

struct toolcalls_marks {
    const char *open, *close; /* NULL: none */
    bool bare;                /* a call may be the whole answer, without a mark */
};
static const struct toolcalls_marks marks[] = {
    [TOOLCALLS_TAGGED] = { "<tool_call>", "</tool_call>", false },
    [TOOLCALLS_LLAMA3] = { "<|python_tag|>", NULL, true },
    [TOOLCALLS_JSON] = { NULL, NULL, true },
};
static const struct toolcalls_marks no_marks = { NULL, NULL, false };
static const char think[] = "<think>", think_end[] = "</think>";

enum toolcalls_style toolcalls_style_of(const char *text)
{
    if (strstr(text, "<tool_call>")) return TOOLCALLS_TAGGED;
    if (strstr(text, "<|python_tag|>")) return TOOLCALLS_LLAMA3;
    if (strstr(text, "<|start_header_id|>") && strstr(text, "parameters")) return TOOLCALLS_LLAMA3;
    return strstr(text, "tools") ? TOOLCALLS_JSON : TOOLCALLS_TAGGED;
}

bool toolcalls_opens_reasoning(const char *prompt, size_t size)
{
    size_t n = sizeof think - 1;
    while (size > 0 && jsonscan_is_space(prompt[size - 1])) size--;
    return size >= n && memcmp(prompt + size - n, think, n) == 0;
}

void toolcalls_open(struct toolcalls *t, const struct toolcalls_options *o)
{
    bool calls = json_array_size(o->tools) != 0;
    *t = (struct toolcalls){ .o = *o, .held = buffer_with_max(MEM_SERVE, MOST_TEXT) };
    t->marks = calls ? &marks[o->style] : &no_marks;
    t->state = o->reasoning != REASONING_INLINE && o->in_reasoning ? SPLIT_REASONING : SPLIT_START;
    t->trims = t->state == SPLIT_REASONING;
}

void toolcalls_free(struct toolcalls *t)
{
    buffer_free(&t->held);
}

bool toolcalls_is_full(const struct toolcalls *t)
{
    return t->state == SPLIT_FULL;
}

/* ---- what is held ---------------------------------------------------------------------------- */

static const char *text_of(const struct toolcalls *t)
{
    return t->held.size ? (const char *)t->held.data : "";
}

static void take(struct toolcalls *t, size_t n)
{
    if (n == 0) return;
    memmove(t->held.data, t->held.data + n, t->held.size - n + 1); /* with the NUL */
    t->held.size -= n;
}

static size_t skip_space(const struct toolcalls *t, size_t at)
{
    while (at < t->held.size && jsonscan_is_space(text_of(t)[at])) at++;
    return at;
}

static zp_status emit(struct toolcalls *t, enum api_part_kind kind, const char *text, size_t size,
                      zp_err *err)
{
    if (size == 0 || (kind == PART_REASONING && t->o.reasoning == REASONING_HIDDEN)) return ZP_OK;
    return t->o.part(t->o.arg, &(struct api_part){ kind, text, size }, err);
}

static zp_status emit_held(struct toolcalls *t, enum api_part_kind kind, size_t n, zp_err *err)
{
    ZP_TRY(emit(t, kind, text_of(t), n, err));
    take(t, n);
    return ZP_OK;
}

/* How much of a mark stands at `at`: all of it (*whole), or as much as is there. */
static bool may_be_mark(const struct toolcalls *t, size_t at, const char *mark, bool *whole)
{
    size_t size = strlen(mark), left = t->held.size - at;
    *whole = size <= left;
    return memcmp(text_of(t) + at, mark, *whole ? size : left) == 0;
}

/* The first place where the mark stands, or may begin at the end. */
static size_t find_mark(const struct toolcalls *t, const char *mark, bool *whole)
{
    const char *text = text_of(t), *at = text;
    while ((at = memchr(at, mark[0], t->held.size - (size_t)(at - text))) != NULL) {
        if (may_be_mark(t, (size_t)(at - text), mark, whole)) return (size_t)(at - text);
        at++;
    }
    *whole = false;
    return t->held.size;
}

/* Gives out what stands before a mark, without the white space in front of it. *found: the rest is
 * that space and the mark. */
static zp_status emit_until(struct toolcalls *t, enum api_part_kind kind, const char *mark,
                            bool at_end, bool *found, zp_err *err)
{
    size_t n = find_mark(t, mark, found);
    if (at_end && !*found) return emit_held(t, kind, t->held.size, err);
    while (n > 0 && jsonscan_is_space(text_of(t)[n - 1])) n--;
    return emit_held(t, kind, n, err);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* JSON text of arguments, control characters in its strings escaped (T3). */
static zp_status emit_arguments(struct toolcalls *t, const char *text, size_t size, zp_err *err)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (t->in_string && c < 0x20) {
            const char escape[] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
            ZP_TRY(emit(t, PART_ARGUMENTS, text + from, i - from, err));
            ZP_TRY(emit(t, PART_ARGUMENTS, escape, sizeof escape, err));
            from = i + 1;
        }
        if (c == '"' && !t->escaped) t->in_string = !t->in_string;
        t->escaped = t->in_string && c == '\\' && !t->escaped;
    }
    return emit(t, PART_ARGUMENTS, text + from, size - from, err);
}

static zp_status begin_call(struct toolcalls *t, zp_err *err)
{
    t->begun = true;
    t->n_calls++;
    t->in_string = t->escaped = false;
    return emit(t, PART_CALL, t->name, strlen(t->name), err);
}

static void begin_object(struct toolcalls *t)
{
    t->state = SPLIT_OBJECT;
    t->scan = (struct jsonscan){ .state = SCAN_VALUE };
    t->name = NULL;
    t->in_value = t->begun = t->streams = t->has_arguments = false;
    t->arguments_at = t->arguments_end = 0;
}

/* What was held is none: it comes out, its mark first (T1), and what follows is looked at again. */
static zp_status give_up(struct toolcalls *t, zp_err *err)
{
    bool begun = t->opening == 0; /* a list whose first calls were good */
    ZP_TRY(emit_held(t, PART_CONTENT, t->opening, err));
    t->in_list = false;
    t->state = begun && t->marks->close ? SPLIT_BROKEN : SPLIT_CONTENT;
    return ZP_OK;
}

/* The name of a tool as it stands in the text, without quotes. */
static const char *find_tool(const struct toolcalls *t, const char *name, size_t size)
{
    for (size_t i = 0; i < json_array_size(t->o.tools); i++) {
        const json_t *tool = json_array_get(t->o.tools, i);
        const char *own = json_string_value(
            json_object_get(json_object_get(tool, "function"), "name"));
        if (own != NULL && strlen(own) == size && memcmp(own, name, size) == 0) return own;
    }
    return NULL;
}

static enum toolcalls_key key_of(const char *key, size_t size)
{
    static const struct {
        const char *name;
        enum toolcalls_key key;
    } keys[] = { { "name", KEY_NAME },          { "arguments", KEY_ARGUMENTS },
                 { "parameters", KEY_ARGUMENTS }, { "type", KEY_PASSED },
                 { "id", KEY_PASSED } };
    for (size_t i = 0; i < ZP_COUNT(keys); i++)
        if (strlen(keys[i].name) == size && memcmp(keys[i].name, key, size) == 0)
            return keys[i].key;
    return KEY_OTHER;
}

/* Behind a key. False: the object is no call. */
static bool take_key(struct toolcalls *t)
{
    if (t->begun) {
        t->key = KEY_PASSED;
        return true;
    }
    t->key = key_of(text_of(t) + t->key_at + 1, t->at - t->key_at - 1);
    bool twice = (t->key == KEY_NAME && t->name) || (t->key == KEY_ARGUMENTS && t->has_arguments);
    return !twice && !(t->key == KEY_OTHER && t->marks->bare);
}

/* At the first byte of a value. *good false: the object is no call. */
static zp_status take_value_begin(struct toolcalls *t, char c, bool *good, zp_err *err)
{
    t->in_value = true;
    t->value_at = t->at;
    if (t->key == KEY_NAME) *good = c == '"';
    if (t->key != KEY_ARGUMENTS) return ZP_OK;
    t->has_arguments = true;
    *good = c == '{' || c == '"' || c == 'n';
    t->arguments_at = t->at;
    t->streams = c == '{' && t->name != NULL;
    return t->streams ? begin_call(t, err) : ZP_OK;
}

/* At the last byte of a value. */
static zp_status take_value_end(struct toolcalls *t, bool *good, zp_err *err)
{
    const char *value = text_of(t) + t->value_at;
    t->in_value = false;
    if (t->key == KEY_NAME) {
        t->name = find_tool(t, value + 1, t->at - t->value_at - 1);
        *good = t->name != NULL;
    }
    if (t->key != KEY_ARGUMENTS) return ZP_OK;
    if (t->streams) {
        t->streams = false;
        return emit_arguments(t, value, t->at + 1 - t->value_at, err);
    }
    t->arguments_end = *value == 'n' ? t->arguments_at : t->at + 1;
    return ZP_OK;
}

/* Arguments as a JSON text in a string: the string alone in a list; NULL: it cannot be read. */
static zp_status unquote(const struct toolcalls *t, json_t **out, zp_err *err)
{
    struct buffer list = buffer_with_max(MEM_SERVE, MOST_TEXT);
    const char *text = text_of(t) + t->arguments_at;
    zp_err why = { 0 };
    *out = NULL;
    zp_status status = buffer_append(&list, "[", 1, &why);
    if (status == ZP_OK)
        status = buffer_append(&list, text, t->arguments_end - t->arguments_at, &why);
    if (status == ZP_OK) status = buffer_append(&list, "]", 1, &why);
    if (status == ZP_OK)
        status = json_tree_read((const char *)list.data, list.size, "arguments", ZP_BAD_INPUT, out,
                                &why);
    buffer_free(&list);
    ZP_FAIL_IF(status == ZP_NO_MEMORY, err, status, "%s", why.message);
    return ZP_OK;
}

/* A call begins with all of its arguments. */
static zp_status begin_whole(struct toolcalls *t, zp_err *err)
{
    const char *text = text_of(t) + t->arguments_at;
    size_t size = t->arguments_end - t->arguments_at;
    json_t *list = NULL;
    if (size != 0 && *text == '"') {
        ZP_TRY(unquote(t, &list, err));
        if (list == NULL) return give_up(t, err);
        text = json_string_value(json_array_get(list, 0));
        size = json_string_length(json_array_get(list, 0));
    }
    zp_status status = begin_call(t, err);
    if (status == ZP_OK)
        status = size != 0 ? emit_arguments(t, text, size, err)
                           : emit(t, PART_ARGUMENTS, "{}", 2, err);
    json_decref(list);
    return status;
}

/* The object is whole: a call, unless it lacks what makes one. */
static zp_status end_object(struct toolcalls *t, zp_err *err)
{
    if (!t->begun && (t->name == NULL || (t->marks->bare && !t->has_arguments)))
        return give_up(t, err);
    if (!t->begun) ZP_TRY(begin_whole(t, err));
    if (!t->begun) return ZP_OK; /* given up */
    take(t, t->at + 1);
    t->at = t->opening = 0;
    t->state = t->o.most_calls && t->n_calls >= t->o.most_calls ? SPLIT_FULL : SPLIT_BEHIND;
    return ZP_OK;
}

/* A call that has begun broke off: what it has was given out, the rest is content. */
static zp_status break_off(struct toolcalls *t, zp_err *err)
{
    if (t->streams)
        ZP_TRY(emit_arguments(t, text_of(t) + t->value_at, t->at - t->value_at, err));
    take(t, t->at);
    t->in_list = false;
    t->state = t->marks->close ? SPLIT_BROKEN : SPLIT_CONTENT;
    return ZP_OK;
}

/* One byte of an object further. *good false: it is no call, or none any more. */
static zp_status take_byte(struct toolcalls *t, bool *good, zp_err *err)
{
    char c = text_of(t)[t->at];
    enum jsonscan_state before = t->scan.state;
    bool member = t->scan.depth == 1;
    enum jsonscan_state now = jsonscan_byte(&t->scan, c);
    *good = now != SCAN_BAD;
    if (*good && member) {
        if (before != SCAN_STRING && now == SCAN_STRING && t->scan.is_key) t->key_at = t->at;
        if (before == SCAN_STRING && now == SCAN_COLON) *good = take_key(t);
        if (before == SCAN_VALUE && now != SCAN_VALUE) ZP_TRY(take_value_begin(t, c, good, err));
    }
    bool ends = t->in_value && t->scan.depth == 1 && now == SCAN_AFTER;
    return *good && ends ? take_value_end(t, good, err) : ZP_OK;
}

/* ---- states ---------------------------------------------------------------------------------- */

static zp_status in_object(struct toolcalls *t, bool at_end, bool *more, zp_err *err)
{
    for (; t->at < t->held.size; t->at++) {
        bool good = t->begun || t->at < MOST_HELD;
        if (good) ZP_TRY(take_byte(t, &good, err));
        if (!good) return t->begun ? break_off(t, err) : give_up(t, err);
        if (t->scan.state == SCAN_DONE) return end_object(t, err);
    }
    if (t->streams) {
        ZP_TRY(emit_arguments(t, text_of(t) + t->value_at, t->held.size - t->value_at, err));
        take(t, t->held.size);
        t->at = t->value_at = t->opening = 0;
    }
    *more = at_end;
    if (!at_end) return ZP_OK;
    if (!t->begun) return give_up(t, err);
    take(t, t->held.size);
    t->state = SPLIT_CONTENT;
    return ZP_OK;
}

static zp_status in_call(struct toolcalls *t, bool at_end, bool *more, zp_err *err)
{
    t->at = skip_space(t, t->at);
    char c = text_of(t)[t->at];
    *more = at_end || t->at < t->held.size;
    if (!*more) return ZP_OK;
    if (c == '{') {
        begin_object(t);
    } else if (c == '[' && !t->in_list) {
        t->in_list = true;
        t->at++;
    } else if (c == ']' && t->in_list && t->opening && t->marks->close) { /* a list of no calls */
        take(t, t->at + 1);
        t->at = t->opening = 0;
        t->in_list = false;
        t->state = SPLIT_BEHIND;
    } else {
        return give_up(t, err);
    }
    return ZP_OK;
}

static zp_status behind_in_list(struct toolcalls *t, size_t at, zp_err *err)
{
    char c = text_of(t)[at];
    if (c != ',' && c != ']') return give_up(t, err);
    take(t, at + 1);
    if (c == ',') t->state = SPLIT_CALL;
    else t->in_list = false;
    return ZP_OK;
}

/* Behind an object, which is given out: the list goes on, the closing tag, or the next call. */
static zp_status behind(struct toolcalls *t, bool at_end, bool *more, zp_err *err)
{
    size_t at = skip_space(t, 0);
    bool none = at == t->held.size, whole = false;
    bool closes = !none && t->marks->close && may_be_mark(t, at, t->marks->close, &whole);
    char c = text_of(t)[at];
    t->at = 0;
    *more = at_end || !(none || (closes && !whole && !t->in_list));
    if (!*more) return ZP_OK;
    if (t->in_list && !none) return behind_in_list(t, at, err);
    if (t->marks->bare && c == ';') {
        take(t, at + 1);
    } else if (t->marks->bare && c == '{') {
        t->state = SPLIT_CALL;
        t->at = t->opening = at;
    } else {
        if (closes && whole) take(t, at + strlen(t->marks->close));
        t->state = SPLIT_CONTENT;
    }
    return ZP_OK;
}

/* The beginning of the answer, or what follows its reasoning. False: more text must come. */
static bool at_start(struct toolcalls *t, bool at_end)
{
    bool looks = !t->after_reasoning && t->o.reasoning != REASONING_INLINE, whole = false;
    if (t->after_reasoning) take(t, skip_space(t, 0));
    size_t at = skip_space(t, 0);
    bool none = at == t->held.size;
    bool thinks = looks && !none && may_be_mark(t, at, think, &whole);
    bool waits = looks || t->after_reasoning || t->marks->bare;
    if (!at_end && waits && (none || (thinks && !whole))) return false;
    t->state = SPLIT_CONTENT;
    if (thinks && whole) {
        take(t, at + sizeof think - 1);
        t->state = SPLIT_REASONING;
        t->trims = true;
    } else if (t->marks->bare && !none && strchr("{[", text_of(t)[at])) {
        t->state = SPLIT_CALL;
        t->at = t->opening = at;
    }
    return true;
}

static zp_status in_content(struct toolcalls *t, bool at_end, bool *more, zp_err *err)
{
    *more = false;
    if (at_end && t->n_calls && skip_space(t, 0) == t->held.size) take(t, t->held.size);
    if (t->marks->open == NULL) return emit_held(t, PART_CONTENT, t->held.size, err);
    ZP_TRY(emit_until(t, PART_CONTENT, t->marks->open, at_end, more, err));
    if (!*more) return ZP_OK;
    t->at = t->opening = skip_space(t, 0) + strlen(t->marks->open);
    t->state = SPLIT_CALL;
    return ZP_OK;
}

static zp_status in_reasoning(struct toolcalls *t, bool at_end, bool *more, zp_err *err)
{
    if (t->trims) {
        take(t, skip_space(t, 0));
        t->trims = t->held.size == 0;
    }
    ZP_TRY(emit_until(t, PART_REASONING, think_end, at_end, more, err));
    if (!*more) return ZP_OK;
    take(t, skip_space(t, 0) + sizeof think_end - 1);
    t->after_reasoning = true;
    t->state = SPLIT_START;
    return ZP_OK;
}

static zp_status when_broken(struct toolcalls *t, bool at_end, bool *more, zp_err *err)
{
    ZP_TRY(emit_until(t, PART_CONTENT, t->marks->close, at_end, more, err));
    if (!*more) return ZP_OK;
    take(t, skip_space(t, 0) + strlen(t->marks->close));
    t->state = SPLIT_CONTENT;
    return ZP_OK;
}

static zp_status run(struct toolcalls *t, bool at_end, zp_err *err)
{
    bool more = true;
    while (more) {
        switch (t->state) {
        case SPLIT_START: more = at_start(t, at_end); break;
        case SPLIT_CONTENT: ZP_TRY(in_content(t, at_end, &more, err)); break;
        case SPLIT_REASONING: ZP_TRY(in_reasoning(t, at_end, &more, err)); break;
        case SPLIT_CALL: ZP_TRY(in_call(t, at_end, &more, err)); break;
        case SPLIT_OBJECT: ZP_TRY(in_object(t, at_end, &more, err)); break;
        case SPLIT_BEHIND: ZP_TRY(behind(t, at_end, &more, err)); break;
        case SPLIT_BROKEN: ZP_TRY(when_broken(t, at_end, &more, err)); break;
        case SPLIT_FULL:
            take(t, t->held.size);
            more = false;
        }
    }
    return ZP_OK;
}

zp_status toolcalls_push(struct toolcalls *t, const char *text, size_t size, zp_err *err)
{
    if (size == 0) return ZP_OK;
    ZP_TRY(buffer_append(&t->held, text, size, err));
    return run(t, false, err);
}

zp_status toolcalls_finish(struct toolcalls *t, zp_err *err)
{
    return run(t, true, err);
}

/* jsonscan.c: JSON as a machine of few states and a stack of brackets.
 * J1 depth <= JSONSCAN_DEPTH.  J2 SCAN_DONE and SCAN_BAD are left by nothing. */
#include "serve/jsonscan.h"

#include <string.h>

bool jsonscan_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* How far a number has come. */
enum { NUMBER_MINUS, NUMBER_ZERO, NUMBER_WHOLE, NUMBER_POINT, NUMBER_FRACTION, NUMBER_E,
       NUMBER_SIGN, NUMBER_EXPONENT };

/* The next step of a number, -1: it does not go on with c. */
static int number_step(int at, char c)
{
    bool digit = is_digit(c);
    switch (at) {
    case NUMBER_MINUS: return c == '0' ? NUMBER_ZERO : digit ? NUMBER_WHOLE : -1;
    case NUMBER_WHOLE:
        if (digit) return NUMBER_WHOLE; /* fall through */
    case NUMBER_ZERO: return c == '.' ? NUMBER_POINT : c == 'e' || c == 'E' ? NUMBER_E : -1;
    case NUMBER_FRACTION:
        if (c == 'e' || c == 'E') return NUMBER_E; /* fall through */
    case NUMBER_POINT: return digit ? NUMBER_FRACTION : -1;
    case NUMBER_E:
        if (c == '+' || c == '-') return NUMBER_SIGN; /* fall through */
    default: return digit ? NUMBER_EXPONENT : -1;
    }
}

static bool number_may_end(int at)
{
    return at == NUMBER_ZERO || at == NUMBER_WHOLE || at == NUMBER_FRACTION ||
           at == NUMBER_EXPONENT;
}

static enum jsonscan_state begin_nest(struct jsonscan *s, bool object)
{
    if (s->depth == JSONSCAN_DEPTH) return SCAN_BAD; // J1
    s->objects[s->depth++] = object;
    return object ? SCAN_KEY_OR_END : SCAN_VALUE_OR_END;
}

static enum jsonscan_state end_nest(struct jsonscan *s, char c)
{
    if ((c == '}') != s->objects[s->depth - 1]) return SCAN_BAD;
    return --s->depth == 0 ? SCAN_DONE : SCAN_AFTER;
}

static enum jsonscan_state begin_value(struct jsonscan *s, char c)
{
    if (c == '{' || c == '[') return begin_nest(s, c == '{');
    if (s->depth == 0) return SCAN_BAD;
    if (c == '"') {
        s->is_key = false;
        return SCAN_STRING;
    }
    if (c == '-' || is_digit(c)) {
        s->number = c == '-' ? NUMBER_MINUS : c == '0' ? NUMBER_ZERO : NUMBER_WHOLE;
        return SCAN_NUMBER;
    }
    s->word = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : NULL;
    return s->word != NULL ? SCAN_WORD : SCAN_BAD;
}

static enum jsonscan_state after_value(struct jsonscan *s, char c)
{
    if (c == '}' || c == ']') return end_nest(s, c);
    if (c != ',') return SCAN_BAD;
    return s->objects[s->depth - 1] ? SCAN_KEY : SCAN_VALUE;
}

static enum jsonscan_state begin_key(struct jsonscan *s, char c)
{
    if (c == '}' && s->state == SCAN_KEY_OR_END) return end_nest(s, c);
    s->is_key = true;
    return c == '"' ? SCAN_STRING : SCAN_BAD;
}

static enum jsonscan_state in_string(struct jsonscan *s, char c)
{
    if (c == '\\') return SCAN_ESCAPE;
    if (c != '"') return SCAN_STRING;
    return s->is_key ? SCAN_COLON : SCAN_AFTER;
}

static enum jsonscan_state in_escape(struct jsonscan *s, char c)
{
    if (c == 'u') {
        s->n_hex = 0;
        return SCAN_HEX;
    }
    return c != '\0' && strchr("\"\\/bfnrt", c) ? SCAN_STRING : SCAN_BAD;
}

static enum jsonscan_state in_number(struct jsonscan *s, char c)
{
    int next = number_step(s->number, c);
    if (next >= 0) {
        s->number = (uint8_t)next;
        return SCAN_NUMBER;
    }
    if (!number_may_end(s->number)) return SCAN_BAD;
    return jsonscan_is_space(c) ? SCAN_AFTER : after_value(s, c);
}

static enum jsonscan_state in_word(struct jsonscan *s, char c)
{
    if (c != *s->word) return SCAN_BAD;
    return *++s->word == '\0' ? SCAN_AFTER : SCAN_WORD;
}

static enum jsonscan_state next(struct jsonscan *s, char c)
{
    switch (s->state) {
    case SCAN_STRING: return in_string(s, c);
    case SCAN_ESCAPE: return in_escape(s, c);
    case SCAN_HEX:
        if (!is_hex(c)) return SCAN_BAD;
        return ++s->n_hex == 4 ? SCAN_STRING : SCAN_HEX;
    case SCAN_NUMBER: return in_number(s, c);
    case SCAN_WORD: return in_word(s, c);
    case SCAN_DONE:
    case SCAN_BAD: return s->state; // J2
    default: break;
    }
    if (jsonscan_is_space(c)) return s->state;
    switch (s->state) {
    case SCAN_VALUE_OR_END: return c == ']' ? end_nest(s, c) : begin_value(s, c);
    case SCAN_KEY_OR_END:
    case SCAN_KEY: return begin_key(s, c);
    case SCAN_COLON: return c == ':' ? SCAN_VALUE : SCAN_BAD;
    case SCAN_AFTER: return after_value(s, c);
    default: return begin_value(s, c);
    }
}

enum jsonscan_state jsonscan_byte(struct jsonscan *s, char c)
{
    s->state = next(s, c);
    return s->state;
}

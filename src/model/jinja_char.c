/* jinja_char.c: Unicode characters as Python's str sees them: decoding, classes, full case
 * mappings. Classes and simple mappings come from utf8proc; the table below holds the mappings that
 * give more than one character (Unicode SpecialCasing, unconditional rows). No state. */
#include "model/jinja_char.h"

#include <string.h>
#include <utf8proc.h>

#include "base/bytes.h"

struct expansion {
    uint16_t cp, upper[3], title[3];
};
static const struct expansion expansions[] = {
    { 0x00DF, { 0x0053, 0x0053, 0 }, { 0x0053, 0x0073, 0 } },
    { 0x0149, { 0x02BC, 0x004E, 0 }, { 0x02BC, 0x004E, 0 } },
    { 0x01F0, { 0x004A, 0x030C, 0 }, { 0x004A, 0x030C, 0 } },
    { 0x0390, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
    { 0x03B0, { 0x03A5, 0x0308, 0x0301 }, { 0x03A5, 0x0308, 0x0301 } },
    { 0x0587, { 0x0535, 0x0552, 0 }, { 0x0535, 0x0582, 0 } },
    { 0x1E96, { 0x0048, 0x0331, 0 }, { 0x0048, 0x0331, 0 } },
    { 0x1E97, { 0x0054, 0x0308, 0 }, { 0x0054, 0x0308, 0 } },
    { 0x1E98, { 0x0057, 0x030A, 0 }, { 0x0057, 0x030A, 0 } },
    { 0x1E99, { 0x0059, 0x030A, 0 }, { 0x0059, 0x030A, 0 } },
    { 0x1E9A, { 0x0041, 0x02BE, 0 }, { 0x0041, 0x02BE, 0 } },
    { 0x1F50, { 0x03A5, 0x0313, 0 }, { 0x03A5, 0x0313, 0 } },
    { 0x1F52, { 0x03A5, 0x0313, 0x0300 }, { 0x03A5, 0x0313, 0x0300 } },
    { 0x1F54, { 0x03A5, 0x0313, 0x0301 }, { 0x03A5, 0x0313, 0x0301 } },
    { 0x1F56, { 0x03A5, 0x0313, 0x0342 }, { 0x03A5, 0x0313, 0x0342 } },
    { 0x1F80, { 0x1F08, 0x0399, 0 }, { 0x1F88, 0, 0 } },
    { 0x1F81, { 0x1F09, 0x0399, 0 }, { 0x1F89, 0, 0 } },
    { 0x1F82, { 0x1F0A, 0x0399, 0 }, { 0x1F8A, 0, 0 } },
    { 0x1F83, { 0x1F0B, 0x0399, 0 }, { 0x1F8B, 0, 0 } },
    { 0x1F84, { 0x1F0C, 0x0399, 0 }, { 0x1F8C, 0, 0 } },
    { 0x1F85, { 0x1F0D, 0x0399, 0 }, { 0x1F8D, 0, 0 } },
    { 0x1F86, { 0x1F0E, 0x0399, 0 }, { 0x1F8E, 0, 0 } },
    { 0x1F87, { 0x1F0F, 0x0399, 0 }, { 0x1F8F, 0, 0 } },
    { 0x1F88, { 0x1F08, 0x0399, 0 }, { 0x1F88, 0, 0 } },
    { 0x1F89, { 0x1F09, 0x0399, 0 }, { 0x1F89, 0, 0 } },
    { 0x1F8A, { 0x1F0A, 0x0399, 0 }, { 0x1F8A, 0, 0 } },
    { 0x1F8B, { 0x1F0B, 0x0399, 0 }, { 0x1F8B, 0, 0 } },
    { 0x1F8C, { 0x1F0C, 0x0399, 0 }, { 0x1F8C, 0, 0 } },
    { 0x1F8D, { 0x1F0D, 0x0399, 0 }, { 0x1F8D, 0, 0 } },
    { 0x1F8E, { 0x1F0E, 0x0399, 0 }, { 0x1F8E, 0, 0 } },
    { 0x1F8F, { 0x1F0F, 0x0399, 0 }, { 0x1F8F, 0, 0 } },
    { 0x1F90, { 0x1F28, 0x0399, 0 }, { 0x1F98, 0, 0 } },
    { 0x1F91, { 0x1F29, 0x0399, 0 }, { 0x1F99, 0, 0 } },
    { 0x1F92, { 0x1F2A, 0x0399, 0 }, { 0x1F9A, 0, 0 } },
    { 0x1F93, { 0x1F2B, 0x0399, 0 }, { 0x1F9B, 0, 0 } },
    { 0x1F94, { 0x1F2C, 0x0399, 0 }, { 0x1F9C, 0, 0 } },
    { 0x1F95, { 0x1F2D, 0x0399, 0 }, { 0x1F9D, 0, 0 } },
    { 0x1F96, { 0x1F2E, 0x0399, 0 }, { 0x1F9E, 0, 0 } },
    { 0x1F97, { 0x1F2F, 0x0399, 0 }, { 0x1F9F, 0, 0 } },
    { 0x1F98, { 0x1F28, 0x0399, 0 }, { 0x1F98, 0, 0 } },
    { 0x1F99, { 0x1F29, 0x0399, 0 }, { 0x1F99, 0, 0 } },
    { 0x1F9A, { 0x1F2A, 0x0399, 0 }, { 0x1F9A, 0, 0 } },
    { 0x1F9B, { 0x1F2B, 0x0399, 0 }, { 0x1F9B, 0, 0 } },
    { 0x1F9C, { 0x1F2C, 0x0399, 0 }, { 0x1F9C, 0, 0 } },
    { 0x1F9D, { 0x1F2D, 0x0399, 0 }, { 0x1F9D, 0, 0 } },
    { 0x1F9E, { 0x1F2E, 0x0399, 0 }, { 0x1F9E, 0, 0 } },
    { 0x1F9F, { 0x1F2F, 0x0399, 0 }, { 0x1F9F, 0, 0 } },
    { 0x1FA0, { 0x1F68, 0x0399, 0 }, { 0x1FA8, 0, 0 } },
    { 0x1FA1, { 0x1F69, 0x0399, 0 }, { 0x1FA9, 0, 0 } },
    { 0x1FA2, { 0x1F6A, 0x0399, 0 }, { 0x1FAA, 0, 0 } },
    { 0x1FA3, { 0x1F6B, 0x0399, 0 }, { 0x1FAB, 0, 0 } },
    { 0x1FA4, { 0x1F6C, 0x0399, 0 }, { 0x1FAC, 0, 0 } },
    { 0x1FA5, { 0x1F6D, 0x0399, 0 }, { 0x1FAD, 0, 0 } },
    { 0x1FA6, { 0x1F6E, 0x0399, 0 }, { 0x1FAE, 0, 0 } },
    { 0x1FA7, { 0x1F6F, 0x0399, 0 }, { 0x1FAF, 0, 0 } },
    { 0x1FA8, { 0x1F68, 0x0399, 0 }, { 0x1FA8, 0, 0 } },
    { 0x1FA9, { 0x1F69, 0x0399, 0 }, { 0x1FA9, 0, 0 } },
    { 0x1FAA, { 0x1F6A, 0x0399, 0 }, { 0x1FAA, 0, 0 } },
    { 0x1FAB, { 0x1F6B, 0x0399, 0 }, { 0x1FAB, 0, 0 } },
    { 0x1FAC, { 0x1F6C, 0x0399, 0 }, { 0x1FAC, 0, 0 } },
    { 0x1FAD, { 0x1F6D, 0x0399, 0 }, { 0x1FAD, 0, 0 } },
    { 0x1FAE, { 0x1F6E, 0x0399, 0 }, { 0x1FAE, 0, 0 } },
    { 0x1FAF, { 0x1F6F, 0x0399, 0 }, { 0x1FAF, 0, 0 } },
    { 0x1FB2, { 0x1FBA, 0x0399, 0 }, { 0x1FBA, 0x0345, 0 } },
    { 0x1FB3, { 0x0391, 0x0399, 0 }, { 0x1FBC, 0, 0 } },
    { 0x1FB4, { 0x0386, 0x0399, 0 }, { 0x0386, 0x0345, 0 } },
    { 0x1FB6, { 0x0391, 0x0342, 0 }, { 0x0391, 0x0342, 0 } },
    { 0x1FB7, { 0x0391, 0x0342, 0x0399 }, { 0x0391, 0x0342, 0x0345 } },
    { 0x1FBC, { 0x0391, 0x0399, 0 }, { 0x1FBC, 0, 0 } },
    { 0x1FC2, { 0x1FCA, 0x0399, 0 }, { 0x1FCA, 0x0345, 0 } },
    { 0x1FC3, { 0x0397, 0x0399, 0 }, { 0x1FCC, 0, 0 } },
    { 0x1FC4, { 0x0389, 0x0399, 0 }, { 0x0389, 0x0345, 0 } },
    { 0x1FC6, { 0x0397, 0x0342, 0 }, { 0x0397, 0x0342, 0 } },
    { 0x1FC7, { 0x0397, 0x0342, 0x0399 }, { 0x0397, 0x0342, 0x0345 } },
    { 0x1FCC, { 0x0397, 0x0399, 0 }, { 0x1FCC, 0, 0 } },
    { 0x1FD2, { 0x0399, 0x0308, 0x0300 }, { 0x0399, 0x0308, 0x0300 } },
    { 0x1FD3, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
    { 0x1FD6, { 0x0399, 0x0342, 0 }, { 0x0399, 0x0342, 0 } },
    { 0x1FD7, { 0x0399, 0x0308, 0x0342 }, { 0x0399, 0x0308, 0x0342 } },
    { 0x1FE2, { 0x03A5, 0x0308, 0x0300 }, { 0x03A5, 0x0308, 0x0300 } },
    { 0x1FE3, { 0x03A5, 0x0308, 0x0301 }, { 0x03A5, 0x0308, 0x0301 } },
    { 0x1FE4, { 0x03A1, 0x0313, 0 }, { 0x03A1, 0x0313, 0 } },
    { 0x1FE6, { 0x03A5, 0x0342, 0 }, { 0x03A5, 0x0342, 0 } },
    { 0x1FE7, { 0x03A5, 0x0308, 0x0342 }, { 0x03A5, 0x0308, 0x0342 } },
    { 0x1FF2, { 0x1FFA, 0x0399, 0 }, { 0x1FFA, 0x0345, 0 } },
    { 0x1FF3, { 0x03A9, 0x0399, 0 }, { 0x1FFC, 0, 0 } },
    { 0x1FF4, { 0x038F, 0x0399, 0 }, { 0x038F, 0x0345, 0 } },
    { 0x1FF6, { 0x03A9, 0x0342, 0 }, { 0x03A9, 0x0342, 0 } },
    { 0x1FF7, { 0x03A9, 0x0342, 0x0399 }, { 0x03A9, 0x0342, 0x0345 } },
    { 0x1FFC, { 0x03A9, 0x0399, 0 }, { 0x1FFC, 0, 0 } },
    { 0xFB00, { 0x0046, 0x0046, 0 }, { 0x0046, 0x0066, 0 } },
    { 0xFB01, { 0x0046, 0x0049, 0 }, { 0x0046, 0x0069, 0 } },
    { 0xFB02, { 0x0046, 0x004C, 0 }, { 0x0046, 0x006C, 0 } },
    { 0xFB03, { 0x0046, 0x0046, 0x0049 }, { 0x0046, 0x0066, 0x0069 } },
    { 0xFB04, { 0x0046, 0x0046, 0x004C }, { 0x0046, 0x0066, 0x006C } },
    { 0xFB05, { 0x0053, 0x0054, 0 }, { 0x0053, 0x0074, 0 } },
    { 0xFB06, { 0x0053, 0x0054, 0 }, { 0x0053, 0x0074, 0 } },
    { 0xFB13, { 0x0544, 0x0546, 0 }, { 0x0544, 0x0576, 0 } },
    { 0xFB14, { 0x0544, 0x0535, 0 }, { 0x0544, 0x0565, 0 } },
    { 0xFB15, { 0x0544, 0x053B, 0 }, { 0x0544, 0x056B, 0 } },
    { 0xFB16, { 0x054E, 0x0546, 0 }, { 0x054E, 0x0576, 0 } },
    { 0xFB17, { 0x0544, 0x053D, 0 }, { 0x0544, 0x056D, 0 } },
};

size_t jchar_decode(const char *p, const char *end, uint32_t *cp)
{
    const uint8_t *b = (const uint8_t *)p;
    size_t left = (size_t)(end - p);
    if (b[0] < 0x80) {
        *cp = b[0];
        return 1;
    }
    size_t n = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (n > left) { /* cannot happen in validated text; stays inside the bytes all the same */
        *cp = 0xFFFD;
        return left;
    }
    uint32_t value = b[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) value = value << 6 | (b[i] & 0x3F);
    *cp = value;
    return n;
}

size_t jchar_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xF0u) | cp);
    return n;
}

size_t jchar_count(const char *data, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((uint8_t)data[i] & 0xC0) != 0x80;
    return n;
}

void jchar_mend(char *text)
{
    size_t bad;
    while (!utf8_is_valid(text, strlen(text), &bad)) text[bad] = '?';
}

bool jchar_is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool jchar_is_printable(uint32_t cp)
{
    if (cp == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

bool jchar_is_letter(uint32_t cp)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool jchar_is_digit(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

/* Letters that count as cased by the properties Other_Uppercase and Other_Lowercase, not by
 * category. */
struct char_range {
    uint32_t first, last;
};
static const struct char_range other_upper[] = {
    { 0x2160, 0x216F },   { 0x24B6, 0x24CF },   { 0x1F130, 0x1F149 },
    { 0x1F150, 0x1F169 }, { 0x1F170, 0x1F189 },
};
static const struct char_range other_lower[] = {
    { 0xAA, 0xAA },       { 0xBA, 0xBA },       { 0x2B0, 0x2B8 },     { 0x2C0, 0x2C1 },
    { 0x2E0, 0x2E4 },     { 0x345, 0x345 },     { 0x37A, 0x37A },     { 0x1D2C, 0x1D6A },
    { 0x1D78, 0x1D78 },   { 0x1D9B, 0x1DBF },   { 0x2071, 0x2071 },   { 0x207F, 0x207F },
    { 0x2090, 0x209C },   { 0x2170, 0x217F },   { 0x24D0, 0x24E9 },   { 0x2C7C, 0x2C7D },
    { 0xA69C, 0xA69D },   { 0xA770, 0xA770 },   { 0xA7F8, 0xA7F9 },   { 0xAB5C, 0xAB5F },
    { 0x10780, 0x10780 }, { 0x10783, 0x10785 }, { 0x10787, 0x107B0 }, { 0x107B2, 0x107BA },
};

static bool in_ranges(uint32_t cp, const struct char_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (cp >= ranges[i].first && cp <= ranges[i].last) return true;
    return false;
}

bool jchar_is_upper(uint32_t cp)
{
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z';
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LU ||
           in_ranges(cp, other_upper, ZP_COUNT(other_upper));
}

bool jchar_is_lower(uint32_t cp)
{
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LL ||
           in_ranges(cp, other_lower, ZP_COUNT(other_lower));
}

bool jchar_is_title(uint32_t cp)
{
    return cp >= 0x80 && utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LT;
}

bool jchar_is_case_ignorable(uint32_t cp)
{
    if (cp == '\'' || cp == '.' || cp == ':' || cp == '^' || cp == '`' || cp == 0xB7 ||
        cp == 0x2019)
        return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
    }
}

static const struct expansion *find_expansion(uint32_t cp)
{
    size_t low = 0, high = ZP_COUNT(expansions);
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (expansions[mid].cp == cp) return &expansions[mid];
        if (expansions[mid].cp < cp) low = mid + 1;
        else high = mid;
    }
    return NULL;
}

size_t jchar_map_case(uint32_t cp, enum jchar_case to, uint32_t out[3])
{
    const struct expansion *e = cp >= 0x80 && to != CASE_LOWER ? find_expansion(cp) : NULL;
    if (e != NULL) {
        const uint16_t *row = to == CASE_UPPER ? e->upper : e->title;
        size_t n = 0;
        while (n < 3 && row[n] != 0) out[n] = row[n], n++;
        return n;
    }
    if (cp == 0x130 && to == CASE_LOWER) { /* capital I with dot above: i and a combining dot */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    out[0] = (uint32_t)(to == CASE_UPPER   ? utf8proc_toupper(c)
                        : to == CASE_LOWER ? utf8proc_tolower(c)
                                           : utf8proc_totitle(c));
    return 1;
}

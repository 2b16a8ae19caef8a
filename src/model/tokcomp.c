/* tokcomp.c: tokenizer.json's components as steps of textnorm and pretok.
 * Each reader follows the `type` member; what has no exact counterpart here is refused by name. */
#include "model/tokcomp.h"
#include <string.h>
#include "base/mem.h"

#define WHERE "tokenizer.json"
#define MARK "\xE2\x96\x81"
#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static bool flag_of(const json_t *object, const char *key, bool fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

static bool is_type(const json_t *component, const char *type)
{
    return strcmp(text_of(component, "type"), type) == 0;
}

static zp_status refuse(const char *part, const json_t *component, zp_err *err)
{
    ZP_FAIL(err, ZP_UNSUPPORTED, WHERE ": %s '%.60s' is not supported", part,
            text_of(component, "type"));
}

/* {"String": s} or {"Regex": s}; a bare string counts as String. */
static zp_status read_pattern(const json_t *component, const char **text, size_t *size, bool *regex,
                              zp_err *err)
{
    const json_t *pattern = json_object_get(component, "pattern");
    const json_t *literal = json_is_string(pattern) ? pattern : json_object_get(pattern, "String");
    const json_t *value = literal != NULL ? literal : json_object_get(pattern, "Regex");
    ZP_FAIL_IF(!json_is_string(value), err, ZP_BAD_FILE,
               WHERE ": a '%.60s' has no pattern with String or Regex", text_of(component, "type"));
    *text = json_string_value(value);
    *size = json_string_length(value);
    *regex = literal == NULL;
    return ZP_OK;
}

/* Runs read on each member of a Sequence's list. */
typedef zp_status (*read_one)(void *arg, const json_t *component, zp_err *err);
static zp_status read_sequence(const json_t *component, const char *list, read_one read, void *arg,
                               zp_err *err)
{
    const json_t *items = json_object_get(component, list), *item;
    ZP_FAIL_IF(!json_is_array(items), err, ZP_BAD_FILE, WHERE ": a Sequence has no list '%s'",
               list);
    size_t i;
    json_array_foreach(items, i, item) ZP_TRY(read(arg, item, err));
    return ZP_OK;
}

/* ---- normalizer */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static zp_status decode_base64(const char *text, size_t size, uint8_t *out, size_t *out_size,
                               zp_err *err)
{
    uint32_t bits = 0;
    size_t n = 0, n_bits = 0;
    while (size > 0 && text[size - 1] == '=') size--;
    for (size_t i = 0; i < size; i++) {
        int value = base64_value(text[i]);
        ZP_FAIL_IF(value < 0, err, ZP_BAD_FILE,
                   WHERE ": precompiled_charsmap is not base64 at offset %zu", i);
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    *out_size = n;
    return ZP_OK;
}

static zp_status read_charsmap(struct tokenizer *t, const json_t *component, zp_err *err)
{
    const json_t *text = json_object_get(component, "precompiled_charsmap");
    ZP_FAIL_IF(!json_is_string(text), err, ZP_BAD_FILE,
               WHERE ": a Precompiled normalizer has no precompiled_charsmap");
    size_t size = json_string_length(text), n;
    if (size == 0) return ZP_OK;
    uint8_t *blob = mem_alloc(MEM_SCRATCH, size);
    ZP_FAIL_IF(blob == NULL, err, ZP_NO_MEMORY,
               "not enough memory for a character map of %zu bytes", size);
    struct textnorm_step *step;
    zp_status status = decode_base64(json_string_value(text), size, blob, &n, err);
    if (status == ZP_OK)
        status = textnorm_add(&t->normalize, NORM_CHARSMAP, NULL, 0, NULL, 0, &step, err);
    if (status == ZP_OK) status = charsmap_init(&step->map, blob, n, err);
    mem_free(blob);
    return status;
}

static zp_status read_replace(struct tokenizer *t, const json_t *component, zp_err *err)
{
    const char *what;
    size_t size;
    bool regex;
    ZP_TRY(read_pattern(component, &what, &size, &regex, err));
    const char *with = text_of(component, "content");
    return textnorm_add(&t->normalize, regex ? NORM_REPLACE_MATCH : NORM_REPLACE, what, size, with,
                        strlen(with), NULL, err);
}

static zp_status read_strip(struct tokenizer *t, const json_t *component, zp_err *err)
{
    struct textnorm_step *step;
    ZP_TRY(textnorm_add(&t->normalize, NORM_STRIP, NULL, 0, NULL, 0, &step, err));
    step->left = flag_of(component, "strip_left", true);
    step->right = flag_of(component, "strip_right", true);
    return ZP_OK;
}

static zp_status read_normalizer(void *arg, const json_t *component, zp_err *err)
{
    static const struct {
        const char *type;
        enum textnorm_kind kind;
    } plain[] = {
        { "NFC", NORM_NFC },
        { "NFD", NORM_NFD },
        { "NFKC", NORM_NFKC },
        { "NFKD", NORM_NFKD },
        { "Lowercase", NORM_LOWERCASE },
        { "StripAccents", NORM_STRIP_ACCENTS },
        { "Nmt", NORM_NMT },
    };
    struct tokenizer *t = arg;
    for (size_t i = 0; i < ZP_COUNT(plain); i++)
        if (is_type(component, plain[i].type))
            return textnorm_add(&t->normalize, plain[i].kind, NULL, 0, NULL, 0, NULL, err);
    if (is_type(component, "Sequence"))
        return read_sequence(component, "normalizers", read_normalizer, t, err);
    if (is_type(component, "Replace")) return read_replace(t, component, err);
    if (is_type(component, "Strip")) return read_strip(t, component, err);
    if (is_type(component, "Precompiled")) return read_charsmap(t, component, err);
    if (!is_type(component, "Prepend")) return refuse("normalizer", component, err);
    const char *prefix = text_of(component, "prepend");
    t->info.add_space_prefix |= strcmp(prefix, MARK) == 0;
    return textnorm_add(&t->normalize, NORM_PREPEND, prefix, strlen(prefix), NULL, 0, NULL, err);
}

zp_status tokcomp_read_normalizer(struct tokenizer *t, const json_t *component, zp_err *err)
{
    return component == NULL ? ZP_OK : read_normalizer(t, component, err);
}

/* ---- pre_tokenizer: steps before the one that adds a prefix (pretok), that one (prepare), steps
 * after it (words) */

struct pretok_reader {
    struct tokenizer *t;
    struct tokcomp *found;
};

static zp_status add_split(struct pretok_reader *r, const char *expression,
                           enum pretok_behavior behavior, bool invert, zp_err *err)
{
    struct pretok *p = r->t->prepare.n_steps == 0 ? &r->t->pretok : &r->t->words;
    return pretok_add_step(p, expression, strlen(expression), behavior, invert, true, err);
}

static zp_status read_behavior(const json_t *component, enum pretok_behavior *out, zp_err *err)
{
    static const struct {
        const char *name;
        enum pretok_behavior value;
    } names[] = {
        { "Isolated", PRETOK_ISOLATED },
        { "Removed", PRETOK_REMOVED },
        { "Contiguous", PRETOK_CONTIGUOUS },
        { "MergedWithPrevious", PRETOK_MERGED_WITH_PREVIOUS },
        { "MergedWithNext", PRETOK_MERGED_WITH_NEXT },
    };
    const char *name = text_of(component, "behavior");
    for (size_t i = 0; i < ZP_COUNT(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].value;
            return ZP_OK;
        }
    ZP_FAIL(err, ZP_UNSUPPORTED, WHERE ": behavior '%.60s' of a '%.60s' is not supported", name,
            text_of(component, "type"));
}

static zp_status read_split(struct pretok_reader *r, const json_t *component, zp_err *err)
{
    const char *pattern;
    size_t size;
    bool regex;
    enum pretok_behavior behavior;
    ZP_TRY(read_pattern(component, &pattern, &size, &regex, err));
    ZP_TRY(read_behavior(component, &behavior, err));
    ZP_FAIL_IF(regex && strstr(pattern, "&&") != NULL, err, ZP_UNSUPPORTED,
               WHERE ": class intersection (&&) in '%.80s' is not supported", pattern);
    struct buffer quoted = buffer_with_max(MEM_SCRATCH, 1 << 20);
    zp_status status = ZP_OK;
    for (size_t i = 0; i < size && status == ZP_OK; i++) {
        bool escape =
            !regex && (uint8_t)pattern[i] < 0x80 && strchr("\\^$.|?*+()[]{}-#", pattern[i]) != NULL;
        status = buffer_printf(&quoted, err, escape ? "\\%c" : "%c", pattern[i]);
    }
    if (status == ZP_OK && quoted.size > 0)
        status = add_split(r, (const char *)quoted.data, behavior,
                           flag_of(component, "invert", false), err);
    buffer_free(&quoted);
    return status;
}

static zp_status add_prefix(struct pretok_reader *r, const char *prefix, bool first_only,
                            zp_err *err)
{
    struct textnorm_step *step;
    ZP_TRY(textnorm_add(&r->t->prepare, NORM_PREPEND_UNLESS, prefix, strlen(prefix), NULL, 0, &step,
                        err));
    step->first_only = first_only;
    return ZP_OK;
}

static zp_status read_byte_level(struct pretok_reader *r, const json_t *component, zp_err *err)
{
    r->found->byte_level = true;
    if (flag_of(component, "add_prefix_space", true)) ZP_TRY(add_prefix(r, " ", false, err));
    if (flag_of(component, "use_regex", true))
        ZP_TRY(add_split(r, GPT2_WORDS, PRETOK_ISOLATED, false, err));
    return ZP_OK;
}

static zp_status read_metaspace(struct pretok_reader *r, const json_t *component, zp_err *err)
{
    const char *mark = text_of(component, "replacement"),
               *scheme = text_of(component, "prepend_scheme");
    ZP_FAIL_IF(strcmp(mark, MARK) != 0, err, ZP_UNSUPPORTED,
               WHERE ": Metaspace replacement '%.20s' is not U+2581", mark);
    ZP_FAIL_IF(r->t->prepare.n_steps > 0, err, ZP_UNSUPPORTED,
               WHERE ": two pre_tokenizers that add a prefix");
    if (*scheme == '\0') /* files written before prepend_scheme existed */
        scheme = flag_of(component, "add_prefix_space", true) ? "always" : "never";
    ZP_TRY(textnorm_add(&r->t->prepare, NORM_REPLACE, " ", 1, MARK, 3, NULL, err));
    if (strcmp(scheme, "never") != 0) {
        r->t->info.add_space_prefix = true;
        ZP_TRY(add_prefix(r, MARK, strcmp(scheme, "first") == 0, err));
    }
    return flag_of(component, "split", true)
               ? add_split(r, MARK, PRETOK_MERGED_WITH_NEXT, false, err)
               : ZP_OK;
}

static zp_status read_pretok(void *arg, const json_t *component, zp_err *err)
{
    struct pretok_reader *r = arg;
    if (is_type(component, "Sequence"))
        return read_sequence(component, "pretokenizers", read_pretok, r, err);
    ZP_FAIL_IF(r->found->byte_level, err, ZP_UNSUPPORTED,
               WHERE ": pre_tokenizer '%.60s' after ByteLevel", text_of(component, "type"));
    if (is_type(component, "Split")) return read_split(r, component, err);
    if (is_type(component, "ByteLevel")) return read_byte_level(r, component, err);
    if (is_type(component, "Metaspace")) return read_metaspace(r, component, err);
    if (is_type(component, "Digits"))
        return add_split(r, "\\p{N}",
                         flag_of(component, "individual_digits", false) ? PRETOK_ISOLATED
                                                                        : PRETOK_CONTIGUOUS,
                         false, err);
    if (is_type(component, "Punctuation")) {
        enum pretok_behavior behavior = PRETOK_ISOLATED;
        if (json_object_get(component, "behavior") != NULL)
            ZP_TRY(read_behavior(component, &behavior, err));
        return add_split(r, "[\\p{P}!-/:-@\\[-`{-~]", behavior, false, err);
    }
    if (is_type(component, "Whitespace"))
        return add_split(r, "[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+", PRETOK_REMOVED,
                         true, err);
    if (is_type(component, "WhitespaceSplit"))
        return add_split(r, "\\s", PRETOK_REMOVED, false, err);
    return refuse("pre_tokenizer", component, err);
}

zp_status tokcomp_read_pretok(struct tokenizer *t, const json_t *component, struct tokcomp *found,
                              zp_err *err)
{
    struct pretok_reader r = { t, found };
    return component == NULL ? ZP_OK : read_pretok(&r, component, err);
}

/* ---- decoder */

struct decoder_reader {
    struct tokenizer *t;
    struct tokcomp *found;
};

static zp_status read_strip_decoder(struct decoder_reader *r, const json_t *component, zp_err *err)
{
    const json_t *start = json_object_get(component, "start"),
                 *stop = json_object_get(component, "stop");
    json_int_t n = json_integer_value(start);
    ZP_FAIL_IF(strcmp(text_of(component, "content"), " ") != 0 || n < 0 || n > 16 ||
                   json_integer_value(stop) != 0,
               err, ZP_UNSUPPORTED, WHERE ": a Strip decoder other than of spaces at the start");
    r->t->strip_left = (uint32_t)n;
    return ZP_OK;
}

static zp_status read_decoder(void *arg, const json_t *component, zp_err *err)
{
    struct decoder_reader *r = arg;
    if (is_type(component, "Sequence"))
        return read_sequence(component, "decoders", read_decoder, r, err);
    if (is_type(component, "ByteLevel") || is_type(component, "ByteFallback") ||
        is_type(component, "Fuse"))
        return ZP_OK;
    if (is_type(component, "Strip")) return read_strip_decoder(r, component, err);
    if (is_type(component, "Metaspace")) {
        bool never = strcmp(text_of(component, "prepend_scheme"), "never") == 0;
        r->t->strip_left = !never && flag_of(component, "add_prefix_space", true);
        r->found->marks = true;
        return ZP_OK;
    }
    if (!is_type(component, "Replace")) return refuse("decoder", component, err);
    const char *what;
    size_t size;
    bool regex;
    ZP_TRY(read_pattern(component, &what, &size, &regex, err));
    ZP_FAIL_IF(regex || strcmp(what, MARK) != 0 || strcmp(text_of(component, "content"), " ") != 0,
               err, ZP_UNSUPPORTED, WHERE ": a Replace decoder other than of U+2581 by a space");
    r->found->marks = true;
    return ZP_OK;
}

zp_status tokcomp_read_decoder(struct tokenizer *t, const json_t *component, struct tokcomp *found,
                               zp_err *err)
{
    struct decoder_reader r = { t, found };
    return component == NULL ? ZP_OK : read_decoder(&r, component, err);
}

/* ---- post_processor: only what it puts around one text matters here */

static zp_status read_template(const json_t *component, struct tokcomp *found, zp_err *err)
{
    const json_t *items = json_object_get(component, "single"), *item;
    size_t i;
    bool after = false;
    json_array_foreach(items, i, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken");
        after |= special == NULL;
        if (special == NULL) continue;
        const char **slot = after ? &found->eos : &found->bos;
        ZP_FAIL_IF(*slot != NULL, err, ZP_UNSUPPORTED,
                   WHERE ": post_processor with several special tokens on a side");
        *slot = text_of(special, "id");
    }
    return ZP_OK;
}

static zp_status read_processor(void *arg, const json_t *component, zp_err *err)
{
    struct tokcomp *found = arg;
    if (is_type(component, "Sequence"))
        return read_sequence(component, "processors", read_processor, found, err);
    if (is_type(component, "ByteLevel")) return ZP_OK;
    if (is_type(component, "TemplateProcessing")) return read_template(component, found, err);
    if (!is_type(component, "RobertaProcessing") && !is_type(component, "BertProcessing"))
        return refuse("post_processor", component, err);
    found->bos = json_string_value(json_array_get(json_object_get(component, "cls"), 0));
    found->eos = json_string_value(json_array_get(json_object_get(component, "sep"), 0));
    return ZP_OK;
}

zp_status tokcomp_read_processor(const json_t *component, struct tokcomp *found, zp_err *err)
{
    return component == NULL ? ZP_OK : read_processor(found, component, err);
}

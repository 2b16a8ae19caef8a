/* charsmap.c: walk over the double array of Darts-clone, as SentencePiece serialises it.
 * A unit holds: bits 0-7 label, bit 8 "has a value", bit 9 "offset is shifted by 8", bits 10-30
 * offset; a value unit has bit 31 set and the value in bits 0-30. */
#include "model/charsmap.h"
#include <string.h>
#include "base/mem.h"

zp_status charsmap_init(struct charsmap *m, const uint8_t *blob, size_t size, zp_err *err)
{
    *m = (struct charsmap){ 0 };
    struct cursor c = cursor_over(blob, size, "precompiled_charsmap");
    uint32_t array_bytes;
    const uint8_t *array;
    ZP_TRY(cursor_u32(&c, &array_bytes, "size of the character map", err));
    ZP_FAIL_IF(
        array_bytes % 4 != 0 || array_bytes == 0 || array_bytes >= cursor_left(&c), err,
        ZP_BAD_FILE,
        "precompiled_charsmap of %zu bytes announces an array of %u (expected a multiple of 4 that "
        "leaves room for texts)",
        size, array_bytes);
    ZP_TRY(cursor_view(&c, array_bytes, &array, "character map", err));
    m->texts_size = cursor_left(&c);
    const uint8_t *texts = array + array_bytes;
    size_t bad;
    ZP_FAIL_IF(texts[m->texts_size - 1] != 0, err, ZP_BAD_FILE,
               "precompiled_charsmap: the last text has no end");
    ZP_FAIL_IF(!utf8_is_valid((const char *)texts, m->texts_size, &bad), err, ZP_BAD_FILE,
               "precompiled_charsmap: invalid UTF-8 at text offset %zu", bad);
    m->n_units = array_bytes / 4;
    ZP_ALLOC(m->units, MEM_TOKENIZER, m->n_units, err, "the character map");
    for (size_t i = 0; i < m->n_units; i++)
        m->units[i] = (uint32_t)array[4 * i] | (uint32_t)array[4 * i + 1] << 8 |
                      (uint32_t)array[4 * i + 2] << 16 | (uint32_t)array[4 * i + 3] << 24;
    ZP_ALLOC(m->texts, MEM_TOKENIZER, m->texts_size, err, "the character map's texts");
    memcpy(m->texts, texts, m->texts_size);
    return ZP_OK;
}

void charsmap_free(struct charsmap *m)
{
    mem_free(m->units);
    mem_free(m->texts);
    *m = (struct charsmap){ 0 };
}

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

const char *charsmap_find(const struct charsmap *m, const uint8_t *text, size_t size,
                          size_t *consumed, size_t *out_size)
{
    const char *found = NULL;
    size_t node = unit_offset(m->units[0]);
    for (size_t i = 0; i < size && text[i] != 0; i++) {
        node ^= text[i];
        if (node >= m->n_units || (m->units[node] & (1u << 31 | 0xFF)) != text[i]) break;
        uint32_t unit = m->units[node];
        node ^= unit_offset(unit);
        if ((unit >> 8 & 1) == 0) continue;
        size_t value = node < m->n_units ? m->units[node] & 0x7FFFFFFF : SIZE_MAX;
        if (value >= m->texts_size) break;
        found = m->texts + value;
        *consumed = i + 1;
    }
    if (found != NULL) *out_size = strlen(found);
    return found;
}

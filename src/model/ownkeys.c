/* ownkeys.c: which keys and tensors of zerope's own a file may carry.
 * Owns: the list of keys that say where a stock file comes from. Does not know: what keys mean. */
#include "model/ownkeys.h"

#include <stdio.h>
#include <string.h>

#include "model/hfkeys.h"

/* Exports keep the record of their source; folders put their tokenizer's files here. None of these
 * changes what is computed. */
static const char *const records[] = {
    "zerope.source.sha256",    "zerope.recipe",           "zerope.evidence",
    "zerope.context.validated", "zerope.tokenizer.config", HF_EOS_KEY,
};

static bool is_record(const char *key)
{
    for (size_t i = 0; i < ZP_COUNT(records); i++)
        if (strcmp(key, records[i]) == 0) return true;
    return false;
}

/* struct_head.weight, blk.N.struct_bias, blk.N.pos_alibi.slope, blk.N.attn_head_scale, ... */
static bool is_own_tensor(const char *name)
{
    unsigned layer;
    int size = 0;
    if (strncmp(name, "struct_", 7) == 0) return true;
    if (sscanf(name, "blk.%u.%n", &layer, &size) != 1 || size == 0) return false;
    return strncmp(name + size, "pos_", 4) == 0 || strncmp(name + size, "struct_", 7) == 0 ||
           strcmp(name + size, "attn_head_scale") == 0;
}

static zp_status check_eos_ids(const struct hparams *h, const struct gguf *g, zp_err *err)
{
    const struct gguf_kv *ids;
    ZP_TRY(gguf_find_array(g, HF_EOS_KEY, GGUF_ANY_INT, &ids, err));
    for (uint64_t i = 0; ids && i < ids->count; i++) {
        int64_t id = gguf_item_int(ids, i);
        ZP_FAIL_IF(id < 0 || id >= (int64_t)h->n_vocab, err, ZP_BAD_FILE,
                   "%s: %s[%llu] is %lld; expected a token number, 0 to %u", gguf_label(g->path),
                   HF_EOS_KEY, (unsigned long long)i, (long long)id, h->n_vocab - 1);
    }
    return ZP_OK;
}

static zp_status check_stock(const struct gguf *g, zp_err *err)
{
    for (uint32_t i = 0; i < g->n_kv; i++) {
        const char *key = g->kvs[i].name;
        ZP_FAIL_IF(strncmp(key, "zerope.", 7) == 0 && !is_record(key), err, ZP_BAD_FILE,
                   "%s: key %.80s contradicts architecture %s; expected it in zerope-%s only",
                   gguf_label(g->path), key, g->arch, g->arch);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        ZP_FAIL_IF(is_own_tensor(g->tensors[i].name), err, ZP_BAD_FILE,
                   "%s: tensor %s contradicts architecture %s; expected it in zerope-%s only",
                   gguf_label(g->path), g->tensors[i].name, g->arch, g->arch);
    return ZP_OK;
}

zp_status ownkeys_check(const struct hparams *h, const struct gguf *g, zp_err *err)
{
    ZP_TRY(check_eos_ids(h, g, err));
    return h->ours ? ZP_OK : check_stock(g, err);
}

/* structlearn.c: how a structure head learns in a run.
 * Owns: the documents' structure, and which detectors are heard. Does not know: gradients. */
#include "train/structlearn.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#define KEEP_STREAM 0x6b65657000000000u

/* What such a corpus teaches is not what was meant. */
static void warn(const struct tagger *t)
{
    uint64_t marked = 0;
    for (int k = 0; k < STRUCT_TYPES; k++) marked += t->count[k];
    if (marked == 0)
        log_warn("the documents to train on have no structure: detectors learn to be silent");
    else if (t->n_plain < t->n_tokens / 20)
        log_warn("%.1f %% of the tokens to train on are of documents without structure: detectors "
                 "may take plain text for structure; add some",
                 100.0 * (double)t->n_plain / (double)(t->n_tokens ? t->n_tokens : 1));
}

zp_status structlearn_open(struct structlearn *s, const struct shards *shards,
                           const struct tokenizer *tokenizer, size_t n_rows, bool learns,
                           const struct structlearn_options *o, zp_err *err)
{
    *s = (struct structlearn){ .on = learns, .options = *o, .n_rows = n_rows };
    if (!learns) return ZP_OK;
    ZP_FAIL_IF(!(o->tag_weight >= 0) || !(o->dropout >= 0 && o->dropout < 1), err, ZP_USAGE,
               "the weight of tags is 0 or more, their dropout from 0 to less than 1");
    s->dropped = (uint32_t)(o->dropout * 256 + 0.5f);
    if (s->dropped > 255) s->dropped = 255;
    if (s->dropped) ZP_ALLOC(s->keep, MEM_TRAIN, n_rows, err, "what is heard of detectors");
    if (o->tag_weight == 0) return ZP_OK;
    ZP_TRY(tagger_open(&s->tagger, shards, tokenizer, false, err));
    warn(&s->tagger);
    return ZP_OK;
}

void structlearn_close(struct structlearn *s)
{
    tagger_close(&s->tagger);
    mem_free(s->keep);
    *s = (struct structlearn){ 0 };
}

const struct tagger *structlearn_tagger(const struct structlearn *s)
{
    return s->tagger.tags ? &s->tagger : NULL;
}

/* 16 bytes a block: the draws of two rows. */
static void draw_keep(struct structlearn *s, uint64_t seed, uint64_t step, uint64_t first)
{
    uint32_t draws[4];
    for (size_t r = 0; r < s->n_rows; r++) {
        uint64_t row = first + r;
        if (r == 0 || row % 2 == 0) rng_block(seed, KEEP_STREAM + step, row / 2, draws);
        uint8_t keep = 0;
        for (size_t k = 0; k < STRUCT_TYPES; k++) {
            size_t byte = row % 2 * STRUCT_TYPES + k;
            uint32_t draw = draws[byte / 4] >> byte % 4 * 8 & 255;
            keep |= (uint8_t)((draw >= s->dropped) << k);
        }
        s->keep[r] = keep;
    }
}

void structlearn_begin(struct structlearn *s, struct net *n, uint64_t seed, uint64_t step,
                       uint32_t micro)
{
    if (!s->on) return;
    if (s->dropped) draw_keep(s, seed, step, (uint64_t)micro * s->n_rows);
    net_set_structure(n, &(struct net_structure){ s->keep, 256.0f / (float)(256 - s->dropped),
                                                  s->options.tag_weight });
}

void structlearn_rest(const struct structlearn *s, struct net *n)
{
    if (s->on) net_set_structure(n, &(struct net_structure){ 0 });
}

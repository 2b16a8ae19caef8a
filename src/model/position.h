/* position.h: one table that says, for every layer and KV head, which positions the model still
 * carries. Slots are the internal order of a head's pairs: open pairs first; channel pair of slot s
 * is (2s, 2s + 1). */
#ifndef MODEL_POSITION_H
#define MODEL_POSITION_H

#include <zerope/zerope.h>
#include "model/arch.h"

enum position_kind {
    POSITION_ROPE,
    POSITION_PARTIAL,
    POSITION_NONE,
    POSITION_ALIBI,
    POSITION_T5,
    POSITION_MLP
};
const char *position_kind_name(enum position_kind kind);
const char *position_mode_name(zp_mode mode); /* as keys spell it: full zero half auto */

/* A pair whose divisor reaches this (rope_freqs, linear factor) is closed: its angle is nil at any
 * real position. */
#define POSITION_CLOSED_DIVISOR 1e29f

struct position_head {
    uint16_t n_open; /* slots [0, n_open) rotate */
    uint16_t *pair;  /* (n_pair) original pair number of each slot */
    uint8_t
        *half_open; /* (n_pair) by original pair: open in mode `half`; NULL without a stored plan */
    uint32_t window; /* reach of the head: last W positions + sinks; 0 = unlimited */
};

struct position {
    uint32_t n_layer, n_kv, n_head, d_head, n_pair;
    enum position_kind *kind;    /* (n_layer) */
    struct position_head *heads; /* (n_layer, n_kv) */
    uint32_t *window;            /* (n_layer) the layer's own sliding window; 0 = unlimited */
    uint32_t n_sink;             /* positions that local heads always see */
    uint8_t *angle_set;          /* (n_layer) 0 global, 1 windowed layers */
    double *angle[2]; /* (n_pair) radians a position, scalings included; dynamic: up to orig_ctx */
    float attn_scale; /* of q.k: softmax scale, YaRN magnitude folded in */
    float *scale_c;   /* (n_layer) or NULL: logit scale 1 + c ln(max(1, n / scale_len)) */
    uint32_t scale_len;
    const float **head_scale; /* (n_layer) each (n_head) or NULL; or NULL */
    const float **gate;       /* (n_layer) each (n_head, POSGATE_STEPS) or NULL; or NULL */
    /* biases: value at distance d of head h in layer l, by position_bias_fill */
    const float **alibi; /* (n_layer) slopes (n_head) or NULL */
    const float **t5;    /* (n_layer) (n_head, t5_buckets) or NULL */
    uint32_t t5_buckets, t5_max;
    const float *
        *mlp[4]; /* (n_layer): 0.weight (32) 0.bias (32) 1.weight (n_head, 32) 1.bias (n_head) */
    const float *bias_gate; /* (n_layer, n_head) or NULL */
    zp_mode mode_default;
    uint32_t auto_threshold, n_ctx_validated;
    bool has_half;
    bool verified[4]; /* by zp_mode: the file carries passing evidence for it */
    bool reordered;   /* the file's rows already stand in slot order (zerope.* keys present) */
};

/* Reads keys and tensors; all memory from arena. */
zp_status position_read(struct position *p, const struct gguf *g, const struct hparams *h,
                        struct arena *arena, zp_err *err);

/* File row (inside one head) of each internal channel: map (d_head). */
void position_row_map(const struct position *p, const struct hparams *h, uint32_t layer,
                      uint32_t kv, uint32_t *map);

/* (cos, sin) of every original pair at a position: cs (n_pair, 2). */
void position_angles(const struct position *p, uint32_t set, double at, float *cs);

/* What a head rotates in a mode. gates: (n_layer, n_kv, n_pair) by original pair, 0 = closed for
 * now, or NULL. identity: rotate all slots, closed ones by (1, 0). Returns the number of leading
 * slots to rotate and in *cs their table: token_cs itself or `room` (n_pair, 2) filled from it. */
struct position_view {
    zp_mode mode;
    const uint8_t *gates;
    bool identity;
};
uint32_t position_head_cs(const struct position *p, struct position_view view, uint32_t layer,
                          uint32_t kv, const float *token_cs, float *room, const float **cs);

/* Pairs that a view rotates and skips, per token, summed over layers and KV heads (for PSR). A
 * closed pair between open slots of a view is rotated, by (1, 0): it costs as much. */
void position_count(const struct position *p, struct position_view view, uint64_t *rotated,
                    uint64_t *skipped);
/* *own = *p with the angles of set 0 for a context of n_ctx positions, in room (n_pair): they
 * differ only where the scaling is dynamic. */
void position_for_ctx(struct position *own, const struct position *p, const struct hparams *h,
                      uint32_t n_ctx, double *room);
bool position_uses_set(const struct position *p, uint32_t set);

/* Whether nothing in a mode tells where a key stands: no head rotates or has a window, every bias
 * is closed, no query is gated by its position. */
bool position_is_free(const struct position *p, zp_mode mode);

/* Query multiplier of a row of `head` that sees n positions: softmax, length and head scale. */
float position_query_scale(const struct position *p, uint32_t layer, uint32_t head,
                           uint32_t n_visible);

/* Whether a position gate (posgate.h) multiplies queries of the layer, of any layer. */
static inline bool position_layer_has_gate(const struct position *p, uint32_t layer)
{
    return p->gate && p->gate[layer];
}
bool position_has_gate(const struct position *p);
/* What it multiplies queries of `head` at position `at` by; 1 without one. The layer program reads
 * features that it has computed once a token. */
float position_gate_factor(const struct position *p, uint32_t layer, uint32_t head, uint64_t at);

/* What a KV head sees of the past: the last `window` positions, the own one included (0: all), and
 * the first n_sink ones. */
struct position_sight {
    uint32_t window, n_sink;
};
struct position_sight position_head_sight(const struct position *p, uint32_t layer, uint32_t kv);
/* The same with a head window and sinks that are tried in place of the file's. The layer's own
 * window holds as well, and has no sinks: those belong to local heads (head_window > 0). */
struct position_sight position_try_sight(const struct position *p, uint32_t layer,
                                         uint32_t head_window, uint32_t n_sink);
/* What the query at index `at` sees: positions [0, n_sinks) and [first, at]; n_sinks <= first. */
struct position_seen {
    uint32_t n_sinks, first;
};
struct position_seen position_seen(struct position_sight sight, uint32_t at);
static inline uint32_t position_count_seen(struct position_seen s, uint32_t at)
{
    return s.n_sinks + at + 1 - s.first;
}

bool position_layer_has_bias(const struct position *p, uint32_t layer);
/* Table of head h: out[n - 1 - d] = bias at distance d, d < n (ascending positions read ascending
 * memory). */
void position_bias_fill(const struct position *p, uint32_t layer, uint32_t head, uint32_t n,
                        float *out);

/* Gate counts for describe, inspect and reports. */
void position_gates(const struct position *p, uint32_t *total, uint32_t *closed,
                    uint32_t *layers_none, uint32_t *heads_none, uint32_t *heads_local);

#endif

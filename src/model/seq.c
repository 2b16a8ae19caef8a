/* seq.c: sequences of an engine: opened, forked, cut, begun with what others computed.
 * Owns: page table and ids of a sequence. Does not know: how tokens are computed.
 * Threads: the engine's caller only. */
#include "model/seq.h"

#include <string.h>

zp_status seq_check_mode(const struct zp_engine *e, zp_mode mode, zp_err *err)
{
    const struct position *p = &e->model->position;
    ZP_FAIL_IF(mode == ZP_MODE_HALF && !p->has_half, err, ZP_BAD_INPUT,
               "the file stores no plan for position mode half (key zerope.position.half_pairs)");
    ZP_FAIL_IF(mode != ZP_MODE_FULL && !p->verified[mode] && !e->options.allow_unverified_mode, err,
               ZP_BAD_INPUT,
               "the file carries no passing evidence for position mode %s; --allow-unverified-mode "
               "runs it all the same",
               position_mode_name(mode));
    return ZP_OK;
}

zp_status seq_resolve_mode(const struct zp_engine *e, zp_mode asked, uint64_t n, zp_mode *mode,
                           zp_err *err)
{
    const struct position *p = &e->model->position;
    ZP_FAIL_IF((int)asked < 0 || (int)asked > ZP_MODE_AUTO, err, ZP_USAGE,
               "position mode %d is unknown", (int)asked);
    *mode = asked == ZP_MODE_FULL ? p->mode_default : asked;
    if (*mode == ZP_MODE_AUTO) {
        bool longer = p->auto_threshold != 0 && n > p->auto_threshold;
        *mode = !longer ? ZP_MODE_FULL : p->has_half ? ZP_MODE_HALF : ZP_MODE_ZERO;
    }
    return seq_check_mode(e, *mode, err);
}

bool zp_model_has_position_gate(const zp_model *m)
{
    return position_has_gate(&m->position);
}

static zp_status copy_anchors(struct zp_seq *s, const zp_seq_options *o, zp_err *err)
{
    if (o->n_anchors == 0) return ZP_OK;
    ZP_FAIL_IF(!position_has_gate(&s->engine->model->position), err, ZP_UNSUPPORTED,
               "the model has no position gate (blk.N.pos_gate.weight) that anchors could set");
    ZP_ALLOC(s->anchors, MEM_META, o->n_anchors, err, "the anchors of a sequence");
    for (size_t i = 0; i < o->n_anchors; i++) {
        const zp_anchor *a = &o->anchors[i];
        ZP_FAIL_IF(a->position > ZP_ANCHOR_MOST, err, ZP_BAD_INPUT,
                   "an anchor at position %llu; at most %llu", (unsigned long long)a->position,
                   (unsigned long long)ZP_ANCHOR_MOST);
        ZP_FAIL_IF(i > 0 && a->token <= o->anchors[i - 1].token, err, ZP_BAD_INPUT,
                   "anchors at tokens %u and %u: expected rising ones", o->anchors[i - 1].token,
                   a->token);
        s->anchors[i] = *a;
    }
    s->n_anchors = o->n_anchors;
    return ZP_OK;
}

zp_status seq_open(zp_seq **out, zp_engine *e, const zp_seq_options *o, zp_err *err)
{
    *out = NULL;
    struct zp_seq *s = mem_zalloc(MEM_META, sizeof *s);
    ZP_FAIL_IF(!s, err, ZP_NO_MEMORY, "not enough memory for a sequence");
    s->engine = e;
    s->mode = o->mode;
    s->offset = o->position_offset;
    s->salt = o->salt;
    s->moved_at = NEVER_MOVED;
    size_t n_detected = STRUCT_TYPES * forward_detected_step(e->options.n_ctx);
    zp_status status = kv_table_open(&s->kv, &e->kv, e->options.n_ctx, err);
    if (status == ZP_OK) status = copy_anchors(s, o, err);
    if (status == ZP_OK && e->model->structure.weight &&
        !(s->detected = mem_zalloc(MEM_META, n_detected * sizeof *s->detected)))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for the detectors of a sequence");
    if (status == ZP_OK && !(s->ids = mem_array(MEM_META, e->options.n_ctx, sizeof *s->ids)))
        status = status_fail(err, ZP_NO_MEMORY, __FILE__, __LINE__,
                             "not enough memory for the ids of a sequence");
    if (status != ZP_OK) {
        zp_seq_close(s);
        return status;
    }
    *out = s;
    return ZP_OK;
}

zp_status zp_seq_open(zp_seq **out, zp_engine *e, const zp_seq_options *options, zp_err *err)
{
    *out = NULL;
    zp_seq_options o = options ? *options : (zp_seq_options){ 0 };
    ZP_TRY(seq_resolve_mode(e, o.mode, e->options.n_ctx, &o.mode, err));
    return seq_open(out, e, &o, err);
}

void zp_seq_close(zp_seq *s)
{
    if (!s) return;
    kv_table_free(&s->kv, &s->engine->kv);
    mem_free(s->ids);
    mem_free(s->detected);
    mem_free(s->anchors);
    mem_free(s);
}

uint32_t zp_seq_length(const zp_seq *s)
{
    return s->kv.length + s->n_pending;
}

void zp_seq_describe(const zp_seq *s, zp_seq_info *out)
{
    uint32_t length = zp_seq_length(s);
    *out = (zp_seq_info){ .length = length,
                          .n_exact = s->moved_at < length ? s->moved_at : length,
                          .ids = s->ids,
                          .mode = s->mode,
                          .position_offset = s->offset,
                          .salt = s->salt };
}

/* Those that another sequence has of the first n tokens. */
static void copy_detected(struct zp_seq *to, const struct zp_seq *from, uint32_t n)
{
    size_t step = forward_detected_step(to->engine->options.n_ctx);
    to->n_detected = from->n_detected < n ? from->n_detected : n;
    for (size_t k = 0; to->detected && k < STRUCT_TYPES; k++)
        memcpy(to->detected + k * step, from->detected + k * step,
               to->n_detected * sizeof *to->detected);
}

static struct prefix_space space_of(const struct zp_seq *s)
{
    return (struct prefix_space){ s->mode, s->offset, s->salt };
}

void seq_keep_prefix(struct zp_seq *s)
{
    struct kvcache *c = &s->engine->kv;
    struct prefix_space space = space_of(s);
    if (s->n_anchors != 0) return; /* its bits are of its anchors, too */
    uint32_t n = s->moved_at < s->kv.length ? s->moved_at : s->kv.length;
    prefix_insert(&c->prefix, c, &s->kv, &space, s->ids, n / KERN_TILE);
}

zp_status zp_seq_reuse(zp_seq *s, const int32_t *ids, size_t n, size_t *reused, zp_err *err)
{
    *reused = 0;
    ZP_FAIL_IF(!ids && n, err, ZP_USAGE, "the ids are missing");
    ZP_FAIL_IF(zp_seq_length(s) != 0, err, ZP_USAGE,
               "the sequence holds %u tokens already: an empty one can take over others' work",
               zp_seq_length(s));
    if (s->n_anchors != 0) return ZP_OK;
    struct kvcache *c = &s->engine->kv;
    struct prefix_space space = space_of(s);
    *reused = prefix_reuse(&c->prefix, c, &s->kv, &space, ids, n);
    if (*reused) memcpy(s->ids, ids, *reused * sizeof *ids);
    s->engine->tokens_reused += *reused;
    return ZP_OK;
}

zp_status zp_seq_fork(zp_seq **out, const zp_seq *s, uint32_t n, zp_err *err)
{
    *out = NULL;
    ZP_FAIL_IF(n > zp_seq_length(s), err, ZP_BAD_INPUT,
               "cannot share %u positions of a sequence of %u", n, zp_seq_length(s));
    /* A mode that was allowed once. */
    const zp_seq_options o = { .mode = s->mode, .position_offset = s->offset, .salt = s->salt,
                               .anchors = s->anchors, .n_anchors = s->n_anchors };
    ZP_TRY(seq_open(out, s->engine, &o, err));
    struct kvcache *c = &s->engine->kv;
    uint32_t cut = kv_table_cut(&s->kv, c, n < s->kv.length ? n : s->kv.length);
    zp_status status = kv_table_share(&(*out)->kv, &s->kv, c, cut, err);
    if (status != ZP_OK) {
        zp_seq_close(*out);
        *out = NULL;
        return status;
    }
    memcpy((*out)->ids, s->ids, n * sizeof *s->ids);
    copy_detected(*out, s, n);
    (*out)->n_pending = n - cut;
    (*out)->moved_at = s->moved_at < cut ? s->moved_at : NEVER_MOVED;
    return ZP_OK;
}

zp_status zp_seq_truncate(zp_seq *s, uint32_t n, zp_err *err)
{
    ZP_FAIL_IF(n > zp_seq_length(s), err, ZP_BAD_INPUT,
               "cannot truncate a sequence of %u positions to %u", zp_seq_length(s), n);
    struct kvcache *c = &s->engine->kv;
    uint32_t cut = kv_table_cut(&s->kv, c, n < s->kv.length ? n : s->kv.length);
    ZP_TRY(kv_table_truncate(&s->kv, c, cut, err));
    s->n_pending = n - cut;
    if (s->moved_at >= cut) s->moved_at = NEVER_MOVED;
    if (s->n_detected > n) s->n_detected = n;
    return ZP_OK;
}

/* ---- pages of another sequence --------------------------------------------------------------- */

static zp_status check_append(const zp_seq *to, const zp_seq *from, uint32_t first, uint32_t n,
                              const zp_append_options *o, zp_err *err)
{
    uint32_t length = zp_seq_length(to), n_ctx = to->engine->options.n_ctx;
    ZP_FAIL_IF(from == to || from->engine != to->engine, err, ZP_USAGE,
               "tokens can be appended from another sequence of the same engine only");
    ZP_FAIL_IF(from->n_anchors != 0 || to->n_anchors != 0, err, ZP_UNSUPPORTED,
               "pages of sequences with anchors cannot be appended");
    ZP_FAIL_IF(from->mode != to->mode, err, ZP_USAGE,
               "keys of position mode %s cannot be appended to a sequence in mode %s",
               position_mode_name(from->mode), position_mode_name(to->mode));
    ZP_FAIL_IF((length | first | n | o->recompute) % KERN_TILE != 0, err, ZP_USAGE,
               "%u tokens from %u on, %u of them computed anew, cannot be appended at %u: pages go "
               "over whole, all four must be multiples of %d",
               n, first, o->recompute, length, KERN_TILE);
    ZP_FAIL_IF(o->recompute > n, err, ZP_USAGE, "%u tokens of %u cannot be computed anew",
               o->recompute, n);
    ZP_FAIL_IF(first > from->kv.length || n > from->kv.length - first, err, ZP_BAD_INPUT,
               "the sequence holds keys of %u tokens, [%u, %llu) are wanted", from->kv.length,
               first, (unsigned long long)first + n);
    ZP_FAIL_IF(n > n_ctx - length, err, ZP_BAD_INPUT,
               "%u tokens after %u do not fit into the context of %u positions; raise --ctx-size",
               n, length, n_ctx);
    ZP_FAIL_IF(
        !o->approximate && !position_is_free(&to->engine->position, to->mode), err, ZP_UNSUPPORTED,
        "keys hold the positions they were computed at: in mode %s the model has open pairs, "
        "biases or windows; compute the tokens, or ask for the approximation",
        position_mode_name(to->mode));
    return kv_table_check_lent(&from->kv, &to->engine->kv, first, n, err);
}

zp_status zp_seq_append_pages(zp_seq *to, const zp_seq *from, uint32_t first, uint32_t n,
                              const zp_append_options *options, zp_err *err)
{
    const zp_append_options o = options ? *options : (zp_append_options){ 0 };
    ZP_TRY(check_append(to, from, first, n, &o, err));
    zp_item item = { to, from->ids + first, o.recompute, ZP_WANT_NONE };
    ZP_TRY(zp_engine_run(to->engine, &item, 1, NULL, 0, NULL, err));
    first += o.recompute, n -= o.recompute;
    if (n == 0) return ZP_OK;
    uint32_t length = zp_seq_length(to);
    memcpy(to->ids + length, from->ids + first, n * sizeof *to->ids);
    kv_table_append(&to->kv, &from->kv, &to->engine->kv, first, n);
    if (to->moved_at > length) to->moved_at = length;
    to->engine->tokens_appended += n;
    return ZP_OK;
}

/* gguf_write.h: a list of keys and tensors under edit, and its writing as one GGUF v3 file.
 * Keys and tensors keep their order; new ones go to the end. Values are copied; tensor data is not
 * (a view or a callback), so the source must stay open until gguf_edit_write returned. Writing is
 * atomic and streams, and the output may be the source file itself. Reading and rewriting a file
 * that zerope wrote gives identical bytes. */
#ifndef MODEL_GGUF_WRITE_H
#define MODEL_GGUF_WRITE_H

#include "base/os.h"
#include "model/gguf.h"

/* Writes rows [first, first + n) of the tensor to out (n * row bytes). Called in ascending order,
 * no row twice, once per gguf_edit_write. An error (ZP_INTERRUPTED included) ends the writing and
 * leaves the old file. */
typedef zp_status (*gguf_fill_rows)(void *arg, uint64_t first, uint64_t n, void *out, zp_err *err);

struct gguf_edit_tensor {
    const char *name; /* copied */
    uint32_t type;    /* ggml type number */
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS];
    const void *data; /* all bytes, or NULL: then fill is called */
    gguf_fill_rows fill;
    void *fill_arg;
    uint64_t bytes; /* set by gguf_edit_set_tensor */
};

struct gguf_edit {
    struct gguf_kv *kvs; /* data owned by arena */
    uint32_t n_kv, kv_room;
    struct gguf_edit_tensor *tensors;
    uint32_t n_tensors, tensor_room;
    uint32_t alignment; /* follows general.alignment */
    struct arena arena;
};

/* source NULL: empty (no keys, no tensors). A split source becomes one file: its split.* keys are
 * dropped. */
zp_status gguf_edit_init(struct gguf_edit *e, const struct gguf *source, zp_err *err);
void gguf_edit_free(struct gguf_edit *e);

/* Set: replaces the value in place (the type may change) or appends the key. "%." stands for the
 * architecture. */
zp_status gguf_edit_set_u32(struct gguf_edit *e, const char *key, uint32_t value, zp_err *err);
zp_status gguf_edit_set_i32(struct gguf_edit *e, const char *key, int32_t value, zp_err *err);
zp_status gguf_edit_set_u64(struct gguf_edit *e, const char *key, uint64_t value, zp_err *err);
zp_status gguf_edit_set_f32(struct gguf_edit *e, const char *key, float value, zp_err *err);
zp_status gguf_edit_set_bool(struct gguf_edit *e, const char *key, bool value, zp_err *err);
zp_status gguf_edit_set_str(struct gguf_edit *e, const char *key, const char *text, zp_err *err);
zp_status gguf_edit_set_strn(struct gguf_edit *e, const char *key, const char *text, size_t size,
                             zp_err *err);
/* items: count values of a fixed-size type in native layout; GGUF_BOOL: uint8_t 0/1 (or bool). */
zp_status gguf_edit_set_array(struct gguf_edit *e, const char *key, enum gguf_type type,
                              const void *items, uint64_t count, zp_err *err);
zp_status gguf_edit_set_strs(struct gguf_edit *e, const char *key, const struct gguf_str *items,
                             uint64_t count, zp_err *err);
/* Any value as read from a file, under kv->name. */
zp_status gguf_edit_set_kv(struct gguf_edit *e, const struct gguf_kv *kv, zp_err *err);
const struct gguf_kv *gguf_edit_find_key(const struct gguf_edit *e, const char *key); /* or NULL */
bool gguf_edit_remove_key(struct gguf_edit *e, const char *key); /* true if it was there */
/* Sets general.architecture and renames every key "OLD.x" to "ARCH.x", in place. */
zp_status gguf_edit_rename_arch(struct gguf_edit *e, const char *arch, zp_err *err);

/* Replaces the tensor of that name in place, or appends. Type, dims and name are checked as on
 * reading. */
zp_status gguf_edit_set_tensor(struct gguf_edit *e, const struct gguf_edit_tensor *t, zp_err *err);
/* Convenience for small f32 tensors made in memory: the data is copied. */
zp_status gguf_edit_set_tensor_f32(struct gguf_edit *e, const char *name, uint32_t n_dims,
                                   const uint64_t *ne, const float *data, zp_err *err);
struct gguf_edit_tensor *gguf_edit_find_tensor(struct gguf_edit *e, const char *name); /* or NULL */
bool gguf_edit_remove_tensor(struct gguf_edit *e, const char *name);

/* A struct gguf that shows e's keys (no tensors), for gguf_get_*; valid until e changes. */
zp_status gguf_edit_view(const struct gguf_edit *e, struct gguf *view, zp_err *err);
void gguf_edit_view_free(struct gguf *view);
/* Moves everything of e into g, which must be empty but for path, folder and blocks; e is empty
 * afterwards. Tensors must have data. Call gguf_build_indexes next. A failure changes neither. */
zp_status gguf_from_edit(struct gguf *g, struct gguf_edit *e, zp_err *err);

/* ZP_USAGE: a file of this name could not be opened again. Writing checks it, too; calls that take
 * long ask before they begin. */
zp_status gguf_check_output(const char *path, zp_err *err);
/* Size of the file gguf_edit_write would write. */
zp_status gguf_edit_file_bytes(const struct gguf_edit *e, uint64_t *bytes, zp_err *err);
zp_status gguf_edit_write(struct gguf_edit *e, const char *path, zp_err *err);
/* The same up to the commit: the file lies complete at f->temp until os_file_commit gives it its
 * name or os_file_abort removes it. On failure nothing is left. */
zp_status gguf_edit_write_temp(struct gguf_edit *e, const char *path, struct os_file *f,
                               zp_err *err);

#endif

/* gemm_dnnl.c: oneDNN behind dlopen: sgemm for f32, matmul primitives for bf16.
 * Owns: the library's handle, and per thread a stream, primitives by shape and their scratchpad.
 * Threads: each thread uses its own slot; sgemm keeps no state.
 * D1 oneDNN starts no OpenMP team: every product first sets its thread's OpenMP threads to 1. */
#include "train/gemm_dnnl.h"

#if ZEROPE_HAVE_DNNL

#include <dlfcn.h>
#include <dnnl.h>
#include <string.h>
#include "base/mem.h"

/* Functions of the library that are used, under their own names without the prefix. */
#define DNNL_FUNCTIONS(X)                                                                          \
    X(sgemm)                                                                                       \
    X(engine_create)                                                                               \
    X(engine_destroy)                                                                              \
    X(stream_create)                                                                               \
    X(stream_destroy)                                                                              \
    X(memory_desc_init_by_strides)                                                                 \
    X(memory_desc_get_size)                                                                        \
    X(memory_create)                                                                               \
    X(memory_destroy)                                                                              \
    X(memory_set_data_handle)                                                                      \
    X(matmul_desc_init)                                                                            \
    X(post_ops_create)                                                                             \
    X(post_ops_append_sum)                                                                         \
    X(post_ops_destroy)                                                                            \
    X(primitive_attr_create)                                                                       \
    X(primitive_attr_set_post_ops)                                                                 \
    X(primitive_attr_set_scratchpad_mode)                                                          \
    X(primitive_attr_destroy)                                                                      \
    X(primitive_desc_create)                                                                       \
    X(primitive_desc_query_md)                                                                     \
    X(primitive_desc_destroy)                                                                      \
    X(primitive_create)                                                                            \
    X(primitive_execute)                                                                           \
    X(primitive_destroy)

enum { SHAPES = 64 };

enum operand { OPERAND_X, OPERAND_W, OPERAND_Y, OPERAND_SCRATCH, OPERAND_COUNT };

/* A primitive and its operands, for one shape. */
struct matmul {
    struct gemm_product shape; /* without pointers */
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERAND_COUNT];
    size_t scratch_bytes;
};

struct slot {
    dnnl_stream_t stream;
    struct matmul shapes[SHAPES]; /* replaced in turn */
    uint32_t used, next;
    void *scratch;
    size_t scratch_bytes;
} ZP_ALIGN(ZP_CACHE_LINE);

struct gemm_dnnl {
#define DNNL_POINTER(name) __typeof__(dnnl_##name) *name;
    DNNL_FUNCTIONS(DNNL_POINTER)
#undef DNNL_POINTER
    void (*omp_set_num_threads)(int);
    void *library;
    dnnl_engine_t engine;
    uint32_t n_threads;
    struct slot slots[];
};

/* ISO C has no cast from an object's address to a function's. */
static bool find_function(void *library, const char *name, void *pointer)
{
    void *address = dlsym(library, name);
    memcpy(pointer, &address, sizeof address);
    return address != NULL;
}

static bool find_functions(struct gemm_dnnl *d)
{
    /* Never unloaded: OpenMP runtimes do not survive it. */
    d->library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!d->library) return false;
    bool all = find_function(d->library, "omp_set_num_threads", &d->omp_set_num_threads); // D1
#define DNNL_FIND(name) all = all && find_function(d->library, "dnnl_" #name, &d->name);
    DNNL_FUNCTIONS(DNNL_FIND)
#undef DNNL_FIND
    return all;
}

zp_status gemm_dnnl_open(struct gemm_dnnl **out, uint32_t n_threads, zp_err *err)
{
    struct gemm_dnnl *d = mem_zalloc(MEM_PRODUCT, sizeof *d + n_threads * sizeof d->slots[0]);
    *out = NULL;
    ZP_FAIL_IF(!d, err, ZP_NO_MEMORY, "not enough memory for matrix products");
    bool ok = find_functions(d) && d->engine_create(&d->engine, dnnl_cpu, 0) == dnnl_success;
    for (; ok && d->n_threads < n_threads; d->n_threads++)
        ok = d->stream_create(&d->slots[d->n_threads].stream, d->engine,
                              dnnl_stream_default_flags) == dnnl_success;
    if (ok) *out = d;
    else gemm_dnnl_close(d);
    return ZP_OK;
}

uint64_t gemm_dnnl_bytes(const struct gemm_dnnl *d)
{
    return d ? sizeof *d + d->n_threads * sizeof d->slots[0] : 0;
}

static void forget_shape(struct gemm_dnnl *d, struct matmul *m)
{
    if (m->primitive) d->primitive_destroy(m->primitive);
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (m->memory[i]) d->memory_destroy(m->memory[i]);
    memset(m, 0, sizeof *m);
}

void gemm_dnnl_close(struct gemm_dnnl *d)
{
    if (!d) return;
    for (uint32_t t = 0; t < d->n_threads; t++) {
        struct slot *s = &d->slots[t];
        for (uint32_t i = 0; i < s->used; i++) forget_shape(d, &s->shapes[i]);
        if (s->stream) d->stream_destroy(s->stream);
        mem_free(s->scratch);
    }
    if (d->engine) d->engine_destroy(d->engine);
    if (d->library) dlclose(d->library);
    mem_free(d);
}

bool gemm_dnnl_f32(struct gemm_dnnl *d, const struct gemm_product *p)
{
    d->omp_set_num_threads(1); // D1
    char turn_x = p->kind == GEMM_TN ? 'T' : 'N', turn_w = p->kind == GEMM_NT ? 'T' : 'N';
    return d->sgemm(turn_x, turn_w, (dnnl_dim_t)p->n, (dnnl_dim_t)p->m, (dnnl_dim_t)p->k, 1.0f,
                    p->x, (dnnl_dim_t)p->ldx, p->w, (dnnl_dim_t)p->ldw, p->add ? 1.0f : 0.0f, p->y,
                    (dnnl_dim_t)p->ldy) == dnnl_success;
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

static bool describe(struct gemm_dnnl *d, dnnl_memory_desc_t *out, dnnl_data_type_t type,
                     size_t rows, size_t columns, size_t ld, bool turned)
{
    dnnl_dims_t dims = { (dnnl_dim_t)rows, (dnnl_dim_t)columns };
    dnnl_dims_t strides = { (dnnl_dim_t)ld, 1 };
    if (turned) strides[0] = 1, strides[1] = (dnnl_dim_t)ld;
    return d->memory_desc_init_by_strides(out, 2, dims, type, strides) == dnnl_success;
}

static bool fill_attributes(struct gemm_dnnl *d, dnnl_primitive_attr_t attributes,
                            dnnl_post_ops_t sum, bool add)
{
    return d->primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) ==
               dnnl_success &&
           (!add || (d->post_ops_append_sum(sum, 1.0f) == dnnl_success &&
                     d->primitive_attr_set_post_ops(attributes, sum) == dnnl_success));
}

static bool make_primitive(struct gemm_dnnl *d, struct matmul *m, const dnnl_memory_desc_t *x,
                           const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y)
{
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t plan = NULL;
    bool ok = d->matmul_desc_init(&desc, x, w, NULL, y) == dnnl_success &&
              d->primitive_attr_create(&attributes) == dnnl_success &&
              d->post_ops_create(&sum) == dnnl_success &&
              fill_attributes(d, attributes, sum, m->shape.add) &&
              d->primitive_desc_create(&plan, &desc, attributes, d->engine, NULL) ==
                  dnnl_success &&
              d->primitive_create(&m->primitive, plan) == dnnl_success;
    const dnnl_memory_desc_t *descs[OPERAND_COUNT] = { x, w, y, NULL };
    if (ok) {
        descs[OPERAND_SCRATCH] = d->primitive_desc_query_md(plan, dnnl_query_scratchpad_md, 0);
        m->scratch_bytes = d->memory_desc_get_size(descs[OPERAND_SCRATCH]);
    }
    for (int i = 0; ok && i < OPERAND_COUNT; i++)
        ok = d->memory_create(&m->memory[i], descs[i], d->engine, DNNL_MEMORY_NONE) ==
             dnnl_success;
    if (plan) d->primitive_desc_destroy(plan);
    if (sum) d->post_ops_destroy(sum);
    if (attributes) d->primitive_attr_destroy(attributes);
    return ok;
}

static bool same_shape(const struct gemm_product *a, const struct gemm_product *b)
{
    return a->kind == b->kind && a->add == b->add && a->n == b->n && a->m == b->m && a->k == b->k &&
           a->ldx == b->ldx && a->ldw == b->ldw && a->ldy == b->ldy;
}

static struct matmul *matmul_of(struct gemm_dnnl *d, struct slot *s, const struct gemm_product *p)
{
    for (uint32_t i = 0; i < s->used; i++)
        if (s->shapes[i].primitive && same_shape(&s->shapes[i].shape, p)) return &s->shapes[i];
    struct matmul *m = &s->shapes[s->next];
    s->next = (s->next + 1) % SHAPES;
    if (s->used < SHAPES) s->used++;
    forget_shape(d, m);
    m->shape = *p;
    dnnl_memory_desc_t x, w, y;
    if (describe(d, &x, dnnl_bf16, p->n, p->k, p->ldx, p->kind == GEMM_TN) &&
        describe(d, &w, dnnl_bf16, p->k, p->m, p->ldw, p->kind == GEMM_NT) &&
        describe(d, &y, dnnl_f32, p->n, p->m, p->ldy, false) && make_primitive(d, m, &x, &w, &y))
        return m;
    forget_shape(d, m);
    return NULL;
}

static bool grow_scratch(struct slot *s, size_t bytes)
{
    if (bytes <= s->scratch_bytes) return true;
    void *more = mem_resize(MEM_PRODUCT, s->scratch, bytes);
    if (!more) return false;
    s->scratch = more;
    s->scratch_bytes = bytes;
    return true;
}

/* What oneDNN only reads it takes without const as well. */
static bool place(struct gemm_dnnl *d, dnnl_memory_t memory, const void *data)
{
    void *p;
    memcpy(&p, &data, sizeof p);
    return d->memory_set_data_handle(memory, p) == dnnl_success;
}

bool gemm_dnnl_bf16(struct gemm_dnnl *d, uint32_t thread, const struct gemm_product *p,
                    const uint16_t *x, const uint16_t *w)
{
    struct slot *s = &d->slots[thread];
    d->omp_set_num_threads(1); // D1
    struct matmul *m = matmul_of(d, s, p);
    if (!m || !grow_scratch(s, m->scratch_bytes)) return false;
    if (!place(d, m->memory[OPERAND_X], x) || !place(d, m->memory[OPERAND_W], w) ||
        !place(d, m->memory[OPERAND_Y], p->y) ||
        !place(d, m->memory[OPERAND_SCRATCH], s->scratch))
        return false;
    dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, m->memory[OPERAND_X] },
                               { DNNL_ARG_WEIGHTS, m->memory[OPERAND_W] },
                               { DNNL_ARG_DST, m->memory[OPERAND_Y] },
                               { DNNL_ARG_SCRATCHPAD, m->memory[OPERAND_SCRATCH] } };
    return d->primitive_execute(m->primitive, s->stream, 4, args) == dnnl_success;
}

#else

zp_status gemm_dnnl_open(struct gemm_dnnl **out, uint32_t n_threads, zp_err *err)
{
    ZP_UNUSED(n_threads);
    ZP_UNUSED(err);
    *out = NULL;
    return ZP_OK;
}

void gemm_dnnl_close(struct gemm_dnnl *d)
{
    ZP_UNUSED(d);
}

uint64_t gemm_dnnl_bytes(const struct gemm_dnnl *d)
{
    ZP_UNUSED(d);
    return 0;
}

bool gemm_dnnl_f32(struct gemm_dnnl *d, const struct gemm_product *p)
{
    ZP_UNUSED(d);
    ZP_UNUSED(p);
    return false;
}

bool gemm_dnnl_bf16(struct gemm_dnnl *d, uint32_t thread, const struct gemm_product *p,
                    const uint16_t *x, const uint16_t *w)
{
    ZP_UNUSED(d);
    ZP_UNUSED(thread);
    ZP_UNUSED(p);
    ZP_UNUSED(x);
    ZP_UNUSED(w);
    return false;
}

#endif

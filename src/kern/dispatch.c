/* dispatch.c: asks the processor what it runs and fills a table of implementations.
 * Owns: nothing; tables are the caller's. The only code that executes CPUID. */
#include "kern/dispatch.h"

#include <stdio.h>
#include <string.h>
#include "base/compiler.h"
#include "kern/kern_impl.h"

struct cpu_feature {
    const char *name;
    enum kern_level level;
    bool present;
};

#if ZP_X86
#include <cpuid.h>

enum cpu_leaf { LEAF1_C, LEAF7_B, LEAF7_C, LEAF7_1A, LEAF_COUNT };

static uint64_t enabled_states(void)
{
    uint32_t a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* Register bits of the leaves that matter; bits whose register state the system has not enabled are
 * cleared. */
static void read_leaves(uint32_t leaf[LEAF_COUNT])
{
    uint32_t a, b, c, d;
    memset(leaf, 0, LEAF_COUNT * sizeof leaf[0]);
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    leaf[LEAF1_C] = c;
    bool saves = (c >> 27 & 1) != 0;
    uint64_t states = saves ? enabled_states() : 0;
    bool ymm = (states & 0x6) == 0x6, zmm = (states & 0xe6) == 0xe6;
    if (!ymm) leaf[LEAF1_C] = 0;
    if (!ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    uint32_t sub_leaves = a;
    leaf[LEAF7_B] = zmm ? b : b & (1u << 5);
    leaf[LEAF7_C] = zmm ? c : 0;
    if (zmm && sub_leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) leaf[LEAF7_1A] = a;
}

/* The features a level needs, all of them. */
static size_t read_features(struct cpu_feature out[16])
{
    static const struct {
        const char *name;
        enum kern_level level;
        enum cpu_leaf leaf;
        int bit;
    } all[] = {
        { "avx2", KERN_AVX2, LEAF7_B, 5 },           { "fma", KERN_AVX2, LEAF1_C, 12 },
        { "f16c", KERN_AVX2, LEAF1_C, 29 },          { "avx512f", KERN_AVX512, LEAF7_B, 16 },
        { "avx512dq", KERN_AVX512, LEAF7_B, 17 },    { "avx512bw", KERN_AVX512, LEAF7_B, 30 },
        { "avx512vl", KERN_AVX512, LEAF7_B, 31 },    { "avx512_vnni", KERN_AVX512, LEAF7_C, 11 },
        { "avx512_bf16", KERN_AVX512BF16, LEAF7_1A, 5 },
    };
    uint32_t leaf[LEAF_COUNT];
    read_leaves(leaf);
    for (size_t i = 0; i < ZP_COUNT(all); i++)
        out[i] = (struct cpu_feature){ all[i].name, all[i].level,
                                       (leaf[all[i].leaf] >> all[i].bit & 1) != 0 };
    return ZP_COUNT(all);
}
#else
static size_t read_features(struct cpu_feature out[16])
{
    ZP_UNUSED(out);
    return 0;
}
#endif

enum kern_level kern_cpu_level(void)
{
    struct cpu_feature f[16];
    size_t n = read_features(f);
    enum kern_level level = n == 0 ? KERN_REF : KERN_LEVEL_COUNT - 1;
    for (size_t i = 0; i < n; i++)
        if (!f[i].present && f[i].level <= level) level = (enum kern_level)(f[i].level - 1);
    return level;
}

void kern_cpu_features(char *out, size_t size)
{
    struct cpu_feature f[16];
    size_t n = read_features(f), at = 0;
    if (size == 0) return;
    out[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (!f[i].present || at >= size) continue;
        int used = snprintf(out + at, size - at, "%s%s", at ? " " : "", f[i].name);
        at += used > 0 ? (size_t)used : 0;
    }
}

const char *kern_level_name(enum kern_level level)
{
    static const char *const names[KERN_LEVEL_COUNT] = { "ref", "avx2", "avx512", "avx512bf16" };
    return (unsigned)level < KERN_LEVEL_COUNT ? names[level] : "unknown";
}

enum op_number {
#define KERN_OP(op, kind, contract) OP_##op,
#include "kern/kern_ops.inc"
#undef KERN_OP
    OP_COUNT
};
_Static_assert(OP_COUNT <= sizeof((struct kern_table *)0)->names / sizeof(char *),
               "names has room for every operation");

#define LEVEL_ref KERN_REF
#define LEVEL_avx2 KERN_AVX2
#define LEVEL_avx512 KERN_AVX512
#define LEVEL_avx512bf16 KERN_AVX512BF16

void kern_table_init(struct kern_table *t, enum kern_level max_level)
{
    enum kern_level cpu = kern_cpu_level();
    memset(t, 0, sizeof *t);
    t->level = max_level < cpu ? max_level : cpu;
#define KERN_IMPL(op_name, isa)                                                                    \
    if (t->level >= LEVEL_##isa) {                                                                 \
        t->op_name = op_name##_##isa;                                                              \
        t->names[OP_##op_name] = #op_name "_" #isa;                                                \
    }
#include "kern/kern_impl.inc"
#undef KERN_IMPL
}

size_t kern_op_count(void)
{
    return OP_COUNT;
}

const char *kern_op_name(size_t i)
{
    static const char *const names[] = {
#define KERN_OP(op, kind, contract) #op,
#include "kern/kern_ops.inc"
#undef KERN_OP
    };
    return i < OP_COUNT ? names[i] : NULL;
}

const char *kern_op_contract(size_t i)
{
    static const char *const contracts[] = {
#define KERN_OP(op, kind, contract) contract,
#include "kern/kern_ops.inc"
#undef KERN_OP
    };
    return i < OP_COUNT ? contracts[i] : NULL;
}

/* compiler.h: the only home of attributes, builtins and platform conditionals. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#define ZP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ZP_INLINE static inline __attribute__((always_inline))
#define ZP_NOINLINE __attribute__((noinline))
#define ZP_ALIGN(n) __attribute__((aligned(n)))
#define ZP_RESTRICT restrict
/* Brings the line at p into the second-level cache. */
#define ZP_PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define ZP_LIKELY(x) __builtin_expect(!!(x), 1)
#define ZP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Before a loop with a small constant count that must disappear (arrays of registers). */
#if defined(__clang__)
#define ZP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ZP_UNROLL _Pragma("GCC unroll 16")
#endif
#define ZP_UNUSED(x) ((void)(x))
#define ZP_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ZP_CACHE_LINE 64

/* 1 where the address sanitizer watches: pools and arenas then give every block its own home. */
#if defined(__SANITIZE_ADDRESS__)
#define ZP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZP_ASAN 1
#endif
#endif
#ifndef ZP_ASAN
#define ZP_ASAN 0
#endif

#if defined(__x86_64__)
#define ZP_X86 1
#else
#define ZP_X86 0
#endif

#endif

/* kern_impl.h: declarations of every implementation, generated from kern_ops.inc and kern_impl.inc.
 * For dispatch.c and the files of implementations only. */
#ifndef KERN_KERN_IMPL_H
#define KERN_KERN_IMPL_H

#include "base/compiler.h"
#include "kern/kern.h"

#define KERN_OP(op, kind, contract) typedef kern_##kind##_op op##_function;
#include "kern/kern_ops.inc"
#undef KERN_OP

#define KERN_IMPL(op, isa) op##_function op##_##isa;
#include "kern/kern_impl.inc"
#undef KERN_IMPL

#endif

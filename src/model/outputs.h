/* outputs.h: refuses outputs that would change the inputs of a call or each other. */
#ifndef MODEL_OUTPUTS_H
#define MODEL_OUTPUTS_H

#include <stddef.h>
#include <zerope/status.h>

/* Paths may be NULL: not given. ZP_USAGE names the two that meet. */
zp_status outputs_check(const char *const *outputs, size_t n_outputs, const char *const *inputs,
                        size_t n_inputs, zp_err *err);

#endif

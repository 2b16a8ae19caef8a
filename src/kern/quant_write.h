/* quant_write.h: block encoders, internal to kern/quant*.c; others call quant_quantize_row. */
#ifndef KERN_QUANT_WRITE_H
#define KERN_QUANT_WRITE_H

#include <stdint.h>

/* One block of finite weights. Values too large for the type give infinite scales. */
void quant_write_q4_k(const float *src, uint8_t *b);
void quant_write_q5_k(const float *src, uint8_t *b);
void quant_write_q6_k(const float *src, uint8_t *b);

#endif

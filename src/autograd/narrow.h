/* The two 16-bit forms in which frozen weights may stay in memory. They are widened (exactly) inside the product that uses them. */
#ifndef AUTOGRAD_NARROW_H
#define AUTOGRAD_NARROW_H

typedef enum NarrowKind {
  NARROW_NONE,
  NARROW_F16, /* IEEE 754 half: 1 sign, 5 exponent, 10 fraction bits */
  NARROW_BF16 /* bfloat16: the upper half of a float */
} NarrowKind;

#endif

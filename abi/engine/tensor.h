/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/tensor.h - what is known of a tensor while a program is planned: its type and shape.
 * Memory appears only at bind time, as DLTensor views (engine/kernel.h).
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
 */
#ifndef ENGINE_TENSOR_H_
#define ENGINE_TENSOR_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_MAX_DIMS 6

/* Type and shape; always dense and row-major. Frozen: it never grows, so arrays of it are safe.  since 1.0 */
typedef struct eng_desc {
  int32_t dtype;
  uint32_t ndim;
  int64_t dims[ENG_MAX_DIMS];
} eng_desc;

/* One named number: `i` for integers and flags, `f` for reals; the op says which it reads. Frozen.  since 1.0 */
typedef struct eng_attr {
  const char *key;
  int64_t i;
  double f;
} eng_attr;

#ifdef __cplusplus
}
#endif
#endif

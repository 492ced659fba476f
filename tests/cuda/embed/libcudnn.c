/* SPDX-License-Identifier: Apache-2.0
 * A libcudnn.so.9 that only says its version, to be found by packages_test.py. */
#include <stddef.h>

size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) {
  return 91900;
}

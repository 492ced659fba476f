/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that a fixture needs. Whoever loads it ends here: exit status 98. */
#include <stdlib.h>

__attribute__((constructor)) static void needed(void) {
  _Exit(98);
}

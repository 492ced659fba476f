// SPDX-License-Identifier: Apache-2.0
#include "loops_update.hpp"

namespace adamw8bit {
extern const Loops loops_avx2 = {"avx2", update};
}

// SPDX-License-Identifier: Apache-2.0
#include "loops_scan.hpp"

namespace mamba {
extern const Loops loops_portable = {"portable", conv, conv_grad, scan, scan_grad};
}

// SPDX-License-Identifier: Apache-2.0
#include "loops_all.hpp"

namespace curvature {
extern const Loops loops_portable = {"portable", perturb, noise, hutchinson, fisher, count};
}

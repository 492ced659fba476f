// SPDX-License-Identifier: Apache-2.0
// The part of a communicator's test that runs on each rank.
#pragma once

#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {

// One of two ranks, which mpirun started.
void test_rank(const Subject& subject, Sheet& sheet);

}  // namespace eng::plugin_test

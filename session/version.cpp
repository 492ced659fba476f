// SPDX-License-Identifier: Apache-2.0
#include "session/version.hpp"

#include "session/commit.hpp"

namespace eng {

const char* const version = ENGINE_VERSION;
const char* const commit = ENGINE_COMMIT;

}  // namespace eng

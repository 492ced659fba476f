// SPDX-License-Identifier: Apache-2.0
// The version of the engine.
#pragma once

namespace eng {

extern const char* const version;  // "0.1.0"
extern const char* const commit;   // of the sources, as git describes it; "unknown" outside of a checkout

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
// Which engine this is.
#pragma once

namespace eng {

extern const char* const version;  // "0.1.0"
extern const char* const commit;   // of the sources, as git describes it; "unknown" outside of a checkout

}  // namespace eng

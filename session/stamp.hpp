// SPDX-License-Identifier: Apache-2.0
// The time and the machine, as files and messages tell them.
#pragma once

#include <string>

namespace eng {

// The time, such as "20261120-132005" or, with `full`, "2026-11-20T13:20:05Z".
std::string utc_now(bool full);
// This machine, "?" if it has no name.
std::string host_name();

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
// How the parts of this plugin report bad input.
#pragma once

#include "../common/error.hpp"

namespace text_data {

using common::guarded;
using common::report;
using Failure = common::Error;

}  // namespace text_data

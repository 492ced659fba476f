// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA runtime as statuses and texts of the engine.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "../common/call.hpp"

namespace cuda {

using common::Error;
using common::guarded;

// True if the error ends the context: every later call of this process fails, too.
bool is_sticky(cudaError_t error);
// "cudaErrorIllegalAddress (an illegal memory access was encountered)", and what to do if the context has ended.
// `known`: the error is that of the op which the message names, because each launch was waited for.
std::string text_of(cudaError_t error, bool known = false);
// True if it is no error. Clears the error of the thread, which the next check of a launch would find again.
bool worked(cudaError_t error);
// Throws Error if `error` is one: ENG_UNSUPPORTED for what cannot be captured, ENG_NO_MEMORY, ENG_UNAVAILABLE, ...
// `doing`, such as "recording an event", begins the text. Clears the error of the thread.
void check(cudaError_t error, std::string_view doing, bool known = false);

}  // namespace cuda

// SPDX-License-Identifier: Apache-2.0
// Products of matrices by cuBLASLt.
#pragma once

#include <memory>

#include "kernels/library.hpp"

struct cublasLtContext;

namespace cuda::blas {

// A handle of cuBLASLt for the current device. Throws Error.
std::shared_ptr<cublasLtContext> create();

// The matrix products that the plugin gives its kernels.
extern const library::Table products;

}  // namespace cuda::blas

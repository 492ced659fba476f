// SPDX-License-Identifier: Apache-2.0
// The standard ops of engine/ops.h, as the tables that a plugin with ops has (engine/op.h).
#pragma once

#include <span>

#include "engine/op.h"

namespace ops {

// All families but the collectives, which communicators run instead of devices; and those.
const eng_ops& standard();
const eng_ops& collectives();

// One family in each file.
using Family = std::span<const eng_op>;
Family activation_ops();
Family attention_ops();
Family collective_ops();
Family elementwise_ops();
Family embedding_ops();
Family init_ops();
Family layout_ops();
Family linear_ops();
Family loss_ops();
Family matmul_ops();
Family norm_ops();
Family optimizer_ops();
Family packed_ops();
Family position_ops();
Family sequence_ops();
Family step_ops();
Family vocabulary_ops();

}  // namespace ops

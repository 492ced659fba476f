// SPDX-License-Identifier: Apache-2.0
// The files of one rank's part of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "session/checkpoint/safetensors.hpp"
#include "session/checkpoint/share.hpp"

namespace eng {

// The files of this rank: parameters in the first, states in the second. The checksums are not known yet.
struct Layout {
  Manifest manifest;                 // tensors and files, in the order of the files
  std::vector<std::string> headers;  // of each file
};
Layout lay_out(const std::vector<TensorShare>& tensors, uint32_t rank);
// The file of a rank for tensors of this role, and how a range of a tensor is called and shaped there.
std::string part_file(const std::string& role, uint32_t rank);
StoredTensor stored_as(const TensorSpec& t, const Range& range, const Columns& columns);

// Sets the number of this rank among the ranks that hold the same ranges. All ranks call it.
void number_copies(std::vector<TensorShare>& tensors, const Peers& peers);

// Elements of a part of a tensor, one after the other.
void read_part(const Read& read, const TensorSpec& t, const Columns& columns, const Range& own, char* to);

}  // namespace eng

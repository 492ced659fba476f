// SPDX-License-Identifier: Apache-2.0
// data.pkl of torch.save. A pickle is a program that makes objects and may call anything. This machine knows the
// instructions that name tensors, and no other: it calls nothing, and refuses what it does not know.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace eng {

// A row-major tensor of a pickle: elements of a storage, which tensors may share.
struct PickledTensor {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  std::string storage;            // its content is the entry data/STORAGE of the archive
  uint64_t storage_elements = 0;  // as the pickle says
  uint64_t first = 0, count = 0;  // of these elements
};

// Named tensors as state_dict() gives them, in their order. `_metadata` is ignored. Throws Error(Exit::checkpoint),
// prefixed by `where`, that names the byte and the instruction or global, or the tensor.
std::vector<PickledTensor> read_torch_pickle(std::string_view pickle, const std::string& where);

}  // namespace eng

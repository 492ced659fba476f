// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of torch.save, and as the pickle in one: accepted with every tensor inside the data, or refused
// with an Error.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/tensor/dtype.hpp"
#include "session/huggingface/torch_file.hpp"
#include "session/huggingface/torch_pickle.hpp"

namespace {

template <class Call>
void accept_or_refuse(Call call) {
  try {
    call();
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::checkpoint) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const eng::ReadAt read = [&](void* out, uint64_t offset, uint64_t bytes) {
    if (offset > size || bytes > size - offset) std::abort();
    if (bytes) std::memcpy(out, data + offset, bytes);
  };
  accept_or_refuse([&] {
    for (const eng::StoredTensor& t : eng::read_torch_tensors(size, read, "fuzz/model.bin"))
      if (t.begin > t.end || t.end > size || t.end - t.begin != t.count() * eng::dtype_size(t.dtype)) std::abort();
  });
  accept_or_refuse([&] {
    for (const eng::PickledTensor& t : eng::read_torch_pickle({reinterpret_cast<const char*>(data), size}, "fuzz"))
      if (t.first > t.storage_elements || t.count > t.storage_elements - t.first ||
          t.count != eng::element_count(t.shape, "fuzz") || eng::dtype_size(t.dtype) == 0)
        std::abort();
  });
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A pytorch_model.bin: the tensors that torch.save wrote. Nothing in it is executed; see torch_pickle.hpp.
#pragma once

#include "session/checkpoint/safetensors.hpp"
#include "session/huggingface/torch_zip.hpp"

namespace eng {

// Its tensors in the order of the file; `begin` and `end` are positions in the file, and tensors may share bytes. The
// path is for messages. Throws Error(Exit::checkpoint).
std::vector<StoredTensor> read_torch_tensors(uint64_t file_bytes, const ReadAt& read,
                                             const std::filesystem::path& path);

// As SafetensorsFile: content is read where it is asked for.
class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::filesystem::path& path() const { return file_.path(); }
  // Elements [first, first + count). Throws Error(Exit::checkpoint).
  void read(const StoredTensor& tensor, uint64_t first, uint64_t count, void* out) const;

 private:
  FileReader file_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace eng

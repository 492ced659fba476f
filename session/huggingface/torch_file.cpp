// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/torch_file.hpp"

#include <algorithm>
#include <tuple>

#include "core/base/text.hpp"
#include "core/tensor/dtype.hpp"
#include "session/huggingface/torch_pickle.hpp"
#include "session/json.hpp"
#include "session/plugins/program.hpp"
#include "session/shell.hpp"

namespace eng {
namespace {

constexpr uint64_t kMostPickleBytes = 16u << 20;  // about 100 are needed for a tensor

// A number that begins files of torch.save before version 1.6, which are pickles without an archive.
constexpr std::string_view kOldFormat("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);

std::string how_to_convert(const std::filesystem::path& path) {
  return "convert it to safetensors:  python3 " + script("bin-to-safetensors") + " " +
         shell_word(path.parent_path().string());
}

void check_format(uint64_t file_bytes, const ReadAt& read, const std::filesystem::path& path) {
  std::string first(std::min<uint64_t>(file_bytes, kOldFormat.size()), '\0');
  read(first.data(), 0, first.size());
  if (first == kOldFormat)
    throw Error(Exit::checkpoint, path.string() + " is in the format that torch.save had before version 1.6",
                how_to_convert(path) + "  (or load it and save it again with a newer torch)");
  if (!first.starts_with("PK\3\4"))
    refuse(path.string(), "is not a file of torch.save: it does not begin as a zip archive");
}

std::string text_of_entry(const ReadAt& read, const ZipEntry& entry, uint64_t most, const std::string& where) {
  if (entry.bytes > most) refuse(where, fmt::format("has {} bytes; the limit is {}", entry.bytes, most));
  std::string out(size_t(entry.bytes), '\0');
  read(out.data(), entry.begin, entry.bytes);
  return out;
}

}  // namespace

std::vector<StoredTensor> read_torch_tensors(uint64_t file_bytes, const ReadAt& read,
                                             const std::filesystem::path& path) {
  const std::string where = path.string();
  check_format(file_bytes, read, path);
  const auto entries = read_stored_zip(file_bytes, read, where);
  // All lie in one folder, whose name is that of the file when it was saved.
  const std::string any = entries.empty() ? "" : entries.begin()->first, folder = any.substr(0, any.find('/') + 1);
  const auto pickle = entries.find(folder + "data.pkl"), order = entries.find(folder + "byteorder");
  if (pickle == entries.end()) refuse(where, "has no data.pkl: it is not a file of torch.save");
  if (order != entries.end() && text_of_entry(read, order->second, 64, where + ": byteorder") != "little")
    refuse(where, "its bytes are not in little-endian order");
  std::vector<PickledTensor> pickled;
  try {
    const std::string at = where + ": data.pkl";
    pickled = read_torch_pickle(text_of_entry(read, pickle->second, kMostPickleBytes, at), at);
  } catch (const Error& e) {
    throw Error(e.exit(), e.what(), how_to_convert(path));
  }
  std::vector<StoredTensor> out;
  for (PickledTensor& t : pickled) {
    const auto data = entries.find(folder + "data/" + t.storage);
    const std::string at = fmt::format("{}: tensor `{}`", where, printable(t.name));
    if (data == entries.end()) refuse(at, fmt::format("its storage `{}` is not in the file", printable(t.storage)));
    const uint64_t size = dtype_size(t.dtype), begin = data->second.begin;
    if (t.storage_elements > data->second.bytes / size)
      refuse(at, fmt::format("its storage `{}` has {} bytes, too few for {} elements", printable(t.storage),
                             data->second.bytes, t.storage_elements));
    out.push_back(
        {std::move(t.name), t.dtype, std::move(t.shape), begin + t.first * size, begin + (t.first + t.count) * size});
  }
  std::sort(out.begin(), out.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  return out;
}

TorchFile::TorchFile(const std::filesystem::path& path) : file_(path, Exit::checkpoint) {
  const ReadAt read = [this](void* out, uint64_t offset, uint64_t bytes) { file_.read(out, offset, bytes); };
  tensors_ = read_torch_tensors(file_.size(), read, path);
}

void TorchFile::read(const StoredTensor& tensor, uint64_t first, uint64_t count, void* out) const {
  const uint64_t all = tensor.count(), size = dtype_size(tensor.dtype);
  if (first > all || count > all - first)
    refuse(path().string(), fmt::format("tensor `{}` has {} elements, not {} from {}", tensor.name, all, count, first));
  file_.read(out, tensor.begin + first * size, count * size);
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/tensors.hpp"

#include <cstring>
#include <set>
#include <variant>

#include "core/base/text.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/dtypes.hpp"
#include "session/huggingface/arrangement.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/huggingface/tensor_names.hpp"
#include "session/huggingface/torch_file.hpp"
#include "session/json.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kTile = 256u << 10;  // elements at a time, when tensors are compared
constexpr uint64_t kMaxIndex = 64u << 20;
constexpr size_t kMostTold = 1000;

// A file of tensors, in either format.
class WeightsFile {
 public:
  WeightsFile(const fs::path& path, bool torch)
      : file_(torch ? Either(std::in_place_type<TorchFile>, path) : Either(std::in_place_type<SafetensorsFile>, path)) {
  }
  const std::vector<StoredTensor>& tensors() const {
    return std::visit(
        [](const auto& file) -> const auto& { return file.tensors(); }, file_);
  }
  const fs::path& path() const {
    return std::visit(
        [](const auto& file) -> const auto& { return file.path(); }, file_);
  }
  void read(const StoredTensor& tensor, uint64_t first, uint64_t count, void* out) const {
    std::visit([&](const auto& file) { file.read(tensor, first, count, out); }, file_);
  }

 private:
  using Either = std::variant<SafetensorsFile, TorchFile>;
  Either file_;
};

// A tensor in its file.
struct Stored {
  const WeightsFile* file;
  const StoredTensor* tensor;
};

// The files of a Hugging Face directory that hold its weights.
struct WeightFiles {
  std::set<std::string> names;
  std::map<std::string, std::string> index;  // the tensors that each should contain; empty if there is no index
  bool torch = false;                        // as torch.save wrote them
};

bool is_there(const fs::path& file) {  // also a link to nothing, which its reader names
  std::error_code none;
  return fs::exists(file, none) || fs::is_symlink(file, none);
}

WeightFiles weight_files(const fs::path& directory) {
  for (const bool torch : {false, true}) {
    const std::string name = torch ? "pytorch_model.bin" : "model.safetensors";
    if (is_there(directory / name)) return {{name}, {}, torch};
    const fs::path path = directory / (name + ".index.json");
    if (!is_there(path)) continue;
    refuse_mistaken(path, ModelFile::json, Exit::checkpoint);
    WeightFiles out{{}, parse_weights_index(read_text(path, kMaxIndex, Exit::checkpoint), path.string()), torch};
    std::vector<std::string> missing;
    for (const auto& [tensor, file] : out.index)
      if (out.names.insert(file).second && !is_there(directory / file)) missing.push_back("`" + printable(file) + "`");
    if (missing.empty()) return out;
    throw Error(
        Exit::checkpoint,
        fmt::format("{} names {} files, of which {} missing: {}", path.string(), out.names.size(),
                    missing.size() == 1 ? "one is" : fmt::format("{} are", missing.size()), fmt::join(missing, ", ")),
        "download what is missing, or the folder as a whole");
  }
  if (const auto found = recognise_folder(directory))
    throw Error(Exit::checkpoint, directory.string() + " " + found->what, found->help);
  refuse(directory.string(),
         "has neither model.safetensors nor pytorch_model.bin, nor an index of such files "
         "(model.safetensors.index.json, pytorch_model.bin.index.json)");
}

// An opened Hugging Face directory: its tensors under the plugin's names.
class StoredTensors {
 public:
  // `expected`: the tensors that it should have.
  StoredTensors(const fs::path& directory, const Pretrained& pretrained, const std::vector<TensorShape>& expected)
      : pretrained_(pretrained) {
    std::set<std::string> known;
    for (const TensorShape& t : expected) known.insert(t.name);
    for (const auto& [optional, other] : pretrained.tied) known.insert(optional);
    const TensorNames names(std::move(known), pretrained);
    const WeightFiles found = weight_files(directory);
    std::map<std::string, std::string> index = found.index;
    for (const std::string& name : found.names) {
      refuse_mistaken(directory / name, found.torch ? ModelFile::torch : ModelFile::safetensors, Exit::checkpoint);
      files_.push_back(std::make_unique<WeightsFile>(directory / name, found.torch));
      for (const StoredTensor& t : files_.back()->tensors()) {
        const auto listed = index.find(t.name);
        if (!index.empty() && (listed == index.end() || listed->second != name))
          problems_.push_back(fmt::format("{}: is in {}, but not according to the index", t.name, name));
        index.erase(t.name);
        if (!names.is_buffer(t)) add(names.of(t.name), {files_.back().get(), &t});
      }
    }
    for (const auto& [name, file] : index)
      problems_.push_back(fmt::format("{}: is not in {}, where the index says it is", name, file));
  }

  // Finds each expected tensor; nullptr for one that may be missing. Others are in `rest`.
  std::vector<const Stored*> match(const std::vector<TensorShape>& expected) {
    std::vector<const Stored*> out;
    for (const TensorShape& p : expected) {
      const auto found = tensors_.find(p.name);
      out.push_back(found == tensors_.end() ? nullptr : &found->second);
      if (found == tensors_.end() && p.optional) continue;
      if (found == tensors_.end()) {
        problems_.push_back(fmt::format("{} {}: is missing", p.name, shape_text(p.shape)));
        if (is_vocabulary(p.name) && tensors_.count(table_of(p.name)))
          advise("if the head is the embedding, set `tie_word_embeddings` to true in config.json");
        continue;
      }
      const StoredTensor& t = *found->second.tensor;
      if (t.shape != p.shape && is_vocabulary(p.name) && t.shape.size() == 2 && t.shape[1] == p.shape.back())
        advise(
            fmt::format("the vocabulary of the weights has {} rows: set `vocab_size` to that in config.json. Rows "
                        "without a token are padding, and do no harm",
                        t.shape[0]));
      if (t.shape != p.shape)
        problems_.push_back(
            fmt::format("{}: is {} in the file, {} in the model", p.name, shape_text(t.shape), shape_text(p.shape)));
      if (t.dtype != ENG_F32 && t.dtype != ENG_BF16 && t.dtype != ENG_F16)
        problems_.push_back(
            fmt::format("{}: holds {}; F32, BF16 and F16 are read", p.name, dtype_safetensors(t.dtype)));
      used_.insert(p.name);
    }
    return out;
  }

  // An optional tensor that is joined of several is missing as a whole, or not at all.
  void judge_parts(const Arranged& made, const std::vector<TensorShape>& expected,
                   const std::vector<const Stored*>& found) {
    const auto there = [&](const Arranged::Part& part) { return found[part.source] != nullptr; };
    if (std::none_of(made.parts.begin(), made.parts.end(), there)) return;
    for (const Arranged::Part& part : made.parts)
      if (const TensorShape& t = expected[part.source]; !there(part) && t.optional)
        problems_.push_back(fmt::format("{} {}: is missing", t.name, shape_text(t.shape)));
  }

  // A stored head that is tied to the embedding must equal it. Any other remaining tensor is an error.
  void judge_rest() {
    for (const auto& [name, stored] : tensors_) {
      if (used_.count(name)) continue;
      const auto other = tensors_.find(table_of(name));
      if (other == tensors_.end()) {
        problems_.push_back(fmt::format("{} {}: the model has no such tensor", name, shape_text(stored.tensor->shape)));
      } else if (!same(stored, other->second)) {
        problems_.push_back(fmt::format("{}: differs from {}, which this model uses in its place", name, other->first));
        advise("if the head is a matrix of its own, set `tie_word_embeddings` to false in config.json");
      }
    }
  }

  void raise(const fs::path& directory) const {
    if (problems_.empty()) return;
    const auto told =
        std::vector(problems_.begin(), problems_.begin() + ptrdiff_t(std::min(problems_.size(), kMostTold)));
    throw Error(Exit::checkpoint,
                fmt::format("{}: {} of its tensors do not fit the model:\n  {}{}", directory.string(), problems_.size(),
                            fmt::join(told, "\n  "), told.size() < problems_.size() ? "\n  ..." : ""),
                advice_.empty() ? "remove the keys of [model] other than `from`, or use another directory" : advice_);
  }

 private:
  // The tensor that an optional one must equal, as the head does an embedding; "" for others.
  std::string table_of(const std::string& name) const {
    for (const auto& [optional, other] : pretrained_.tied)
      if (optional == name) return other;
    return "";
  }
  bool is_vocabulary(const std::string& name) const {
    return std::any_of(pretrained_.tied.begin(), pretrained_.tied.end(),
                       [&](const auto& pair) { return pair.first == name || pair.second == name; });
  }
  void advise(const std::string& what) {
    if (advice_.empty()) advice_ = what;
  }

  void add(const std::string& name, const Stored& stored) {
    const auto [there, added] = tensors_.emplace(name, stored);
    if (added) return;
    const std::string &first = there->second.tensor->name, &second = stored.tensor->name;
    problems_.push_back(first == second ? name + ": appears twice"
                                        : fmt::format("{}: appears twice, as {} and {}", name, first, second));
  }

  static bool same(const Stored& a, const Stored& b) {
    if (a.tensor->dtype != b.tensor->dtype || a.tensor->shape != b.tensor->shape) return false;
    const uint64_t all = a.tensor->count(), size = dtype_size(a.tensor->dtype);
    std::vector<char> x(kTile * size), y(kTile * size);
    for (uint64_t first = 0, n = 0; first < all; first += n) {
      n = std::min(kTile, all - first);
      a.file->read(*a.tensor, first, n, x.data());
      b.file->read(*b.tensor, first, n, y.data());
      if (std::memcmp(x.data(), y.data(), n * size) != 0) return false;
    }
    return true;
  }

  const Pretrained& pretrained_;
  std::vector<std::unique_ptr<WeightsFile>> files_;
  std::map<std::string, Stored> tensors_;
  std::set<std::string> used_;
  std::vector<std::string> problems_;
  std::string advice_;  // for the first of them that an edit of config.json mends
};

}  // namespace

std::map<std::string, std::string> parse_weights_index(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where, 4);
  const Json& map = json.get("weight_map");
  if (!map.is_object()) refuse(where, "has no `weight_map`");
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map.members()) {
    if (!file.is_string() || !is_plain_name(file.text()))
      refuse(where, fmt::format("`{}` is in {}, which is not a plain file name", name, file.dump()));
    out[name] = file.text();
  }
  if (out.empty()) refuse(where, "`weight_map` is empty");
  return out;
}

static Arrangement arranged_for(const std::vector<TensorShare>& parameters, const Pretrained& pretrained,
                                const fs::path& directory) {
  std::vector<TensorShape> model;
  for (const TensorShare& p : parameters) model.push_back({p.name, p.shape, p.optional});
  return arrange(model, pretrained, directory.string());
}

std::map<std::string, int32_t> types_in_files(const fs::path& directory, const Pretrained& pretrained,
                                              const std::vector<TensorShare>& parameters) {
  const Arrangement arranged = arranged_for(parameters, pretrained, directory);
  StoredTensors source(directory, pretrained, arranged.files);
  const std::vector<const Stored*> found = source.match(arranged.files);
  std::map<std::string, int32_t> out;
  for (size_t k = 0; k < parameters.size(); ++k)
    for (const auto& part : arranged.from_files[k].parts) {
      if (!found[part.source]) continue;
      const int32_t type = found[part.source]->tensor->dtype;
      const auto [known, first] = out.emplace(parameters[k].name, type);
      if (!first && dtype_size(type) > dtype_size(known->second)) known->second = type;
    }
  return out;
}

void load_tensors(const fs::path& directory, const Pretrained& pretrained, const std::vector<TensorShare>& parameters,
                  const Fill& fill) {
  const Arrangement arranged = arranged_for(parameters, pretrained, directory);
  StoredTensors source(directory, pretrained, arranged.files);
  const std::vector<const Stored*> found = source.match(arranged.files);
  for (const Arranged& made : arranged.from_files) source.judge_parts(made, arranged.files, found);
  source.judge_rest();
  source.raise(directory);
  if (!fill) return;
  // In the order of the files. An optional tensor that they lack is not filled.
  const auto first_source = [&](size_t k) { return found[arranged.from_files[k].parts.front().source]; };
  std::vector<size_t> order;
  uint64_t most = 0;
  for (size_t k = 0; k < parameters.size(); ++k) {
    const Arranged& made = arranged.from_files[k];
    if (std::any_of(made.parts.begin(), made.parts.end(), [&](const auto& part) { return !found[part.source]; }))
      continue;
    order.push_back(k);
    most = std::max(most, gather_tile(made));
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Stored &x = *first_source(a), &y = *first_source(b);
    return std::pair(x.file->path(), x.tensor->begin) < std::pair(y.file->path(), y.tensor->begin);
  });
  std::vector<float> in(most), out(most);
  for (const size_t k : order) {
    const TensorShare& parameter = parameters[k];
    const Arranged& made = arranged.from_files[k];
    const ReadSource read = [&](size_t file, uint64_t first, uint64_t count, void* to) {
      const Stored& stored = *found[file];
      stored.file->read(*stored.tensor, first, count, in.data());
      convert(stored.tensor->dtype, in.data(), parameter.dtype, to, count);
    };
    parameter.each_range([&](const Range& r) {
      for (uint64_t at = 0, n = 0; at < r.count; at += n) {
        n = std::min(gather_tile(made), r.count - at);
        gather(made, r.first + at, n, dtype_size(parameter.dtype), read, out.data());
        fill(parameter, r.first + at, n, out.data());
      }
    });
  }
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/export.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "core/base/error.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/checkpoint/safetensors.hpp"
#include "session/file.hpp"
#include "session/huggingface/arrangement.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/json.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr const char* tokenizer_files[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "tokenizer.model",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "generation_config.json"};

// One file of weights: written from start to end, then read back.
struct Shard {
  std::string name;
  std::vector<StoredTensor> tensors;
  std::string header;
  std::unique_ptr<FileWriter> file = nullptr;
  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

// In the order of the model; a new file starts where the next tensor would exceed `limit`.
std::vector<Shard> divide(const std::vector<TensorShape>& tensors, int32_t dtype, uint64_t limit) {
  std::vector<Shard> out(1);
  uint64_t bytes = 0;
  for (const TensorShape& t : tensors) {
    const uint64_t size = element_count(t.shape, t.name) * dtype_size(dtype);
    if (bytes && bytes + size > limit) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().tensors.push_back({t.name, dtype, t.shape});
    bytes += size;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].name =
        out.size() == 1 ? "model.safetensors" : fmt::format("model-{:05d}-of-{:05d}.safetensors", i + 1, out.size());
    out[i].header = safetensors_header(out[i].tensors, {{"format", "pt"}});
  }
  return out;
}

std::string index_text(const std::vector<Shard>& shards) {
  std::map<std::string, std::string> map;
  uint64_t bytes = 0;
  for (const Shard& shard : shards) {
    bytes += shard.data_bytes();
    for (const StoredTensor& t : shard.tensors) map[t.name] = shard.name;
  }
  return Json::object({{"metadata", Json::object({{"total_size", bytes}})}, {"weight_map", map}}).dump(2) + "\n";
}

// Writes the tensors of the shards, which come in their order, and keeps the checksum of each.
class Writer {
 public:
  Writer(const fs::path& folder, std::vector<Shard>& shards, int32_t dtype) : shards_(shards), dtype_(dtype) {
    for (Shard& shard : shards) {
      shard.file = std::make_unique<FileWriter>(folder / shard.name, shard.header.size() + shard.data_bytes());
      shard.file->write(shard.header.data(), shard.header.size());
      for (const StoredTensor& t : shard.tensors) sums_[t.name].first = &shard;
    }
  }
  void write(const std::string& name, const void* data, uint64_t count) {
    auto& [shard, sum] = sums_.at(name);
    const uint64_t bytes = count * dtype_size(dtype_);
    sum.add(data, bytes);
    shard->file->write(data, bytes);
  }
  std::map<std::string, std::string> finish() {
    for (Shard& shard : shards_) shard.file->finish();
    std::map<std::string, std::string> out;
    for (const auto& [name, entry] : sums_) out[name] = entry.second.hex();
    return out;
  }

 private:
  std::vector<Shard>& shards_;
  int32_t dtype_;
  std::map<std::string, std::pair<Shard*, Checksum>> sums_;
};

// Elements of a parameter in the type of the export, with what is merged into it.
void convert_merged(const TensorSpec& t, uint64_t first, uint64_t count, const void* stored, const Merged& merged,
                    int32_t dtype, void* out) {
  if (!merged.has(t.name)) return convert(t.dtype, stored, dtype, out, count);
  std::vector<float> values(count);
  convert(t.dtype, stored, ENG_F32, values.data(), count);
  merged.add(t.name, first, values);
  convert(ENG_F32, values.data(), dtype, out, count);
}

// True if ranks that divide rows stored a part of each row.
bool has_columns(const ManifestTensor& t) {
  return std::any_of(t.ranges.begin(), t.ranges.end(), [](const StoredRange& s) { return s.columns.cut(); });
}

// A checkpoint delivers its tensors in its own order, which is that of the shards, and the elements of one in theirs if
// it has no columns.
void copy_tensors(const fs::path& checkpoint, const std::vector<TensorSpec>& parameters, const Merged& merged,
                  int32_t dtype, Writer& writer) {
  std::vector<char> memory;
  const Fill fill = [&](const TensorSpec& t, uint64_t first, uint64_t count, const void* host) {
    if (!t.exported) return;
    const uint64_t bytes = count * dtype_size(dtype);
    if (memory.size() < bytes) memory.resize(bytes);
    convert_merged(t, first, count, host, merged, dtype, memory.data());
    writer.write(t.name, memory.data(), count);
  };
  load_checkpoint(checkpoint, whole(parameters), fill, {}, kParameterRole);
}

// If the files have other tensors than the model, or the checkpoint has columns: each is gathered from the checkpoint,
// after all of this was checked.
void rearrange_tensors(const fs::path& checkpoint, const std::vector<TensorSpec>& parameters,
                       const std::vector<ManifestTensor>& exported, const Arrangement& arranged, const Merged& merged,
                       int32_t dtype, Writer& writer) {
  load_checkpoint(
      checkpoint, whole(parameters), [](auto&&...) {}, {}, kParameterRole);
  const OpenCheckpoint in(checkpoint);
  std::vector<char> stored, memory;
  const ReadSource read = [&](size_t source, uint64_t first, uint64_t count, void* to) {
    const ManifestTensor& t = exported[source];
    stored.resize(std::max<uint64_t>(stored.size(), count * dtype_size(t.dtype)));
    in.read(t, first, count, stored.data());
    convert_merged(t, first, count, stored.data(), merged, dtype, to);
  };
  for (size_t k = 0; k < arranged.files.size(); ++k) {
    const TensorShape& t = arranged.files[k];
    const uint64_t all = element_count(t.shape, t.name), most = gather_tile(arranged.from_model[k]);
    memory.resize(most * dtype_size(dtype));
    for (uint64_t first = 0, n = 0; first < all; first += n) {
      n = std::min(most, all - first);
      gather(arranged.from_model[k], first, n, dtype_size(dtype), read, memory.data());
      writer.write(t.name, memory.data(), n);
    }
  }
}

// Opens the written files like any reader, and compares every byte.
void verify(const fs::path& folder, const std::vector<Shard>& shards, const std::map<std::string, std::string>& sums) {
  std::vector<char> memory(8u << 20);
  for (const Shard& shard : shards) {
    const SafetensorsFile file(folder / shard.name);
    if (file.header_text() != shard.header) refuse(file.path().string(), "does not read back as it was written");
    for (const StoredTensor& t : file.header().tensors) {
      const uint64_t size = dtype_size(t.dtype), most = memory.size() / size;
      Checksum sum;
      for (uint64_t first = 0, n = 0; first < t.count(); first += n) {
        n = std::min(most, t.count() - first);
        file.read(t, first, n, memory.data());
        sum.add(memory.data(), n * size);
      }
      if (sum.hex() != sums.at(t.name))
        refuse(file.path().string(), fmt::format("tensor `{}` does not read back as it was written", t.name));
    }
  }
}

// A new, empty directory with a name that nobody uses, on the file system of `name`, with the usual permissions.
fs::path new_folder_beside(const fs::path& name) {
  make_directories(name.parent_path());
  std::string made = name.string() + ".XXXXXX";
  if (!::mkdtemp(made.data())) disk_error("create directory", name, errno);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(made.c_str(), 0777 & ~mask);
  return made;
}

// The absolute name of a new or empty directory, without a slash at its end.
fs::path target_name(const fs::path& to) {
  std::error_code none;
  if (fs::exists(to, none) && !(fs::is_directory(to, none) && fs::is_empty(to, none)))
    throw Error(Exit::usage, to.string() + " already exists", "give --to a new directory");
  const fs::path target = fs::absolute(to).lexically_normal();
  return target.has_filename() ? target : target.parent_path();
}

}  // namespace

Exported export_weights(const fs::path& checkpoint, const Config& config, const PluginSchema& plugin,
                        const fs::path& origin, const TokenizerSource& tokenizer, const fs::path& to, int32_t dtype,
                        uint64_t shard_bytes, const std::vector<Adapter>& merged) {
  const Section& model = config.section("model");
  if (pretrained_of(plugin).model_types.empty())
    throw Error(Exit::usage,
                fmt::format("plugin `{}` does not say how its config.json is written", model.string("plugin")),
                "it needs [provides.pretrained] in its description");
  std::error_code none;
  const fs::path name = target_name(to);
  std::vector<ManifestTensor> stored = read_manifest(checkpoint).tensors;
  std::erase_if(stored, [](const ManifestTensor& t) { return t.role != kParameterRole; });
  for (ManifestTensor& t : stored)  // what is merged is not written beside its map, too
    if (is_of_path(merged, t.name)) t.exported = false;
  std::vector<ManifestTensor> exported = stored;
  std::erase_if(exported, [](const ManifestTensor& t) { return !t.exported; });
  std::vector<TensorShape> shapes;
  for (const ManifestTensor& t : exported) shapes.push_back({t.name, t.shape});
  const Arrangement arranged = arrange(shapes, pretrained_of(plugin), checkpoint.string());
  std::vector<Shard> shards = divide(arranged.files, dtype, shard_bytes);
  Exported out{0, arranged.files.size(), shards.size(), stored.size() - exported.size(), 0, {}, {}};
  const fs::path temporary = new_folder_beside(name);
  try {
    Writer writer(temporary, shards, dtype);
    const std::vector<TensorSpec> parameters(stored.begin(), stored.end());
    const Merged paths(OpenCheckpoint(checkpoint), merged);
    if (arranged.plain() && std::none_of(stored.begin(), stored.end(), has_columns))
      copy_tensors(checkpoint, parameters, paths, dtype, writer);
    else
      rearrange_tensors(checkpoint, parameters, exported, arranged, paths, dtype, writer);
    const auto sums = writer.finish();
    Json before = Json::object();
    if (!origin.empty()) {
      before = read_config_json(origin / "config.json");
      for (const char* file : tokenizer_files)
        if (fs::is_regular_file(origin / file, none)) {
          fs::copy_file(origin / file, temporary / file);
          out.copied.push_back(file);
        }
    }
    if (origin.empty() || !has_tokenizer(origin))
      out.tokenizer = export_tokenizer(tokenizer, temporary);
    else
      complete_tokenizer_config(tokenizer, origin, temporary, out.copied);
    if (origin.empty() && !tokenizer.name.empty()) {  // otherwise transformers uses default ids
      before["bos_token_id"] = tokenizer.bos < 0 ? Json() : Json(tokenizer.bos);
      before["eos_token_id"] = tokenizer.eos < 0 ? Json() : Json(tokenizer.eos);
    }
    const char* type = dtype == ENG_F32 ? "float32" : dtype == ENG_BF16 ? "bfloat16" : "float16";
    const Json json = write_config_json(model, plugin.options, pretrained_of(plugin), type, before);
    write_text(temporary / "config.json", json.dump(2) + "\n");
    if (shards.size() > 1) write_text(temporary / "model.safetensors.index.json", index_text(shards));
    verify(temporary, shards, sums);
    sync_directory(temporary);
    rename_durably(temporary, name);
  } catch (...) {
    fs::remove_all(temporary, none);
    throw;
  }
  for (const Shard& shard : shards) out.bytes += shard.data_bytes();
  return out;
}

Exported export_adapter(const fs::path& checkpoint, const Config& config, const PluginSchema& plugin,
                        const fs::path& origin, const fs::path& to, int32_t dtype) {
  const fs::path name = target_name(to);
  std::vector<ManifestTensor> stored = read_manifest(checkpoint).tensors;
  std::erase_if(stored, [](const ManifestTensor& t) { return t.role != kParameterRole; });
  const std::vector<TensorSpec> parameters(stored.begin(), stored.end());
  std::vector<Adapter> adapters = adapters_of(config, parameters);
  if (adapters.empty())
    throw Error(Exit::usage, checkpoint.string() + " has no adapter: the run has no transform `lora`",
                "leave --format out to export the model");
  std::vector<TensorShape> model;
  std::map<std::string, const ManifestTensor*> by_name;
  for (const ManifestTensor& t : stored) {
    by_name[t.name] = &t;
    if (!is_of_path(adapters, t.name)) model.push_back({t.name, t.shape});
  }
  const Arrangement arranged = arrange(model, pretrained_of(plugin), checkpoint.string());
  place_in_files(adapters, model, arranged);
  const std::vector<PeftAdapter> made = peft_adapters(adapters);
  std::vector<TensorSpec> in_files = parameters;  // with what several of them are in
  for (size_t k = 0; k < arranged.files.size(); ++k)
    if (arranged.from_model[k].parts.size() > 1)
      in_files.push_back({arranged.files[k].name, kParameterRole, dtype, arranged.files[k].shape});
  std::vector<Adapter> written;
  Shard shard{"adapter_model.safetensors", {}, {}};
  for (const PeftAdapter& one : made) {
    const Adapter& a = written.emplace_back(one.adapter);
    need_peft_name(a);
    for (const std::string& name : a.parameters()) {
      std::vector<int64_t> shape = by_name.at(one.parts[0].map + name.substr(a.map.size()))->shape;
      if (a.rows) shape[0] = name == a.a() ? a.rank : a.rows;
      if (a.rows && name == a.b()) shape[1] = a.rank;
      shard.tensors.push_back({peft_name(a, name), dtype, shape});
    }
  }
  shard.header = safetensors_header(shard.tensors, {{"format", "pt"}});
  load_checkpoint(
      checkpoint, whole(parameters), [](auto&&...) {}, {}, kParameterRole);  // every byte is checked
  std::vector<Shard> shards;
  shards.push_back(std::move(shard));
  const Exported out{shards[0].data_bytes(), shards[0].tensors.size(), 1, 0, written.size(), {}, {}};
  const fs::path temporary = new_folder_beside(name);
  try {
    Writer writer(temporary, shards, dtype);
    const OpenCheckpoint in(checkpoint);
    const auto read = [&](const std::string& own) {
      const ManifestTensor& t = *by_name.at(own);
      const uint64_t count = element_count(t.shape, t.name);
      std::vector<char> values(count * dtype_size(t.dtype)), converted(count * dtype_size(dtype));
      in.read(t, 0, count, values.data());
      convert(t.dtype, values.data(), dtype, converted.data(), count);
      return converted;
    };
    for (const PeftAdapter& one : made)
      for (const std::string& name : one.adapter.parameters()) {
        const std::vector<char> values = peft_values(one, name, dtype_size(dtype), read);
        writer.write(peft_name(one.adapter, name), values.data(), values.size() / dtype_size(dtype));
      }
    const auto sums = writer.finish();
    const std::string base = origin.empty() ? "" : fs::absolute(origin).lexically_normal().string();
    write_text(temporary / "adapter_config.json", peft_config(written, in_files, base).dump(2) + "\n");
    verify(temporary, shards, sums);
    sync_directory(temporary);
    rename_durably(temporary, name);
  } catch (...) {
    std::error_code none;
    fs::remove_all(temporary, none);
    throw;
  }
  return out;
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
// engine ckpt.
#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <map>

#include "core/base/error.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/data/tokenizer.hpp"
#include "session/dtypes.hpp"
#include "session/file.hpp"
#include "session/gguf/export.hpp"
#include "session/huggingface/export.hpp"
#include "session/json.hpp"
#include "session/objects.hpp"
#include "session/report/progress.hpp"
#include "session/run/run.hpp"
#include "session/run/run_dir.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

bool is_checkpoint(const fs::path& directory) {
  return fs::exists(directory / "manifest.json") ||
         (fs::is_directory(directory) && checkpoint_step(fs::absolute(directory)));
}

// The folder with the checkpoints of a run, or the folder itself.
fs::path folder(const fs::path& directory) {
  const fs::path inside = own_folder(directory, checkpoints_folder);
  return fs::is_directory(inside) ? inside : directory;
}

// One checkpoint, a folder of them, or those of a run.
std::vector<CheckpointRow> rows_of(const fs::path& directory, bool every_byte) {
  std::vector<CheckpointRow> rows;
  if (is_checkpoint(directory))
    rows.push_back(inspect_checkpoint(directory, every_byte));
  else
    rows = list_checkpoints(folder(directory), every_byte);
  if (rows.empty()) refuse(directory.string(), "there is no checkpoint here");
  return rows;
}

struct ExportFlags {
  std::string target, to, dtype = "f32", format;
  bool merge = false;
  uint64_t shard_bytes = 5'000'000'000;
};

// The tokenizer of [data]. If it can no longer be read: none, and a warning.
TokenizerSource data_tokenizer(Registry& registry, const Config& config) {
  const Section& data = config.section("data");
  if (!data.has("tokenizer")) return {};
  const std::string& name = data.string("tokenizer");
  try {
    const Tokenizer tokenizer(registry, name, config.base_dir());
    const eng_tokenizer_info& info = tokenizer.info();
    const auto text = [&](int32_t id) { return id < 0 ? std::string() : tokenizer.decode(id); };
    return {name == "bytes" ? name : fs::absolute(config.base_dir() / name).lexically_normal().string(), info.bos,
            info.eos, text(info.bos), text(info.eos)};
  } catch (const Error& error) {
    print_err("warning: the tokenizer of the run is not exported: {}\n", error.what());
    return {};
  }
}

// The paths of the adapter that are added to the weights of their maps; none without --merge.
std::vector<Adapter> merged_adapters(const Config& config, const fs::path& checkpoint, const ExportFlags& flags) {
  if (!flags.merge) return {};
  std::vector<TensorSpec> parameters;
  for (const ManifestTensor& t : read_manifest(checkpoint).tensors)
    if (t.role == kParameterRole) parameters.push_back(t);
  std::vector<Adapter> merged = adapters_of(config, parameters);
  if (merged.empty())
    throw Error(Exit::usage, flags.target + " has no adapter to merge: the run has no transform `lora`",
                "leave --merge out");
  return merged;
}

void say_merged(const std::vector<Adapter>& merged, uint64_t left) {
  if (!merged.empty())
    print_out("merged the paths of {} maps into their weights\n", merged.size());
  else if (left)
    print_err("note: {} tensors are left out: a transform says that they are for checkpoints alone\n", left);
}

void export_to_gguf(Registry& registry, const Config& config, const PluginSchema& plugin, const fs::path& origin,
                    const fs::path& checkpoint, const ExportFlags& flags) {
  const GgufType type = flags.dtype == "f32"    ? GgufType::f32
                        : flags.dtype == "bf16" ? GgufType::bf16
                        : flags.dtype == "f16"  ? GgufType::f16
                                                : GgufType::q8_0;
  const std::vector<Adapter> merged = merged_adapters(config, checkpoint, flags);
  const ExportedGguf out =
      export_gguf(checkpoint, config, plugin, gguf_tokenizer(registry, config, origin), flags.to, type, merged);
  print_out("wrote {}: {} tensors of {}, {} bytes, read back and compared\n", flags.to, out.tensors, flags.dtype,
            out.bytes);
  say_merged(merged, out.left);
  if (out.wider)
    print_err("note: {} matrices are f16: q8_0 needs rows of a multiple of {} elements\n", out.wider, gguf_block);
  for (const std::string& note : out.notes) print_err("note: {}\n", note);
}

void export_run(const Common& common, const ExportFlags& flags) {
  const std::string format = !flags.format.empty()                       ? flags.format
                             : fs::path(flags.to).extension() == ".gguf" ? "gguf"
                                                                         : "hf";
  if (flags.dtype == "q8_0" && format != "gguf")
    throw Error(Exit::usage, "q8_0 is a type of GGUF files alone", "give --to FILE.gguf, or another --type");
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit is a write error, reported like a full disk
  const bool one = weights_kind(flags.target) == WeightsKind::checkpoint;
  const fs::path run =
      one ? fs::absolute(flags.target).lexically_normal().parent_path().parent_path() : fs::path(flags.target);
  const auto [registry, config] = load_config(common, run, {});
  const Provided* plugin = registry->find(ENG_MODEL_KIND, config.section("model").string("plugin"));
  const fs::path checkpoint = find_weights(flags.target);
  const int32_t dtype = flags.dtype == "f32" ? ENG_F32 : flags.dtype == "bf16" ? ENG_BF16 : ENG_F16;
  const fs::path source = weights_source(config),
                 origin = weights_kind(source) == WeightsKind::hugging_face ? source : fs::path();
  if (format == "gguf") return export_to_gguf(*registry, config, plugin->schema, origin, checkpoint, flags);
  if (format == "peft") {
    if (flags.merge)
      throw Error(Exit::usage, "--merge writes a whole model, --format peft the adapter alone",
                  "leave one of them out");
    const Exported out = export_adapter(checkpoint, config, plugin->schema, origin, flags.to, dtype);
    print_out("wrote {}: an adapter of {} maps, {} tensors of {}, {} bytes, read back and compared\n", flags.to,
              out.maps, out.tensors, flags.dtype, out.bytes);
    return;
  }
  const std::vector<Adapter> merged = merged_adapters(config, checkpoint, flags);
  const Exported out = export_weights(checkpoint, config, plugin->schema, origin, data_tokenizer(*registry, config),
                                      flags.to, dtype, flags.shard_bytes, merged);
  print_out("wrote {}: {} tensors of {}, {} bytes in {} file{}, read back and compared\n", flags.to, out.tensors,
            flags.dtype, out.bytes, out.files, out.files == 1 ? "" : "s");
  say_merged(merged, out.left);
  if (!out.copied.empty()) print_out("copied {}\n", fmt::join(out.copied, ", "));
  if (!out.tokenizer.empty()) print_out("tokenizer of the run: {}\n", fmt::join(out.tokenizer, ", "));
}

// The given checkpoint, or the newest good one, after every byte was checked.
fs::path good_checkpoint(const fs::path& directory) {
  if (!is_checkpoint(directory)) {
    const Found found = newest_checkpoint(folder(directory));
    if (!found.path) refuse(directory.string(), "there is no undamaged checkpoint here");
    return *found.path;
  }
  const CheckpointRow row = inspect_checkpoint(directory, true);
  if (!row.problem.empty()) throw Error(Exit::checkpoint, row.problem);
  return directory;
}

bool converts(int32_t dtype) {
  return dtype == ENG_F32 || dtype == ENG_BF16 || dtype == ENG_F16;
}

// The differences between the elements of two tensors.
struct Distance {
  uint64_t elements = 0, different = 0;
  double most = 0, relative = 0;

  void add(int32_t a_type, const void* a, int32_t b_type, const void* b, uint64_t count) {
    elements += count;
    const uint64_t size = dtype_size(a_type);
    if (a_type == b_type && std::memcmp(a, b, count * size) == 0) return;
    if (!converts(a_type) || !converts(b_type)) {  // these can only be equal or different
      for (uint64_t i = 0; i < count; ++i)
        different +=
            std::memcmp(static_cast<const char*>(a) + i * size, static_cast<const char*>(b) + i * size, size) != 0;
      most = relative = INFINITY;
      return;
    }
    x_.resize(count), y_.resize(count);
    convert(a_type, a, ENG_F32, x_.data(), count);
    convert(b_type, b, ENG_F32, y_.data(), count);
    for (uint64_t i = 0; i < count; ++i) {
      if (std::memcmp(&x_[i], &y_[i], sizeof(float)) == 0) continue;
      const double x = x_[i], y = y_[i], far = std::abs(x - y);
      ++different;
      // +0 and -0 differ with distance 0; a value that is not finite has infinite distance from any other.
      most = std::max(most, std::isfinite(far) ? far : INFINITY);
      if (far != 0)
        relative = std::max(relative, std::isfinite(far) ? far / std::max(std::abs(x), std::abs(y)) : INFINITY);
    }
  }

 private:
  std::vector<float> x_, y_;
};

// Prints a line for each tensor; true if all are equal.
bool diff(const fs::path& a, const fs::path& b) {
  const OpenCheckpoint left(good_checkpoint(a)), right(good_checkpoint(b));
  std::map<std::string, const ManifestTensor*> rest;  // of b
  const auto name = [](const TensorSpec& t) { return t.role == kParameterRole ? t.name : t.name + " " + t.role; };
  const auto type = [](const TensorSpec& t) {
    return fmt::format("{} [{}]", dtype_safetensors(t.dtype), fmt::join(t.shape, ", "));
  };
  for (const auto& t : right.manifest.tensors) rest[name(t)] = &t;
  size_t equal = 0, all = 0;
  constexpr uint64_t tile = 1u << 20;  // elements
  std::vector<char> x, y;
  for (const auto& t : left.manifest.tensors) {
    ++all;
    const auto found = rest.find(name(t));
    if (found == rest.end()) {
      print_out("{}  only in {}\n", name(t), a.string());
      continue;
    }
    const ManifestTensor& other = *found->second;
    rest.erase(found);
    if (t.shape != other.shape || (t.dtype != other.dtype && !(converts(t.dtype) && converts(other.dtype)))) {
      print_out("{}  {} and {}\n", name(t), type(t), type(other));
      continue;
    }
    Distance d;
    const uint64_t elements = element_count(t.shape, t.name);
    for (uint64_t first = 0; first < elements; first += tile) {
      const uint64_t n = std::min(tile, elements - first);
      x.resize(n * dtype_size(t.dtype)), y.resize(n * dtype_size(other.dtype));
      left.read(t, first, n, x.data());
      right.read(other, first, n, y.data());
      d.add(t.dtype, x.data(), other.dtype, y.data(), n);
    }
    equal += d.different == 0;
    if (d.different)
      print_out("{}  {} of {} elements differ, max |a-b| {:.3g}, max relative {:.3g}\n", name(t), d.different,
                d.elements, d.most, d.relative);
    else
      print_out("{}  equal{}\n", name(t), t.dtype == other.dtype ? "" : ", as " + type(t) + " and " + type(other));
  }
  for (const auto& [missing, t] : rest) print_out("{}  only in {}\n", missing, b.string());
  all += rest.size();
  print_out("{} tensors: {} equal, {} not\n", all, equal, all - equal);
  return equal == all;
}

uint64_t bytes_of(const fs::path& directory) {
  uint64_t bytes = 0;
  std::error_code gone;
  for (fs::recursive_directory_iterator it(directory, gone), end; !gone && it != end; it.increment(gone))
    if (it->is_regular_file(gone)) bytes += it->file_size(gone);
  return bytes;
}

// Removes what a run no longer needs; `keep` 0: complete checkpoints stay.
void collect(const fs::path& run, int64_t keep, bool dry) {
  if (!RunDir::is_run(run)) throw Error(Exit::usage, run.string() + " is not a run", "name the directory of a run");
  std::optional<RunDir> lock;  // no other process may write here
  if (!dry) lock.emplace(RunDir::open(run));
  const fs::path checkpoints = own_folder(run, checkpoints_folder);
  const Found found = newest_checkpoint(checkpoints);
  if (!found.path && !found.refused.empty())
    throw Error(Exit::checkpoint, "no checkpoint of " + run.string() + " is undamaged, so nothing is removed",
                "check them with:  engine ckpt verify " + run.string());
  std::vector<std::pair<fs::path, const char*>> garbage;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(temporary_prefix)) garbage.emplace_back(entry.path(), "never completed");
    if (name.starts_with(aside_prefix)) garbage.emplace_back(entry.path(), "set aside");
  }
  auto rows = list_checkpoints(checkpoints);
  std::erase_if(rows, [](const CheckpointRow& r) { return !r.problem.empty(); });
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < rows.size(); ++i)
    if (rows[i].path != found.path && !rows[i].best) garbage.emplace_back(rows[i].path, "old");
  std::sort(garbage.begin(), garbage.end());
  uint64_t freed = 0;
  for (const auto& [path, why] : garbage) {
    const uint64_t bytes = bytes_of(path);
    if (!dry)
      if (const std::error_code error = remove_checkpoint(path)) disk_error("remove", path, error.value());
    freed += bytes;
    print_out("{} {}  {}  {}\n", dry ? "would remove" : "removed", path.filename().string(), size_text(bytes), why);
  }
  print_out("{} {}{}\n", dry ? "would free" : "freed", size_text(freed),
            found.path ? "; the newest undamaged checkpoint is " + found.path->filename().string() : "");
}

}  // namespace

void add_ckpt(CLI::App& app, Common& common) {
  auto* command =
      app.add_subcommand("ckpt", "checkpoints of a run: list, verify, compare, clean up, export, bring from a store");
  command->require_subcommand(1);
  auto target = std::make_shared<std::string>();
  auto* ls = command->add_subcommand("ls", "list them");
  ls->add_option("run", *target, "a run, a folder of checkpoints, one checkpoint, or s3://bucket/prefix/RUN")
      ->required();
  ls->callback([target] {
    is_object_address(*target) ? list_store(*target) : put_out(checkpoint_table(rows_of(*target, false)));
  });
  add_ckpt_get(*command);
  auto flags = std::make_shared<ExportFlags>();
  auto* out = command->add_subcommand("export", "write the weights for transformers, PEFT or llama.cpp");
  out->add_option("run", flags->target, "a run, or one of its checkpoints")->required();
  out->add_option("--to", flags->to, "the directory to write, new or empty; or a new FILE.gguf")->required();
  out->add_option("--dtype,--type", flags->dtype, "element type: f32 (default), bf16, f16; of a GGUF file also q8_0")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "q8_0"}));
  out->add_option("--format", flags->format,
                  "hf: the model, for transformers; gguf: for llama.cpp (default if --to ends in .gguf); peft: the "
                  "adapter that the transform lora trained")
      ->check(CLI::IsMember({"hf", "peft", "gguf"}));
  out->add_flag("--merge", flags->merge, "add the adapter to the weights of its maps");
  out->add_option("--shard-bytes", flags->shard_bytes, "size limit of a file of weights; 5 GB by default")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  out->callback([&common, flags] { export_run(common, *flags); });
  auto* check = command->add_subcommand("verify", "read and check every byte");
  check->add_option("directory", *target, "a run, a folder of checkpoints, or one checkpoint")->required();
  check->callback([&common, target] {
    for (const CheckpointRow& v : rows_of(*target, true)) {
      print_out("{}  {}\n", v.path.string(), v.problem.empty() ? "ok" : v.problem);
      if (!v.problem.empty()) common.exit = static_cast<int>(Exit::checkpoint);
    }
  });
  auto other = std::make_shared<std::string>();
  auto* compare =
      command->add_subcommand("diff", "compare two checkpoints, tensor by tensor; exit code 9 if they differ");
  compare->add_option("a", *target, "a run, or one of its checkpoints")->required();
  compare->add_option("b", *other, "another run or checkpoint")->required();
  compare->callback([&common, target, other] {
    if (!diff(*target, *other)) common.exit = static_cast<int>(Exit::checkpoint);
  });
  auto keep = std::make_shared<int64_t>(0);
  auto dry = std::make_shared<bool>(false);
  auto* gc = command->add_subcommand("gc", "remove what was set aside or never completed, and old checkpoints");
  gc->add_option("run", *target, "a run directory")->required();
  gc->add_option("--keep", *keep, "number of newest complete checkpoints to keep; all if not given")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  gc->add_flag("--dry-run", *dry, "only print what would be removed");
  gc->callback([target, keep, dry] { collect(*target, *keep, *dry); });
}

}  // namespace eng

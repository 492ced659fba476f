// SPDX-License-Identifier: Apache-2.0
// engine ckpt.
#include <fmt/format.h>

#include <csignal>

#include "core/base/error.hpp"
#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/file.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/export.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// Every byte of one checkpoint, of a folder of them, or of a run.
std::vector<CheckpointRow> verified(const fs::path& directory) {
  std::vector<CheckpointRow> rows;
  if (fs::exists(directory / "manifest.json") || checkpoint_step(fs::absolute(directory)))
    rows.push_back(inspect_checkpoint(directory, true));
  else
    rows = list_checkpoints(fs::is_directory(directory / "checkpoints") ? directory / "checkpoints" : directory, true);
  if (rows.empty()) refuse(directory.string(), "there is no checkpoint here");
  return rows;
}

struct ExportFlags {
  std::string target, to, dtype = "f32";
  uint64_t shard_bytes = 5'000'000'000;
};

void export_run(const Common& common, const ExportFlags& flags) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write, told like a full disk
  const bool one = weights_kind(flags.target) == WeightsKind::checkpoint;
  const fs::path run =
      one ? fs::absolute(flags.target).lexically_normal().parent_path().parent_path() : fs::path(flags.target);
  const auto [registry, config] = load_config(common, run, {});
  const Provided* plugin = registry->find(ENG_MODEL_KIND, config.section("model").string("plugin"));
  const fs::path checkpoint = find_weights(flags.target);
  const int32_t dtype = flags.dtype == "f32" ? ENG_F32 : flags.dtype == "bf16" ? ENG_BF16 : ENG_F16;
  const Exported out = export_weights(checkpoint, config, plugin->schema, flags.to, dtype, flags.shard_bytes);
  fmt::print("wrote {}: {} tensors of {}, {} bytes in {} file{}, read back and compared\n", flags.to, out.tensors,
             flags.dtype, out.bytes, out.files, out.files == 1 ? "" : "s");
  if (!out.copied.empty()) fmt::print("copied {}\n", fmt::join(out.copied, ", "));
}

}  // namespace

std::string checkpoint_table(const std::filesystem::path& run) {
  std::string text;
  for (const CheckpointRow& r : list_checkpoints(run / "checkpoints"))
    text +=
        fmt::format("{}  {:>10.1f} MiB  {:>5} tensors  {}\n", r.path.filename().string(),
                    static_cast<double>(r.bytes) / (1 << 20), r.tensors, r.problem.empty() ? "complete" : r.problem);
  return text;
}

// The newest good checkpoint; each one that is passed over is told.
Found newest_checkpoint(const std::filesystem::path& checkpoints) {
  Found found = find_latest(checkpoints);
  for (const CheckpointRow& r : found.refused)
    fmt::print(stderr, "warning: {} is not used: {}\n", r.path.string(), r.problem);
  return found;
}

void add_ckpt(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("ckpt", "checkpoints of a run: list, verify, export");
  command->require_subcommand(1);
  auto target = std::make_shared<std::string>();
  auto* ls = command->add_subcommand("ls", "list them");
  ls->add_option("run", *target, "a run directory")->required();
  ls->callback([target] { fmt::print("{}", checkpoint_table(*target)); });
  auto flags = std::make_shared<ExportFlags>();
  auto* out = command->add_subcommand("export", "write the weights as a directory that transformers loads");
  out->add_option("run", flags->target, "a run, or one of its checkpoints")->required();
  out->add_option("--to", flags->to, "the directory to write: new or empty")->required();
  out->add_option("--dtype", flags->dtype, "element type: f32 (default), bf16, f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  out->add_option("--shard-bytes", flags->shard_bytes, "largest file of weights; 5 GB by default")
      ->check(CLI::PositiveNumber);
  out->callback([&common, flags] { export_run(common, *flags); });
  auto* check = command->add_subcommand("verify", "read and check every byte");
  check->add_option("directory", *target, "a run, a folder of checkpoints, or one checkpoint")->required();
  check->callback([&common, target] {
    for (const CheckpointRow& v : verified(*target)) {
      fmt::print("{}  {}\n", v.path.string(), v.problem.empty() ? "ok" : v.problem);
      if (!v.problem.empty()) common.exit = static_cast<int>(Exit::checkpoint);
    }
  });
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
// engine ckpt.
#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/file.hpp"
#include "tools/engine/command.hpp"

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
  auto* command = app.add_subcommand("ckpt", "checkpoints of a run");
  command->require_subcommand(1);
  auto target = std::make_shared<std::string>();
  auto* ls = command->add_subcommand("ls", "list them");
  ls->add_option("run", *target, "a run directory")->required();
  ls->callback([target] { fmt::print("{}", checkpoint_table(*target)); });
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

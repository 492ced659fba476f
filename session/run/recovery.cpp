// SPDX-License-Identifier: Apache-2.0
#include "session/run/recovery.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "session/checkpoint/memory_copies.hpp"
#include "session/clock.hpp"

namespace eng {

std::filesystem::path copies_of(const Config& config, const std::filesystem::path& run, int64_t attempt) {
  const Section& checkpoint = config.section("checkpoint");
  if (!checkpoint.integer("memory_every") || run.empty()) return {};
  return copies_folder(checkpoint.string("memory_path"), run, attempt);
}

void recover(const Config& config, Member& member, const RunPlace& place, OpeningListener& listener) {
  if (!config.section("checkpoint").integer("memory_every")) return;
  const std::filesystem::path run = member.from_first(place.dir ? place.dir->path().string() : "");
  if (run.empty()) return;
  const auto began = SteadyClock::now();
  const std::string before = member.from_first(place.dir ? std::to_string(place.dir->attempt() - 1) : "");
  const std::filesystem::path folder = copies_of(config, run, std::strtoll(before.c_str(), nullptr, 10));
  const Peers peers{member.rank(), member.size(), member.exchange(), config.section("comm").number("timeout")};
  const bool first = !member.communicator() || member.communicator()->world().local_rank == 0;
  const std::string newest = peers.lead([&] {
    int64_t step = -1;
    for (const CheckpointRow& row : list_checkpoints(place.dir->checkpoints().inside()))
      if (row.problem.empty()) step = std::max(step, row.step);
    return std::to_string(step);
  });
  const int64_t step = newest_in_memory(folder, std::strtoll(newest.c_str(), nullptr, 10), peers, first);
  if (step < 0) return;
  const std::string name = checkpoint_name(step);
  try {
    save_from_memory(folder, step, run / checkpoints_folder, peers, first);
    if (member.first())
      listener.note(
          fmt::format("{} was only in memory ({}); it was saved in {:.1f}s", name, folder.string(), since(began)));
  } catch (const Error& e) {
    if (e.exit() != Exit::checkpoint) throw;
    if (member.first()) listener.note(fmt::format("{} in memory is passed over: {}", name, e.what()));
  }
}

}  // namespace eng

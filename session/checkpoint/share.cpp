// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/share.hpp"

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"
#include "session/clock.hpp"
#include "session/config/failure.hpp"
#include "session/held_folder.hpp"
#include "session/json.hpp"
#include "session/ranks/common_error.hpp"

namespace eng {
namespace {

std::string failed(int exit, const std::string& what, const std::string& help) {
  return "-" + Json::array({exit, what, help}).dump(-1, true);
}

// Does it. An error names the folders that this process holds now: elsewhere and later their descriptors say nothing.
std::string done(const Peers::Work& work) {
  try {
    return work();
  } catch (const CommonError&) {
    throw;
  } catch (const Error& e) {
    throw Error(e.exit(), name_held(e.what()), e.help());
  }
}

}  // namespace

std::vector<std::string> Peers::meet(const std::string& mine, const std::string& waits_for) const {
  const auto began = SteadyClock::now();
  try {
    return exchange(mine);
  } catch (const Error& e) {
    // An exchange that failed earlier did so for another reason: a rank ended.
    const bool late = timeout > 0 && since(began) >= timeout;
    if (waits_for.empty() || !late || e.exit() != Exit::communication) throw;
    throw Error(
        Exit::communication, fmt::format("{}: {}", waits_for, e.what()),
        fmt::format("raise comm.timeout ({:g} s) above the time that this takes, or look at the disk", timeout));
  }
}

std::vector<std::string> Peers::agree(const std::string& waits_for, const Work& work) const {
  if (size == 1) return {done(work)};
  std::string mine;
  try {
    mine = "+" + done(work);
  } catch (const Error& e) {
    mine = failed(static_cast<int>(e.exit()), e.what(), e.help());
  } catch (const std::exception&) {
    const Failure why = failure(std::current_exception());
    mine = failed(why.exit, why.text, why.help);
  }
  std::vector<std::string> all = meet(mine, waits_for);
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].starts_with('-')) {
      all[r].erase(0, 1);
      continue;
    }
    const Json e = Json::parse(all[r].substr(1));
    throw CommonError(static_cast<Exit>(e[0].integer()), fmt::format("rank {}: {}", r, e[1].text()), e[2].text());
  }
  return all;
}

std::string Peers::lead(const std::string& waits_for, const Work& work) const {
  return agree(waits_for, [&] { return rank == 0 ? work() : std::string(); })[0];
}

std::vector<TensorShare> whole(const std::vector<TensorSpec>& tensors, const Peers& peers) {
  std::vector<TensorShare> out;
  for (const TensorSpec& t : tensors) out.push_back({t, {{0, element_count(t.shape, t.name)}}, peers.size, peers.rank});
  return out;
}

std::vector<std::vector<Range>> written_ranges(const std::vector<TensorShare>& tensors) {
  // The bytes that several ranks hold alike form one line, tensor after tensor, which is cut into equal parts.
  std::map<std::pair<uint32_t, bool>, uint64_t> line, at;  // by the number of copies, and whether they are divided
  const auto sort = [](const TensorShare& t) { return std::pair(t.copies, t.divided); };
  for (const TensorShare& t : tensors)
    for (const Range& r : t.ranges) line[sort(t)] += r.count * dtype_size(t.dtype);
  std::vector<std::vector<Range>> out;
  for (const TensorShare& t : tensors) {
    auto& mine = out.emplace_back();
    const uint64_t size = dtype_size(t.dtype);
    for (const Range& r : t.ranges) {
      uint64_t& begin = at[sort(t)];
      // The first element of the range that starts in part `k`.
      const auto cut = [&](uint64_t k) {
        const uint64_t part = line[sort(t)] / t.copies * k + line[sort(t)] % t.copies * k / t.copies;
        return part <= begin ? 0 : std::min((part - begin + size - 1) / size, r.count);
      };
      const uint64_t first = cut(t.copy), last = cut(t.copy + 1);
      if (last > first) mine.push_back({r.first + first, last - first});
      begin += r.count * size;
    }
  }
  return out;
}

uint64_t snapshot_bytes(const std::vector<TensorShare>& tensors) {
  const auto ranges = written_ranges(tensors);
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (const Range& r : ranges[i]) bytes += r.count * dtype_size(tensors[i].dtype);
  return bytes;
}

}  // namespace eng

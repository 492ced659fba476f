// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/layout.hpp"

#include <fmt/format.h>

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"

namespace eng {

std::string part_file(const std::string& role, uint32_t rank) {
  return fmt::format("{}-{:05d}.safetensors", role == kParameterRole ? "model" : "optim", rank);
}

StoredTensor stored_as(const TensorSpec& t, const Range& r, const Columns& cut) {
  const uint64_t all = element_count(t.shape, t.name);
  StoredTensor out{t.role == kParameterRole ? t.name : t.name + "." + t.role, t.dtype, {}};
  if (r.count == all && !cut.cut()) {
    out.shape = t.shape;
    return out;
  }
  if (cut.cut()) out.name += fmt::format("[:,{}:{}]", cut.part * cut.run, (cut.part + 1) * cut.run);
  if (cut.cut() && r.count == all / cut.parts) {
    out.shape = {int64_t(r.count / cut.run), int64_t(cut.run)};
  } else {
    out.name += fmt::format("[{}:{}]", r.first, r.first + r.count);
    out.shape = {int64_t(r.count)};
  }
  return out;
}

Layout lay_out(const std::vector<TensorShare>& tensors, uint32_t rank) {
  Layout out;
  const auto ranges = written_ranges(tensors);
  for (const bool states : {false, true}) {
    const std::string file = part_file(states ? "" : kParameterRole, rank);
    std::vector<StoredTensor> stored;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorShare& t = tensors[i];
      if ((t.role != kParameterRole) != states) continue;
      const bool empty = element_count(t.shape, t.name) == 0 && rank == 0;
      ManifestTensor& entry = out.manifest.tensors.emplace_back(ManifestTensor{t, {}});
      const std::vector<Range> mine = empty ? std::vector<Range>{{0, 0}} : ranges[i];
      entry.ranges.reserve(mine.size());
      for (const Range& r : mine) {
        stored.push_back(stored_as(t, r, t.columns));
        entry.ranges.push_back({r, file, stored.back().name, "", t.columns});
      }
    }
    if (stored.empty()) continue;
    const std::string& header = out.headers.emplace_back(safetensors_header(stored, {{"format", "pt"}}));
    out.manifest.files.push_back({file, header.size() + stored.back().end, Checksum::of(header)});
  }
  return out;
}

void read_part(const Read& read, const TensorSpec& t, const Columns& columns, const Range& own, char* to) {
  columns.pieces(own, [&](uint64_t at, const Range& piece) {
    read(t, piece.first, piece.count, to + (at - own.first) * dtype_size(t.dtype));
  });
}

void number_copies(std::vector<TensorShare>& tensors, const Peers& peers) {
  std::map<std::pair<uint32_t, bool>, std::string> held;  // by the number of copies, and whether they are divided
  for (TensorShare& t : tensors)
    if (t.copies == peers.size) {
      t.copy = peers.rank;
    } else if (t.copies > 1) {
      std::string& text = held[{t.copies, t.divided}];
      text += fmt::format("{} {}\n", t.name, t.columns.part);
      for (const Range& r : t.ranges) text += fmt::format("{} {}\n", r.first, r.count);
    }
  for (const auto& [sort, text] : held) {
    const std::string mine = Checksum::of(text);
    const auto all = peers.agree([&] { return mine; });
    const auto before = static_cast<uint32_t>(std::count(all.begin(), all.begin() + peers.rank, mine));
    for (TensorShare& t : tensors)
      if (std::pair(t.copies, t.divided) == sort) t.copy = before;
  }
}

}  // namespace eng

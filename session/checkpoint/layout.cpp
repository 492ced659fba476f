// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/layout.hpp"

#include <fmt/format.h>

#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"

namespace eng {

Layout lay_out(const std::vector<TensorShare>& tensors, uint32_t rank) {
  Layout out;
  const auto ranges = written_ranges(tensors);
  for (const bool states : {false, true}) {
    const std::string file = fmt::format("{}-{:05d}.safetensors", states ? "optim" : "model", rank);
    std::vector<StoredTensor> stored;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorShare& t = tensors[i];
      if ((t.role != kParameterRole) != states) continue;
      const std::string name = states ? t.name + "." + t.role : t.name;
      const uint64_t all = element_count(t.shape, t.name);
      ManifestTensor& entry = out.manifest.tensors.emplace_back(ManifestTensor{t, {}});
      for (const Range& r : all == 0 && rank == 0 ? std::vector<Range>{{0, 0}} : ranges[i]) {
        const Columns& cut = t.columns;
        std::string part = name;
        if (cut.cut()) part += fmt::format("[:,{}:{}]", cut.part * cut.run, (cut.part + 1) * cut.run);
        if (r.count == all && !cut.cut())
          stored.push_back({name, t.dtype, t.shape});
        else if (cut.cut() && r.count == all / cut.parts)
          stored.push_back({part, t.dtype, {int64_t(r.count / cut.run), int64_t(cut.run)}});
        else
          stored.push_back({fmt::format("{}[{}:{}]", part, r.first, r.first + r.count), t.dtype, {int64_t(r.count)}});
        entry.ranges.push_back({r, file, stored.back().name, "", cut});
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

// SPDX-License-Identifier: Apache-2.0
// manifest.json: what a checkpoint contains, where each element is stored, and checksums of all bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/range.hpp"
#include "session/checksum.hpp"

namespace eng {

// A logical tensor.
struct TensorSpec {
  std::string name;
  std::string role;  // "parameter", "policy", or the optimizer state's name
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  uint32_t id = 0;       // its number in the plan of whoever lists it; not stored
  bool exported = true;  // with the weights as a Hugging Face directory
};

// Part `part` of a tensor whose rows are cut into `parts` equal pieces of `run` elements. Its elements are counted
// without those between: element e is element e / run * parts * run + part * run + e % run of the tensor.
struct Columns {
  uint64_t run = 0, part = 0, parts = 1;  // parts 1: all of it, counted as in the tensor
  bool cut() const { return parts > 1; }
  uint64_t stride() const { return parts * run; }
  bool operator==(const Columns&) const = default;
  // Calls use(element of the part, range of the tensor) for each piece of a range of the part.
  template <class Use>
  void pieces(const Range& own, Use use) const {
    if (!cut()) return use(own.first, own);
    for (uint64_t e = own.first, n = 0; e < own.end(); e += n) {
      n = std::min(run - e % run, own.end() - e);
      use(e, Range{e / run * stride() + part * run + e % run, n});
    }
  }
  // Calls it for each piece that lies in a range of the tensor.
  template <class Use>
  void within(const Range& range, Use use) const {
    if (!cut()) return use(range.first, range);
    for (uint64_t row = range.first / stride(); row * stride() < range.end(); ++row) {
      const uint64_t begin = row * stride() + part * run;
      if (const Range piece = overlap({begin, run}, range); piece.count) use(row * run + piece.first - begin, piece);
    }
  }
};

// A range of a logical tensor's elements and where it is stored. Several ranks may each hold a part of a tensor.
struct StoredRange : Range {
  std::string file;    // in the checkpoint's directory
  std::string stored;  // the tensor's name in that file; a partial range is stored flat
  std::string xxh3_128;
  Columns columns = {};  // of which part the range is
};

struct ManifestTensor : TensorSpec {
  std::vector<StoredRange> ranges;
};

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  std::string header_xxh3_128;  // of all bytes before the data; the data belongs to the ranges
};

// The position of a run: with the tensors, all that is needed to resume it bit for bit. The random generator is
// counter-based, so its state is the seeds and counters in `seeds`.
struct RunPoint {
  int64_t step = 0;     // steps taken
  int64_t updates = 0;  // steps whose update was not skipped
  uint64_t tokens = 0;
  double loss_scale = 1;
  std::map<std::string, uint64_t> data;   // position per split, e.g. train = next sample
  std::map<std::string, uint64_t> seeds;  // e.g. init, data, step
  std::map<std::string, uint64_t> rng;    // counters of what draws at run time; empty if they follow from step
  std::string data_hash, config_hash;
  struct Plugin {
    std::string id, version, sha256;
    bool operator==(const Plugin&) const = default;
  };
  std::vector<Plugin> plugins;
  std::map<std::string, std::string> extra;  // further facts, copied unchanged
  bool operator==(const RunPoint&) const = default;
};

struct Manifest {
  static constexpr int64_t kVersion = 1;
  RunPoint point;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestFile> files;
};

// JSON whose last line is the checksum of all text before it.
std::string manifest_text(const Manifest& manifest);

constexpr uint64_t most_manifest = 1u << 30;  // bytes; a longer one is neither written nor read

// Writes that text in pieces, so that neither it nor all ranges need be in memory.
class ManifestWriter {
 public:
  using Take = std::function<void(std::string_view)>;
  ManifestWriter(const RunPoint& point, const std::vector<ManifestFile>& files, Take take);
  void add(const ManifestTensor& tensor);
  uint64_t finish();  // bytes of the text

 private:
  void give();
  const Take take_;
  Checksum sum_;
  std::string text_;  // not given yet
  uint64_t bytes_ = 0;
  bool first_ = true;
};

// Sorts the ranges of every tensor. Throws Error(Exit::checkpoint) naming `where` unless every element of every tensor
// is in exactly one range, and every name is plain and there once.
void check_manifest(Manifest& manifest, const std::string& where);
// Its parts. The names of the files; the ranges of one tensor, which lie in these.
std::set<std::string> check_files(const std::vector<ManifestFile>& files, const std::string& where);
void check_ranges(ManifestTensor& tensor, const std::set<std::string>& files, const std::string& where);
// Throws Error(Exit::checkpoint), prefixed by `where`, for text that is damaged, of a later version, or
// inconsistent: ranges must fill their tensor exactly once and name a listed file. That is not asked of a `part`.
Manifest parse_manifest(const std::string& text, const std::string& where, bool part = false);
Manifest read_manifest(const std::filesystem::path& directory);
// Without the tensors, which are neither parsed nor checked. The checksum is, a piece of the text at a time.
Manifest read_head(const std::filesystem::path& directory);

}  // namespace eng

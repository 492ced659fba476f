// SPDX-License-Identifier: Apache-2.0
// A strategy plugin in a world of W ranks without any: what it emits is recorded for every rank, with the engine's own
// rules for groups, parts and shapes, and then carried out for all ranks in lockstep, the plain way.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/trace/ranks.hpp"
#include "engine/policy.h"
#include "tests/models/plugin_file.hpp"

namespace zero_test {

using Floats = std::vector<float>;

// Values are ranges of buffers of one rank.
class Recorder final : public eng::Builder {
 public:
  struct Value {
    size_t buffer;
    size_t first, count;
  };
  struct Step {
    const eng::Op* op;
    eng::Id in, out;
    eng::Attrs attrs;
  };
  explicit Recorder(const eng::Ranks& ranks) : ranks_(ranks) {}

  eng::Id add(Floats data);
  eng_desc shape(eng::Id value) override;
  eng::Id slice(eng::Id value, uint64_t first, uint64_t count) override;
  std::vector<eng::Id> emit(const eng::Op& op, std::vector<eng::Id> in, std::vector<eng::Id> out,
                            eng::Attrs attrs) override;

  const Value& value(eng::Id id) const { return values_.at(id - 1); }
  Floats read(eng::Id id) const;
  void write(eng::Id id, const Floats& data);
  const eng::Ranks& ranks() const { return ranks_; }
  std::vector<Step> steps;

 private:
  const eng::Ranks& ranks_;
  std::vector<Floats> buffers_;
  std::vector<Value> values_;
};

// A mistake to be planted.
enum class Fault { none, left_to_right };

// One object of the strategy per rank.
class World {
 public:
  World(const models::PluginFile& plugin, const std::string& name, uint32_t size, const models::Values& options = {});
  ~World();
  World(const World&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  eng::Ranks& ranks(uint32_t rank) { return *ranks_[rank]; }
  const eng_axis& table() const { return table_; }
  // ENG_AXIS_* of rank 0's object.
  uint32_t flags() const;
  // The part that `role` is kept in, by rank.
  eng::Id part(uint32_t rank, int32_t role) const;

  // The range of `whole` that this rank keeps of `role`.
  Floats kept(uint32_t rank, int32_t role, const Floats& whole) const;

  struct Moved {
    std::vector<Floats> dst;                     // by rank
    std::vector<std::string> ops;                // those of rank 0, without eng. and /1
    std::vector<std::vector<eng::Attrs>> attrs;  // by rank
  };
  // Moves every rank's src between homes; in_place: src lies in dst, where the part belongs.
  Moved move(int32_t role, const std::vector<Floats>& src, const std::vector<eng::Id>& from,
             const std::vector<eng::Id>& to, size_t dst_count, Fault fault = Fault::none, bool in_place = false);
  // Every rank's whole gradient into the home of ENG_ROLE_GRAD.
  Moved reduce(const std::vector<Floats>& gradients, Fault fault = Fault::none);
  // The whole value that every rank makes of the parts that all keep of `whole`.
  Moved gather(int32_t role, const Floats& whole, bool in_place = false);
  // The text of the error of a call that fails, as one rank sees it.
  std::string refusal(int32_t role, eng::Id from, eng::Id to);

 private:
  const eng_axis& table_;
  std::vector<std::unique_ptr<eng::Ranks>> ranks_;
  std::vector<void*> selves_;
};

// The balanced tree told from its root: what is below its left branch is the largest power of two that leaves a rest.
float tree_sum(const float* rows, size_t m);
// Element by element over ranks.
Floats tree_sum(const std::vector<Floats>& by_rank);

bool same_bits(const Floats& a, const Floats& b);
std::vector<Floats> random_gradients(uint32_t ranks, size_t count, unsigned seed);

}  // namespace zero_test

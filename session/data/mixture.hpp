// SPDX-License-Identifier: Apache-2.0
// The order of several sources in one stream.
#pragma once

#include <cstdint>
#include <vector>

#include "session/data/sources.hpp"

namespace eng {

// The sources take turns as evenly as whole samples allow: of any n samples in succession, each source has its share of
// n, to within one for each source before it and one more. A position alone says which source it belongs to and which
// of its samples it is, so nothing else is kept, and no number of ranks changes the stream.
class Mixture {
 public:
  Mixture() = default;
  // Source k has shares[k] groups of `group` samples in an epoch, which has at most 2^62.
  Mixture(std::vector<uint64_t> shares, uint32_t group);

  struct Place {
    std::size_t source;
    uint64_t position;  // of the source
  };
  Place at(uint64_t position) const;
  uint64_t samples() const { return total_ * group_; }  // of an epoch
  uint64_t samples(std::size_t source) const { return shares_[source] * group_; }

 private:
  std::vector<uint64_t> shares_;
  uint64_t total_ = 0, group_ = 1;
};

// The groups of an epoch that each source has, by weight, epochs or temperature; `sizes`: of their training groups.
// By weight and by temperature an epoch has about as many groups as the sources that are read. Throws
// Error(Exit::data) for a source that is to be read and has none.
std::vector<uint64_t> mixture_shares(const std::vector<DataSource>& sources, const std::vector<uint64_t>& sizes,
                                     std::optional<double> temperature);

}  // namespace eng

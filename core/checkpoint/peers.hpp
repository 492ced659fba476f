// SPDX-License-Identifier: Apache-2.0
// The ranks that save and load together: they decide alike, and what fails on one fails on all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace eng {

// Gives what every rank gave, by rank; all ranks call it, outside of steps. Empty where there is one rank. Throws
// Error(Exit::communication).
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

struct Peers {
  uint32_t rank = 0, size = 1;
  Exchange exchange = {};  // not needed where there is one rank

  // Every rank does its part of the work and says something of it; all get what each of them said. Where a part threw,
  // all throw the Error of the first rank that did, "rank K: " before its text; of a single rank as it is.
  std::vector<std::string> agree(const std::function<std::string()>& work) const;
  // The same where rank 0 alone has something to do.
  std::string lead(const std::function<std::string()>& work) const;
};

}  // namespace eng

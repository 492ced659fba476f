// SPDX-License-Identifier: Apache-2.0
// The exchange of all ranks before a step.
#include <bit>

#include "session/ranks/common_error.hpp"
#include "session/ranks/exchange.hpp"
#include "session/train/trainer.hpp"

namespace eng {

Trainer::Agreed Trainer::agree(const Batch& batch, bool stop) const {
  Agreed all{batch.divisor(), batch.own_loss, batch.padding, stop, batch.parts};
  if (single_rank()) return all;
  std::vector<int64_t> mine = {std::bit_cast<int64_t>(batch.divisor()), std::bit_cast<int64_t>(batch.own_loss),
                               batch.padding, stop};
  for (const Batch::Part& part : batch.parts)
    mine.insert(mine.end(), {part.samples, part.valid, std::bit_cast<int64_t>(part.divisor)});
  all = {0, 0, 0, false, std::vector<Batch::Part>(batch.parts.size())};
  const Ranks& ranks = setup_.plan.ranks;
  const bool share = ranks.same_rows() * ranks.pipeline > 1;  // some ranks have the same samples
  if (share) mine.push_back(hash_of(batch));
  const auto said = exchange_numbers(exchange_, mine, "the agreement before a step");
  for (size_t r = 0; r < said.size(); ++r) {
    const std::vector<int64_t>& one = said[r];
    const size_t leader = r % ranks.stage_size() / ranks.same_rows() * ranks.same_rows();
    all.stop = all.stop || one[3] != 0;
    if (share && one.back() != said[leader].back())
      throw CommonError(
          Exit::data, fmt::format("rank {} has other samples than rank {}, with which it divides the model", r, leader),
          "give all ranks of a tensor or context group, and of a pipeline, the same batch");
    if (r != leader) continue;
    all.divisor += std::bit_cast<double>(one[0]), all.own_loss += std::bit_cast<double>(one[1]);
    all.padding += one[2];
    for (size_t k = 0; k < all.parts.size(); ++k)
      all.parts[k].samples += one[4 + 3 * k], all.parts[k].valid += one[5 + 3 * k],
          all.parts[k].divisor += std::bit_cast<double>(one[6 + 3 * k]);
  }
  return all;
}

}  // namespace eng

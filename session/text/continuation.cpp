// SPDX-License-Identifier: Apache-2.0
#include "session/text/continuation.hpp"

#include <algorithm>

namespace eng {

void continue_texts(Decoder& decoder, std::span<const std::vector<int32_t>> prompts, const Continuation& how,
                    const std::function<void()>& read) {
  size_t shared = SIZE_MAX;
  for (const auto& prompt : prompts) shared = std::min(shared, prompt.size());
  std::vector<int32_t> tokens;
  for (size_t row = 0; row < decoder.rows(); ++row) {
    const auto& prompt = prompts[std::min(row, prompts.size() - 1)];  // rows without a prompt repeat the last one
    tokens.insert(tokens.end(), prompt.begin() + static_cast<std::ptrdiff_t>(how.read),
                  prompt.begin() + static_cast<std::ptrdiff_t>(shared));
  }
  const auto feed = [&] { how.feed ? how.feed(tokens) : decoder.feed(tokens); };
  if (!how.read) decoder.reset();
  feed();
  if (read) read();
  Sampler sampler(how.sampling);
  std::vector<char> done(prompts.size(), 0);
  tokens.assign(decoder.rows(), 0);
  for (size_t at = shared; std::count(done.begin(), done.end(), 0) > 0; ++at) {
    for (size_t row = 0; row < prompts.size(); ++row) {
      const auto& prompt = prompts[row];
      if (done[row]) continue;
      if (at < prompt.size()) {
        tokens[row] = prompt[at];
        continue;
      }
      const size_t k = at - prompt.size();
      const int32_t id = sampler.next(decoder.logits(row).first(static_cast<size_t>(how.vocabulary)), k);
      tokens[row] = id;
      done[row] = how.ends.count(id) || !how.token(row, id) || k + 1 == static_cast<size_t>(how.tokens) ||
                  at + 1 == static_cast<size_t>(decoder.length());
    }
    if (std::count(done.begin(), done.end(), 0) > 0) feed();
  }
}

}  // namespace eng

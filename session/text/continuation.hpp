// SPDX-License-Identifier: Apache-2.0
// Several texts at a time.
#pragma once

#include <functional>

#include "session/text/decoder.hpp"
#include "session/text/sampler.hpp"

namespace eng {

struct Continuation {
  int64_t tokens = 0;      // at most this many new ones of each text
  int64_t vocabulary = 0;  // ids below this are sampled
  std::set<int32_t> ends;  // these end a text, and are not part of it
  Sampling sampling = {};
  size_t read = 0;  // tokens of the prompts that the decoder has read already: it goes on from there
  // Called with each new token: the number of the prompt, and the id. False ends that text.
  std::function<bool(size_t, int32_t)> token = {};
  std::function<void(std::span<const int32_t>)> feed = {};  // in place of that of the decoder
};

// Continues prompts, none empty and at most decoder.rows() of them, of which each gets what it would get alone. All
// texts are at the same position: one whose prompt has ended goes on while others still read theirs, so that prompts
// of about equal length cost least. A text also ends at the decoder's last position. `read`: called once, when the
// part of the prompts that all of them have was read.
void continue_texts(Decoder& decoder, std::span<const std::vector<int32_t>> prompts, const Continuation& how,
                    const std::function<void()>& read = {});

}  // namespace eng

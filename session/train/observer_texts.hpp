// SPDX-License-Identifier: Apache-2.0
// ObserverTexts of the weights between two steps, which observers ask for (eng_step_done.sample).
#pragma once

#include <exception>

#include "engine/observer.h"
#include "session/text/decoder.hpp"
#include "session/train/trainer.hpp"

namespace eng {

class ObserverTexts {
 public:
  // Takes the planned memory on the first rank, if the setup plans texts. Borrows the trainer.
  explicit ObserverTexts(Trainer& trainer);
  bool planned() const { return trainer_.setup().sampling != nullptr; }
  // All ranks together: the weights after the trainer's step, for the texts that follow.
  void take_weights();
  // On the first rank, for one observer that may ask for texts of `length` positions. `weights` brings all ranks to
  // take_weights(); it is called at most once for a step. Throws nothing.
  eng_status sample(const std::string& observer, int64_t length, const eng_sample* asked, eng_sampled* out,
                    eng_error* error, const std::function<void()>& weights) noexcept;
  // Throws what failed for another reason than the request, if the observer went on.
  void check();

 private:
  void check_request(const std::string& observer, int64_t length, const eng_sample* asked,
                     const eng_sampled* out) const;
  std::vector<int32_t> prompt(const eng_sample& asked) const;
  void write(const eng_sample& asked, const std::vector<int32_t>& prompt);

  Trainer& trainer_;
  std::unique_ptr<Decoder> decoder_;
  std::optional<Tokenizer> tokenizer_;
  int64_t taken_ = -1;  // the step after which the weights were taken
  std::vector<int32_t> ids_;
  std::string text_;
  std::exception_ptr failed_;
};

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
// Chooses who computes attention: cuDNN or the plugin's own kernels. The one place that decides. It depends on the call
// and on [device] alone, so that a plan without a GPU, and without cuDNN, is the plan of the run.
#pragma once

#include <functional>
#include <map>

#include "../common/reals.hpp"
#include "attention_workspace.hpp"
#include "kernels/library.hpp"

namespace cuda {

// [device] attention, attention_workspace and cudnn.
struct AttentionOptions {
  enum Who : uint64_t { auto_, cudnn, own, own_wgmma = library::own_wgmma };
  uint64_t who = auto_;
  uint64_t cap = uint64_t{512} << 20;          // bytes: the most scratch of a call; where the session gives none
  uint64_t version = sdpa::known_versions[0];  // the cuDNN that the plan counts on
};
// Passes the options from describe to the kernels: eng_device_info.settings.
void put(const AttentionOptions& options, eng_device_info& info);

struct AttentionChoice {
  std::string name;  // of the call in the run's choices; it ends with " bounded" if there are segments or a window
  bool cudnn = false;
  bool strict = false;   // [device] attention = "cudnn"
  uint64_t bytes = 0;    // of cuDNN's workspace
  uint64_t version = 0;  // the cuDNN that the plan counts on
  sdpa::Shape shape{};
};
// For eng.attention/1, eng.attention_window/1 or, with `backward`, its gradient. Throws Error if [device] attention =
// "cudnn" and cuDNN cannot serve the call.
AttentionChoice choose_attention(const common::Call& call, bool backward);

// The largest difference of `got` from `right`, of n elements of 16 bits, in parts of the largest of `right`; NaN if
// one of them is.
double distance(const common::Reals& got, const common::Reals& right, size_t n);

// "the plan counts on cuDNN 9.19.0 and ..., and the installed cuDNN 9.14.0 `what`".
std::string refusal(const AttentionChoice& choice, uint64_t installed, const std::string& what);

// By call that the plan leaves to cuDNN, or that was measured: "cuDNN 9.19.0" computes it, or "own" kernels do, or "own
// wgmma". A run keeps it (choices.cpp).
using Served = std::map<std::string, std::string>;
// Makes cuDNN's kernel by `make`, which returns "cuDNN 9.19.0" or throws Error(ENG_UNAVAILABLE) if the installed cuDNN
// does not serve the call. False: the plugin's own kernel computes it, as it did in the run so far, or since cuDNN does
// not and `own_can`. `tell` is given notes for the user. Throws Error(ENG_UNAVAILABLE) if it must be cuDNN.
bool made_by_cudnn(const AttentionChoice& choice, bool own_can, Served& run, const std::function<std::string()>& make,
                   void (*tell)(const std::string&));

}  // namespace cuda

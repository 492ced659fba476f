// SPDX-License-Identifier: Apache-2.0
// Chooses who computes attention: cuDNN or the plugin's own kernels. The one place that decides. It depends on the call
// and on [device] alone, so that a plan without a GPU, and without cuDNN, is the plan of the run.
#pragma once

#include "../common/call.hpp"
#include "attention_workspace.hpp"

namespace cuda {

// [device] attention, attention_workspace and cudnn.
struct AttentionOptions {
  enum Who : uint64_t { auto_, cudnn, own };
  uint64_t who = auto_;
  uint64_t cap = uint64_t{512} << 20;          // bytes: the most scratch of a call
  uint64_t version = sdpa::known_versions[0];  // the cuDNN that the plan counts on
};
// Passes the options from describe to the kernels: eng_device_info.settings.
void put(const AttentionOptions& options, eng_device_info& info);

struct AttentionChoice {
  bool cudnn = false;
  uint64_t bytes = 0;    // of cuDNN's workspace
  uint64_t version = 0;  // the cuDNN that the plan counts on
  sdpa::Shape shape{};
};
// For eng.attention/1, eng.attention_window/1 or, with `backward`, its gradient. Throws Error if [device] attention =
// "cudnn" and cuDNN cannot serve the call.
AttentionChoice choose_attention(const common::Call& call, bool backward);

// Refuses what the installed cuDNN does beyond the plan. Throws Error(ENG_UNAVAILABLE), which names both versions.
[[noreturn]] void refuse_installed(const AttentionChoice& choice, uint64_t installed, const std::string& what);
// `wanted`: its bytes of workspace. It may want less than the plan has, not more.
void check_workspace(const AttentionChoice& choice, uint64_t installed, uint64_t wanted);

}  // namespace cuda

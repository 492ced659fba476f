// SPDX-License-Identifier: Apache-2.0
// The values that the host gives a step and takes from it: the batch, the inputs, the counters, the losses; and the
// constants.
#pragma once

#include "core/plan/emitter.hpp"

namespace eng {

class Exchange {
 public:
  Exchange(const PlanRequest& request, Plan& plan, Emitter& emitter);
  // Copies what the host has filled to the device, and results to where the host reads them. Nothing if host and device
  // share one memory.
  void copy_in(const View& host, const View& device) { copy(Queue::h2d, host, device); }
  void copy_out(const View& device, const View& host) { copy(Queue::d2h, device, host); }
  // A buffer on the device, and the memory in which the host fills or reads it.
  struct Shared {
    View device, host;
  };
  Shared shared(const std::string& name, Line line, const eng_desc& desc, bool initial);
  // Makes room for `n` values after the rows of the losses.
  void after_losses(uint64_t n);

  std::map<uint32_t, std::vector<View>> constants;  // per template
  std::vector<View> fields;                         // of the batch, on the device; the next ones, too
  View inputs, losses, all_losses;

 private:
  void copy(Queue queue, const View& from, const View& to);
  Plan& plan_;
  Emitter& emit_;
  const DeviceTraits traits_;
};

}  // namespace eng

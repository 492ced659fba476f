// SPDX-License-Identifier: Apache-2.0
// Runs one op by one kernel of one device, and watches what the kernel touches.
#pragma once

#include "core/execute/device.hpp"
#include "tools/engine/plugin_test/arrays.hpp"
#include "tools/engine/plugin_test/verdict.hpp"

namespace eng::plugin_test {

// The way in which a kernel is called.
struct How {
  uint32_t parallel = 0;          // 0: the device's own
  uint8_t fill = 0xFF;            // in every byte of outputs and scratch before the launch
  std::vector<InPlace> in_place;  // outputs that take the memory of an input
  bool twice = false;             // launches the record twice; not with outputs in place
};

// The arguments of a kernel: arrays in host memory, or copies of them, guards included, in memory of a device.
class Stage {
 public:
  explicit Stage(Device* device) : device_(device) {}  // null: host memory
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  // The address at which the kernel finds the bytes.
  uint8_t* send(Bytes& bytes);
  // Brings them back from there.
  void fetch(Bytes& bytes, const uint8_t* at);

 private:
  Device* device_;
  std::vector<std::pair<uint8_t*, uint64_t>> rooms_;
};

class Machine {
 public:
  // `local_rank`: of this process on its computer. Throws Error if the device cannot be created.
  Machine(Registry& registry, const std::string& device, const Section& options, uint32_t local_rank = 0);
  ~Machine();
  const Kernels& kernels() const { return kernels_; }
  const eng_device_info& info() const { return kernels_.info(); }
  const std::string& name() const { return kernels_.device(); }
  Device& device() { return device_; }
  void* queue() const { return queue_; }  // null: of a device without queues

  // Runs `call` on its inputs and returns the outputs. Throws Broken if the kernel writes outside of its outputs and
  // its scratch, or to its inputs; Error if it fails. `kernel`: that of `kernels()` if it is null.
  std::vector<Array> run(const Call& call, const std::vector<Array>& in, const How& how = {},
                         const eng_kernel* kernel = nullptr);
  // True if a kernel serves the call. Throws Error for a fault other than ENG_UNSUPPORTED.
  bool serves(const Call& call) const;

 private:
  Kernels kernels_;
  Device device_;
  void* queue_ = nullptr;
};

// A distinct use of an op: its outputs follow from its inputs. Throws Broken if the op refuses them.
Call make_call(const Op& op, const std::vector<Array>& in, const Attrs& attrs);
std::string text_of(const Call& call);  // "eng.add/1 in f32 (2, 3), f32 (2, 3), factor 2"

}  // namespace eng::plugin_test

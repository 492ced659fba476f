// SPDX-License-Identifier: Apache-2.0
// A plan in memory: allocated arenas, prepared calls, bound actions.
#pragma once

#include "core/execute/arenas.hpp"
#include "core/execute/comm.hpp"

namespace eng {

// One bound action.
struct BoundAction {
  const eng_kernel* kernel;
  void* record;
  const Action* action;
  bool on_host;  // runs on the host, and has ended when its launch returns
  bool others;   // of another device than the plan's, whose queues it does not know
};

struct BoundSegment {
  const Segment* segment;
  std::vector<BoundAction> actions;  // in list order: every wait is for an earlier one
};

class Bound {
 public:
  // Prepares every call, allocates the arenas, binds every action. `comm`: null if the plan has no collectives; `host`:
  // null if it has no tiers; `collectives_next` is called when all but collectives are prepared. Throws Error naming
  // the device or communicator, and the op.
  Bound(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm, Host* host,
        const std::function<void()>& collectives_next);
  ~Bound();
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  uint8_t* address(const View& view) const;
  // True if the host can read and write the bytes of this view in place.
  bool on_host(const View& view) const {
    return !plan_.in_storage(view) && (host_memory_ || arenas->memory(plan_.buffer(view.buffer).arena));
  }
  // Copies bytes of a view in storage, from byte `first` of it on, to memory of the host, and back.
  void read(const View& from, uint64_t first, void* to, uint64_t bytes);
  void write(const View& to, uint64_t first, const void* from, uint64_t bytes);
  // "device cpu", "communicator mpi" for a collective, or "tier nvme".
  std::string of_whom(const Call& call) const;
  // For messages: "device cpu, eng.add/1 in layers.0 backward".
  std::string name(const BoundAction& one) const;
  std::vector<BoundSegment>& segments(const std::string& program);

  std::vector<std::vector<BoundSegment>> programs;  // same indices as in the plan
  // The plan's memory. Whoever holds it keeps it allocated; the device and the host must live as long.
  std::shared_ptr<const Arenas> arenas;

 private:
  struct Prepared {
    const eng_kernel* kernel = nullptr;
    void* state = nullptr;
    Device* by = nullptr;  // the device that computes it, or its queues carry
  };
  // The plan's device, or the one of the host.
  Device& device_of(const Call& call) const { return call.on_host && host_->device ? *host_->device : device_; }
  // Once this has ended, the destructor runs also if the other constructor throws.
  Bound(const Plan& plan, Device& device, Communicator* comm, Host* host, bool host_memory);
  void prepare(const Call& call, Prepared& out, const Kernels& kernels);
  void* bind(const Action& action, const Kernels& kernels);
  void* bind_storage(const Action& action);

  const Plan& plan_;
  Device& device_;
  Communicator* comm_;
  Host* host_;
  const bool host_memory_;
  std::vector<Prepared> calls_;  // same indices as in the plan
};

}  // namespace eng

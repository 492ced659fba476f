// SPDX-License-Identifier: Apache-2.0
// One rank of a test. What is wrong is thrown, and ends the program with 1.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/execute/comm.hpp"
#include "core/execute/device.hpp"
#include "core/tensor/dtype.hpp"
#include "engine/ops.h"
#include "session/plugins/search.hpp"

namespace rank {

#define EXPECT(right)                                                                                     \
  do {                                                                                                    \
    if (!(right)) throw std::runtime_error(fmt::format("{}:{}: not so: {}", __FILE__, __LINE__, #right)); \
  } while (false)

extern std::string plugin_dir;

// The communicator under test, and the memory that its collectives move: host.cpp, or tests/cuda/nccl/cuda.cpp.
struct Subject {
  std::string plugin, device;      // "mpi", and a device that computes beside it, or ""
  std::vector<std::string> files;  // of plugins
  bool enqueues;                   // a launch returns before it is done
  void* (*allocate)(size_t bytes);
  void (*release)(void*);
  void* (*queue)();            // a new one
  void (*begin)(void* queue);  // before something is enqueued; after it, and when it has to be done:
  std::string (*wait)(void* queue);
  eng::Section (*options)(double timeout, int64_t message_bytes);
};
extern const Subject subject;

template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(subject.allocate(n * sizeof(T))); }
  void deallocate(T* p, size_t) { subject.release(p); }
  bool operator==(const Allocator&) const { return true; }
};
template <class T>
using Moved = std::vector<T, Allocator<T>>;
constexpr double deadline = 10;   // where it is waited for; joining takes seconds on a busy machine
constexpr double far_away = 120;  // where it must not come to that

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const std::string& file : subject.files) search.extra.push_back(plugin_dir + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// A collective on memory of its own.
class Bound {
 public:
  Bound(eng::Communicator& comm, const char* op, eng::Id group, int64_t members, int32_t dtype, int64_t count,
        int64_t root = 0)
      : comm_(comm), queue_(subject.queue()) {
    call_.op = &eng::op(op);
    call_.in.push_back(eng::make_desc(dtype, {count}));
    call_.attrs = {{{"group", group, 0}, {"members", members, 0}, {"root", root, 0}}};
    const std::string wrong = call_.op->infer(call_.in, call_.attrs, call_.out);
    if (!wrong.empty()) throw std::runtime_error(wrong);
    kernel_ = &comm.find(call_);
    eng::CallArgs args(call_, 1);
    eng::Sink sink;
    sink.check(kernel_->prepare(comm.self(), args.get(), &state_, sink.get()), eng::Exit::environment, "prepare");
  }
  ~Bound() {
    if (record_) kernel_->drop_record(record_);
    if (state_) kernel_->drop_state(state_);
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  void bind(void* in, void* out) {
    DLTensor a{in, {kDLCPU, 0}, 1, eng::dtype_dlpack(call_.in[0].dtype), call_.in[0].dims, nullptr, 0};
    DLTensor b{out, {kDLCPU, 0}, 1, eng::dtype_dlpack(call_.out[0].dtype), call_.out[0].dims, nullptr, 0};
    const DLTensor* args[] = {&a, &b};
    eng::Sink sink;
    sink.check(kernel_->bind(state_, args, 2, nullptr, &record_, sink.get()), eng::Exit::environment, "bind");
  }
  // The text of the failure, "" if there is none.
  std::string launch() {
    const eng_exec exec = {sizeof(eng_exec), 0, queue_};
    eng::Sink sink;
    subject.begin(queue_);
    const eng_status status = kernel_->launch(record_, &exec, sink.get());
    if (status != ENG_OK && status != ENG_UNAVAILABLE) throw std::runtime_error("another status: " + sink.text());
    if (status != ENG_OK) return sink.text();
    if (const std::string wrong = subject.wait(queue_); !wrong.empty()) throw std::runtime_error(wrong);
    return subject.enqueues ? failure() : "";
  }
  void operator()() {
    const std::string text = launch();
    if (!text.empty()) throw std::runtime_error(text);
  }

 private:
  // The failure of work that was only enqueued.
  std::string failure() const try {
    comm_.check();
    return "";
  } catch (const eng::Error& e) {
    return std::string(e.what()).substr(std::strlen("communicator : ") + subject.plugin.size());
  }
  eng::Communicator& comm_;
  void* queue_;
  eng::Call call_;
  const eng_kernel* kernel_ = nullptr;
  void* state_ = nullptr;
  void* record_ = nullptr;
};

void collectives(eng::Communicator& comm, bool whole);
void executor(eng::Communicator& comm);
void large(eng::Communicator& comm, bool gather_too);
// Until one of the others has told this rank, which takes part in nothing: what.
std::string told(eng::Communicator& comm);
// In these rank 1 goes wrong.
void late(eng::Communicator& comm);
void elsewhere(eng::Communicator& comm);
void aborts(eng::Communicator& comm);
void leaves(eng::Communicator& comm);
void killed(eng::Communicator& comm);
void vanishes(eng::Communicator& comm);
void executor_late(eng::Communicator& comm);

}  // namespace rank

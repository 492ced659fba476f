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
constexpr double deadline = 10;   // where it is waited for; joining takes seconds on a busy machine
constexpr double far_away = 120;  // where it must not come to that

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"mpi/mpi", "cpu/reference"}) search.extra.push_back(plugin_dir + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

inline eng::Section options(double timeout, int64_t message_bytes = 1 << 30) {
  return eng::Section("comm", {{"plugin", {std::string("mpi"), "test", true}},
                               {"timeout", {timeout, "test", true}},
                               {"message_bytes", {message_bytes, "test", true}}});
}

// A collective on memory of its own.
class Bound {
 public:
  Bound(eng::Communicator& comm, const char* op, eng::Id group, int64_t members, int32_t dtype, int64_t count,
        int64_t root = 0) {
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
    const eng_exec exec = {sizeof(eng_exec), 0, nullptr};
    eng::Sink sink;
    const eng_status status = kernel_->launch(record_, &exec, sink.get());
    if (status != ENG_OK && status != ENG_UNAVAILABLE) throw std::runtime_error("another status: " + sink.text());
    return status == ENG_OK ? "" : sink.text();
  }
  void operator()() {
    const std::string text = launch();
    if (!text.empty()) throw std::runtime_error(text);
  }

 private:
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

// SPDX-License-Identifier: Apache-2.0
// The implementation of a session of engine/embed.h; the functions here throw.
#pragma once

#include <atomic>
#include <span>

#include "engine/embed.h"
#include "session/embed/incoming.hpp"
#include "session/embed/own_loss.hpp"
#include "session/embed/owner.hpp"
#include "session/run/run.hpp"
#include "session/text/decoder.hpp"

namespace eng {

class Embedded {
 public:
  explicit Embedded(const eng_session_request& request);
  // Without close: gives back what there is, and records nothing.
  ~Embedded();
  Embedded(const Embedded&) = delete;
  Embedded& operator=(const Embedded&) = delete;

  void start();
  std::string plan(uint32_t ranks);
  std::string activations();
  eng_session_info describe() const;
  // `own`: the caller's loss, if it computes it.
  eng_step_result step(std::span<const eng_tensor_in> fields, OwnLoss* own = nullptr);
  eng_eval_result evaluate(std::span<const eng_tensor_in> fields, int64_t batches);
  void logits(std::span<const eng_tensor_in> fields);
  void score(const eng_score_request& request);
  void set_rate(double rate);
  void generate(const eng_generate_request& request);
  // That of [data]. Throws Error(Exit::usage) if there is none.
  const Tokenizer& tokenizer();
  eng_tensor_info tensor(uint64_t index) const;
  DLManagedTensorVersioned* take(const std::string& name, const std::string& role, uint32_t flags);
  void write(const std::string& name, const std::string& role, const eng_tensor_in& value, uint32_t flags);
  void save();
  void stop() noexcept { stop_ = true; }
  void fail(const std::string& text);
  // Ends the run. Throws what went wrong; nothing else may be called afterwards.
  void close();
  Owner owner;

 private:
  class Events;
  struct Lent;
  // A tensor that lies in memory, or, without data, in files of a tier.
  struct Place {
    void* data = nullptr;
    DLDevice device{kDLCPU, 0};
  };
  void open(Opened given);
  bool forward() const { return request_.readable.forward; }
  bool started() const { return lent_ != nullptr; }
  void start_forward();
  void need_started();
  void need_sound() const;
  // A failure while all ranks work together leaves the session unusable.
  template <class Work>
  auto sound(const Work& work) {
    try {
      return work();
    } catch (...) {
      broken_ = true;
      throw;
    }
  }
  void publish();
  std::unique_ptr<Decoder> decoder(int64_t length, int64_t rows);
  Place place(const View& view) const;
  const Tensor& find(const std::string& name, const std::string& role) const;
  DLManagedTensorVersioned* copy_of(const Tensor& tensor);
  void gather(const Tensor& tensor, uint64_t first, uint64_t n, char* to);
  DLManagedTensorVersioned* lend(const Tensor& tensor, const eng_desc& desc, const Place& at, bool writable);
  Incoming::FromDevice from_device();
  DLDevice device() const;
  Batch batch(std::span<const eng_tensor_in> fields, BatchShape shape);

  const RunRequest request_;
  const std::function<void(const std::string&)> note_;
  const std::unique_ptr<Events> events_;
  bool many_ = false;  // it holds the place of the process's session of several ranks
  std::optional<Member> member_;
  std::optional<Opening> opening_;    // all that is read and written; complete once it is started
  std::unique_ptr<Run> run_;          // makes the steps; there once it is started, unless nothing is trained
  std::vector<TensorShare> tensors_;  // of the plan: what a reader and a writer name
  std::shared_ptr<const Lent> lent_;  // the memory, while the session is open or a tensor is out
  std::vector<std::weak_ptr<const void>> writable_;
  bool written_ = false;  // since the weights were published
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Decoder> kept_;  // of the last text, where nothing is trained
  int64_t kept_length_ = 0;        // its positions
  bool changed_ = false;           // the weights, since then
  bool broken_ = false;            // something failed: it can only be closed
  std::atomic<bool> stop_{false};
  std::string directory_;
};

}  // namespace eng

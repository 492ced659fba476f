// SPDX-License-Identifier: Apache-2.0
// engine/embed.hpp - engine/embed.h for C++17 and later: objects that close and delete, and exceptions. All contracts
// are those of engine/embed.h. Link with -lengine.
//
//     engine::Session run(engine::Options("config.toml").set("train.steps=10"));
//     while (auto step = run.step()) std::printf("%g\n", step->loss);
//     engine::Tensor weight = run.take("model.norm.weight");
#ifndef ENGINE_EMBED_HPP_
#define ENGINE_EMBED_HPP_

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "embed.h"

namespace engine {

struct Error : std::runtime_error {
  Error(eng_status code, const std::string &text) : std::runtime_error(text), status(code) {}
  eng_status status;
};

// Calls a function of engine/embed.h, whose last parameter is the sink.
template <class F, class... Args>
void call(F function, Args... args) {
  std::string text;
  eng_error sink{};
  sink.struct_size = sizeof(sink);
  sink.data = &text;
  sink.set = [](eng_error *self, eng_status, const char *words, uint64_t n) {
    static_cast<std::string *>(self->data)->assign(words ? words : "", words ? n : 0);
  };
  if (const eng_status status = function(args..., &sink)) throw Error(status, text);
}

// A tensor that was taken; the destructor calls its deleter.
class Tensor {
 public:
  explicit Tensor(DLManagedTensorVersioned *managed) : managed_(managed) {}
  ~Tensor() { reset(); }
  Tensor(Tensor &&other) noexcept : managed_(other.release()) {}
  Tensor &operator=(Tensor &&other) noexcept {
    reset();
    managed_ = other.release();
    return *this;
  }
  const DLTensor &get() const { return managed_->dl_tensor; }
  bool read_only() const { return (managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }
  std::vector<int64_t> shape() const { return {get().shape, get().shape + get().ndim}; }
  // Its elements, in memory of the host. The caller says their type: const T * for a read-only one.
  template <class T>
  T *data() const {
    return reinterpret_cast<T *>(static_cast<char *>(get().data) + get().byte_offset);
  }
  DLManagedTensorVersioned *release() { return std::exchange(managed_, nullptr); }
  void reset() {
    if (auto *mine = release(); mine && mine->deleter) mine->deleter(mine);
  }

 private:
  DLManagedTensorVersioned *managed_;
};

// A dense array of the caller, as a field of a batch or a value to write; borrowed.
class Array {
 public:
  Array(const char *name, const int32_t *data, std::vector<int64_t> shape)
      : Array(name, data, {kDLInt, 32, 1}, shape) {}
  Array(const char *name, const int64_t *data, std::vector<int64_t> shape)
      : Array(name, data, {kDLInt, 64, 1}, shape) {}
  Array(const char *name, const float *data, std::vector<int64_t> shape)
      : Array(name, data, {kDLFloat, 32, 1}, shape) {}
  Array(const char *name, const void *data, DLDataType type, std::vector<int64_t> shape)
      : name_(name), data_(data), type_(type), shape_(std::move(shape)) {}
  // `tensor` is where the view is kept; both live as long as the call.
  eng_tensor_in in(DLTensor &tensor) const {
    tensor = {const_cast<void *>(data_),
              {kDLCPU, 0},
              static_cast<int32_t>(shape_.size()),
              type_,
              const_cast<int64_t *>(shape_.data()),
              nullptr,
              0};
    return {sizeof(eng_tensor_in), 0, name_, nullptr, nullptr, &tensor};
  }

 private:
  const char *name_;
  const void *data_;
  DLDataType type_;
  std::vector<int64_t> shape_;
};

struct Options {
  explicit Options(std::string config) : target(std::move(config)) {}
  Options &set(std::string text) { return overrides.push_back(std::move(text)), *this; }
  std::string target, out, resume = "auto";
  std::optional<std::string> text;  // instead of a file; `target` names it
  std::vector<std::string> overrides, plugin_paths, activations, fields;
  std::vector<int64_t> lengths;
  uint32_t flags = 0;  // ENG_SESSION_*
};

// The scores of a sequence, one for each token, as eng_score_request says.
struct Score {
  std::vector<float> logprobs;
  std::vector<uint8_t> greedy;
};

class Session {
 public:
  explicit Session(const Options &o) {
    std::vector<const char *> overrides, paths, activations, fields;
    for (const std::string &one : o.overrides) overrides.push_back(one.c_str());
    for (const std::string &one : o.plugin_paths) paths.push_back(one.c_str());
    for (const std::string &one : o.activations) activations.push_back(one.c_str());
    for (const std::string &one : o.fields) fields.push_back(one.c_str());
    eng_session_request r{};
    r.struct_size = sizeof(r);
    r.flags = o.flags;
    r.target = o.target.c_str(), r.text = o.text ? o.text->c_str() : nullptr;
    r.out = o.out.empty() ? nullptr : o.out.c_str(), r.resume = o.resume.c_str();
    r.overrides = overrides.data(), r.n_overrides = static_cast<uint32_t>(overrides.size());
    r.plugin_paths = paths.data(), r.n_plugin_paths = static_cast<uint32_t>(paths.size());
    r.activations = activations.data(), r.n_activations = static_cast<uint32_t>(activations.size());
    r.fields = fields.data(), r.n_fields = static_cast<uint32_t>(fields.size());
    r.lengths = o.lengths.data(), r.n_lengths = static_cast<uint32_t>(o.lengths.size());
    call(eng_session_open, &r, &self_);
  }
  ~Session() { eng_session_close(self_, nullptr); }
  Session(Session &&other) noexcept : self_(std::exchange(other.self_, nullptr)) {}
  Session &operator=(Session &&other) = delete;
  eng_session *get() const { return self_; }

  void start() { call(eng_session_start, self_); }
  eng_session_info info() const {
    eng_session_info out{};
    out.struct_size = sizeof(out);
    call(eng_session_describe, self_, &out);
    return out;
  }
  std::string plan(uint32_t ranks = 1) const {
    return text([&](char *to, uint64_t n, uint64_t *size) { call(eng_session_plan, self_, ranks, to, n, size); });
  }
  std::string activations() const {
    return text([&](char *to, uint64_t n, uint64_t *size) { call(eng_session_activations, self_, to, n, size); });
  }
  // nullopt: no step is left, or the session was stopped.
  std::optional<eng_step_result> step(const std::vector<Array> &fields = {}) {
    eng_step_result out{};
    out.struct_size = sizeof(out);
    with(fields, [&](const eng_tensor_in *all, uint32_t n) { call(eng_session_step, self_, all, n, &out); });
    return out.ended ? std::nullopt : std::optional(out);
  }
  // With the caller's loss and its gradients by the logits, one for each micro-batch.
  std::optional<eng_step_result> step(const std::vector<Array> &fields, const std::vector<Array> &gradients,
                                      double loss) {
    eng_step_result out{};
    out.struct_size = sizeof(out);
    with(gradients, [&](const eng_tensor_in *each, uint32_t count) {
      const eng_own_loss own = {sizeof(own), count, each, loss};
      with(fields,
           [&](const eng_tensor_in *all, uint32_t n) { call(eng_session_step_with_loss, self_, all, n, &own, &out); });
    });
    return out.ended ? std::nullopt : std::optional(out);
  }
  eng_eval_result evaluate(const std::vector<Array> &fields = {}, int64_t batches = 0) {
    eng_eval_result out{};
    out.struct_size = sizeof(out);
    with(fields,
         [&](const eng_tensor_in *all, uint32_t n) { call(eng_session_evaluate, self_, all, n, batches, &out); });
    return out;
  }
  // `length`: one of Options::lengths; 0: that of the configuration.
  Tensor logits(const std::vector<Array> &fields, int64_t length = 0) {
    with(fields, [&](const eng_tensor_in *all, uint32_t n) { call(eng_session_logits, self_, all, n); });
    return take(length ? "logits " + std::to_string(length) : "logits", ENG_TENSOR_ACTIVATION);
  }
  std::vector<Score> score(const std::vector<std::vector<int32_t>> &sequences) {
    std::vector<int32_t> ids;
    std::vector<uint64_t> ends;
    for (const auto &one : sequences) ids.insert(ids.end(), one.begin(), one.end()), ends.push_back(ids.size());
    std::vector<float> logprobs(ids.size());
    std::vector<uint8_t> greedy(ids.size());
    eng_score_request r{};
    r.struct_size = sizeof(r), r.n = static_cast<uint32_t>(ends.size());
    r.ids = ids.data(), r.ends = ends.data(), r.logprobs = logprobs.data(), r.greedy = greedy.data();
    call(eng_session_score, self_, &r);
    std::vector<Score> out;
    for (size_t k = 0; k < ends.size(); ++k) {
      const auto from = static_cast<std::ptrdiff_t>(k ? ends[k - 1] : 0), to = static_cast<std::ptrdiff_t>(ends[k]);
      out.push_back({{logprobs.begin() + from, logprobs.begin() + to}, {greedy.begin() + from, greedy.begin() + to}});
    }
    return out;
  }
  void set_rate(double rate) { call(eng_session_set_rate, self_, rate); }
  std::vector<int32_t> encode(const std::string &text, uint32_t flags = 0) const {
    uint64_t n = 0;
    call(eng_session_encode, self_, text.data(), static_cast<uint64_t>(text.size()), flags, nullptr, uint64_t{0}, &n);
    std::vector<int32_t> out(n);
    call(eng_session_encode, self_, text.data(), static_cast<uint64_t>(text.size()), flags, out.data(), n, &n);
    return out;
  }
  std::string decode(const std::vector<int32_t> &ids) const {
    return text([&](char *to, uint64_t n, uint64_t *size) {
      call(eng_session_decode, self_, ids.data(), static_cast<uint64_t>(ids.size()), to, n, size);
    });
  }
  void generate(const eng_generate_request &request) { call(eng_session_generate, self_, &request); }
  Tensor take(const std::string &name, const std::string &role = ENG_TENSOR_PARAMETER, uint32_t flags = 0) {
    DLManagedTensorVersioned *out = nullptr;
    call(eng_session_take, self_, name.c_str(), role.c_str(), flags, &out);
    return Tensor(out);
  }
  void write(const std::string &name, const Array &value, const std::string &role = ENG_TENSOR_PARAMETER,
             uint32_t flags = 0) {
    DLTensor view;
    const eng_tensor_in in = value.in(view);
    call(eng_session_write, self_, name.c_str(), role.c_str(), &in, flags);
  }
  std::vector<eng_tensor_info> tensors() {
    std::vector<eng_tensor_info> out(info().tensors);
    for (uint64_t k = 0; k < out.size(); ++k) {
      out[k].struct_size = sizeof(out[k]);
      call(eng_session_tensor, self_, k, &out[k]);
    }
    return out;
  }
  void save() { call(eng_session_save, self_); }
  void stop() { eng_session_stop(self_); }
  // Tells what went wrong, which the destructor cannot.
  void close() { call(eng_session_close, std::exchange(self_, nullptr)); }

 private:
  template <class Get>
  static std::string text(const Get &get) {
    std::string out(1 << 16, '\0');
    for (uint64_t size = 0;; out.resize(size)) {
      get(out.data(), static_cast<uint64_t>(out.size()), &size);
      if (size <= out.size()) return out.resize(size), out;
    }
  }
  template <class Use>
  static void with(const std::vector<Array> &fields, const Use &use) {
    std::vector<DLTensor> views(fields.size());
    std::vector<eng_tensor_in> all;
    for (size_t k = 0; k < fields.size(); ++k) all.push_back(fields[k].in(views[k]));
    use(all.data(), static_cast<uint32_t>(all.size()));
  }
  eng_session *self_ = nullptr;
};

}  // namespace engine

#endif

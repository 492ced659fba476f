// SPDX-License-Identifier: Apache-2.0
// The functions of engine/embed.h: nothing is thrown across, and results are written only on success.
#include <algorithm>
#include <cstring>
#include <optional>

#include "session/config/failure.hpp"
#include "session/embed/embedded.hpp"
#include "session/version.hpp"

struct eng_session {
  explicit eng_session(const eng_session_request& request) : embedded(request) {}
  eng::Embedded embedded;
};

namespace eng {
namespace {

eng_status status_of(Exit exit) {
  switch (exit) {
    case Exit::usage:
      return ENG_INVALID;
    case Exit::data:
    case Exit::checkpoint:
      return ENG_DATA_LOSS;
    case Exit::device_memory:
    case Exit::host_memory:
      return ENG_NO_MEMORY;
    case Exit::numerics:
      return ENG_OUT_OF_RANGE;
    case Exit::environment:
    case Exit::communication:
    case Exit::disk:
      return ENG_UNAVAILABLE;
    default:
      return ENG_INTERNAL;
  }
}

eng_status report_failure(eng_error* sink) noexcept {
  eng_status status = ENG_INTERNAL;
  try {
    const std::exception_ptr reason = std::current_exception();
    const Failure why = failure(reason);
    status = status_of(static_cast<Exit>(why.exit));
    try {
      std::rethrow_exception(reason);
    } catch (const Unsupported&) {
      status = ENG_UNSUPPORTED;
    } catch (const NotFound&) {
      status = ENG_NOT_FOUND;
    } catch (const Precondition&) {
      status = ENG_PRECONDITION;
    } catch (...) {
    }
    return report(sink, status, why.help.empty() ? why.text : fmt::format("{}\nhelp: {}", why.text, why.help));
  } catch (...) {  // no memory for the text
    return status;
  }
}

// Runs `work`; every exception becomes a status and a text.
template <class Work>
eng_status guarded(eng_error* sink, const Work& work) noexcept {
  try {
    work();
    return ENG_OK;
  } catch (...) {
    return report_failure(sink);
  }
}

// A struct of the caller, by the growth rules of engine/base.h.
template <class Struct>
Struct taken(const Struct* theirs, const char* what) {
  if (!theirs || theirs->struct_size < 8)
    throw Error(Exit::usage, fmt::format("{} is NULL, or has no struct_size", what));
  Struct out{};
  std::memcpy(&out, theirs, std::min<size_t>(theirs->struct_size, sizeof(out)));
  return out;
}

template <class Struct>
void put(const Struct& mine, Struct* theirs) {
  const uint32_t size = theirs->struct_size;
  std::memcpy(theirs, &mine, std::min<size_t>(size, sizeof(mine)));
  theirs->struct_size = size;
}

template <class Struct>
void need_room(const Struct* out, const char* what) {
  if (!out || out->struct_size < 8) throw Error(Exit::usage, fmt::format("{} is NULL, or has no struct_size", what));
}

// The session while `function` of this thread uses it.
class Used {
 public:
  Used(eng_session* self, const char* function) : self_(self) {
    if (!self) throw Error(Exit::usage, "there is no session (NULL)");
    self->embedded.owner.enter(function);
  }
  ~Used() { self_->embedded.owner.leave(); }
  Used(const Used&) = delete;
  Used& operator=(const Used&) = delete;
  Embedded* operator->() const { return &self_->embedded; }

 private:
  eng_session* self_;
};

// From here on the tensors are the engine's, whatever happens.
std::vector<eng_tensor_in> fields_of(const eng_tensor_in* fields, uint32_t n) {
  std::vector<eng_tensor_in> out;
  const auto* at = reinterpret_cast<const char*>(fields);
  for (uint32_t k = 0; k < n; ++k) {
    // An array has one size of element, that of the caller.
    if (!fields) throw Error(Exit::usage, "fields is NULL");
    const eng_tensor_in* one = reinterpret_cast<const eng_tensor_in*>(at);
    out.push_back(taken(one, "a field"));
    at += one->struct_size;
  }
  return out;
}

struct Legacy {
  DLManagedTensor managed;
  DLManagedTensorVersioned* from;
};

void put_text(const std::string& all, char* text, uint64_t capacity, uint64_t* size) {
  if (!size) throw Error(Exit::usage, "size is NULL");
  *size = all.size();
  if (text) std::memcpy(text, all.data(), std::min<uint64_t>(capacity, all.size()));
}

const char* role_of(const char* role) {
  return role ? role : ENG_TENSOR_PARAMETER;
}

std::string name_of(const char* name) {
  if (!name) throw Error(Exit::usage, "name is NULL");
  return name;
}

}  // namespace
}  // namespace eng

using namespace eng;

extern "C" {

const char* eng_session_draft(void) {
  return ENG_EMBED_DRAFT;
}

const char* eng_session_version(void) {
  return version;
}

eng_status eng_session_open(const eng_session_request* request, eng_session** out, eng_error* error) {
  return guarded(error, [&] {
    if (!out) throw Error(Exit::usage, "out is NULL");
    *out = new eng_session(taken(request, "request"));
  });
}

eng_status eng_session_start(eng_session* self, eng_error* error) {
  return guarded(error, [&] { Used(self, "start")->start(); });
}

eng_status eng_session_plan(eng_session* self, uint32_t ranks, char* text, uint64_t capacity, uint64_t* size,
                            eng_error* error) {
  return guarded(error, [&] { put_text(Used(self, "plan")->plan(ranks), text, capacity, size); });
}

eng_status eng_session_activations(eng_session* self, char* text, uint64_t capacity, uint64_t* size, eng_error* error) {
  return guarded(error, [&] { put_text(Used(self, "activations")->activations(), text, capacity, size); });
}

eng_status eng_session_describe(eng_session* self, eng_session_info* info, eng_error* error) {
  return guarded(error, [&] {
    need_room(info, "info");
    put(Used(self, "describe")->describe(), info);
  });
}

eng_status eng_session_step(eng_session* self, const eng_tensor_in* fields, uint32_t n, eng_step_result* out,
                            eng_error* error) {
  return guarded(error, [&] {
    const std::vector<eng_tensor_in> all = fields_of(fields, n);
    std::optional<Used> used;
    try {
      if (out) need_room(out, "out");
      used.emplace(self, "step");
    } catch (...) {
      refuse_all(all);
      throw;
    }
    const eng_step_result result = (*used)->step(all);
    if (out) put(result, out);
  });
}

eng_status eng_session_step_with_loss(eng_session* self, const eng_tensor_in* fields, uint32_t n,
                                      const eng_own_loss* loss, eng_step_result* out, eng_error* error) {
  return guarded(error, [&] {
    const std::vector<eng_tensor_in> all = fields_of(fields, n);
    std::optional<OwnLoss> own;
    std::optional<Used> used;
    try {
      const eng_own_loss given = taken(loss, "loss");
      own.emplace(fields_of(given.gradients, given.n), given.loss);
      if (out) need_room(out, "out");
      used.emplace(self, "step_with_loss");
    } catch (...) {
      refuse_all(all);
      throw;
    }
    const eng_step_result result = (*used)->step(all, &*own);
    if (out) put(result, out);
  });
}

eng_status eng_session_evaluate(eng_session* self, const eng_tensor_in* fields, uint32_t n, int64_t batches,
                                eng_eval_result* out, eng_error* error) {
  return guarded(error, [&] {
    const std::vector<eng_tensor_in> all = fields_of(fields, n);
    std::optional<Used> used;
    try {
      need_room(out, "out");
      used.emplace(self, "evaluate");
    } catch (...) {
      refuse_all(all);
      throw;
    }
    put((*used)->evaluate(all, batches), out);
  });
}

eng_status eng_session_logits(eng_session* self, const eng_tensor_in* fields, uint32_t n, eng_error* error) {
  return guarded(error, [&] {
    const std::vector<eng_tensor_in> all = fields_of(fields, n);
    std::optional<Used> used;
    try {
      used.emplace(self, "logits");
    } catch (...) {
      refuse_all(all);
      throw;
    }
    (*used)->logits(all);
  });
}

eng_status eng_session_generate(eng_session* self, const eng_generate_request* request, eng_error* error) {
  return guarded(error, [&] { Used(self, "generate")->generate(taken(request, "request")); });
}

eng_status eng_session_score(eng_session* self, const eng_score_request* request, eng_error* error) {
  return guarded(error, [&] { Used(self, "score")->score(taken(request, "request")); });
}

eng_status eng_session_set_rate(eng_session* self, double rate, eng_error* error) {
  return guarded(error, [&] { Used(self, "set_rate")->set_rate(rate); });
}

eng_status eng_session_tokenizer(eng_session* self, eng_tokenizer_info* out, eng_error* error) {
  return guarded(error, [&] {
    need_room(out, "out");
    const Used used(self, "tokenizer");
    put(used->tokenizer().info(), out);
  });
}

eng_status eng_session_encode(eng_session* self, const char* text, uint64_t size, uint32_t flags, int32_t* ids,
                              uint64_t capacity, uint64_t* count, eng_error* error) {
  return guarded(error, [&] {
    if (flags & ~ENG_TEXT_SPECIAL) throw Error(Exit::usage, fmt::format("flags {:#x} are unknown", flags));
    if ((size && !text) || !count) throw Error(Exit::usage, "text or count is NULL");
    const Used used(self, "encode");
    const std::vector<int32_t> all = used->tokenizer().encode({text, size}, flags & ENG_TEXT_SPECIAL);
    *count = all.size();
    if (ids) std::copy_n(all.begin(), std::min<uint64_t>(capacity, all.size()), ids);
  });
}

eng_status eng_session_decode(eng_session* self, const int32_t* ids, uint64_t count, char* text, uint64_t capacity,
                              uint64_t* size, eng_error* error) {
  return guarded(error, [&] {
    if (count && !ids) throw Error(Exit::usage, "ids is NULL");
    const Used used(self, "decode");
    const Tokenizer& tokenizer = used->tokenizer();
    std::string all;
    for (uint64_t k = 0; k < count; ++k) {
      if (ids[k] < 0 || ids[k] >= tokenizer.info().vocabulary)
        throw Error(Exit::usage,
                    fmt::format("id {} is {}: the tokenizer has {} ids", k, ids[k], tokenizer.info().vocabulary));
      all += tokenizer.decode(ids[k]);
    }
    put_text(all, text, capacity, size);
  });
}

eng_status eng_session_tensor(eng_session* self, uint64_t index, eng_tensor_info* out, eng_error* error) {
  return guarded(error, [&] {
    need_room(out, "out");
    put(Used(self, "tensor")->tensor(index), out);
  });
}

eng_status eng_session_take(eng_session* self, const char* name, const char* role, uint32_t flags,
                            DLManagedTensorVersioned** out, eng_error* error) {
  return guarded(error, [&] {
    if (!out) throw Error(Exit::usage, "out is NULL");
    *out = Used(self, "take")->take(name_of(name), role_of(role), flags);
  });
}

eng_status eng_session_take_legacy(eng_session* self, const char* name, const char* role, uint32_t flags,
                                   DLManagedTensor** out, eng_error* error) {
  return guarded(error, [&] {
    if (!out) throw Error(Exit::usage, "out is NULL");
    if (!(flags & (ENG_TAKE_WRITABLE | ENG_TAKE_COPY)))
      throw Unsupported("a tensor of DLPack before 1.0 cannot be read-only", "take it writable, or a copy");
    auto made = std::make_unique<Legacy>();
    made->from = Used(self, "take")->take(name_of(name), role_of(role), flags);
    made->managed = {made->from->dl_tensor, made.get(), [](DLManagedTensor* tensor) {
                       auto* legacy = static_cast<Legacy*>(tensor->manager_ctx);
                       legacy->from->deleter(legacy->from);
                       delete legacy;
                     }};
    *out = &made.release()->managed;
  });
}

eng_status eng_session_write(eng_session* self, const char* name, const char* role, const eng_tensor_in* value,
                             uint32_t flags, eng_error* error) {
  return guarded(error, [&] {
    const eng_tensor_in one = taken(value, "value");
    std::optional<Used> used;
    try {
      name_of(name);
      used.emplace(self, "write");
    } catch (...) {
      refuse_all({&one, 1});
      throw;
    }
    (*used)->write(name, role_of(role), one, flags);
  });
}

eng_status eng_session_save(eng_session* self, eng_error* error) {
  return guarded(error, [&] { Used(self, "save")->save(); });
}

void eng_session_stop(eng_session* self) {
  if (self) self->embedded.stop();
}

void eng_session_fail(eng_session* self, const char* text) {
  guarded(nullptr, [&] { Used(self, "fail")->fail(text ? text : "the program ended the run"); });
}

eng_status eng_session_close(eng_session* self, eng_error* error) {
  if (!self) return ENG_OK;
  return guarded(error, [&] {
    self->embedded.owner.enter("close");
    const std::unique_ptr<eng_session> last(self);
    self->embedded.close();
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
// Code that model plugins share: reading options (errors are thrown), declaring a parameter in one line, the C tables
// of the models of a file. Decoders share more: decoder/model.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/model.h"
#include "engine/ops.h"
#include "engine/plugin.h"
#include "error.hpp"

namespace model {

using common::guarded;
using Failure = common::Error;

[[noreturn]] inline void invalid(const std::string& text) {
  throw Failure{ENG_INVALID, text};
}

// A number for a message.
inline std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

class Reader {
 public:
  Reader(const eng_options* options, eng_error* error) : options_(options), error_(error) {}
  bool given(const char* key) const { return options_->is_set(options_, key) != 0; }
  bool flag(const char* key) const { return get<int32_t>(options_->get_bool, key) != 0; }
  int64_t integer(const char* key) const { return get<int64_t>(options_->get_int, key); }
  std::string text(const char* key) const { return get<const char*>(options_->get_string, key); }
  double real(const char* key) const {
    const double value = get<double>(options_->get_float, key);
    if (!std::isfinite(value)) invalid(std::string(key) + " must be a finite number");
    return value;
  }
  std::vector<double> reals(const char* key) const {
    std::vector<double> out(get<uint32_t>(options_->get_count, key));
    for (uint32_t i = 0; i < out.size(); ++i) {
      if (eng_status s = options_->get_float_at(options_, key, i, &out[i], error_)) throw Failure{s, ""};
    }
    return out;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out(get<uint32_t>(options_->get_count, key));
    for (uint32_t i = 0; i < out.size(); ++i) {
      const char* text = nullptr;
      if (eng_status s = options_->get_string_at(options_, key, i, &text, error_)) throw Failure{s, ""};
      out[i] = text;
    }
    return out;
  }
  int64_t integer_or(const char* key, int64_t fallback) const { return given(key) ? integer(key) : fallback; }
  double real_or(const char* key, double fallback) const { return given(key) ? real(key) : fallback; }
  int64_t at_least_one(const char* key, int64_t value) const {
    if (value < 1) invalid(std::string(key) + " is " + std::to_string(value) + "; it must be at least 1");
    return value;
  }
  int64_t size(const char* key) const { return at_least_one(key, integer(key)); }
  // An ENG_ACT_* by its Hugging Face name. gelu_fast and gelu_accurate are other spellings of gelu_new's formula.
  int64_t activation(const char* key) const {
    static constexpr std::pair<const char*, int64_t> names[] = {
        {"silu", ENG_ACT_SILU},           {"swish", ENG_ACT_SILU},
        {"gelu", ENG_ACT_GELU},           {"gelu_python", ENG_ACT_GELU},
        {"gelu_new", ENG_ACT_GELU_TANH},  {"gelu_pytorch_tanh", ENG_ACT_GELU_TANH},
        {"gelu_fast", ENG_ACT_GELU_TANH}, {"gelu_accurate", ENG_ACT_GELU_TANH},
        {"relu", ENG_ACT_RELU},           {"gelu_python_tanh", ENG_ACT_GELU_TANH}};
    const std::string name = text(key);
    for (const auto& [known, act] : names)
      if (name == known) return act;
    invalid(std::string(key) + " '" + name + "' is not known; use silu, gelu, gelu_new, gelu_pytorch_tanh or relu");
  }

 private:
  template <class T>
  T get(eng_status (*read)(const eng_options*, const char*, T*, eng_error*), const char* key) const {
    T value{};
    if (eng_status s = read(options_, key, &value, error_)) throw Failure{s, ""};
    return value;
  }
  const eng_options* options_;
  eng_error* error_;
};

// The initialisation of a new parameter: an op and its attributes.
struct Init {
  const char* op;
  std::vector<eng_attr> attrs;
};
inline Init constant(double value) {
  return {ENG_OP_INIT_CONSTANT, {{"value", 0, value}}};
}
inline Init normal(double std) {
  return {ENG_OP_INIT_NORMAL, {{"mean", 0, 0.0}, {"std", 0, std}}};
}
inline Init uniform(double limit) {
  return {ENG_OP_INIT_UNIFORM, {{"low", 0, -limit}, {"high", 0, limit}}};
}

// `flags`: ENG_PARAM_*.
inline eng_id param(eng_build* b, const std::string& name, const std::vector<int64_t>& dims, uint32_t flags,
                    const Init& init) {
  const eng_param param = {.struct_size = sizeof(eng_param),
                           .flags = flags,
                           .name = name.c_str(),
                           .init_op = init.op,
                           .init = init.attrs.data(),
                           .dims = dims.data(),
                           .n_init = static_cast<uint32_t>(init.attrs.size()),
                           .ndim = static_cast<uint32_t>(dims.size())};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}
// A matrix of normal numbers with mean 0.
inline eng_id matrix(eng_build* b, const std::string& name, int64_t rows, int64_t columns, double std) {
  return param(b, name, {rows, columns}, 0, normal(std));
}
// A vector without weight decay.
inline eng_id vector(eng_build* b, const std::string& name, int64_t size, double value) {
  return param(b, name, {size}, ENG_PARAM_NO_DECAY, constant(value));
}

// The blocks of a language model, each with its template: "embed", "layers.0", "layers.1", ..., "head".
constexpr uint32_t embed_template = 0, layer_template = 1, head_template = 2;
inline std::string layer_name(int64_t layer) {
  return "layers." + std::to_string(layer);
}
inline void block(eng_build* b, const std::string& name, uint32_t tmpl, const std::vector<eng_id>& params) {
  b->api->block(b, name.c_str(), tmpl, params.data(), static_cast<uint32_t>(params.size()), nullptr);
}

// The inputs of a block of a template.
struct Signature {
  uint32_t params, inputs;
};

inline std::vector<eng_id> listed(eng_id output) {
  return {output};
}
inline std::vector<eng_id> listed(std::vector<eng_id> outputs) {
  return outputs;
}

// The table of a model class M, which has
//   static constexpr const char* name;
//   M(const eng_options*, eng_error*);
//   eng_model_info describe() const;
//   void declare(eng_build*) const;
//   std::vector<Signature> templates() const;
//   eng_id trace(eng_build*, uint32_t tmpl, const eng_id* params, const eng_id* in) const;   // one output, or a vector
template <class M>
struct Boundary {
  static eng_status create(const eng_options* options, void** self, eng_error* error) {
    return guarded(error, [&] { return *self = new M(options, error), ENG_OK; });
  }
  static void destroy(void* self) { delete static_cast<M*>(self); }
  static eng_status describe(void* self, eng_model_info* out, eng_error*) {
    eng_model_info info = static_cast<M*>(self)->describe();
    info.struct_size = out->struct_size;
    std::memcpy(out, &info, std::min<size_t>(info.struct_size, sizeof info));  // an older host has less room
    return ENG_OK;
  }
  static eng_status declare(void* self, eng_build* b, eng_error* error) {
    return guarded(error, [&] { return static_cast<M*>(self)->declare(b), b->api->status(b, error); });
  }
  static eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params,
                          const eng_id* in, uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out,
                          eng_error* error) {
    return guarded(error, [&] {
      const M& m = *static_cast<M*>(self);
      const std::vector<Signature> all = m.templates();
      const std::string of = M::name;
      if (tmpl >= all.size()) invalid(of + " has no template " + std::to_string(tmpl));
      if (n_params != all[tmpl].params || n_in != all[tmpl].inputs)
        invalid(of + " template " + std::to_string(tmpl) + " takes " + std::to_string(all[tmpl].params) +
                " parameters and " + std::to_string(all[tmpl].inputs) + " inputs, not " + std::to_string(n_params) +
                " and " + std::to_string(n_in));
      const auto room_for = [&](size_t outputs) {
        if (cap < outputs) throw Failure{ENG_OUT_OF_RANGE, "the host has no room for the outputs of " + of};
      };
      room_for(1);
      const std::vector<eng_id> made = listed(m.trace(b, tmpl, params, in));
      room_for(made.size());
      const eng_status status = b->api->status(b, error);
      if (status == ENG_OK) *n_out = static_cast<uint32_t>(std::copy(made.begin(), made.end(), out) - out);
      return status;
    });
  }
  static constexpr eng_model table = {.struct_size = sizeof(eng_model),
                                      .minor = 0,
                                      .create = create,
                                      .destroy = destroy,
                                      .describe = describe,
                                      .declare = declare,
                                      .trace = trace};
};

// get_interface of a file that provides the models M...
template <class... M>
const void* interface_of(const char* kind, const char* name) {
  const std::pair<const char*, const eng_model*> all[] = {{M::name, &Boundary<M>::table}...};
  for (const auto& [known, table] : all)
    if (std::strcmp(kind, ENG_MODEL_KIND) == 0 && std::strcmp(name, known) == 0) return table;
  return nullptr;
}

}  // namespace model

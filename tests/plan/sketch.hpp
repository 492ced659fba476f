// SPDX-License-Identifier: Apache-2.0
// Models and policies written inside a test, and the plugins that were built.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/execute/device.hpp"
#include "core/program/program.hpp"
#include "core/trace/model.hpp"
#include "engine/ops.h"
#include "session/model/freeze.hpp"
#include "session/plugins/search.hpp"

namespace sketch {

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/reference", "cpu/cpu", "llama/llama", "optim/optim", "precision/precision",
                             "zero/zero", "opt/opt", "mamba/mamba", "transform/low_rank"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
#ifdef CUSTOM_OP
    search.extra.push_back(CUSTOM_OP);
#endif
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// A model as data and one function; `table()` is what a plugin would give.
struct Sketch {
  struct Param {
    std::string name;
    std::vector<int64_t> dims;
    uint32_t flags = 0;
    std::string init = ENG_OP_INIT_CONSTANT;
  };
  struct Block {
    std::string name;
    uint32_t tmpl;
    std::vector<uint32_t> params;  // indices
  };
  std::vector<Param> params;
  std::vector<Block> blocks;
  // Gives the outputs of one block.
  std::function<std::vector<eng_id>(eng_build*, uint32_t tmpl, const eng_id* params, const std::vector<eng_id>& in)>
      trace;
  eng_status trace_status = ENG_OK;
  std::vector<eng::Transform> transforms;
  eng::Loss loss;

  uint32_t param(const std::string& name, std::vector<int64_t> dims, uint32_t flags = 0) {
    params.push_back({name, std::move(dims), flags});
    return static_cast<uint32_t>(params.size() - 1);
  }

  eng::Model model(int64_t b, int64_t t, int32_t dtype, bool runs = true) const {
    current() = this;
    return eng::trace_model("sketch", table(), eng::Section(), b, t, dtype, runs, {}, transforms, loss,
                            [](eng::Model& model) { eng::freeze(model, {}); });
  }

 private:
  // `create` gets nothing but options, so the sketch in use waits here.
  static const Sketch*& current() {
    static const Sketch* now = nullptr;
    return now;
  }
  static eng_model table() {
    return {sizeof(eng_model), 0, create, [](void*) {}, describe, declare, trace_block};
  }
  static eng_status create(const eng_options*, void** self, eng_error*) {
    *self = const_cast<Sketch*>(current());
    return ENG_OK;
  }
  static eng_status describe(void*, eng_model_info* out, eng_error*) {
    out->vocabulary = 1;
    return ENG_OK;
  }
  static eng_status declare(void* self, eng_build* b, eng_error*) {
    const auto& s = *static_cast<const Sketch*>(self);
    std::vector<eng_id> ids;
    for (const Param& p : s.params) {
      const eng_attr init = {"value", 0, 1.0};
      const eng_param param = {sizeof(eng_param),
                               p.flags,
                               p.name.c_str(),
                               p.init.c_str(),
                               &init,
                               p.dims.data(),
                               1,
                               static_cast<uint32_t>(p.dims.size())};
      ids.push_back(0);
      b->api->param(b, &param, &ids.back(), nullptr);
    }
    for (const Block& block : s.blocks) {
      std::vector<eng_id> list;
      for (uint32_t p : block.params) list.push_back(ids[p]);
      b->api->block(b, block.name.c_str(), block.tmpl, list.data(), static_cast<uint32_t>(list.size()), nullptr);
    }
    return ENG_OK;
  }
  static eng_status trace_block(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t,
                                const eng_id* in, uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out,
                                eng_error* error) {
    const auto& s = *static_cast<const Sketch*>(self);
    const std::vector<eng_id> made = s.trace(b, tmpl, params, std::vector<eng_id>(in, in + n_in));
    if (s.trace_status != ENG_OK) return eng::report(error, s.trace_status, "the sketch gave up");
    *n_out = static_cast<uint32_t>(made.size());
    for (size_t k = 0; k < made.size() && k < cap; ++k) out[k] = made[k];
    return ENG_OK;
  }
};

inline eng_id batch(eng_build* b, const char* name) {
  eng_id id = 0;
  b->api->batch(b, name, &id, nullptr);
  return id;
}

// A precision policy with one dtype for everything but parameters that must stay fp32. `meddle` changes a field that
// is not its own.
struct OneDtype {
  int32_t dtype;
  bool meddle = false;
  eng::Precision policy() const {
    const eng_axis table = {sizeof(eng_axis), 0,       nullptr, nullptr, place,   nullptr,
                            nullptr,          nullptr, 0,       0,       nullptr, nullptr};
    return {{"precision", "one", table, std::make_shared<OneDtype>(*this)}};
  }
  static eng_status place(void* self, const eng_unit* unit, int32_t, eng_view* io, eng_error*) {
    const auto& one = *static_cast<const OneDtype*>(self);
    io->dtype = unit && (unit->flags & ENG_PARAM_FP32) ? ENG_F32 : one.dtype;
    if (one.meddle) io->part = 1;
    return ENG_OK;
  }
};

inline eng::Section section(const std::string& name, std::map<std::string, eng::Setting> settings = {}) {
  return eng::Section(name, std::move(settings));
}

}  // namespace sketch

// SPDX-License-Identifier: Apache-2.0
// A host of the job with a model of a few lines: gradients come from the test, programs run as they are emitted.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "core/config/section.hpp"
#include "eager_build.hpp"
#include "session/plugins/plugin_file.hpp"

namespace curvature_test {

using Floats = std::vector<float>;

// A model that is trained on windows: what the host must know of it.
struct Toy {
  struct Parameter {
    std::string name;
    Dims dims;
    uint32_t block;
    Floats values;
  };
  struct SiteOf {
    std::string op, block;
    uint32_t block_number;
    int64_t units, act;
  };
  std::vector<Parameter> parameters;
  std::vector<SiteOf> sites;
  uint64_t held = 64, train = 64;
  int64_t length = 16;  // tokens of a window
  virtual ~Toy() = default;
  // The sum of losses of the tokens of a window, with these parameters. Adds the gradient of the sum to `grads`, if it
  // is not NULL, and writes the outputs of the sites (length x units each) if `outputs` is not.
  virtual double window(const Tensors& with, uint32_t split, uint64_t number, std::vector<std::vector<double>>* grads,
                        std::vector<Floats>* outputs) const = 0;
};

using Given = std::map<std::string, eng::Value>;

// The defaults of the description, and what is given.
inline eng::Section job_section(const Given& given) {
  eng::Description about;
  const std::string wrong = eng::parse_description(std::string(curvature_plugin()->describe()), about);
  if (!wrong.empty()) throw std::logic_error(wrong);
  std::map<std::string, eng::Setting> settings;
  for (const eng::Provided& provided : about.provides)
    if (provided.kind == ENG_JOB_KIND)
      for (const eng::Option& option : provided.schema.options) settings[option.key].value = option.fallback;
  for (const auto& [key, value] : given) {
    if (!settings.count(key)) throw std::logic_error("no key " + key);
    settings[key].value = value;
  }
  return eng::Section("job", settings);
}

// The values that a run keeps: states by number and parameter, values.
struct Kept {
  std::map<std::pair<uint32_t, uint32_t>, Tensor> states;
  std::map<uint32_t, Tensor> values;
};

class ToyHost : public eng_job_host {
 public:
  ToyHost(const Toy& toy, const Given& given, const Kept& from = {}, int64_t part_of = 1 << 20)
      : eng_job_host{api_table()}, toy_(toy), section_(job_section(given)), options_(section_), part_(part_of) {
    job_ = static_cast<const eng_job*>(curvature_plugin()->get_interface(ENG_JOB_KIND, "curvature"));
    Sink sink;
    sink.check(job_->create(options_.get(), &self_, sink.get()));
    owned_ = {self_, job_->destroy};
    info_.struct_size = sizeof info_;
    sink.check(job_->describe(self_, &info_, sink.get()));
    for (const auto& p : toy.parameters) {
      shapes_.push_back(desc(ENG_F32, p.dims));
      Tensor t(ENG_F32, {elements(shapes_.back())});
      std::copy(p.values.begin(), p.values.end(), t.as<float>());
      masters.push_back(t), grads_.push_back(t);
    }
    for (uint32_t k = 0; k < masters.size(); ++k)
      parameters_.push_back({sizeof(eng_parameter), 0, toy.parameters[k].name.c_str(), &shapes_[k], options_.get(),
                             toy.parameters[k].block, 9, k, 0});
    for (const auto& p : parameters_) pointers_.push_back(&p);
    make_states();
    make_sites();
    for (const auto& [at, tensor] : from.states) states_.at(at.first).at(at.second) = tensor;
    for (const auto& [at, tensor] : from.values) values_.at(at) = tensor;
  }
  ToyHost(const ToyHost&) = delete;

  eng_status run() {
    error_text.clear();
    eng_error error{sizeof(eng_error), 0, this, [](eng_error* e, eng_status, const char* text, uint64_t length) {
                      static_cast<ToyHost*>(e->data)->error_text.assign(text, length);
                    }};
    return job_->run(self_, this, &error);
  }
  const Tensor& state(uint32_t number, uint32_t parameter) const { return states_.at(number).at(parameter); }
  nlohmann::json results() const { return nlohmann::json::parse(files.at("results.json")); }

  std::vector<Tensor> masters;
  Kept saved;
  std::map<std::string, std::string> files;
  std::string error_text;
  std::vector<std::string> notes;
  int saves = 0, gradients = 0, stop_after_saves = 1 << 30;  // then it answers as after SIGINT
  const eng_job_info& info() const { return info_; }

 private:
  void make_states() {
    Sink sink;
    eng_state_rule rules[8] = {};
    uint32_t n = 0;
    sink.check(job_->states(self_, rules, 8, &n, sink.get()));
    for (uint32_t s = 0; s < n; ++s) {
      states_.emplace_back();
      for (const eng_parameter& p : parameters_) {
        eng_state_shape shape{sizeof(eng_state_shape), ENG_STATE_ELEMENTS, 0, 0, 0, 0, {}};
        if (rules[s].shape) sink.check(rules[s].shape(self_, &p, &shape, sink.get()));
        const int64_t per = shape.kind == ENG_STATE_BLOCKS ? shape.block : 1;
        states_.back().push_back(Tensor(rules[s].dtype, {(elements(*p.shape) + per - 1) / per}));
      }
    }
    eng_job_value list[4] = {};
    sink.check(job_->values(self_, list, 4, &n, sink.get()));
    for (uint32_t v = 0; v < n; ++v) values_.push_back(Tensor(list[v].shape));
  }
  void make_sites() {
    Sink sink;
    sites_.reserve(toy_.sites.size()), site_shapes_.reserve(toy_.sites.size()), attrs_.reserve(toy_.sites.size());
    for (const auto& s : toy_.sites) {
      site_shapes_.push_back(desc(ENG_F32, {1, toy_.length, s.units}));
      attrs_.push_back(whole("act", s.act));
      sites_.push_back({sizeof(eng_job_site), s.block_number, s.block.c_str(), s.op.c_str(), 0, 0, &attrs_.back(), 1,
                        uint32_t(sites_.size()), &site_shapes_.back()});
      eng_desc out{};
      sink.check(job_->site(self_, &sites_.back(), &out, sink.get()));
      if (out.ndim) sites_.back().number = uint32_t(places_.size()), places_.push_back(&sites_.back());
      if (out.ndim) counts_.push_back(Tensor(out));
    }
  }

  void program(uint32_t k, const float* numbers, uint32_t n, int64_t counter) {
    Tensor scalars(ENG_F32, {ENG_S_COUNT}), counters = counters_of(counter);
    for (uint32_t i = 0; i < n; ++i) scalars.as<float>()[ENG_S_LR + i] = numbers[i];
    for (uint32_t p = 0; p < masters.size(); ++p)
      for (int64_t first = 0; first < masters[p].size(); first += part_) {
        const int64_t count = std::min(part_, masters[p].size() - first);
        const Tensor before = masters[p];
        EagerBuild b(device());
        eng_update run{};
        run.struct_size = sizeof run, run.stage = k;
        run.master = b.add(masters[p], first, count), run.grad = b.add(grads_[p], first, count);
        run.scalars = b.add(scalars), run.counters = b.add(counters), run.seed = 77;
        std::vector<eng_id> states;
        for (auto& state : states_) {
          const bool blocks = state[p].size() != masters[p].size();
          states.push_back(blocks ? b.add(state[p], first / 4096, (count + 4095) / 4096)
                                  : b.add(state[p], first, count));
        }
        run.states = states.data(), run.n_states = uint32_t(states.size());
        const eng_range range = {&parameters_[p], uint64_t(first), uint64_t(count), 0};
        run.ranges = &range, run.n_ranges = 1;
        Sink sink;
        sink.check(job_->emit(self_, &b, &run, sink.get()));
        if (!(info_.writes >> k & 1) && !before.same_bits(masters[p]))
          throw std::logic_error("a program that may not write a parameter did");
      }
  }
  double gradient(uint64_t first) {
    std::vector<std::vector<double>> sums;
    for (const Tensor& t : masters) sums.emplace_back(size_t(t.size()), 0.0);
    double loss = 0;
    for (uint64_t w = first; w < first + info_.windows; ++w)
      loss += toy_.window(masters, ENG_JOB_TRAIN, w, &sums, nullptr);
    const double tokens = double(info_.windows) * double(toy_.length);
    for (size_t p = 0; p < sums.size(); ++p)
      for (size_t i = 0; i < sums[p].size(); ++i) grads_[p].as<float>()[i] = float(sums[p][i] / tokens);
    ++gradients;
    return loss / tokens;
  }
  void losses(uint32_t split, uint64_t first, uint32_t n, int32_t sites, double* sums, int64_t* labels) {
    for (uint32_t k = 0; k < n; ++k) {
      sums[k] = 0, labels[k] = toy_.length * info_.micro_batch;
      for (uint64_t w = 0; w < info_.micro_batch; ++w) {
        std::vector<Floats> outputs(toy_.sites.size());
        sums[k] += toy_.window(masters, split, first + uint64_t(k) * info_.micro_batch + w, nullptr, &outputs);
        for (const eng_job_site* s : places_) {
          if (!sites) break;
          const auto k_th = size_t(s - sites_.data());
          Tensor x(site_shapes_[k_th]);
          std::copy(outputs[k_th].begin(), outputs[k_th].end(), x.as<float>());
          EagerBuild b(device());
          const eng_id value = b.add(x);
          Sink sink;
          sink.check(job_->observe(self_, &b, s, value, b.add(counts_[s->number]), sink.get()));
        }
      }
    }
  }
  Tensor& tensor(uint32_t what, uint32_t state, uint32_t index) {
    if (what == ENG_JOB_PARAMETER) return masters.at(index);
    if (what == ENG_JOB_GRADIENT) return grads_.at(index);
    if (what == ENG_JOB_STATE) return states_.at(state).at(index);
    return what == ENG_JOB_VALUE ? values_.at(index) : counts_.at(index);
  }
  void save() {
    for (uint32_t s = 0; s < states_.size(); ++s)
      for (uint32_t p = 0; info_.kept >> s & 1 && p < masters.size(); ++p) saved.states[{s, p}] = states_[s][p];
    for (uint32_t v = 0; v < values_.size(); ++v) saved.values[v] = values_[v];
    ++saves;
  }

  static const Device& device() {
    static const Fast fast("auto", 1);
    return fast;
  }
  static ToyHost& me(eng_job_host* h) { return *static_cast<ToyHost*>(h); }
  static eng_job_api make_api() {
    eng_job_api t{};
    t.struct_size = sizeof t;
    t.parameters = [](eng_job_host* h, const eng_parameter* const** out, uint32_t* n, eng_error*) -> eng_status {
      *out = me(h).pointers_.data(), *n = uint32_t(me(h).pointers_.size());
      return ENG_OK;
    };
    t.sites = [](eng_job_host* h, const eng_job_site* const** out, uint32_t* n, eng_error*) -> eng_status {
      *out = me(h).places_.data(), *n = uint32_t(me(h).places_.size());
      return ENG_OK;
    };
    t.windows = [](eng_job_host* h, uint32_t split, uint64_t* n, int64_t* length, eng_error*) -> eng_status {
      *n = split == ENG_JOB_HELD ? me(h).toy_.held : me(h).toy_.train, *length = me(h).toy_.length;
      return ENG_OK;
    };
    t.gradient = [](eng_job_host* h, uint32_t, uint64_t first, double* loss, eng_error*) -> eng_status {
      const double value = me(h).gradient(first);
      if (loss) *loss = value;
      return ENG_OK;
    };
    t.losses = [](eng_job_host* h, uint32_t split, uint64_t first, uint32_t n, int32_t sites, double* sums,
                  int64_t* labels, eng_error*) -> eng_status {
      me(h).losses(split, first, n, sites, sums, labels);
      return ENG_OK;
    };
    t.program = [](eng_job_host* h, uint32_t k, const float* numbers, uint32_t n, int64_t counter,
                   eng_error*) -> eng_status {
      me(h).program(k, numbers, n, counter);
      return ENG_OK;
    };
    t.read = [](eng_job_host* h, uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t n, void* out,
                eng_error*) -> eng_status {
      const Tensor& from = me(h).tensor(what, state, index);
      if (int64_t(first + n) > from.size()) throw std::logic_error("read beyond a tensor");
      const size_t size = dtype_size(from.d.dtype);
      std::memcpy(out, from.memory.data() + first * size, n * size);
      return ENG_OK;
    };
    t.write = [](eng_job_host* h, uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t n,
                 const void* data, eng_error*) -> eng_status {
      Tensor& to = me(h).tensor(what, state, index);
      if (int64_t(first + n) > to.size()) throw std::logic_error("written beyond a tensor");
      const size_t size = dtype_size(to.d.dtype);
      std::memcpy(to.memory.data() + first * size, data, n * size);
      return ENG_OK;
    };
    t.save = [](eng_job_host* h, eng_error*) -> eng_status {
      me(h).save();
      return ENG_OK;
    };
    t.progress = [](eng_job_host* h, const char*, uint64_t, uint64_t, const char* note, eng_error*) -> eng_status {
      if (note) me(h).notes.push_back(note);
      return me(h).saves >= me(h).stop_after_saves ? ENG_UNAVAILABLE : ENG_OK;
    };
    t.file = [](eng_job_host* h, const char* name, const void* data, uint64_t size, eng_error*) -> eng_status {
      me(h).files[name].assign(static_cast<const char*>(data), size);
      return ENG_OK;
    };
    t.facts = [](eng_job_host*, const char** json, uint64_t* length, eng_error*) -> eng_status {
      static const std::string text = R"({"device": "toy", "model": {"hash": "1234"}})";
      *json = text.data(), *length = text.size();
      return ENG_OK;
    };
    return t;
  }
  static const eng_job_api* api_table() {
    static const eng_job_api table = make_api();
    return &table;
  }

  const Toy& toy_;
  const eng::Section section_;
  const eng::Options options_;
  int64_t part_;
  const eng_job* job_ = nullptr;
  void* self_ = nullptr;
  std::shared_ptr<void> owned_;
  eng_job_info info_{};
  std::vector<eng_desc> shapes_, site_shapes_;
  std::vector<eng_attr> attrs_;
  std::vector<eng_parameter> parameters_;
  std::vector<const eng_parameter*> pointers_;
  std::vector<eng_job_site> sites_;
  std::vector<const eng_job_site*> places_;
  std::vector<Tensor> grads_, values_, counts_;
  std::vector<std::vector<Tensor>> states_;
};

}  // namespace curvature_test

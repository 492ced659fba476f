// SPDX-License-Identifier: Apache-2.0
#include "core/plan/blocks.hpp"

#include <set>

#include "engine/ops.h"

namespace eng {

// Parameters are counted by their position in the block.
struct BlockEmitter::Storage {
  std::vector<Id> memory_of;      // value -> the input whose memory it takes; 0: memory of its own
  std::vector<int64_t> gradient;  // value -> the parameter whose gradient buffer it can be written to; -1: none
  // Per parameter: the widest type of a buffer to which its gradient is written. It is made in memory of its own and
  // added to other buffers last. 0: to all.
  std::vector<int32_t> widest;
  bool fits(size_t k, int32_t dtype, const View& buffer) const {
    return widest[k] && (buffer.desc.dtype == widest[k] || buffer.desc.dtype == dtype);
  }
};

namespace {

// The reads of each value of a block in training: the last node that reads it, and how many there are. A value that
// leaves the block is read once more per list that names it, after all nodes (SIZE_MAX).
struct Readers {
  std::vector<size_t> last, times;
  explicit Readers(const Template& t) : last(t.graph.size() + 1, 0), times(t.graph.size() + 1, 0) {
    for (size_t n = 0; n < t.graph.nodes.size(); ++n)
      if (n >= t.forward || !t.skip[n])
        for (Id i : t.graph.nodes[n].in) last[i] = n, ++times[i];
    for (const auto* list : {&t.outputs, &t.train_outputs, &t.d_inputs, &t.d_params})
      for (Id i : *list) last[i] = SIZE_MAX, ++times[i];
    for (const Term& term : t.terms)
      for (Id i : {term.value, term.trained}) last[i] = SIZE_MAX, ++times[i];
  }
};

// Seeds of the same shape may share memory: the next block may pass one gradient for several of its inputs. So node n
// may overwrite seed `root` only if all others are read before n. True if `root` is not a seed.
bool other_seeds_read(const Template& t, Id root, size_t n, const std::vector<size_t>& last) {
  if (t.graph.value(root).kind != SymbolKind::seed) return true;
  for (Id seed : t.seeds)
    if (seed && seed != root && last[seed] >= n && same(t.graph.value(seed).desc, t.graph.value(root).desc))
      return false;
  return true;
}

// A view of the same elements in this shape, in its own type.
View shaped(const View& view, eng_desc desc) {
  desc.dtype = view.desc.dtype;
  return reshape(view, desc);
}

// A weight as the template of a block reads it, which may see fewer rows than there are; absent while it is not leased.
View weight_of(const MicroBatch& batch, const Block& block, const Symbol& v) {
  const View& all = (*batch.weights)[block.params[v.index]];
  return all.buffer ? shaped(all, v.desc) : all;
}

// A state is overwritten only by an op that must work in place, which was emitted to write it.
bool overwritable(SymbolKind kind, bool must) {
  return kind == SymbolKind::temp || kind == SymbolKind::seed || (kind == SymbolKind::state && must);
}

}  // namespace

BlockEmitter::BlockEmitter(const Model& model, Span blocks, Emitter& emitter)
    : model_(model), blocks_(blocks), emitter_(emitter) {
  for (const auto& [tmpl, t] : model.templates) {
    Storage s;
    s.memory_of.assign(t.graph.size() + 1, 0);
    s.gradient.assign(t.graph.size() + 1, -1);
    const Readers reads(t);
    const std::vector<size_t>& last = reads.last;
    for (size_t n = 0; n < t.graph.nodes.size(); ++n) {
      const Node& node = t.graph.nodes[n];
      std::vector<char> used(node.in.size(), 0);
      for (const InPlace& pair : node.op->in_place) {
        if (pair.out >= node.out.size() || pair.in >= node.in.size() || !node.in[pair.in] || used[pair.in]) continue;
        Id from = node.in[pair.in], to = node.out[pair.out];
        if (s.memory_of[to]) continue;
        Id root = from;
        while (s.memory_of[root]) root = s.memory_of[root];
        // The output takes the input's memory if it fits and nothing else reads the input at this node or later.
        const eng_desc &in = t.graph.value(from).desc, &out = t.graph.value(to).desc;
        const bool fits = in.dtype == out.dtype && count(in) == count(out);
        const bool read_last = last[from] == n && std::count(node.in.begin(), node.in.end(), from) == 1;
        const bool reusable = overwritable(t.graph.value(from).kind, pair.must) && fits && read_last &&
                              other_seeds_read(t, root, n, last);
        if (pair.must && !reusable)
          throw Error(n < t.forward || find_plugin_op(node.op->id) ? Exit::environment : Exit::bug,
                      fmt::format("model {}, template {}: {} must write in place of a value that is still needed",
                                  model.plugin, tmpl, node.op->id));
        if (reusable) s.memory_of[to] = from, used[pair.in] = 1;
      }
    }
    // A parameter's gradient and the partial sums in the same memory are written to the gradient buffer if nothing else
    // reads them: the buffer may already contain another block's contribution.
    std::vector<char> backward(t.graph.size() + 1, 0), sum(backward);
    for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
      for (size_t k = 0; k < t.graph.nodes[n].out.size(); ++k) {
        const Id o = t.graph.nodes[n].out[k];
        backward[o] = 1, sum[o] = t.graph.nodes[n].op->sums >> k & 1U;
      }
    s.widest.assign(t.d_params.size(), 0);
    for (size_t k = 0; k < t.d_params.size(); ++k) {
      Id v = t.d_params[k];
      if (!v) continue;
      bool in_buffer = true, sums = true;
      for (Id at = v; at; at = s.memory_of[at]) {
        in_buffer = in_buffer && backward[at] && reads.times[at] == 1;
        sums = sums && sum[at];
      }
      if (!in_buffer) continue;
      const int32_t dtype = t.graph.value(v).desc.dtype;
      s.widest[k] = sums ? wide(dtype) : dtype;
      for (Id at = v; at; at = s.memory_of[at]) s.gradient[at] = static_cast<int64_t>(k);
    }
    storage_[tmpl] = std::make_shared<const Storage>(std::move(s));
  }
}

BlockEmitter::Env BlockEmitter::enter(uint32_t b, const std::vector<View>& inputs, const MicroBatch& batch) const {
  const Block& block = model_.blocks[b];
  const Template& t = model_.templates.at(block.tmpl);
  const auto given = [&](const Symbol& v) -> View {
    if (v.kind == SymbolKind::input) return inputs[v.index];
    if (v.kind == SymbolKind::param) return weight_of(batch, block, v);
    if (v.kind == SymbolKind::batch) return batch.fields.at(v.index);
    if (v.kind == SymbolKind::constant) return batch.constants->at(block.tmpl)[v.index];
    if (v.kind == SymbolKind::scalars) return batch.scalars;
    if (v.kind == SymbolKind::state) return (*batch.states)[b][v.index];
    return v.kind == SymbolKind::counters ? batch.counters : View{};
  };
  Env env(t.graph.size() + 1);
  for (Id id = 1; id <= t.graph.size(); ++id) env[id] = given(t.graph.value(id));
  return env;
}

std::vector<BlockEmitter::Reads> BlockEmitter::reads(bool training) const {
  std::vector<Reads> out;
  const auto pass = [&](size_t b, bool backward) {
    const Block& block = model_.blocks[b];
    const Template& t = model_.templates.at(block.tmpl);
    std::set<uint32_t> read;
    for (size_t n = backward ? t.forward : 0; n < (backward ? t.graph.nodes.size() : t.forward); ++n)
      if (backward || !training || !t.skip[n])
        for (Id i : t.graph.nodes[n].in)
          if (i && t.graph.value(i).kind == SymbolKind::param) read.insert(block.params[t.graph.value(i).index]);
    out.push_back({static_cast<uint32_t>(b), backward, {read.begin(), read.end()}});
  };
  for (size_t b = blocks_.first; b < blocks_.end; ++b) pass(b, false);
  if (training)
    for (size_t b = blocks_.end; b-- > blocks_.first;) {
      for (size_t k = made_again(b); k < b; ++k) pass(k, false);
      pass(b, true);
    }
  return out;
}

// Blocks [result, b) run forward again before the backward of block b, which ends their run. b if there are none, or if
// no block of the run has a backward because all parameters so far are frozen.
size_t BlockEmitter::made_again(size_t b) const {
  for (size_t k = run_before(b); k <= b; ++k) {
    const Template& t = model_.templates.at(model_.blocks[k].tmpl);
    if (t.graph.nodes.size() > t.forward) return run_before(b);
  }
  return b;
}

// The first block of the run that block b ends: only the input of the run is kept. b if it ends no run.
size_t BlockEmitter::run_before(size_t b) const {
  if (model_.blocks[b].recomputed) return b;
  while (b > blocks_.first && model_.blocks[b - 1].recomputed) --b;
  return b;
}

View BlockEmitter::buffer_of(uint32_t b, Id o, const Pass& pass) const {
  const Block& block = model_.blocks[b];
  const Storage& storage = *storage_.at(block.tmpl);
  if (storage.gradient[o] < 0 || storage.memory_of[o]) return {};
  const auto k = static_cast<size_t>(storage.gradient[o]);
  const View buffer = pass.batch.gradient(block.params[k]);
  const int32_t dtype = model_.templates.at(block.tmpl).graph.value(o).desc.dtype;
  return storage.fits(k, dtype, buffer) ? buffer : View{};
}

void BlockEmitter::run(uint32_t b, size_t from, size_t to, Env& env, Pass& pass) const {
  const Block& block = model_.blocks[b];
  const Template& t = model_.templates.at(block.tmpl);
  const Storage& storage = *storage_.at(block.tmpl);
  std::map<int64_t, View> add_to;  // parameter of the block -> the gradient to which its complete contribution is added
  for (size_t n = from; n < to; ++n) {
    if (pass.training && n < t.forward && t.skip[n]) continue;
    const Node& node = t.graph.nodes[n];
    std::vector<View> in, out;
    for (Id i : node.in) in.push_back(i ? env[i] : View{});
    for (uint32_t k = 0; k < node.out.size(); ++k) {
      Id o = node.out[k];
      const eng_desc& desc = t.graph.value(o).desc;
      const int64_t position = storage.gradient[o];
      const bool is_output = pass.batch.output.buffer && b + 1 == model_.blocks.size() && o == t.outputs[0];
      if (is_output) {
        env[o] = reshape(pass.batch.output, desc);
      } else if (const View buffer = buffer_of(b, o, pass); buffer.buffer) {
        // The first value of this block in the gradient buffer of parameter p. If another block has contributed already
        // (a tied weight), the node must add to the buffer: in place if its op can, otherwise with an add at the end.
        uint32_t p = block.params[static_cast<size_t>(position)];
        View target = shaped(buffer, desc);
        if (!std::exchange(pass.contributed[p], 1)) {
          env[o] = target;
        } else {
          auto pair = std::find_if(node.op->in_place.begin(), node.op->in_place.end(),
                                   [&](const InPlace& i) { return i.out == k && i.must; });
          // A parameter that the block lists twice may get two gradients from one node.
          auto is_target = [&](const View& v) { return v.buffer == target.buffer && v.offset == target.offset; };
          bool taken = std::any_of(in.begin(), in.end(), is_target) || std::any_of(out.begin(), out.end(), is_target);
          bool input_free = pair != node.op->in_place.end() && (pair->in >= in.size() || !in[pair->in].buffer);
          if (!taken && input_free) {
            if (in.size() <= pair->in) in.resize(pair->in + 1);
            in[pair->in] = target;
            env[o] = target;
          } else {
            env[o] = emitter_.transient("contribution", Line::activations, target.desc);
            add_to[position] = target;
          }
        }
      } else if (storage.memory_of[o]) {
        env[o] = shaped(env[storage.memory_of[o]], desc);
      } else {
        env[o] = emitter_.transient(fmt::format("{}.{}", block.name, o), Line::activations, desc);
      }
      out.push_back(env[o]);
    }
    Attrs attrs = node.attrs;
    if (node.op->random) {
      if (!pass.training) {  // the output equals the input: the same memory, or a copy
        if (storage.memory_of[node.out[0]] != node.in[0])
          emitter_.action(op(ENG_OP_SCALE), {in[0]}, {out[0]}, {{{"factor", 0, 1.0}}});
        if (pass.batch.after_node) pass.batch.after_node(b, n, out);
        continue;
      }
      in.push_back(pass.batch.counters);
      attrs.list.push_back({"seed", pass.batch.seed, 0});
      attrs.list.push_back({"stream", (int64_t{b} + 1) * random_sites + node.attrs.i("site"), 0});
    }
    emitter_.action(*node.op, in, out, std::move(attrs));
    if (pass.batch.after_node && n < t.forward && !pass.again) pass.batch.after_node(b, n, out);
    for (Id o : node.out) {
      auto it = add_to.find(storage.gradient[o]);
      if (it == add_to.end() || t.d_params[static_cast<size_t>(it->first)] != o) continue;  // not yet complete
      View target = shaped(it->second, t.graph.value(o).desc);
      emitter_.action(op(ENG_OP_ADD), {target, env[o]}, {target});
    }
  }
}

std::vector<View> BlockEmitter::forward(uint32_t b, const std::vector<View>& inputs, Env& env, Pass& pass) const {
  const Template& t = model_.templates.at(model_.blocks[b].tmpl);
  if (pass.batch.before_pass) pass.batch.before_pass();
  emitter_.label(Phase::forward, model_.blocks[b].name);
  if (pass.training && pass.batch.offloaded) pass.batch.offloaded->before_forward();
  env = enter(b, inputs, pass.batch);
  run(b, 0, t.forward, env, pass);
  std::vector<View> outputs;
  for (Id o : t.outputs) outputs.push_back(env[o]);
  return outputs;
}

std::vector<View> BlockEmitter::forward(const MicroBatch& batch, std::vector<View> values) const {
  Pass pass{batch, false, {}};
  Env env;
  for (uint32_t b = blocks_.first; b < blocks_.end; ++b) values = forward(b, values, env, pass);
  const std::vector<Term>& terms = model_.templates.at(model_.blocks[blocks_.end - 1].tmpl).terms;
  if (terms.empty()) return values;
  values.clear();
  for (const Term& term : terms) values.push_back(env[term.value]);
  return values;
}

// Adds a gradient that could not be written to its buffer.
void BlockEmitter::add_apart(uint32_t b, size_t k, const Env& env, Pass& pass) const {
  const Block& block = model_.blocks[b];
  const Template& t = model_.templates.at(block.tmpl);
  if (!t.d_params[k]) return;
  const uint32_t p = block.params[k];
  View from = env[t.d_params[k]];
  const int32_t dtype = from.desc.dtype;
  const View target = shaped(pass.batch.gradient(p), from.desc);
  if (storage_.at(block.tmpl)->fits(k, t.graph.value(t.d_params[k]).desc.dtype, target)) return;
  const bool first = !std::exchange(pass.contributed[p], 1);
  if (dtype != target.desc.dtype) {
    const View converted = first ? target : emitter_.transient("contribution", Line::activations, target.desc);
    emitter_.action(op(ENG_OP_CAST), {from}, {converted}, {{{"dtype", target.desc.dtype, 0}}});
    if (first) return;
    from = converted;
  } else if (first) {
    emitter_.zero(target);
  }
  emitter_.action(op(ENG_OP_ADD), {target, from}, {target});
}

std::vector<View> BlockEmitter::kept(size_t b, const std::vector<Env>& envs,
                                     const std::vector<std::vector<View>>& inputs) const {
  const Template& t = model_.templates.at(model_.blocks[b].tmpl);
  const size_t from = made_again(b);
  std::vector<View> out;
  if (from < b) out = inputs[from];
  std::set<Id> read;
  for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
    for (Id i : t.graph.nodes[n].in)
      if (i) read.insert(i);
  for (Id i : read)
    if (const SymbolKind kind = t.graph.value(i).kind;
        kind == SymbolKind::temp || (kind == SymbolKind::input && from == b))
      out.push_back(envs[b][i]);
  return out;
}

std::unique_ptr<BlockEmitter::Flight> BlockEmitter::begin(const MicroBatch& batch, std::vector<View> values) const {
  const std::vector<Env> none(model_.blocks.size());
  const std::vector<char> nothing(model_.params.size(), 0);
  std::unique_ptr<Flight> f(new Flight{{batch, true, nothing}, none, none, std::move(values)});
  for (uint32_t b = blocks_.first; b < blocks_.end; ++b) {
    f->inputs[b] = f->values;
    f->values = forward(b, f->values, f->envs[b], f->pass);
    if (batch.after_forward) batch.after_forward(b, f->values);
    // The last block of a recomputed run keeps the input of the run; the others keep nothing.
    if (batch.offloaded && b + batch.stay < blocks_.end && !model_.blocks[b].recomputed)
      batch.offloaded->leave(kept(b, f->envs, f->inputs));
  }
  f->pass.again = true;
  return f;
}

std::vector<View> BlockEmitter::end(Flight& flight, std::vector<View> seeds) const {
  auto& [pass, envs, inputs, values] = flight;
  const MicroBatch& batch = pass.batch;
  std::vector<View> loss;
  for (uint32_t b = blocks_.end; b-- > blocks_.first;) {
    const Template& t = model_.templates.at(model_.blocks[b].tmpl);
    Env& env = envs[b];
    if (batch.offloaded) {
      for (size_t k = b + 1; k-- > std::max(b, blocks_.first + 1) - 1;)
        batch.offloaded->come(kept(k, envs, inputs));  // the next ones beside this one
      for (View& view : env) view = batch.offloaded->here(view);
    }
    if (const auto from = static_cast<uint32_t>(made_again(b)); from < b) {
      values = inputs[from];
      for (View& view : values) view = batch.offloaded ? batch.offloaded->here(view) : view;
      for (uint32_t k = from; k < b; ++k) values = forward(k, values, envs[k], pass);
      for (size_t k = 0; k < t.inputs.size(); ++k) env[t.inputs[k]] = values[k];
    }
    if (batch.before_pass) batch.before_pass();
    for (Id p : t.params) env[p] = weight_of(batch, model_.blocks[b], t.graph.value(p));
    emitter_.label(Phase::backward, model_.blocks[b].name);
    for (size_t k = 0; k < t.seeds.size(); ++k) {
      if (!t.seeds[k]) continue;
      env[t.seeds[k]] = seeds[k];
      if (!seeds[k].buffer) {  // the next block does not use this output
        env[t.seeds[k]] = emitter_.transient("no gradient", Line::activations, t.graph.value(t.seeds[k]).desc);
        emitter_.zero(env[t.seeds[k]]);
      }
    }
    run(b, t.forward, t.graph.nodes.size(), env, pass);
    if (b + 1 == envs.size() && t.terms.empty()) loss = {env[t.train_outputs[0]]};
    for (const Term& term : t.terms) loss.push_back(env[term.trained]);
    for (size_t k = 0; k < t.d_params.size(); ++k) add_apart(b, k, env, pass);
    // A parameter without any contribution has a zero gradient: the first block with it is the last one to contribute.
    for (size_t k = 0; k < t.params.size(); ++k) {
      uint32_t p = model_.blocks[b].params[k], first = blocks_.first;
      while (!std::count(model_.blocks[first].params.begin(), model_.blocks[first].params.end(), p)) ++first;
      if (!t.d_params[k] && !model_.params[p].frozen && b == first && !std::exchange(pass.contributed[p], 1))
        emitter_.zero(batch.gradient(p));
    }
    seeds.clear();
    for (Id i : t.d_inputs) seeds.push_back(i ? env[i] : View{});
    batch.after_backward(b);
  }
  values = std::move(seeds);
  return loss;
}

}  // namespace eng

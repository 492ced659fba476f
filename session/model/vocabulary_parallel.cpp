// SPDX-License-Identifier: Apache-2.0
#include "session/model/vocabulary_parallel.hpp"

#include <algorithm>

#include "engine/ops_parallel.h"
#include "engine/ops_softcap.h"

namespace eng {
namespace {

bool is(const Node& node, const char* id) {
  return node.op->id == std::string(id);
}

struct Reader {
  Template* block;
  Id table;  // in it
};

// The templates that read a parameter; none if one of them stands for several blocks.
std::vector<Reader> readers_of(Model& model, uint32_t parameter) {
  std::vector<Reader> out;
  for (const Block& block : model.blocks)
    for (size_t k = 0; k < block.params.size(); ++k) {
      if (block.params[k] != parameter) continue;
      const auto same = [&](const Block& b) { return b.tmpl == block.tmpl; };
      if (std::count_if(model.blocks.begin(), model.blocks.end(), same) > 1) return {};
      Template& t = model.templates.at(block.tmpl);
      out.push_back({&t, t.params[k]});
    }
  return out;
}

// The nodes that look rows up or make logits of them; none if something else reads the table.
std::vector<Node*> users_of(const Reader& reader) {
  std::vector<Node*> out;
  const std::vector<Id>& leaving = reader.block->outputs;
  if (std::count(leaving.begin(), leaving.end(), reader.table)) return {};
  for (Node& node : reader.block->graph.nodes) {
    if (!std::count(node.in.begin(), node.in.end(), reader.table)) continue;
    const bool head = is(node, ENG_OP_CROSS_ENTROPY) || is(node, ENG_OP_CAPPED_CROSS_ENTROPY);
    const bool known = is(node, ENG_OP_EMBEDDING) || (head && !node.attrs.i("vocabulary"));
    if (!known || node.in[1] != reader.table || std::count(node.in.begin(), node.in.end(), reader.table) > 1) return {};
    out.push_back(&node);
  }
  return out;
}

// True if something of a vocabulary reads it, so that one may expect it to be divided.
bool of_vocabulary(const std::vector<Reader>& readers) {
  for (const Reader& r : readers)
    for (const Node& node : r.block->graph.nodes)
      if (node.in.size() > 1 && node.in[1] == r.table &&
          (is(node, ENG_OP_EMBEDDING) || std::any_of(node.op->indexes.begin(), node.op->indexes.end(),
                                                     [](const eng_index& i) { return i.flags & ENG_INDEX_LABELS; })))
        return true;
  return false;
}

bool is_part_of_head(Model& model, uint32_t parameter) {
  for (const Reader& r : readers_of(model, parameter))
    for (const Node& node : r.block->graph.nodes)
      if (is(node, ENG_OP_GROUP_CROSS_ENTROPY) && node.in[1] == r.table) return true;
  return false;
}

class Vocabulary {
 public:
  Vocabulary(Model& model, const Ranks& ranks, bool kernels) : model_(model), ranks_(ranks), kernels_(kernels) {}

  // "" if it is divided now, or is none; else the reason.
  std::string divide(uint32_t number) {
    Parameter& p = model_.params[number];
    const std::vector<Reader> readers = readers_of(model_, number);
    if (p.desc.ndim != 2 || p.cut.count > 1 || p.flags & of_reference || !of_vocabulary(readers)) return "";
    if (!kernels_) return "the device has no kernels for parts of a vocabulary";
    const int64_t rows = p.desc.dims[0], n = ranks_.tensor;
    if (rows % n) return fmt::format("{} ranks do not divide its {} rows", n, rows);
    if (model_.micro_batch * model_.sequence_length * p.desc.dims[1] % n)
      return fmt::format("{} ranks do not divide a micro-batch of its rows", n);
    std::vector<std::vector<Node*>> users;
    for (const Reader& r : readers) {
      users.push_back(users_of(r));
      if (users.back().empty()) return "an op reads it that needs all of its rows";
    }
    p.cut = {0, ranks_.tensor_rank(), ranks_.tensor};
    p.desc.dims[0] /= n;
    for (size_t k = 0; k < readers.size(); ++k) {
      readers[k].block->graph.among_ranks = true;
      readers[k].block->graph.change(readers[k].table).desc.dims[0] /= n;
      for (Node* node : users[k]) replace(*node, rows);
    }
    return "";
  }

 private:
  // The outputs stay what they are.
  void replace(Node& node, int64_t rows) const {
    const bool lookup = is(node, ENG_OP_EMBEDDING);
    node.op = &op(lookup ? ENG_OP_GROUP_EMBEDDING : ENG_OP_GROUP_CROSS_ENTROPY);
    auto& list = node.attrs.list;
    list.push_back({"group", ranks_.tensor_group(), 0});
    list.push_back({"members", int64_t{ranks_.tensor}, 0});
    list.push_back({"first", rows / ranks_.tensor * ranks_.tensor_rank(), 0});
    if (!lookup) list.push_back({"whole", rows, 0});
  }

  Model& model_;
  const Ranks& ranks_;
  const bool kernels_;
};

}  // namespace

void divide_vocabulary(Model& model, const Ranks& ranks, bool kernels, int64_t head_rows,
                       std::vector<std::string>& notes) {
  if (ranks.tensor == 1) return;
  Vocabulary vocabulary(model, ranks, kernels);
  for (uint32_t p = 0; p < model.params.size(); ++p)
    if (const std::string why = vocabulary.divide(p); !why.empty())
      notes.push_back(fmt::format("parallel.tensor leaves {} whole: {}", model.params[p].name, why));
    else if (const int64_t rows = model.params[p].desc.dims[0]; head_rows > 1 && rows % 8 && is_part_of_head(model, p))
      notes.push_back(
          fmt::format("parallel.tensor: a rank's part of {} has {} rows, no multiple of 8, which slows its "
                      "products; parts of a head are not padded",
                      model.params[p].name, rows));
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

namespace moe {

void Model::declare_own(eng_build* b, const std::string& prefix, std::vector<eng_id>& params) const {
  decoder::ExpertWeights w;
  decoder::each_expert_matrix(
      e_, c_, w,
      [&](eng_id&, const std::string& name, const std::vector<int64_t>& dims, uint32_t flags, const model::Init& init) {
        params.push_back(model::param(b, prefix + name, dims, flags, init));
      });
}

eng_id Model::feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* load) const {
  if (!l.own) return decoder::Model::feed_forward(b, l, x, nullptr);
  const eng_id* params = l.own;
  decoder::ExpertWeights w;
  decoder::each_expert_matrix(
      e_, c_, w, [&](eng_id& id, const std::string&, const std::vector<int64_t>&, uint32_t, const model::Init&) {
        id = *params++;
      });
  return decoder::mixed_experts(b, e_, w, c_.act, x, load);
}

std::vector<model::Signature> Model::templates() const {
  std::vector<model::Signature> out = decoder::Model::templates();
  for (model::Signature& s : out) s.inputs += s.inputs;  // of each block but the first
  return out;
}

std::vector<eng_id> Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  eng_id load = 0;
  const eng_id out = decoder::Model::trace(b, tmpl, params, in, &load);
  if (tmpl == model::embed_template) return {out, decoder::no_load(b, e_, out)};
  // A layer without experts adds nothing.
  if (tmpl != model::head_template) return {out, load ? eng_add(b, in[1], load) : eng_scale(b, in[1], 1.0)};
  const auto sparse = c_.own.empty() ? c_.layers : std::count(c_.own.begin(), c_.own.end(), true);
  decoder::add_expert_terms(b, e_, sparse, in[0], in[1]);
  return {out};
}

}  // namespace moe

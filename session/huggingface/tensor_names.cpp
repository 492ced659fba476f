// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/tensor_names.hpp"

#include <algorithm>

namespace eng {
namespace {

// Parts of names that torch.compile, DistributedDataParallel, FSDP, activation checkpointing and Lightning add.
const std::set<std::string> wrappers = {"_orig_mod", "module", "_forward_module", "_fsdp_wrapped_module",
                                        "_checkpoint_wrapped_module"};
// Names under which other models and trainers hold a whole model.
const std::set<std::string> holders = {"model", "transformer", "base_model", "language_model", "net"};

constexpr const char* buffers[] = {".position_ids", ".masked_bias", ".causal_mask", ".attention_mask",
                                   "._float_tensor"};

std::string without_wrappers(const std::string& name) {
  std::string out;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!wrappers.count(part)) out += (out.empty() ? "" : ".") + part;
    begin = end + 1;
  }
  return out;
}

}  // namespace

TensorNames::TensorNames(std::set<std::string> known, const Pretrained& pretrained)
    : known_(std::move(known)), pretrained_(pretrained) {
  // The prefix that most names have in common: "lm_head." is no body.
  std::map<std::string, size_t> counts;
  for (const std::string& name : known_)
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      if (std::isdigit(static_cast<unsigned char>(name[dot + 1])))
        break;
      else
        ++counts[name.substr(0, dot + 1)];
  for (const auto& [body, count] : counts)
    if (2 * count > known_.size()) bodies_.insert(body);
}

// "" if there is none.
std::string TensorNames::meant(const std::string& name) const {
  if (known_.count(name)) return name;
  const auto rule = std::find_if(pretrained_.rename.begin(), pretrained_.rename.end(),
                                 [&](const auto& pair) { return name.starts_with(pair.first); });
  if (rule == pretrained_.rename.end()) return "";
  const std::string renamed = rule->second + name.substr(rule->first.size());
  return known_.count(renamed) ? renamed : "";
}

std::string TensorNames::of(const std::string& name) const {
  std::string rest = without_wrappers(name);
  for (;;) {
    if (const std::string found = meant(rest); !found.empty()) return found;
    for (const std::string& body : bodies_)
      if (const std::string found = meant(body + rest); !found.empty()) return found;
    const size_t dot = rest.find('.');
    if (dot == std::string::npos || !holders.count(rest.substr(0, dot))) return name;
    rest = rest.substr(dot + 1);
  }
}

bool TensorNames::is_buffer(const StoredTensor& tensor) const {
  const auto ends = [&](const std::string& suffix) { return tensor.name.ends_with(suffix); };
  if (std::any_of(pretrained_.ignore_tensors.begin(), pretrained_.ignore_tensors.end(), ends)) return true;
  if (std::any_of(std::begin(buffers), std::end(buffers), ends)) return true;
  return tensor.shape.size() == 4 && (ends("attn.bias") || ends("attention.bias"));  // a causal mask
}

}  // namespace eng

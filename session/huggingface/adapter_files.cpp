// SPDX-License-Identifier: Apache-2.0
// Paths beside maps that the files of a model transpose, or have in one matrix.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "session/huggingface/adapter.hpp"

namespace eng {
namespace {

const std::string weight_ending = ".weight";

// Completes an adapter of several paths: y_i = W_i x + scale * B_i A_i x for the rows i is one path with A of all of
// them, and B with B_i at its rows and columns.
void complete(PeftAdapter& made) {
  Adapter& whole = made.adapter;
  const double scale = whole.scale();
  int64_t rank = 0, rows = 0;
  for (const Adapter& part : made.parts) {
    if (std::abs(part.scale() - scale) > 1e-12 * scale || part.dora != whole.dora)
      throw Error(
          Exit::usage,
          part.map + " and " + made.parts[0].map + " are one matrix in the files, with one scale and one `dora`",
          "give their paths the same; or export the model with --merge");
    rank += part.rank, rows += part.length;
  }
  if (whole.dora && rows != whole.rows)
    throw Error(Exit::usage, "not all maps of " + whole.peft + " have a path, and PEFT's use_dora is for all of it",
                "export the model with --merge");
  whole.map = whole.peft, whole.weight = whole.peft + weight_ending;
  whole.rank = rank;
  whole.alpha = scale * (whole.root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

}  // namespace

void place_in_files(std::vector<Adapter>& adapters, const std::vector<TensorShape>& model,
                    const Arrangement& arranged) {
  std::map<std::string, Adapter*> of_weight;
  for (Adapter& a : adapters)
    if (!a.experts) a.alone = false, of_weight[a.weight] = &a;
  for (size_t k = 0; k < arranged.files.size(); ++k) {
    const Arranged& made = arranged.from_model[k];
    const bool joined = made.parts.size() > 1, outputs = made.axis == (made.transposed ? 1u : 0u);
    for (const Arranged::Part& part : made.parts) {
      const auto found = of_weight.find(model[part.source].name);
      if (found == of_weight.end() || part.length != part.extent || (joined && !outputs)) continue;
      Adapter& a = *found->second;
      a.alone = true, a.transposed = made.transposed;
      const std::string& name = arranged.files[k].name;
      if (!joined || !name.ends_with(weight_ending)) continue;
      a.peft = name.substr(0, name.size() - weight_ending.size());
      a.rows = made.shape[made.axis];
      a.first = static_cast<int64_t>(part.at), a.length = static_cast<int64_t>(part.length);
    }
  }
}

std::vector<PeftAdapter> peft_adapters(const std::vector<Adapter>& adapters) {
  std::vector<PeftAdapter> out;
  for (const Adapter& a : adapters) {
    if (!a.alone)
      throw Error(Exit::usage, a.weight + " is made of several tensors in the files of this model",
                  "PEFT has no adapter for it; export the model with --merge");
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const PeftAdapter& made) { return a.rows && made.adapter.peft == a.peft; });
    if (same == out.end())
      out.push_back({a, {a}});
    else
      same->parts.push_back(a);
  }
  for (PeftAdapter& made : out)
    if (made.adapter.rows) complete(made);
  return out;
}

std::vector<char> peft_values(const PeftAdapter& made, const std::string& parameter, uint64_t size,
                              const std::function<std::vector<char>(const std::string&)>& read) {
  const Adapter& whole = made.adapter;
  if (!whole.rows) return read(parameter);
  std::vector<char> out;
  if (parameter == whole.a()) {
    for (const Adapter& part : made.parts) {
      const std::vector<char> own = read(part.a());
      out.insert(out.end(), own.begin(), own.end());
    }
    return out;
  }
  const bool b = parameter == whole.b();
  const uint64_t row = (b ? static_cast<uint64_t>(whole.rank) : 1) * size;
  out.resize(static_cast<uint64_t>(whole.rows) * row);  // zeros: what a path does not write
  uint64_t column = 0;
  for (const Adapter& part : made.parts) {
    const std::vector<char> own = read(b ? part.b() : part.m());
    const uint64_t n = (b ? static_cast<uint64_t>(part.rank) : 1) * size;
    for (uint64_t k = 0; k < static_cast<uint64_t>(part.length); ++k)
      std::memcpy(&out[(static_cast<uint64_t>(part.first) + k) * row + column], &own[k * n], n);
    if (b) column += n;
  }
  return out;
}

}  // namespace eng

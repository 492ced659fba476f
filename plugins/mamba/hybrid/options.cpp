// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

namespace hybrid {
namespace {

std::string count(int64_t n) {
  return std::to_string(n);
}

}  // namespace

void check_groups(const mamba::Mixer& m, const char* heads, const char* groups) {
  if (m.heads % m.groups != 0)
    model::invalid(std::string(heads) + " is " + count(m.heads) + "; it must be a multiple of " + groups + ", " +
                   count(m.groups));
}

mamba::Mixer read_mixer(const model::Reader& in, const decoder::Config& c, int64_t inner) {
  mamba::Mixer m{};
  const bool expanded = inner == 0;
  if (expanded) inner = in.size("mamba_expand") * c.hidden;
  m.heads = in.size("mamba_n_heads"), m.groups = in.size("mamba_n_groups"), m.states = in.size("mamba_d_state");
  m.taps = in.integer("mamba_d_conv");
  m.width = in.at_least_one("mamba_d_head", in.integer_or("mamba_d_head", inner / m.heads));
  if (m.inner() != inner)
    model::invalid("mamba_n_heads x mamba_d_head is " + count(m.inner()) + ", and " +
                   (expanded ? "mamba_expand x hidden_size" : "mamba_d_ssm") + " is " + count(inner) +
                   "; they must be equal");
  check_groups(m, "mamba_n_heads", "mamba_n_groups");
  mamba::read_limits(in, m);
  m.bias = m.out_bias = in.flag("mamba_proj_bias"), m.conv_bias = in.flag("mamba_conv_bias");
  m.eps = c.eps;
  m.dt_min = 1e-3, m.dt_max = 0.1, m.dt_floor = 1e-4;
  return m;
}

std::vector<uint32_t> read_types(const model::Reader& in, const char* key, int64_t layers, uint32_t more) {
  std::vector<uint32_t> out;
  for (const std::string& type : in.texts(key)) {
    const bool scans = type == "mamba" || type == "linear_attention";
    if (!scans && type != "attention" && type != "full_attention")
      model::invalid(std::string(key) + " holds '" + type +
                     "'; every entry must be linear_attention (or mamba), or full_attention (or attention)");
    out.push_back((scans ? mixes : attends) | more);
  }
  if (static_cast<int64_t>(out.size()) != layers)
    model::invalid(std::string(key) + " has " + count(static_cast<int64_t>(out.size())) + " entries, and there are " +
                   count(layers) + " layers (num_hidden_layers); give one for each, or remove the list");
  return out;
}

}  // namespace hybrid

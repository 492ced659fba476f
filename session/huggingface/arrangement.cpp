// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/arrangement.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/base/error.hpp"

namespace eng {
namespace {

constexpr uint64_t kStraightTile = 256u << 10, kTransposedTile = 1u << 20;  // elements

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    out.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::string>> texts_at_stars(const std::string& pattern, const std::string& name) {
  const auto wanted = parts_of(pattern), given = parts_of(name);
  if (wanted.size() != given.size()) return std::nullopt;
  std::vector<std::string> out;
  for (size_t k = 0; k < wanted.size(); ++k)
    if (wanted[k] == "*")
      out.push_back(given[k]);
    else if (wanted[k] != given[k])
      return std::nullopt;
  return out;
}

std::string with_texts(const std::string& pattern, const std::vector<std::string>& texts) {
  std::string out;
  size_t used = 0;
  for (const std::string& part : parts_of(pattern))
    out += (out.empty() ? "" : ".") + (part == "*" ? texts[used++] : part);
  return out;
}

namespace {

std::vector<std::string> expanded(const std::vector<std::string>& patterns, const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& pattern : patterns) out.push_back(with_texts(pattern, texts));
  return out;
}

class Arranger {
 public:
  Arranger(const std::vector<TensorShape>& model, const Pretrained& pretrained, const std::string& where,
           const std::string& table)
      : model_(model), pretrained_(pretrained), where_(where), table_(table), transposes_(pretrained.transpose.size()) {
    for (size_t k = 0; k < model.size(); ++k) number_[model[k].name] = k;
    out_.from_files.resize(model.size());
  }

  Arrangement arrange() {
    group_.resize(model_.size());
    for (const Regroup& rule : pretrained_.regroup) find(rule);
    for (size_t k = 0; k < model_.size(); ++k)
      if (!group_[k])
        add_plain(k);
      else if (group_[k]->members.front() == k)
        add(*group_[k]);
    for (size_t k = 0; k < transposes_.size(); ++k)
      if (!transposes_[k])
        refuse_rule("transpose",
                    fmt::format("`{}` is the name of no tensor of this model's files", pretrained_.transpose[k]));
    std::set<std::string> names;
    for (const TensorShape& t : out_.files)
      if (!names.insert(t.name).second)
        refuse_rule("split and join", fmt::format("`{}` would be twice in the files", t.name));
    return std::move(out_);
  }

 private:
  struct Group {
    const Regroup* rule;
    std::vector<size_t> members;     // of the model
    std::vector<std::string> files;  // their names
    const char* key() const { return rule->files.size() == 1 && !rule->numbered ? "split" : "join"; }
  };

  [[noreturn]] void refuse_rule(const std::string& key, const std::string& problem) const {
    throw Error(Exit::checkpoint,
                fmt::format("{}: `{}` in the description of the model's plugin: {}", where_, key, problem),
                fmt::format("correct [{}] in the plugin's description", table_));
  }

  // The groups of tensors that a rule is about.
  void find(const Regroup& rule) {
    size_t found = 0;
    for (size_t k = 0; k < model_.size(); ++k)
      for (const std::string& pattern : rule.model) {
        const auto texts = texts_at_stars(pattern, model_[k].name);
        if (!texts || (group_[k] && group_[k]->rule == &rule)) continue;
        auto group = std::make_shared<Group>(Group{&rule, {}, expanded(rule.files, *texts)});
        if (rule.numbered) group->files = numbered(group->files, model_[k]);
        for (const std::string& name : expanded(rule.model, *texts)) {
          const auto there = number_.find(name);
          if (there == number_.end())
            refuse_rule(group->key(),
                        fmt::format("`{}` goes with `{}`, which the model does not have", model_[k].name, name));
          if (group_[there->second]) refuse_rule(group->key(), fmt::format("`{}` is in two groups", name));
          group_[there->second] = group;
          group->members.push_back(there->second);
        }
        ++found;
      }
    if (!found && !rule.optional)
      refuse_rule(Group{&rule, {}, {}}.key(),
                  fmt::format("no tensor of this model is called {}", fmt::join(quoted(rule.model), " or ")));
  }

  static std::vector<std::string> quoted(std::vector<std::string> names) {
    for (std::string& name : names) name = "`" + name + "`";
    return names;
  }

  // The names of the files of all entries of a tensor, in their order.
  std::vector<std::string> numbered(const std::vector<std::string>& of_one, const TensorShape& tensor) const {
    const auto n = static_cast<int64_t>(of_one.size());
    if (tensor.shape.size() < 2 || tensor.shape[0] < 1 || tensor.shape[1] % n != 0)
      refuse_rule("join", fmt::format("`{}` is {}: an entry along its first dimension is not made of {} equal tensors",
                                      tensor.name, shape_text(tensor.shape), n));
    std::vector<std::string> out;
    for (int64_t e = 0; e < tensor.shape[0]; ++e)
      for (std::string name : of_one) out.push_back(name.replace(name.find('#'), 1, std::to_string(e)));
    return out;
  }

  // True if the files have the transposed tensor.
  bool transposed(const std::string& file_name, size_t dims) {
    bool any = false;
    for (size_t k = 0; k < transposes_.size(); ++k)
      if (texts_at_stars(pretrained_.transpose[k], file_name)) any = transposes_[k] = true;
    if (any && dims != 2)
      refuse_rule("transpose", fmt::format("`{}` has {} dimensions; matrices are transposed", file_name, dims));
    return any;
  }

  static std::vector<int64_t> turned(std::vector<int64_t> shape, bool transposed) {
    if (transposed) std::swap(shape[0], shape[1]);
    return shape;
  }

  void add_file(const std::string& name, Arranged made) {
    bool optional = true;
    for (const Arranged::Part& part : made.parts) optional = optional && model_[part.source].optional;
    out_.files.push_back({name, made.shape, optional});
    out_.from_model.push_back(std::move(made));
  }

  void add_plain(size_t k) {
    const TensorShape& t = model_[k];
    const bool turn = transposed(t.name, t.shape.size());
    const auto length = [](const std::vector<int64_t>& shape) { return shape.empty() ? 1 : uint64_t(shape[0]); };
    const std::vector<int64_t> shape = turned(t.shape, turn);
    out_.from_files[k] = {t.shape, 0, turn, {{out_.files.size(), 0, length(t.shape), 0, length(t.shape)}}};
    add_file(t.name, {shape, 0, turn, {{k, 0, length(shape), 0, length(shape)}}});
  }

  // One tensor of the files holds all members, or one member all tensors of the files. `axis` is one of the files.
  void add(const Group& group) {
    TensorShape first = model_[group.members.front()];
    // The entries of a numbered group are rows of a tensor with one dimension less.
    const auto flat = [&](std::vector<int64_t> shape) {
      if (group.rule->numbered) shape[1] *= shape[0], shape.erase(shape.begin());
      return shape;
    };
    first.shape = flat(first.shape);
    const size_t dims = first.shape.size(), axis = size_t(group.rule->axis);
    if (axis >= dims)
      refuse_rule(group.key(), fmt::format("`{}` is {}: it has no axis {}", first.name, shape_text(first.shape), axis));
    const bool turn = transposed(group.files.front(), dims);
    for (const std::string& name : group.files)
      if (transposed(name, dims) != turn)
        refuse_rule("transpose", fmt::format("`{}` and `{}` are joined, and only one of them is transposed",
                                             group.files.front(), name));
    if (turn && group.rule->numbered)
      refuse_rule("transpose",
                  fmt::format("`{}` is one of numbered tensors, which are not transposed", group.files[0]));
    const size_t model_axis = turn ? 1 - axis : axis;
    uint64_t all = 0;
    for (const size_t k : group.members) {
      const std::vector<int64_t> shape = flat(model_[k].shape);
      bool fits = shape.size() == dims;
      for (size_t d = 0; fits && d < dims; ++d) fits = d == model_axis || shape[d] == first.shape[d];
      if (!fits)
        refuse_rule(group.key(),
                    fmt::format("`{}` is {} and `{}` is {}: along axis {} of the files they make no tensor", first.name,
                                shape_text(first.shape), model_[k].name, shape_text(shape), axis));
      all += uint64_t(shape[model_axis]);
    }
    const uint64_t parts = group.files.size(), part = all / parts;
    if (all % parts != 0)
      refuse_rule(group.key(), fmt::format("`{}` is {}: along axis {} of the files it is not made of {} equal tensors",
                                           first.name, shape_text(first.shape), axis, parts));
    std::vector<int64_t> stored = turned(first.shape, turn);
    stored[axis] = int64_t(part);
    const size_t files = out_.files.size();
    if (parts == 1) {
      Arranged whole{stored, axis, turn, {}};
      uint64_t at = 0;
      for (const size_t k : group.members) {
        const std::vector<int64_t> shape = flat(model_[k].shape);
        const uint64_t length = uint64_t(shape[model_axis]);
        whole.parts.push_back({k, at, length, 0, length});
        out_.from_files[k] = {shape, model_axis, turn, {{files, 0, length, at, all}}};
        at += length;
      }
      add_file(group.files.front(), std::move(whole));
      return;
    }
    Arranged& whole = out_.from_files[group.members.front()] = {first.shape, model_axis, turn, {}};
    for (size_t f = 0; f < parts; ++f) {
      whole.parts.push_back({files + f, f * part, part, 0, part});
      add_file(group.files[f], {stored, axis, turn, {{group.members.front(), 0, part, f * part, all}}});
    }
  }

  const std::vector<TensorShape>& model_;
  const Pretrained& pretrained_;
  const std::string &where_, &table_;
  std::map<std::string, size_t> number_;
  std::vector<std::shared_ptr<Group>> group_;  // of each tensor of the model
  std::vector<bool> transposes_;               // which patterns matched
  Arrangement out_;
};

// In the order of what is made. Between two parts, and at the end of each line along the axis, a run ends.
void gather_straight(const Arranged& made, uint64_t first, uint64_t count, uint64_t size, const ReadSource& read,
                     char* out) {
  uint64_t inner = 1;
  for (size_t d = made.axis + 1; d < made.shape.size(); ++d) inner *= uint64_t(made.shape[d]);
  const uint64_t line = made.shape.empty() ? 1 : uint64_t(made.shape[made.axis]) * inner;
  for (uint64_t done = 0, n = 0; done < count; done += n) {
    const uint64_t number = (first + done) / line, rest = (first + done) % line;
    const auto part = std::find_if(made.parts.begin(), made.parts.end(),
                                   [&](const auto& p) { return rest < (p.at + p.length) * inner; });
    n = std::min(count - done, (part->at + part->length) * inner - rest);
    read(part->source, (number * part->extent + part->from) * inner + rest - part->at * inner, n, out + done * size);
  }
}

// A column of what is made is a run of a source.
template <class Element>
void gather_transposed(const Arranged& made, uint64_t first, uint64_t count, const ReadSource& read, Element* out) {
  const uint64_t rows = uint64_t(made.shape[0]), columns = uint64_t(made.shape[1]), last = first + count;
  const uint64_t first_row = first / columns, last_row = (last - 1) / columns + 1;
  std::vector<Element> run(last_row - first_row);
  for (const Arranged::Part& p : made.parts) {
    const bool by_row = made.axis == 0;
    const uint64_t top = by_row ? std::max(first_row, p.at) : first_row;
    const uint64_t bottom = by_row ? std::min(last_row, p.at + p.length) : last_row;
    if (top >= bottom) continue;
    const uint64_t width = by_row ? p.extent : rows;  // of a row of the source
    const uint64_t left = by_row ? 0 : p.at, right = by_row ? columns : p.at + p.length;
    for (uint64_t c = left; c < right; ++c) {
      const uint64_t begin = top + (top * columns + c < first ? 1 : 0);
      const uint64_t end = bottom - ((bottom - 1) * columns + c >= last ? 1 : 0);
      if (begin >= end) continue;
      const uint64_t row = by_row ? c : c - p.at + p.from, column = by_row ? begin - p.at + p.from : begin;
      read(p.source, row * width + column, end - begin, run.data());
      for (uint64_t r = begin; r < end; ++r) out[r * columns + c - first] = run[r - begin];
    }
  }
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool Arrangement::plain() const {
  return std::all_of(from_model.begin(), from_model.end(), [](const Arranged& t) { return t.plain(); });
}

Arrangement arrange(const std::vector<TensorShape>& model, const Pretrained& pretrained, const std::string& where,
                    const std::string& table) {
  return Arranger(model, pretrained, where, table).arrange();
}

uint64_t gather_tile(const Arranged& made) {
  return made.transposed ? kTransposedTile : kStraightTile;
}

void gather(const Arranged& made, uint64_t first, uint64_t count, uint64_t size, const ReadSource& read, void* out) {
  if (!count) return;
  if (!made.transposed)
    gather_straight(made, first, count, size, read, static_cast<char*>(out));
  else if (size == 2)
    gather_transposed(made, first, count, read, static_cast<uint16_t*>(out));
  else
    gather_transposed(made, first, count, read, static_cast<uint32_t*>(out));
}

}  // namespace eng

// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/torch_pickle.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/text.hpp"
#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

constexpr size_t kMostPickled = 1u << 20;  // values on the stack; torch.save needs about 2,000

enum class PickleKind : uint8_t {
  none,
  truth,
  whole,
  text,
  tuple,
  list,
  dict,
  function,
  storage_type,
  storage,
  tensor
};
enum : int64_t { kOrderedDict, kRebuildTensor, kRebuildParameter };

// A value's kind and position: no value owns another, so nothing here is deep and nothing can be a circle.
struct Pickled {
  PickleKind kind = PickleKind::none;
  uint32_t size = 0;   // bytes of a text, items of a tuple
  int64_t number = 0;  // a truth, number, function or element type itself; the place of a text in the pickle, of a
                       // tuple's items and of the arguments of a storage or tensor in `items_`, of a dict in `dicts_`
};

struct PickledGlobal {
  std::string_view name;
  PickleKind kind;
  int64_t number;
};

constexpr PickledGlobal kGlobals[] = {
    {"collections.OrderedDict", PickleKind::function, kOrderedDict},
    {"torch._utils._rebuild_tensor_v2", PickleKind::function, kRebuildTensor},
    {"torch._utils._rebuild_parameter", PickleKind::function, kRebuildParameter},
    {"torch.FloatStorage", PickleKind::storage_type, ENG_F32},
    {"torch.DoubleStorage", PickleKind::storage_type, ENG_F64},
    {"torch.BFloat16Storage", PickleKind::storage_type, ENG_BF16},
    {"torch.HalfStorage", PickleKind::storage_type, ENG_F16},
    {"torch.IntStorage", PickleKind::storage_type, ENG_I32},
    {"torch.LongStorage", PickleKind::storage_type, ENG_I64},
    // Never parameters; only their size matters.
    {"torch.ByteStorage", PickleKind::storage_type, ENG_U8},
    {"torch.CharStorage", PickleKind::storage_type, ENG_U8},
    {"torch.BoolStorage", PickleKind::storage_type, ENG_U8},
};

const char* kind_text(PickleKind kind) {
  const char* texts[] = {"None",         "a truth value", "a number",       "a text",    "a tuple", "a list",
                         "a dictionary", "a function",    "a storage type", "a storage", "a tensor"};
  return texts[static_cast<size_t>(kind)];
}

// Names of instructions that other pickles have.
const char* instruction_text(unsigned char op) {
  switch (op) {
    case 0x81:
    case 0x92:
      return " (makes an object of any class)";
    case 0x93:
      return " (fetches any function or class)";
    case 'i':
    case 'o':
    case 0x82:
    case 0x83:
    case 0x84:
      return " (calls any function or class)";
    default:
      return "";
  }
}

class PickleMachine {
 public:
  PickleMachine(std::string_view pickle, const std::string& where) : pickle_(pickle), where_(where) {}

  std::vector<PickledTensor> run() {
    if (pickle_.substr(0, 2) != "\x80\x02")
      refuse(where_, "is not a pickle of protocol 2, as torch.save writes it by default");
    next_ = 2;
    while (step()) continue;
    if (next_ != pickle_.size()) fail("more bytes follow the end of the pickle");
    if (stack_.size() != 1 || !marks_.empty()) fail("the pickle ends with more or less than one object");
    if (stack_[0].kind != PickleKind::dict)
      refuse(where_, fmt::format("holds {}, not a dictionary of named tensors", kind_text(stack_[0].kind)));
    return tensors_of(stack_[0].number);
  }

 private:
  struct Dict {
    bool ordered = false;  // an OrderedDict
    bool metadata = true;  // no key but `_metadata`
  };
  struct Item {
    int64_t dict;
    Pickled key, value;
  };

  [[noreturn]] void fail(const std::string& why) const { refuse(where_, fmt::format("byte {}: {}", at_, why)); }

  std::string_view take(uint64_t count) {
    if (count > pickle_.size() - next_) fail("the pickle ends within an instruction");
    next_ += count;
    return pickle_.substr(next_ - count, count);
  }
  uint64_t take_number(size_t width) {
    const std::string_view bytes = take(width);
    uint64_t out = 0;
    for (size_t k = width; k-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[k]);
    return out;
  }
  int64_t take_signed(size_t width) {
    const uint64_t bits = take_number(width);
    if (width == 0 || width == 8) return static_cast<int64_t>(bits);
    const uint64_t sign = uint64_t{1} << (8 * width - 1);
    return static_cast<int64_t>((bits ^ sign) - sign);
  }
  std::string_view take_line() {
    const size_t end = pickle_.find('\n', next_);
    if (end == std::string_view::npos) fail("the pickle ends within a name");
    const std::string_view out = pickle_.substr(next_, end - next_);
    next_ = end + 1;
    return out;
  }

  void push(PickleKind kind, int64_t number = 0, size_t size = 0) { push({kind, static_cast<uint32_t>(size), number}); }
  void push(const Pickled& value) {
    if (stack_.size() == kMostPickled) fail(fmt::format("more than {} values at a time", kMostPickled));
    stack_.push_back(value);
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Pickled& top() {
    if (stack_.size() <= floor()) fail("there is no value to use");
    return stack_.back();
  }
  Pickled pop() {
    const Pickled out = top();
    stack_.pop_back();
    return out;
  }
  // The position of the newest mark, which is removed: its values begin there.
  size_t pop_mark() {
    if (marks_.empty()) fail("there is no mark");
    const size_t out = marks_.back();
    marks_.pop_back();
    return out;
  }

  std::string_view text_of(const Pickled& value) const { return pickle_.substr(size_t(value.number), value.size); }
  const Pickled& item(const Pickled& tuple, size_t k) const { return items_[size_t(tuple.number) + k]; }

  void push_text(uint64_t length) {
    const std::string_view text = take(length);
    push(PickleKind::text, text.data() - pickle_.data(), text.size());
  }
  // Makes a tuple of the values from `begin` on.
  void push_tuple(size_t begin) {
    const int64_t place = static_cast<int64_t>(items_.size());
    items_.insert(items_.end(), stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
    const size_t size = stack_.size() - begin;
    stack_.resize(begin);
    push(PickleKind::tuple, place, size);
  }
  void push_short_tuple(size_t size) {
    if (stack_.size() - floor() < size) fail("there are not enough values for a tuple");
    push_tuple(stack_.size() - size);
  }
  void push_dict(bool ordered) {
    push(PickleKind::dict, static_cast<int64_t>(dicts_.size()));
    dicts_.push_back({ordered, true});
  }

  void remember(uint64_t place) {
    if (place > memo_.size()) fail(fmt::format("value {} is kept after {} values", place, memo_.size()));
    if (place == memo_.size()) memo_.emplace_back();
    memo_[place] = top();
  }
  void recall(uint64_t place) {
    if (place >= memo_.size()) fail(fmt::format("value {} of {} kept ones is used", place, memo_.size()));
    push(memo_[place]);
  }

  void push_global() {
    const std::string_view module = take_line();
    const std::string name = std::string(module) + "." + std::string(take_line());
    const auto* known =
        std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const PickledGlobal& g) { return g.name == name; });
    if (known != std::end(kGlobals)) return push(known->kind, known->number);
    if (name.starts_with("torch.") && name.ends_with("Storage"))
      fail(fmt::format("elements of `{}` are not read", printable(name)));
    fail(fmt::format("`{}` is not allowed in a weights file: unpickling it would run code; nothing of it was run",
                     printable(name)));
  }

  void set_item(const Pickled& dict, const Pickled& key, const Pickled& value) {
    if (dict.kind != PickleKind::dict) fail(fmt::format("{} takes no keys", kind_text(dict.kind)));
    if (key.kind != PickleKind::text) fail(fmt::format("{} is the key of a dictionary", kind_text(key.kind)));
    if (text_of(key) != "_metadata") dicts_[size_t(dict.number)].metadata = false;
    set_.push_back({dict.number, key, value});
  }
  void set_items() {
    const size_t begin = pop_mark(), end = stack_.size();
    if (begin <= floor()) fail("there is no dictionary for the items");
    if ((end - begin) % 2 != 0) fail("a key has no value");
    for (size_t k = begin; k < end; k += 2) set_item(stack_[begin - 1], stack_[k], stack_[k + 1]);
    stack_.resize(begin);
  }
  // Lists are only within what is ignored.
  void append(size_t begin) {
    if (begin <= floor() || begin > stack_.size()) fail("there is no list for the items");
    stack_.resize(begin);
    if (top().kind != PickleKind::list) fail(fmt::format("an item for {}, not for a list", kind_text(top().kind)));
  }

  // ('storage', type, key, place, elements)
  void make_storage() {
    const Pickled id = pop();
    if (id.kind != PickleKind::tuple || id.size != 5 || item(id, 0).kind != PickleKind::text ||
        text_of(item(id, 0)) != "storage" || item(id, 1).kind != PickleKind::storage_type ||
        item(id, 2).kind != PickleKind::text || item(id, 3).kind != PickleKind::text ||
        item(id, 4).kind != PickleKind::whole)
      fail("a reference to another object than a storage of torch.save");
    push(PickleKind::storage, id.number);
  }
  void call() {
    const Pickled arguments = pop(), function = pop();
    if (function.kind != PickleKind::function || arguments.kind != PickleKind::tuple)
      fail(fmt::format("calls {}", kind_text(function.kind)));
    const auto is = [&](size_t k, PickleKind kind) { return item(arguments, k).kind == kind; };
    const size_t size = arguments.size;
    if (function.number == kOrderedDict && size == 0) return push_dict(true);
    if (function.number == kRebuildParameter && size == 3 && is(0, PickleKind::tensor)) return push(item(arguments, 0));
    // storage, first element, shape, strides, requires_grad, backward hooks (none are kept), nothing more
    if (function.number == kRebuildTensor && (size == 6 || (size == 7 && is(6, PickleKind::none))) &&
        is(0, PickleKind::storage) && is(1, PickleKind::whole) && is(2, PickleKind::tuple) && is(3, PickleKind::tuple))
      return push(PickleKind::tensor, arguments.number);
    fail("calls a function of torch.save with other arguments than a plain tensor has");
  }
  void build() {
    const Pickled state = pop(), target = top();
    if (target.kind != PickleKind::dict || !dicts_[size_t(target.number)].ordered || state.kind != PickleKind::dict ||
        !dicts_[size_t(state.number)].metadata)
      fail(fmt::format("sets attributes of {}, other than `_metadata` of an OrderedDict", kind_text(target.kind)));
  }

  // One instruction; false at the end.
  bool step() {
    at_ = next_;
    const auto op = static_cast<unsigned char>(take(1)[0]);
    switch (op) {
      case '.':  // STOP
        return false;
      case '(':  // MARK
        if (marks_.size() == kMostPickled) fail(fmt::format("more than {} marks at a time", kMostPickled));
        marks_.push_back(stack_.size());
        break;
      case 'N':  // NONE
        push(PickleKind::none);
        break;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        push(PickleKind::truth, op == 0x88);
        break;
      case 'J':  // BININT
        push(PickleKind::whole, take_signed(4));
        break;
      case 'K':  // BININT1
        push(PickleKind::whole, static_cast<int64_t>(take_number(1)));
        break;
      case 'M':  // BININT2
        push(PickleKind::whole, static_cast<int64_t>(take_number(2)));
        break;
      case 0x8a: {  // LONG1
        const uint64_t width = take_number(1);
        if (width > 8) fail("a number of more than 64 bits");
        push(PickleKind::whole, take_signed(width));
        break;
      }
      case 'X':  // BINUNICODE
        push_text(take_number(4));
        break;
      case '}':  // EMPTY_DICT
        push_dict(false);
        break;
      case ']':  // EMPTY_LIST
        push(PickleKind::list);
        break;
      case ')':  // EMPTY_TUPLE
        push_tuple(stack_.size());
        break;
      case 't':  // TUPLE
        push_tuple(pop_mark());
        break;
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        push_short_tuple(op - 0x84u);
        break;
      case 's': {  // SETITEM
        const Pickled value = pop(), key = pop();
        set_item(top(), key, value);
        break;
      }
      case 'u':  // SETITEMS
        set_items();
        break;
      case 'a':  // APPEND
        append(stack_.size() - 1);
        break;
      case 'e':  // APPENDS
        append(pop_mark());
        break;
      case 'q':  // BINPUT
      case 'r':  // LONG_BINPUT
        remember(take_number(op == 'q' ? 1 : 4));
        break;
      case 'h':  // BINGET
      case 'j':  // LONG_BINGET
        recall(take_number(op == 'h' ? 1 : 4));
        break;
      case 'c':  // GLOBAL
        push_global();
        break;
      case 'Q':  // BINPERSID
        make_storage();
        break;
      case 'R':  // REDUCE
        call();
        break;
      case 'b':  // BUILD
        build();
        break;
      default:
        fail(fmt::format("instruction 0x{:02x}{} is none of those that tensors need, and was not run", +op,
                         instruction_text(op)));
    }
    return true;
  }

  std::vector<int64_t> numbers_of(const Pickled& tuple, const std::string& where) const {
    if (tuple.size > ENG_MAX_DIMS)
      refuse(where, fmt::format("has {} dimensions; at most {} are read", tuple.size, ENG_MAX_DIMS));
    std::vector<int64_t> out;
    for (size_t k = 0; k < tuple.size; ++k) {
      if (item(tuple, k).kind != PickleKind::whole) refuse(where, "its shape or strides are not numbers");
      out.push_back(item(tuple, k).number);
    }
    return out;
  }

  PickledTensor tensor_of(const Pickled& key, const Pickled& value) const {
    PickledTensor out;
    out.name = text_of(key);
    const std::string where = fmt::format("{}: tensor `{}`", where_, printable(out.name));
    if (value.kind != PickleKind::tensor) refuse(where, fmt::format("is {}, not a tensor", kind_text(value.kind)));
    const Pickled *arguments = &items_[size_t(value.number)], *id = &items_[size_t(arguments[0].number)];
    out.dtype = static_cast<int32_t>(id[1].number);
    out.storage = text_of(id[2]);
    out.shape = numbers_of(arguments[2], where);
    const std::vector<int64_t> strides = numbers_of(arguments[3], where);
    out.count = element_count(out.shape, where);
    int64_t dense = 1;
    bool fits = strides.size() == out.shape.size();
    for (size_t k = out.shape.size(); fits && out.count && k-- > 0; dense *= out.shape[k])
      fits = out.shape[k] == 1 || strides[k] == dense;  // the stride of a dimension of 1 is never used
    if (!fits)
      refuse(where, fmt::format("its shape is [{}] and its strides are [{}]: it is transposed or a part of a tensor; "
                                "only contiguous ones are read",
                                fmt::join(out.shape, ", "), fmt::join(strides, ", ")));
    const int64_t first = arguments[1].number, all = id[4].number;
    if (first < 0 || all < 0 || uint64_t(first) > uint64_t(all) || out.count > uint64_t(all) - uint64_t(first))
      refuse(where, fmt::format("{} elements from {} do not lie in its storage of {}", out.count, first, all));
    out.first = uint64_t(first);
    out.storage_elements = uint64_t(all);
    return out;
  }

  std::vector<PickledTensor> tensors_of(int64_t dict) const {
    std::vector<PickledTensor> out;
    std::set<std::string_view> names;
    for (const Item& i : set_) {
      if (i.dict != dict) continue;
      out.push_back(tensor_of(i.key, i.value));
      if (!names.insert(text_of(i.key)).second)
        refuse(where_, fmt::format("tensor `{}` appears twice", printable(out.back().name)));
    }
    return out;
  }

  std::string_view pickle_;
  const std::string& where_;
  size_t at_ = 0, next_ = 0;  // this instruction, and the next byte
  std::vector<Pickled> stack_, memo_, items_;
  std::vector<size_t> marks_;
  std::vector<Dict> dicts_;
  std::vector<Item> set_;
};

}  // namespace

std::vector<PickledTensor> read_torch_pickle(std::string_view pickle, const std::string& where) {
  return PickleMachine(pickle, where).run();
}

}  // namespace eng

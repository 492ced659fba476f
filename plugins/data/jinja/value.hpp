// SPDX-License-Identifier: Apache-2.0
// Values of a template: those of Python that chat templates use, with its rules of truth, equality and order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace jinja {

// A template that is wrong, or that stopped. The place is in the template, from 1 on.
class Error : public std::runtime_error {
 public:
  Error(int line, int column, const std::string& what)
      : std::runtime_error("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what) {}
};

// An operation that its values do not allow. The evaluation adds the place.
class BadValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Sequence;
struct Dict;
struct Space;
struct Function;
struct Loop;

struct Undefined {
  std::string what;  // the name that has no value
};
struct None {};

class Value {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<Sequence>, std::shared_ptr<Dict>,
                   std::shared_ptr<Space>, std::shared_ptr<const Function>, std::shared_ptr<const Loop>>;

  Value() = default;  // undefined
  Value(None) : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Sequence> of) : data_(std::move(of)) {}
  Value(std::shared_ptr<Dict> of) : data_(std::move(of)) {}
  Value(std::shared_ptr<Space> of) : data_(std::move(of)) {}
  Value(std::shared_ptr<const Function> of) : data_(std::move(of)) {}
  Value(std::shared_ptr<const Loop> of) : data_(std::move(of)) {}

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  // The object behind the pointer; nullptr: the value is of another type.
  template <class T>
  T* object() const {
    if (const auto* found = std::get_if<std::shared_ptr<T>>(&data_)) return found->get();
    return nullptr;
  }
  const std::string* text() const {
    const auto* found = std::get_if<Text>(&data_);
    return found ? found->get() : nullptr;
  }
  bool undefined() const { return data_.index() == 0; }
  bool none() const { return data_.index() == 1; }
  bool number() const { return get<bool>() || get<int64_t>() || get<double>(); }

 private:
  Data data_;
};

// A list, a tuple, the items of a dict, or what a filter gives one by one.
struct Sequence {
  enum class Flavor : uint8_t { list, tuple, view, lazy };
  std::vector<Value> items;
  Flavor flavor = Flavor::list;
  int depth = 1;         // of what it holds
  std::size_t used = 0;  // of a lazy one: items that were taken, which do not come again
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order in which they were put
  int depth = 1;                               // of what it holds
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void put(Value key, Value value);
};

// An object of namespace(): the one thing that a template can change.
struct Space {
  Dict values;
};

struct Call {
  std::vector<Value> args;
  std::vector<std::pair<std::string, Value>> named;
};

class Run;
struct Function {
  std::string name;
  std::function<Value(Run&, const Call&)> body;
};

// The variable `loop`.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  std::size_t at = 0;
  int64_t depth = 1;
};

// The most levels of a value. What walks over values relies on it.
constexpr int deepest_value = 100;

// Throws BadValue for what is nested too deeply, and for functions: these are called, but not stored.
Value make_list(std::vector<Value> items, Sequence::Flavor flavor = Sequence::Flavor::list);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// a < b. Throws BadValue for values without an order.
bool less(const Value& a, const Value& b);
// As messages call the type.
std::string type_name(const Value& value);
// The items of a value that can be iterated: of a dict its keys, of a text its characters. Throws BadValue for others.
std::vector<Value> items_of(const Value& value);
// Their number, as Python's len(). Throws BadValue.
int64_t length_of(const Value& value);
// The number as a double or a whole one (a bool counts as 0 or 1); false: the value is no number.
bool as_integer(const Value& value, int64_t* out);
bool as_real(const Value& value, double* out);

}  // namespace jinja

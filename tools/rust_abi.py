# SPDX-License-Identifier: Apache-2.0
"""Rust declarations of the plugin ABI, made from the text of tools/abi-golden, which writes and checks them."""
import re

HEAD = """// SPDX-License-Identifier: Apache-2.0
// Made by tools/abi-golden --write from the headers in abi/engine/. Do not edit.
#![allow(non_camel_case_types, non_upper_case_globals, clippy::all)]

use std::os::raw::{c_char, c_void};
"""
PRIMITIVES = {"int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32",
              "int64_t": "i64", "uint64_t": "u64", "float": "f32", "double": "f64", "char": "c_char", "void": "c_void",
              "size_t": "usize", "int": "i32"}
KEYWORDS = {"as", "box", "dyn", "fn", "impl", "in", "loop", "match", "mod", "move", "mut", "pub", "ref", "self", "type",
            "use", "where", "yield"}


def name_of(text):
    return "r#" + text if text in KEYWORDS else text


def parameters_of(text):
    """A list of C parameters, divided at commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


def type_of(text, constants):
    """A C type, as tools/abi-golden spells it, in Rust."""
    text = text.strip()
    function = re.match(r"(.*) \(\*\)\((.*)\)$", text)
    if function:
        given = ", ".join(type_of(part, constants) for part in parameters_of(function[2]))
        result = function[1].strip()
        back = "" if result == "void" else " -> " + type_of(result, constants)
        return "Option<unsafe extern \"C\" fn(%s)%s>" % (given, back)
    array = re.match(r"(.*?) ?\[(\w+)\]$", text)
    if array:
        size = array[2] if array[2].isdigit() else constants[array[2]].strip()
        return "[%s; %s]" % (type_of(array[1], constants), size)
    if re.search(r"\*( ?const)?$", text):
        # The type that is pointed to stands before the last star. `const` before the base type belongs to that.
        inner = re.sub(r" ?\*( ?const)?$", "", text)
        fixed = inner.endswith("const") or ("*" not in inner and inner.startswith("const "))
        if "*" not in inner and inner.startswith("const "):
            inner = inner[len("const "):]
        return ("*const " if fixed else "*mut ") + type_of(inner, constants)
    text = re.sub(r"^(const )?(struct |enum )?", "", text)
    return PRIMITIVES.get(text, text)


def constant_of(name, value):
    if value.startswith('"'):
        return "pub const %s: &str = %s;" % (name, value)
    kind = "u64" if re.search(r"\d[uU]?[lL]", value) else "u32" if re.search(r"\d[uU]", value) else "i32"
    number = eval(re.sub(r"(0x[0-9a-fA-F]+|\d+)[uUlL]*", r"\1", value), {"__builtins__": {}})  # digits and operators only
    return "pub const %s: %s = %d;" % (name, kind, number)


def struct_of(name, size, fields, constants):
    lines = ["", "#[repr(C)]", "#[derive(Clone, Copy)]", "pub struct %s {" % name]
    lines += ["    pub %s: %s," % (name_of(field), type_of(kind, constants)) for _, _, field, kind in fields]
    lines += ["}", "// Which thread may use a table: its header says it.", "unsafe impl Sync for %s {}" % name,
              "impl %s {" % name,
              "    /// All bytes zero. Compiles only if the size is that of C.",
              "    pub const ZERO: Self = unsafe { core::mem::transmute([0u8; %s]) };" % size, "}"]
    return lines


def rust_of(golden):
    """The text of abi.rs for the text of a golden."""
    lines = golden.splitlines()
    constants = dict(line[len("constant "):].split(": ", 1) for line in lines if line.startswith("constant "))
    out, tests, drafts, at = [HEAD], [], [], 0
    version, draft = lines[0].split()[1:]
    out += ["/// For eng_plugin.draft_id.", "pub const ENG_ABI_DRAFT: *const c_char = \"%s\\0\".as_ptr() as *const c_char;" % draft]
    out += ["pub const ENG_ABI_MINOR: u32 = %s;" % version.split(".")[1], "pub const ENG_ABI_DRAFT_ID: &str = \"%s\";" % draft]
    while at < len(lines):
        head = lines[at].split()
        body = []
        while at + 1 < len(lines) and lines[at + 1].startswith("  "):
            at += 1
            body.append(lines[at].strip())
        at += 1
        if head[0] == "struct":
            fields = [(*line.split(" ", 2)[:2], *line.split(" ", 2)[2].split(": ", 1)) for line in body]
            out += struct_of(head[1], head[3], fields, constants)
            tests += ["        check!(%s, %s, %s, %s);" % (head[1], name_of(field), offset, size)
                      for offset, size, field, _ in fields]
        elif head[0] == "enum":
            out += ["", "pub type %s = i32;" % head[1]] if head[3] == "4" else [str(1 / 0)]
            out += ["pub const %s: %s = %s;" % (line.split()[1], head[1], line.split()[0]) for line in body]
        elif head[0] == "typedef":
            name, kind = lines[at - 1][len("typedef "):].split(": ", 1)
            if kind == "struct " + name:  # never seen from inside
                out += ["#[repr(C)]", "pub struct %s {" % name, "    _opaque: [u8; 0],", "}"]
            else:
                out.append("pub type %s = %s;" % (name, type_of(kind, constants)))
        elif head[0] == "constant":
            name, value = lines[at - 1][len("constant "):].split(": ", 1)
            if name not in ("ENG_ABI_MINOR", "ENG_ABI_DRAFT_ID"):
                out.append(constant_of(name, value))
        elif head[0] == "draft" and head[2].startswith(head[1]):  # embed.h is for no plugin
            drafts.append("    (%s) => { \"%s\" };" % (re.sub(r"^eng\.|/\d+$", "", head[1]), head[2]))
    out += ["", "/// The id by which a description names a kind that is not frozen: engine/plugin.h, \"Drafts\".", "#[macro_export]",
            "macro_rules! eng_draft {", *drafts, "}", "",
            "#[cfg(test)]", "mod layout {", "    use super::*;", "    macro_rules! check {",
            "        ($of:ident, $field:ident, $offset:expr, $size:expr) => {{",
            "            let whole = core::mem::MaybeUninit::<$of>::zeroed();",
            "            let at = unsafe { core::ptr::addr_of!((*whole.as_ptr()).$field) };",
            "            fn size<T>(_: *const T) -> usize { core::mem::size_of::<T>() }",
            "            assert_eq!((at as usize - whole.as_ptr() as usize, size(at)), ($offset, $size),",
            "                       \"{}.{}\", stringify!($of), stringify!($field));",
            "        }};", "    }", "    #[test]", "    fn fields_lie_where_c_has_them() {", *tests, "    }", "}"]
    return "\n".join(out) + "\n"

# SPDX-License-Identifier: Apache-2.0
"""Checks that a kernel that memory bounds could be as fast as memory: bytes and instructions of an element, read from
the machine code (flow.py). roofline_table.py says what an element needs, roofline.json has what was measured.

Of the variants of a pass, that counts which does all that the table says, in the widest accesses. A kernel without a
loop that touches global memory is one pass, from its entry to its exit."""
import collections
import dataclasses
import json
import re

from units import ROOT

TABLE = ROOT / "tests/cuda/ladder/roofline.json"
MOST, NARROW, CHANGE = 1.3, 8, 0.02
# Bytes that memory moves in one clock of one multiprocessor. From NVIDIA's data sheets (bandwidth, multiprocessors,
# boost clock): A100 80 GB 2039 GB/s, 108, 1.41 GHz; H200 4.8 TB/s, 132, 1.83 GHz; B200 8 TB/s, 148, 1.965 GHz.
BYTES = {"sm_80": 2039 / 108 / 1.41, "sm_90a": 4800 / 132 / 1.83, "sm_100": 8000 / 148 / 1.965}
PROCESSORS, GHZ = {"sm_80": 108, "sm_90a": 132, "sm_100": 148}, {"sm_80": 1.41, "sm_90a": 1.83, "sm_100": 1.965}
SLOTS = {"instructions": 128, "MUFU": 16}  # of threads, in one clock of one multiprocessor
SIZES = {"cuda::bf16": 2, "cuda::f16": 2, "float": 4, "double": 8, "unsigned int": 4, "unsigned short": 2, "char": 1,
         "true": 1, "false": 0}


# ---- the table ----

@dataclasses.dataclass(frozen=True)
class Pass:
    """Bytes of an element, as sums of the sizes of the kernel's types."""
    loads: str = "0"
    stores: str = "0"
    cached: str = "0"  # loaded, and not from memory: what many elements share
    again: str = "0"  # loaded a second time; no part of what the kernel should load
    times: float = 1  # passes of an element; 0: what a block does once, which is not looked at


@dataclasses.dataclass(frozen=True)
class Rule:
    kernel: str  # a part of its name; types that are one capital letter stand for any, and for its size
    passes: tuple
    why: str = ""  # bytes are cached
    narrow: str = ""  # why its accesses are narrow
    slow: str = ""  # why it may take longer than memory, or than `ps`; `on`: for these targets alone
    on: tuple = ()
    straight: bool = False  # one pass, from the entry to the exit, whatever loops there are
    ps: dict = None  # {arch: most picoseconds of an element}, instead of memory's time and wide accesses

    def sizes(self, name):
        """{letter: size} if this is a rule for the kernel."""
        base, _, letters = self.kernel.partition("<")
        found = re.search(r"(?<![\w])" + re.escape(base) + (r"<([^<>]*)>" if letters else r"(?=[>(<])"), name)
        if not found:
            return None
        if not letters:
            return {}
        words, given = letters.rstrip(">").split(", "), found[1].split(", ")
        if len(words) != len(given) or any(w != g for w, g in zip(words, given) if not re.fullmatch("[A-Z]", w)):
            return None
        return {w: SIZES[g] for w, g in zip(words, given) if re.fullmatch("[A-Z]", w) and g in SIZES}


def elements(cost, loads, stores):
    return cost.stores / stores if stores else cost.loads / loads if loads else 0


def pick(variants, loads, stores, all_loads):
    """The variant that does all that an element needs, in the widest accesses; then, the most of it. Of loops for one
    activation each, that with most arithmetic for an element."""
    some = [v for v in variants if bool(v.stores) == bool(stores)] or variants
    whole = [v for v in some if v.loads >= 0.95 * loads * elements(v, all_loads, stores)] or some
    width = max(v.bytes / max(v.accesses, 1) for v in whole)
    whole = [v for v in whole if v.bytes >= width * v.accesses]
    floats = max(v.floats / max(elements(v, all_loads, stores), 1) for v in whole)
    return max((v for v in whole if v.floats >= 0.95 * floats * elements(v, all_loads, stores)), key=lambda v: v.bytes)


def judge(rule, sizes, arch, row):
    """The faults, and for each pass: loads, stores, instructions, MUFU of an element, bytes of an access."""
    had = [[row["straight"]]] if rule.straight or not row["passes"] else row["passes"]
    if len(had) != len(rule.passes):
        seen = "; ".join(f"{v.loads} B loaded, {v.stores} stored, {v.instructions} instructions" for v in map(max, had))
        return [f"{len(had)} passes, {len(rule.passes)} in the table: {seen}"], []
    wrong, rows, sums = [], [], collections.Counter()
    slow = rule.slow and (not rule.on or arch in rule.on)
    for k, (want, variants) in enumerate(zip(rule.passes, had)):
        if not want.times:
            continue
        try:
            loads, stores, cached, again = (
                eval(text, {}, sizes) for text in (want.loads, want.stores, want.cached, want.again))
        except NameError as unknown:
            return [f"pass {k}: no size of a type is known: {unknown}"], []
        got = pick(variants, loads, stores, loads + cached + again)
        n = elements(got, loads + cached + again, stores)
        if not n:
            return [f"pass {k}: {'stores' if stores else 'loads'} nothing"], []
        width = got.bytes / got.accesses
        rows.append([round(x, 3) for x in (got.loads / n, got.stores / n, got.instructions / n, got.mufu / n, width)])
        if width < NARROW and not rule.narrow and not rule.ps:
            wrong.append(f"pass {k}: {width:.2g} B at once, at least {NARROW} wanted")
        for name, much in (("ideal", loads + cached), ("memory", loads + stores), ("loads", got.loads / n),
                           ("instructions", got.instructions / n), ("MUFU", got.mufu / n)):
            sums[name] += want.times * much
    if sums["loads"] > MOST * sums["ideal"] and not (slow and rule.on):
        times = f"{sums['loads'] / sums['ideal']:.2f}x" if sums["ideal"] else "nothing is needed"
        wrong.append(f"loads {sums['loads']:.3g} B of an element, ideal {sums['ideal']:.3g}: {times}")
    if not sums["memory"]:
        return wrong + ["the table says no bytes"], rows
    clocks, what = max((sums[name] / each, f"{sums[name]:.3g} {name}") for name, each in SLOTS.items())
    took = 1000 * clocks / PROCESSORS[arch] / GHZ[arch]
    if rule.ps and not slow and took > rule.ps.get(arch, took):
        wrong.append(f"{took:.2f} ps of an element, at most {rule.ps[arch]:g}; bound by {what}")
    ideal = sums["memory"] / BYTES[arch]
    if not rule.ps and not slow and clocks > MOST * ideal:
        wrong.append(f"{clocks:.3g} clocks of an element, ideal {ideal:.3g} of memory: "
                     f"{clocks / ideal:.2f}x; bound by {what}")
    return wrong, rows


def check(got, rules, others):
    """Verdicts [(kernel, what is wrong or "")] and the table {plugin: {arch: {kernel: rows}}}."""
    verdicts, table, used = [], {}, set()
    for plugin, archs in got.items():
        for arch, kernels in archs.items():
            for name, row in kernels.items():
                rule, sizes = next(((r, s) for r in rules if (s := r.sizes(name)) is not None), (None, None))
                other = next((part for part in others if part in name), None)
                if rule and other and not rule.ps:  # a rule for most of a name's variants
                    rule = None
                used |= {rule and rule.kernel, other}
                if not rule and not other:
                    verdicts.append((f"{arch} {name}", "is in no table of tests/cuda/ladder/roofline_table.py"))
                if not rule:
                    continue
                wrong, rows = judge(rule, sizes, arch, row)
                if any(p.cached != "0" for p in rule.passes) and not rule.why:
                    wrong.append("the table does not say why bytes come from a cache")
                table.setdefault(plugin, {}).setdefault(arch, {})[name] = rows
                verdicts.append((f"{arch} {name}", "; ".join(wrong)))
    verdicts += [(of, "in roofline_table.py, but in no plugin") for of in [*(r.kernel for r in rules), *others]
                 if of not in used]
    return verdicts, table


# ---- what was measured ----

def compare(want, got):
    """Kernels whose bytes or instructions changed by more than 2 %."""
    wrong = []
    for plugin in sorted({*want, *got}):
        for arch in sorted({*want.get(plugin, {}), *got.get(plugin, {})}):
            had, have = want.get(plugin, {}).get(arch, {}), got.get(plugin, {}).get(arch, {})
            for name in sorted({*had, *have}):
                a, b = had.get(name), have.get(name)
                near = a is not None and b is not None and len(a) == len(b) and all(
                    abs(y - x) <= CHANGE * abs(x) for p, q in zip(a, b) for x, y in zip(p, q))
                if not near:
                    wrong.append(f"{arch} {name}: {a} -> {b}")
    return wrong


def load():
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}


def save(table):
    lines = [f' {json.dumps(p)}: {{\n' + ",\n".join(f"  {json.dumps(a)}: {{\n" + ",\n".join(
        f"   {json.dumps(n)}: {json.dumps(rows)}" for n, rows in sorted(kernels.items())) + "\n  }" for a, kernels in
        archs.items()) + "\n }" for p, archs in table.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

# SPDX-License-Identifier: Apache-2.0
"""Cost of one element of a loop: the passes of a kernel, read from its machine code.

A pass is an innermost loop that touches global memory. Loops without a barrier or a shuffle between them are variants
of one pass: unrolled and the rest, with and without an input. Of the ways through a loop, that with most bytes counts;
of these, that without a call (of a division's slow way), and then the longest. What inner loops without global memory
do counts once."""
import collections
import dataclasses
import re

WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
LOADS, STORES = ("LDG", "LD", "LDGSTS"), ("STG", "ST", "RED", "REDG", "ATOMG", "ATOM")
FLOATS = {"MUFU": 1, "FADD": 1, "FMUL": 1, "FFMA": 1, "FADD2": 2, "FMUL2": 2, "FFMA2": 2}
JUMPS = ("BRA", "BRX", "EXIT", "RET", "JMP")
FENCES = ("BAR", "SHFL", "REDUX")


# ---- machine code ----

@dataclasses.dataclass(frozen=True)
class Instruction:
    at: int
    guard: str  # a predicate, or ""
    name: str
    operands: str

    @property
    def head(self):
        return self.name.split(".")[0]

    @property
    def target(self):
        found = re.search(r"0x([0-9a-f]+)\s*$", self.operands)
        return int(found[1], 16) if found else None

    @property
    def may_go_on(self):
        """True if the following instruction may be executed next."""
        return self.guard not in ("", "@PT", "@UPT") or self.head == "BRA" and "P" in self.operands


def parse(line):
    found = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*);", line)
    return Instruction(int(found[1], 16), found[2] or "", found[3], found[4].strip()) if found else None


# Cost of a way. Ways are compared by these fields in this order; the largest counts.
Cost = collections.namedtuple(
    "Cost", "bytes no_calls instructions loads stores accesses mufu floats", defaults=(0,) * 8)


def plus(a, b):
    return Cost(*(x + y for x, y in zip(a, b)))


def cost(code, places, i):
    one, calls, more = code[i], 0, 0
    if one.head == "NOP":
        return Cost()
    width = next((WIDTHS[p] for p in one.name.split(".") if p in WIDTHS), 4)
    loads, stores = width * (one.head in LOADS), width * (one.head in STORES)
    if one.head == "CALL" and not one.guard:
        calls, callee = -1, places.get(one.target, i)
        ends = (k for k in range(callee, len(code)) if code[k].head == "RET" and not code[k].guard)
        more = next(ends, callee) - callee
    return Cost(loads + stores, calls, 1 + more, loads, stores, int(loads + stores > 0), int(one.head == "MUFU"),
                FLOATS.get(one.head, 0))


class Flow:
    """Blocks of instructions, numbered by address; `order` is topological but for the edges in `back`."""

    def __init__(self, code):
        places = {one.at: i for i, one in enumerate(code)}
        jumps = {i for i, one in enumerate(code) if one.head in JUMPS and ".DIV" not in one.name}
        targets = {places[code[i].target] for i in jumps if code[i].head in ("BRA", "JMP") and code[i].target in places}
        starts = sorted({0, *targets, *(i + 1 for i in jumps if i + 1 < len(code))})
        self.code, self.spans = code, list(zip(starts, starts[1:] + [len(code)]))
        block = {s: k for k, s in enumerate(starts)}
        self.next, reached, self.ends = [], set(), set()
        for begin, end in self.spans:
            last, out = code[end - 1], []
            if end - 1 in jumps and last.head in ("BRA", "JMP") and last.target in places:
                out.append(block[places[last.target]])
            if end - 1 not in jumps or last.may_go_on:
                out += [block[end]] if end in block else []
            if last.head in ("EXIT", "RET"):
                self.ends.add(len(self.next))
            self.next.append(out)
            reached |= set(out)
        for k, (_, end) in enumerate(self.spans):  # a jump by a table: to the blocks that nothing else leads to
            if code[end - 1].head == "BRX":
                self.next[k] = [b for b in range(1, len(starts)) if b not in reached]
        self.costs = []
        for begin, end in self.spans:
            total = Cost()
            for i in range(begin, end):
                total = plus(total, cost(code, places, i))
            self.costs.append(total)
        self.walk()

    def walk(self):
        self.back, done, on, stack = set(), [], {0}, [(0, iter(self.next[0]))]
        seen = {0}
        while stack:
            at, left = stack[-1]
            to = next(left, None)
            if to is None:
                stack.pop(), on.discard(at), done.append(at)
            elif to in on:
                self.back.add((at, to))
            elif to not in seen:
                seen.add(to), on.add(to), stack.append((to, iter(self.next[to])))
        self.order = done[::-1]

    def loops(self):
        """{head: blocks}."""
        before = collections.defaultdict(set)
        for k in self.order:
            for to in self.next[k]:
                before[to].add(k)
        found = collections.defaultdict(set)
        for tail, head in self.back:
            body, left = {head, tail}, [tail] if tail != head else []
            while left:
                new = before[left.pop()] - body
                body |= new
                left += new
            found[head] |= body
        return found

    def way(self, head, body, ends):
        """The cost of the way that counts."""
        best = {head: self.costs[head]}
        for k in [k for k in self.order if k in body]:
            for to in self.next[k] if k in best else ():
                if to in body and (k, to) not in self.back:
                    best[to] = max(best.get(to, Cost(-1)), plus(best[k], self.costs[to]))
        return max((best[k] for k in ends if k in best), default=Cost())

    def fence(self, begin, end):
        return any(self.code[i].head in FENCES for i in range(begin, end))


def passes(code):
    """The costs of the variants of each pass of a kernel, in order; and `straight`, the way through all of it."""
    flow = Flow(code)
    touching = {h: b for h, b in flow.loops().items() if any(flow.costs[k].bytes for k in b)}
    found, last = [], None
    for head, body in sorted((h, b) for h, b in touching.items() if not any(o < b for o in touching.values())):
        ends = {a for a, b in flow.back if b == head}
        if not found or flow.fence(last, flow.spans[head][0]):
            found.append([])
        found[-1].append(flow.way(head, body, ends))
        last = flow.spans[max(ends)][1]
    return {"passes": found, "straight": flow.way(0, set(flow.order), flow.ends)}

# SPDX-License-Identifier: Apache-2.0
"""The gate of roofline.py on planted machine code: each mistake is told, and its right twin is not."""
import copy

import flow
from roofline import Pass, Rule, check, compare

RULE = Rule("planted::Of<T>", (Pass("2*T", "T"),))
MOVE, WORK = ["LDG.E.128 R4, [R2.64]", "LDG.E.128 R8, [R6.64]", "STG.E.128 [R10.64], R4"], "FADD R4, R4, R8"
SLOW = ["@P1 BRA {fast}", "MOV R20, 0x10", "CALL.REL.NOINC {slow}", "fast:"]
FENCE = ["BAR.SYNC.DEFER_BLOCKING 0x0"]


def loop(name, *body):
    return [f"{name}:", *body, f"@!P0 BRA {{{name}}}"]


def code(*parts, callee=0):
    """Instructions from lines as cuobjdump prints them, with labels instead of addresses."""
    lines = ["S2R R0, SR_TID.X", "@P0 EXIT", *(line for part in parts for line in part), "EXIT", "slow:",
             *[WORK] * callee, "RET.REL.NODEC R20 0x0"]
    places, instructions = {}, []
    for line in lines:
        if line.endswith(":"):
            places[line[:-1]] = f"0x{16 * len(instructions):x}"
        else:
            instructions.append(line)
    return [flow.parse(f"        /*{16 * i:04x}*/           {line.format(**places)} ;    /* 0x000fe200078e00ff */")
            for i, line in enumerate(instructions)]


REST, LAST = (loop(name, "LDG.E.U16 R4, [R2.64]", "LDG.E.U16 R8, [R6.64]", *[WORK] * 50, "STG.E.U16 [R10.64], R4")
              for name in ("rest", "last"))
NONE = loop("none", *["STG.E.128 [R10.64], RZ"] * 4)  # of what is left out: nothing is read
ONE, TWO = loop("one", *MOVE, *[WORK] * 200), loop("two", "LDG.E.128 R4, [R2.64]", WORK)
SKIPPED = ["@P2 BRA {fast}", MOVE[1], *[WORK] * 9, "fast:"]
# Name of a planted fault or its twin -> the code, the rule, and a part of the expected message; "": none.
PLANTED = {
    "a wide loop": (code(ONE), RULE, ""),
    "a wide loop and the rest": (code(REST, ONE, LAST), RULE, ""),
    "a loop that has nothing to read": (code(NONE, ONE), RULE, ""),
    "two bytes, and nothing to read": (code(NONE, REST), RULE, "2 B at once"),
    "a slow way around a call": (code(loop("one", *MOVE, *SLOW, *[WORK] * 200), callee=900), RULE, ""),
    "no loop": (code(MOVE, [WORK] * 200), RULE, ""),
    "two passes": (code(TWO, FENCE, ONE), Rule(RULE.kernel, (Pass("T"), *RULE.passes)), ""),
    "an input that may be absent": (code(loop("one", MOVE[0], *SKIPPED, MOVE[2])), RULE, ""),
    "reads twice": (code(loop("one", *MOVE[:2], *MOVE)), RULE, "loads 8 B of an element, ideal 4: 2.00x"),
    "reads again in a second pass": (code(TWO, FENCE, ONE), Rule(RULE.kernel, (Pass(again="T"), *RULE.passes)),
                                     "loads 6 B of an element, ideal 4: 1.50x"),
    "reads what the way around a call skips": (code(loop("one", *MOVE, *SLOW[:3], *MOVE[:2], "fast:")), RULE,
                                               "loads 8 B of an element"),
    "two bytes at once": (code(REST), RULE, "2 B at once"),
    "divides": (code(loop("one", *MOVE, *[WORK] * 500)), RULE, "bound by 63 instructions"),
    "divides by a call": (code(loop("one", *MOVE, "CALL.REL.NOINC {slow}"), callee=500), RULE, "instructions"),
    "a cheap and a dear activation": (code(loop("cheap", *MOVE * 4), loop("dear", *MOVE, *[WORK] * 500)), RULE,
                                      "bound by 63"),
    "too many MUFU": (code(loop("one", *MOVE, *["MUFU.EX2 R4, R4"] * 64)), RULE, "bound by 8 MUFU"),
    "a second pass": (code(TWO, FENCE, ONE), RULE, "2 passes, 1 in the table: 16 B loaded"),
    "stores nothing": (code(TWO), RULE, "stores nothing"),
    "a cache without a reason": (code(ONE), Rule(RULE.kernel, (Pass("T", "T", cached="T"),)), "does not say why"),
    "a scan as fast as it must be": (code(ONE), Rule(RULE.kernel, RULE.passes, ps={"sm_90a": 1}), ""),
    "a scan that is too slow": (code(ONE), Rule(RULE.kernel, RULE.passes, ps={"sm_90a": 0.5}), "element, at most 0.5"),
    "slow with a reason": (code(loop("one", *MOVE, *[WORK] * 500)), Rule(RULE.kernel, RULE.passes, slow="so"), ""),
    "slow with a reason for another target": (code(loop("one", *MOVE, *[WORK] * 500)),
                                              Rule(RULE.kernel, RULE.passes, slow="so", on=("sm_100",)), "bound by 63"),
    "a type of unknown size": (code(ONE), Rule("planted::Of<T>", (Pass("2*U", "T"),)), "no size of a type"),
}


def verdicts():
    """[(what is planted, what is wrong with the gate, or "")]."""
    found, name = [], "void cuda::each<planted::Of<cuda::bf16> >(long, planted::Of<cuda::bf16>)"
    for what, (instructions, rule, part) in PLANTED.items():
        said, _ = check({"": {"sm_90a": {name: flow.passes(instructions)}}}, (rule,), {})
        text = "\n".join(wrong for _, wrong in said)
        right = part in text if part else not text.strip()
        found.append((f"planted: {what}", "" if right else f"{part or 'nothing'!r} should be said: {text!r}"))
    got = {"": {"sm_90a": {name: flow.passes(code(ONE))}}}
    unknown, _ = check(got, (), {})
    found.append(("planted: an unlisted kernel", "" if unknown[0][1].startswith("is in no table") else str(unknown)))
    stale, table = check(got, (RULE, Rule("planted::Gone", ())), {"planted::Old": "gone"})
    found.append(("planted: a row of no kernel", "" if sum("in no plugin" in w for _, w in stale) == 2 else str(stale)))
    changed = copy.deepcopy(table)
    changed[""]["sm_90a"][name][0][2] *= 1.03
    for what, had, told in (("the same numbers", table, 0), ("3 % changed", changed, 1), ("a new kernel", {}, 1)):
        said = compare(had, table)
        found.append((f"planted: {what}", "" if len(said) == told else f"{len(said)} told: {said}"))
    return found

"""Every place in a source file where one small fault can be made, for `mutants.py`.

A fault replaces the text of one node of the syntax tree; the rest of the file stays as it is. Left
out by rule, because no behaviour that is promised depends on them: texts (messages, docstrings,
names), type hints, `assert`, `raise` but for dropping it whole, calls to a logger, `__repr__`,
tuned values in presets and defaults, guards below 1e-5, how JSON is indented, defaults that
the function never reads, and arguments that only cost or save time; nor does it count to swap
arguments that are alike, or to drop one that says what holds without it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
CALLS = {
    "min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin", "amin": "amax",
    "amax": "amin", "sum": "mean", "mean": "sum", "any": "all", "all": "any", "exp": "log",
    "log": "exp", "log_softmax": "softmax", "softmax": "log_softmax", "floor": "ceil",
    "zeros": "ones", "ones": "zeros", "zeros_like": "ones_like", "ones_like": "zeros_like",
}  # fmt: skip
NO_MATTER = {
    "strict", "set_to_none", "non_blocking", "fused", "device", "dtype", "allow_pickle", "copy",
    "stacklevel", "encoding", "init", "repr",
}  # fmt: skip
TABLES = ("PRESETS", "presets", "title", "paper", "year", "__all__", "keeps", "BOUNDS", "SOURCES")
TINY = 1e-5
SYMMETRIC = {"min", "max", "minimum", "maximum", "logaddexp", "equal"}
DEFAULTS = {
    ("normalize", "dim", "1"),
    ("diagonal", "dim1", "0"),
}  # the values of those not given
LAYOUT = "indent"
ALIKE = (" that are alike", " dropped in vain", "argument timeout dropped")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Fault(NamedTuple):
    """One change: characters start..end of the file become `new`."""

    file: str
    start: int
    end: int
    new: str
    line: int
    last: int
    inside: bool  # within a function, so that a test can be seen to execute it
    what: str
    alike: bool = False  # by rule no fault at all: passed over in a draw

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


class Drawer:
    """Finds the faults of one file."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.source = file, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = source.splitlines()
        self.span = (0, 0)
        self.inside = False
        self.settings = False  # in the body of a class of settings
        self.table = False  # within tuned values: defaults of settings, presets

    def place(self, line: int, column: int) -> int:
        """Character of a line and a byte column, as the syntax tree gives them."""
        text = self.lines[line - 1].encode()[:column].decode() if line <= len(self.lines) else ""
        return self.starts[line - 1] + len(text)

    def text(self, node: ast.AST) -> str:
        return " ".join((ast.get_source_segment(self.source, node) or "").split())

    def fault(self, node: ast.expr | ast.stmt, new: ast.AST | str, why: str) -> Fault:
        start = self.place(node.lineno, node.col_offset)
        end = self.place(node.end_lineno or node.lineno, node.end_col_offset or 0)
        code = new if isinstance(new, str) else ast.unparse(new)
        if isinstance(node, ast.expr):
            code = f"({code})"
        what = f"{why}: `{short(self.text(node))}` -> `{short(code)}`"
        alike = self.table or why.endswith(ALIKE)
        return Fault(self.file, start, end, code, *self.span, self.inside, what, alike)

    def faults(self) -> Iterator[Fault]:
        yield from self.block(ast.parse(self.source).body)

    # ---------------------------------------------------------------- statements

    def block(self, body: list[ast.stmt]) -> Iterator[Fault]:
        for statement in body:
            yield from self.statement(statement, alone=len(body) == 1)

    def statement(self, node: ast.stmt, alone: bool) -> Iterator[Fault]:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield from self.definition(node)
            return
        if is_text(node) or isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
            return
        header = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr | ast.withitem)]
        last = max((end_of(n) for n in header), default=node.lineno)
        self.table = not self.inside and (self.settings or is_dictionary(node))
        compound = hasattr(node, "body")
        self.span = (node.lineno, last if compound else node.end_lineno or node.lineno)
        if self.inside:
            yield from self.dropped(node)
        if isinstance(node, ast.Raise) or is_table(node) or is_logging(node):
            return
        yield from self.expressions(node)
        if isinstance(node, ast.For | ast.While) and not isinstance(node.body[-1], LEAVES):
            yield self.fault(node.body[-1], self.text_then(node.body[-1], "break"), "one round")
        for name in ("body", "orelse", "finalbody"):
            yield from self.block(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from self.block(handler.body)

    def text_then(self, node: ast.stmt, word: str) -> str:
        segment = ast.get_source_segment(self.source, node) or "pass"
        return f"{segment}\n{' ' * node.col_offset}{word}"

    def definition(self, node: ast.stmt) -> Iterator[Fault]:
        assert isinstance(node, (*FUNCTIONS, ast.ClassDef))
        if node.name == "__repr__":
            return
        before, self.table = self.inside, False
        self.settings = isinstance(node, ast.ClassDef) and node.name.endswith("Settings")
        self.inside = before or isinstance(node, FUNCTIONS)
        if isinstance(node, FUNCTIONS):
            self.span = (node.lineno, node.body[0].lineno)
            read = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)}
            for name, value in defaults(node.args):
                self.table = name not in read
                yield from self.expression(value)
            self.table = False
        yield from self.block(node.body)
        self.inside, self.settings = before, False

    def dropped(self, node: ast.stmt) -> Iterator[Fault]:
        """The statement left out, where the rest can run without it."""
        targets = node.targets if isinstance(node, ast.Assign) else []
        kept = [t for t in targets if isinstance(t, ast.Attribute | ast.Subscript)]
        stored = bool(targets) and len(kept) == len(targets)
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if (call and not is_logging(node)) or stored or isinstance(node, ast.AugAssign | ast.Raise):
            yield self.fault(node, "pass", "dropped")

    # ---------------------------------------------------------------- expressions

    def expressions(self, node: ast.stmt) -> Iterator[Fault]:
        """Faults in the expressions of a statement, without those of the statements in it."""
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody", "handlers", "annotation", "decorator_list"):
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.withitem):
                    part = part.context_expr
                if isinstance(part, ast.expr):
                    yield from self.expression(part)
        if isinstance(node, ast.If | ast.While):
            yield self.fault(node.test, f"not ({ast.unparse(node.test)})", "negated")

    def expression(self, node: ast.AST) -> Iterator[Fault]:
        if isinstance(node, ast.JoinedStr):
            return
        read = isinstance(getattr(node, "ctx", None) or ast.Load(), ast.Load)
        if isinstance(node, ast.expr) and read:
            for new, why in changes(node):
                yield self.fault(node, new, why)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword) and child.arg in NO_MATTER:
                continue
            if isinstance(child, ast.Slice):
                yield from self.slices(child)
            before = self.table
            self.table |= isinstance(child, ast.keyword) and child.arg == LAYOUT
            yield from self.expression(child)
            self.table = before

    def slices(self, node: ast.Slice) -> Iterator[Fault]:
        for name in ("lower", "upper"):
            bound = getattr(node, name)
            if bound is not None and not isinstance(bound, ast.Constant):
                yield self.fault(bound, f"{ast.unparse(bound)} + 1", "off by one")


LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def changes(node: ast.expr) -> Iterator[tuple[ast.AST | str, str]]:
    """What one expression may become, and what that is called."""
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY and not is_text_sum(node):
        yield ast.BinOp(node.left, BINARY[type(node.op)](), node.right), "operator"
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        ops = [COMPARE[type(node.ops[0])](), *node.ops[1:]]
        yield ast.Compare(node.left, ops, node.comparators), "comparison"
    elif isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(op, node.values), "and/or"
        yield node.values[0], "condition dropped"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand, "sign dropped"
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body), "branches swapped"
    elif isinstance(node, ast.Constant):
        yield from constants(node.value)
    elif isinstance(node, ast.Call):
        yield from calls(node)
    elif isinstance(node, COMPREHENSIONS) and node.generators[0].ifs:
        text = ast.unparse(node)
        condition = ast.unparse(node.generators[0].ifs[0])
        yield text.replace(f" if {condition}", "", 1), "filter dropped"


def constants(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, bool):
        yield repr(not value), "constant"
    elif isinstance(value, int):
        yield repr(value + 1), "constant"
    elif isinstance(value, float) and (value == 0 or abs(value) >= TINY):
        yield repr(2 * value if value else 1.0), "constant"


def calls(node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in CALLS and isinstance(node.func, ast.Attribute | ast.Name):
        new = CALLS[name]
        func = (
            ast.Attribute(node.func.value, new, ast.Load())
            if isinstance(node.func, ast.Attribute)
            else ast.Name(new, ast.Load())
        )
        if not (isinstance(func, ast.Name) and new in ("mean", "log", "exp")):
            yield ast.Call(func, node.args, node.keywords), "another function"
    plain = not any(isinstance(a, ast.Starred) for a in node.args[:2])
    if len(node.args) >= 2 and plain and name not in ("isinstance", "getattr", "hasattr"):
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        same = ast.dump(swapped[0]) == ast.dump(swapped[1]) or name in SYMMETRIC
        why = "arguments swapped" + (" that are alike" if same else "")
        yield ast.Call(node.func, swapped, node.keywords), why
    for i, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg not in NO_MATTER:
            rest = node.keywords[:i] + node.keywords[i + 1 :]
            said = (name, keyword.arg, ast.unparse(keyword.value))
            same = keyword.arg == LAYOUT or said in DEFAULTS
            why = f"argument {keyword.arg} dropped" + (" in vain" if same else "")
            yield ast.Call(node.func, node.args, rest), why


def defaults(given: ast.arguments) -> list[tuple[str, ast.expr]]:
    """The parameters that have a default, and what it is."""
    places = [*given.posonlyargs, *given.args][::-1]
    pairs = [*zip(places, given.defaults[::-1], strict=False)][::-1]
    pairs += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d]
    return [(place.arg, value) for place, value in pairs]


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_text_sum(node: ast.BinOp) -> bool:
    """Sums of texts are messages, and `|` between types is a hint."""
    parts = [n for n in ast.walk(node) if isinstance(n, ast.Constant | ast.JoinedStr)]
    return any(isinstance(p, ast.JoinedStr) or isinstance(p.value, str) for p in parts)


def is_table(node: ast.stmt) -> bool:
    """Tuned values and texts of a method: what they are is data, not behaviour."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    of_presets = any(n in TABLES or (n.startswith("_") and n.isupper()) for n in names)
    value = getattr(node, "value", None)
    hint = isinstance(value, ast.Subscript | ast.BinOp) and any(
        n[:1].isupper() and not n.isupper() for n in names
    )
    variable = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "TypeVar"
    return of_presets or hint or variable


def is_dictionary(node: ast.stmt) -> bool:
    """A table at the top of a module: presets and other values that were tuned."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    joined = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
    return isinstance(value, ast.Dict) or joined


def is_logging(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) else None
    base = getattr(getattr(func, "value", None), "id", "")
    return base in ("log", "logger", "logging", "warnings")


def end_of(node: ast.AST) -> int:
    if isinstance(node, ast.withitem):
        node = node.context_expr
    return getattr(node, "end_lineno", 0) or 0


def short(text: str) -> str:
    text = " ".join(text.split()).replace("`", "'").replace("|", "¦")
    return text if len(text) <= 70 else text[:67] + "..."


def faults_of(root: Path, file: str) -> list[Fault]:
    """All faults of a file that still parse, without repetitions."""
    source = (root / file).read_text()
    found = {}
    for fault in Drawer(file, source).faults():
        found.setdefault((fault.start, fault.end, fault.new), fault)
    return list(found.values())

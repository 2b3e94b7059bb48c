"""A small calculator for formulas that are data: numbers, declared names, + - * / **, five functions.

Nothing is executed: the text is parsed to a syntax tree, every node is checked against a whitelist, and
the tree is walked. All numbers are floats, so no formula can grow without bound.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping

from cxrbench.study.errors import nearest

Range = tuple[float, float]
LONGEST = 400  # characters: deeper nesting than a formula needs would only exhaust the parser

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "ceil": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "abs": abs,
}
_ONE_ARGUMENT = {"ceil", "floor", "abs"}


class FormulaError(ValueError):
    """What is wrong with a formula, and at which character of it (0-based)."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


class Formula:
    """A checked formula over the names ``known``. FormulaError when it is anything else."""

    def __init__(self, text: str, known: Iterable[str]) -> None:
        self.text = text
        self.names: set[str] = set()
        if len(text) > LONGEST:
            raise FormulaError(f"longer than {LONGEST} characters: split the claim")
        try:
            self._tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise FormulaError(f"not a formula ({error.msg})", max((error.offset or 1) - 1, 0)) from None
        except ValueError as error:  # null bytes
            raise FormulaError(f"not a formula ({error})") from None
        self._check(self._tree, set(known))

    def _check(self, node: ast.expr, known: set[str]) -> None:
        match node:
            case ast.Constant(value=bool()):
                raise FormulaError("truth values are not allowed, numbers only", node.col_offset)
            case ast.Constant(value=int() | float()):
                return
            case ast.Name(id=name):
                if name not in known:
                    listed = ", ".join(sorted(known)) or "none"
                    hint = nearest(name, known) or f"; declared inputs: {listed}"
                    raise FormulaError(f"unknown name '{name}'{hint}", node.col_offset)
                self.names.add(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                self._check(left, known)
                self._check(right, known)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                self._check(operand, known)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                if not args or (name in _ONE_ARGUMENT and len(args) != 1):
                    raise FormulaError(f"{name} with {len(args)} arguments", node.col_offset)
                for one in args:
                    self._check(one, known)
            case _:
                raise FormulaError(
                    f"{type(node).__name__} is not allowed: use numbers, inputs, + - * / ** and "
                    f"{', '.join(_FUNCTIONS)}",
                    node.col_offset,
                )

    def value(self, inputs: Mapping[str, float | Range]) -> Range:
        """The lowest and highest value over the corners of the inputs that are ranges.

        Exact where the formula is monotone in each range, as sums, products and ratios are.
        """
        used = sorted(self.names)
        ends = [_ends(inputs[name]) for name in used]
        values = []
        for corner in itertools.product(*ends):
            try:
                result = self._walk(self._tree, dict(zip(used, corner, strict=True)))
            except ZeroDivisionError:
                raise FormulaError("division by zero") from None
            except (OverflowError, ValueError) as error:
                raise FormulaError(f"no finite value ({error})") from None
            if isinstance(result, complex) or not math.isfinite(result):
                raise FormulaError("no finite real value")
            values.append(result)
        return min(values), max(values)

    def _walk(self, node: ast.expr, inputs: Mapping[str, float]) -> float:
        match node:
            case ast.Constant(value=int() | float() as value):
                return float(value)
            case ast.Name(id=name):
                return float(inputs[name])
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](self._walk(left, inputs), self._walk(right, inputs))
            case ast.UnaryOp(op=op, operand=operand):
                return _UNARY[type(op)](self._walk(operand, inputs))
            case ast.Call(func=ast.Name(id=name), args=args):
                return float(_FUNCTIONS[name](*(self._walk(one, inputs) for one in args)))
        raise AssertionError(node)  # _check lets nothing else through


def _ends(value: float | Range) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)

"""A small calculator for formulas that are data: numbers, declared names, + - * / **, five functions.

Nothing is executed: the text is parsed to a syntax tree, and every node is checked against a whitelist. All
numbers are floats, so no formula can grow without bound.
"""

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping

from cxrbench.common.errors import nearest

Ends = tuple[float, float]
Inputs = Mapping[str, float]
_LONGEST = 400  # characters: deeper nesting than a formula needs would only exhaust the parser

_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
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
    """A checked formula over ``names``. FormulaError when it is anything else."""

    def __init__(self, text: str, names: Iterable[str]) -> None:
        self.text = text
        self._names = set(names)
        if len(text) > _LONGEST:
            raise FormulaError(f"longer than {_LONGEST} characters: split the claim")
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise FormulaError(f"not a formula ({error.msg})", max((error.offset or 1) - 1, 0)) from None
        except ValueError as error:  # null bytes
            raise FormulaError(f"not a formula ({error})") from None
        self._evaluate = self._evaluator(tree)

    def _evaluator(self, node: ast.expr) -> Callable[[Inputs], float]:
        """A function of the inputs for a syntax tree; FormulaError where it is not arithmetic."""
        match node:
            case ast.Constant(value=bool()):
                raise FormulaError("truth values are not allowed, numbers only", node.col_offset)
            case ast.Constant(value=int() | float() as number):
                return lambda _: float(number)
            case ast.Name(id=name):
                return self._input(name, node.col_offset)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                function, ends = _OPERATORS[type(op)], [left, right]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                function, ends = _OPERATORS[type(op)], [operand]
            case ast.Call(func=ast.Name(id=name), args=ends, keywords=[]) if name in _FUNCTIONS:
                if not ends or (name in _ONE_ARGUMENT and len(ends) != 1):
                    raise FormulaError(f"{name} with {len(ends)} arguments", node.col_offset)
                function = _FUNCTIONS[name]
            case _:
                raise FormulaError(
                    f"{type(node).__name__} is not allowed: use numbers, inputs, + - * / ** and "
                    f"{', '.join(_FUNCTIONS)}",
                    node.col_offset,
                )
        parts = [self._evaluator(end) for end in ends]
        return lambda inputs: function(*(part(inputs) for part in parts))

    def _input(self, name: str, offset: int) -> Callable[[Inputs], float]:
        if name not in self._names:
            declared = f"; declared inputs: {', '.join(sorted(self._names)) or 'none'}"
            raise FormulaError(f"unknown name '{name}'{nearest(name, self._names) or declared}", offset)
        return lambda inputs: float(inputs[name])

    def value(self, inputs: Mapping[str, Ends]) -> Ends:
        """The lowest and highest value over the corners of the inputs that are ranges.

        Exact where the formula is monotone in each range, as sums, products and ratios are.
        """
        values = []
        for corner in itertools.product(*(dict.fromkeys(ends) for ends in inputs.values())):
            try:
                result = self._evaluate(dict(zip(inputs, corner, strict=True)))
            except ZeroDivisionError:
                raise FormulaError("division by zero") from None
            except (OverflowError, ValueError) as error:
                raise FormulaError(f"no finite value ({error})") from None
            if isinstance(result, complex) or not math.isfinite(result):
                raise FormulaError("no finite real value")
            values.append(result)
        return min(values), max(values)

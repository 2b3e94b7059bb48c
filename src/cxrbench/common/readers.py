"""Files that people edit: CSV with typed rows, YAML with known places.

Every mistake is one UserError that begins with file, line and column, whatever bytes the file holds.
"""

import codecs
import csv
import io
import re
from collections.abc import Callable, Collection
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
)

from cxrbench.common.errors import UserError, nearest, shortened, suggestion
from cxrbench.common.files import explained

LARGEST = 64 * 2**20  # bytes of a file that people edit; the longest list of images has 3 MB
DEEPEST, MOST_NODES, LONGEST_NUMBER = 50, 100_000, 40  # YAML: levels, values with aliases expanded, digits
_CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]")
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
OR_NONE = BeforeValidator(lambda text: None if text == "" else text)  # an empty cell is None


def read_text(path: Path | str) -> str:
    """The text of a UTF-8 file without its byte order mark, line ends as ``\\n``."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise explained(error, path) or UserError(f"{path}: cannot be read ({error.strerror})") from None
    if len(raw) > LARGEST:
        raise UserError(f"{path}: larger than {LARGEST // 2**20} MiB; name another file")
    try:
        raw = raw.removeprefix(codecs.BOM_UTF8)
        text = raw.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        fault = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise UserError(f"{path}:{_place(before)}: {fault}") from None
    if control := _CONTROL.search(text):
        fault = f"control character {control[0]!r}; remove it"
        raise UserError(f"{path}:{_place(text[: control.start()])}: {fault}")
    return text


def _place(before: str) -> str:
    """Line and column behind the text ``before``, both from 1."""
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


class Row(BaseModel):
    """One line of a CSV file. Its fields, or their aliases, are the columns; texts are stripped."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True, allow_inf_nan=False)
    KEY: ClassVar[tuple[str, ...]] = ()  # columns that together occur once
    ANY_CASE: ClassVar = False  # whether keys that differ in case only are the same

    @classmethod
    def columns(cls) -> list[str]:
        """The names of the columns, in order."""
        return [field.alias or name for name, field in cls.model_fields.items()]


AnyRow = TypeVar("AnyRow", bound=Row)


def read_rows(path: Path | str, model: type[AnyRow]) -> dict[int, AnyRow]:
    """The rows of a CSV file by line number; UserError with the place of the first mistake.

    Columns may have any order; blank lines are skipped.
    """
    columns = model.columns()
    rows: dict[int, AnyRow] = {}
    first: dict[tuple[str, ...], int] = {}
    for line, given in read_cells(path, columns).items():
        try:
            rows[line] = model.model_validate(given)
        except ValidationError as error:
            wrong = min(error.errors(), key=lambda mistake: columns.index(str(mistake["loc"][0])))
            raise UserError(f"{path}:{line}: column {wrong['loc'][0]}: {complaint(wrong)}") from None
        key = tuple(given[column] for column in model.KEY)
        same = tuple(map(str.casefold, key)) if model.ANY_CASE else key
        if key and (first_line := first.setdefault(same, line)) != line:
            named = shortened(" ".join(filter(None, key)))
            fault = f"second row for {named} (first in line {first_line}); keep one of the two"
            raise UserError(f"{path}:{line}: column {model.KEY[-1]}: {fault}")
    return rows


def read_cells(path: Path | str, columns: Collection[str]) -> dict[int, dict[str, str]]:
    """The stripped texts of a CSV file with these ``columns``, by line number and column."""
    reader = csv.reader(io.StringIO(read_text(path), newline="\n"), strict=True)
    lines: dict[int, list[str]] = {}
    start = 0
    try:
        for cells in reader:
            if cells:
                lines[start + 1] = [cell.strip() for cell in cells]
            start = reader.line_num
    except csv.Error as error:
        raise UserError(f"{path}:{start + 1}: column 1: not CSV ({error}); correct its quotes") from None
    header_line, header = next(iter(lines.items()), (1, []))
    _check_header(header, columns, f"{path}:{header_line}")
    rows = {}
    for line, cells in lines.items():
        if len(cells) != len(header):
            raise UserError(
                f"{path}:{line}: column {min(len(cells), len(header)) + 1}: {len(cells)} cells where the "
                f"header has {len(header)}; quote cells that contain commas"
            )
        if line != header_line:
            rows[line] = dict(zip(header, cells, strict=True))
    return rows


def _check_header(header: list[str], columns: Collection[str], where: str) -> None:
    for position, name in enumerate(header, 1):
        if name not in columns:
            fault = f"unknown column '{shortened(name)}'{suggestion(name[:100], columns, 1)}"
            raise UserError(f"{where}: column {position}: {fault}")
        if name in header[: position - 1]:
            raise UserError(f"{where}: column {position}: '{name}' occurs twice; remove one")
    if missing := [name for name in columns if name not in header]:
        raise UserError(f"{where}: column {missing[0]} is missing; the header is {','.join(columns)}")


def one_of(values: Collection[str]) -> AfterValidator:
    """A validator for a text that must be one of ``values``."""

    def check(text: str) -> str:
        if text not in values:
            raise ValueError(f"unknown value '{shortened(text)}'{suggestion(text[:100], values)}")
        return text

    return AfterValidator(check)


def matching(pattern: str, example: str) -> AfterValidator:
    """A validator for a text of the form ``pattern``."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"'{shortened(text)}' does not have the form of {example}")
        return text

    return AfterValidator(check)


def iso_date(text: str) -> str:
    """``text`` when it is a date such as 2026-07-20; ValueError otherwise."""
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise ValueError(f"'{shortened(text)}' is not a date such as 2026-07-20")


_WORDS = {
    "float_parsing": "is not a number",
    "int_parsing": "is not a whole number",
    "int_parsing_size": "is not a whole number",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be {le:g} or less",
}


def complaint(error: Any, keys: Collection[str] = ()) -> str:
    """The mistake in words, for one of pydantic's errors; ``keys`` are those beside it."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        return "is missing; add it"
    if kind == "union_tag_not_found":
        return f"key {context['discriminator']} is missing; add it"
    if kind == "extra_forbidden":
        return f"unknown key '{shortened(error['loc'][-1])}'{suggestion(str(error['loc'][-1])[:100], keys)}"
    if given == "":
        return "is empty; fill it in"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("literal_error", "union_tag_invalid"):
        given, values = context.get("tag", given), context.get("expected") or context["expected_tags"]
        hint = nearest(str(given)[:100], re.findall(r"'([^']+)'", values))
        return f"unknown value '{shortened(given)}'{hint}; use one of {values}"
    words = _WORDS.get(kind, error["msg"]).format(**context)
    return f"'{shortened(given)}' {words}; correct it"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader of texts, numbers, dates, lists and mappings; errors in scalars state their position."""


def _placed(build: Callable[[Any, yaml.Node], Any]) -> Callable[[Any, yaml.Node], Any]:
    def construct(loader: Any, node: yaml.Node) -> Any:
        try:
            if len(node.value) > LONGEST_NUMBER:
                raise ValueError(f"a number of {len(node.value)} characters; at most {LONGEST_NUMBER}")
            return build(loader, node)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None

    return construct


for _kind in ("int", "float", "timestamp"):
    _tag = f"tag:yaml.org,2002:{_kind}"
    _Loader.add_constructor(_tag, _placed(_Loader.yaml_constructors[_tag]))

_MERGE = "tag:yaml.org,2002:merge"  # << may be there twice: both are merged
Keys = tuple[str | int, ...]  # the way to a value: keys of mappings, numbers in lists


class Document:
    """A YAML file: its plain ``value``, and :meth:`at`, the place of any value below it.

    UserError with the place for what is not YAML, a key given twice, an explicit tag, nesting deeper than
    ``DEEPEST``, more than ``MOST_NODES`` values (aliases expanded), or an alias inside its own anchor.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        text = read_text(path)
        try:
            self._refuse_bombs(text)
            loader = _Loader(text)
            self._root = loader.get_single_node()
            self._refuse_repeated_keys(self._root, set())
            self.value: Any = None if self._root is None else loader.construct_document(self._root)
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            raise UserError(f"{self._mark(mark)}: not YAML: {problem or error}") from None

    def _mark(self, mark: Any) -> str:
        return f"{self.path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self.path}:1:1"

    def _refuse_bombs(self, text: str) -> None:
        """Read the events alone: nothing is built before its size is known."""
        sizes: dict[str | None, int] = {}
        above: list[tuple[str | None, int]] = []  # anchor of each open collection, values before it
        count = 0
        for event in yaml.parse(text, _Loader):
            anchor, wrong = getattr(event, "anchor", None), ""
            if bad := _CONTROL.search(getattr(event, "value", "")):
                wrong = f"control character {bad[0]!r}; remove it"
            if getattr(event, "tag", None):
                wrong = f"the tag {event.tag} is not used here; remove it"
            if isinstance(event, yaml.CollectionEndEvent):
                opened, before = above.pop()
                sizes[opened] = count - before
            elif isinstance(event, yaml.AliasEvent):
                if anchor in [opened for opened, _ in above]:
                    wrong = f"*{anchor} is inside of what it stands for; write the value itself"
                count += sizes.get(anchor, 1)
            elif isinstance(event, yaml.NodeEvent):
                count += 1
                sizes[anchor] = 1
            if isinstance(event, yaml.CollectionStartEvent):
                above.append((anchor, count - 1))
            if len(above) > DEEPEST:
                wrong = f"nested deeper than {DEEPEST} levels; write it flat"
            if count > MOST_NODES:
                wrong = f"more than {MOST_NODES:,} values, aliases expanded; write fewer"
            if wrong:
                raise UserError(f"{self._mark(event.start_mark)}: {wrong}")

    def _refuse_repeated_keys(self, node: yaml.Node | None, done: set[int]) -> None:
        if not isinstance(node, yaml.CollectionNode) or id(node) in done:
            return
        done.add(id(node))
        seen = set()
        for child in node.value:
            name, value = child if isinstance(child, tuple) else (None, child)
            if name is not None:
                key = (name.tag, str(name.value))
                if key in seen and name.tag != _MERGE:
                    fault = f"key '{shortened(name.value)}' is given twice; keep one"
                    raise UserError(f"{self._mark(name.start_mark)}: {fault}")
                seen.add(key)
            self._refuse_repeated_keys(value, done)

    def at(self, *keys: str | int, offset: int = 0) -> str:
        """file:line:column of the value below ``keys``, or of the nearest one above that exists."""
        node = self._root
        for key in keys:
            node = _below(node, key) or node
        if node is None:
            return self._mark(None)
        quoted = 1 if getattr(node, "style", None) in ("'", '"') and offset else 0
        return f"{self.path}:{node.start_mark.line + 1}:{node.start_mark.column + 1 + quoted + offset}"

    def wrong(self, keys: Keys, fault: str, offset: int = 0) -> UserError:
        """The complaint ``fault`` about the value below ``keys``."""
        return UserError(f"{self.at(*keys, offset=offset)}: {fault}")


def _below(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in reversed(node.value) if name.value == str(key)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key]
    return None

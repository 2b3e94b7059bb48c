"""What the gate of steps must find and what it must let pass, tried and written as a table.

``python -m benchmarks.gate_table OUT.csv NETWORK ...``: steps of eight images of 32 px, in each precision.
Operators are judged one by one, so that a step can hold a defect in each of them.
"""

import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import measured_now
from benchmarks.gate import RIGHT, Kernels, Made, OfStudy, Spread, ratio, spread_of, truncated_tf32
from benchmarks.train import packed_phantoms
from cxrbench.common.files import write_csv
from cxrbench.platforms.base import Platform
from cxrbench.platforms.defects import DEFECT_KINDS, MODULES, OPERATORS, Defect, NoSuchDefect
from cxrbench.platforms.emulated import to_bf16, to_tf32
from cxrbench.platforms.gate import TensorDifference
from cxrbench.platforms.judged import AVERAGING, Stepped, judge
from cxrbench.study.config import Recipe

BATCH = 8
_KERNELS = ("default", "one thread", "channels_last", "own kernels")
Correct = dict[str, Callable[[], Platform]]


def _in_all(words: str, precision: str, rounding: Any = None) -> Correct:
    return {f"{words}{kernels}": partial(Kernels, precision, kernels, rounding) for kernels in _KERNELS}


CORRECT: dict[str, Correct] = {
    "fp32": _in_all("", "fp32"),
    "tf32": _in_all("rounded, ", "fp32", to_tf32)
    | {"truncated": partial(Kernels, "fp32", "default", truncated_tf32)},
    "bf16": _in_all("rounded, ", "fp32", to_bf16) | _in_all("autocast, ", "bf16"),
}
PLACES = ("output", "input", "weight", "buffer")


def defects(
    made: Made, precision: str, kind: str, place: str, spread: Spread, operators: Sequence[str] = OPERATORS
) -> Iterator[dict[str, Any]]:
    """Yield for each of ``operators`` that the network has what the gate finds of a defect planted there."""
    start, stepped, batches = made(next(iter(RIGHT[precision].values()))(), 0)
    texts = [
        ":".join(filter(None, (operator, kind, place if operator in MODULES else "")))
        for operator in operators
        if operator in MODULES or place in ("", "weight")  # an update has one place alone
    ]
    there = [text for text in texts if _can_be_planted(text, stepped)]
    # What is given a stale result, or an unwritten one, may be right by being so: of these a step holds one,
    # but for gradients of weights, which no other operator is given.
    alone = kind in ("stale", "border")
    apart = [text for text in there if alone and not (place == "weight" and text.endswith(place))]
    rest = [text for text in there if text not in apart]
    for together in filter(None, [rest, *([text] for text in apart)]):
        start, stepped, batches = made(next(iter(RIGHT[precision].values()))(), 0)
        planted = {text: Defect(text).plant(stepped) for text in together}
        found = judge(stepped, start, batches)[0]
        for text, name in planted.items():
            differences = [difference for difference in found if _is_of(difference, text.split(":")[0], name)]
            worst = max(differences, key=lambda difference: ratio(difference, precision, spread))
            yield {"case": text, "seed": 0} | _row(worst, precision, spread)


def _can_be_planted(text: str, stepped: Stepped) -> bool:
    """Whether a network, which is not used any more, has such an operator."""
    with suppress(NoSuchDefect):
        return bool(Defect(text).plant(stepped))
    return False


def _is_of(difference: TensorDifference, operator: str, name: str) -> bool:
    """Whether a difference is of the operator in which a defect was planted."""
    if operator == "averaging":
        return difference[:2] == (AVERAGING, name)
    return difference.operator.startswith(f"AdamW on {name} " if operator == "adamw" else f"{name} ")


def correct(made: Made, precision: str, case: str, seed: int, spread: Spread) -> dict[str, Any]:
    """The largest difference that the gate sees in a correct variant."""
    start, stepped, batches = made(CORRECT[precision][case](), seed)
    worst = max(
        judge(stepped, start, batches)[0], key=lambda difference: ratio(difference, precision, spread)
    )
    return {"case": case, "seed": seed} | _row(worst, precision, spread)


def _row(worst: Any, precision: str, spread: Spread) -> dict[str, Any]:
    numbers = {"direction": worst.direction, "norm": worst.norm, "ratio": ratio(worst, precision, spread)}
    rounded = {name: float(f"{value:.3g}") for name, value in numbers.items()}
    return {"operator": worst.operator, "tensor": worst.tensor, **rounded}


def main(out: Path, networks: list[str], seeds: int = 6) -> None:
    """Write the table as it grows."""
    rows: list[dict[str, Any]] = []
    now = measured_now()
    place = {name: now[name] for name in ("measured", "machine", "commit", "dirty")} | now["versions"]
    with packed_phantoms(32) as packed:
        for network in networks:
            made = OfStudy(network, Recipe(epochs=100, batch=BATCH, threads=2), packed)
            for precision in RIGHT:
                spread = spread_of(made, precision)
                head = {"network": network, "precision": precision}
                for kind, tensor_place in product(DEFECT_KINDS, PLACES):
                    for row in defects(made, precision, kind, tensor_place, spread):
                        rows.append(head | {"list": "defect"} | row | place)
                    write_csv(out, pd.DataFrame(rows))
                for seed, case in product(range(seeds), CORRECT[precision]):
                    row = correct(made, precision, case, seed, spread)
                    rows.append(head | {"list": "correct"} | row | place)
                    write_csv(out, pd.DataFrame(rows))
                    gc.collect()  # hooks and what they keep refer to each other
                print(f"{network} in {precision}: {len(rows)} rows so far", file=sys.stderr, flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(Path(sys.argv[1]), sys.argv[2:])

"""``cxrbench bench``: measure speed, and keep what was measured as evidence."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from cxrbench.cli.words import RECORDED, RESULTS, TIMED, RecordedOption, must_run_here, say
from cxrbench.common.errors import UserError
from cxrbench.common.files import write_json
from cxrbench.evidence.store import GATE, KEYS, UNFIT, Rows, differing_steps, merged, read_measured
from cxrbench.study.platforms import ACCELERATED, ENTRIES, LacksPrecision

app = typer.Typer(help="Measure speed, and keep what was measured as evidence.", no_args_is_help=True)
BENCH = RESULTS / "bench"
_SPEED = (
    "{architecture}: ours {ours:.0f} images/s with {kernels} kernels, {ratio_to_timm:.2f} of timm's "
    "defaults, {ratio_to_timm_best:.2f} of timm with {timm_best_flags}, {share_of_limit:.3f} of the limit "
    "(+- {half:.3f})"
)
_STEPS, _ACCELERATED_STEPS = 3, 60  # a block: there, many times the batches that a loader keeps ready
Names = Annotated[list[str] | None, typer.Argument(help="timm names.")]
Platform = Annotated[str, typer.Option(help="cpu or cuda; `train` also takes xla_cpu.")]
Pixels = Annotated[int, typer.Option(min=16, help="Side of the images.")]
Batch = Annotated[int, typer.Option(min=1, help="Images per step.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16, or tf32 on a GPU.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]
Blocks = Annotated[int, typer.Option(min=1, help="Rounds in which the contenders take turns.")]
Out = Annotated[Path, typer.Option(help="JSON to write.")]
StepsOfBlock = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"Timed steps per block. Default: {_STEPS}, on an accelerator {_ACCELERATED_STEPS}."
    ),
]
Merged = Annotated[Path, typer.Option(help="JSON to write; rows of other settings in it are kept.")]


def _steps_on(platform: str) -> int:
    return _ACCELERATED_STEPS if platform in ACCELERATED else _STEPS


def keep(out: Path, kind: str, measured: Iterable[Rows]) -> Iterator[Rows]:
    """Write rows to ``out`` as soon as they are measured, beside those of other settings; yield them."""
    kept = read_measured(out)  # a damaged file is named before anything is measured
    for rows in measured:
        kept = merged(kept, rows, kind)
        write_json(out, kept)
        yield rows


def print_numbers(row: dict[str, Any]) -> None:
    for name, value in row.items():
        if type(value) in (int, float):
            print(f"{name}: {value:.4g}")


def must_be_timed(platform: str, allowed: tuple[str, ...]) -> None:
    """Raise unless ``platform`` is one of these and can run here."""
    if platform not in allowed:
        raise typer.BadParameter(f"there is no such comparison on '{platform}'; use {', '.join(allowed)}")
    must_run_here(platform)


@app.command("train")
def bench_train(
    architectures: Names = None,
    platform: Platform = "cpu",
    pixels: Pixels = 64,
    batch: Batch = 32,
    precision: Precision = "fp32",
    threads: Threads = 2,
    blocks: Blocks = 15,
    steps: StepsOfBlock = None,
    fastest: Annotated[
        bool, typer.Option("--fastest", help="Let our loop use kernels that do not repeat to the bit.")
    ] = False,
    out: Merged = BENCH / "train.json",
) -> None:
    """Compare the speed of our training loop with timm's and with the device's limit."""
    from benchmarks import train

    must_be_timed(platform, TIMED)
    if precision not in (known := ENTRIES[platform].precisions):
        raise typer.BadParameter(f"{platform} has no precision '{precision}'; use {', '.join(known)}")
    rest = pixels, batch, precision, threads, blocks, steps or _steps_on(platform), fastest
    settings = [train.Setting(platform, name, *rest) for name in architectures or train.NETWORKS]
    with train.packed_phantoms(pixels, batch) as folder:
        for (row,) in keep(out, "train", ([train.measure(setting, folder, say)] for setting in settings)):
            if UNFIT in row:
                print(f"{row['architecture']}: batch {batch} does not fit: {row[UNFIT]}")
                continue
            kernels = "the fastest" if fastest else "repeatable"
            print(_SPEED.format(half=row["spread"] / 2, kernels=kernels, **row))


@app.command("gains")
def bench_gains(
    architectures: Names = None,
    platform: Platform = "cpu",
    pixels: Pixels = 64,
    batch: Batch = 32,
    threads: Threads = 2,
    blocks: Blocks = 15,
    out: Merged = BENCH / "gains.json",
) -> None:
    """Measure what channels_last, fused AdamW and torch.compile gain in each precision."""
    from benchmarks import gains, train

    must_be_timed(platform, ("cpu", "cuda"))
    settings = (
        train.Setting(platform, name, pixels, batch, precision, threads, blocks, _steps_on(platform))
        for name, precision in product(architectures or train.NETWORKS, ENTRIES[platform].precisions)
    )

    def measured() -> Iterator[Rows]:
        for setting in settings:
            try:
                yield gains.measure_gains(setting, say)
            except LacksPrecision as lacking:
                say(f"{setting.architecture} in {setting.precision} is left out: {lacking}")

    deque(keep(out, "gains", measured()), 0)


@app.command("metrics")
def bench_statistics(out: Out = BENCH / "metrics.json") -> None:
    """Compare the speed of all metrics, and of a comparison, with scikit-learn and MLstatkit."""
    from benchmarks.statistics import bench_compare, bench_metrics

    rows = [bench_metrics(), bench_compare()]
    write_json(out, rows)
    for row in rows:
        print_numbers(row)
    if rows[1]["mlstatkit_seconds"] is None:
        say("MLstatkit is not installed, so its DeLong test was not timed: pip install MLstatkit")


@app.command("steps")
def bench_steps(
    architectures: Names = None,
    platforms: Annotated[
        str, typer.Option(help="Platforms to judge, separated by commas; with --model any device of torch's.")
    ] = "xla_cpu",
    precision: Precision = "fp32",
    pixels: Pixels = 32,
    batch: Annotated[
        str, typer.Option(help="Images per step; with --model a file of torch.save, or random:8x3x64x64.")
    ] = "64",
    model: Annotated[
        str | None, typer.Option(help="Your package.module:function that returns a network and its loss.")
    ] = None,
    seed_defect: Annotated[
        str | None,
        typer.Option(help="Plant OPERATOR:KIND, which the gate must find, such as depthwise:sign."),
    ] = None,
    drift: Annotated[
        int, typer.Option(min=0, help="Also take this many steps in a row and keep how they drift apart.")
    ] = 0,
    out: Merged = GATE,
) -> None:
    """Compare each operator of a training step on a platform with float64.

    Ends with 1 where a tensor of the step is further from the exact one than
    correct arithmetic in that precision, and names operator and tensor. `cpu`
    stands for the CPU's emulation of the precision. A cell that is trained here
    afterwards names these rows in its record.
    """
    from benchmarks import gate
    from benchmarks.train import packed_phantoms
    from cxrbench.platforms.defects import Defect, NoSuchDefect

    others = platforms.split(",")
    for name in others:
        if model is None or name in ENTRIES:
            must_run_here(name)
    if precision not in gate.RIGHT:
        raise typer.BadParameter(f"there is no precision {precision}; use {', '.join(gate.RIGHT)}")
    try:
        if seed_defect:
            Defect(seed_defect)
        with nullcontext(Path()) if model else packed_phantoms(pixels) as packed:
            judged = gate.networks(architectures, model, batch, packed)
            rows = gate.judge_all(judged, others, precision, seed_defect, say)
            found = [
                row for group in (rows if seed_defect or model else keep(out, "gate", rows)) for row in group
            ]
            if drift:
                from benchmarks.steps import compare_steps

                traces = (compare_steps(str(made), others, packed, drift, precision, say) for made in judged)
                deque(keep(out.with_name("steps.json"), "steps", traces), 0)
    except NoSuchDefect as error:
        raise typer.BadParameter(str(error)) from None
    if wrong := differing_steps(found):
        raise UserError(gate.why_not(wrong[0]))


@app.command("record")
def bench_record(
    source: Annotated[Path, typer.Option(help="Folder of what was measured here.")] = BENCH,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Keep measurements under data/recorded/bench/[ACCELERATOR-]PROCESSOR-CORES/, by where they were made.

    Rows of other settings that are recorded there stay; train-224.json joins train.json.
    """
    from benchmarks import folder_name
    from cxrbench.evidence.sums import updated_sums

    if not (measured := sorted(source.rglob("*.json"))):
        raise UserError(f"{source}: nothing was measured there; run a `cxrbench bench`, or name --source")
    kinds = {path: path.stem.partition("-")[0] for path in measured}
    if unread := [path for path, kind in kinds.items() if kind not in KEYS]:
        names = ", ".join(f"{kind}.json" for kind in KEYS)
        raise UserError(f"{unread[0]}: nothing reads a file of this name; rename it to one of {names}")
    with updated_sums(recorded):
        for path, kind in kinds.items():
            machines: dict[str, Rows] = {}
            for row in read_measured(path):
                machines.setdefault(row.get("machine") or folder_name(), []).append(row)
            for machine, rows in machines.items():
                kept = recorded / "bench" / machine / f"{kind}.json"
                write_json(kept, merged(read_measured(kept), rows, kind))
                say(f"recorded {path.name} of {machine}")

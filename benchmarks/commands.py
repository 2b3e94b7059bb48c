"""``cxrbench bench``: measure speed, and keep what was measured as evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import RECORDED, RESULTS, RecordedOption, say
from cxrbench.study.errors import UserError
from cxrbench.study.files import write_json

app = typer.Typer(help="Measure speed, and keep what was measured as evidence.", no_args_is_help=True)
BENCH = RESULTS / "bench"
IMAGES = {"train": 900, "val": 500, "test": 520}  # phantoms of `bench steps` and `bench xla`
Names = Annotated[list[str] | None, typer.Argument(help="timm names.")]
Pixels = Annotated[int, typer.Option(min=16, help="Side of the images.")]
Batch = Annotated[int, typer.Option(min=1, help="Images per step.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]
Blocks = Annotated[int, typer.Option(min=1, help="Paired blocks.")]
Out = Annotated[Path, typer.Option(help="JSON to write.")]


@app.command("train")
def bench_train(
    architectures: Names = None,
    platform: Annotated[str, typer.Option(help="cpu, cuda or xla_cpu.")] = "cpu",
    pixels: Pixels = 64,
    batch: Batch = 32,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    threads: Threads = 2,
    blocks: Blocks = 15,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps per block.")] = 3,
    out: Out = BENCH / "train.json",
) -> None:
    """Our loop, timm's with its defaults and with channels last, and the device's limit, interleaved."""
    from benchmarks import train

    rows = []
    for architecture in architectures or train.NETWORKS:
        setting = train.Setting(platform, architecture, pixels, batch, precision, threads, blocks, steps)
        rows.append(row := train.measure(setting, say))
        write_json(out, rows)
        print(
            f"{architecture}: ours {row['ours']:.0f} images/s, "
            f"{row['ratio_to_timm']:.2f} of timm's defaults, "
            f"{row['ratio_to_timm_best']:.2f} of those with channels last, "
            f"{row['share_of_limit']:.3f} of the limit"
        )


@app.command("gains")
def bench_gains(
    architectures: Names = None,
    platform: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    pixels: Pixels = 64,
    batch: Batch = 32,
    threads: Threads = 2,
    blocks: Blocks = 15,
    out: Out = BENCH / "gains.json",
) -> None:
    """What channels_last, fused AdamW and torch.compile gain, added one after the other."""
    from benchmarks import gains, train

    rows = []
    for architecture in architectures or train.NETWORKS:
        setting = train.Setting(platform, architecture, pixels, batch, "fp32", threads, blocks)
        rows += gains.measure_gains(setting, say)
        write_json(out, rows)


@app.command("metrics")
def bench_statistics(out: Out = BENCH / "metrics.json") -> None:
    """All metrics of a set of the official size, against scikit-learn called in a loop."""
    from benchmarks.statistics import bench_metrics

    write_json(out, measured := bench_metrics())
    for name, value in measured.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")


@app.command("steps")
def bench_steps(
    architectures: Names = None,
    platforms: Annotated[str, typer.Option(help="Platforms held against the CPU, with commas.")] = "xla_cpu",
    precision: Annotated[str, typer.Option(help="fp32 or bf16, on those platforms.")] = "fp32",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 20,
    out: Out = BENCH / "steps.json",
) -> None:
    """The same steps on several platforms: how far loss, gradients and weights drift apart."""
    from benchmarks.steps import compare_steps
    from benchmarks.train import packed_phantoms

    rows: list[dict[str, object]] = []
    with packed_phantoms(32, IMAGES) as packed:
        for architecture in architectures or ("resnet18", "convnext_atto"):
            rows += compare_steps(architecture, platforms.split(","), packed, steps, precision, say)
            write_json(out, rows)


@app.command("xla")
def bench_xla(
    architecture: Annotated[str, typer.Argument(help="A timm name.")] = "test_resnet",
    steps: Annotated[int, typer.Option(help="Training steps of each way.")] = 8,
    out: Out = BENCH / "xla_ways.json",
) -> None:
    """What each XLA change is worth: compiles, seconds and fallbacks with one of them left out."""
    from benchmarks.train import packed_phantoms
    from benchmarks.xla import measure_ways

    with packed_phantoms(32, IMAGES) as packed:
        write_json(out, measure_ways(architecture, packed, steps, say))


@app.command("graph")
def bench_of_the_graph(
    cells: Annotated[int, typer.Option(min=1, help="Cells of the study.")] = 1000,
    out: Out = BENCH / "graph.json",
) -> None:
    """Seconds of a dry run, and of a build with nothing to do, of a study of many cells."""
    from benchmarks.graph import bench_graph

    write_json(out, [row := bench_graph(cells, Path.cwd(), say)])
    print(f"{row['cells']} cells, {row['train_jobs']} of them to be trained")
    for name in ("dry_run", "nothing_to_do"):
        seconds, cpu, each = (row[f"{name}_{what}"] for what in ("seconds", "cpu_seconds", "ms_per_cell"))
        print(f"{name.replace('_', ' ')}: {seconds:.1f} s ({cpu:.1f} s of processor), {each:.1f} ms per cell")


@app.command("pack")
def bench_packing(
    images: Annotated[int, typer.Option(min=1, help="Files.")] = 500,
    drawn: Annotated[int, typer.Option(min=1, help="Different phantoms among them.")] = 100,
    pixels: Annotated[int, typer.Option(min=16, help="Side of the result.")] = 64,
    workers: Annotated[int, typer.Option(min=0, help="0: one per core.")] = 0,
    blocks: Blocks = 7,
    out: Out = BENCH / "pack.json",
) -> None:
    """Packing against decoding alone and against torchvision's ImageFolder, in turns."""
    from benchmarks.packing import Setting, bench_pack

    write_json(out, row := bench_pack(Setting(drawn, images, pixels, workers, blocks), say))
    for name, value in row.items():
        if "_to_" in name or name.endswith("_per_second"):
            print(f"{name}: {value:.2f}")


@app.command("record")
def bench_record(
    source: Annotated[Path, typer.Option(help="Folder of what was measured here.")] = BENCH,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Keep this machine's measurements under data/recorded/bench/<host>/."""
    from cxrbench.evidence.sums import updated_sums
    from cxrbench.study.files import write_text
    from cxrbench.training.host import folder_name

    if not (measured := sorted(source.glob("*.json"))):
        raise UserError(
            f"{source}: nothing was measured there; run a `cxrbench bench` first, or name --source"
        )
    with updated_sums(recorded):
        for path in measured:
            write_text(recorded / "bench" / folder_name() / path.name, path.read_text(encoding="utf-8"))
            say(f"recorded {path.name} of {folder_name()}")

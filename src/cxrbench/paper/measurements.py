"""What was measured apart from cells: speed, gains, XLA's ways, step parity, the graph audit; no torch."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from cxrbench.common.files import read_csv
from cxrbench.evidence.store import (
    AHEAD,
    KEPT_ABOVE,
    NEVER_BEHIND,
    STEP_DIFFERENCES,
    STEP_FLOOR,
    STEP_TOLERANCE,
)
from cxrbench.neuron import audit
from cxrbench.neuron.audit import read_audit
from cxrbench.neuron.reports import Score, read_reported, score
from cxrbench.neuron.rules import INSTRUCTION_CAP, Setting
from cxrbench.paper.formats import (
    Columns,
    Fields,
    Parts,
    PlusMinus,
    Table,
    WithInterval,
    listed,
    of_kinds,
    scientific,
    table,
)
from cxrbench.paper.results import Results, host_in_words, read_measurements

AUDIT_SETTING = Setting(pixels=224, batch=32, precision="fp32")  # of the audit's table
AUDIT_NETWORKS = (
    "resnet18", "resnet50", "convnext_pico", "convnext_pico_linear_mlp", "convnext_nano",
    "convnext_nano_linear_mlp", "convnext_tiny", "convnext_tiny_conv_mlp", "convnext_tiny_hnf",
    "convnext_small", "convnext_small_conv_mlp", "convnext_base", "convnext_base_conv_mlp", "convnextv2_pico",
    "convnextv2_tiny", "efficientnet_b0", "mobilenetv3_large_100", "densenet121", "regnety_016",
    "vit_base_patch16_224", "swin_tiny_patch4_window7_224",
)  # fmt: skip
SWAPPED = ("convnext_pico", "convnext_pico_linear_mlp", "convnext_tiny_conv_mlp", "convnext_tiny")
# What the preprint's abstract says of a network on Trainium (claims P02 and P10).
_REPORTED = {"convnext_pico": "runs", "convnext_tiny": "fails"} | dict.fromkeys(
    ("convnext_small", "convnext_base"), "(fails)"
)
_KEPT = ["ratio_to_timm_kept", "ratio_to_timm_best_kept"]  # timm with the memory settings of our loop
_TOLD = ["platform", "ratio_to_timm", "ratio_to_timm_best", "share_of_limit"]
_NEWER = [*_KEPT, "matrix_share", "ratio_to_null"]  # of bench train: older rows lack them
_PARTS = ("Loss", "Gradient norm", "Weights")  # of STEP_DIFFERENCES


# -- measured on a machine -------------------------------------------------------------------------


def throughput(read: Results) -> Table:
    """Training speed beside timm's and the device's limit, as recorded on each machine."""
    columns: Columns = {
        "Machine": ("name", lambda row: host_in_words(row.host)),
        "Platform": "platform",
        "Network": "architecture",
        "Step": ("name", lambda row: step_in_words(row.pixels, row.batch, row.precision, row.fastest)),
        "Contenders": ("name", lambda row: "own processes" if row.own_processes else "one process"),
        "Images/s": "ours:speed",
        "timm": "timm:speed",
        "timm's best": "timm_best:speed",
        "Limit": "limit:speed",
        "Ours/timm": "ratio_to_timm:ratio",
        "Ours/best": "ratio_to_timm_best:ratio",
        "With our memory": ("ratio", _with_our_memory),
        "Ours/ours": "ratio_to_null:ratio",
        "Share of limit": ("ratio", lambda row: PlusMinus(row.share_of_limit, row.spread / 2)),
        "In matrix work": "matrix_share:ratio",
        "Of peak": "share_of_matmul_peak:ratio",
        f"Best by {AHEAD:.2f}": ("name", lambda row: _yes_or_no(row.ratio_to_timm_best, AHEAD)),
        "Never behind": (
            "name",
            lambda row: _yes_or_no(min(getattr(row, name) for name in _KEPT), NEVER_BEHIND),
        ),
    }
    return table(speeds(read), columns)


def speeds(read: Results) -> pd.DataFrame:
    """The recorded speeds, against the faster of two ways to run timm too; what older rows lack is missing.

    ``below``: less than :data:`AHEAD` times timm's best.
    """
    rows = read_measurements(read.recorded, "train")
    rows = rows.reindex(columns=rows.columns.union([*_TOLD, *_NEWER], sort=False))
    return rows.assign(
        ratio_to_faster=rows[["ratio_to_timm", "ratio_to_timm_best"]].min(axis=1),
        ratio_to_faster_kept=rows[_KEPT].min(axis=1, skipna=False),
        below=rows["ratio_to_timm_best"] < AHEAD,
    )


def _yes_or_no(ratio: float, least: float) -> str:
    return "" if pd.isna(ratio) else "yes" if ratio >= least else "no"


def _with_our_memory(row: Any) -> Parts | None:
    """Our speed over that of timm, and of timm's best, where they keep memory as our loop does."""
    ratios = (row.ratio_to_timm_kept, row.ratio_to_timm_best_kept)
    return None if pd.isna(ratios[0]) else Parts(ratios, " / ")


def step_in_words(pixels: int, batch: int, precision: str, fastest: bool) -> str:
    """The setting of a measured step."""
    return f"{pixels} px, batch {batch}, {precision}" + (", fastest kernels" if fastest else "")


def below_goal(below: pd.DataFrame) -> str:
    """A sentence on rows of :func:`speeds` that are below the goal, each with its roofline.

    That is the ratio over the share of matrix work: what our step would reach if nothing else took time.
    """
    networks = "; ".join(
        f"{row.architecture} in {row.precision} on {host_in_words(row.host)} {row.ratio_to_timm_best:.2f} "
        f"({_roofline(row.ratio_to_timm_best, row.matrix_share)})"
        for row in below.itertuples()
    )
    return (
        f"Less than {AHEAD:.2f} times timm's best, with the most that our step could reach if nothing but "
        f"matrix work took time: {networks}."
    )


def _roofline(ratio: float, matrix_share: float) -> str:
    if pd.isna(matrix_share):
        return "matrix work not recorded"
    return f"matrix work is {matrix_share:.2f} of the step: at most {ratio / matrix_share:.2f}"


@of_kinds({"Median": "gain"})
def gains(read: Results) -> Iterator[Fields]:
    """Median gain of each way over the ways before it, per network, and whether the platform keeps it."""
    rows = read_measurements(read.recorded, "gains")
    keys = ["host", "platform", "pixels", "batch", "precision", "fastest", "way"]
    for (host, platform, *step, way), steps in rows.groupby(keys, sort=False) if len(rows) else ():
        median, null = steps["gain"].median(), steps.get("null", pd.Series(dtype=float)).max()
        limit = KEPT_ABOVE if pd.isna(null) else null  # the largest difference of two equal contenders
        yield {
            "Machine": host_in_words(host),
            "Platform": platform,
            "Step": step_in_words(*step),
            "Way": way,
            "Added to": listed(steps["added_to"]),
            "Gain by network": listed(steps["architecture"] + steps["gain"].map(" {:+.1%}".format)),
            "Median": median,
            "Kept": "yes" if median > limit else "no",
        }


def xla_ways(read: Results) -> Table:
    """Compiles, seconds and fallbacks of the same steps with one XLA change left out."""
    columns: Columns = {
        "Way": "way",
        "What is different": "meaning",
        "Steps": "steps:count",
        "Compiles": "compiles:count",
        "Compile s": "compile_seconds:seconds",
        "All s": "seconds:seconds",
        "Fallbacks": ("name", lambda row: ", ".join(row.fallbacks) or "none"),
    }
    return table(read_measurements(read.recorded, "xla_ways"), columns)


def steps_of_xla(read: Results) -> pd.DataFrame:
    """The machine, network and count of the steps behind :func:`xla_ways`, once."""
    rows = read_measurements(read.recorded, "xla_ways")
    if rows.empty:
        return rows
    return rows.assign(machine=rows["host"].map(host_in_words))[["machine", "architecture", "steps"]].tail(1)


def steps_in_fp32(read: Results) -> pd.DataFrame:
    """The compared steps in the precision of the reference recipe."""
    rows = read_measurements(read.recorded, "steps")
    if rows.empty:
        return rows
    named = rows.get("update", pd.Series(index=rows.index, dtype=object)).astype("string")  # older: unnamed
    own = named.str.startswith("cxrbench.").fillna(False)
    updates = own.map({True: "this project's AdamW", False: "torch's AdamW"})
    return rows.assign(update=updates)[rows["precision"] == "fp32"]


@of_kinds(dict.fromkeys(_PARTS, "size"))
def largest_steps(read: Results) -> Iterator[Fields]:
    """The largest differences from the CPU over all compared steps, by network, machine and update.

    In brackets those of the noise floor, the CPU with one thread, in the same measurement.
    """
    rows, parts = steps_in_fp32(read), dict(zip(_PARTS, STEP_DIFFERENCES, strict=True))
    for (network, host), steps in rows.groupby(["architecture", "host"], sort=False) if len(rows) else ():
        largest = steps.groupby("platform", sort=False)[[*parts.values()]].max()
        updates = steps.drop_duplicates("platform").set_index("platform")["update"]
        floor = largest.loc[STEP_FLOOR]
        for platform, most in largest.drop(index=STEP_FLOOR).iterrows():
            yield {
                "Network": f"{network} {platform}",
                "Machine": host_in_words(host),
                "Update": updates[platform],
                **{name: WithInterval(most[key], note=scientific(floor[key])) for name, key in parts.items()},
            }


def tolerance_of_steps(_: Results, precision: str) -> float | None:
    """The relative difference of a tested step in a precision that is tolerated, if any is."""
    return STEP_TOLERANCE.get(precision)


def gate_tried(read: Results) -> pd.DataFrame:
    """The planted defects and correct variants that the gate of steps was tried with, a row each.

    ``right``: whether it found the defect, or let the variant pass (benchmarks/gate_table.py writes them).
    """
    paths = sorted((read.recorded / "bench").glob("*/gate_table.csv"))
    rows = pd.concat([read_csv(path) for path in paths]) if paths else pd.DataFrame()
    return rows.assign(right=(rows["ratio"] > 1) == (rows["list"] == "defect")) if paths else rows


@of_kinds()
def gate(read: Results) -> Iterator[Fields]:
    """How many planted defects the gate of steps found, and how many variants passed, by precision."""
    rows = gate_tried(read)
    for precision, tried in rows.groupby("precision", sort=False) if len(rows) else ():
        lists = {name: tried[tried["list"] == name] for name in ("defect", "correct")}
        shares = {name: f"{part['right'].sum()} of {len(part)}" for name, part in lists.items()}
        yield {
            "Precision": precision,
            "Networks": listed(list(dict.fromkeys(tried["network"]))),
            "Defects found": shares["defect"],
            "Variants passed": shares["correct"],
        }


# -- training steps as graphs ----------------------------------------------------------------------


def captured_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The captured steps of the paper's setting, by architecture."""
    table = audit.of_setting(table, AUDIT_SETTING)
    if len(table):
        table = table[table["problem"] == ""]
        table = table.assign(million=table["parameters"] / 1e6, share_of_cap=table["tiles"] / INSTRUCTION_CAP)
    return table.set_index("architecture", drop=False)


def audit_table(read: Results) -> Table:
    """The networks of :data:`AUDIT_NETWORKS` as graphs, with what the preprint's abstract says of them."""
    captured = captured_steps(read_audit(read.recorded))
    columns: Columns = {
        "Network": "architecture",
        "Abstract": ("name", lambda row: _REPORTED.get(row.architecture, "")),
        "Million weights": "million:one",
        "GMAC": "gmac:gmac",
        "MiB/image": "activation_mib_per_image:mib",
        "Largest batch": "largest_batch:plain",
        "HLO": "instructions:count",
        "Conv.": "convolutions:plain",
        "Grouped": (
            "plain",
            lambda row: Parts((row.grouped_convolutions, row.batch_grouped_convolutions), " + "),
        ),
        "Dots": "dots:plain",
        "Permutes": "permutes:plain",
        "Kernels": "kernels",
        "LN": "layernorms:plain",
        "Rows": "largest_layernorm:count",
        "BN": "batchnorms:plain",
        "Tiles/cap": "share_of_cap:ratio",
        "Predict failure": "predicts_failure",
        "Others": "other_rules",
    }
    return table(captured.loc[[name for name in AUDIT_NETWORKS if name in captured.index]], columns)


def pico_and_tiny(read: Results) -> Table:
    """The preprint's two networks and the two with the other's MLP, by what their steps contain."""
    captured = captured_steps(read_audit(read.recorded))
    columns: Columns = {
        "Network": "architecture",
        "Preprint": ("name", lambda row: _REPORTED.get(row.architecture, "not named")),
        "Depthwise": "depthwise_convolutions:plain",
        "LayerNorm": "layernorms:plain",
        "Permutes": "permutes:plain",
        "Convolutions": "convolutions:plain",
        "Dots": "dots:plain",
        "HLO instructions": "instructions:count",
        "Tiles/cap": "share_of_cap:ratio",
    }
    return table(captured.loc[[name for name in SWAPPED if name in captured.index]], columns)


def predictive_value(score: Score) -> str:
    """How often flagged and other networks are reported to fail, in a sentence; empty without both."""
    flagged = score.flagged_failed + score.flagged_compiled
    others = score.not_flagged_failed + score.not_flagged_compiled
    if not (flagged and others):
        return ""
    more = score.flagged_failed * others > score.not_flagged_failed * flagged
    return (
        f"On public reports the rules of `cxrbench audit` show {'some' if more else 'no'} predictive value: "
        f"of {flagged} reports about networks that they flag {score.flagged_failed} are failures, and of "
        f"{others} about others {score.not_flagged_failed}."
    )


def audited(read: Results) -> pd.DataFrame:
    """:func:`captured_steps` of the recorded audit, with the network's name as a column."""
    rows = captured_steps(read_audit(read.recorded))
    return rows.assign(network=rows.index).reset_index(drop=True)


def predictive_value_here(read: Results) -> str:
    """:func:`predictive_value` of the recorded audit on all reports."""
    return predictive_value(score(read_reported(), read_audit(read.recorded)))

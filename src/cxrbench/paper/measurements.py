"""What was measured apart from cells: speed, gains, XLA's ways, step parity, the graph audit; no torch."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pandas as pd

from cxrbench.compile import audit
from cxrbench.compile.audit import read_audit
from cxrbench.compile.reports import Score, read_reported, score
from cxrbench.compile.rules import CORE_GIB, INSTRUCTION_CAP, RETIRED, RULES, Setting
from cxrbench.evidence.machine import host_in_words
from cxrbench.evidence.store import (
    AHEAD,
    KEPT_ABOVE,
    NEVER_BEHIND,
    STEP_DIFFERENCES,
    STEP_FLOOR,
    STEP_TOLERANCE,
    TESTED_STEPS,
)
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Columns, Row, Values, listed
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results, read_measurements

SETTING = Setting(pixels=224, batch=32, precision="fp32")  # of the audit's table
ROWS = (
    "resnet18", "resnet50", "convnext_pico", "convnext_pico_linear_mlp", "convnext_nano",
    "convnext_nano_linear_mlp", "convnext_tiny", "convnext_tiny_conv_mlp", "convnext_tiny_hnf",
    "convnext_small", "convnext_small_conv_mlp", "convnext_base", "convnext_base_conv_mlp", "convnextv2_pico",
    "convnextv2_tiny", "efficientnet_b0", "mobilenetv3_large_100", "densenet121", "regnety_016",
    "vit_base_patch16_224", "swin_tiny_patch4_window7_224",
)  # fmt: skip
SWAPPED = ("convnext_pico", "convnext_pico_linear_mlp", "convnext_tiny_conv_mlp", "convnext_tiny")
# What the preprint's abstract says of a network on Trainium (claims P02 and P10).
REPORTED = {"convnext_pico": "runs", "convnext_tiny": "fails"} | dict.fromkeys(
    ("convnext_small", "convnext_base"), "(fails)"
)
_COUNTS = (
    *("instructions", "convolutions", "depthwise_convolutions", "dots", "permutes", "layernorms"),
    "linears_on_maps",
)
_KEPT = ["ratio_to_timm_kept", "ratio_to_timm_best_kept"]  # timm with the memory settings of our loop
_NEWER = [*_KEPT, "matrix_share", "ratio_to_null"]  # of bench train: older rows lack them
_PARTS = ("Loss", "Gradient norm", "Weights")  # of STEP_DIFFERENCES
_XLA = Path(__file__).parent.parent / "platforms/xla.py"


def numbers(read: Results) -> Values:
    """Return what the prose may name: ``throughput/...``, ``xla/...``, ``steps/...``, ``audit/...``."""
    return _throughput_values(read) | _xla_values(read) | _step_values(read) | audit_values(read)


# -- measured on a machine -------------------------------------------------------------------------


@fmt.table("lllllrrrrrrrrrrrll")
def throughput(read: Results) -> Iterable[Row]:
    """Training speed beside timm's and the device's limit, as recorded on each machine."""
    columns: Columns = {
        "Machine": lambda row: host_in_words(row.host),
        "Platform": "{platform}",
        "Network": "{architecture}",
        "Step": lambda row: step_in_words(row.pixels, row.batch, row.precision, row.fastest),
        "Contenders": lambda row: "own processes" if row.own_processes else "one process",
        "Images/s": "{ours:.0f}",
        "timm": "{timm:.0f}",
        "timm's best": "{timm_best:.0f}",
        "Limit": "{limit:.0f}",
        "Ours/timm": "{ratio_to_timm:.2f}",
        "Ours/best": "{ratio_to_timm_best:.2f}",
        "With our memory": _with_our_memory,
        "Ours/ours": lambda row: fmt.number(row.ratio_to_null, ".2f", ""),
        "Share of limit": lambda row: f"{row.share_of_limit:.2f} ± {row.spread / 2:.2f}",
        "In matrix work": lambda row: fmt.number(row.matrix_share, ".2f", ""),
        "Of peak": "{share_of_matmul_peak:.2f}",
        f"Best by {AHEAD:.2f}": lambda row: _yes_or_no(row.ratio_to_timm_best, AHEAD),
        "Never behind": lambda row: _yes_or_no(min(getattr(row, name) for name in _KEPT), NEVER_BEHIND),
    }
    return fmt.rows(_speeds(read), columns)


def _speeds(read: Results) -> pd.DataFrame:
    """Return the recorded speeds; what older rows lack is missing."""
    rows = read_measurements(read.recorded, "train")
    return rows.reindex(columns=rows.columns.union(_NEWER, sort=False))


def _yes_or_no(ratio: float, least: float) -> str:
    return "" if pd.isna(ratio) else "yes" if ratio >= least else "no"


def _with_our_memory(row: Any) -> str:
    """Return our speed over that of timm, and of timm's best, where they keep memory as our loop does."""
    ratios = (row.ratio_to_timm_kept, row.ratio_to_timm_best_kept)
    return "" if pd.isna(ratios[0]) else " / ".join(f"{ratio:.2f}" for ratio in ratios)


def step_in_words(pixels: int, batch: int, precision: str, fastest: bool) -> str:
    """Return the setting of a measured step."""
    return f"{pixels} px, batch {batch}, {precision}" + (", fastest kernels" if fastest else "")


def _throughput_values(read: Results) -> Values:
    """Return the rows of a platform and their smallest and largest ratios: ``throughput/cpu/...``."""
    rows, peers = _speeds(read), ["ratio_to_timm", "ratio_to_timm_best"]
    values, missing = _below_goal(rows), r"\emph{not measured}"
    rows = rows.reindex(columns=["platform", *peers, *_KEPT, "share_of_limit"])
    rows["ratio_to_faster"] = rows[peers].min(axis=1)
    rows["ratio_to_faster_kept"] = rows[_KEPT].min(axis=1, skipna=False)
    for platform in ("cpu", "cuda"):
        of_platform = rows[rows["platform"] == platform].drop(columns="platform")
        values[f"throughput/{platform}/rows"] = str(len(of_platform))
        for name in of_platform:
            values[f"throughput/{platform}/{name}"] = fmt.range_of(of_platform[name], "{:.2f}", missing)
    return values


def _below_goal(rows: pd.DataFrame) -> Values:
    """Return which rows are less than :data:`AHEAD` times timm's best, each with its roofline.

    That is the ratio over the share of matrix work: what our step would reach if nothing else took time.
    """
    below = rows[rows["ratio_to_timm_best"] < AHEAD] if len(rows) else rows
    said = []
    for row in below.itertuples():
        text = (
            f"{row.architecture} in {row.precision} on {host_in_words(row.host)} {row.ratio_to_timm_best:.2f}"
        )
        if pd.isna(row.matrix_share):
            said.append(f"{text} (matrix work not recorded)")
        else:
            roofline = row.ratio_to_timm_best / row.matrix_share
            said.append(f"{text} (matrix work is {row.matrix_share:.2f} of the step: at most {roofline:.2f})")
    return {
        "throughput/goal": f"{AHEAD:.2f}",
        "throughput/below/rows": str(len(below)),
        "throughput/below/said": escape("; ".join(said), 4000),
    }


@fmt.table("llllllrl")
def gains(read: Results) -> Iterator[Row]:
    """Median gain of each way over the ways before it, per network, and whether the platform keeps it."""
    rows = read_measurements(read.recorded, "gains")
    by = ["host", "platform", "pixels", "batch", "precision", "fastest", "way"]
    for (host, platform, *step, way), networks in rows.groupby(by, sort=False) if len(rows) else ():
        median, null = networks["gain"].median(), networks.get("null", pd.Series(dtype=float)).max()
        limit = KEPT_ABOVE if pd.isna(null) else null  # the largest difference of two equal contenders
        yield {
            "Machine": host_in_words(host),
            "Platform": platform,
            "Step": step_in_words(*step),
            "Way": way,
            "Added to": listed(networks["added_to"]),
            "Gain by network": listed(networks["architecture"] + networks["gain"].map(" {:+.1%}".format)),
            "Median": f"{median:+.1%}",
            "Kept": "yes" if median > limit else "no",
        }


@fmt.table("llrrrrl")
def xla_ways(read: Results) -> Iterable[Row]:
    """Compiles, seconds and fallbacks of the same steps with one XLA change left out."""
    columns: Columns = {
        "Way": "{way}",
        "What is different": "{meaning}",
        "Steps": "{steps}",
        "Compiles": "{compiles}",
        "Compile s": "{compile_seconds:.1f}",
        "All s": "{seconds:.1f}",
        "Fallbacks": lambda row: ", ".join(row.fallbacks) or "none",
    }
    return fmt.rows(read_measurements(read.recorded, "xla_ways"), columns)


def _xla_values(read: Results) -> Values:
    """Return what was run of XLA's ways, and where: ``xla/...``."""
    host: Columns = {"host": lambda row: host_in_words(row.host)}
    columns = {"steps": "{steps}", "network": "{architecture}"} | host
    values = fmt.keyed(read_measurements(read.recorded, "xla_ways"), "xla", columns)
    return {key: escape(text) for key, text in values.items()}


def steps_in_fp32(read: Results) -> pd.DataFrame:
    """Return the compared steps in the precision of the reference recipe."""
    rows = read_measurements(read.recorded, "steps")
    if rows.empty:
        return rows
    named = rows.get("update", pd.Series(index=rows.index, dtype=object)).astype("string")  # older: unnamed
    own = named.str.startswith("cxrbench.").fillna(False)
    updates = own.map({True: "this project's AdamW", False: "torch's AdamW"})
    return rows.assign(update=updates)[rows["precision"] == "fp32"]


@fmt.table("lllrrr")
def largest_steps(read: Results) -> Iterator[Row]:
    """The largest differences from the CPU over all compared steps, by network, machine and update.

    In brackets those of the noise floor, the CPU with one thread, in the same measurement.
    """
    rows, parts = steps_in_fp32(read), dict(zip(_PARTS, STEP_DIFFERENCES, strict=True))
    for (network, host), steps in rows.groupby(["architecture", "host"], sort=False) if len(rows) else ():
        largest = steps.groupby("platform", sort=False)[[*parts.values()]].max()
        updates = steps.drop_duplicates("platform").set_index("platform")["update"]
        for platform, most in largest.drop(index=STEP_FLOOR).iterrows():
            yield {
                "Network": f"{network} {platform}",
                "Machine": host_in_words(host),
                "Update": updates[platform],
                **{name: f"{most[key]:.0e} ({largest[key][STEP_FLOOR]:.0e})" for name, key in parts.items()},
            }


def _step_values(read: Results) -> Values:
    """Return how many steps were compared and tested, and what is tolerated: ``steps/...``."""
    steps = steps_in_fp32(read)
    if steps.empty:
        return {}
    values = {f"steps/tolerance/{name}": _power(most) for name, most in STEP_TOLERANCE.items()}
    return values | {"steps/count": f"{steps['step'].max()}", "steps/tested": f"{TESTED_STEPS}"}


def _power(value: float) -> str:
    """Return ``$2\\cdot10^{-6}$``, or 0."""
    digits, _, exponent = f"{value:.0e}".partition("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$" if value else "0"


def xla_listing() -> str:
    """Return the marked lines of platforms/xla.py as LaTeX: each from its number to the next empty line."""
    blocks = re.findall(r"^[ ]*# \(\d\) (?:.*\S.*\n)+", _XLA.read_text(encoding="utf-8"), flags=re.M)
    lines = [line for block in blocks for line in dedent(block).splitlines()]
    return "\\begin{verbatim}\n" + "\n".join(lines) + "\n\\end{verbatim}\n"


# -- training steps as graphs ----------------------------------------------------------------------


def of_setting(table: pd.DataFrame) -> pd.DataFrame:
    """Return the captured steps of the paper's setting, by architecture."""
    table = audit.of_setting(table, SETTING)
    if len(table):
        table = table[table["problem"] == ""]
        table = table.assign(million=table["parameters"] / 1e6, share_of_cap=table["tiles"] / INSTRUCTION_CAP)
    return table.set_index("architecture", drop=False)


@fmt.table("llrrrrrrrrrlrrrrll")
def audit_table(read: Results) -> Iterable[Row]:
    """The networks of :data:`ROWS` as graphs, with what the preprint's abstract says of them."""
    captured = of_setting(read_audit(read.recorded))
    columns: Columns = {
        "Network": "{architecture}",
        "Abstract": lambda row: REPORTED.get(row.architecture, ""),
        "Million weights": "{million:.1f}",
        "GMAC": "{gmac:.2f}",
        "MiB/image": "{activation_mib_per_image:.0f}",
        "Largest batch": "{largest_batch}",
        "HLO": "{instructions:,}",
        "Conv.": "{convolutions}",
        "Grouped": "{grouped_convolutions} + {batch_grouped_convolutions}",
        "Dots": "{dots}",
        "Permutes": "{permutes}",
        "Kernels": "{kernels}",
        "LN": "{layernorms}",
        "Rows": "{largest_layernorm:,}",
        "BN": "{batchnorms}",
        "Tiles/cap": "{share_of_cap:.2f}",
        "Predict failure": "{predicts_failure}",
        "Others": "{other_rules}",
    }
    return fmt.rows(captured.loc[[name for name in ROWS if name in captured.index]], columns)


@fmt.table("llrrrrrrr")
def pico_and_tiny(read: Results) -> Iterable[Row]:
    """The preprint's two networks and the two with the other's MLP, by what their steps contain."""
    captured = of_setting(read_audit(read.recorded))
    columns: Columns = {
        "Network": "{architecture}",
        "Preprint": lambda row: REPORTED.get(row.architecture, "not named"),
        "Depthwise": "{depthwise_convolutions}",
        "LayerNorm": "{layernorms}",
        "Permutes": "{permutes}",
        "Convolutions": "{convolutions}",
        "Dots": "{dots}",
        "Instructions": "{instructions:,}",
        "Tiles/cap": "{share_of_cap:.2f}",
    }
    return fmt.rows(captured.loc[[name for name in SWAPPED if name in captured.index]], columns)


def predictive_value(score: Score) -> str:
    """Return in a sentence how often flagged and other networks are reported to fail; empty without both."""
    flagged = score.flagged_failed + score.flagged_compiled
    others = score.not_flagged_failed + score.not_flagged_compiled
    if not (flagged and others):
        return ""
    more = score.flagged_failed * others > score.not_flagged_failed * flagged
    return (
        f"On public reports the audit has shown {'some' if more else 'no'} predictive value: of {flagged} "
        f"reports about flagged networks {score.flagged_failed} are failures, and of {others} about others "
        f"{score.not_flagged_failed}."
    )


def audit_values(read: Results) -> Values:
    """Return ``audit/<architecture>/<what>`` at the paper's setting, and the setting itself."""
    captured = of_setting(read_audit(read.recorded))
    columns: Columns = {
        **{name: f"{{{name}:,}}" for name in _COUNTS},
        "step gib": "{step_gib:.1f}",
        "share of cap": lambda row: f"{100 * row.share_of_cap:.0f}",
    }
    scored = score(read_reported(), read_audit(read.recorded))
    said = (f"{r.name} ({r.ground}, predicts {r.predicts}): {r.says}" for r in RULES)
    versions = {"audit/torch_xla": escape(listed(captured["torch_xla"]))} if len(captured) else {}
    return {
        "audit/networks": str(len(captured)),
        "audit/pixels": str(SETTING.pixels),
        "audit/batch": str(SETTING.batch),
        "audit/core gib": f"{CORE_GIB:.0f}",
        "audit/instruction cap": f"{INSTRUCTION_CAP:,}",
        "audit/rules": str(len(RULES)),
        "audit/rules said": escape("; ".join(said) + ".", 9000),
        "audit/retired": escape("; ".join(f"{name}: {why}" for name, why in RETIRED.items()) + ".", 2000),
        "audit/predictive value": escape(predictive_value(scored)),
        **fmt.keyed(captured, "audit/{architecture}", columns),
        **versions,
    }

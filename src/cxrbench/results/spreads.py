"""The recorded spreads of runs, read from the table of a build (spread.csv)."""

from difflib import get_close_matches
from pathlib import Path

from cxrbench.common.errors import UserError
from cxrbench.common.files import read_csv
from cxrbench.statistics.power import SeedSpread, recorded_spreads


def spreads_of(path: Path, group: str, metric: str) -> list[tuple[dict[str, str], SeedSpread]]:
    """The spreads of a metric in spread.csv whose group begins with ``group``."""
    if group and Path(group).exists():
        raise UserError(f"{group}: a pilot takes two sets of runs; name the other one too")
    if not path.exists():
        raise UserError(
            f"{path}: missing; run `make paper-from-evidence`, or give --patient-se and --measured-on"
        )
    table = read_csv(path)
    if "drawn" not in table:
        raise UserError(f"{path}: an earlier version wrote it; run `make paper-from-evidence`")
    names = table["dataset"] + "/" + table["architecture"] + "/" + table["platform"]
    asked = (table["metric"] == metric) & (names + "/").str.startswith(f"{group}/" if group else "")
    within = {tuple(row) for row in table.loc[asked, ["dataset", "architecture", "platform"]].to_numpy()}
    recorded = recorded_spreads(table, [metric])  # all of them: their variance of skill is pooled
    chosen = [(names, spread) for names, spread, _ in recorded if tuple(names.values())[:3] in within]
    if not chosen:
        near = get_close_matches(group, groups := list(names.unique()), cutoff=0)
        hint = f"; nearest of {len(groups)}: {', '.join(near)}" if near else ""
        raise UserError(
            f"{group or metric}: no spread over seeds is known{hint}; "
            "build with three seeds or more, or give --patient-se and --measured-on"
        )
    return chosen

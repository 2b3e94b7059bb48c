"""Which share of the variance between seeds do two settings not have in common? How many seeds a comparison
needs follows from it.

With D the difference of a seed's two networks and S their sum, Var(D) / (Var(D) + Var(S)) is (1 - r) / 2 for
the correlation r of the two; the share is 1 - r, 0 if a seed does the same to both and 1 if they are as
different as two seeds (above 1 if r is negative). Where both have one variance and are normal, D and S are
independent, so the interval follows from F (Pitman 1939, Morgan 1939). Scores are of one test part: the share
is of the variance on these patients, whose luck it includes.
"""

import numpy as np
import pandas as pd
from scipy.special import fdtri

from cxrbench.statistics.metrics import ALL

AND_PROCESSOR = " and processor"  # follows a setting that changed together with it
SHARE_COLUMNS = [
    *("changed", "architecture", "dataset", "platform", "dataset_b", "platform_b", "label", "metric"),
    *("pairs", "freedom", "share", "share_low", "share_high", "sd_of_difference", "sd_of_seeds"),
]
_LEAST = 5  # pairs behind a share: F with two degrees of freedom on each side says nothing
_LEVEL = 0.95


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """The share for each two settings of a network, and pooled by what changed (columns ``SHARE_COLUMNS``).

    ``table`` has a row per pair of networks and score; fewer than five pairs give no row. Pooled rows
    (``all`` in place of a name) add the networks' sums of squares, as if one share held for all. A network is
    in one pair of settings of a pool, the one with most seeds: its other pairs are not independent of that.

    >>> scores = [0.71, 0.72, 0.70, 0.73, 0.72, 0.74]
    >>> seeds = pd.DataFrame({"seed": range(6), "seed_b": range(6), "value": scores})
    >>> seeds = seeds.assign(value_b=seeds["value"] + [0.001, -0.001] * 3, changed="precision")
    >>> seeds = seeds.assign(difference=seeds["value"] - seeds["value_b"], label="macro", metric="f1_macro")
    >>> seeds = seeds.assign(architecture="net", dataset="a", platform="cpu", dataset_b="b", platform_b="cpu")
    >>> round(float(shares(seeds).iloc[0]["share"]), 3)  # a seed does nearly the same under both settings
    0.003
    """
    paired = _named_alike(table[(table["seed"] == table["seed_b"]) & table["difference"].notna()])
    keys = ["changed", "architecture", "dataset", "platform", "dataset_b", "platform_b", "label", "metric"]
    single = [
        dict(zip(keys, named, strict=True)) | parts
        for named, seeds in paired.groupby(keys, sort=False)
        if (parts := _parts(seeds))["pairs"] >= _LEAST
    ]
    rows = [{**row, **_share(row["between"], row["common"], row["freedom"])} for row in single]
    frame = pd.DataFrame(single, columns=[*keys, "pairs", "freedom", "between", "common"])
    names = ["changed", "label", "metric"]
    for named, settings in frame.groupby(names, sort=False):
        sums = _disjoint(settings)[["pairs", "freedom", "between", "common"]].sum()
        place = dict.fromkeys(keys, ALL) | dict(zip(names, named, strict=True))
        rows.append(place | sums.to_dict() | _share(sums["between"], sums["common"], sums["freedom"]))
    return pd.DataFrame(rows, columns=SHARE_COLUMNS)


def _named_alike(paired: pd.DataFrame) -> pd.DataFrame:
    """Name the processor in all pairs of two settings if it changed in one of them."""
    setting = paired["changed"].str.removesuffix(AND_PROCESSOR)
    sides = [paired[name] for name in ("architecture", "dataset", "platform", "dataset_b", "platform_b")]
    moved = (paired["changed"] != setting).groupby([setting, *sides]).transform("any")
    return paired.assign(changed=setting.where(~moved, setting + AND_PROCESSOR))


def _disjoint(settings: pd.DataFrame) -> pd.DataFrame:
    """Those pairs of settings, the largest first, that share no network with one before them."""
    taken: set[tuple[str, ...]] = set()
    rows = []
    for row in settings.sort_values("pairs", ascending=False, kind="stable").itertuples():
        sides = {
            (row.architecture, row.dataset, row.platform),
            (row.architecture, row.dataset_b, row.platform_b),
        }
        if not sides & taken:
            taken |= sides
            rows.append(row.Index)
    return settings.loc[sorted(rows)]


def _parts(seeds: pd.DataFrame) -> dict[str, float]:
    """The number of pairs, and the sums of squares of their differences and of their sums."""
    difference, total = seeds["difference"], seeds["value"] + seeds["value_b"]
    squares = (float(((part - part.mean()) ** 2).sum()) for part in (difference, total))
    between, common = squares
    return {"pairs": len(seeds), "freedom": len(seeds) - 1, "between": between, "common": common}


def _share(between: float, common: float, freedom: float) -> dict[str, float]:
    """The share, its interval, and what it is made of, from sums of squares of differences and sums."""
    quantile = fdtri(freedom, freedom, 0.5 + _LEVEL / 2)
    ratio = between / common if common else np.inf
    ends = {"share": ratio, "share_low": ratio / quantile, "share_high": ratio * quantile}
    return {
        **{name: 2 / (1 + 1 / end) if end else 0.0 for name, end in ends.items()},
        "sd_of_difference": float(np.sqrt(between / freedom)),
        "sd_of_seeds": float(np.sqrt((between + common) / 4 / freedom)),
    }

"""The documents' numbers once more, from recorded evidence, prices and NIH's label table, without cxrbench.

Methods are those of docs/statistics.md: AUROC by DeLong's placements summed per patient (Obuchowski 1997),
F1 at thresholds from validation patients (jackknife, own draws), means over seeds by Satterthwaite.
"""

import json
import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sklearn
import yaml
from scipy import stats
from scipy.special import expit, logit
from sklearn.metrics import f1_score, precision_recall_curve, roc_auc_score

ROOT = Path(__file__).parent.parent
STUDY = yaml.safe_load((ROOT / "config/config.yaml").read_text("utf-8"))
SETTINGS = {name: STUDY["recipes"][of["recipe"]] | of for name, of in STUDY["datasets"].items()}
MARGIN = STUDY["margins"]["auroc_macro"]
FEW, DRAWS = 10, 200  # positive validation patients that a threshold takes; draws of validation patients
DIFFERENCE, STATED = round(0.8027 - 0.8007, 4), (3, 5)  # F1 and ratio: medRxiv 2025.12.23.25342933, abstract
GROUP = ["dataset", "architecture", "platform"]
NAMES = {"resnet18": "ResNet-18", "convnext_pico": "ConvNeXt-Pico"}


class Near(NamedTuple):
    """A number that a document may miss by ``slack``: the end of an interval, or what follows from one."""

    value: float
    slack: float


@dataclass
class Scored:
    """Statistics of one or more networks, one a row: ``value`` (n,), and ``parts`` (n, patients and draws),
    what each patient adds to the error; ``freedom`` that the numbers of patients allow."""

    seeds: np.ndarray
    value: np.ndarray
    parts: np.ndarray
    freedom: float

    def __sub__(self, other: "Scored") -> "Scored":
        """Differences seed by seed, of those that both have."""
        seeds, a, b = np.intersect1d(self.seeds, other.seeds, return_indices=True)
        parts = self.parts[a] - other.parts[b]
        return Scored(seeds, self.value[a] - other.value[b], parts, min(self.freedom, other.freedom))

    @property
    def luck(self) -> float:
        """Variance between networks that the choice of patients alone would cause."""
        return float(((self.parts - self.parts.mean(axis=0)) ** 2).sum() / (len(self.parts) - 1))

    @property
    def mean(self) -> tuple[float, float, float]:
        """Mean over networks, its standard error over patients and seeds, and degrees of freedom."""
        n, common = len(self.value), self.parts.mean(axis=0)
        patients = (common**2).sum()
        freedom = min(self.freedom, patients**2 / (common**4).sum())
        seeds, luck = self.value.var(ddof=1) / n, self.luck / n
        beyond = max(seeds - luck, 0)
        if beyond:
            rest = max(patients - luck, 0) ** 2 / freedom
            mixed = (patients + beyond) ** 2 / (seeds**2 / (n - 1) + rest)
            freedom = min(max(mixed, n - 1), freedom)
        return self.value.mean(), math.sqrt(patients + beyond), freedom

    @property
    def equivalent(self) -> bool:
        return abs(self.mean[0]) + self.reach(0.9) < MARGIN

    def reach(self, level: float) -> float:
        """Half the width of the mean's interval."""
        _, error, freedom = self.mean
        return stats.t.ppf(0.5 + level / 2, freedom) * error


def satterthwaite(variances: Any, freedoms: Any) -> float:
    return sum(variances) ** 2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))


@cache
def nih() -> tuple[pd.DataFrame, list[str]]:
    """NIH's label table by image, and its findings."""
    wheel = Path(find_spec("torchxrayvision").submodule_search_locations[0])
    raw = pd.read_csv(wheel / "data/Data_Entry_2017_v2020.csv.gz", index_col="Image Index")
    labels = raw["Finding Labels"].str.get_dummies("|").drop(columns="No Finding").astype(bool)
    return labels.assign(patient=raw["Patient ID"]), list(labels)


class Network:
    """A trained network's test and validation images: labels, scores and patients' numbers."""

    def __init__(self, folder: Path) -> None:
        table, self.findings = nih()
        rows = pd.read_parquet(folder / "predictions.parquet").sort_values("image")
        known = table.loc[rows["image"].str.removeprefix("phantom_")]
        scores = rows[[f"score_{name}" for name in self.findings]].to_numpy(float)
        whose, truth = known["patient"].to_numpy(), known[self.findings].to_numpy()
        self.test, self.val = (
            (truth[of], scores[of], np.unique(whose[of], return_inverse=True)[1])
            for of in ((rows["split"] == split).to_numpy() for split in ("test", "val"))
        )
        self.images = tuple(rows["image"][rows["split"] == "test"])

    def auroc(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """AUROC by finding, each patient's part of its error (patients, findings), degrees of freedom."""
        truth, scores, patients = self.test
        value = roc_auc_score(truth, scores, average=None)
        parts, freedom = np.zeros((patients.max() + 1, len(value))), []
        for k in range(len(value)):
            rank, sides = stats.rankdata(scores[:, k]), []
            for sign, side in ((1, truth[:, k]), (-1, ~truth[:, k])):
                below = (rank[side] - stats.rankdata(scores[side, k])) / (~side).sum()
                held = np.bincount(patients[side], minlength=len(parts)) / side.sum()
                sums = np.bincount(patients[side], sign * (below - below.mean()) / side.sum(), len(parts))
                count = np.count_nonzero(held)
                sums *= math.sqrt((count - 1) / count) / (1 - held)
                parts[:, k] += sums
                sides.append(((sums**2).sum(), count - 1))
            freedom.append(satterthwaite(*zip(*sides, strict=True)))
        return value, parts, np.array(freedom)

    def macro_f1(self) -> tuple[float, np.ndarray]:
        """Mean F1 over findings with a threshold, and each patient's and each draw's part of its error."""
        truth, scores, patients = self.test
        known, given, whose = self.val
        of, calls, moved, tuned = whose.max() + 1, np.zeros_like(truth), [], []
        times = np.random.default_rng(2026).multinomial(of, np.full(of, 1 / of), DRAWS)[:, whose]
        for k in range(truth.shape[1]):
            if min(len(np.unique(whose[known[:, k] == side])) for side in (True, False)) < FEW:
                continue
            precision, recall, cuts = precision_recall_curve(known[:, k], given[:, k])
            f1 = (2 * precision * recall / np.maximum(precision + recall, 1e-9))[:-1]
            cut = cuts[np.flatnonzero(f1 >= f1.max() - 1e-12)[-1]]
            calls[:, k] = scores[:, k] >= cut
            tuned.append(k)
            drawn = best_cuts(known[:, k], given[:, k], times)
            at = scores[:, k] >= drawn[:, None]
            moved.append(2 * at[:, truth[:, k]].sum(axis=1) / (at.sum(axis=1) + truth[:, k].sum()))
        truth, calls = truth[:, tuned], calls[:, tuned]
        value = f1_score(truth, calls, average="macro")
        counts = np.hstack([2 * (truth & calls), truth.astype(int) + calls])
        sums = pd.DataFrame(counts).groupby(patients).sum().to_numpy()
        twice, size = np.hsplit(sums.sum(axis=0) - sums, 2)
        left = math.sqrt(1 - 1 / len(sums)) * (value - (twice / size).mean(axis=1))
        again = np.mean(moved, axis=0)
        return value, np.append(left, (again - again.mean()) / math.sqrt(DRAWS - 1))


def best_cuts(truth: np.ndarray, scores: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The threshold of the best F1 in each draw (draws,), by how often it has each image (draws, images)."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)
    called, hits = (np.cumsum(times[:, order] * of, axis=1) for of in (1, truth[order]))
    f1 = 2 * hits / np.maximum(called + hits[:, -1:], 1)
    return scores[order][last][np.argmax(f1[:, last], axis=1)]


def recorded() -> pd.DataFrame:
    """A row for each planned or recorded training; ``folder`` and what follows are of recorded ones."""
    rows: dict[tuple, dict] = {
        (block["dataset"], architecture, platform, seed): {}
        for block in STUDY["cells"]
        for architecture, platform, seed in product(*(block[f"{of}s"] for of in (*GROUP[1:], "seed")))
    }
    for path in sorted((ROOT / "data/recorded").glob("*/*/*/seed*/record.json")):
        record = json.loads(path.read_text())
        *group, seed = record["cell"].split("/")
        normed = record["platform"].get("batchnorm_statistics") == "per process"
        rows[(*group, int(seed.removeprefix("seed")))] = {
            **{"folder": path.parent, "cpu": record["host"]["cpu"].strip(), "status": record["status"]},
            "cores": record["host"]["cores_used"],
            "seconds": sum(of for name, of in record["timing"].items() if name.endswith("_seconds")),
            "alike": (record["recipe_hash"], record["dataset"]["packed"], normed and record["micro_batch"]),
        }
    return pd.DataFrame([dict(zip((*GROUP, "seed"), cell, strict=True)) | of for cell, of in rows.items()])


def scored(cells: pd.DataFrame) -> dict[tuple[str, ...], dict[str, Scored]]:
    """Scores of each recipe's networks but of folds, a row a seed: macro AUROC, the endpoint and macro F1."""
    least, recipes = STUDY["endpoint"]["positive_patients"], {}
    folds = [name for name, setting in SETTINGS.items() if setting.get("block") == "folds"]
    cells = cells[~cells["dataset"].isin(folds) & (cells.groupby(GROUP)["status"].transform("count") > 1)]
    for group, rows in cells[cells["status"] == "ok"].groupby(GROUP, sort=False):
        seeds, networks = rows["seed"].to_numpy(), [Network(folder) for folder in rows["folder"]]
        assert len({network.images for network in networks}) == 1, f"{group}: other images"
        truth, _, patients = networks[0].test
        many = pd.DataFrame(truth).groupby(patients).any().sum().to_numpy() >= least
        areas = [network.auroc() for network in networks]
        of: dict[str, Scored] = {}
        for name, kept in (("macro", many | True), ("endpoint", many)):
            parts = [part[:, kept] for _, part, _ in areas]
            variances = [(part**2).sum(axis=0) for part in parts]
            freedoms = [satterthwaite(v, f[kept]) for v, (_, _, f) in zip(variances, areas, strict=True)]
            values = np.array([value[kept].mean() for value, _, _ in areas])
            of[name] = Scored(seeds, values, np.stack([part.mean(axis=1) for part in parts]), min(freedoms))
        f1, parts = zip(*(network.macro_f1() for network in networks), strict=True)
        of["f1"] = Scored(seeds, np.array(f1), np.stack(parts), patients.max())
        recipes[group] = of
    return recipes


def chance(luck: float, skill: float, seeds: int, freedom: float, margin=0.0, shift=0.0, shared=0.0) -> float:
    """Power of "equivalent" within ``margin``, or without one of "different", at a true difference ``shift``
    of means over ``seeds``, by the variance of one difference, and of what all have in ``shared``."""
    true, least = (luck + skill) / seeds, luck / seeds
    seen = true * stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, seeds - 1) / (seeds - 1)
    mixed = (shared + seen) ** 2 / (seen**2 / (seeds - 1) + shared**2 / freedom)
    degrees = np.where(seen > least, np.clip(mixed, seeds - 1, freedom), freedom)  # not less than luck alone
    reach = stats.t.ppf(0.95 if margin else 0.975, degrees) * np.sqrt(shared + np.maximum(seen, least))
    normal = stats.norm(shift, math.sqrt(shared + true))
    inside = np.maximum(normal.cdf(margin - reach) - normal.cdf(reach - margin), 0)
    return (inside if margin else normal.sf(reach) + normal.cdf(-reach)).mean()


def fewest(power: Any) -> int:  # seeds with a power of four in five, from three on
    return 3 + bisect_left(range(3, 10_000), True, key=lambda seeds: power(seeds) >= 0.8)


def ends(name: str, low: Any, high: Any) -> dict[str, Any]:
    return {f"{name}/low": low, f"{name}/high": high}


def counted(cells: pd.DataFrame) -> dict[str, Any]:
    """Trainings by platform; the small ones that `make paper` does; networks audited; what was timed."""
    run = cells["status"].notna()
    small = cells[run & cells["dataset"].str.startswith("phantom") & (cells["seed"] == 0)]
    audit = pd.read_csv(ROOT / "data/recorded/audit/audit.csv").query(
        "pixels == 224 and batch == 32 and precision == 'fp32' and part == 'step' and problem.isna()"
    )
    rebuild = yaml.safe_load((ROOT / "data/claims.yaml").read_text())["experiments"]["E3"]["measured"]
    return {
        **{"planned": len(cells), "run": int(run.sum()), "audited": len(audit)},
        **{f"{name}/run": int(run[of.index].sum()) for name, of in cells.groupby("platform")},
        **{f"{name}/planned": len(of) for name, of in cells.groupby("platform")},
        "drawn": int(run[cells["dataset"].str.startswith("phantom")].sum()),
        **{"small": len(small), "small/minutes": small["seconds"].sum() / 60},
        **{"small/cores": small["cores"].max(), "small/processor": " and ".join(sorted(set(small["cpu"])))},
        **{"rebuild/seconds": rebuild["seconds"], "rebuild/where": rebuild["where"]},
    }


def unrounded(recipes: dict) -> dict:
    """The recipes that do not round as another device does, nor are the control of such recipes."""
    rounds = ("arithmetic", "emulated_weights", "block")
    return {group: of for group, of in recipes.items() if not any(map(SETTINGS[group[0]].get, rounds))}


def of_sources(cells: pd.DataFrame, recipes: dict) -> dict[str, Any]:
    """The endpoint's variance by source, over recipes with ten seeds; how far two seeds lie apart in F1."""
    moves, alone = {}, unrounded(recipes)
    for group, rows in cells[cells["status"] == "ok"].groupby([*GROUP, "cpu", "alike"]):
        if group[:3] in alone and not group[0].startswith("phantom"):
            f1 = recipes[group[:3]]["f1"]
            values = f1.value[np.isin(f1.seeds, rows["seed"])]
            moves.setdefault(group[:3], []).extend(abs(a - b) for a, b in combinations(values, 2))
    moves = {group: of for group, of in moves.items() if of}
    ten = [of["endpoint"] for of in alone.values() if len(of["endpoint"].seeds) >= 10]
    luck = np.array([of.luck for of in ten])
    common = [(of.parts.mean(axis=0) ** 2).sum() - of.luck / len(of.seeds) for of in ten]
    parts = np.array([common, luck, [of.value.var(ddof=1) for of in ten] - luck]).mean(axis=1)
    return {
        **{"pairs/recipes": len(moves), "difference": DIFFERENCE},
        "pairs/recipes/above": sum(np.median(of) > DIFFERENCE for of in moves.values()),
        **dict(zip(("share/patients", "share/luck", "share/seed"), 100 * parts / parts.sum(), strict=True)),
        **{"fraction/patients": parts[0] / parts.sum(), "settings/ten": len(ten)},
    }


def of_precisions(cells: pd.DataFrame, recipes: dict) -> dict[str, Any]:
    """Verdicts on recipes that differ in precision alone, and networks with most seeds on one processor."""
    cpus, verdicts, alike, tests = cells.dropna(subset=["cpu"]).groupby(GROUP)["cpu"].agg(set), [], [], []
    for a, b in combinations(recipes, 2):
        first, second = (SETTINGS[group[0]] | {"recipe": ""} for group in (a, b))
        if a[1:] == b[1:] and first != second and first | {"precision": second["precision"]} == second:
            apart = recipes[a]["endpoint"] - recipes[b]["endpoint"]
            verdicts.append(apart.equivalent)
            (mean, error, freedom), same = apart.mean, verdicts[-1]
            tests.append(stats.t.sf(abs(MARGIN * same - abs(mean)) / error, freedom) * (2 - same))
            alike += [(len(apart.seeds), far(apart))] if cpus[a] == cpus[b] else []
    most, order = max(alike)[0], np.argsort(tests)
    held = np.maximum.accumulate(np.sort(tests) * np.arange(len(tests), 0, -1)) < 0.05  # Holm 1979
    return {
        **{"precision/pairs": len(verdicts), "precision/equivalent": sum(verdicts)},
        "precision/corrected": (held & np.array(verdicts)[order]).sum(),
        **{"precision/seeds": most, "precision/far": max(end for seeds, end in alike if seeds == most)},
        **{"margin": MARGIN, "level": 90},  # of an interval within it: two one-sided tests at 5 %
    }


def far(apart: Scored) -> Near:
    """The end of a difference's 90 % interval that is farther from zero."""
    return Near(abs(apart.mean[0]) + apart.reach(0.9), 0.1 * apart.reach(0.9))


def of_arithmetic(cells: pd.DataFrame, recipes: dict) -> dict[str, Any]:
    """Two platforms' emulated arithmetic, for networks of which all planned seeds of both are recorded."""
    arms = ["nih128-32px-arith-matmult", "nih128-32px-arith-tf32"]
    of_arms = cells[cells["dataset"].isin(arms)].groupby("architecture", sort=False)["status"]
    names = [name for name, status in of_arms if status.notna().all()]
    a, b = ([recipes[arm, name, "cpu"]["endpoint"] for name in names] for arm in arms)
    apart = [of - other for of, other in zip(a, b, strict=True)]
    values = {"arithmetic/bound": max(map(far, apart)), "arithmetic/seeds": len(apart[0].seeds)}
    for name, of in zip(names, apart, strict=True):
        both = (Near(of.mean[0] + sign * of.reach(0.9), 0.1 * of.reach(0.9)) for sign in (-1, 1))
        values |= ends(f"arithmetic/{name}", *both)
    return values | {"arithmetic/networks": " and ".join(map(NAMES.get, names))}


def of_claims(recipes: dict) -> dict[str, Any]:
    """The claim O18, and the best network on the largest images."""
    cpu, xla = ([recipes["nih128-32px", name, on] for name in NAMES] for on in ("cpu", "xla_cpu"))
    apart = [a["endpoint"] - b["endpoint"] for a, b in zip(cpu, xla, strict=True)]
    pixels = {group: SETTINGS[group[0]]["pixels"] for group in recipes if group[0].startswith("nih")}
    largest = max(pixels, key=lambda group: (pixels[group], recipes[group]["macro"].value.mean()))
    best, record = (
        recipes[largest]["endpoint"],
        (ROOT / "data/recorded").joinpath(*largest, "seed0/record.json"),
    )
    mean, half = best.mean[0], best.reach(0.95)
    both = expit(logit(mean) + np.array([-1, 1]) * half / (mean * (1 - mean)))  # on the logit scale
    return {
        **{"backends": len(apart), "backends/equivalent": sum(of.equivalent for of in apart)},
        **{"backends/far": max(map(far, apart)), "pico/seeds": len(cpu[1]["macro"].seeds)},
        **{"largest/pixels": pixels[largest], "smallest/pixels": min(pixels.values())},
        "largest/train": json.loads(record.read_text())["dataset"]["images"]["train"],
        **{"largest/network": largest[1], "largest/patients": best.parts.shape[1]},
        **{"best": mean, "best/name": "/".join(largest), "largest/seeds": len(best.seeds)},
        **ends("best", *(Near(end, 0.1 * half) for end in both)),
    }


def of_power(recipes: dict) -> dict[str, Any]:
    """Seeds and patients that suffice: in F1 by all recipes on radiographs, in the endpoint by two pairs."""
    f1 = [of["f1"] for group, of in unrounded(recipes).items() if group[0].startswith("nih")]
    luck, many = [2 * of.luck for of in f1], [len(of.seeds) - 1 for of in f1]
    skill = max(np.average([2 * (of.value.var(ddof=1) - of.luck) for of in f1], weights=many), 0)
    seeds, patients = recipes["nih128-64px", "convnext_pico", "cpu"]["endpoint"].parts.shape
    wanted = (DIFFERENCE / (stats.norm.ppf(0.975) + stats.norm.ppf(0.8))) ** 2  # the variance that shows it
    ends_of = min(luck), max(luck)
    runs = [fewest(lambda n, of=of: chance(of, skill, n, patients - 1, shift=DIFFERENCE)) for of in ends_of]
    tested = [of / seeds * patients / wanted for of in ends_of]  # printed in thousands, so Near has 500
    needed = []
    arms = [f"nih128-32px-arith-{arm}" for arm in ("fp32", "reordered", "matmult", "tf32")]
    for pair in [("nih128-32px-fp32", "nih128-32px-bf16"), *combinations(arms, 2)]:
        a, b = (recipes[dataset, "convnext_pico", "cpu"]["endpoint"] for dataset in pair)
        apart, alone, square = a - b, a.luck + b.luck, (a - b).parts.mean(axis=0) ** 2
        free = min(apart.freedom, square.sum() ** 2 / (square**2).sum())
        shared = max(square.sum() - apart.luck / len(apart.seeds), 0)
        own = max(a.value.var(ddof=1) + b.value.var(ddof=1) - alone, 0)
        needed.append(fewest(partial(chance, alone, own, freedom=free, margin=MARGIN, shared=shared)))
    return {
        **ends("to see/runs", *(Near(n, n / 5) for n in runs)),
        **ends("to see/patients", *(Near(n, 0.2 * n + 500) for n in tested)),
        **{"power/needed": max(needed), "power/seeds": seeds},  # nothing shared but the patients; as recorded
    }


def priced() -> dict[str, Any]:
    """What the preprint's ratio becomes at spot prices, and the example of docs/practitioner.md."""
    prices = pd.read_csv(ROOT / "data/prices.csv", keep_default_na=False)

    def usd(instance: str, basis: str = "on_demand", region: str = "us-east-1") -> float:
        rows = prices[(prices[["instance", "region", "basis"]] == [instance, region, basis]).all(axis=1)]
        return float(rows.sort_values("as_of")["usd_per_hour"].iloc[-1])

    trn1, g5 = usd("trn1.2xlarge"), usd("g5.xlarge")
    regions = prices.query("instance == 'trn1.2xlarge' and basis == 'spot'")["region"].unique()
    pairs = product(("g5.xlarge", "g5.2xlarge"), regions)
    spot = [usd("trn1.2xlarge", "spot", at) / usd(gpu, "spot", at) * usd(gpu) / trn1 for gpu, at in pairs]
    speeds = pd.read_csv(ROOT / "data/reported.csv").set_index(["architecture", "target"]).images_per_second
    hours = (60_000 + 6_000 / 3) * 10 / 600 / 3600  # the example's job: scoring takes a third of training
    return {
        **ends("preprint", *STATED),
        **ends("spot", STATED[0] * min(spot), STATED[1] * max(spot)),
        "spot/regions": len(regions),
        "pays from": 20_000 / 12 / (1 - 1 / 1.3),  # the example's ratio
        **{"example/minutes": 60 * hours, "example/usd": hours * g5, "example/runs": 20_000 / (hours * g5)},
        **{f"published/{on.lower()}": speeds["convnext_tiny", on].max() for on in ("trn2.3xlarge", "A10G")},
    }


def numbers() -> dict[str, Any]:
    """Every quantity that a document names, by the twin's own names: a number, a Near or a text."""
    cells = recorded()
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # half the time
        recipes = scored(cells)
    spread = {group: of for group, of in recipes.items() if len(of["f1"].seeds) > 2}  # fewer have none
    values = counted(cells) | of_sources(cells, recipes) | of_precisions(cells, spread) | of_claims(spread)
    return values | of_arithmetic(cells, spread) | of_power(spread) | priced()

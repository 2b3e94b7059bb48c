"""Frames and words that values.toml takes values from beside the tables of the graph."""

from collections.abc import Iterable

import pandas as pd

from cxrbench.paper.formats import Parts, Range, listed, text, words
from cxrbench.paper.results import Group, Results
from cxrbench.statistics.f1_search import nearest_definition
from cxrbench.statistics.metrics import ENDPOINT, MACRO
from cxrbench.study.recipe import SPLITS

_VERDICTS = ("equivalent", "different", "inconclusive")


def day_of_declaration(read: Results) -> str:
    """The day on which the main endpoint was declared, in words."""
    return str(read.study.endpoint.declared or "no day")


def is_declared(read: Results) -> int:
    """One where the main endpoint was declared on a day, else zero."""
    return int(read.study.endpoint.declared is not None)


def recorded_before_declaration(read: Results) -> int:
    """How many recorded cells had ended before the day on which the main endpoint was declared."""
    declared = read.study.endpoint.declared
    return (
        0
        if declared is None
        else int((read.cells["ended"].dropna().astype(str).str[:10] < str(declared)).sum())
    )


def planned_or_recorded(read: Results) -> str:
    """What all cells of the study are, in words."""
    planned = read.cells["cell"].isin(map(str, read.study.all_cells()))
    return "planned" if planned.all() else "planned or recorded"


def as_code(names: Iterable[str]) -> str:
    """Names as code, with commas between."""
    return ", ".join(f"`{name}`" for name in names)


# -- datasets --------------------------------------------------------------------------------------


def datasets(read: Results) -> pd.DataFrame:
    """A row per dataset: whether a cell has scores, recipe and pixels; images and patients where recorded."""
    rows, scored = [], set(read.ok["dataset"])
    for dataset in read.cells["dataset"].unique():
        recipe = read.study.recipe(dataset)
        row = {"dataset": dataset, "scored": dataset in scored, "pixels": read.study.dataset(dataset).pixels}
        row |= {name: getattr(recipe, name) for name in ("epochs", "batch", "precision", "learning_rate")}
        if identity := read.identity(dataset):
            row |= {f"{part}_images": count for part, count in identity.images.items()}
            row |= {f"{part}_patients": count or "unknown" for part, count in identity.patients.items()}
            row["images"] = sum(identity.images.values())
            row["patients"] = sum(identity.patients.values()) or "unknown"
        rows.append(row)
    counts = [*(f"{part}_images" for part in SPLITS), "images", "patients"]  # also where nothing is recorded
    found = pd.DataFrame(rows)
    return found.reindex(columns=[*dict.fromkeys([*found, *counts])])


def unknown_patients(read: Results) -> str:
    """A sentence that names the datasets whose patients are unknown; empty where there are none."""
    rows = datasets(read)
    unknown = rows.loc[rows["patients"] == "unknown", "dataset"]
    sentence = "Patients of {} are unknown: each image counts as one, and intervals are too narrow."
    return sentence.format(as_code(unknown)) if len(unknown) else ""


# -- networks that the text names -------------------------------------------------------------------


def best(read: Results) -> pd.DataFrame:
    """A row about the best network of the main dataset; none where that is drawn.

    ``note``: of the findings that its endpoint leaves out; ``f1_scope``: those behind its F1.
    """
    group = read.best()
    if group is None:
        return pd.DataFrame()
    seeds, note = read.of(group, "auroc", MACRO), listed(read.of(group, "f1_macro", MACRO)["note"])
    row = {"dataset": group[0], "architecture": group[1], "seeds": len(seeds)}
    row |= {name: read.f1(group, name) for name in ("f1_macro", "f1_micro")}
    row["note"] = listed(read.of(group, "auroc", ENDPOINT)["note"])
    row["f1_scope"] = note or f"all {len(read.findings(*group))} labels"
    return _one_row(row)


def largest(read: Results) -> pd.DataFrame:
    """A row about the best network on the largest real radiographs; none without them.

    ``rivals``: how many networks it was picked from, besides itself.
    """
    group = read.largest()
    if group is None:
        return pd.DataFrame()
    seeds, recipe = read.of(group, "auroc", MACRO), read.study.recipe(group[0])
    sizes = [read.study.dataset(name).pixels for name, *_ in read.scored() if name not in read.drawn]
    patients = seeds["n_patients"].iloc[0]
    row = {"dataset": group[0], "architecture": group[1], "seeds": len(seeds)}
    endpoint = read.mean(group, "auroc", ENDPOINT)
    row |= {"auroc": read.mean(group, "auroc", MACRO), "endpoint": endpoint}
    row["by_chance"] = bool(endpoint.low <= 0.5 <= endpoint.high)
    row["patients"] = patients if patients > 0 else "unknown"  # also where it is missing
    row |= {"pixels": max(sizes), "rivals": sizes.count(max(sizes)) - 1}
    row["weights"] = "random" if recipe.weights == "scratch" else "pretrained"
    identity = read.identity(group[0])
    row["train"] = identity.images["train"] if identity else None
    return _one_row(row)


def _one_row(values: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in values.items()})


def f1_of_best(read: Results) -> pd.DataFrame:
    """The rows of f1_search.csv of the best network on the main dataset."""
    group: Group | None = read.best()
    return pd.DataFrame() if group is None else read.rows_of_cells(read.f1_search, group)


def nearest_f1(read: Results) -> pd.DataFrame:
    """A row about the best network's definition of F1 whose value is nearest to the preprint's."""
    group = read.best()
    nearest = None if group is None else nearest_definition(f1_of_best(read))
    if group is None or nearest is None:
        return pd.DataFrame()
    name = words(nearest.definition.removeprefix("f1_"))
    value = read.f1(group, nearest.definition)
    return _one_row({"definition": name, "value": value, "no_skill": nearest.no_skill})


# -- comparisons -----------------------------------------------------------------------------------


def verdicts_in_words(rows: pd.DataFrame) -> str:
    """``equivalent in 8 of 14, inconclusive in 6``: every verdict of the rows, the unfavourable ones too."""
    counts = rows["verdict"].value_counts()
    parts = [f"{verdict} in {counts[verdict]}" for verdict in _VERDICTS if verdict in counts]
    first, *others = parts or ["not computed in 0"]
    return ", ".join([f"{first} of {len(rows)}", *others])


def largest_difference(pairs: pd.DataFrame) -> str | None:
    """The largest difference of some pairs, with the interval that its verdict rests on; None without any."""
    sizes = pairs.dropna(subset=["difference", "ci90_low"])["difference"].astype(float).abs()
    for row in pairs.loc[sizes.nlargest(1).index].itertuples():
        interval = text(Range(row.ci90_low, row.ci90_high), "signed")
        where = f"{row.architecture} on {row.platform_a} and {row.platform_b}"
        return f"{text(row.difference, 'signed')} (90 % interval {interval}): {where}"
    return None


def different(values: pd.Series) -> Parts:
    """The different values, side by side."""
    return Parts(tuple(values.dropna().unique()), ", ")


def published_means(rows: pd.DataFrame) -> Parts:
    """The published mean of each source, side by side."""
    return Parts(tuple(sorted(rows.drop_duplicates("source")["published"])), " and ")

"""How the networks were trained: the recipes on radiographs, the size of each network, the compute used."""

import pandas as pd

from cxrbench.paper.formats import Fields, Table, listed, of_kinds
from cxrbench.paper.results import Results
from cxrbench.study.names import GROUP
from cxrbench.study.recipe import Recipe

_ARITHMETIC = ("precision", "emulated_weights", "arithmetic", "deterministic")  # what arms of one recipe vary
_SECONDS_PER_HOUR, _MILLION = 3600, 1e6


def recipes(read: Results) -> Table:
    """The settings of the recipes run on radiographs, in a column where they differ in arithmetic alone."""
    alike: dict[str, list[str]] = {}
    for dataset in read.ok["dataset"].unique():
        if dataset not in read.drawn:
            fixed = read.study.recipe(dataset).model_dump(exclude={*_ARITHMETIC, "weights", "compiler"})
            alike.setdefault(str(fixed), []).append(dataset)
    columns = {}
    for datasets in alike.values():
        kinds = [read.study.recipe(dataset) for dataset in datasets]
        pixels = sorted({read.study.dataset(dataset).pixels for dataset in datasets})
        columns[f"{' and '.join(map(str, pixels))} px"] = _settings(kinds)
    rows = pd.DataFrame(columns)
    return Table(rows.rename_axis("Setting").reset_index())


def _settings(kinds: list[Recipe]) -> dict[str, str]:
    recipe, change = kinds[0], kinds[0].augmentation
    return {
        "optimizer, loss": "AdamW, binary cross-entropy",
        "epochs, batch": f"{recipe.epochs}, {recipe.batch}",
        "peak learning rate": f"{recipe.learning_rate:g}",
        "rate of a layer over that of the next": f"{recipe.layer_decay:g}",
        "schedule": f"linear warm-up over {100 * recipe.warmup:.0f} % of the steps, cosine decay",
        "weight decay": f"{recipe.weight_decay:g}",
        "averaging of weights, decay per step": f"{recipe.averaging:g}",
        "dropout, stochastic depth": f"{recipe.drop_rate:g}, {recipe.drop_path:g}",
        "flip probability": f"{change.flip:g}",
        "largest shift, of the side": f"{100 * change.shift:.0f} %",
        "largest change of scale": f"{100 * change.scale:.0f} %",
        "initial weights": listed("scratch" if kind.weights == "scratch" else "ImageNet" for kind in kinds),
        "precision": listed(kind.precision for kind in kinds),
        "CPU threads": str(recipe.threads),
    }


@of_kinds({"Parameters, M": "one", "Runs": "count", "Core hours": "one"})
def networks(read: Results) -> list[Fields]:
    """Parameters, runs on radiographs and core hours of each network."""
    return [
        {
            "Network": name,
            "Parameters, M": rows["parameters"].max() / _MILLION,
            "Runs": len(rows),
            "Core hours": _core_hours(rows),
        }
        for name, rows in _real(read).groupby("architecture", sort=False)
    ]


def _core_hours(rows: pd.DataFrame) -> float:
    return float((rows["total_seconds"] * rows["cores_used"]).sum() / _SECONDS_PER_HOUR)


def core_hours(read: Results) -> float:
    """Core hours of all runs on radiographs."""
    return _core_hours(_real(read))


def _real(read: Results) -> pd.DataFrame:
    return read.ok[~read.ok["dataset"].isin(read.drawn)]


def seeds(read: Results) -> pd.DataFrame:
    """The number of scored seeds of each setting on radiographs that is not set apart."""
    return read.not_set_apart(_real(read)).groupby(GROUP, sort=False).size().rename("seeds").reset_index()

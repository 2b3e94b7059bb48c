"""All tables of the paper's section on cost but cost.csv, which is read."""

from cxrbench.cli import run_script
from cxrbench.cli.words import (
    PRICES,
    RECORDED,
    RESULTS,
    STUDY,
    PricesOption,
    RecordedOption,
    ResultsOption,
    StudyOption,
)


def money_tables(
    results: ResultsOption = RESULTS,
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Write the tables on prices, ratios, ports and rooflines."""
    from cxrbench.cost.write import write_cost_tables

    write_cost_tables(results, study, prices, recorded)


if __name__ == "__main__":
    run_script(money_tables)

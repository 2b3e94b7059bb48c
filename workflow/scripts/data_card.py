"""The generated parts of data/README.md."""

from pathlib import Path

from cxrbench.cli import run_script
from cxrbench.cli.words import REGISTRY, say


def data_card(card: Path = Path("data/README.md"), registry: Path = REGISTRY) -> None:
    """Rewrite the generated parts of the data card."""
    from cxrbench.paper.data_card import write_card

    write_card(card, registry)
    say(f"wrote {card}")


if __name__ == "__main__":
    run_script(data_card)

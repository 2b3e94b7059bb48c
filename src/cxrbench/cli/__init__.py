"""``cxrbench``: every step of the graph by hand. Tables go to standard output, messages to standard error.

A command's module is imported when the command is called, and so are the packages that it needs: scoring a
file needs no torch, no Snakemake and no pydantic, and takes little more than the import of pandas.
"""

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from cxrbench.cli.words import STUDY, complain
from cxrbench.common.errors import UserError
from cxrbench.common.files import DISK_FULL, explained

HELP = """Is a difference between two machines real? Score, compare, plan, train.

Compare the predictions of two machines, or score those of one, in any folder:

  cxrbench compare folder_a folder_b
  cxrbench evaluate predictions.csv

Most other commands need a clone of the repository. There, `make paper` runs
the whole study: it trains the cells that this machine can train, takes
recorded evidence for the others, and rebuilds the paper. A cell is one
training run. Its name is dataset/architecture/platform/seedN.

Train a cell on synthetic radiographs, then print its scores:

  cxrbench data get phantom-32px
  cxrbench train phantom-32px/resnet18/cpu/seed0
  cxrbench evaluate results/runs/phantom-32px/resnet18/cpu/seed0

Check all recorded evidence, then print the claims that it supports:

  cxrbench verify
  cxrbench claims --why
"""
EPILOG = """Tables go to standard output. With --json, the same rows are JSON.
Messages go to standard error.
Exit codes: 0 done; 1 wrong input, or a result outside its tolerance; 2 wrong
command line; 3 the cell cannot be trained here; 4 another verdict than
compare --expect names; 75 training was interrupted, and the same command
resumes it."""


# What commands read by default and every clone has, unlike data/packed and a user's own config/mine.yaml.
_IN_A_CLONE = {
    *("config/config.yaml", "config/full.yaml", "config/slurm.yaml", "config/smoke.yaml", "data/README.md"),
    *("data/allowed_signers", "data/baselines.csv", "data/claims.yaml", "data/expected_status.csv"),
    *("data/instances.csv", "data/prices.csv", "data/published_comparisons.csv", "data/recorded"),
    *("data/recorded/SHA256SUMS", "data/registry.csv", "data/releases.csv", "data/reported.csv"),
    *("data/timm_inference.csv", "data/timm_training.csv", "data/weights.csv"),
}

# The order of the help: panels, and in each the commands, with the module and the name that each has in cli/.
COMMANDS: dict[str, dict[str, str]] = {
    "Use: score, compare, plan, train": {
        "compare": "compare:compare",
        "evaluate": "scores:evaluate",
        "power": "scores:power",
        "cost": "cost:app",
        "plan": "planned:plan",
        "data": "get:data_app",
        "train": "train:train",
        "predict": "train:predict",
        "contribute": "contribute:contribute",
    },
    "Check: the evidence, the claims, the graphs": {
        "cell": "get:cell_app",
        "claims": "claims:claims",
        "verify": "evidence:verify",
        "audit": "audit:audit",
        "compile": "compile:compile",
    },
    "Maintain: what a build and a maintainer call": {
        "record": "evidence:record",
        "report": "report:report",
        "precompile": "train:precompile",
        "sagemaker": "sagemaker:app",
    },
}
READER_GONE = 128 + signal.SIGPIPE  # exit code, a shell's: `cxrbench claims | head -1` refutes no claim
ROOT = Path(__file__).parents[3]
if (ROOT / "benchmarks").is_dir():  # they lie beside src/, outside what is installed elsewhere
    COMMANDS[list(COMMANDS)[-1]]["bench"] = "benchmarks.commands:app"
# The extra of this package that installs each module which is not among its plain dependencies.
EXTRAS = {
    "train": {
        *("huggingface_hub", "medmnist", "pydicom", "pynvml", "requests", "safetensors", "timm", "torch"),
        *("torch_xla", "torchvision", "tqdm", "urllib3"),
    },
    "paper": {
        *("PIL", "boto3", "botocore", "jinja2", "markupsafe", "psutil", "pydantic", "seaborn", "sklearn"),
        *("snakemake", "snakemake_interface_logger_plugins", "tabulate", "torchxrayvision", "yaml"),
    },
}


_USAGE: Any = typer.BadParameter.__base__  # typer has no public name for a wrong command line


class OnDemand(TyperGroup):
    """The commands in the order of the help, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for panel in COMMANDS.values() for name in panel]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = self.list_commands(ctx)
        for name in [cmd_name] if cmd_name in names else names:  # of a misspelt one the nearest is told
            if name not in self.commands:
                self.commands[name] = _loaded(name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what is no number is said in our words."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # which the option parser would end with 1
            _print_no_more()
            raise typer.Exit(READER_GONE) from None
        except typer.BadParameter as error:
            if error.message.startswith("Input should be a valid"):
                error.message = _number_wanted(error)
            elif limit := re.match(r"Input should be (greater|less) than or equal to (.*)", error.message):
                given = ", ".join(_given(error.param))
                least = "at least" if limit[1] == "greater" else "at most"
                error.message = f"{given}: give a number of {least} {limit[2]}"
            raise
        except _USAGE as error:
            if (name := getattr(error, "option_name", "")) and " requires " in error.message:
                option = next((param for param in self._called(ctx).params if name in param.opts), None)
                error.message = error.message.rstrip(".") + _values_of(option)
            raise

    def _called(self, ctx: Any) -> Any:
        """The command that the words of the command line name."""
        command: Any = self
        for word in sys.argv[1:]:
            command = getattr(command, "get_command", lambda *_: None)(ctx, word) or command
        return command


def _values_of(option: Any) -> str:
    """What an option takes, after what is missing of it."""
    if option is None:
        return ""
    values = option.metavar if option.nargs > 1 and option.metavar else ""
    return f"{f', {values}' if values else ''}: {option.help}" if option.help else ""


def _number_wanted(error: typer.BadParameter) -> str:
    """What a number's parser says, with the text that it was given and how to write it."""
    whole = "integer" in error.message
    given = next((word for word in _given(error.param) if not _is_number(word, whole)), "")
    if given.startswith("-"):
        return f"a number is missing before '{given}'; give {error.param.nargs if error.param else 'one'}"
    thousands = re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", given)
    meant = given.replace(",", "" if thousands else ".")
    if short := re.fullmatch(r"(\d+(?:[.]\d+)?)([kKM%])", given):
        meant = f"{float(short[1]) * {'k': 1e3, 'K': 1e3, 'M': 1e6, '%': 0.01}[short[2]]:.15g}"
    number = _is_number(meant, whole)
    remedy = f"write {meant}" if number else "write digits alone"
    return f"'{given}' is not a {'whole ' * whole}number; {remedy}"


def _given(param: Any) -> Iterator[str]:
    """The words that the command line gives an option, all of its occurrences."""
    words = [word for option in sys.argv[1:] for word in option.split("=", 1)]
    for position, word in enumerate(words):
        if param and word in param.opts:
            yield from words[position + 1 : position + 1 + param.nargs]


def _is_number(word: str, whole: bool) -> bool:
    try:
        (int if whole else float)(word)
    except ValueError:
        return False
    return True


def _loaded(name: str) -> Any:
    """The command called ``name``; where a package is missing, one whose help and whose error say so."""
    panel = next(panel for panel, names in COMMANDS.items() if name in names)
    module, _, attribute = COMMANDS[panel][name].partition(":")
    if name == "bench" and str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    try:
        step = getattr(import_module(module if "." in module else f"cxrbench.cli.{module}"), attribute)
    except ModuleNotFoundError as error:
        step = _lacking(error)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    if isinstance(step, typer.Typer):
        alone.add_typer(step, name=name, rich_help_panel=panel)
    else:
        alone.command(name, rich_help_panel=panel)(step)
    return get_group(alone).commands[name]


def _lacking(error: ModuleNotFoundError) -> Callable[..., None]:
    """A command in place of one whose packages are missing."""
    if (text := _missing_extra(error)) is None:
        raise error

    def command(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise UserError(text)

    command.__doc__ = text
    return command


def _missing_extra(error: ModuleNotFoundError) -> str | None:
    """Which package a command needs and what installs it; None for a module that no extra brings."""
    package = str(error.name).partition(".")[0]
    for extra, modules in EXTRAS.items():
        if package in modules:
            return f"this command needs {package}, which is not installed; install cxrbench[{extra}]"
    return None


app = typer.Typer(
    cls=OnDemand,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata  # slow to load

        number = next((f" {package.version}" for package in metadata.distributions(name="cxrbench")), "")
        commit = ""
        if (ROOT / ".git").exists() or "CXRBENCH_COMMIT" in os.environ:  # an installed package has none
            from cxrbench.evidence.record import commit_of_code

            head, dirty = commit_of_code()
            commit = f", commit {head[:12]}{' with changes' if dirty else ''}"
        print(f"cxrbench{number}{commit}")
        raise typer.Exit


@app.callback(help=HELP, epilog=EPILOG)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of ``cxrbench`` itself."""


def _must_be_the_code_of(folder: Path) -> None:
    """Raise UserError in a checkout whose code this is not, unless PYTHONPATH names this code.

    A package that was installed from the checkout, which is unchanged since, has its code.
    """
    clone = next((path for path in (folder, *folder.parents) if (path / "src/cxrbench/cli").is_dir()), None)
    source = Path(__file__).parents[2]
    chosen = (Path(path).resolve() for path in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if clone is None or source.samefile(clone / "src") or source in chosen or _alike(source, clone / "src"):
        return
    raise UserError(
        f"this environment runs the code of {source.parent}, not of the checkout {clone}: "
        f"set PYTHONPATH={clone / 'src'}, or to {source} if you mean that code"
    )


def _alike(first: Path, other: Path) -> bool:
    """Whether two folders have the same modules of the package."""
    ours, theirs = (
        {path.relative_to(root) for path in root.glob("cxrbench/**/*.py")} for root in (first, other)
    )
    return ours == theirs and all((first / name).read_bytes() == (other / name).read_bytes() for name in ours)


def _print_no_more() -> None:
    """Point standard output nowhere, so that the interpreter's end does not try what was refused again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def with_messages() -> Iterator[None]:
    """A user's mistake inside is one message on standard error and exit code 1, never a traceback."""
    if os.environ.get("NO_COLOR"):
        os.environ["TERM"] = "dumb"  # rich would still print in bold
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark
    try:
        _must_be_the_code_of(Path.cwd())
        try:
            yield
        finally:
            if sys.stdout:  # None where it was closed, as by >&-
                sys.stdout.flush()  # at the interpreter's end a refusal would be a traceback
    except BrokenPipeError:
        _print_no_more()
        sys.exit(READER_GONE)
    except (UserError, OSError) as error:
        message = explained(error) if isinstance(error, OSError) else error
        if message is None and isinstance(error, OSError) and error.errno in DISK_FULL:
            _print_no_more()  # most likely it was standard output
            message = UserError(f"{error.strerror} where this command writes; free some there")
        if message is None:
            raise
        text = str(message)
        about = text.partition(":")[0]  # a file that exists is named for what is in it
        if about in _IN_A_CLONE and not Path(about).exists() and not STUDY.exists():
            text += "; run it in a clone of the repository, which has it"
        complain(text)
        sys.exit(1)
    except ModuleNotFoundError as missing:
        if (advice := _missing_extra(missing)) is None:
            raise
        complain(advice)
        sys.exit(1)


def main() -> None:
    """Entry point of the command line."""
    with with_messages():
        app()


def run_script(step: Callable[..., None]) -> None:
    """Run ``step`` as a script, with options and messages like a command's."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command()(step)
    with with_messages():
        alone()

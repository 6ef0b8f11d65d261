"""The command behind a verb: its help lists options by topic, and its errors name options, in plain text."""

from __future__ import annotations

__all__ = ["CLIENTS", "CLIPPING", "DATA", "MODEL", "PRIVACY", "RUN", "SAMPLING", "VARIANTS", "CommandByTopic"]

from typing import Any

from typer.core import TyperCommand

from privet.cli.refusals import in_options
from privet.errors import InvalidArgumentError

DATA = "Data"
CLIENTS = "Clients"
PRIVACY = "Privacy"
SAMPLING = "Sampling and length"
CLIPPING = "Clipping"
VARIANTS = "Sparsification and momentum"
MODEL = "Model and optimizer"
RUN = "Run"

# Width of the column of option names; click's default. A longer name gets a line to itself.
_WIDEST_NAME = 30


class CommandByTopic(TyperCommand):
    """A verb whose help groups options by `rich_help_panel`, without rich's boxes and colours, and whose errors name options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; an error about an argument of the Python interface names the option that sets it."""
        try:
            return super().invoke(ctx)
        except InvalidArgumentError as error:
            raise in_options(error, {option for parameter in self.params for option in parameter.opts}) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a list of options per topic, in a fixed order and untopical options last, all with the same columns."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                default = "Arguments" if parameter.param_type_name == "argument" else "Options"
                topics.setdefault(getattr(parameter, "rich_help_panel", None) or default, []).append(record)
        order = [DATA, CLIENTS, PRIVACY, SAMPLING, MODEL, CLIPPING, VARIANTS, RUN]
        topics = {name: topics[name] for name in (*order, *topics) if name in topics and name != "Options"} | topics
        names = [name for records in topics.values() for name, _ in records]
        width = min(_WIDEST_NAME, max(map(len, names), default=0))
        for topic, records in topics.items():
            with formatter.section(topic):
                formatter.write_dl([(name.ljust(width), text) for name, text in records])

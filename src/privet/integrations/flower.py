"""Federated rounds on Flower's SuperLink and SuperNodes (extra `flower`): a population on a grid, and the app of its nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from privet._utils.registry import decode, encode
from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError, count, positive
from privet.federated import Round, Simulation
from privet.federated.messages import message, sum_messages
from privet.sampling import Indices
from privet.sparsification.drawing import Masks, Selection

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
except ImportError:
    raise ImportError(
        "privet.integrations.flower needs flwr, which is not installed; run: pip install 'privet[flower]'"
    ) from None

# What the bytes of an array are, where Flower would name a serialisation of its own.
_FORMAT = "privet.federated.message"
_WAIT = 0.5  # seconds between two looks at which nodes are connected


class FlowerPopulation:
    """Clients that live on Flower's SuperNodes, for the rounds of `privet.federated.Federated` in a `ServerApp`.

    A round sends each node the parameters, the rule, three numbers for a random mask and the drawn clients of the node. No
    strategy and no differential privacy of Flower's is used.

    Args:
        grid: Flower's, as the main function of a `ServerApp` gets it.
        nodes: public: id of a node → numbers of the clients that it holds. Each of the numbers 0 … N − 1 has one node.
        program: what every client runs, such as `LocalSteps(...).program(loss_fn)`, for the record of a run.
        privacy_unit: whose data one client holds.
        timeout: seconds that a round waits for answers, > 0. Who answers later counts as zero.
        patience: seconds to wait at the start until all nodes are connected, > 0.

    Guarantee:
        That of `privet.federated.sum_messages`: a client counts at most once, with at most the rule's sensitivity, and only if
        its own node answers for it in time; everything else is zero, and the divisor stays as it is. This needs SuperNodes that
        the SuperLink authenticates. Whoever operates a node learns which of its clients a round has drawn.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[int, Sequence[int]],
        program: Callable[..., Any],
        *,
        privacy_unit: str = "one user",
        timeout: float = 600.0,
        patience: float = 600.0,
    ) -> None:
        self._grid, self._node = grid, {client: node for node, clients in nodes.items() for client in clients}
        if sorted(client for clients in nodes.values() for client in clients) != list(range(len(self._node))) or not self._node:
            found = f"a mapping of {len(nodes)} nodes with {sum(map(len, nodes.values()))} numbers of clients"
            allowed = "one that names each of the numbers 0 to N − 1 once"
            fix = "Number all clients from 0, and give each one node."
            raise InvalidArgumentError("nodes", found, allowed, fix)
        self.clients, self.privacy_unit, self.program = len(self._node), privacy_unit, program
        self._timeout = positive("timeout", timeout, "It is the time that nodes have to answer, in seconds.")
        _wait(grid, lambda here: here >= set(nodes), f"{len(nodes)} declared nodes", patience)

    def gather(self, told: Round, cohort: Indices) -> ClippedSum:
        """Return the clipped sum of the cohort's messages; as for `Population`."""
        asked: dict[int, list[int]] = {}
        for client in map(int, cohort):
            asked.setdefault(self._node[client], []).append(client)
        here = set(self._grid.get_node_ids())  # a node that is gone is not waited for
        sent = [
            Message(_tell(told, clients), node, MessageType.TRAIN, ttl=self._timeout, group_id=str(told.number))
            for node, clients in asked.items()
            if node in here
        ]
        replies = self._grid.send_and_receive(sent, timeout=self._timeout) if sent else ()
        return sum_messages(_read_replies(replies, asked, told.number), told, cohort)


def ask_nodes(grid: Grid, number: int, *, timeout: float = 600.0, patience: float = 600.0) -> dict[int, list[int]]:
    """Return node → numbers of its clients, as the nodes say themselves; for `FlowerPopulation`, before the first round.

    A node could name the clients of another one that is silent. Where operators are not trusted with this, write the mapping down
    by the ids that SuperNodes get when they are registered.

    Args:
        grid: Flower's.
        number: number of nodes that make up the population, ≥ 1.
        timeout: seconds to wait for the answers, > 0.
        patience: seconds to wait until so many nodes are connected, > 0.
    """
    count("number", number, fix="It is the number of nodes that hold the clients.")
    positive("timeout", timeout, "It is the time that nodes have to answer, in seconds.")
    here = _wait(grid, lambda here: len(here) >= number, f"{number} nodes", patience)
    sent = [Message(RecordDict(), node, MessageType.QUERY, ttl=timeout) for node in sorted(here)]
    found: dict[int, list[int]] = {}
    for reply in grid.send_and_receive(sent, timeout=timeout):
        if not reply.has_error() and "clients" in reply.content.config_records:
            found[reply.metadata.src_node_id] = cast(list[int], reply.content.config_records["clients"]["numbers"])
    if len(found) < number:
        raise TimeoutError(f"{len(found)} of {number} nodes said in {timeout} s which clients they hold")
    return found


def client_app(load: Callable[[Context], tuple[Sequence[int], Simulation]]) -> ClientApp:
    """Return the app of the nodes: it trains the drawn clients of a node one by one, and answers with a message of each.

    Args:
        load: called once in each process of a node with Flower's context, whose `node_config` says which node it is; returns the
            numbers of the clients that the node holds, and their simulation, in the same order.

    Guarantee:
        An update leaves the node only after it was clipped, with the kept coordinates alone. It has no noise: the server and the
        transport see it. A client whose training raises sends no update, and no error is sent.
    """
    app = ClientApp()
    held: list[tuple[dict[int, int], Simulation]] = []

    def open_node(context: Context) -> tuple[dict[int, int], Simulation]:
        if not held:
            numbers, simulation = load(context)
            if len(set(numbers)) != simulation.clients:
                found = f"a function that returns {len(set(numbers))} numbers for {simulation.clients} clients"
                allowed = "one that returns a number for each client"
                raise InvalidArgumentError("load", found, allowed)
            held.append(({number: place for place, number in enumerate(numbers)}, simulation))
        return held[0]

    @app.query()
    def say_clients(query: Message, context: Context) -> Message:
        places, _ = open_node(context)
        return Message(RecordDict({"clients": ConfigRecord({"numbers": [*places]})}), reply_to=query)

    @app.train()
    def train_clients(query: Message, context: Context) -> Message:
        told, asked = _read(query.content)
        places, simulation = open_node(context)
        updates = {
            str(client): message(simulation.gather(told, np.array([places[client]]))) for client in asked if client in places
        }
        arrays = {client: Array("float32", (len(data) // 4,), _FORMAT, data) for client, data in updates.items()}
        return Message(RecordDict({"updates": ArrayRecord(arrays)}), reply_to=query)

    return app


def _wait(grid: Grid, enough: Callable[[set[int]], bool], wanted: str, patience: float) -> set[int]:
    end = time.monotonic() + positive("patience", patience, "It is the time that nodes have to connect, in seconds.")
    while not enough(here := set(grid.get_node_ids())):
        if time.monotonic() > end:
            raise TimeoutError(f"not all of {wanted} are connected after {patience} s; {len(here)} nodes are")
        time.sleep(_WAIT)
    return here


def _read_replies(replies: Iterable[Message], asked: Mapping[int, Sequence[int]], number: int) -> Iterator[tuple[int, object]]:
    """Yield client and message for the clients that each node was asked for; a node has no say in others."""
    for reply in replies:
        if reply.has_error() or reply.metadata.group_id != str(number):
            continue
        updates = reply.content.array_records.get("updates") or ArrayRecord()
        for client in asked.get(reply.metadata.src_node_id, ()):
            if (found := updates.get(str(client))) is not None:
                yield client, found.data  # not Flower's array, whose shape and type are the sender's


def _tell(told: Round, clients: Sequence[int]) -> RecordDict:
    """Return what a node is told: the round, with a random mask as its three numbers, and the drawn clients of the node."""
    selection = told.selection
    content = RecordDict({
        "parameters": ArrayRecord({name: Array(each.detach().cpu().numpy()) for name, each in told.parameters.items()}),
        "round": ConfigRecord({
            "number": told.number, "names": [*told.parameters], "rule": json.dumps(encode(told.rule)), "clients": [*clients],
            "selection": [] if selection is None else [selection.seed, selection.block, selection.zeros],
        }),
    })  # fmt: skip
    if selection is None and told.masks is not None:  # a ranked mask: one bit for each coordinate
        bits = np.concatenate([told.masks[name].flatten().cpu().numpy() for name in told.parameters])
        content["masks"] = ArrayRecord({"kept": Array(np.packbits(bits))})
    return content


def _read(content: RecordDict) -> tuple[Round, list[int]]:
    """Return the round and the clients that `_tell` told."""
    told, arrays = cast(dict[str, Any], content.config_records["round"]), content.array_records["parameters"]
    parameters = {name: torch.from_numpy(arrays[name].numpy()) for name in told["names"]}
    selection = Selection(*told["selection"]) if told["selection"] else None
    rule = decode("rule", json.loads(told["rule"]), Rule)
    return Round(told["number"], parameters, rule, _read_masks(content, parameters, selection), selection), told["clients"]


def _read_masks(content: RecordDict, parameters: Mapping[str, Tensor], selection: Selection | None) -> Masks | None:
    if selection is not None:
        return selection.masks({name: tuple(each.shape) for name, each in parameters.items()}) if selection.zeros else None
    if "masks" not in content.array_records:
        return None
    sizes = [each.numel() for each in parameters.values()]
    bits = np.unpackbits(content.array_records["masks"]["kept"].numpy(), count=sum(sizes)).astype(bool)
    parts = torch.from_numpy(bits).split(sizes)
    return {name: part.view(each.shape) for (name, each), part in zip(parameters.items(), parts, strict=True)}

import math

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr", reason="flwr is not installed (extra flower)")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Wire
from flwr.supercore.task_identity import TaskIdentity

import privet
from privet.clipping import AdaptiveQuantile, Automatic, Flat, Layerwise
from privet.errors import InvalidArgumentError
from privet.federated import Federated, LocalSteps, Round, Simulation
from privet.federated.rounds import no_contributions
from privet.integrations import flower
from privet.integrations.flower import FlowerPopulation, ask_nodes, client_app
from privet.sampling import Poisson
from privet.sparsification import Random
from privet.sparsification.drawing import Selection

CLIENTS, INPUTS, OUTPUTS = 6, 4000, 5
LOCAL = LocalSteps(learning_rate=0.1, steps=2)
SHAPES = {"weight": (OUTPUTS, INPUTS), "bias": (OUTPUTS,)}
NODES = {11: [0, 2, 4], 22: [1, 3, 5]}
RULES = {
    "flat": Flat(0.3),
    "automatic": Automatic(bound=2.5),
    "adaptive layerwise": AdaptiveQuantile(Layerwise(Flat(3.0)), share=0.1),
    "unequal noise": Layerwise({"weight": Flat(0.2), "bias": Flat(2.0)}, noise="per group"),
}
SEEDED = Selection(seed=5, block=2, zeros=round(0.9 * OUTPUTS * (INPUTS + 1)))
# Masks of a round, and the three numbers that they come from; a ranked mask comes from releases.
RANKED = {name: torch.arange(math.prod(shape)).view(shape) % 3 > 0 for name, shape in SHAPES.items()}
MASKS = {"dense": (None, None), "random": (SEEDED.masks(SHAPES), SEEDED), "ranked": (RANKED, None)}
# Every rule with the masks in turn.
PAIRS = [(rule, list(MASKS)[(place + more) % 3]) for place, rule in enumerate(RULES) for more in (0, 1)]


@pytest.fixture(autouse=True)
def within_a_run(monkeypatch):
    """Messages can be made only within a run of Flower's."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def loss_fn(model, batch):
    return (model(batch[0]) - batch[1]).square().mean(1)


def client(number):
    generator = torch.Generator().manual_seed(number)
    size = 2 + number % 3
    return torch.randn(size, INPUTS, generator=generator), torch.randn(size, OUTPUTS, generator=generator)


def model_of():
    torch.manual_seed(0)
    return nn.Linear(INPUTS, OUTPUTS)


def simulate(numbers=range(CLIENTS), loss=loss_fn):
    return Simulation(model_of(), loss, [client(number) for number in numbers], LOCAL, vectorise=False)


SIMULATION = simulate()


def round_of(rule="flat", masks="dense", number=3):
    return Round(number, {name: each.detach() for name, each in model_of().named_parameters()}, RULES[rule], *MASKS[masks])


class Wires:
    """A grid within this process: what is sent becomes bytes and is read again, and a test may change the replies."""

    def __init__(self, change=lambda replies: replies, app=None, here=(*NODES,)):
        self.change, self.here, self.sent, self.up = change, here, [], []
        apps = {node: client_app(lambda context: (NODES[context.node_id], simulate(NODES[context.node_id]))) for node in NODES}
        self.apps = apps if app is None else dict.fromkeys(NODES, app)

    def get_node_ids(self):
        return [*self.here]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for query in messages:
            node, told = query.metadata.dst_node_id, recorddict_to_proto(query.content).SerializeToString()
            self.sent.append((node, len(told), query))
            query.content = recorddict_from_proto(Wire.FromString(told))
            reply = self.apps[node](query, Context(1, node, {}, RecordDict(), {}))
            answer = recorddict_to_proto(reply.content).SerializeToString()
            self.up.append(len(answer))
            reply.content = recorddict_from_proto(Wire.FromString(answer))
            replies.append(reply)
        return self.change(replies)


def population(grid, nodes=NODES):
    return FlowerPopulation(grid, nodes, LOCAL.program(loss_fn), timeout=5, patience=0.01)


def distance(one, other):
    """How far apart two sums are, in the norm that the noise is scaled to."""
    return math.hypot(*(
        float((tensor - other.tensors[name]).double().norm()) / one.noise_scales.get(name, 1.0)
        for name, tensor in one.tensors.items()
    ))  # fmt: skip


@pytest.mark.parametrize(("rule", "masks"), PAIRS)
def test_nodes_answer_with_what_the_simulation_sums(rule, masks):
    told, cohort = round_of(rule, masks), np.array([0, 1, 3, 4])
    found, expected = population(Wires()).gather(told, cohort), SIMULATION.gather(told, cohort)
    assert distance(found, expected) < 1e-5 * told.rule.sensitivity
    assert distance(found, no_contributions(told)) > 0.5 * told.rule.sensitivity
    assert (found.sensitivity, found.noise_scales) == (expected.sensitivity, expected.noise_scales)


def test_a_node_is_told_its_own_clients_alone_and_a_random_mask_as_three_numbers():
    grids = {masks: Wires() for masks in MASKS}
    for masks, grid in grids.items():
        population(grid).gather(round_of(masks=masks), np.array([0, 3, 4]))
    told = {node: query.content.config_records["round"] for node, _, query in grids["random"].sent}
    assert {node: each["clients"] for node, each in told.items()} == {11: [0, 4], 22: [3]}
    assert told[11]["selection"] == [SEEDED.seed, SEEDED.block, SEEDED.zeros]
    down = {masks: grid.sent[0][1] for masks, grid in grids.items()}
    size = sum(math.prod(shape) for shape in SHAPES.values())
    assert down["random"] < down["dense"] + 20 < 4 * size + 1000
    assert down["ranked"] == pytest.approx(down["dense"] + size / 8, abs=400)
    # No bytes of a mask in the answers: they are as long as the kept coordinates.
    for masks, kept in (("dense", size), ("random", size - SEEDED.zeros), ("ranked", sum(int(m.sum()) for m in RANKED.values()))):
        alone = grids[masks].up[1]
        assert 4 * kept <= alone < 4 * kept + 150


def changed(clients, change):
    """Change the bytes of these clients in all replies."""

    def tamper(replies):
        for reply in replies:
            updates = reply.content.array_records["updates"]
            for name in [name for name in updates if int(name) in clients]:
                data = change(updates[name].data)
                updates[name] = Array("float32", (len(data) // 4,), "numpy.ndarray", data)
        return replies

    return tamper


def numbers(value):
    return lambda data: data[:-4] + np.float32(value).tobytes()


def without_records(replies):
    replies[1].content = RecordDict({"updates": ConfigRecord({"3": 1.0})})
    return replies


def as_error(replies):
    replies[1] = Message(Error(1, "a reason"), reply_to=replies[1])
    return replies


def late(replies):
    replies[1].metadata.group_id = "2"  # what the node was asked in an earlier round
    return replies


def unknown(replies):
    replies[1].metadata.__dict__["_src_node_id"] = 99
    return replies


# What a reply of node 22, or the update of its client 3, may be, so that client 3 counts as zero.
ZERO = {
    "the node is silent": lambda replies: replies[:1],
    "the node failed": as_error,
    "the answer is for another round": late,
    "the sender holds no clients": unknown,
    "the reply has other records": without_records,
    "the update is too short": changed([3], lambda data: data[:-4]),
    "the update is cut within a number": changed([3], lambda data: data[:-1]),
    "the update is too long": changed([3], lambda data: data + data),
    "the update is empty": changed([3], lambda data: b""),
    "a number is NaN": changed([3], numbers(math.nan)),
    "a number is infinite": changed([3], numbers(math.inf)),
}


@pytest.mark.parametrize(("what", "masks"), [(what, "dense") for what in ZERO] + [("the update is too long", "random")])
def test_what_is_no_message_of_the_client_counts_as_zero(what, masks):
    told = round_of("flat", masks)
    found = population(Wires(ZERO[what])).gather(told, np.array([0, 3, 4]))
    expected = SIMULATION.gather(told, np.array([0, 4]))
    assert distance(found, expected) < 1e-5
    assert found.sensitivity == expected.sensitivity


@pytest.mark.parametrize(("rule", "masks"), [each for each in PAIRS if each[0] != "adaptive layerwise"])
def test_a_forged_update_moves_the_sum_by_at_most_the_sensitivity(rule, masks):
    told = round_of(rule, masks)
    forge = changed([3], lambda data: (np.frombuffer(data, "<f4") * np.float32(1e6)).tobytes())
    found = population(Wires(forge)).gather(told, np.array([3]))
    moved = distance(found, no_contributions(told))
    assert 0.9 * told.rule.sensitivity < moved <= told.rule.sensitivity
    told = round_of("adaptive layerwise")  # forged counts of an adaptive bound count as zero
    found = population(Wires(changed([3], numbers(1e6)))).gather(told, np.array([3]))
    assert distance(found, no_contributions(told)) == 0


def test_a_node_may_not_answer_for_clients_of_another_or_of_none_nor_twice():
    told, cohort = round_of(), np.array([0, 3])

    def meddle(replies):
        own, foreign = (reply.content.array_records["updates"] for reply in replies)
        mine = foreign["3"]
        for name in ("0", "03", "5", "99", "x", "-1"):  # client 5 is its own, but was not drawn
            foreign[name] = mine
        again = Message(RecordDict({"updates": ArrayRecord({"3": own["0"]})}), reply_to=grid.sent[1][2])
        return [replies[1], again, replies[1], replies[0], replies[0]]

    grid = Wires(meddle)
    assert distance(population(grid).gather(told, cohort), SIMULATION.gather(told, cohort)) < 1e-5


def test_a_client_whose_training_fails_counts_as_zero_and_nothing_is_said_of_it():
    private = client(4)[0][0]  # out here: inside, a generator of its own would be replaced by that of the client

    def fails(model, batch):
        if bool((batch[0] == private).all(1).any()):
            raise ValueError("a private value")
        return loss_fn(model, batch)

    grid, told = Wires(), round_of("adaptive layerwise")
    grid.apps[11] = client_app(lambda context: (NODES[11], simulate(NODES[11], fails)))
    found = population(grid).gather(told, np.array([0, 3, 4]))
    assert distance(found, SIMULATION.gather(told, np.array([0, 3]))) < 1e-5
    assert grid.up[0] < 2.1 * grid.up[1]  # an answer of zeros for client 4, and no error


def test_a_node_that_has_gone_is_not_waited_for_and_an_empty_cohort_asks_nobody():
    grid, told = Wires(), round_of()
    reached = population(grid)
    assert distance(reached.gather(told, np.array([], dtype=np.int64)), no_contributions(told)) == 0
    assert not grid.sent
    grid.here = (22,)
    assert distance(reached.gather(told, np.array([0, 3, 4])), SIMULATION.gather(told, np.array([3]))) < 1e-5
    assert [node for node, *_ in grid.sent] == [22]


def test_the_whole_population_is_waited_for(monkeypatch):
    grid = Wires(here=())
    monkeypatch.setattr(flower, "_WAIT", 0.0)
    with pytest.raises(TimeoutError, match=r"2 declared nodes are connected after 0\.01 s; 0 nodes are"):
        population(grid)
    looks = iter([(), (22,), (22, 33), (11, 22, 33)])
    grid.get_node_ids = lambda: next(looks)
    FlowerPopulation(grid, NODES, LOCAL.program(loss_fn), patience=600)
    assert next(looks, None) is None


def test_nodes_say_which_clients_they_hold():
    grid = Wires()
    assert ask_nodes(grid, 2) == NODES
    assert {query.metadata.message_type for *_, query in grid.sent} == {MessageType.QUERY}
    with pytest.raises(TimeoutError, match="1 of 2 nodes"):
        ask_nodes(Wires(lambda replies: replies[:1]), 2)
    with pytest.raises(TimeoutError, match="3 nodes"):
        ask_nodes(grid, 3, patience=0.01)


@pytest.mark.parametrize("nodes", [{}, {11: []}, {11: [0, 1], 22: [1, 2]}, {11: [1, 2]}, {11: [0, 2]}])
def test_every_client_has_one_node(nodes):
    with pytest.raises(InvalidArgumentError, match="names each of the numbers 0 to N − 1 once"):
        population(Wires(), nodes)


def test_a_node_must_give_each_client_a_number():
    app = client_app(lambda context: ([0, 0], simulate(range(2))))
    with pytest.raises(InvalidArgumentError, match="a number for each client"):
        ask_nodes(Wires(app=app), 2)


@pytest.mark.parametrize(
    "kind", [None, Random(final_rate=0.9, refresh=2), privet.sparsification.Ranked(final_rate=0.5, refresh=2)]
)
def test_a_whole_run_is_that_of_the_simulation(kind):
    plan = privet.Plan(
        examples=CLIENTS, unit="one user", sampling=Poisson(batch_size=4), steps=4, delta=1e-3, sparsification=kind,
        clipping=AdaptiveQuantile(Layerwise(Flat(0.5)), share=0.05), noise=privet.noise.Gaussian(0.5, source="fixed"),
    )  # fmt: skip
    trained = []
    for reached in (population(Wires()), simulate()):
        model = model_of()
        with Federated(plan, model, reached, torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)) as federated:
            federated.run()
        trained.append(model)
    assert all((one - other).abs().max() < 1e-6 for one, other in zip(*(model.parameters() for model in trained), strict=True))
    assert (trained[0].weight - model_of().weight).abs().max() > 1e-3

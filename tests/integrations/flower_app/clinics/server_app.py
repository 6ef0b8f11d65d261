"""The server: three rounds, and a record of what came over the wire."""

import json
from pathlib import Path

import torch
from flwr.serverapp import ServerApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from clinics.task import LOCAL, PLAN, loss_fn, make_model
from privet.federated import Federated
from privet.integrations.flower import FlowerPopulation, ask_nodes

torch.set_num_threads(1)
app = ServerApp()


class CountingGrid:
    """Counts the bytes of every answer as Flower sends them, with all that it sends around the updates."""

    def __init__(self, grid):
        self._grid, self.up, self.updates = grid, [], []
        self.get_node_ids = grid.get_node_ids

    def send_and_receive(self, messages, *, timeout=None):
        replies = self._grid.send_and_receive(messages, timeout=timeout)
        self.up.append(sum(len(part.deflate()) for reply in replies for part in get_all_nested_objects(reply).values()))
        self.updates.append(sum(len(record) for reply in replies for record in reply.content.array_records.values()))
        return replies


@app.main()
def main(grid, context):
    counting, model, out = CountingGrid(grid), make_model(), Path(context.run_config["out"])
    nodes = ask_nodes(grid, 2, timeout=600)
    population = FlowerPopulation(counting, nodes, LOCAL.program(loss_fn), timeout=600)
    with Federated(PLAN, model, population, torch.optim.SGD(model.parameters(), lr=1.0)) as federated:
        federated.run()
    torch.save(model.state_dict(), out / "model.pt")
    found = {"nodes": list(nodes.values()), "up": counting.up, "updates": counting.updates}
    (out / "found.json.part").write_text(json.dumps(found), encoding="utf-8")
    (out / "found.json.part").rename(out / "found.json")

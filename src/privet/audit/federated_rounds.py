"""The federated trainer of audits: `privet.federated.Federated`, with a client in the place of every example of a probe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privet.audit.probe import LinearModel, Probe, ProbeData, Trace
from privet.audit.production import ReleaseRecorder, output_of, record_releases
from privet.clipping.clipped_sum import ClippedSum
from privet.federated import Federated, LocalSteps, Round, Simulation
from privet.federated.messages import message, sum_messages
from privet.federated.rounds import contribution
from privet.sampling import Indices

# Two rounds of eight are held by messages, which cost several times as much as a simulation. Rounds come in pairs, because the
# audit chooses thresholds on one round of a pair and counts errors on the other.
_BY_MESSAGES, _PERIOD = 2, 8
_AT_ONCE = 256


def hold_rounds(probe: Probe) -> Trace:
    """Hold the rounds of a probe by `privet.federated.Federated` and return the releases that its optimizer received.

    A client has one example of the probe, and a local step of DP-FedSGD on the loss ⟨w, x⟩: its update is the row x. Clients with
    rows are canaries; the others send zeros. In two rounds of eight, every client clips its update and sends it as bytes, which
    the server checks and sums; in the others, `Simulation` trains and clips the whole cohort.
    """
    model = LinearModel(probe.sizes, probe.tied)
    optimizer = ReleaseRecorder(model)
    return record_releases(probe, optimizer, Federated(probe.plan, model, _Canaries(probe, model), optimizer))


@dataclass(frozen=True)
class _Rows:
    """The probe's examples as clients of one example each; who was drawn is known from the cohort."""

    data: ProbeData

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, client: int) -> Tensor:
        return self.data.at(np.array([client]))


class _Canaries(Simulation):
    """Clients of a probe, whose updates are their rows."""

    def __init__(self, probe: Probe, model: LinearModel) -> None:
        super().__init__(model, output_of, _Rows(probe.data), LocalSteps.fed_sgd(), at_once=_AT_ONCE)  # type: ignore[arg-type]
        self.privacy_unit = str(probe.plan.unit)
        self._probe = probe

    def gather(self, told: Round, cohort: Indices) -> ClippedSum:
        """Return the clipped sum of the cohort, by messages or by simulation, and record who was drawn."""
        rows = self._probe.data.read(np.asarray(cohort, dtype=np.int64))
        if (told.number - 1) % _PERIOD >= _BY_MESSAGES:
            return super().gather(told, cohort)
        nothing = self._send(torch.zeros_like(rows[:1]), told) if len(rows) else b""
        sent = [self._send(row[None], told) if row.any() else nothing for row in rows]
        return sum_messages(zip(cohort.tolist(), sent, strict=True), told, cohort)

    def _send(self, row: Tensor, told: Round) -> bytes:
        parts = zip(self._probe.sizes, row.split([*self._probe.sizes.values()], 1), strict=True)
        return message(contribution({name: part.unsqueeze(1) for name, part in parts}, told))

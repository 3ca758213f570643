"""What autograd keeps of records is counted once, and let go of."""

from __future__ import annotations

import gc
import weakref

import torch

from discreet.training.passes.trials import SavedBytes
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Rows


def test_shared_memory_counts_once_and_weights_not_at_all() -> None:
    saved, proof = SavedBytes(), Proof(3)
    x = proof.begin(torch.ones(3), Rows(0)).requires_grad_()
    weight = torch.ones(3, requires_grad=True)
    with proof, saved.watching(lambda: 7):
        (x * x).sum()
        (weight * weight).sum()
    assert saved.bytes == {7: 12}
    assert saved.activations(3, 8).after[0] == 4


def test_a_graph_is_freed_once_it_was_let_go_of() -> None:
    saved, weight = SavedBytes(), torch.ones(3, requires_grad=True)
    with saved.watching(lambda: 0):
        result = weight.exp()
    kept = weakref.ref(result)
    del result
    saved.release()
    gc.collect()
    assert kept() is None

"""The last layer apart from the rest of the server's half, for devices that keep their labels."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from gapsl.models.chain import is_chain
from gapsl.models.refusals import CutError


def behead(server: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return what stays with the server, and the last layer with parameters and all that follows it.

    A chain (`nn.Sequential`) gives its last part; of any other module it is the child called `head`.
    """
    if is_chain(server):
        children = list(server.named_children())
        with_weights = [
            i for i, (_, child) in enumerate(children) if next(child.parameters(), None) is not None
        ]
        if len(with_weights) >= 2:
            last = with_weights[-1]
            front, back = children[:last], children[last:]
            return nn.Sequential(OrderedDict(front)), nn.Sequential(OrderedDict(back))
    head = getattr(server, "head", None)
    if isinstance(head, nn.Module) and next(head.parameters(), None) is not None:
        server.head = nn.Identity()
        return server, head
    raise CutError(
        "labels = device needs a last layer that can be taken off the server's half: two layers with weights "
        "in an nn.Sequential, or a child called head; cut earlier, or let the server have the labels"
    )

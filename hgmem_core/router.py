"""HAGE's QueryRouter in torch: how much a relation matters for a query.

w_ij = softplus(MLP([q; e_ij; T_q; cos(q, v_i); cos(q, v_j)])), where q is the query's vector, e_ij the relation's
features, T_q the query's intent over the four kinds of relations, and the MLP has 128 and 64 hidden rectified units.
The part of the first layer that reads q and T_q is the same for every relation of a query and is computed once.
`hgmem_core.hage` evaluates the same network without torch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN = (128, 64)
INTENTS = 4


class QueryRouter(nn.Module):
    """The network; see the module."""

    def __init__(self, dimension: int, features: int, generator: torch.Generator) -> None:
        """Draw the parameters, each uniform within 1 / √(inputs of its layer).

        Args:
            dimension: Of query vectors.
            features: Of a relation.
            generator: Of random numbers.
        """
        super().__init__()
        inputs = dimension + features + INTENTS + 2
        self.dimension, self.features = dimension, features
        self.first_weight, self.first_bias = _layer(inputs, HIDDEN[0], generator)
        self.second_weight, self.second_bias = _layer(HIDDEN[0], HIDDEN[1], generator)
        self.third_weight, self.third_bias = _layer(HIDDEN[1], 1, generator)

    def of_queries(self, vectors: Tensor, intents: Tensor) -> Tensor:
        """Return what the first layer makes of queries alone: `[walks, 128]`.

        Args:
            vectors: `[walks, dimension]`.
            intents: `[walks, 4]`.
        """
        own, _, intent, _ = self._first()
        return functional.linear(torch.cat([vectors, intents], 1), torch.cat([own, intent], 1), self.first_bias)

    def forward(self, queries: Tensor, features: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """Return the weights of relations, `[walks, neighbours]`, all above 0.

        Args:
            queries: From `of_queries`, `[walks, 128]`.
            features: e_ij, `[walks, neighbours, features]`.
            here: cos(q, v_i) of the node that the relations leave, `[walks]`.
            there: cos(q, v_j) of those that they lead to, `[walks, neighbours]`.
        """
        _, relation, _, cosines = self._first()
        walks = torch.addmm(queries, here[:, None], cosines[:, :1].T)
        inputs = torch.cat([features, there[:, :, None]], 2)
        columns = torch.cat([relation, cosines[:, 1:]], 1)
        # Relations as rows of one matrix, and in place where the value before is not needed: memory is what takes time.
        hidden = functional.linear(inputs, columns).add_(walks[:, None, :]).relu_().flatten(0, 1)
        hidden = torch.addmm(self.second_bias, hidden, self.second_weight.T).relu_()
        outputs = torch.mv(hidden, self.third_weight[0]) + self.third_bias
        return functional.softplus(outputs.view(there.shape))

    def _first(self) -> list[Tensor]:
        """Return the first layer's columns for q, e_ij, T_q and the two cosines."""
        return list(torch.split(self.first_weight, [self.dimension, self.features, INTENTS, 2], 1))


def _layer(inputs: int, outputs: int, generator: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    bound = inputs**-0.5
    weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
    return nn.Parameter(weight), nn.Parameter(torch.empty(outputs).uniform_(-bound, bound, generator=generator))

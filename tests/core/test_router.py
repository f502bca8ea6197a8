import numpy as np
import torch
from torch.nn import functional

from hgmem_core.router import QueryRouter

DIMENSION, FEATURES = 6, 4


def test_a_weight_is_softplus_of_the_network_over_all_inputs_at_once():
    generator = torch.Generator().manual_seed(1)
    router = QueryRouter(DIMENSION, FEATURES, generator)
    q, e = torch.randn(3, DIMENSION, generator=generator), torch.randn(3, 5, FEATURES, generator=generator)
    intent, here = torch.rand(3, 4, generator=generator), torch.rand(3, generator=generator)
    there = torch.rand(3, 5, generator=generator)
    found = router(router.of_queries(q, intent), e, here, there)
    for walk in range(3):
        for place in range(5):
            inputs = torch.cat([q[walk], e[walk, place], intent[walk], here[walk, None], there[walk, place, None]])
            hidden = torch.relu(router.first_weight @ inputs + router.first_bias)
            hidden = torch.relu(router.second_weight @ hidden + router.second_bias)
            expected = functional.softplus(router.third_weight @ hidden + router.third_bias)[0]
            assert torch.isclose(found[walk, place], expected, atol=1e-6)
    assert [len(router.first_bias), len(router.second_bias)] == [128, 64]


def test_parameters_depend_on_the_seed_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, same, other = (QueryRouter(DIMENSION, FEATURES, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    for name, values in first.state_dict().items():
        assert torch.equal(values, same.state_dict()[name])
        assert not torch.equal(values, other.state_dict()[name])
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_query_asks_for_changes_what_a_relation_is_worth():
    router = QueryRouter(DIMENSION, FEATURES, torch.Generator().manual_seed(1))
    q = torch.ones(2, DIMENSION)
    queries = router.of_queries(q, torch.eye(4)[:2])
    weights = router(queries, torch.ones(2, 1, FEATURES), torch.zeros(2), torch.zeros(2, 1)).detach().numpy()
    assert (weights > 0).all()
    assert np.ptp(weights) > 1e-4

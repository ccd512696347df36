import copy
import pickle
import threading
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from tests.networks import DOMAINS, randomise_norms, small_cnn


@pytest.fixture
def net():
    torch.manual_seed(0)
    return randomise_norms(bne.convert(small_cnn(), DOMAINS)).eval()


@pytest.fixture
def images():
    return torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def ids():
    return torch.tensor([0, 1, 2, 2, 1, 0, 0])


def assert_same(one, other, **tolerance):
    for field in ("logits", "weights", "distances", "branch_logits"):
        torch.testing.assert_close(getattr(one, field), getattr(other, field), **tolerance)
    torch.testing.assert_close(one.embedding.mean, other.embedding.mean, **tolerance)


def compare_compiled(net, call, *inputs):
    """Compares answers, gradients and statistics with those of a copy that is not compiled."""
    reference = copy.deepcopy(net)
    torch.compiler.reset()
    ours = torch.compile(call(net), fullgraph=True, backend="aot_eager")(*inputs)
    expected = call(reference)(*inputs)
    torch.testing.assert_close(ours, expected)
    ours.square().sum().backward()
    expected.square().sum().backward()
    for mine, other in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    for mine, other in zip(net.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(mine, other)


class TestEvaluation:
    def test_shapes(self, net, images):
        out = net(images, details=True)
        assert out.logits.shape == (7, 4)
        assert out.weights.shape == out.distances.shape == (7, 3)
        assert out.branch_logits.shape == (7, 3, 4)
        assert out.embedding.mean.shape == (7, 6 + 8)
        assert out.embedding.layers == ("1", "4")

    def test_the_parts_make_the_whole(self, net, images):
        out = net(images, details=True)
        torch.testing.assert_close(net(images), out.logits)
        torch.testing.assert_close(
            out.distances, bne.wasserstein(net.embed(images), net.domain_embeddings())
        )
        inverse = 1 / out.distances
        torch.testing.assert_close(out.weights, inverse / inverse.sum(1, keepdim=True))
        torch.testing.assert_close(
            out.logits, torch.einsum("nk,nkc->nc", out.weights, out.branch_logits)
        )
        for index, name in enumerate(DOMAINS):
            own = net(images, [name] * len(images), own_branch=True)
            torch.testing.assert_close(own, out.branch_logits[:, index])

    def test_an_image_does_not_depend_on_its_batch(self, net, images):
        out = net(images, details=True)
        for i in range(len(images)):
            alone = net(images[i : i + 1], details=True)
            torch.testing.assert_close(alone.logits[0], out.logits[i])
            torch.testing.assert_close(alone.weights[0], out.weights[i])

    def test_nothing_is_updated(self, net, images, ids):
        before = copy.deepcopy(net.state_dict())
        net(images, details=True)
        net(images, ids, own_branch=True)
        for name, value in net.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)

    @pytest.mark.parametrize("max_images", [1, 3, 7, 100])
    @pytest.mark.parametrize("max_branches", [None, 1, 2, 5])
    def test_chunks_change_nothing(self, net, images, ids, max_images, max_branches):
        whole, own = net(images, details=True), net(images, ids, own_branch=True)
        largest = []
        net.model[0].register_forward_hook(lambda m, i, o: largest.append(len(o)))
        net.max_images, net.max_branches = max_images, max_branches
        assert_same(net(images, details=True), whole)
        torch.testing.assert_close(net(images, ids, own_branch=True), own)
        assert max(largest) <= max_images * (max_branches or 3)

    def test_embeddings_too_are_made_in_chunks(self, net, images):
        whole, sizes = net.embed(images), []
        net.model[0].register_forward_hook(lambda m, i, o: sizes.append(len(o)))
        net.max_images = 3
        torch.testing.assert_close(net.embed(images).var, whole.var)
        assert sizes == [3, 3, 1]

    @pytest.mark.parametrize("training", [False, True])
    def test_under_its_domain_an_image_gets_whatever_the_network_returns(
        self, images, ids, training
    ):
        net = bne.convert(Pair(), DOMAINS).train(training)
        logits, features = net(images, ids, own_branch=True)
        assert logits.shape == (7, 4)
        torch.testing.assert_close(features, net.model.net[0](images))

    @pytest.mark.filterwarnings("ignore:var_mean")
    def test_no_images(self, net):
        assert net(torch.randn(0, 3, 16, 16)).shape == (0, 4)

    def test_probabilities_are_mixed_as_such(self, net, images):
        logits = net(images, details=True)
        net.mix = "probabilities"
        out = net(images, details=True)
        expected = torch.einsum("nk,nkc->nc", logits.weights, logits.branch_logits.softmax(2))
        torch.testing.assert_close(out.logits.exp(), expected)

    def test_mixed_probabilities_have_finite_gradients_at_distance_0(self, net, images):
        net.mix = "probabilities"
        distances = torch.tensor([[0.0, 1e9, 1e3]] * 7, requires_grad=True)
        net.distance = lambda a, b: distances
        net(images)[:, 0].sum().backward()
        assert distances.grad.isfinite().all()

    @pytest.mark.parametrize("mix", ["logits", "probabilities", "statistics"])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_a_single_domain_takes_one_pass(self, images, mix, dtype):
        options = {"mix": mix, "max_images": 4}
        net = bne.convert(randomise_norms(small_cnn()), ["all"], **options).to(dtype).eval()
        images, passes = images.to(dtype), []
        expected = net(images, details=True)
        net.model[0].register_forward_hook(lambda *_: passes.append(1))
        torch.testing.assert_close(net(images), expected.logits)  # of the same dtype, too
        assert len(passes) == len(images.split(4))
        assert expected.distances.isfinite().all()

    def test_dense_predictions_are_mixed_too(self, images):
        dense = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 1))
        net = randomise_norms(bne.convert(dense, DOMAINS)).eval()
        out = net(images, details=True)
        expected = torch.einsum("nk,nkchw->nchw", out.weights, out.branch_logits)
        torch.testing.assert_close(out.logits, expected)

    def test_a_domains_own_image_is_nearest_to_it(self, images):
        """Running statistics taken from one image put that image at distance 0."""
        net = bne.convert(small_cnn(), DOMAINS).eval()
        randomise_norms(net)
        point = net.embed(images[:1])
        for layer in (net.model[1], net.model[4]):
            piece = point.slices[layer.name]
            layer.running_mean[1], layer.running_var[1] = point.mean[0, piece], point.var[0, piece]
        out = net(images, details=True)
        assert out.distances[0, 1] < 1e-10
        torch.testing.assert_close(out.weights[0], torch.tensor([0.0, 1.0, 0.0]))
        torch.testing.assert_close(out.logits[0], out.branch_logits[0, 1])


class TestOptions:
    def test_named_layers_alone_place_an_image(self, images):
        net = randomise_norms(bne.convert(small_cnn(), DOMAINS, layers=["4"])).eval()
        all_layers = randomise_norms(bne.convert(small_cnn(), DOMAINS))
        all_layers.load_state_dict(net.state_dict())
        assert net.embed(images).layers == net.domain_embeddings().layers == ("4",)
        embedding = all_layers.eval().embed(images).select(["4"])
        expected = bne.wasserstein(embedding, all_layers.domain_embeddings())
        torch.testing.assert_close(net(images, details=True).distances, expected)

    def test_a_distance_of_ones_own(self, images):
        def to_the_first(a, b):
            return torch.tensor([1.0, 1e9, 1e9]).expand(len(a), len(b))

        net = randomise_norms(bne.convert(small_cnn(), DOMAINS, distance=to_the_first)).eval()
        out = net(images, details=True)
        torch.testing.assert_close(out.logits, out.branch_logits[:, 0])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"domains": []}, "one or more"),
            ({"domains": ["a", "b", "a"]}, "different names"),
            ({"domains": [0, 1]}, "names"),
            ({"layers": ["5"]}, r"\['5'\].*'1', '4'"),
            ({"distance": "euclid"}, "'euclid'"),
            ({"mix": "votes"}, "'logits', 'probabilities'"),
            ({"branch_statistics": "none"}, "'batch', 'population'"),
            ({"layers": []}, r"'1', '4'"),
            ({"momentum": "kept"}, "'keep'"),
            ({"max_images": 0}, "max_images must be at least 1"),
            ({"max_branches": -3}, "max_branches must be at least 1"),
            ({"max_images": 2.5}, "the whole number max_images must be at least 1, not 2.5"),
            ({"nearest": "8"}, "the whole number nearest must be at least 1, not '8'"),
            ({"domains": 3}, "names in an order, as a list has, not 3"),
            ({"domains": {"a", "b"}}, "names in an order"),  # another one in the next process
        ],
    )
    def test_wrong_options(self, options, message):
        with pytest.raises((ValueError, TypeError), match=message):
            bne.convert(small_cnn(), **{"domains": DOMAINS, **options})


class Pair(nn.Module):
    """A network with an auxiliary output."""

    def __init__(self):
        super().__init__()
        self.net = small_cnn()

    def forward(self, x):
        return self.net(x), self.net[0](x)


class Answer(nn.Module):
    """A network whose logits are in what it returns: an object, a dict, a tuple."""

    def __init__(self, kind):
        super().__init__()
        self.net, self.kind = small_cnn(), kind

    def forward(self, images):
        return self.kind(self.net(images))


class TestOutputsAndShortcuts:
    @pytest.mark.parametrize(
        ("kind", "output"),
        [
            (lambda logits: SimpleNamespace(logits=logits), "logits"),
            (lambda logits: {"logits": logits}, "logits"),
            (lambda logits: (0, logits), 1),
            (lambda logits: {"a": [logits]}, lambda answer: answer["a"][0]),
        ],
    )
    def test_logits_are_found_in_what_a_network_returns(self, images, ids, kind, output):
        model = randomise_norms(Answer(kind))
        net = bne.convert(model, DOMAINS, output=output, max_images=3).eval()
        plain = model.net.eval()(images)
        torch.testing.assert_close(net(images), plain)
        torch.testing.assert_close(net(images, ids, own_branch=True), plain)
        assert net.train()(images, ids).shape == plain.shape

    def test_layers_stay_as_they_are_without_shortcuts(self, images, ids):
        model = nn.Sequential(*small_cnn()[:3], nn.MaxPool2d(2), *small_cnn()[3:])
        quick = randomise_norms(bne.convert(model, DOMAINS))
        net = bne.convert(model, DOMAINS, shortcuts=False)
        net.load_state_dict(quick.state_dict())
        kinds = [type(layer) for layer in net.model if not isinstance(layer, bne.DomainBatchNorm)]
        assert kinds == [type(m) for m in model if not isinstance(m, nn.BatchNorm2d)]
        assert type(quick.model[0]) is not nn.Conv2d
        torch.testing.assert_close(net.eval()(images), quick.eval()(images))
        torch.testing.assert_close(net.train()(images, ids), quick.train()(images, ids))

    @pytest.mark.parametrize("mix", ["logits", "probabilities", "statistics"])
    @pytest.mark.parametrize(
        ("domains", "distance"), [(["all"], "wasserstein"), (DOMAINS, "uniform")]
    )
    def test_weights_that_are_always_the_same_need_no_instance_pass(
        self, images, mix, domains, distance
    ):
        net = bne.convert(small_cnn(), domains, distance=distance, mix=mix)
        net = randomise_norms(net).eval()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bne.DomainBatchNorm, "by_instance", None)
            logits = net(images)
            if mix == "statistics":  # where no branch is run
                net.nearest = 1
                assert torch.equal(net(images), logits)
                net.nearest = None
            trained = copy.deepcopy(net).train()(images, [0] * len(images))
        torch.testing.assert_close(logits, net(images, details=True).logits)
        details = net.train()(images, [0] * len(images), details=True)
        torch.testing.assert_close(trained, details.logits)

    def test_a_prediction_has_probabilities_and_the_nearest_domain(self, net, images):
        out = net(images, details=True)
        torch.testing.assert_close(out.probabilities, F.softmax(net(images), 1))
        assert out.nearest_domain == [net.domains[i] for i in out.weights.argmax(1)]

    def test_all_branches_can_be_had_whatever_is_run(self, net, images):
        expected = net(images, details=True).branch_logits
        net.nearest, net.max_images = 1, 3
        torch.testing.assert_close(net.branches(images), expected)


class TestBadInput:
    def test_training_needs_domains(self, net, images):
        for details in (False, True):
            with pytest.raises(ValueError, match="every image needs its domain"):
                net.train()(images, details=details)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda net, images, ids: net(images, ids), "own_branch=True"),
            (lambda net, images, ids: net(images, own_branch=True), "domains="),
            (lambda net, images, ids: net(images, ids, own_branch=True, details=True), "details"),
        ],
    )
    def test_calls_that_mean_nothing_are_refused(self, net, images, ids, call, message):
        with pytest.raises(ValueError, match=message):
            call(net.eval(), images, ids)

    @pytest.mark.parametrize(
        ("domains", "message"),
        [
            (torch.tensor([0, 1]), "7 images need as many"),
            (torch.tensor([0, 1, 2, 3, 0, 0, 0]), "0 … 2"),
            (torch.tensor([0, 1, 2, -1, 0, 0, 0]), "0 … 2"),
            (["art"] * 6 + ["music"], "'music'.*'photo'"),
            (torch.zeros(7), "whole numbers or names, not torch.float32"),
            ([0.5] * 7, "whole numbers"),
            (torch.zeros(7, dtype=torch.bool), "whole numbers"),
            ([], "7 images"),
            ([None] * 7, "whole numbers or names, not None"),
            (0, "one for every image, in a list, not 0"),
            ("art", "one for every image, in a list, not 'art'"),
        ],
    )
    def test_wrong_domains(self, net, images, domains, message):
        with pytest.raises((ValueError, TypeError), match=message):
            net(images, domains, own_branch=True)

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
    def test_domains_of_any_whole_numbers(self, net, images, ids, dtype):
        expected = net(images, ids, own_branch=True)
        torch.testing.assert_close(net(images, ids.to(dtype), own_branch=True), expected)
        torch.testing.assert_close(net(images, ids.tolist(), own_branch=True), expected)

    def test_a_named_layer_without_instance_variance(self):
        model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2), nn.BatchNorm1d(2))
        net = bne.convert(model, DOMAINS, layers=["0", "3"]).eval()
        with pytest.raises(ValueError, match=r"\['3'\] see one value per channel"):
            net.embed(torch.randn(2, 3, 4, 4))

    def test_unknown_branch(self, net):
        with pytest.raises(ValueError, match=r"'music'.*'art', 'cartoon', 'photo'"):
            net.to_plain("music")

    def test_auxiliary_outputs_cannot_be_mixed(self, images, ids):
        for options in ({}, {"mix": "statistics"}):
            with pytest.raises(TypeError, match=r"gave a tuple.*output="):
                bne.convert(Pair(), DOMAINS, **options).eval()(images)
        with pytest.raises(TypeError, match="gave a tuple"):
            bne.convert(Pair(), DOMAINS, max_images=3).eval()(images, ids, own_branch=True)

    def test_a_failed_pass_leaves_the_network_usable(self, net, images):
        expected = net(images)
        with pytest.raises(RuntimeError):
            net(torch.randn(2, 5, 16, 16))
        with pytest.raises(RuntimeError, match="DomainEnsemble"):
            net.model(images)  # the pass is over, whether it failed or not
        torch.testing.assert_close(net(images), expected)


class TestStateDicts:
    def test_a_plain_networks_state_loads(self, net, images):
        plain = randomise_norms(small_cnn(), seed=5).eval()
        net.load_state_dict(plain.state_dict())
        torch.testing.assert_close(net(images), plain(images))

    def test_a_plain_network_with_a_part_called_model(self, images):
        plain = nn.Sequential()
        plain.add_module("model", randomise_norms(small_cnn(), seed=5))
        net = bne.convert(plain, DOMAINS)
        net.load_state_dict(plain.state_dict())
        again = bne.convert(plain, DOMAINS)
        again.load_state_dict(net.state_dict())

    def test_an_assigned_plain_state_can_be_trained(self, images, ids):
        net = bne.convert(small_cnn(), DOMAINS)
        net.load_state_dict(small_cnn().state_dict(), assign=True)
        net.train()(images, ids, own_branch=True)
        assert not torch.equal(net.model[1].running_mean[0], net.model[1].running_mean[1])

    def test_its_own_state_loads(self, net, images):
        other = bne.convert(small_cnn(), DOMAINS).eval()
        other.load_state_dict(net.state_dict())
        torch.testing.assert_close(other(images), net(images), rtol=0, atol=0)

    def test_another_number_of_domains_is_refused(self, net):
        with pytest.raises(RuntimeError, match="size mismatch"):
            bne.convert(small_cnn(), ["a", "b"]).load_state_dict(net.state_dict())


class TestMachinery:
    @pytest.mark.parametrize("how", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
    def test_copies_are_equal_and_independent(self, net, images, ids, how):
        other = how(net)
        torch.testing.assert_close(other(images), net(images), rtol=0, atol=0)
        expected = net(images)
        other.train()(images, domains=ids)
        torch.testing.assert_close(net(images), expected, rtol=0, atol=0)

    def test_inference_mode(self, net, images):
        expected = net(images)
        with torch.inference_mode():
            torch.testing.assert_close(net(images), expected)

    def test_autocast_keeps_distances_in_float32(self, net, images):
        exact = net(images, details=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(images, details=True)
        assert out.branch_logits.dtype == torch.bfloat16
        for tensor in (out.embedding.mean, out.distances, out.weights):
            assert tensor.dtype == torch.float32
        torch.testing.assert_close(out.weights, exact.weights, rtol=0.05, atol=0.01)

    def test_channels_last_reaches_every_layer(self, net, images, ids):
        net = net.to(memory_format=torch.channels_last)
        seen = []
        for layer in (net.model[1], net.model[4]):
            layer.register_forward_hook(
                lambda m, i, o: seen.append(o.is_contiguous(memory_format=torch.channels_last))
            )
        images = images.to(memory_format=torch.channels_last)
        net(images)
        net.train()(images, ids, details=True)
        assert seen
        assert all(seen)

    @pytest.mark.parametrize("max_branches", [None, 2])
    def test_copies_of_images_are_channels_last_too(self, net, images, ids, max_branches):
        seen = []  # of images alone: weights that are channels-last would bring the layout back
        net.model.register_forward_pre_hook(lambda m, inputs: seen.append(inputs[0].stride()))
        net.max_branches = max_branches
        images = images.to(memory_format=torch.channels_last)
        net(images)
        net.train()(images, ids, details=True)
        assert set(seen) == {images.stride()}

    @pytest.mark.parametrize("training", [False, True])
    def test_each_images_own_branch_compiles_without_graph_breaks(self, net, images, ids, training):
        own_branch = lambda net: lambda *batch: net(*batch, own_branch=True)  # noqa: E731
        compare_compiled(net.train(training), own_branch, images, ids)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"mix": "statistics", "distance": "bhattacharyya", "layers": ["4"]},
            {"mix": "probabilities", "nearest": 2},
            {"max_images": 4, "max_branches": 1},
        ],
    )
    def test_predictions_compile_without_graph_breaks(self, images, options):
        net = randomise_norms(bne.convert(small_cnn(), DOMAINS, **options)).eval()
        compare_compiled(net, lambda net: lambda images: net(images), images)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"max_branches": 1, "momentum": None},
            {"max_branches": 2, "branch_statistics": "population"},
            {"nearest": 2, "weight_gradient": False},
        ],
    )
    def test_distance_training_compiles_without_graph_breaks(self, images, ids, options):
        net = randomise_norms(bne.convert(small_cnn(), DOMAINS, **options)).train()
        compare_compiled(net, lambda net: lambda *batch: net(*batch), images, ids)

    def test_compiled_for_any_batch_and_mode(self, net, images, ids):
        reference = copy.deepcopy(net)
        torch.compiler.reset()
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        for count in (7, 3, 5):
            torch.testing.assert_close(compiled(images[:count]), reference(images[:count]))
        net.train(), reference.train()
        for count in (6, 7):
            ours = compiled(images[:count], ids[:count], own_branch=True)
            torch.testing.assert_close(
                ours, reference(images[:count], ids[:count], own_branch=True)
            )
        net.eval(), reference.eval()
        torch.testing.assert_close(compiled(images), reference(images))

    def test_one_network_in_two_threads(self, net, images):
        """Each thread is in the middle of its own pass while the other one is too."""
        expected = net(images, details=True)
        meeting = threading.Barrier(2, timeout=30)

        def meet(module, inputs, output):
            meeting.wait()

        net.model[0].register_forward_hook(meet)
        results = {}

        def own_branch():
            for domain in ("art", "photo", "cartoon"):
                results[domain] = net(images, [domain] * len(images), own_branch=True)

        def mixture():
            results["mixture"] = net(images, details=True)
            meeting.wait()  # two passes there, three here

        threads = [threading.Thread(target=target) for target in (own_branch, mixture)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_same(results["mixture"], expected)
        for index, domain in enumerate(DOMAINS):
            torch.testing.assert_close(results[domain], expected.branch_logits[:, index])

    def test_one_network_inside_another(self, images):
        """Two ensembles in one process, one running within the other's pass."""
        inner = randomise_norms(bne.convert(small_cnn(), ["x", "y"])).eval()

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = small_cnn()
                self.extra = [inner]

            def forward(self, x):
                return self.net(x) + self.extra[0](x)

        outer = randomise_norms(bne.convert(Both(), DOMAINS)).eval()
        alone = copy.deepcopy(outer)
        alone.model.extra = [lambda x: 0]
        inner_alone = inner(images)
        torch.testing.assert_close(outer(images), alone(images) + inner_alone)


def test_a_layer_used_twice_has_one_point():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm2d(3)

        def forward(self, x):
            return self.bn(2 * self.bn(x) + 1).mean((2, 3))

    net, images = bne.convert(Twice(), DOMAINS).eval(), torch.randn(4, 3, 5, 5)
    point = net.embed(images)
    first = images.mean((2, 3)), images.var((2, 3), correction=0)
    second = torch.ones(4, 3), 4 * first[1] / (first[1] + 1e-5)
    torch.testing.assert_close(point.mean, (first[0] + second[0]) / 2)
    torch.testing.assert_close(point.var, (first[1] + second[1]) / 2)

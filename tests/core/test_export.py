"""Networks that leave PyTorch: exported for any number of images, saved, and read again."""

import io

import pytest
import torch

import bne
from tests.networks import DOMAINS, randomise_norms, small_cnn

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
ANY_NUMBER = {"images": {0: torch.export.Dim("n", min=1)}}
OPTIONS = [  # every way to mix and to measure
    {"mix": "logits", "distance": "wasserstein"},
    {"mix": "probabilities", "distance": "bhattacharyya"},
    {"mix": "statistics", "distance": "root-wasserstein"},
    {"distance": "uniform"},
    {"nearest": 2, "weight_gradient": False},
]


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def exported(request):
    """A network and its program, made once: tracing takes longer than anything else here."""
    net = randomise_norms(bne.convert(small_cnn(), DOMAINS, **request.param)).eval()
    return net, torch.export.export(net, (IMAGES,), dynamic_shapes=ANY_NUMBER)


def test_a_saved_program_answers_any_number_of_images(exported):
    (net, program), file = exported, io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    decomposed = loaded.run_decompositions()
    # ONNX has no word for it.
    assert not any("cdist" in str(node.target) for node in decomposed.graph.nodes)
    for count in (1, 7):
        images = IMAGES.repeat(2, 1, 1, 1)[:count] + count
        expected = net(images)
        for ours in loaded.module()(images), decomposed.module()(images):
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_onnx(exported, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    net, program = exported
    torch.onnx.export(program, dynamo=True).save(tmp_path / "net.onnx")
    session = runtime.InferenceSession(tmp_path / "net.onnx")
    for count in (1, 3):
        (ours,) = session.run(None, {session.get_inputs()[0].name: IMAGES[:count].numpy()})
        torch.testing.assert_close(torch.from_numpy(ours), net(IMAGES[:count]).detach())

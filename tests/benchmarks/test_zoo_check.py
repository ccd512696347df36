"""Conversion on small networks of every structure that the two zoos have.

`make zoo` checks all networks and lists the result in docs/zoo.md.
"""

import importlib

import pytest

import bne

STRUCTURES = {
    "plain layers": "torchvision/mobilenet_v2 torchvision/regnet_y_400mf torchvision/resnet50 "
    "torchvision/shufflenet_v2_x0_5 timm/dla46x_c timm/fasternet_t0 timm/hgnetv2_b0",
    "norms before convolutions": "torchvision/densenet121 timm/resnetv2_18",
    "momentum of 3e-4": "torchvision/mnasnet0_5",
    "stochastic depth": "torchvision/efficientnet_b0",
    "other outputs in training": "torchvision/googlenet",
    "activations within the layers": "timm/cs3darknet_focus_s timm/mobilenetv3_small_050",
    "layers with and without": "timm/ghostnet_050 timm/lambda_resnet26t timm/repghostnet_050",
    "branches to be merged": "timm/fastvit_t8 timm/repvit_m1",
    "one-dimensional layers": "timm/efficientvit_m0 timm/iformer_t timm/nextvit_small "
    "timm/shvit_s1",
    "maps of one position": "timm/resnest14d timm/rexnet_100 timm/skresnet18",
    "layer norms beside": "timm/inception_next_atto timm/mobilevit_xxs timm/swiftformer_xs "
    "timm/tiny_vit_5m_224 timm/xcit_nano_12_p8_224",
}


@pytest.fixture(scope="session")
def zoo_check(_scripts):
    return importlib.import_module("zoo_check")


@pytest.mark.parametrize("name", " ".join(STRUCTURES.values()).split())
@pytest.mark.filterwarnings("ignore")
def test_conversion_keeps_its_promises(name, zoo_check):
    library, own = name.split("/")
    pytest.importorskip(library)
    if library == "timm" and not importlib.import_module("timm").is_model(own):
        pytest.skip("this timm has no such network")
    assert zoo_check.check(name, domains=True)["layers"] > 0


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_layer_is_noticed_behind_others_that_damp_it(monkeypatch, zoo_check):
    right = bne.DomainBatchNorm.by_domain

    def wrong(layer, *args, **kwargs):
        normalised = right(layer, *args, **kwargs)
        return normalised if layer.training or layer.name != "bn1" else 1.01 * normalised

    monkeypatch.setattr(bne.DomainBatchNorm, "by_domain", wrong)
    with pytest.raises(zoo_check.MismatchError, match="output of bn1"):
        zoo_check.check("timm/mobilenetv4_hybrid_medium")

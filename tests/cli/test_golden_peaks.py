# SPDX-License-Identifier: Apache-2.0
"""Base peaks of graphs that others published or measured."""

import pytest

PEAKS = {
    # Published with the graphs.
    "nodelink/resnet50_b256_v100.json": 38059356160,
    "nodelink/G1.json": 46319,
    "nodelink/G3.json": 284439,
    # Steps as eager PyTorch runs them on an H200: real kernels, workspace, in-place.
    "h200/resnet50.json": 5510290944,
    "h200/vgg16.json": 5329561600,
    "h200/densenet121.json": 4173050880,
    # Steps captured over fake tensors.
    "captured/resnet50.json": 5519150412,
    "captured/densenet201.json": 3259317228,
    "captured/gpt2.json": 6840740868,
}

# The peak of plain training (Kusumoto et al., NeurIPS 2019), where backward reads what is listed, and
# where it reads what is retained.
LOWER_SET_PEAKS = {
    "pfnet/cg_vgg19.txt": (2132279296, 2132279296),
    "pfnet/cg_unet.txt": (7803387904, 7184859136),
    "pfnet/cg_resnet50.txt": (3468165120, 2569011200),
}


def base_peak(reprise, *words):
    run = reprise("plan", *words, "--solver", "store-all", "--budget", "100%", "--json")
    answer = run.json()
    assert (run.code, answer["status"]) == (0, "optimal")
    assert answer["peak_bytes"] == answer["base_peak_bytes"]
    return answer["base_peak_bytes"]


@pytest.mark.parametrize("name", PEAKS)
def test_base_peak(reprise, shared, name):
    assert base_peak(reprise, shared / name) == PEAKS[name]


@pytest.mark.parametrize("name", LOWER_SET_PEAKS)
def test_base_peak_of_lower_set_text(reprise, shared, name):
    listed, retained = LOWER_SET_PEAKS[name]
    assert base_peak(reprise, shared / name) == listed
    assert base_peak(reprise, shared / name, "--reads", "listed") == listed
    assert base_peak(reprise, shared / name, "--reads", "retained") == retained


@pytest.mark.parametrize("name", [*PEAKS, *LOWER_SET_PEAKS])
def test_the_peak_survives_conversion(reprise, shared, name):
    assert reprise("convert", shared / name, "-o", "graph.json").code == 0
    expected = PEAKS[name] if name in PEAKS else LOWER_SET_PEAKS[name][0]
    assert base_peak(reprise, "graph.json") == expected

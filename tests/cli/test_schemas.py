# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas in docs/ and the program agree on what is a graph and what is a plan."""

import json

import pytest
from jsonschema import Draft202012Validator

from running import ROOT

BAD = ROOT / "tests/data/bad"

# Defects that a schema can't see: references, uniqueness, order, sums, keys and digits that a JSON
# parser drops.
BEYOND = {
    "graph": {
        "bytes_just_fractional", "bytes_total_overflow", "cost_total_overflow", "cycle",
        "duplicate_key", "duplicate_key_in_op", "gradient_of_itself", "gradient_of_later",
        "gradient_of_unknown", "lone_surrogate", "makes_resident", "no_producer",
        "not_topological", "op_name_taken", "overwrites_no_input", "overwrites_no_output",
        "overwrites_one_input_twice", "overwrites_other_size", "overwrites_resident",
        "overwrites_unknown_input", "overwrites_unknown_output", "reads_itself",
        "two_producers", "unknown_input", "unknown_output", "value_name_taken",
    },
    "plan": {
        "computes_a_value", "duplicate_key", "fingerprint_of_another_graph", "unknown_op",
        "unknown_value",
    },
}  # fmt: skip


def validator(kind):
    schema = json.loads((ROOT / f"docs/schemas/{kind}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def bad_files(kind):
    """The files of tests/data/bad that are JSON at all."""
    files = {}
    for path in sorted((BAD / kind).iterdir()):
        try:
            files[path.stem] = json.loads(path.read_text(), parse_constant=refuse)
        except ValueError:  # of encoding or syntax
            pass
    return files


def refuse(constant):
    raise ValueError(constant)


@pytest.mark.parametrize("kind", ["graph", "plan"])
def test_the_schema_refuses_what_the_program_refuses(kind):
    check = validator(kind)
    accepted = {name for name, content in bad_files(kind).items() if check.is_valid(content)}
    assert accepted == BEYOND[kind]


def test_the_schema_takes_what_convert_writes(reprise, net, tmp_path):
    graph = json.loads((tmp_path / net).read_text())
    graph["ops"][0].update(kind="Linear", workspace=3, recomputable=False)
    graph["ops"][4]["gradient_of"] = "f3"
    graph["ops"][5]["overwrites"] = {"ga": "gb"}
    (tmp_path / net).write_text(json.dumps(graph))
    assert reprise("convert", net, "-o", "written.json").code == 0
    written = json.loads((tmp_path / "written.json").read_text())
    validator("graph").validate(written)
    assert written == graph


@pytest.mark.parametrize(
    "name", ["nodelink/G1.json", "pfnet/cg_vgg19.txt", "h200/vgg16.json", "captured/gpt2.json"]
)
def test_the_schema_takes_every_format_once_converted(reprise, shared, tmp_path, name):
    assert reprise("convert", shared / name, "-o", "written.json").code == 0
    validator("graph").validate(json.loads((tmp_path / "written.json").read_text()))


@pytest.mark.parametrize("budget", ["100%", "30", "min"])
def test_the_schema_takes_what_plan_writes(reprise, net, tmp_path, budget):
    assert reprise("plan", net, "--budget", budget, "-o", "plan.json").code == 0
    validator("plan").validate(json.loads((tmp_path / "plan.json").read_text()))


def test_the_schema_takes_plans_by_hand_and_empty_graphs(thrifty, tmp_path):
    validator("plan").validate(json.loads((tmp_path / thrifty).read_text()))
    validator("plan").validate({"format": "reprise-plan", "version": 1, "steps": []})
    validator("graph").validate({"format": "reprise-graph", "version": 1, "values": [], "ops": []})

# SPDX-License-Identifier: Apache-2.0
"""Graphs and plans that tests are made of."""


def net_graph():
    """Three layers and their backward pass.

    Plain: the loss has a + b + c + gc = 40 B, and so has b3 with a + b + gc + gb; the cost is 34.
    No plan is below 30 B: b3 alone needs b + gc + gb.
    """
    sizes = {"a": 10, "b": 10, "c": 10, "gc": 10, "gb": 10, "ga": 10}
    ops = [
        ("f1", "forward", 3, ["x"], "a"),
        ("f2", "forward", 4, ["a"], "b"),
        ("f3", "forward", 5, ["b"], "c"),
        ("loss", "loss", 1, ["c"], "gc"),
        ("b3", "backward", 6, ["b", "gc"], "gb"),
        ("b2", "backward", 7, ["a", "gb"], "ga"),
        ("b1", "backward", 8, ["x", "ga"], "gw"),
    ]
    return {
        "format": "reprise-graph",
        "version": 1,
        "name": "net",
        "cost_unit": "ns",
        "values": [
            {"name": "x", "bytes": 5, "resident": True},
            *({"name": name, "bytes": size} for name, size in sizes.items()),
            {"name": "gw", "bytes": 5, "keep": True},
        ],
        "ops": [
            {"name": name, "phase": phase, "cost": cost, "inputs": inputs, "outputs": [output]}
            for name, phase, cost, inputs, output in ops
        ],
    }


def thrifty_steps():
    """A plan for net_graph() that computes a twice: peak 30 B, cost 34 + 3 = 37."""
    return [
        ["compute", "f1"],
        ["compute", "f2"],
        ["free", "a"],
        ["compute", "f3"],
        ["compute", "loss"],
        ["free", "c"],
        ["compute", "b3"],
        ["free", "b"],
        ["free", "gc"],
        ["compute", "f1"],
        ["compute", "b2"],
        ["free", "a"],
        ["free", "gb"],
        ["compute", "b1"],
        ["free", "ga"],
    ]


def plan_of(steps, **claims):
    return {"format": "reprise-plan", "version": 1, **claims, "steps": steps}


def write_long_chain(path, layers, block=10):
    """A chain of `layers` forward ops, its loss and its backward pass: 2 · layers + 1 ops.

    The last op of each block also reads the block's first value, so that only blocks are parted by
    articulation points.
    """
    with open(path, "w") as file:
        file.write('{"format": "reprise-graph", "version": 1, "name": "chain", "values": [\n')
        file.write('{"name": "x", "bytes": 8, "resident": true},\n')
        for i in range(layers):
            file.write(f'{{"name": "v{i}", "bytes": 8}}, {{"name": "g{i}", "bytes": 8}},\n')
        file.write('{"name": "dw", "bytes": 8, "keep": true}],\n"ops": [\n')
        for i in range(layers):
            inputs = f'"v{i - 1}"' if i else '"x"'
            if i % block == block - 1:
                inputs += f', "v{i - block + 1}"'
            file.write(
                f'{{"name": "f{i}", "phase": "forward", "cost": 1, '
                f'"inputs": [{inputs}], "outputs": ["v{i}"]}},\n'
            )
        last = layers - 1
        file.write(
            f'{{"name": "loss", "phase": "loss", "cost": 1, '
            f'"inputs": ["v{last}"], "outputs": ["g{last}"]}}'
        )
        for i in range(last, -1, -1):
            read, made = (f"v{i - 1}", f"g{i - 1}") if i else ("x", "dw")
            file.write(
                f',\n{{"name": "b{i}", "phase": "backward", "cost": 1, '
                f'"inputs": ["{read}", "g{i}"], "outputs": ["{made}"]}}'
            )
        file.write("]}\n")

#!/usr/bin/env python3
"""Writes a transformer's forward pass as a graph, to plan at scale.

    benchmarks/transformer.py 48 16 forward.json
    reprise convert forward.json --training -o transformer.json

Its attention is written out head by head, with dropout masks that may not be drawn again: 6 forward
ops a head, 10 more a layer, and a training step has twice as many.
"""

import json
import sys

BATCH, TOKENS, WIDTH, WORDS = 8, 1024, 1024, 4000
ROWS = BATCH * TOKENS
FLOPS_OF_ELEMENT = 600  # that a GPU could do while it reads and writes one


class Transformer:
    def __init__(self, layers, heads):
        self.values = [{"name": "tokens", "bytes": 8 * ROWS, "resident": True}]
        self.ops = []
        x = self.pointwise("embedding", ["tokens"], WIDTH)
        for layer in range(layers):
            x = self.mlp(f"layer{layer}.mlp.", self.attention(f"layer{layer}.attention.", x, heads))
        self.matmul("words", [x], ROWS, WIDTH, WORDS)

    def op(self, name, inputs, elements, megaflops, **more):
        self.values.append({"name": name, "bytes": 2 * elements})
        self.ops.append({"name": name, "cost": megaflops, "inputs": inputs, "outputs": [name], **more})
        return name

    def pointwise(self, name, inputs, width, **more):
        return self.op(name, inputs, ROWS * width, ROWS * width * FLOPS_OF_ELEMENT // 10**6, **more)

    def matmul(self, name, inputs, rows, inner, width):
        return self.op(name, inputs, rows * width, 2 * rows * inner * width // 10**6)

    def attention(self, at, x, heads):
        of_head = WIDTH // heads
        normed = self.pointwise(at + "norm", [x], WIDTH)
        qkv = self.matmul(at + "qkv", [normed], ROWS, WIDTH, 3 * WIDTH)
        contexts = []
        for head in range(heads):
            of = f"{at}head{head}."
            split = self.pointwise(of + "split", [qkv], 3 * of_head)
            scores = self.matmul(of + "scores", [split], ROWS, of_head, TOKENS)
            weights = self.pointwise(of + "softmax", [scores], TOKENS)
            mask = self.pointwise(of + "mask", [split], TOKENS // 16, recomputable=False)
            dropped = self.pointwise(of + "dropout", [weights, mask], TOKENS)
            contexts.append(self.matmul(of + "context", [dropped, split], ROWS, TOKENS, of_head))
        context = self.pointwise(at + "concat", contexts, WIDTH)
        projected = self.matmul(at + "projection", [context], ROWS, WIDTH, WIDTH)
        return self.pointwise(at + "add", [x, projected], WIDTH)

    def mlp(self, at, x):
        normed = self.pointwise(at + "norm", [x], WIDTH)
        up = self.matmul(at + "up", [normed], ROWS, WIDTH, 4 * WIDTH)
        active = self.pointwise(at + "gelu", [up], 4 * WIDTH)
        down = self.matmul(at + "down", [active], ROWS, 4 * WIDTH, WIDTH)
        return self.pointwise(at + "add", [x, down], WIDTH)


def write_transformer(path, layers, heads):
    made = Transformer(layers, heads)
    graph = {"format": "reprise-graph", "version": 1, "name": f"transformer, {layers} layers", "cost_unit": "units"}
    with open(path, "w") as file:
        json.dump({**graph, "values": made.values, "ops": made.ops}, file)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: transformer.py LAYERS HEADS FILE")
    write_transformer(sys.argv[3], int(sys.argv[1]), int(sys.argv[2]))

"""What `make demo` shows: a program that JAX made is read, shown, checked and run; then one is built by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hlokit as hk

DATA = Path(__file__).parent / "data"


def main() -> None:
    print("1. Read: layernorm with its gradient, the HLO that JAX 0.10.2 made of it")
    module = hk.load(DATA / "layernorm_grad.hlo.txt")
    entry = module.entry
    print(f"   {module.name}: {len(module.all_computations)} computations, {len(entry)} instructions in the entry")

    print("2. Show: the first lines of it, as XLA prints them")
    for line in str(module).splitlines()[:12]:
        print(f"   {line[:110]}")

    print("3. Check: every rule of the language")
    hk.verify(module)
    print("   no finding")

    print("4. Run it on the reference interpreter and compare with what XLA:CPU gave")
    recorded = np.load(DATA / "layernorm_grad.npz")
    arguments = [recorded[f"in{i}"] for i in range(len(entry.parameters))]
    for i, got in enumerate(hk.evaluate(module, *arguments)):
        want = recorded[f"out{i}"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        print(f"   output {i}: f32{list(want.shape)}, largest difference {np.abs(got - want).max():.1e}")

    print("5. Build: softmax over the last dimension")
    b = hk.Builder("softmax")
    x = b.parameter(0, hk.f32[2, 4], "x")
    largest = hk.reduce(x, b.constant(-np.inf, hk.f32), hk.max, [1])
    e = hk.exp(hk.sub(x, largest, [0]))
    softmax = b.build(hk.div(e, hk.reduce(e, b.constant(0.0), hk.add, [1]), [0]))
    print("\n".join(f"   {line}" for line in softmax.to_text("short_parsable").strip().splitlines()))
    values = np.float32([[1, 2, 3, 4], [0, 0, 0, 0]])
    result = hk.evaluate(softmax, values)
    print(f"   softmax({values.tolist()}) =\n{np.array2string(result, prefix='   ', precision=4)}")
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)

    print("6. A wrong program is refused, with the rule, the values and your line")
    try:
        hk.add(b2 := hk.Builder("wrong").parameter(0, hk.f32[2, 3]), b2.builder.parameter(1, hk.f32[3]))
    except hk.ShapeError as error:
        print(f"   {error}")


if __name__ == "__main__":
    main()

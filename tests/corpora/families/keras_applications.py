"""The architectures of keras.applications with random weights, on Keras's JAX backend: forward, and gradient."""

# pyright: basic

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tests.corpora.making import Made, of_jax

MODELS = (
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large", "ResNet50", "ResNet50V2", "VGG16", "VGG19",
    "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "ConvNeXtTiny", "NASNetMobile", "InceptionV3", "Xception",
    "EfficientNetB1", "EfficientNetV2B1", "EfficientNetV2B2", "EfficientNetB2", "ResNet101", "ResNet101V2",
    "DenseNet169", "DenseNet201", "ConvNeXtSmall", "EfficientNetB3", "EfficientNetV2B3", "EfficientNetV2S",
    "InceptionResNetV2", "ResNet152", "ResNet152V2", "EfficientNetB4", "ConvNeXtBase", "EfficientNetB5",
    "EfficientNetV2M", "EfficientNetB6", "NASNetLarge", "ConvNeXtLarge", "EfficientNetB7", "EfficientNetV2L",
    "ConvNeXtXLarge",
)  # fmt: skip
"""All, in the order in which they run: small ones first."""
_LEAST = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}
"""Image sizes of those that refuse 32."""
_CLASSES = 10

NAMES = (*MODELS, *(f"{model} gradient" for model in MODELS))


def packages(name: str) -> tuple[str, ...]:
    return ("keras", "jax")


def make(name: str) -> Made:
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras

    keras.utils.set_random_seed(0)
    architecture, _, gradient = name.partition(" ")
    size = _LEAST.get(architecture, 32)
    model: Any = getattr(keras.applications, architecture)(
        weights=None, input_shape=(size, size, 3), classes=_CLASSES
    )  # fmt: skip
    trained = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    source = np.random.default_rng(0)
    images = source.normal(0, 1, (2, size, size, 3)).astype(np.float32)

    def forward(trained: Any, others: Any, images: Any) -> Any:
        return model.stateless_call(trained, others, images, training=False)[0]

    if not gradient:
        return of_jax(forward, trained, others, images)
    labels = np.eye(_CLASSES, dtype=np.float32)[[1, 4]]

    def loss(trained: Any, others: Any, images: Any, labels: Any) -> Any:
        return keras.losses.categorical_crossentropy(labels, forward(trained, others, images)).mean()

    return of_jax(jax.value_and_grad(loss), trained, others, images, labels)

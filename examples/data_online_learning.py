"""The online-learning loop: events in, features from keyed state, a model trained as they come, and served live.

python examples/data_online_learning.py

Users click on items or not. Features come from a user's own past; the label is the click. A logistic regression learns
from every batch, and each published version goes to a deployment that answers all the while.
"""

import math
import random

from weft import data, serve

FEATURES = 3


def clicks(count=20_000):
    """(user, whether the item is new, whether it was clicked): clicking is a habit, and new items are liked."""
    chosen = random.Random(1)
    for _ in range(count):
        user = chosen.randrange(200)
        is_new = chosen.random() < 0.5
        likes = user % 2 == 0
        yield user, is_new, chosen.random() < 0.1 + 0.5 * likes + 0.3 * is_new


def features(user, event, state):
    """What is known of the user before this event, and the label."""
    _, is_new, clicked = event
    seen, liked = state.get("seen", 0), state.get("liked", 0)
    state["seen"], state["liked"] = seen + 1, liked + clicked
    yield [1.0, float(is_new), (liked + 1) / (seen + 2)], float(clicked)


class LogisticRegression:
    """Small enough to be read: gradient steps on the log loss."""

    def __init__(self, rate=0.5):
        self.rate = rate
        self.weights = [0.0] * FEATURES

    def update(self, events):
        gradient, loss = [0.0] * FEATURES, 0.0
        for inputs, label in events:
            likely = predict(self.weights, inputs)
            loss -= math.log(likely if label else 1 - likely)
            for number, value in enumerate(inputs):
                gradient[number] += (likely - label) * value
        self.weights = [w - self.rate * g / len(events) for w, g in zip(self.weights, gradient, strict=True)]
        return {"loss": loss / len(events)}

    def state(self):
        return list(self.weights)

    def load(self, state):
        self.weights = list(state)


def predict(weights, inputs):
    return 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, inputs, strict=True))))


@serve.deployment
class ClickModel:
    """Serves the newest version; a new one does not restart it."""

    def __init__(self):
        self.version, self.weights = 0, [0.0] * FEATURES

    def reconfigure(self, config):
        self.version, self.weights = config["version"], config["weights"]

    def __call__(self, inputs):
        return self.version, predict(self.weights, inputs)


def publish(version):
    serve.run(ClickModel.options(user_config={"version": version.number, "weights": version.state}).bind())


def main(count=20_000):
    handle = serve.run(ClickModel.bind())
    stream = data.stream_from(lambda: clicks(count)).key_by(lambda event: event[0]).process(features)
    with stream.train(LogisticRegression(), batch_size=100, publish_every=20, publish=publish) as training:
        training.wait()
        last = training.latest
    print(f"{last.events} events, {last.updates} updates, loss {last.metrics['loss']:.3f}")
    version, fan = handle.remote([1.0, 1.0, 0.7]).result()
    _, other = handle.remote([1.0, 0.0, 0.2]).result()
    print(f"version {version} of {last.number}: a fan clicks on a new item with {fan:.2f}, another with {other:.2f}")
    serve.shutdown()
    return last, version, fan, other


if __name__ == "__main__":
    main()

# needs: distilabel
"""A pipeline whose steps are actors."""

from distilabel.pipeline import Pipeline
from distilabel.steps import LoadDataFromDicts, StepInput, step


@step(inputs=["text"], outputs=["length"])
def Length(inputs: StepInput):
    yield [{**row, "length": len(row["text"])} for row in inputs]


with Pipeline(name="lengths").ray() as pipeline:
    load = LoadDataFromDicts(data=[{"text": "a" * number} for number in range(6)], batch_size=2)
    load >> Length(name="length", input_batch_size=2)

if __name__ == "__main__":
    rows = pipeline.run(use_cache=False)["default"]["train"]
    assert sorted(row["length"] for row in rows) == list(range(6))

"""A runner for tests of writers: they decide on its bundles, and every bundle may be run twice."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def run_bundles() -> Callable[..., dict[str, list[Any]]]:
    """(pipeline, bundles -> PCollections by name; bundles, seed=, repeated=) -> their elements, and those of all steps.

    The input is in these bundles. Each other element is in one of its own, and groups are in random order. If
    `repeated`, each bundle is run twice, and the elements of the first run are lost.
    """
    import apache_beam as beam
    from apache_beam.pipeline import PipelineVisitor
    from apache_beam.pvalue import AsSingleton
    from apache_beam.runners.runner import PipelineRunner
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import GlobalWindows
    from apache_beam.utils.windowed_value import WindowedValue

    class Bundles(beam.PTransform):
        def __init__(self, bundles: list[list[Any]]):
            super().__init__()
            self.bundles = bundles

        def expand(self, pbegin: Any) -> Any:
            return beam.PCollection(pbegin.pipeline, is_bounded=True)

        def get_windowing(self, inputs: Any) -> Any:
            return Windowing(GlobalWindows())

    class Visitor(PipelineVisitor):
        def __init__(self, seed: int, repeated: bool):
            self._shuffle, self._repeated = random.Random(seed), repeated
            self.bundles: dict[Any, list[list[Any]]] = {}
            self.steps: dict[str, list[Any]] = {}

        def visit_transform(self, transform_node: Any) -> None:
            transform = transform_node.transform
            inputs = [self.bundles.get(each, []) for each in transform_node.main_inputs.values()]
            if isinstance(transform, Bundles):
                found = transform.bundles
            elif isinstance(transform, beam.Impulse):
                found = [[b""]]
            elif isinstance(transform, beam.Flatten):
                found = [bundle for bundles in inputs for bundle in bundles]
            elif isinstance(transform, beam.GroupByKey):
                groups: dict[Any, list[Any]] = {}
                elements = [element for bundle in inputs[0] for element in bundle]
                for key, value in self._shuffle.sample(elements, len(elements)):
                    groups.setdefault(key, []).append(value)
                found = [[group] for group in groups.items()]
            else:
                side = iter([self._value(each) for each in transform.side_inputs])
                given = [
                    next(side) if type(each).__name__ == "ArgumentPlaceholder" else each for each in transform.args
                ]
                found = [self._run(transform.fn, bundle, given) for bundle in inputs[0]]
            self.bundles[transform_node.outputs[None]] = found
            self.steps[transform_node.full_label] = [element for bundle in found for element in bundle]

        def _value(self, view: Any) -> Any:
            elements = [element for bundle in self.bundles[view.pvalue] for element in bundle]
            if not isinstance(view, AsSingleton):
                return elements
            return elements[0] if elements else view.default_value

        def _run(self, fn: Any, bundle: list[Any], given: list[Any]) -> list[Any]:
            found: list[Any] = []
            for _ in range(1 + self._repeated):
                own = copy.copy(fn)
                own.setup()
                own.start_bundle()
                found = [made for element in bundle for made in own.process(element, *given) or ()]
                found += own.finish_bundle() or ()
            return [made.value if isinstance(made, WindowedValue) else made for made in found]

    def run(
        build: Callable[[Any, Any], dict[str, Any]], bundles: list[list[Any]], seed: int = 0, repeated: bool = False
    ) -> dict[str, list[Any]]:
        pipeline, visitor = beam.Pipeline(runner=PipelineRunner()), Visitor(seed, repeated)
        wanted = build(pipeline, pipeline | "Batches" >> Bundles(bundles))
        pipeline.visit(visitor)
        elements = {name: visitor.bundles[collection] for name, collection in wanted.items()}
        return visitor.steps | {name: [each for bundle in found for each in bundle] for name, found in elements.items()}

    return run

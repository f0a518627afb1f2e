"""The same parameters as the sweep has by itself."""

from maestrowf.datastructures.core import ParameterGenerator


def get_custom_generator(env, **kwargs):
    generator = ParameterGenerator()
    generator.add_parameter("TRIAL", list(range(1, 10)), "TRIAL.%%")
    generator.add_parameter("SIZE", [size for size in (10, 20, 30) for _ in range(3)], "SIZE.%%")
    generator.add_parameter("ITERATIONS", [10, 20, 30] * 3, "ITER.%%")
    return generator

"""A product of values; its key ITER is not the one that the sweep asks for."""

from itertools import product

from maestrowf.datastructures.core import ParameterGenerator


def get_custom_generator(env, **kwargs):
    sizes, iterations = (10, 20, 30), (10, 20, 30)
    columns = {"SIZE": [], "ITER": [], "TRIAL": []}
    for trial, (size, count) in enumerate(product(sizes, iterations)):
        columns["SIZE"].append(size)
        columns["ITER"].append(count)
        columns["TRIAL"].append(trial)
    generator = ParameterGenerator()
    for key, values in columns.items():
        generator.add_parameter(key, values, f"{key}.%%")
    return generator

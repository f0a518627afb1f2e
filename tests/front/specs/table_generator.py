"""One combination for each row of a table: CSV names it, ROWS bounds it."""

import csv

from maestrowf.datastructures.core import ParameterGenerator


def get_custom_generator(env, **kwargs):
    generator = ParameterGenerator()
    with open(kwargs["CSV"]) as file:
        rows = list(csv.DictReader(file))[: int(kwargs.get("ROWS", "1000"))]
    for name in rows[0]:
        generator.add_parameter(name.upper(), [row[name] for row in rows], f"{name.upper()}.%%")
    return generator

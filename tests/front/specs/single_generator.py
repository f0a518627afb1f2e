"""One value of one parameter that no step uses by that name."""

from maestrowf.datastructures.core import ParameterGenerator


def get_custom_generator(env, **kwargs):
    assert env.find("SOURCE").value.startswith("https:")
    assert kwargs["SPECROOT"].value
    generator = ParameterGenerator()
    generator.add_parameter("COUNT", [1], name="count")
    return generator

"""The project's own recipes name what there is."""

import tomllib

import pytest

from netsim.errors import ScenarioError
from scenarios.fit_model import RECIPES, main, recipe
from scenarios.fit_parameters import component_file, scaled


@pytest.mark.parametrize("name", list(tomllib.loads(RECIPES.read_text(encoding="utf-8"))))
def test_recipes_name_numbers_that_files_have(repository, name):
    found = recipe(name, [repository / "tests" / "data" / "tables"])
    for parameter in found.parameters:
        source = component_file(parameter.file)
        text = source.read_text(encoding="utf-8")
        for key in parameter.keys:
            text = scaled(text, key, 1.5, str(source))
        assert text != source.read_text(encoding="utf-8")
    assert bool(found.series) == (name == "hopper")


def test_an_unknown_recipe_is_named(repository):
    with pytest.raises(ScenarioError, match="describes no fit 'kepler'; accepted are hopper, blackwell, ampere"):
        recipe("kepler", [])
    with pytest.raises(ScenarioError, match="give a name of fits.toml and folders"):
        main(["hopper"])

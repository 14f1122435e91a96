"""Parameters of components come back from times that the simulator made with them."""

import math
from dataclasses import replace

import pytest

from netsim.errors import ScenarioError
from scenarios.fit_model import Parameter, component_file, fit, recipe, scaled
from scenarios.hardware import set_up
from scenarios.tables import read_index
from scenarios.validate import predicted

TABLE = "h200x2_nv18_all_reduce_graph_Ring_LL.csv"


@pytest.fixture
def table(repository):
    """A table of two H200, all-reduces by ring and LL."""
    return next(entry for entry in read_index(repository / "tests" / "data" / "tables") if entry.path.name == TABLE)


def made_with(entry, folder, **factors):
    """Return the entry of a table as it would be if numbers of the kernels' costs were other ones."""
    text = component_file("hopper").read_text(encoding="utf-8")
    for key, factor in factors.items():
        text = scaled(text, key.replace("__", "."), factor)
    costs = folder / "true.toml"
    costs.write_text(text, encoding="utf-8")
    found = set_up(entry)
    rows = predicted(entry, replace(found, options=replace(found.options, kernel_costs=str(costs))), {})
    lines = [f"{measured.size_bytes},{row.time_us!r}" for measured, row in rows]
    path = folder / "table.csv"
    path.write_text("\n".join(["size_bytes,time_us", *lines]) + "\n", encoding="utf-8")
    return replace(entry, path=path)


def test_a_parameter_comes_back(table, tmp_path):
    entry = made_with(table, tmp_path, ll__start=1.25)
    (found,) = fit([Parameter("hopper", ("ll.start",), width=5.0)], [entry], tmp_path)
    assert found.factor == pytest.approx(1.25, rel=0.005)
    assert found.interval[0] < 1.25 < found.interval[1]
    assert found.held < 0.1
    best = (tmp_path / "best" / "hopper.toml").read_text(encoding="utf-8")
    assert f'start = "{4.14 * found.factor:.6g} us"' in best


def test_what_tables_do_not_show_stays_where_it_was(table, tmp_path):
    entry = made_with(table, tmp_path, ll__start=1.25)
    parameters = [Parameter("hopper", ("ll.start",), width=5.0), Parameter("hopper", ("simple.start",), width=0.2)]
    start, unseen = fit(parameters, [entry], tmp_path)
    assert start.factor == pytest.approx(1.25, rel=0.01)
    assert unseen.factor == pytest.approx(1.0, rel=1e-6)
    assert unseen.held == pytest.approx(1.0)
    assert unseen.interval == pytest.approx((math.exp(-0.4), math.exp(0.4)))


def test_a_link_is_fitted_likewise(table, tmp_path):
    (found,) = fit([Parameter("nvlink4", ("latency_ll",))], [table], tmp_path, rounds=1)
    assert 0.5 < found.factor < 2


def test_an_unknown_component_is_named():
    with pytest.raises(ScenarioError, match="'kepler' is neither a generation of GPU nor a link profile"):
        component_file("kepler")


def test_a_key_that_is_no_number_is_named():
    with pytest.raises(ScenarioError, match="hopper.toml: has no ll.speed"):
        scaled('[ll]\nstart = "4 us"\n', "ll.speed", 2, "hopper.toml")
    with pytest.raises(ScenarioError, match="name is 'x', which is no number"):
        scaled('name = "x"\n', "name", 2)


def test_only_the_number_asked_for_changes():
    text = 'start = "1 us"\n[ll]\nstart = "4 us"  # 3 to 5\nstarted = 1\n[simple]\nstart = "9 us"\nint8 = 0.5 # part\n'
    assert scaled(text, "ll.start", 0.5) == text.replace('"4 us"', '"2 us"')
    assert scaled(text, "simple.int8", 1.5) == text.replace("0.5", "0.75")
    assert scaled(text, "start", 3) == text.replace('"1 us"', '"3 us"')


@pytest.mark.parametrize("name", ["hopper", "blackwell", "ampere"])
def test_recipes_name_numbers_that_files_have(repository, name):
    parameters, entries = recipe(name, [repository / "tests" / "data" / "tables"])
    for parameter in parameters:
        source = component_file(parameter.file)
        text = source.read_text(encoding="utf-8")
        for key in parameter.keys:
            text = scaled(text, key, 1.5, str(source))
        assert text != source.read_text(encoding="utf-8")
    assert bool(entries) == (name == "hopper")


def test_an_unknown_recipe_is_named(repository):
    with pytest.raises(ScenarioError, match="describes no fit 'kepler'; accepted are hopper, blackwell, ampere"):
        recipe("kepler", [])

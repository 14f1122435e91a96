import pytest

from netsim.errors import NetsimError
from netsim.export.plot import Comparison, Curve, Mark, Panel, check_plot_target, draw, draw_panels

LINE = Curve("ring", (0, 1024, 2048), (0.0, 10.0, 12.0), (0.0, 0.1, 0.2))
POINTS = Curve("mine", (1024,), (11.0,), (0.1,), measured=True)


def picture(curves, marks=(), form="svg"):
    pytest.importorskip("matplotlib")
    return draw(curves, marks, title="a question", form=form)


def test_a_picture_names_its_curves_crossings_and_question() -> None:
    text = picture([LINE, POINTS], [Mark(1500.0, 11.0, "1.5 kB: ring")]).decode()
    for words in ("ring", "mine", "1.5 kB: ring", "a question", "size (bytes)"):
        assert f">{words}<" in text


def test_sizes_of_zero_are_left_out_of_logarithmic_axes() -> None:
    without = Curve("ring", LINE.sizes_bytes[1:], LINE.times_us[1:], LINE.busbw_GBps[1:])
    assert picture([LINE]) == picture([without])


def test_a_curve_of_no_size_at_all_is_no_fault() -> None:
    assert picture([Curve("nothing", (0,), (0.0,), (0.0,)), LINE], form="png").startswith(b"\x89PNG")


def test_the_end_of_the_name_chooses_the_form() -> None:
    pytest.importorskip("matplotlib")
    assert (check_plot_target("a.SVG"), check_plot_target("b/c.png")) == ("svg", "png")
    with pytest.raises(NetsimError, match=r"accepted are \.svg, \.png and \.pdf"):
        check_plot_target("a.jpg")


def test_a_pdf_has_the_same_bytes_each_time() -> None:
    first = picture([LINE, POINTS], form="pdf")
    assert first.startswith(b"%PDF")
    assert first == picture([LINE, POINTS], form="pdf")


def beside(name: str, *measured_us: float) -> Comparison:
    return Comparison(name, (0, 1024, 2048)[: len(measured_us)], measured_us, (0.0, 9.0, 12.0)[: len(measured_us)])


def panels(*shown: Panel, form: str = "svg") -> bytes:
    pytest.importorskip("matplotlib")
    return draw_panels(shown, title="how well", form=form)


def test_panels_have_their_titles_and_one_legend() -> None:
    first, second = Panel("one", (beside("ring", 0.0, 10.0, 11.0),)), Panel("two", (beside("tree", 0.0, 10.0),))
    text = panels(first, second).decode()
    for words in ("one", "two", "ring", "tree", "predicted", "measured", "how well"):
        assert text.count(f">{words}<") == 1


def test_a_name_has_one_colour_in_all_panels() -> None:
    first, second = Panel("one", (beside("ring", 0.0, 10.0),)), Panel("two", (beside("tree", 0.0, 10.0, 11.0),))
    third = Panel("three", (beside("tree", 0.0, 10.0, 11.0),))
    ring, tree = "#0072b2", "#d55e00"
    text = panels(first, second, third).decode().lower()
    # A line in each panel, and a sample of it in the legend.
    assert text.count(f"stroke: {tree}") - text.count(f"stroke: {ring}") == 1


def test_a_title_is_no_formula() -> None:
    assert b">$\\frac$<" in panels(Panel("$\\frac$", (beside("ring", 0.0, 10.0),)))


def test_rows_of_zero_are_left_out_of_panels() -> None:
    without = Comparison("ring", (1024, 2048), (10.0, 11.0), (9.0, 12.0))
    assert panels(Panel("one", (beside("ring", 0.0, 10.0, 11.0),))) == panels(Panel("one", (without,)))


@pytest.mark.parametrize("count", [1, 5])
def test_any_number_of_panels_is_drawn_in_rows_of_four(count: int) -> None:
    text = panels(*(Panel(f"panel {place}", (beside("ring", 0.0, 10.0, 11.0),)) for place in range(count))).decode()
    assert text.count(">panel ") == count
    # The lowest panel of each column names the axis below, the first of each row the one beside.
    assert text.count(">size (bytes)<") == min(4, count)
    assert text.count(">time (us)<") == -(-count // 4)


@pytest.mark.parametrize("form", ["svg", "png"])
def test_panels_have_the_same_bytes_each_time(form: str) -> None:
    shown = Panel("one", (beside("ring", 0.0, 10.0, 11.0),))
    assert panels(shown, form=form) == panels(shown, form=form)

import pytest

from netsim.errors import NetsimError
from netsim.export.plot import Curve, Mark, check_plot_target, draw

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

from collections.abc import Callable


def test_list_names_presets_and_profiles(ask: Callable) -> None:
    out = ask("topo list").out
    assert "hgx-h100 " in out
    assert "ndr400" in out


def test_show_counts_equal_links_together(ask: Callable) -> None:
    out = ask("topo show ideal-switch:8@450GB/s,1us").out
    assert "8 ranks on 1 server" in out
    assert "8 x gpu -> nvswitch: 450 GB/s, 1 us" in out


def test_show_names_the_rate_in_use(ask: Callable) -> None:
    assert "370.8 GB/s" in ask("topo show hgx-h100").out
    line = ask("topo show hgx-h100 --rate line").out
    assert "450 GB/s" in line
    assert "line rates" in line


def test_a_sound_machine_passes_its_check(ask: Callable) -> None:
    answer = ask("topo check ideal-switch:8@450GB/s,1us")
    assert answer.code == 0
    assert "nothing looks wrong" in answer.out


def test_a_doubtful_machine_is_a_no(ask: Callable, monkeypatch) -> None:
    import topologies

    monkeypatch.setattr(topologies, "remarks", lambda graph: ["gpu0 has half the links of its neighbours"], raising=False)
    answer = ask("topo check hgx-h100")
    assert answer.code == 1
    assert answer.out == "remark: gpu0 has half the links of its neighbours\n"

"""The code in the README and the docs runs, each page from top to bottom."""

import re
from pathlib import Path

import torch

from tests.data.small import write

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"


def run_blocks(page, expected):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert len(blocks) == expected
    names = {}
    for block in blocks:
        exec(block, names)
    return names


def test_data_page(tmp_path, monkeypatch, capsys):
    write(tmp_path / "root", "ink/seven/1.png", "chalk/seven/1.png")
    monkeypatch.chdir(tmp_path)
    run_blocks(ROOT / "docs" / "data.md", 2)
    assert "('chalk', 'ink') ('seven',) 2" in capsys.readouterr().out


def test_readme(capsys):
    names = run_blocks(README, 2)
    assert "'photo': 0.3" in capsys.readouterr().out
    assert names["loss"].isfinite()
    x = torch.rand(2, 3, 64, 64)
    branch = names["net"].explain(x).branch_logits[:, 2]
    torch.testing.assert_close(names["photo"].eval()(x), branch)


def test_the_first_screen_names_both_commands():
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", README.read_text()[:1500]))

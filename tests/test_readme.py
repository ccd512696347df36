"""The README's code runs, from top to bottom."""

import re
from pathlib import Path

import torch

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_code_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(block, names)
    assert "'photo': 0.3" in capsys.readouterr().out
    assert names["loss"].isfinite()
    x = torch.rand(2, 3, 64, 64)
    branch = names["net"].explain(x).branch_logits[:, 2]
    torch.testing.assert_close(names["photo"].eval()(x), branch)


def test_the_first_screen_names_both_commands():
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", README.read_text()[:1500]))

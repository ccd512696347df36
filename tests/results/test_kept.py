"""Which of a benchmark's kept models the scripts look at."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

KEPT = {
    "BNE": ("bne", {}),
    "DeepAll": ("deepall", {}),
    "Points": ("points", {}),
    "Points--learned": ("points", {"learn_lean": True}),
}


@pytest.mark.parametrize(
    ("script", "names"), [("enroll", {"BNE"}), ("leaning", {"BNE", "DeepAll", "Points"})]
)
def test_models_whose_lines_would_be_taken_for_others_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, names: set[str]
) -> None:
    for run, (method, options) in KEPT.items():
        place = tmp_path / run / "model" / "model.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"method": method, "options": options}))
    module: Any = import_module(script)
    monkeypatch.setattr(module, "score", lambda run, *_: [{"run": run.name}])
    out = tmp_path / "lines.jsonl"
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path), "--data", "none", "--out", str(out)])
    module.main()
    assert {json.loads(line)["run"] for line in out.read_text().splitlines()} == names
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "Points--learned"), *sys.argv[2:]])
    with pytest.raises(SystemExit, match="no such kept models"):
        module.main()

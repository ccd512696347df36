"""What Docker would do, done without it; and a dashboard that asks for what there is."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from bne.server.app import Server
from bne.server.live import Live
from tests.docs.running import _check_extras

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docker"
Runs = dict[str, Path]


def steps() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with what follows each."""
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


@pytest.mark.slow
def test_the_image_s_commands_run_in_a_fresh_environment(runs: Runs, tmp_path: Path) -> None:
    """Only the libraries themselves are not installed anew."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        pytest.skip("needs uv, which `make test` installs beside Python")
    told = steps()
    for kind, rest in told:
        if kind == "COPY":
            *sources, target = rest.split()
            place = tmp_path / target.strip("/")
            for source in sources:
                if (ROOT / source).is_dir():
                    hidden = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / source, place, ignore=hidden)
                else:
                    place.mkdir(exist_ok=True)
                    shutil.copy(ROOT / source, place)
    (installed,) = [shlex.split(rest) for kind, rest in told if kind == "RUN"]
    assert installed[:2] == ["pip", "install"]
    source, extras = re.fullmatch(r"/(\w+)\[([\w,]+)\]", installed[-1]).groups()
    for extra in extras.split(","):
        _check_extras(f".[{extra}]")
    environment = tmp_path / "venv"
    _run(uv, "venv", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    _run(uv, "pip", "install", "--python", python, "--no-deps", tmp_path / source)
    libraries = next(environment.glob("lib/python*/site-packages"))
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (command,) = [json.loads(rest) for kind, rest in told if kind == "CMD"]
    (health,) = [json.loads(rest[4:]) for kind, rest in told if kind == "HEALTHCHECK"]
    port = command[-1]
    assert command[-2] == "--port"
    assert f":{port}/" in health[-1]
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(runs["bne"] / "model.bne", folder)
    command = [str(environment / "bin" / command[0]), *command[1:-1], "0"]
    command[2] = str(tmp_path / command[2].lstrip("/"))
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=own) as process:
        try:
            line = process.stderr.readline()
            found = re.search(r"answers at http://0\.0\.0\.0:(\d+)\.", line)
            assert found, line + process.stderr.read()
            _run(python, *health[1:-1], health[-1].replace(f":{port}/", f":{found[1]}/"))
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def _run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_that_compose_names_are_there() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    build = services["bne"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).is_file()
    places = [volume.split(":")[0] for one in services.values() for volume in one["volumes"]]
    assert all((FOLDER / place).exists() for place in places if place != "./models")
    mounted = dict(volume.split(":")[1::-1] for volume in services["grafana"]["volumes"])
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (FOLDER / mounted[str(home.parent)] / home.name).is_file()  # what one sees first
    for one in services.values():  # nobody else reaches them
        assert all(port.startswith("127.0.0.1:") for port in one["ports"])
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = scraped[0]["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert services[name]["ports"][0].endswith(f":{port}")
    data = FOLDER / "grafana/provisioning/datasources/prometheus.yaml"
    (source,) = yaml.safe_load(data.read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{services['prometheus']['ports'][0].split(':')[-1]}"


def test_the_dashboard_asks_for_metrics_that_there_are(runs: Runs) -> None:
    picture = next(runs["data"].glob("photo/cat/*.png")).read_bytes()
    with TestClient(Server(Live(runs["bne"], "cpu")).app) as ask:
        ask.post("/predict", content=picture)
        samples = ask.get("/metrics").text
    labels: dict[str, set[str]] = {}
    for name, own in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", samples, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+="[^"]*")', own))
    board = json.loads((FOLDER / "grafana/dashboards/bne.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = set()
    for query in asked:
        for name, own in re.findall(r"\b((?:bne|process)_\w+)(?:\{(.*?)\})?", query):
            named.add(name)
            assert name in labels, query
            for label in re.findall(r'\w+="[^"]*"', own):
                assert label in labels[name] or label == 'job="bne"', query
        for kind in re.findall(r"by \((\w+)\)", query):
            assert any(one.startswith(f"{kind}=") for own in labels.values() for one in own), query
    assert len(named) > 10

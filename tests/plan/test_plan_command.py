"""`stateroom plan` as a planner meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from stateroom_ops import presets
from stateroom_ops.plan_command import plan
from stateroom_ops.plan_table import WIDTH
from stateroom_ops.presets import preset_names
from stateroom_ops.schemas import schema_path

QWEN = ("--config", "qwen3.5-27b", "--quota", "24.86GiB", "--max-batch-size", "512")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(plan, list(arguments))


def document(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    """The --json document, valid by its schema."""
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    schema = json.loads(schema_path("plan.v1").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    return found


LAYOUTS: dict[str, tuple[str, ...]] = {
    "one rank": QWEN,
    "bf16": (*QWEN, "--ssm-dtype", "bf16"),
    "unbounded": ("--config", "qwen3.5-27b", "--quota", "80GiB"),
    "tp 2 x pp 2, a quota a rank": (
        *QWEN[:2], "--tp", "2", "--pp", "2", "--quota", "24GiB,3=20GiB", "--pp-layers", "30,34",
    ),
    "full length": (*QWEN, "--guarantee", "full_length", "--max-seq-len", "8192", "--usable", "0.95"),
    "dp, draft tokens, warm-up": (
        *QWEN, "--dp", "4", "--draft-tokens", "3", "--reserved", "2", "--warmup", "1,2,64,512",
    ),
    "no KV answer": ("--config", "jamba-reasoning-3b", "--quota", "1GiB", "--tp", "8"),
    "no recurrent state": ("--config", "lfm2-1.2b", "--quota", "10MiB", "--slots-per-sequence", "3"),
    "no conv": ("--config", "minimax-text-01", "--quota", "30GiB", "--tp", "2", "--pp", "4"),
    "gpu": (*QWEN[:2], "--gpu", "h100-80g", "--weights", "55GiB", "--memory-fraction", "0.9"),
    "many ranks": ("--config", "qwen3.5-397b-a17b", "--quota", "20GiB", "--tp", "8", "--pp", "60"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_human_output_fits_in_100_columns(name: str) -> None:
    result = run(*LAYOUTS[name])
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.stdout.splitlines()) <= WIDTH


def test_alike_ranks_share_a_line_and_every_rank_is_there() -> None:
    lines = run(
        "--config", "qwen3.5-27b", "--quota", "24GiB,3=20GiB", "--tp", "2", "--pp", "2"
    ).stdout.splitlines()
    table = lines[3 : lines.index("", 3)]
    assert [line.split()[0] for line in table] == ["ranks", "0-1", "2", "3"]
    assert table[1].split()[1:4] == ["0-31", "24", "8"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_json_is_valid_and_adds_up(name: str) -> None:
    found = document(*LAYOUTS[name])
    assert (found["cap"] is None) == found["unbounded"]
    assert found["rows"] == found["seats"] + sum(found["reserved"].values())
    for rank in found["ranks"]:
        parts = ("conv_bytes", "recurrent_bytes", "auxiliary_bytes", "padding_bytes")
        assert rank["slot_bytes"] == sum(rank[part] for part in parts)
        assert rank["pool_bytes"] == rank["rows"] * rank["slot_bytes"] <= rank["quota_bytes"]
        assert (rank["kv_bytes_per_token"] is None) == (rank["kv_error"] is not None)
    assert (
        sum(rank["layers"] for rank in found["ranks"][:: found["layout"]["tp"]]) == found["model"]["layers"]
    )


def test_the_numbers_of_the_issue() -> None:
    found = document(*QWEN, "--ssm-dtype", "bf16")
    rank = found["ranks"][0]
    assert (found["cap"], found["rows"], found["asked"], found["limiting_ranks"]) == (339, 340, 512, [0])
    assert (rank["slot_bytes"], rank["conv_bytes"], rank["recurrent_bytes"]) == (
        78_446_592,
        2_949_120,
        75_497_472,
    )
    assert (rank["dtype"], rank["dtype_source"]) == ("bfloat16", "flag --ssm-dtype")
    assert rank["kv_bytes_per_token"] == 65_536
    assert rank["spare_bytes"] == 26_693_221_744 - 340 * 78_446_592
    assert rank["local"] == 339


def test_asked_counts_the_stages_in_flight() -> None:
    assert document(*QWEN, "--pp", "2")["asked"] == 1024


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_remedy_can_be_typed_and_gives_what_it_promises(name: str) -> None:
    """The flags of a remedy are added to the same command line; the last of a flag counts."""
    found = document(*LAYOUTS[name])
    if (
        len(found["ranks"]) > 64 or "--gpu" in LAYOUTS[name]
    ):  # quotas of hundreds of ranks; --gpu is no --quota
        return
    for remedy in found["remedies"]:
        then = document(*LAYOUTS[name], *remedy["flags"])
        assert (then["cap"], then["unbounded"], then["seats"]) == (
            remedy["cap"], remedy["unbounded"], remedy["seats"],
        )  # fmt: skip


def test_warm_up_is_truncated_and_says_so() -> None:
    found = document(*QWEN, "--ssm-dtype", "bf16", "--warmup", ",".join(str(2**i) for i in range(10)))
    assert found["warmup"]["truncated"] == [512]
    assert found["warmup"]["batches"] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 339]
    assert max(found["warmup"]["batches"]) + sum(found["reserved"].values()) <= found["rows"]


def test_nothing_fits_is_one_sentence_and_exit_code_1() -> None:
    result = run(*QWEN[:2], "--quota", "100MiB")
    assert result.exit_code == 1
    assert result.stderr.startswith("stateroom plan: No sequence fits on rank 0")
    assert result.stderr.count("\n") == 1
    found = document(*QWEN[:2], "--quota", "100MiB", exit_code=1)
    assert (found["cap"], found["unbounded"]) == (0, False)
    assert "No sequence fits" in found["error"]


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no such config": (("--config", "qwen99", "--quota", "1GiB"), "--config is 'qwen99': it is neither a file"),
    "no such file": (("--config", "x.json", "--quota", "1GiB"), "--config is 'x.json': the file cannot be read"),
    "no quota": (("--config", "qwen3.5-27b"), "--quota is missing"),
    "two quotas": ((*QWEN, "--gpu", "h100-80g"), "--gpu gives one too"),
    "no weights": ((*QWEN[:2], "--gpu", "h100-80g"), "--weights is missing"),
    "no such card": ((*QWEN[:2], "--gpu", "h1", "--weights", "1GiB"), "--gpu is 'h1': no such card"),
    "too heavy": ((*QWEN[:2], "--gpu", "h100-80g", "--weights", "80GiB"), "leaves nothing of 71.19 GiB"),
    "a fraction": ((*QWEN[:2], "--gpu", "h100-80g", "--weights", "1GiB", "--memory-fraction", "2"), "--memory-fraction is '2'"),
    "a unit": ((*QWEN[:2], "--quota", "24 gigs"), "'24 gigs' is not a number of bytes"),
    "no such rank": ((*QWEN[:2], "--quota", "0=1GiB,1=1GiB"), "'1' is no rank; ranks are 0 to 0"),
    "a rank without": ((*QWEN[:2], "--quota", "0=1GiB", "--tp", "2"), "rank 1 has none"),
    "a rank twice": ((*QWEN[:2], "--quota", "0=1GiB,0=1GiB"), "rank 0 stands in it twice"),
    "two for all": ((*QWEN[:2], "--quota", "1GiB,2GiB"), "two quotas for every rank"),
    "heads": ((*QWEN, "--tp", "5"), "linear_num_value_heads is 48: it does not divide by the tensor-parallel size 5"),
    "layers": ((*QWEN, "--pp", "2", "--pp-layers", "20,20"), "it adds up to 40 and the model has 64 layers"),
    "letters": ((*QWEN, "--pp", "2", "--pp-layers", "a,b"), "--pp-layers is 'a,b'"),
    "no batch": ((*QWEN[:4], "--max-batch-size", "0"), "--max-batch-size is 0"),
    "no rank": ((*QWEN, "--tp", "0"), "--tp is 0"),
    "no stage": ((*QWEN, "--pp", "0"), "--pp is 0"),
    "warm-up": ((*QWEN, "--warmup", "1,two"), "--warmup is '1,two'"),
    "dtype": ((*QWEN, "--ssm-dtype", "fp3"), "--ssm-dtype is 'fp3': no such dtype"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_flag_is_one_sentence(name: str) -> None:
    arguments, message = WRONG[name]
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_plans_as_it_is(name: str) -> None:
    assert document("--config", name, "--quota", "24GiB")["schema_version"] == 1


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_the_published_config_and_says_what_was_added(name: str) -> None:
    from tests.residency.published import config

    path = Path(presets.__file__).parent / f"{name}.json"
    preset = json.loads(path.read_text())
    added = {field for field in preset["config"] if field not in config(name)}
    assert added <= set(preset["added"])
    assert {k: v for k, v in preset["config"].items() if k not in added} == config(name)
    assert preset["source"]
    assert preset["licence"]


def test_a_config_is_a_file_or_its_folder(tmp_path: Path) -> None:
    from tests.residency.published import config

    (tmp_path / "config.json").write_text(json.dumps(config("qwen3.5-27b")))
    by_file = document("--config", str(tmp_path / "config.json"), "--quota", "24GiB")
    assert by_file == document("--config", str(tmp_path), "--quota", "24GiB")
    assert by_file["ranks"] == document("--config", "qwen3.5-27b", "--quota", "24GiB")["ranks"]


def test_plan_loads_neither_torch_nor_grpc() -> None:
    code = (
        "import sys\n"
        "from stateroom_ops.plan_command import plan\n"
        f"plan({[*QWEN, '--json']!r}, standalone_mode=False)\n"
        "heavy = {'torch', 'grpc', 'google.protobuf', 'numpy', 'rich', 'matplotlib', 'asyncio', 'opentelemetry'}\n"
        "sys.exit(repr(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cap"] == 172


def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    assert run(*QWEN, "--plot", str(path)).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    nowhere = run(*QWEN, "--plot", str(tmp_path / "no" / "plan.png"))
    assert "it cannot be written" in nowhere.stderr


def test_a_plot_without_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)
    result = run(*QWEN, "--plot", str(tmp_path / "plan.png"))
    assert result.exit_code == 1
    assert "matplotlib is not installed; install it with pip install 'stateroom[plot]'" in result.stderr

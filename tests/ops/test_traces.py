"""Three kinds of trace, and one sentence for each way to be wrong."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from stateroom_ops.traces import TraceError, TraceRequest, read_trace
from stateroom_ops.workload import Workload, generate


def _file(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            AZURE + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n",
            [(0.0, 4808, 10), (52.0, 3180, 8)],
        ),
        (
            AZURE + "2024-05-12 23:59:59.900000+00:00,5,6\n2024-05-13 00:00:00+00:00,7,8\n",
            [(0.0, 5, 6), (100.0, 7, 8)],
        ),
        (
            '{"timestamp": 27000, "input_length": 6758, "output_length": 500, "hash_ids": [0]}\n\n'
            '{"timestamp": 27500, "input_length": 7, "output_length": 1}\n',
            [(0.0, 6758, 500), (500.0, 7, 1)],
        ),
        (
            "client,arrival_s,input_tokens,output_tokens\n54,0.003,156,577\n54,0.006,154,408\n",
            [(0.0, 156, 577), (3.0, 154, 408)],
        ),
        ("\ufeffarrival_s,input_tokens,output_tokens\n2,1,1\n1,3,3\n", [(0.0, 3, 3), (1000.0, 1, 1)]),
        ("arrival_s,input_tokens,output_tokens\n0,0,-4\n", [(0.0, 0, -4)]),
    ],
    ids=[
        "azure-2023",
        "azure-2024",
        "mooncake",
        "plain-with-more-columns",
        "bom-and-unsorted",
        "odd-lengths",
    ],
)
def test_reads(tmp_path: Path, text: str, expected: list[tuple[float, int, int]]) -> None:
    read = read_trace(_file(tmp_path, text))
    assert [(round(r.arrival_ms, 3), r.prompt_tokens, r.output_tokens) for r in read] == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "TIMESTAMP,ContextTokens\n1,2\n",
            "has no column 'GeneratedTokens' (found TIMESTAMP, ContextTokens): a Azure",
        ),
        (
            "a,b\n1,2\n",
            "has no column 'arrival_s' (found a, b): a plain CSV trace needs arrival_s, input_tokens",
        ),
        (
            '{"timestamp": 1, "input_length": 2}\n',
            "has no column 'output_length' (found timestamp, input_length)",
        ),
        (
            "arrival_s,input_tokens,output_tokens\n1,x,2\n",
            "line 2 column 'input_tokens' is 'x': a number is needed",
        ),
        (
            "arrival_s,input_tokens,output_tokens\n1,2\n",
            "line 2 column 'output_tokens' is None: a number is needed",
        ),
        (AZURE + "yesterday,1,2\n", "line 2 column 'TIMESTAMP' is 'yesterday'"),
        ('{"timestamp": 1\n', "line 1 is not JSON"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n[1]\n', "line 2 is no JSON object"),
        ("arrival_s,input_tokens,output_tokens\n", "holds no request"),
        ("", "has no column 'arrival_s' (found nothing)"),
    ],
)
def test_one_sentence_for_what_is_wrong(tmp_path: Path, text: str, sentence: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"No such file or directory.*give the path of a trace"):
        read_trace(tmp_path / "none.csv")


def test_limit_takes_the_first_lines(tmp_path: Path) -> None:
    text = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{n},1,1\n" for n in range(100))
    assert len(read_trace(_file(tmp_path, text), 7)) == 7


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("azure2023_code.csv", 8819),
        ("azure2023_conv.csv", 19366),
        ("mooncake_conversation.jsonl", 12031),
        ("servegen_r1_1h_derived.csv", 46167),
    ],
)
def test_published_traces(traces_dir: Path, name: str, requests: int) -> None:
    read = read_trace(traces_dir / name)
    assert len(read) == requests
    assert read[0].arrival_ms == 0.0
    assert all(a.arrival_ms <= b.arrival_ms for a, b in pairwise(read))
    assert 3_300_000 < read[-1].arrival_ms < 3_700_000  # each is an hour


def test_the_generator_repeats_and_its_seed_matters() -> None:
    assert generate(Workload(requests_count=200)) == generate(Workload(requests_count=200))
    assert generate(Workload(requests_count=200)) != generate(Workload(requests_count=200, seed=1))
    assert generate(Workload(requests_count=0)) == []


def test_the_generator_is_bursty_with_long_tails() -> None:
    """Counts of a second vary far more than a Poisson stream's; the longest lengths are many medians."""
    made = generate(Workload(requests_count=4000))
    seconds = [0] * (int(made[-1].arrival_ms // 1000) + 1)
    for request in made:
        seconds[int(request.arrival_ms // 1000)] += 1
    mean = sum(seconds) / len(seconds)
    variance = sum((count - mean) ** 2 for count in seconds) / len(seconds)
    assert variance / mean > 2.5
    assert 5 < mean < 12
    for lengths in ([r.prompt_tokens for r in made], [r.output_tokens for r in made]):
        lengths.sort()
        assert lengths[0] >= 1
        assert lengths[len(lengths) * 99 // 100] > 5 * lengths[len(lengths) // 2]


def test_requests_are_plain_values() -> None:
    assert TraceRequest(0.0, 1, 2) == TraceRequest(0.0, 1, 2)

r"""Runs the programs of `make_gpu_kit.py` on a GPU or CPU that has JAX, without TensorFlow.

    python run_gpu_kit.py gpu_kit            # about six minutes
    python run_gpu_kit.py gpu_kit --quick    # at most two

Needs NumPy and JAX (0.10 or 0.11), and nothing else of this project than the kit. With PyTorch and
transformers, Hugging Face's ALBERT computes the same shapes in turns: `torch.compile`, autocast to
bfloat16, SDPA, logits at the masked positions only, fused AdamW and clipping; predictions with CUDA
graphs ("reduce-overhead"). It runs in a process of its own, which this file starts with `--peer`.

Each result is a JSON line as soon as it is there, so that a run that is cut off leaves what it has
measured. What fails, for lack of memory, of a package or of time, is a line with its reason; so is
a kit that cannot be read, or a name that no program has, and the exit status is then 1.

* `step_ms` is the median of several rounds of steps, each of which waits for its last step only.
* `matmul_share` is the FLOPs of the model (recomputation not counted) per second, divided by the
  rate of a large bfloat16 matmul on the device.
* `megabytes` is the peak memory of the program: arguments, results and temporary memory, as the
  compiler has laid it out; for Hugging Face's model, what PyTorch has allocated at most.
* `differences` of operations with kernels for GPUs, and of their gradients, in bfloat16 from the
  formulas in float32 are relative to the norm: about 0.005 is rounding.
* `losses` are those of the first ten steps on one batch.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the peer shares the device
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

SECONDS = 330.0
QUICK_SECONDS = 110.0
QUICK = ("golden", "check", "pretrain albert_base 32x512", "attention")  # first words of the names
FIRST_STEPS = 10
ROUNDS = 5
ROUND_SECONDS = 0.3
MAX_ROUND_STEPS = 200
MATRIX = 8192
COPIED_VALUES = 2**30
SMALLEST_MATMUL = 1024  # on a CPU
REASON_LENGTH = 500
MAKER = "make_gpu_kit.py"
KEYS = ("name", "task", "options", "file", "inputs", "results")  # of a program in kit.json
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # ours → Hugging Face's
OURS_ONLY = ("layout", "ln_type", "share")  # keys of the config

Entry = dict[str, Any]


def print_line(**facts: Any) -> None:
    """Prints a JSON line."""
    print(json.dumps(facts), flush=True)


def reason_of(error: BaseException) -> str:
    """Returns what went wrong, on one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:REASON_LENGTH]


def load_kit(folder: str, maker: str = MAKER) -> Any:
    """Returns the content of the `kit.json` of a kit, which a program has made.

    Raises:
        OSError, ValueError: it cannot be read, or is no JSON.
    """
    path = os.path.join(folder, "kit.json")
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: expected a folder of {maker}") from None
    except ValueError as error:  # no JSON, or no text
        raise ValueError(f"{path} is damaged, write it again by {maker}: {error}") from None


def read_kit(folder: str) -> list[Entry]:
    """Returns the entries of the programs of a kit.

    Raises:
        OSError, ValueError: `kit.json` cannot be read, or is not what `make_gpu_kit.py` writes.
    """
    path = os.path.join(folder, "kit.json")
    kit = load_kit(folder)
    entries: Any = kit.get("programs") if isinstance(kit, dict) else None
    for entry in entries if isinstance(entries, list) else [None]:
        missing = [key for key in KEYS if not isinstance(entry, dict) or key not in entry]
        if missing:
            text = f"expected programs with {', '.join(KEYS)}; {', '.join(missing)} is missing"
            raise ValueError(f"{path} is damaged, write it again by {MAKER}: {text}")
    found: list[Entry] = entries
    return found


def choose(entries: Sequence[Entry], parts: str, is_quick: bool) -> tuple[list[Entry], list[str]]:
    """Returns the programs to run, and the parts of names that no program has.

    Args:
        entries: all programs.
        parts: parts of names, with semicolons between them; "" for all programs.
        is_quick: whether to run only those of QUICK.
    """
    wanted = [part.strip() for part in parts.split(";")]
    unknown = [part for part in wanted if not any(part in entry["name"] for entry in entries)]
    chosen = [entry for entry in entries if any(part in entry["name"] for part in wanted)]
    if is_quick:
        chosen = [entry for entry in chosen if entry["name"].startswith(QUICK)]
    return chosen, unknown


def make_array(entry: Entry, random: np.random.Generator) -> Any:
    """Returns the value of an input that `kit.json` describes."""
    import ml_dtypes

    value: Any

    shape, name = entry["shape"], entry["dtype"]
    dtype: Any = ml_dtypes.bfloat16 if name == "bfloat16" else name
    if "values" in entry:
        value = np.array(entry["values"])
    elif "normal" in entry:
        value = entry["normal"] * random.standard_normal(shape, np.float32)
    elif "integers" in entry:
        low, high = entry["integers"]
        value = random.integers(low, high, shape)
    elif "distinct" in entry:  # positions in a sequence
        rows = [np.sort(random.permutation(entry["distinct"])[: shape[1]]) for _ in range(shape[0])]
        value = np.stack(rows)
    elif "halves" in entry:  # the second half of the tokens is 1
        value = np.broadcast_to(np.arange(shape[1]) * 2 // entry["halves"], shape)
    else:
        value = np.full(shape, entry["constant"])
    return value.astype(dtype).reshape(shape)


def load_function(folder: str, entry: Entry, platform: str) -> Callable[..., Any]:
    """Returns a program as a function of JAX: of all inputs, to a list of the results."""
    name = entry["file"]
    if name != os.path.basename(name):
        raise ValueError(f"{folder}/kit.json names {name!r}: expected a file in the folder")
    import jax
    from jax import export
    from jax import numpy as jnp

    with open(os.path.join(folder, name), "rb") as stream:
        module = gzip.decompress(stream.read())

    def signature(entries: Sequence[Entry]) -> list[Any]:
        return [jax.ShapeDtypeStruct(x["shape"], jnp.dtype(x["dtype"])) for x in entries]

    inputs, results = signature(entry["inputs"]), signature(entry["results"])

    def stand_in(*values: Any) -> list[Any]:  # a function with the program's signature
        return [jnp.zeros(result.shape, result.dtype) for result in results]

    names = {"gpu": "cuda"}
    jitted = jax.jit(stand_in, keep_unused=True)
    exported = export.export(jitted, platforms=[names.get(platform, platform)])(*inputs)
    call: Callable[..., Any] = dataclasses.replace(exported, mlir_module_serialized=module).call
    return call


class Program:
    """A program of the kit, compiled for this machine, with its inputs on the device.

    Attributes:
        compile_seconds: time to load and compile it.
        megabytes: the memory that it needs, in 10⁶ bytes.
    """

    def __init__(self, folder: str, entry: Entry) -> None:
        import jax

        self._updated = entry.get("updated", 0)
        random = np.random.default_rng(5)
        arrays = [make_array(x, random) for x in entry["inputs"]]
        begin = time.perf_counter()
        function = load_function(folder, entry, jax.default_backend())
        jitted = jax.jit(function, donate_argnums=range(self._updated))
        self._compiled = jitted.lower(*arrays).compile()
        self.compile_seconds = round(time.perf_counter() - begin, 1)
        self.megabytes = used_megabytes(self._compiled.memory_analysis())
        self._inputs = [jax.device_put(x) for x in arrays]

    def __call__(self) -> list[Any]:
        """Runs the program; its next run starts from the variables that this one has updated."""
        results: list[Any] = self._compiled(*self._inputs)
        if self._updated:
            self._inputs[: self._updated] = results[-self._updated :]
        return results

    def seconds_of(self, steps: int) -> float:
        """Returns the time of a step, the mean of several."""
        begin = time.perf_counter()
        results: list[Any] = []
        for _ in range(steps):
            results = self()
        results[0].block_until_ready()
        return (time.perf_counter() - begin) / steps


def used_megabytes(memory: Any) -> int | None:
    """Returns the memory of a compiled program in 10⁶ bytes; None if JAX does not tell."""
    if memory is None:
        return None
    size: int = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return round((size - int(memory.alias_size_in_bytes) + int(memory.temp_size_in_bytes)) / 1e6)


class Peer:
    """The process that runs Hugging Face's model; see `serve_peer`."""

    def __init__(self) -> None:
        command = [sys.executable, os.path.abspath(__file__), "--peer"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(
            command, text=True, stderr=subprocess.DEVNULL, bufsize=1, **pipes
        )

    def send(self, **order: Any) -> None:
        """Sends an order."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")  # type: ignore[union-attr]

    def receive(self) -> dict[str, Any]:
        """Returns the answer to the oldest order without one; `error` is the reason if it failed.

        Raises:
            RuntimeError: the order failed.
        """
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        answer = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def steps_of_round(seconds: float) -> int:
    """Returns the number of steps in a round, given the time of one."""
    return int(min(max(ROUND_SECONDS / seconds, 1), MAX_ROUND_STEPS))


def rates_of(entry: Entry, seconds: float, matmul_rate: float) -> dict[str, Any]:
    """Returns the time of a step and what follows from it."""
    facts = {"step_ms": round(1e3 * seconds, 3)}
    if "rows" in entry:
        facts["tokens_per_second"] = round(entry["rows"] * entry["length"] / seconds)
    if "flops" in entry:
        facts["matmul_share"] = round(entry["flops"] / seconds / matmul_rate, 3)
    return facts


def check_golden(program: Program, entry: Entry) -> dict[str, Any]:
    """Returns the differences from the expected loss and gradients, relative to their norms."""
    loss, *gradients = (np.ravel(np.asarray(result, np.float64)) for result in program())
    right, *others = (np.ravel(value) for value in entry["expected"])
    pairs = {
        "loss_difference": (loss, right),
        "gradient_difference": (np.concatenate(gradients), np.concatenate(others)),
    }
    return {
        name: float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        for name, (found, expected) in pairs.items()
    }


def first_losses(program: Program, entry: Entry) -> dict[str, Any]:
    """Runs the first steps, and returns their losses."""
    if "loss" not in entry:
        program()[0].block_until_ready()
        return {}
    sums = [np.asarray(program()[entry["loss"]], np.float64) for _ in range(FIRST_STEPS)]
    losses = [float(total / weight) for total, weight in sums]
    is_learning = bool(np.isfinite(losses).all() and losses[-1] < losses[0])
    return {"losses": [round(loss, 4) for loss in losses], "falls": is_learning}


class Run:
    """A run of the kit.

    Args:
        folder: the kit.
        seconds: time after which no other program is started.
        peer: the other implementation, if it takes part.
    """

    def __init__(self, folder: str, seconds: float, peer: Peer | None) -> None:
        self._folder = folder
        self._peer = peer
        self._end = time.perf_counter() + seconds
        self._longest = 0.0
        self._matmul_rate = 1.0

    def measure_device(self) -> None:
        """Prints what the device is, and the rates of a large matmul and of a large copy."""
        import jax
        from jax import numpy as jnp

        device = jax.devices()[0]
        versions = {name: version_of(name) for name in ("jax", "numpy", "torch", "transformers")}
        print_line(device=device.device_kind, driver=driver(), versions=versions)
        is_cpu = device.platform == "cpu"
        size = SMALLEST_MATMUL if is_cpu else MATRIX
        x = jax.random.normal(jax.random.key(5), (size, size), jnp.bfloat16)
        seconds = median_seconds(jax.jit(lambda x: x @ x), x)
        self._matmul_rate = 2.0 * size**3 / seconds
        values = jnp.ones(COPIED_VALUES // 64 if is_cpu else COPIED_VALUES, jnp.bfloat16)
        copied = 2 * values.nbytes / median_seconds(jax.jit(lambda x: x + 1), values)
        print_line(
            matmul_tflops=round(self._matmul_rate / 1e12, 1),
            copy_gigabytes_per_second=round(copied / 1e9),
        )

    def run(self, entry: Entry) -> None:
        """Measures a program and prints the results, also those of the peer."""
        name = entry["name"]
        left = self._end - time.perf_counter()
        if left < self._longest:
            print_line(program=name, error=f"no time: {left:.0f} s are left")
            return
        begin = time.perf_counter()
        has_peer = self._peer is not None and "config" in entry and not is_plain(entry)
        if self._peer is not None and has_peer:
            self._peer.send(job=entry)
        ours = self._prepare(entry)
        theirs = self._wait_for_peer(entry) if has_peer else None
        if ours is not None or theirs is not None:
            self._compare(entry, ours, theirs)
        self._longest = max(self._longest, time.perf_counter() - begin)

    def _prepare(self, entry: Entry) -> tuple[Program, dict[str, Any]] | None:
        """Compiles a program and runs its first steps; prints the reason if that fails."""
        try:
            program = Program(self._folder, entry)
            facts: dict[str, Any] = {"compile_seconds": program.compile_seconds}
            if "expected" in entry:
                print_line(program=entry["name"], **facts, **check_golden(program, entry))
                return None
            if "differences" in entry:
                found = np.asarray(program()[0], np.float64).tolist()
                pairs = dict(zip(entry["differences"], found, strict=True))
                print_line(program=entry["name"], **facts, differences=pairs)
                return None
            facts["megabytes"] = program.megabytes
            return program, facts | first_losses(program, entry)
        except Exception as error:  # of JAX or the device, whatever its class
            print_line(program=entry["name"], error=reason_of(error))
            return None

    def _wait_for_peer(self, entry: Entry) -> dict[str, Any] | None:
        """Returns what the peer said when it was ready; prints the reason if it failed."""
        try:
            return self._peer.receive()  # type: ignore[union-attr]
        except RuntimeError as error:
            print_line(program=entry["name"], by="Hugging Face", error=str(error))
            return None

    def _compare(
        self,
        entry: Entry,
        ours: tuple[Program, dict[str, Any]] | None,
        theirs: dict[str, Any] | None,
    ) -> None:
        """Runs rounds of both in turns, and prints the results."""
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        try:
            steps = steps_of_round(ours[0].seconds_of(1)) if ours else 0
            for _ in range(ROUNDS):
                if ours:
                    times["ours"].append(ours[0].seconds_of(steps))
                if theirs:
                    self._peer.send(steps=True)  # type: ignore[union-attr]
                    theirs |= self._peer.receive()  # type: ignore[union-attr]
                    times["theirs"].append(theirs["seconds"])
        except Exception as error:  # of either side
            print_line(program=entry["name"], error=reason_of(error))
            return
        medians = {side: statistics.median(x) for side, x in times.items() if x}
        if ours:
            rates = rates_of(entry, medians["ours"], self._matmul_rate)
            print_line(program=entry["name"], **rates, **ours[1])
        if theirs:
            rates = rates_of(entry, medians["theirs"], self._matmul_rate)
            names = ("compile_seconds", "megabytes")
            facts: dict[str, Any] = {key: theirs[key] for key in names if key in theirs}
            if ours:
                facts["speed_of_ours"] = round(medians["theirs"] / medians["ours"], 2)
            if ours and "megabytes" in theirs:
                facts["memory_of_ours"] = round(ours[1]["megabytes"] / theirs["megabytes"], 2)
            print_line(program=entry["name"], by="Hugging Face", **rates, **facts)


def is_plain(entry: Entry) -> bool:
    """Returns whether a program is a variant, which is compared with another program of ours."""
    return any(option.startswith(("plain", "unfused")) for option in entry["options"])


def median_seconds(function: Callable[[Any], Any], x: Any) -> float:
    """Returns the median time of a function of JAX on the device."""
    function(x).block_until_ready()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(FIRST_STEPS):
            result = function(x)
        result.block_until_ready()
        times.append((time.perf_counter() - begin) / FIRST_STEPS)
    return statistics.median(times)


def version_of(package: str) -> str | None:
    """Returns the version of a package; None without it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def driver() -> str | None:
    """Returns the version of NVIDIA's driver; None without one."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


# The peer: Hugging Face's ALBERT, in a process of its own.


def make_peer_model(entry: Entry) -> Any:
    """Returns the model of a program in transformers, with random weights."""
    import torch
    import transformers

    values = {key: value for key, value in entry["config"].items() if key not in OURS_ONLY}
    values["hidden_act"] = ACTIVATIONS[values["hidden_act"]]
    config = transformers.AlbertConfig(**values, num_labels=2, attn_implementation="sdpa")
    kind = "AlbertForSequenceClassification"
    if entry["task"] == "pretrain":
        kind = "AlbertForPreTraining"
    model = getattr(transformers, kind)(config).to("cuda" if torch.cuda.is_available() else "cpu")
    if "checkpointing" in entry["options"]:
        model.gradient_checkpointing_enable()
    if entry["task"] == "predict":
        return model.eval().to(torch.bfloat16)
    return model.train()


def make_peer_batch(entry: Entry, device: Any) -> dict[str, Any]:
    """Returns a batch of random words."""
    import torch

    rows, length, words = entry["rows"], entry["length"], entry["config"]["vocab_size"]
    shape = rows, entry["predictions"]
    positions = torch.stack([torch.randperm(length)[: shape[1]].sort()[0] for _ in range(rows)])
    batch = {
        "input_ids": torch.randint(5, words, (rows, length)),
        "attention_mask": torch.ones(rows, length, dtype=torch.long),
        "token_type_ids": (torch.arange(length) * 2 // length).expand(rows, -1).contiguous(),
        "positions": positions,
        "words": torch.randint(5, words, shape),
        "labels": torch.randint(0, 2, (rows,)),
    }
    return {name: value.to(device) for name, value in batch.items()}


def peer_loss(model: Any, task: str, batch: dict[str, Any]) -> Any:
    """Returns the loss of training, or the probabilities of a prediction."""
    import torch

    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: batch[name] for name in names}
    loss = torch.nn.functional.cross_entropy
    if task == "pretrain":
        outputs = model.albert(**inputs)
        x = outputs.last_hidden_state  # [B, S, H]
        positions = batch["positions"][:, :, None].expand(-1, -1, x.shape[-1])
        logits = model.predictions(torch.gather(x, 1, positions))  # [B, P, V]
        order = model.sop_classifier(outputs.pooler_output)  # [B, 2]
        words = loss(logits.float().flatten(0, 1), batch["words"].flatten())
        return words + loss(order.float(), batch["labels"])
    logits = model(**inputs).logits.float()  # [B, 2]
    return logits.softmax(-1) if task == "predict" else loss(logits, batch["labels"])


def make_peer_step(entry: Entry) -> Callable[[], Any]:
    """Returns a function that computes a step of Hugging Face's model."""
    import torch

    torch.manual_seed(5)
    model = make_peer_model(entry)
    device = next(model.parameters()).device
    batch = make_peer_batch(entry, device)
    task = entry["task"]
    if task == "predict":
        mode = "reduce-overhead" if device.type == "cuda" else None
        predict = torch.compile(lambda: peer_loss(model, task, batch), mode=mode)

        def run_prediction() -> Any:
            with torch.inference_mode():
                return predict()

        return run_prediction

    def forward() -> Any:
        with torch.autocast(device.type, torch.bfloat16):
            return peer_loss(model, task, batch)

    compiled = torch.compile(forward)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def train() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = compiled()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return train


class PeerProgram:
    """A step of Hugging Face's model, compiled and run a few times."""

    def __init__(self, entry: Entry) -> None:
        import torch

        self._cuda = torch.cuda if torch.cuda.is_available() else None
        if self._cuda:
            self._cuda.empty_cache()
            self._cuda.reset_peak_memory_stats()
        torch._dynamo.reset()
        begin = time.perf_counter()
        self._step = make_peer_step(entry)
        self._seconds_of(2)
        self.compile_seconds = round(time.perf_counter() - begin, 1)
        self._steps = steps_of_round(self._seconds_of(3))

    def _seconds_of(self, steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            self._step()
        if self._cuda:
            self._cuda.synchronize()
        return (time.perf_counter() - begin) / steps

    def measure(self) -> dict[str, Any]:
        """Returns the time of a step of a round, and the peak memory so far."""
        facts: dict[str, Any] = {"seconds": self._seconds_of(self._steps)}
        if self._cuda:
            facts["megabytes"] = round(self._cuda.max_memory_allocated() / 1e6)
        return facts


def serve_peer() -> None:
    """Answers each order on the standard input, a JSON line, with another.

    `{"job": entry}` prepares the step of a program, `{"steps": true}` measures a round of it.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print, too
    program: PeerProgram | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "job" in order:
                program = None  # frees its memory
                program = PeerProgram(order["job"])
                answer: dict[str, Any] = {"compile_seconds": program.compile_seconds}
            else:
                answer = program.measure()  # type: ignore[union-attr]
        except Exception as error:  # of PyTorch or the device, whatever its class
            answer = {"error": reason_of(error)}
        answers.write(json.dumps(answer) + "\n")


@contextlib.contextmanager
def started_peer(is_wanted: bool) -> Iterator[Peer | None]:
    """Context manager with the process of Hugging Face's model, None if it does not take part."""
    names = ("torch", "transformers")
    if missing := [name for name in names if is_wanted and version_of(name) is None]:
        print_line(by="Hugging Face", error=f"{' and '.join(missing)} not installed")
    if not is_wanted or missing:
        yield None
        return
    peer = Peer()
    try:
        yield peer
    finally:
        peer.close()


def main() -> None:
    """Runs the kit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kit", nargs="?", help="folder that make_gpu_kit.py has written")
    parser.add_argument("--quick", action="store_true", help="only what matters most")
    parser.add_argument("--seconds", type=float, help="time after which nothing is started")
    parser.add_argument("--programs", default="", help="parts of names, with semicolons")
    parser.add_argument("--no_peer", action="store_true", help="without Hugging Face's model")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        serve_peer()
        return
    if args.kit is None:
        parser.error("the folder of the kit is missing")
    try:
        import jax

        jax.config.update("jax_enable_x64", True)  # steps are counted in int64
    except ImportError as error:
        sys.exit(json.dumps({"error": reason_of(error)}))
    try:
        entries = read_kit(args.kit)
    except (OSError, ValueError) as error:
        print_line(error=reason_of(error))
        sys.exit(1)
    chosen, unknown = choose(entries, args.programs, args.quick)
    for part in unknown:
        names = ", ".join(entry["name"] for entry in entries)
        print_line(program=part, error=f"no program of this kit has such a name: {names}")
    with started_peer(not args.no_peer and bool(chosen)) as peer:
        run = Run(args.kit, args.seconds or (QUICK_SECONDS if args.quick else SECONDS), peer)
        run.measure_device()
        for entry in chosen:
            run.run(entry)
    if unknown:
        sys.exit(1)


if __name__ == "__main__":
    main()

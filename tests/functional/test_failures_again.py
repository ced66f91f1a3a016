"""Reports of programs that fail more than once, or in odd ways."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.functional.test_failures import PRELUDE, program, sections
from tests.support.programs import environment, run_python


def root_of(text: str) -> str:
    return "\n".join(sections(text)[-1])


def test_what_was_handled_is_not_the_cause_of_what_was_not(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "one = trainer.slice(n=1)\n"
        "try: one.everywhere.call_one('raise ValueError(\"handled\")').get()\n"
        "except ValueError: pass\n"
        "trainer.slice(n=3).everywhere.call_one('raise OSError(\"fatal\")').get()",
    )
    root = root_of(done.stderr)
    assert root.startswith("ROOT CAUSE  trainer rank 3 (n=3)") and "OSError: fatal" in root and "[certain" in root
    assert "ValueError" not in root and "FAILED LATER" not in done.stderr


@pytest.mark.parametrize("first", ["raise ValueError(1)", "os._exit(3)"])
def test_what_other_ranks_answer_later_to_a_call_that_was_handled_is_not_the_cause(first: str, tmp_path: Path) -> None:
    code = f"if current_rank().rank == 0: {first}\ntime.sleep(current_rank().rank * 0.2)\nraise ValueError('handled')"
    done = program(
        tmp_path,
        f"import meshrt\ntry: trainer.everywhere.call({code!r}).get()\n"
        "except (ValueError, meshrt.MeshError): pass\n"
        "trainer.slice(n=1).everywhere.call_one('time.sleep(1); raise OSError(\"fatal\")').get()",
    )
    root = root_of(done.stderr)
    assert root.startswith("ROOT CAUSE  trainer rank 1 (n=1)") and "OSError: fatal" in root and "[certain" in root
    assert "FAILED LATER" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["everywhere.broadcast", "forgotten = one.everywhere.call"])
def test_what_was_handled_is_not_the_cause_of_what_nobody_has_read(fails: str, tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "one = trainer.slice(n=1)\n"
        "try: one.everywhere.call_one('raise ValueError(\"caught\")').get()\n"
        "except ValueError: pass\n"
        f"{fails.replace('everywhere.b', 'one.everywhere.b')}('raise KeyError(\"unseen\")')\n"
        "one.everywhere.call_one('pass').get()",
    )
    assert done.returncode == 1
    root = root_of(done.stderr)
    assert "KeyError: 'unseen'" in root and "[certain" in root and "caught" not in done.stderr.partition("=====")[2]


def test_a_rank_may_pass_an_error_on_long_after_it_got_it(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "try: trainer.slice(n=2).everywhere.call_one('raise ValueError(\"earlier\")').get()\n"
        "except ValueError: pass\n"
        "trainer.slice(n=1).passes_on.call_one(trainer.slice(n=3), 2.5).get()",
    )
    root = root_of(done.stderr)
    assert root.startswith("ROOT CAUSE  trainer rank 3 (n=3)") and "OSError: fatal" in root and "[certain" in root
    assert "no record received" not in done.stderr and "earlier" not in root


def test_a_failure_that_was_only_counted_ends_the_script_with_a_report(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "for number in range(30):\n"
        "    try: trainer.slice(n=1).everywhere.call_one('raise ValueError(\"again\")').get()\n"
        "    except ValueError: pass\n"
        "trainer.slice(n=1).everywhere.call_one('raise OSError(\"fatal\")').get()",
    )
    root = root_of(done.stderr)
    assert root.startswith("ROOT CAUSE  trainer rank 1 (n=1)") and "OSError: fatal" in root


def test_what_nobody_was_told_of_is_reported_whatever_came_after(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "trainer.slice(n=1).everywhere.broadcast('raise KeyError(\"unseen\")')\ntime.sleep(2.5)\n"
        "try: trainer.slice(n=2).everywhere.call_one('raise ValueError(\"handled\")').get()\n"
        "except ValueError: pass",
    )
    assert done.returncode == 1
    root = root_of(done.stderr)
    assert "KeyError: 'unseen'" in root and "handled" not in root


@pytest.mark.slow
@pytest.mark.parametrize(
    "fails",
    [
        "trainer.slice(n=1).everywhere.broadcast('raise KeyError(\"unseen\")')",
        "threading.Thread(target=lambda: 1 / 0).start()",
    ],
    ids=["a rank", "a thread"],
)
def test_a_failure_that_cannot_be_reported_is_one(fails: str, tmp_path: Path) -> None:
    """What makes the report is loaded when something has failed; the packages may be gone, or no descriptor left."""
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE + "sys.modules['meshrt.failure.root'] = None\n"
        f"trainer = proc_mesh(n=4).spawn('trainer', Trainer).get()\n{fails}\n"
    )
    done = run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert done.returncode == 1
    assert "meshrt: no caller has received 1 failure; no report could be made: ModuleNotFoundError: " in done.stderr
    assert "atexit" not in done.stderr


def test_what_the_end_of_the_mesh_interrupts_has_not_failed(tmp_path: Path) -> None:
    code = (
        "if current_rank().rank == 1: raise ValueError('real')\n"
        "try: time.sleep(60)\n"
        "except BaseException: raise RuntimeError('could not save')"
    )
    done = program(tmp_path, f"trainer.initialized.get()\ntrainer.everywhere.call({code!r}).get()")
    root = root_of(done.stderr)
    assert root.startswith("ROOT CAUSE  trainer rank 1 (n=1)") and "ValueError: real" in root
    assert "[certain" in root and "FAILED 1 of 4 ranks" in done.stderr


def test_the_program_is_shut_down_in_a_finally(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE + "from meshrt import shutdown_context\ntrainer = proc_mesh(n=4).spawn('trainer', Trainer)\n"
        "try:\n    trainer.step.call(3).get()\nfinally:\n    shutdown_context(0.1)\n"
    )
    done = run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert done.returncode == 1 and root_of(done.stderr).startswith("ROOT CAUSE  trainer rank 2 (n=2)")


HANGS = "trainer.initialized.get()\n{}: trainer.everywhere.call('time.sleep(60)').get(timeout=0.2)\n"


def test_a_mesh_that_is_stopped_in_a_finally_is_looked_at_before(tmp_path: Path) -> None:
    done = program(tmp_path, HANGS.format("try") + "finally: mesh.stop(0)")
    assert "meshrt: FAILED 4 of 4 ranks of train (n=4)" in done.stderr
    assert root_of(done.stderr).startswith("ROOT CAUSE  trainer ranks 0-3 of train  [") and "time.sleep" in done.stderr


def test_a_mesh_that_was_stopped_is_known_to_the_report(tmp_path: Path) -> None:
    done = program(
        tmp_path, HANGS.format("try") + "except TimeoutError as error: kept = error\nmesh.stop(0)\nraise kept"
    )
    assert "meshrt: FAILED 4 of 4 ranks of train (n=4)" in done.stderr
    assert root_of(done.stderr).startswith("ROOT CAUSE  trainer ranks 0-3 of train  [")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("call = trainer.everywhere.call('time.sleep(60)')\nmesh.stop(0)", "train was stopped by the script"),
        ("trainer.stop()\ncall = trainer.everywhere.call('')", "trainer of train was stopped"),
    ],
)
def test_what_was_stopped_has_not_failed(ends: str, said: str, tmp_path: Path) -> None:
    done = program(tmp_path, f"trainer.get()\n{ends}\ncall.get()")
    assert done.returncode == 1 and "MeshStopped: trainer.everywhere() failed" in done.stderr
    assert done.stderr.endswith(f"meshrt: {said}\n") and "ROOT CAUSE" not in done.stderr


LOGGED = """
class Log(Actor):
    @endpoint
    def note(self, text): print(text)
    @endpoint
    def hang(self, script):
        os.kill(script, signal.SIGINT)
        time.sleep(60)
class User(Actor):
    def __init__(self, log): self.log = log
    @endpoint
    def use(self, script): self.log.hang.call(script).get()
    def __cleanup__(self, exc): self.log.note.call(f"bye, {type(exc).__name__}").get()
"""


def logged(tmp_path: Path, main: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(f"{PRELUDE}{LOGGED}{main}")
    return run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))


def test_at_the_end_of_the_program_what_is_used_outlives_its_users(tmp_path: Path) -> None:
    main = "log = proc_mesh(n=1).spawn('log', Log)\nproc_mesh(n=2).spawn('user', User, log).get()"
    done = logged(tmp_path, main)
    assert done.returncode == 0 and done.stdout.count("bye, NoneType") == 2 and not done.stderr


def test_who_uses_what_an_error_has_ended_has_not_failed(tmp_path: Path) -> None:
    done = logged(
        tmp_path,
        "with proc_mesh(n=1) as train:\n"
        "    try:\n"
        "        with proc_mesh(n=1) as log:\n"
        "            call = train.spawn('user', User, log.spawn('log', Log)).use.call(os.getpid())\n"
        "            call.get()\n"
        "    finally:\n"
        "        while not call.done(): pass\n",
    )
    assert done.returncode == -signal.SIGINT and "meshrt: interrupted at" in done.stderr
    assert "FAILED" not in done.stderr and "ROOT CAUSE" not in done.stderr


def test_a_script_that_ctrl_c_ends_dies_by_it_whatever_is_executed_meanwhile(tmp_path: Path) -> None:
    main = (
        "proc_mesh(n=1).get()\natexit.register(exec, 'pass', {})\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"
    )
    assert logged(tmp_path, f"import atexit\n{main}").returncode == -signal.SIGINT


IN_A_HURRY = """
from meshrt.failure.root import Failures
def collect(self, error, collect=Failures.collect, **how):
    collect(self, error, **how)
    os.kill(os.getpid(), signal.SIGINT)
Failures.collect = collect
os.environ["SCRIPT"] = str(os.getpid())
"""


def test_ctrl_c_while_a_failure_is_looked_at_ends_only_that(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import os, time\nos.kill(int(os.environ['SCRIPT']), 2)\ntime.sleep(60)\n")
    done = logged(tmp_path, IN_A_HURRY + "proc_mesh(n=1, name='train', preload=['hangs']).get()\n")
    assert done.returncode == -signal.SIGINT
    assert re.fullmatch(r"meshrt: interrupted at \S+train\.py:\d+, in <module>\n", done.stderr)
    again = run_python("-m", "meshrt", "postmortem", env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert "meshrt: INTERRUPTED while waiting for the only rank of train" in again.stdout


def test_ctrl_c_while_a_mesh_is_stopped_says_what_was_waited_for_before(tmp_path: Path) -> None:
    done = logged(
        tmp_path,
        "mesh = proc_mesh(n=1)\n"
        "def interrupt():\n"
        "    from meshrt.mesh.program import start_root\n"
        "    while start_root().registry.meshes[mesh.mesh_id].stopped is None: pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "try: mesh.spawn('log', Log).hang.call(os.getpid()).get()\n"
        "finally: mesh.stop(60)\n",
    )
    assert done.returncode == -signal.SIGINT and done.stderr.count("meshrt: interrupted at") == 1
    assert "log.hang(): no answer from 1 of 1" in done.stderr and "stopping" not in done.stderr


def test_a_fork_just_after_a_failure(tmp_path: Path) -> None:
    """The child ends by itself, however far the parent had come with what it loads for a failure."""
    done = program(
        tmp_path,
        "for number in range(5):\n"
        "    try: trainer.slice(n=1).everywhere.call_one('raise ValueError').get()\n"
        "    except ValueError as error: kept = error\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            with mesh: raise kept\n"
        "        except Exception: os._exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7",
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr


HOSTILE = """
class Placed(Exception):
    place = property(lambda self: 1 / 0)
    remote = exception = endpoint = others = record = place
class Slotted(Exception):
    __slots__ = ("endpoint", "place", "remote")
class Noted(Exception):
    __notes__ = property(lambda self: 1 / 0)
    __cause__ = __context__ = __traceback__ = __notes__
class Formed(Exception):
    def with_traceback(self, other): raise SystemExit
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Placed", "Slotted", "Noted", "Formed", "SyntaxError"])
def test_exception_classes_with_names_of_ours(name: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE + HOSTILE + "class Fails(Actor):\n    @endpoint\n    def fail(self):\n"
        f"        raise {name}('odd')\n"
        "with proc_mesh(n=2, name='train') as mesh:\n    mesh.spawn('fails', Fails).fail.call().get()\n"
    )
    done = run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert done.returncode == 1 and "Error in sys.excepthook" not in done.stderr
    assert re.search(rf"ActorError: fails\.fail\(\) raised on rank \d \(n=\d\) .*{name}: odd", done.stderr)
    assert "ROOT CAUSE" in done.stderr


def test_the_command_is_there_without_an_installation(tmp_path: Path) -> None:
    done = program(tmp_path, "trainer.slice(n=1).everywhere.call_one('raise OSError(\"fatal\")').get()")
    again = run_python("-m", "meshrt", "postmortem", env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert again.returncode == 0
    assert sections(again.stdout)[-1] == sections(done.stderr)[-1]


KILL_THE_IDLE = (
    "trainer.get()\nfrom meshrt.mesh.program import start_root\n"
    "pid = start_root().registry.meshes[mesh.mesh_id].pids[0]\n"
    "os.kill(pid, signal.SIGKILL)\n"
    "told = None\n"
    "while told is None: told = trainer.slice(n=1).everywhere.call_one('pass').exception()\n"
)
FATAL = "trainer.slice(n=3).everywhere.call_one('raise OSError(\"fatal\")').get()"


def test_a_death_that_the_script_was_told_of_before_is_not_the_cause(tmp_path: Path) -> None:
    done = program(tmp_path, KILL_THE_IDLE + FATAL)
    assert root_of(done.stderr).startswith("ROOT CAUSE  trainer rank 3 (n=3)")
    assert "SIGKILL" not in root_of(done.stderr)


def test_a_death_that_the_script_is_told_of_now_is_the_cause(tmp_path: Path) -> None:
    done = program(tmp_path, KILL_THE_IDLE + "trainer.everywhere.call('pass').get()")
    assert "SIGKILL" in root_of(done.stderr)


def test_a_death_that_was_made_good_is_not_the_cause(tmp_path: Path) -> None:
    main = (
        "class Other(Trainer): pass\n"
        "spare = proc_mesh(n=1, name='spare').spawn('spare', Other, max_restarts=1).get()\n"
        "spare.everywhere.call_one('import os; os.kill(os.getpid(), 9)').exception()\n"
        "spare.everywhere.call_one('pass').get()\n"
    )
    done = program(tmp_path, main + FATAL)
    assert root_of(done.stderr).startswith("ROOT CAUSE  trainer rank 3 (n=3)")


def test_an_init_that_raises_when_its_rank_is_started_again(tmp_path: Path) -> None:
    main = (
        "class Once(Trainer):\n"
        "    def __init__(self):\n"
        "        if 'MESHRT_INCARNATION' in os.environ: raise OSError('the file is gone')\n"
        "once = proc_mesh(n=1, name='spare').spawn('once', Once, max_restarts=1).get()\n"
        "once.everywhere.call_one('import os; os.kill(os.getpid(), 9)').exception()\n"
        "once.everywhere.call_one('pass').get()"
    )
    done = program(tmp_path, main)
    assert "reason: __init__ ran again after rank 0 was killed by SIGKILL" in done.stderr
    assert root_of(done.stderr).startswith("ROOT CAUSE  once rank 0 (n=0)") and "SIGKILL" in root_of(done.stderr)
    assert "  where    during once.everywhere()\n" in root_of(done.stderr)  # the first one; it does not say which line


def test_a_process_that_ends_in_one_of_several_actors_names_what_each_was_asked(tmp_path: Path) -> None:
    main = (
        "class Bad(Actor):\n"
        "    def __init__(self): os._exit(3)\n"
        "    @endpoint\n"
        "    def ok(self): pass\n"
        "trainer.initialized.get()\n"
        "held = trainer.everywhere.call('time.sleep(60)')\n"
        "trainer.everywhere.broadcast('pass')\n"
        "mesh.spawn('bad', Bad).ok.call().get()"
    )
    root = root_of(program(tmp_path, main).stderr)
    assert "exited with code 3" in root and "  where    during trainer.everywhere() or bad.__init__()\n" in root


RAISES = "trainer.everywhere.{}('raise KeyError(\"unread\")')"
BAD = "class Bad(Actor):\n    def __init__(self): raise KeyError('unread')\n    @endpoint\n    def ok(self): pass\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "status"),
    [
        (RAISES.format("call"), 1),
        (f"futures = [{RAISES.format('call')}, {RAISES.format('call')}]\nfutures[1].exception()", 1),
        (f"{RAISES.format('call')}.exception()", 0),
        (f"try: {RAISES.format('call')}.get()\nexcept KeyError: pass", 0),
        (f"for future in {RAISES.format('stream')}: future.exception()", 0),
        (f"next(iter({RAISES.format('stream')})).exception()", 1),
        (f"{BAD}mesh.spawn('bad', Bad)", 1),
        (f"{BAD}mesh.spawn('bad', Bad).ok.call().exception()", 0),
    ],
)
def test_an_answer_that_nobody_looks_at_is_reported_at_the_end(tmp_path: Path, main: str, status: int) -> None:
    done = program(tmp_path, main)
    assert done.returncode == status
    assert ("ROOT CAUSE" in done.stderr) == bool(status) == ("KeyError: 'unread'" in done.stderr)

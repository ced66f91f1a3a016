"""A script that forks, waits for whatever child ends, and starts commands."""

import os
import subprocess
import sys
import threading

RANK = os.environ["RANK"]


def fork(code: int) -> None:
    if os.fork():
        return
    if code == 3:
        raise ValueError("a child fails")  # its traceback, and status 1
    if code == 4:
        os.abort()
    # In one write: `print` of an interpreter without buffers writes the end of the line on its own.
    thread = threading.Thread(target=sys.stdout.write, args=(f"rank {RANK} child {code}, a thread of it\n",))
    thread.start()
    thread.join()
    sys.exit(code)


def daemon() -> None:
    """Double fork: the grandchild is nobody's child, and goes on in a session of its own."""
    reading, writing = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(writing, b"detached")
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        print(f"rank {RANK} {file.read().decode()}")


def main() -> None:
    for code in range(5):
        fork(code)
    daemon()
    ended = []
    while True:
        try:
            ended.append(os.waitstatus_to_exitcode(os.wait()[1]))
        except ChildProcessError:
            break
    print(f"rank {RANK} children {sorted(ended)}")
    said = subprocess.run([sys.executable, "-c", "print('a command')"], capture_output=True, text=True, check=True)
    print(f"rank {RANK} {said.stdout.strip()}")


if __name__ == "__main__":
    main()

"""An action in a fork of a process: a part of programs that tests run."""

IN_A_FORK = """
import faulthandler, json, os

def in_a_fork(action):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            answer = action()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, json.dumps(answer).encode())
        os._exit(0)  # As multiprocessing ends its processes.
    os.close(write)
    status = os.waitpid(child, 0)[1]
    return json.loads(os.read(read, 100_000) or "null"), status
"""

"""Whether a child process stands: a stop signal is sent at once and takes hold when the last of its threads has seen it."""

import os


def stands(pid: int) -> bool:
    """Tell whether the child `pid` of this process is stopped. Only looks: its end is still there to be waited for."""
    try:
        seen = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return seen is not None and seen.si_code == os.CLD_STOPPED

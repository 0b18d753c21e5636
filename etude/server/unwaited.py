"""Threads for computing, on whose end nobody waits.

A merge of two long files can compute for many seconds in a thread that nothing can stop. asyncio would wait for it
at Ctrl-C; with this executor it does not, and the command line then leaves without it.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor


class UnwaitedThreads(ThreadPoolExecutor):
    """For `use_unwaited_threads`."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


def use_unwaited_threads() -> None:
    """`asyncio.to_thread` of the running loop computes in these from now on."""
    asyncio.get_running_loop().set_default_executor(UnwaitedThreads(thread_name_prefix="etude"))

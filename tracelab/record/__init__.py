"""Record a program: the only subpackage that imports torch, and only once something is recorded.

- `capture`: what a user calls, ``tracelab.capture`` and ``tracelab.profile_step``
- `trace_handler`: what a user gives a profiler of his own, ``tracelab.trace_handler``
- `recorder`: which steps are recorded, timed or left alone, and the trace file
- `cupti`: the CUDA event records, which Kineto loses
- `hooks`: be called when a step, a function or another profiler's session ends
- `script`: run a program unchanged
- `announce`: print and draw what was recorded
- `frameworks`: callbacks for training loops that a framework runs
- `pytorch`: torch, or the error that says how to install it
"""

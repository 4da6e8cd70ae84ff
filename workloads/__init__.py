"""Small programs with a known defect and its fix, each a lesson about overlap on a GPU.

A program runs with ``python -m tracelab.workloads.NAME VARIANT``. `catalog` lists them all,
`runner` is what they share. The bundled captures name lines of the programs, so those lines stay
where they are.
"""

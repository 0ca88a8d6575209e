"""What pytest leaves out where it cannot be imported.

Not ``--doctest-ignore-import-errors``: with that flag a test module that does not import is skipped, and nothing fails.
"""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["synthbench/forms/kernels/_*.py"]

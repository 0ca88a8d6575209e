"""Write which claims of the papers on real data hold in our rows: ``python -m studies.real.page``, or ``--check``."""

import sys
from itertools import chain
from pathlib import Path

from studies.pages import headed, main
from studies.real import claims, language

if __name__ == "__main__":
    text = headed(chain(claims.page(), language.page()), "studies/real/page.py")
    sys.exit(main({Path(__file__).with_name("README.md"): text}))

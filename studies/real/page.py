"""Write which claims of the papers on real data hold in our rows: ``python -m studies.real.page``, or ``--check``."""

from studies.pages import store, write
from studies.real import claims, language

if __name__ == "__main__":
    rows = store().runs()
    write(__file__, [*claims.paragraphs(rows), *language.paragraphs(rows)])

"""Parts of a release: manifest, mechanism file, ledger and output folder."""

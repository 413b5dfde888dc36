"""What a release consists of: manifest, mechanism file, ledger and output folder."""

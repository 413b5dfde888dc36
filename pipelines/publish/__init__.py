"""Protocol of a release: caps, staging, claim, checks, charge and publication; manifest and output folder."""

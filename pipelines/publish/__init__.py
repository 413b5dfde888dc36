"""Protocol of a release: caps, staging, lease, checks, charge and publication; manifest and output folder."""

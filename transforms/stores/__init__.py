"""Object stores, S3 and Google Cloud Storage: listing, reading, and writing under conditions."""

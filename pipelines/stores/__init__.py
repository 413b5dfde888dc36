"""Object stores for commands: access that is checked first, and the audit of a release on a store."""

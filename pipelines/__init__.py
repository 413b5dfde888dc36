"""Commands of labeldp, and the Beam pipelines that they run."""

"""Studies that release nothing: tables, evaluation of models, and the process pool that they run in."""

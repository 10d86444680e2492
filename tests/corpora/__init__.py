"""Programs of other projects, built from packages of the registry: python -m tests.corpora.run."""

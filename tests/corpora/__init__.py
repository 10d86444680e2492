"""Programs that no one here wrote, built on the spot from packages of the registry: python -m tests.corpora.run."""

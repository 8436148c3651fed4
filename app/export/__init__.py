"""A session as files for other people and programs: an HTML report, and JSON with vLLM's names."""

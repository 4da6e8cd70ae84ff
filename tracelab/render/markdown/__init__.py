"""Results as GitHub-flavored Markdown, for a comment of a pull request or a job's summary."""
